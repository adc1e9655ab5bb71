//! Statements of operations: cursors of what follows the log, the deadline, and what the API reads.

/// One page of a projection. Its statements find rows by their keys; a plan that was made while a table was small would
/// go on reading all of it.
pub(super) const STEP: &str = "begin; set local enable_seqscan = off";

/// $1 name, $2 version.
pub(super) const CURSOR: &str = "select position from projection_cursors where name = $1 and version = $2";

/// $1 name, $2 version. A row of another version stays: it needs a rebuild, not a new start over old rows.
pub(super) const CURSOR_BEGIN: &str =
    "insert into projection_cursors (name, version) values ($1, $2) on conflict do nothing";

/// $1 name: of which version its rows are.
pub(super) const CURSOR_VERSION: &str = "select version from projection_cursors where name = $1";

/// $1 name, $2 version, $3 from, $4 to: no row when another process moved it.
pub(super) const CURSOR_MOVE: &str = "update projection_cursors \
     set position = $4, state = 'live', last_error = null, updated_at = now() \
     where name = $1 and version = $2 and position = $3";

/// $1 name: it stands at the head, so what went wrong before is over.
pub(super) const CURSOR_WELL: &str = "update projection_cursors set state = 'live', last_error = null \
     where name = $1 and state = 'failing'";

/// $1 name, $2 state, $3 why it stands still.
pub(super) const CURSOR_ERROR: &str =
    "update projection_cursors set state = $2, last_error = $3, updated_at = now() where name = $1";

/// $1 name, $2 owner, $3 seconds: a row when the lease is ours now.
pub(super) const LEASE: &str = "insert into leases as t (name, owner, until) \
     values ($1, $2, now() + make_interval(secs => $3)) \
     on conflict (name) do update set owner = excluded.owner, until = excluded.until, \
     fence = case when t.owner = excluded.owner then t.fence else t.fence + 1 end \
     where t.owner = excluded.owner or t.until < now() returning fence";

/// The targets of an operation as JSON: every enabled one, and of the others those that its domain is deployed to.
/// `o` is the operation.
macro_rules! targets {
    () => {
        "(select coalesce(jsonb_agg(jsonb_build_object('id', t.cluster_id, 'name', t.name, \
         'verified', coalesce(v.revision >= o.revision, false), \
         'enabled', t.enabled, \
         'in_service', t.enabled and coalesce(h.reached_at > now() - interval '60 seconds', false), \
         'state', d.state, 'error', d.last_error, 'attempts', d.attempts, \
         'next_attempt_at', case when isfinite(d.next_attempt_at) then d.next_attempt_at end) \
         order by t.name), '[]'::jsonb) \
         from operations.targets t \
         left join operations.verified v on v.domain_id = o.domain_id and v.cluster_id = t.cluster_id \
         left join cluster_health h on h.cluster_id = t.cluster_id \
         left join desired.deployments d on d.domain_id = o.domain_id and d.cluster_id = t.cluster_id \
         where t.enabled or d.domain_id is not null)"
    };
}

/// What the edges have made of an operation as JSON; null for one that they have nothing to do with: `o` is the
/// operation. A cell is current once it has acknowledged the position of the operation's event.
macro_rules! edges {
    () => {
        "(select jsonb_build_object(\
         'rendered', coalesce((select c.position >= p.position from projection_cursors c where c.name = 'edge'), false), \
         'fault', (select d.fault from edge.domains d where d.domain_id = o.domain_id \
                   and (d.removed or d.revision < o.revision)), \
         'cells', (select coalesce(jsonb_agg(jsonb_build_object('edge', c.edge_id, 'cell', c.cell, 'name', c.name, \
                       'in_service', c.in_service, 'current', coalesce(c.acked >= p.position, false), \
                       'late', o.kind = 'domain.hostname' and a.at > o.created_at + interval '30 seconds', \
                       'at', a.at, 'refused', case when c.refused_revision >= o.revision then c.refused_why end, \
                       'refused_at', case when c.refused_revision >= o.revision then (select r.at from edge.refusals r \
                           where r.edge_id = c.edge_id and r.domain_id = o.domain_id) end) \
                       order by c.name, c.cell), '[]'::jsonb) from edge.cells(o.domain_id) c \
                   left join edge.acks a on a.edge_id = c.edge_id and a.cell = c.cell)) \
         from (select max(e.position) as position from events e \
               where e.stream_id = o.domain_id and e.revision = o.revision) p \
         where o.kind in ('domain.hostname', 'domain.cache', 'domain.purge', 'domain.rollback_edges', \
                          'domain.undo_edges', 'domain.certificate'))"
    };
}

