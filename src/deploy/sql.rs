//! The reconciler's statements on the control database. Those on a target stand beside the projection.

use headwater_events::ids::{DomainId, Revision};

/// For statements that find few rows by an index. How many are due cannot be estimated, since it is a comparison of
/// columns, and a plan outlives the time when its table was small: the planner would read whole tables for them.
macro_rules! by_index {
    ($begin:literal) => {
        concat!(
            $begin,
            "; set local enable_seqscan = off; set local enable_hashjoin = off; set local enable_mergejoin = off"
        )
    };
}

/// One consistent sight of the control database.
pub(super) const SNAPSHOT: &str = by_index!("begin isolation level repeatable read read only");

/// A short look at what is due.
pub const INDEXED: &str = by_index!("begin read only");

pub(super) const CLUSTERS: &str =
    "select id, name, database_url_file, dns, front, enabled from desired.clusters order by id";

/// $1 name, $2 owner, $3 seconds, $4 whether the former owner is known to be gone: takes or renews a lease.
pub(super) const LEASE: &str = "insert into leases as l (name, owner, until) \
     values ($1, $2, clock_timestamp() + make_interval(secs => $3)) \
     on conflict (name) do update set until = excluded.until, owner = excluded.owner, \
       fence = case when l.owner = excluded.owner then l.fence else l.fence + 1 end \
     where l.owner = excluded.owner or l.until < clock_timestamp() or $4 returning fence";

/// $1 name, $2 owner.
pub(super) const LEASE_END: &str =
    "update leases set until = clock_timestamp() where name = $1 and owner = $2";

/// $1 name: held as long as this connection lives, so a dead owner shows at once.
pub(super) const LEASE_ALIVE: &str = "select pg_try_advisory_lock(7010, hashtext($1))";

/// $1 name: ends the session that holds the lock of a lease whose time is over. Its process stands still.
pub(super) const LEASE_BREAK: &str = "select count(pg_terminate_backend(pid)) from pg_locks \
     where locktype = 'advisory' and classid = 7010 and objid::bigint = hashtext($1)::bigint & 4294967295 \
       and objsubid = 2 and granted and pid <> pg_backend_pid() \
       and database = (select oid from pg_database where datname = current_database())";

/// A permit is held for as long as the target takes to commit, however long that is.
pub(super) const PERMIT_BEGIN: &str = "begin; set local idle_in_transaction_session_timeout = 0";

/// $1 cluster: the lock that whoever writes holds together with others, then whether the cluster may be written.
pub(super) const PERMIT: &str = "select deploy_permit($1)";

/// $1 cluster, as text: had when nobody writes to it.
pub(super) const PERMITS_ENDED: &str = "select pg_advisory_xact_lock(7011, hashtext($1))";

/// What a deployment is due for, without its zone: nothing where the cluster ($1) is disabled, in the same snapshot; and
/// not while a cell has still to learn of a name that was proxied lately.
macro_rules! due {
    () => {
        "(dep.desired_revision <> dep.active_revision or dep.desired_generation <> dep.active_generation \
          or dep.state in ('activating', 'failed')) \
         and exists (select from desired.clusters c where c.id = $1 and c.enabled) \
         and not exists (select from desired.pauses p where p.scope = 'all' \
           or (p.scope = 'target' and p.id = $1::text) or (p.scope = 'domain' and p.id = m.name)) \
         and not (dep.wanted and dep.domain_id in (select h.domain_id from desired.hostnames h \
             where h.added_at > now() - interval '30 seconds') and edge.waits(dep.domain_id, dep.active_revision))"
    };
}

/// How a domain that is wanted at a revision is named in `DUE`: as one text, which is found among many by its hash.
pub(super) fn wanted_at(domain: DomainId, revision: Revision) -> String {
    format!("{} {revision}", domain.as_uuid())
}

/// What is due now of the cluster ($1) and not in hand ($2), nor wanted at the revision that is being asked about ($7).
macro_rules! due_now {
    () => {
        concat!(
            "desired.deployments dep join desired.domains m on m.id = dep.domain_id \
             where dep.cluster_id = $1 and dep.next_attempt_at <= now() and not (dep.domain_id = any($2)) \
               and not (dep.domain_id::text || ' ' || dep.desired_revision = any($7::text[])) and ",
            due!()
        )
    };
}

/// The first tenant after another that has anything due.
macro_rules! next_tenant {
    ($after:literal) => {
        concat!(
            "(select dep.tenant_id from ",
            due_now!(),
            " and dep.tenant_id > ",
            $after,
            " order by dep.tenant_id limit 1)"
        )
    };
}