/// $1 when the last one was accepted, $2 which it was, $3 how many: the next open operations on domains that the log
/// alone may not end. Those of edges are looked at from the first moment, the others once they have been open for a
/// while, which few are.
pub(super) const OPEN: &str = "select created_at, id from operations.operations \
     where state in ('pending', 'running') and domain_id is not null and (created_at, id) > ($1, $2) \
     and (created_at < now() - interval '1 second' or kind in ('domain.hostname', 'domain.cache', 'domain.purge', \
          'domain.rollback_edges', 'domain.certificate')) order by created_at, id limit $3";

/// $1 deadline in seconds, $2 operations: those of them that may have to end, oldest first.
pub(super) const OVERDUE: &str = concat!(
    "select o.id, o.domain_id, o.domain, o.tenant_id, o.created_at < now() - make_interval(secs => $1), t.targets, \
     t.edges \
     from operations.operations o cross join lateral (select ",
    targets!(),
    " as targets, ",
    edges!(),
    " as edges) t cross join lateral (select \
         exists (select from jsonb_array_elements(t.targets) e \
                 where (e->>'in_service')::boolean and (e->>'verified')::boolean) \
         and not exists (select from jsonb_array_elements(t.targets) e \
                         where (e->>'in_service')::boolean and not (e->>'verified')::boolean) as dns) s \
     where o.id = any($2) and o.state in ('pending', 'running') and o.domain_id is not null \
     and (o.created_at < now() - make_interval(secs => $1) or case \
         when t.edges is null then o.created_at < now() - interval '1 second' and s.dns \
         else t.edges->>'fault' is not null \
             or exists (select from jsonb_array_elements(t.edges->'cells') c \
                        where (c->>'in_service')::boolean and c->>'refused' is not null) \
             or (s.dns and (t.edges->>'rendered')::boolean \
                 and not exists (select from jsonb_array_elements(t.edges->'cells') c \
                                 where (c->>'in_service')::boolean and not (c->>'current')::boolean)) end) \
     order by o.created_at"
);

/// $1 deadline in seconds: open operations that bring a cluster up to date: how many of its domains lag, and
/// whether it was out of reach for that long.
pub(super) const CLUSTERS: &str = "select o.id, o.cluster_id, c.name, \
     exists (select from desired.deployments d \
             where d.cluster_id = o.cluster_id and d.wanted \
             and (d.desired_revision <> d.active_revision or d.desired_generation <> d.active_generation \
                  or d.state <> 'current') \
             and (d.verified_at is null or d.verified_at < o.created_at)), \
     coalesce(greatest(h.reached_at, o.created_at), o.created_at) < now() - make_interval(secs => $1), h.last_error \
     from operations.operations o join desired.clusters c on c.id = o.cluster_id \
     left join cluster_health h on h.cluster_id = o.cluster_id \
     where o.state in ('pending', 'running') and o.domain_id is null order by o.created_at limit 100";

/// Imperative work is running once a try of it was begun: the log does not tell.
macro_rules! state {
    () => {
        "case when o.state = 'pending' and r.attempts > 0 then 'running' else o.state end"
    };
}

macro_rules! operation_columns {
    () => {
        concat!(
            "select o.id, o.kind, o.lane, ",
            state!(),
            ", o.domain_id, o.domain, o.tenant_id, o.revision, o.actor_id, \
             o.served, o.superseded_by, o.error, o.created_at, o.finished_at, o.cluster_id, \
             (select coalesce(jsonb_agg(jsonb_build_object('id', p.id, 'name', c.name)), '[]'::jsonb) \
              from jsonb_array_elements_text(o.partial) as p(id) \
              left join operations.targets c on c.cluster_id::text = p.id), ",
            targets!(),
            ", o.result, case when o.lane = 'bulk_maintenance' then \
               (select convert_from(e.data, 'UTF8')::jsonb from events e \
                where e.stream_id = o.id and e.revision = 1 and e.seq = 0) end, \
             r.phase, r.done, r.total, r.checkpoint, r.attempts, r.error, \
             case when isfinite(r.next_attempt_at) and r.next_attempt_at > now() then r.next_attempt_at end, \
             o.cells, o.warnings, ",
            edges!(),
            " from operations.operations o left join operation_runs r on r.id = o.id "
        )
    };
}

/// $1 operation.
pub(super) const OPERATION: &str = concat!(operation_columns!(), "where o.id = $1");

/// $1 tenants (none: all), $2 user, $3 domain, $4 states, $5 before, $6 how many, $7 ids of single domains beside the
/// tenants, $8 the only names that may be shown. Planned anew each time.
pub(super) const OPERATIONS: &str = concat!(
    operation_columns!(),
    "where ($1::uuid[] is null or o.tenant_id = any($1) or o.actor_id = $2 or o.domain_id = any($7)) \
     and ($8::text[] is null or o.domain = any($8)) \
     and ($3::text is null or o.domain = $3) and ($4::text[] is null or ",
    state!(),
    " = any($4)) \
     and ($5::uuid is null or o.id < $5) order by o.id desc limit $6"
);

/// $1 stream, $2 revision: the commit.
pub(super) const COMMITTED: &str =
    "select position, at from events where stream_id = $1 and revision = $2 order by seq limit 1";

/// $1 domain, $2 after, $3 how many: deployment facts of a domain.
pub(super) const FACTS: &str = "select e.position, e.at, e.type, e.schema, e.data, e.stream_id, \
     coalesce(t.name, e.stream_id::text) \
     from events e left join operations.targets t on t.cluster_id = e.stream_id \
     where e.domain_id = $1 and e.position > $2 and starts_with(e.type, 'deployment.') \
     order by e.position limit $3";

/// $1 domain, $2 revision: deployments `d` on enabled targets `t` that have not verified it.
macro_rules! lagging {
    () => {
        "t.cluster_id = d.cluster_id and t.enabled and d.domain_id = $1 \
         and not exists (select from operations.verified v where v.domain_id = d.domain_id \
                         and v.cluster_id = d.cluster_id and v.revision >= $2)"
    };
}

/// $1 domain, $2 revision: deployments on enabled targets that have not verified it are tried at once.
pub(super) const RETRY: &str = concat!(
    "update desired.deployments d set next_attempt_at = '-infinity', attempts = 0 \
     from operations.targets t where ",
    lagging!()
);

/// $1 domain, $2 revision: name and attempts of each that [`RETRY`] would touch.
pub(super) const RETRYABLE: &str = concat!(
    "select t.name, d.attempts from desired.deployments d, operations.targets t where ",
    lagging!(),
    " order by t.name"
);

/// Only while a lease is held: $2 its name, $3 its owner.
macro_rules! held {
    () => {
        "exists (select from leases where name = $2 and owner = $3 and until > clock_timestamp())"
    };
}

/// The imperative work that is due, what repairs before what only looks: what was asked for, and how often it was tried. Ended is what the log says has.
pub(super) const DUE_RUN: &str = "select o.id, e.type, e.schema, e.data, coalesce(r.attempts, 0), r.error, \
     e.position, e.actor_kind, e.actor_id, e.token_id, e.on_behalf_of, e.note \
     from operations.operations o join events e on e.stream_id = o.id and e.revision = 1 and e.seq = 0 \
     left join operation_runs r on r.id = o.id \
     where o.lane = 'bulk_maintenance' and o.state in ('pending', 'running') \
     and coalesce(r.next_attempt_at, '-infinity') <= now() \
     and not exists (select from events f where f.stream_id = o.id and f.type = 'operation.finished') \
     order by o.kind = 'projection.verify', o.created_at, o.id limit 1";

/// $1 operation, $2 lease, $3 owner, $4 whether it begins anew each time: counts a try.
pub(super) const BEGIN_RUN: &str = concat!(
    "insert into operation_runs as r (id, attempts) select $1, 1 where ",
    held!(),
    " on conflict (id) do update set attempts = r.attempts + 1, next_attempt_at = '-infinity', updated_at = now(), \
     checkpoint = case when $4 then '{}' else r.checkpoint end, done = case when $4 then 0 else r.done end, \
     differences = case when $4 then 0 else r.differences end \
     returning r.checkpoint, r.differences"
);