/// $1 cluster, $2 domains in hand, $3 how many, $4 events counted at most, $5 the tenant after which it begins, $6 how
/// many tenants, $7 domains at revisions (`wanted_at`) that are asked about: what is due now, and how large it is. The
/// tenants take turns: first the longest waiting domain of each, then the second of each. Of each tenant no more is read
/// than may be taken, by the index of what is due (see [`INDEXED`]); sizes are looked up for what is taken.
pub const DUE: &str = concat!(
    "with recursive tenants as (",
    next_tenant!("$5"),
    " union all select n.tenant_id from tenants t cross join lateral ",
    next_tenant!("t.tenant_id"),
    " n) \
     select d.domain_id, d.whole, d.records, \
       case when d.whole or d.active_revision = 0 then 0 else \
         (select count(*) from (select from events e where e.stream_id = d.domain_id \
            and e.revision > d.active_revision and e.revision <= d.desired_revision limit $4) n) end, d.tenant_id \
     from (select w.*, row_number() over (partition by w.tenant_id order by w.next_attempt_at, w.desired_at) as turn \
       from (select tenant_id from tenants limit $6) t cross join lateral ( \
         select dep.domain_id, dep.tenant_id, dep.next_attempt_at, dep.desired_at, m.records, dep.desired_revision, \
           dep.wanted and (dep.active_revision = 0 or dep.state = 'removed') as whole, \
           case when dep.wanted then dep.active_revision else 0 end as active_revision \
         from ",
    due_now!(),
    " and dep.tenant_id = t.tenant_id order by dep.next_attempt_at, dep.desired_at limit $3) w \
       order by turn, w.next_attempt_at, w.desired_at limit $3) d \
     order by d.turn, d.next_attempt_at, d.desired_at"
);

/// Columns of a claim, in the order in which they are read.
macro_rules! claim {
    () => {
        "select dep.domain_id, m.name, m.name_key, m.tenant_id, m.serial_base, m.records, dep.wanted, \
           dep.desired_revision, dep.desired_generation, dep.active_revision, dep.state, dep.attempts, \
           dep.last_error, dep.checksum, dep.desired_at, dep.active_generation \
         from desired.deployments dep join desired.domains m on m.id = dep.domain_id "
    };
}

/// $1 cluster, $2 domains: those of them that are due.
pub(super) const CLAIM: &str =
    concat!(claim!(), "where dep.cluster_id = $1 and dep.domain_id = any($2) and ", due!());

/// $1 cluster, $2 domains: due or not.
pub(super) const DEPLOYMENTS: &str =
    concat!(claim!(), "where dep.cluster_id = $1 and dep.domain_id = any($2)");

/// $1 cluster, $2 the last name had, $3 how many: every deployment whose zone is meant to be there.
pub(super) const DEPLOYMENTS_PAGE: &str = concat!(
    claim!(),
    "where dep.cluster_id = $1 and m.current and m.name > $2 and (dep.wanted or dep.state <> 'removed') \
     order by m.name limit $3"
);

/// $1 cluster, $2 how many: deployed since they were checked.
pub(super) const CHECK_CHANGED: &str = "select dep.domain_id from desired.deployments dep \
     where dep.cluster_id = $1 and dep.state = 'current' and dep.wanted and dep.verified_at > dep.checked_at \
       and exists (select from desired.clusters c where c.id = $1 and c.enabled) \
     order by dep.verified_at limit $2";

/// $1 cluster, $2 how many, $3 seconds: not checked for that long, the longest first.
pub(super) const CHECK_ROLLING: &str = "select dep.domain_id from desired.deployments dep \
     where dep.cluster_id = $1 and dep.state in ('current', 'activating') and dep.wanted \
       and exists (select from desired.clusters c where c.id = $1 and c.enabled) \
       and dep.checked_at < now() - make_interval(secs => $3) order by dep.checked_at limit $2";

/// $1 cluster.
pub(super) const CHECK_COUNT: &str =
    "select count(*) from desired.deployments where cluster_id = $1 and wanted";

/// $1 cluster, $2 domains.
pub(super) const CHECKED: &str = "update desired.deployments set checked_at = now() \
     where cluster_id = $1 and domain_id = any($2)";

/// $1 cluster, $2 domains, $3 the revisions tried, $4 tries, $5 seconds until the next: unless something newer is
/// wanted by now.
pub(super) const RETRY_LATER: &str = "update desired.deployments dep \
     set attempts = n.attempts, next_attempt_at = clock_timestamp() + make_interval(secs => n.pause) \
     from unnest($2::uuid[], $3::bigint[], $4::int[], $5::float8[]) as n(id, revision, attempts, pause) \
     where dep.cluster_id = $1 and dep.domain_id = n.id and dep.desired_revision = n.revision";

/// $1 cluster: it can be reached again, so nothing waits any longer.
pub(super) const RETRY_NOW: &str = "update desired.deployments set next_attempt_at = '-infinity' \
     where cluster_id = $1 and next_attempt_at > now() and state in ('failed', 'activating', 'pending') \
       and (desired_revision <> active_revision or desired_generation <> active_generation \
            or state in ('activating', 'failed'))";

/// $1 cluster, $2 domain.
pub(super) const RETRY_ONE_NOW: &str = "update desired.deployments set next_attempt_at = '-infinity', attempts = 0 \
     where cluster_id = $1 and domain_id = $2";

/// $1 cluster.
pub(super) const REACHED: &str = "insert into cluster_health (cluster_id, reached_at) values ($1, now()) \
     on conflict (cluster_id) do update set reached_at = excluded.reached_at, last_error = null";

/// $1 cluster, $2 why.
pub(super) const UNREACHED: &str = "insert into cluster_health (cluster_id, failed_at, last_error) \
     values ($1, now(), $2) \
     on conflict (cluster_id) do update set failed_at = excluded.failed_at, last_error = excluded.last_error";

/// $1 name.
pub(super) const DOMAIN_BY_NAME: &str = "select id from desired.domains where name = $1 and current";

/// $1 platform's stream, $2 the type of the event, $3 a generation: the newest of them up to it.
pub(super) const AT_GENERATION: &str = "select schema, data from events where stream_id = $1 and type = $2 \
     and (convert_from(data, 'UTF8')::jsonb->>'generation')::bigint <= $3 order by revision desc, seq desc limit 1";

/// $1 cluster, $2 domains: those that this log did not deploy there.
pub(super) const NOT_DEPLOYED: &str = "select n.id from unnest($2::uuid[]) as n(id) where not exists ( \
     select from desired.deployments d where d.cluster_id = $1 and d.domain_id = n.id)";

/// $1 cluster: after which zone the walk over its zones goes on, and when it began.
pub(super) const LOOK_BEGIN: &str = "insert into target_looks as l (cluster_id) values ($1) \
     on conflict (cluster_id) do update set after = l.after returning after, began_at";

/// $1 cluster, $2 zones, $3 whether they are lost.
pub(super) const LOOK_FOUND: &str = "insert into target_strays (cluster_id, zone, lost, seen_at) \
     select $1, n.zone, n.lost, now() from unnest($2::text[], $3::boolean[]) as n(zone, lost) \
     on conflict (cluster_id, zone) do update set lost = excluded.lost, seen_at = excluded.seen_at";

/// $1 cluster, $2 and $3 where the walk was found, $4 the last zone had. Another look may have gone on meanwhile: then
/// this one does not, so that no part of the zones is left out.
pub(super) const LOOK_NEXT: &str =
    "update target_looks set after = $4 where cluster_id = $1 and after = $2 and began_at = $3";

/// $1 cluster, $2 and $3 where the walk was found: it was whole. What it did not see is not there any more.
pub(super) const LOOK_WALKED: &str = "with walked as (update target_looks set after = '', began_at = now() \
       where cluster_id = $1 and after = $2 and began_at = $3 returning cluster_id) \
     delete from target_strays s using walked w where s.cluster_id = w.cluster_id and s.seen_at < $3";

/// Statements on the control database.
pub const ALL: &[&str] = &[
    CLUSTERS,
    LEASE,
    LEASE_END,
    LEASE_ALIVE,
    LEASE_BREAK,
    PERMIT,
    PERMITS_ENDED,
    DUE,
    CLAIM,
    DEPLOYMENTS,
    DEPLOYMENTS_PAGE,
    CHECK_CHANGED,
    CHECK_ROLLING,
    CHECK_COUNT,
    CHECKED,
    RETRY_LATER,
    RETRY_NOW,
    RETRY_ONE_NOW,
    REACHED,
    UNREACHED,
    DOMAIN_BY_NAME,
    AT_GENERATION,
    NOT_DEPLOYED,
    LOOK_BEGIN,
    LOOK_FOUND,
    LOOK_NEXT,
    LOOK_WALKED,
];