/// $1 operation, $2 lease, $3 owner: what an earlier try found.
pub(super) const FORGET_DIFFERENCES: &str =
    concat!("delete from operation_differences where operation = $1 and ", held!());

/// $1 operation, $2 lease, $3 owner, $4 phase, $5 done, $6 total, $7 checkpoint, $8 differences so far; $9 numbers
/// and $10 texts of those that are told. A row when it was kept.
pub(super) const SAVE_RUN: &str = concat!(
    "with kept as (update operation_runs r set phase = $4, done = $5, total = $6, checkpoint = $7, \
       differences = $8, updated_at = now() where r.id = $1 and ",
    held!(),
    " returning r.id), \
     told as (insert into operation_differences (operation, number, difference) \
       select k.id, d.number, d.difference::jsonb from kept k, unnest($9::integer[], $10::text[]) as d(number, difference) \
       on conflict do nothing) \
     select id from kept"
);

/// $1 operation, $2 lease, $3 owner, $4 seconds until the next try, $5 why, $6 whether the try counts.
pub(super) const PUT_OFF_RUN: &str = concat!(
    "update operation_runs set next_attempt_at = now() + make_interval(secs => $4), error = $5, \
     attempts = greatest(attempts - case when $6 then 0 else 1 end, 0), updated_at = now() where id = $1 and ",
    held!()
);

/// $1 operation: whether the log says that it has ended.
pub(super) const RUN_ENDED: &str =
    "select exists (select from events where stream_id = $1 and type = 'operation.finished')";

/// $1 operation: its next try is due now; a row when it was put off.
pub(super) const RETRY_RUN: &str = "update operation_runs set next_attempt_at = '-infinity' \
     where id = $1 and next_attempt_at > now()";

/// $1 days: runs that nobody has touched for so long are forgotten, with what they found.
pub(super) const FORGET_RUNS: &str = "delete from operation_runs r where r.updated_at < now() - make_interval(days => $1) \
     and not exists (select from operations.operations o where o.id = r.id and o.state in ('pending', 'running'))";

/// $1 operation, $2 after, $3 how many.
pub(super) const DIFFERENCES: &str = "select number, difference from operation_differences \
     where operation = $1 and number > $2 order by number limit $3";

/// $1 token, $2 from, $3 before (none: now), $4 up to which position: revisions of each domain that there is and that
/// the token changed, by name.
pub(super) const TOKEN_CHANGES: &str = "select d.id, d.name, d.tenant_id, array_agg(distinct e.revision order by e.revision) \
     from audit.entries a join events e on e.position = a.position \
     join desired.domains d on d.id = e.stream_id and d.current and d.status <> 'deprovisioning' \
     where a.token_id = $1 and a.at >= $2 and ($3::timestamptz is null or a.at < $3) and a.position <= $4 \
     and e.stream_kind = 1 group by d.id order by d.name";

/// $1 operation: zones that it found to differ are checked next, on every cluster.
pub(super) const CHECK_SOON: &str = "update desired.deployments set checked_at = '-infinity' \
     where domain_id in (select id from desired.domains where current and name in \
       (select difference->'key'->>0 from operation_differences where operation = $1))";

/// Every statement, for the test that prepares them.
pub const ALL: &[&str] = &[
    CURSOR,
    CURSOR_BEGIN,
    CURSOR_VERSION,
    CURSOR_MOVE,
    CURSOR_WELL,
    CURSOR_ERROR,
    LEASE,
    OPEN,
    OVERDUE,
    CLUSTERS,
    OPERATION,
    OPERATIONS,
    COMMITTED,
    FACTS,
    RETRY,
    RETRYABLE,
    DUE_RUN,
    BEGIN_RUN,
    FORGET_DIFFERENCES,
    SAVE_RUN,
    PUT_OFF_RUN,
    RUN_ENDED,
    RETRY_RUN,
    FORGET_RUNS,
    DIFFERENCES,
    CHECK_SOON,
    TOKEN_CHANGES,
];
