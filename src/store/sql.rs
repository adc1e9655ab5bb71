//! The statements of the log. A test prepares each against the migrated schema.

/// Columns of an event, in the order that `row.rs` reads them.
macro_rules! event_columns {
    () => {
        "position, id, stream_kind, stream_id, revision, seq, type, schema, at, domain_id, domain, tenant_id, \
         actor_kind, actor_id, token_id, on_behalf_of, client, request_id, operation_id, note, change_id, cause, \
         hash, data"
    };
}

/// Columns of a domain, in the order that `row.rs` reads them.
macro_rules! domain_columns {
    () => {
        "d.id, d.name, d.tenant_id, d.status, d.status_before_delete, d.revision, d.labels, d.external_id, \
         d.serial_base, d.hold_until, d.rrsets, d.records, d.created_at, d.updated_at, \
         d.disabled_by, d.delegation_lost_at"
    };
}

/// The number of a user's rights. `$user` says whose.
macro_rules! rights_number {
    ($user:literal) => {
        concat!("coalesce((select r.number from rights r where r.user_id = ", $user, "), 0)")
    };
}
pub(crate) use rights_number;

/// $1 user, $2 token, $3 session, of which one at most: what a user may do now; no row where it is gone.
pub(super) const RIGHTS: &str = concat!(
    "select u.admin, u.enabled and case \
         when $2::uuid is not null then exists (select from desired.tokens t \
             where t.id = $2 and t.user_id = u.id and t.revoked_at is null) \
         when $3::uuid is not null then exists (select from sessions e where e.id = $3 and e.user_id = u.id) \
         else true end, \
     (select coalesce(jsonb_object_agg(m.tenant_id, m.role), '{}') from desired.members m where m.user_id = u.id), \
     (select coalesce(jsonb_object_agg(m.domain_id, m.role), '{}') from desired.domain_members m where m.user_id = u.id), ",
    rights_number!("u.id"),
    " from desired.users u where u.id = $1"
);

/// $1 operation: who asked for it, where it undoes what a token did.
pub(super) const UNDO_BY: &str =
    "select actor_id from events where stream_id = $1 and revision = 1 and type = 'undo.requested' limit 1";

/// $1 domain, $2 manager, $3 how many: RRsets that others manage.
pub(super) const OF_OTHERS: &str = "select r.domain_id, r.owner_key, r.type, r.ttl, r.records, r.comment, r.changed, \
     r.managed_by, r.owner from desired.rrsets r where r.domain_id = $1 and r.managed_by <> $2 \
     order by r.owner_key, r.type limit $3";

/// $1 … $67 as in `0145_rights.sql`; the answer comes back in `_result`.
pub(super) const APPEND: &str = "call append_batch($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, \
    $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, \
    $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47, $48, $49, $50, $51, $52, $53, $54, $55, $56, $57, $58, \
    $59, $60, $61, $62, $63, $64, $65, $66, $67, null)";

/// $1 names, $2 whether to take each stream's lock; `locked` says whether it was had.
pub(super) const DOMAINS: &str = concat!(
    "select ",
    domain_columns!(),
    ", s.last_hash, exists (select from desired.hostnames h where h.domain_id = d.id) as proxied, \
     (select array(select jsonb_object_keys(p.endpoints->'pools')) from desired.platform p \
      where p.endpoints->>'zone' = d.name) as pools, \
     case when $2 then pg_try_advisory_lock(7003, hashtext(d.id::text)) else true end as locked \
     from unnest($1::text[]) as n(name) join desired.domains d on d.name = n.name and d.current \
     join streams s on s.id = d.id and s.revision = d.revision"
);

/// $1 domain ids, $2 owner keys, pairwise.
pub(super) const RRSETS: &str = "select r.domain_id, r.owner_key, r.type, r.ttl, r.records, r.comment, r.changed, r.managed_by \
     from unnest($1::uuid[], $2::text[]) as n(domain_id, owner_key) \
     join desired.rrsets r on r.domain_id = n.domain_id and r.owner_key = n.owner_key";

/// $1 domain ids, $2 owner keys, pairwise; $3 how many below each.
pub(super) const BELOW: &str = "select n.domain_id, n.owner_key, b.owner_key, b.type \
     from unnest($1::uuid[], $2::text[]) as n(domain_id, owner_key) cross join lateral \
     (select r.owner_key, r.type from desired.rrsets r where r.domain_id = n.domain_id \
      and r.owner_key > (n.owner_key || ' ') collate \"C\" and r.owner_key < (n.owner_key || '!') collate \"C\" \
      order by r.owner_key, r.type limit $3) b";
/// $1, $2 domains and owner keys: these. $3, $4: these, and one below each. $5, $6 domains and hosts: one that is
/// fetched from the host, besides the host itself. $7 domains: all of them.
pub(super) const HOSTNAMES: &str = "select h.domain_id, h.owner, h.body, h.changed, h.leaving \
     from unnest($1::uuid[], $2::text[]) as n(domain_id, owner_key) \
     join desired.hostnames h on h.domain_id = n.domain_id and h.owner_key = n.owner_key \
     union all select h.domain_id, h.owner, h.body, h.changed, h.leaving from unnest($3::uuid[], $4::text[]) as n(domain_id, owner_key) \
     cross join lateral (select * from desired.hostnames h where h.domain_id = n.domain_id and h.leaving is null \
         and (n.owner_key = '' or h.owner_key = n.owner_key \
              or (h.owner_key >= n.owner_key || ' ' and h.owner_key < n.owner_key || '!')) \
         order by h.owner_key limit 2) h \
     union all select h.domain_id, h.owner, h.body, h.changed, h.leaving from unnest($5::uuid[], $6::text[]) as n(domain_id, host) \
     cross join lateral (select * from desired.hostnames h where h.domain_id = n.domain_id and h.leaving is null \
         and h.body->'origin'->>'host' = n.host limit 2) h \
     union all select h.domain_id, h.owner, h.body, h.changed, h.leaving from unnest($5::uuid[], $6::text[]) as n(domain_id, host) \
     cross join lateral (select * from desired.hostnames h where h.domain_id = n.domain_id and h.leaving is null \
         and h.body ? 'backup' and h.body->'backup'->'origin'->>'host' = n.host limit 2) h \
     union all select h.domain_id, h.owner, h.body, h.changed, h.leaving from desired.hostnames h \
     where h.domain_id = any($7) and h.leaving is null";

/// $1 domains.
pub(super) const CERTIFICATES: &str =
    "select c.domain_id, c.body, c.changed from desired.certificates c where c.domain_id = any($1)";

/// $1 domains: what edges are told besides names, and how many purges have not ended.
pub(super) const SITES: &str = "select s.domain_id, s.cache, s.cache_changed, s.cache_epoch, \
     (select count(*) from operations.operations o where o.domain_id = s.domain_id and o.kind = 'domain.purge' \
      and o.state in ('pending', 'running')) from desired.sites s where s.domain_id = any($1)";

/// $1 callers, $2 keys, pairwise.
pub(super) const RECEIPTS: &str = "select r.caller, r.key, r.request, r.outcome from unnest($1::uuid[], $2::uuid[]) as n(caller, key) \
     join receipts r on r.caller = n.caller and r.key = n.key and r.at > now() - interval '24 hours'";

/// $1 stream ids.
pub(super) const HEADS: &str = "select s.id, s.revision, s.last_hash from streams s where s.id = any($1)";

/// $1 name, $2 its key, $3 the keys of its ancestors: hosted domains above and below it, and deleted ones with until when
/// they are held.
pub(super) const RELATIVES: &str = "select d.name, d.tenant_id, case when d.status = 'deprovisioning' then d.hold_until end \
     from desired.domains d where d.current and (d.status <> 'deprovisioning' or d.hold_until is not null) \
     and d.name <> $1 and (d.name_key = any($3) or (d.name_key >= $2 || ' ' and d.name_key < $2 || '!'))";

/// $1 tenant.
pub(super) const TENANT: &str = "select domains from desired.tenants where id = $1";

/// $1 name.
pub(super) const LAST_SERIAL: &str = "select serial from desired.serials where name = $1";

/// $1 names: the holder of each, by namespace 1.
pub(super) const HOLDERS: &str = concat!(
    "select ",
    domain_columns!(),
    " from claims c join desired.domains d on d.id = c.holder where c.ns = 1 and c.name = $1"
);

/// $1 a key.
pub(super) const LOCK_ONE: &str = "select pg_try_advisory_lock(7003, hashtext($1))";

/// $1 a key: serializes claims of names that lie above or below each other. $2 a key that others share.
pub(super) const LOCK_NAME: &str = "select pg_try_advisory_lock(7003, hashtext($1)) \
     and pg_try_advisory_lock_shared(7003, hashtext($2))";

/// $1 a stream's id. Waits, so nothing else may be held.
pub(super) const LOCK_STREAM: &str = "select pg_advisory_lock(7003, hashtext($1))";

/// $1 names of domains: until when deleted ones were held for the same owner, whose names they took; not of one that was
/// itself deleted and restored since: then the last deletion of the name is undone already.
pub(super) const REPLACED: &str = "select d.name, max(o.hold_until) from desired.domains d \
     join desired.domains o on o.tenant_id = d.tenant_id and o.name = d.name and not o.current \
     where d.name = any($1) and d.current and o.hold_until is not null \
     and not exists (select from events e where e.stream_id = d.id and e.type = 'domain.restored') group by d.name";

/// $1 name.
pub(super) const DOMAIN_ID: &str = "select id::text from desired.domains where name = $1 and current";

/// $1 whether edges are concerned: the enabled DNS clusters, then the cells whose word counts.
pub(super) const TARGETS: &str = "select name from ( \
       select 0 as kind, name, 0::smallint as cell from desired.clusters where enabled \
       union all select 1, e.name || '/' || c.number, c.number from desired.cells c \
       join desired.edges e on e.id = c.edge_id \
       where $1 and e.enabled and e.identity_serial is not null and not c.drained) t order by kind, name, cell";

/// $1 batch. Waits for a call of it that is still running.
pub(super) const BATCH_ENDED: &str = "select pg_advisory_xact_lock(7004, hashtext($1::uuid::text))";

/// $1 batch.
pub(super) const BATCH: &str = "select first_position from batches where id = $1";

pub(super) const UNLOCK_ALL: &str = "select pg_advisory_unlock_all()";

/// The platform's part of every SOA serial.
pub(super) const GENERATION: &str = "select generation from desired.platform";

/// $1 namespace, $2 name.
pub(super) const CLAIM: &str = "select holder from claims where ns = $1 and name = $2";

/// $1 user, $2 tenant.
pub(super) const MEMBER: &str = "select exists (select from desired.users where id = $1) \
         and exists (select from desired.tenants where id = $2), \
     (select role from desired.members where user_id = $1 and tenant_id = $2)";

/// $1 user, $2 domain.
pub(super) const DOMAIN_MEMBER: &str = "select exists (select from desired.users where id = $1), \
     (select role from desired.domain_members where user_id = $1 and domain_id = $2)";

/// $1 domain, $2 tenant: whether it is known to be delegated elsewhere.
pub(super) const DELEGATION_LOST: &str = "select delegation_lost_at is not null from desired.domains \
     where id = $1 and tenant_id = $2 and current and status = 'active'";

/// $1 token, $2 user.
pub(super) const TOKEN_ACTIVE: &str =
    "select exists (select from desired.tokens where id = $1 and user_id = $2 and revoked_at is null)";

/// $1 user: what it is, and how many other administrators may come in.
pub(super) const USER: &str = "select u.admin, u.enabled, \
     (select count(*) from desired.users o where o.id <> u.id and o.admin and o.enabled) \
     from desired.users u where u.id = $1";

/// $1 user.
pub(super) const PERSON: &str = "select email, name from people where user_id = $1";

/// $1 tenant: what it is, whether it is the platform's own, and what it owns or what is held for it.
pub(super) const TENANT_FACTS: &str = "select t.name, t.labels, t.external_id, \
     exists (select from desired.platform p where p.tenant_id = t.id), \
     (select count(*) from desired.domains d where d.tenant_id = t.id and d.current \
      and (d.status <> 'deprovisioning' or d.hold_until > now())) from desired.tenants t where t.id = $1";

/// $1 cluster (or none).
pub(super) const CLUSTERS: &str = "select count(*), coalesce(bool_or(enabled) filter (where id = $1), false), \
     coalesce(bool_or(leaving) filter (where id = $1), false), max(name) filter (where id = $1) from desired.clusters";

/// $1 cluster.
pub(super) const CLUSTER: &str =
    "select database_url_file, dns, front, nameservers from desired.clusters where id = $1";

/// $1 scope, $2 id.
pub(super) const PAUSED: &str = "select exists (select from desired.pauses where scope = $1 and id = $2)";

/// $1 scope, $2 id: whether what a pause names is there.
pub(super) const SCOPE_EXISTS: &str = "select case $1 when 'all' then true \
     when 'target' then exists (select from desired.clusters where id::text = $2) \
     else exists (select from desired.domains where name = $2 and current) end";

pub(super) const IDENTITY: &str = "select identity, generation, endpoints from desired.platform";

/// $1 edge.
pub(super) const EDGE: &str = "select e.name, e.country, e.continent, e.labels, e.external_id, e.cells, e.enabled, \
     e.drained, e.identity_serial is not null, e.cloned is not null, \
     array(select c.number from desired.cells c where c.edge_id = e.id and c.drained order by 1), e.addresses \
     from desired.edges e where e.id = $1";

/// $1 edge: whether it is the only one that DNS sends visitors to.
pub(super) const IS_LAST_ENDPOINT: &str = "select exists (select from desired.platform p \
         cross join lateral jsonb_each(p.endpoints->'pools') o(pool, edges) where o.edges ? $1) \
     and not exists (select from desired.platform p cross join lateral jsonb_each(p.endpoints->'pools') o(pool, edges) \
         join desired.edges e on o.edges ? e.id::text where e.id::text <> $1 and e.enabled and not e.drained)";

/// $1 webhook.
pub(super) const WEBHOOK: &str = "select tenant_id, name, url, types, domains, labels, description, enabled, \
     secret_version from desired.webhooks where id = $1";

/// $1 tenant or null: whether it exists, and how many webhooks it has.
pub(super) const WEBHOOK_OWNER: &str = "select $1::uuid is null or exists (select from desired.tenants where id = $1), \
     (select count(*) from desired.webhooks where tenant_id is not distinct from $1)";

/// $1 tenant or null, $2 position, $3 how many at most: floor and head of the log, and how many of the tenant's events
/// (or all) stand after the position.
pub(super) const WEBHOOK_REPLAY: &str = "select m.floor_position, h.head, case when $1::uuid is null then h.head - $2 \
     else (select count(*) from (select from events where tenant_id = $1 and position > $2 limit $3) n) end \
     from log_meta m cross join (select coalesce(max(position), 0) as head from events) h";

/// $1 serial: whether the log tells of this identity, or it is gone.
pub(super) const IDENTITY_RECORDED: &str = "select not exists (select from edge_identities \
     where serial = $1 and not recorded and revoked_at is null)";

/// $1 operation: whether it has ended, by its row or, where that is behind, by its stream.
pub(super) const OPERATION_TERMINAL: &str = "select exists (select from operations.operations \
     where id = $1 and state not in ('pending', 'running')) \
     or exists (select from events where stream_id = $1 and type = 'operation.finished')";

/// The log's identity, floor and head.
pub(super) const LOG: &str =
    "select log_id, floor_position, (select coalesce(max(position), 0) from events) from log_meta";

/// $1 the log's new identity.
pub(super) const RENEW_LOG: &str =
    "update log_meta set log_id = $1, edge_epoch = edge_epoch + 1 returning log_id";

pub(super) const HEAD: &str = "select coalesce(max(position), 0) from events";

/// $1 after, $2 how many.
pub(super) const PAGE: &str =
    concat!("select ", event_columns!(), " from events where position > $1 order by position limit $2");

/// $1 after, $2 up to, $3 how many.
pub(super) const RAW_PAGE: &str = concat!(
    "select ",
    event_columns!(),
    " from events where position > $1 and position <= $2 order by position limit $3"
);

/// $1 after, $2 up to, $3 tenants, $4 user, $5 domains, $6 beginnings of types, $7 how many, $8 ids of single domains
/// beside the tenants, $9 the only domains that may be read. Planned anew each time, so that what is not asked for costs
/// nothing.
pub(super) const RAW_WINDOW: &str = concat!(
    "select ",
    event_columns!(),
    " from events where position > $1 and position <= $2 \
     and ($3::uuid[] is null or tenant_id = any($3) or stream_id = $4 or domain_id = any($8)) \
     and ($9::text[] is null or domain = any($9)) \
     and ($5::text[] is null or domain = any($5)) \
     and ($6::text[] is null or exists (select from unnest($6) p where starts_with(type, p))) \
     order by position limit $7"
);

/// $1 stream, $2 after revision, $3 up to revision, $4 how many.
pub(super) const STREAM_PAGE: &str = concat!(
    "select ",
    event_columns!(),
    " from events where stream_id = $1 and revision > $2 and revision <= $3 \
     order by revision, seq limit $4"
);

/// $1 stream, $2 revision and $3 number after which it goes on, $4 up to which revision, $5 how many.
pub(super) const PAST_PAGE: &str = concat!(
    "select ",
    event_columns!(),
    " from events where stream_id = $1 and (revision, seq) > ($2, $3) and revision <= $4 \
     order by revision, seq limit $5"
);

/// $1 domain, $2 revisions: the first event of the first one.
pub(super) const FIRST_UNDONE: &str = "select revision, position from events where stream_id = $1 and revision = any($2) order by revision, seq limit 1";

/// $1 domain, $2 revisions, $3 revision and $4 number after which it goes on, $5 up to which revision, $6 how many:
/// events about what those revisions touched.
pub(super) const UNDO_PAGE: &str = concat!(
    "select ",
    event_columns!(),
    " from events where stream_kind = 1 and stream_id = $1 and history_key(type, data) in \
     (select history_key(u.type, u.data) from events u where u.stream_kind = 1 and u.stream_id = $1 \
      and u.revision = any($2)) and (revision, seq) > ($3, $4) and revision <= $5 \
     order by revision, seq limit $6"
);

/// $1 domain, $2 from, $3 through, $4 types that are neutral: each revision, where it begins, when it came to be, and
/// whether it changed what targets serve.
pub(super) const MILESTONES: &str = "select revision, min(position), min(at), bool_or(type <> all($4)) from events \
     where stream_id = $1 and revision >= $2 and revision <= $3 group by revision order by revision";

/// $1 domain, $2 after, $3 types that are neutral: the next revision that changed what targets serve.
pub(super) const NEXT_CHANGE: &str = "select revision from events \
     where stream_id = $1 and revision > $2 and type <> all($3) order by revision, seq limit 1";

/// $1 domain, $2 after position, $3 from, $4 through: revisions in between that a target has verified. Only what is
/// such a fact is read as one.
pub(super) const ACKNOWLEDGED: &str = "select distinct a.revision from events e cross join lateral (select \
     case when e.type = 'deployment.acknowledged' then convert_from(e.data, 'UTF8')::jsonb end as data) d \
     cross join lateral (select (d.data->>'revision')::bigint as revision, \
         coalesce((d.data->>'removed')::boolean, false) as removed) a \
     where e.domain_id = $1 and e.position > $2 and e.type = 'deployment.acknowledged' \
     and not a.removed and a.revision between $3 and $4";

/// $1 domain: revisions that are active on a target, and those that were rolled back to.
pub(super) const KEPT_REVISIONS: &str = "select active_revision from desired.deployments \
     where domain_id = $1 and active_revision > 0 \
     union select (convert_from(data, 'UTF8')::jsonb->>'to')::bigint from events \
     where stream_id = $1 and type = 'domain.rolled_back'";

/// $1 domain, $2 after, $3 how many.
pub(super) const DOMAIN_PAGE: &str = concat!(
    "select ",
    event_columns!(),
    " from events where domain_id = $1 and position > $2 order by position limit $3"
);

/// $1 tenant, $2 after, $3 how many.
pub(super) const TENANT_PAGE: &str = concat!(
    "select ",
    event_columns!(),
    " from events where tenant_id = $1 and position > $2 order by position limit $3"
);

/// $1 stream, $2 revision, $3 number, after which it goes on; $4 up to which position; $5 how many.
pub(super) const CHAIN_PAGE: &str = concat!(
    "select ",
    event_columns!(),
    " from events where (stream_id, revision, seq) > ($1, $2, $3) and position <= $4 \
     order by stream_id, revision, seq limit $5"
);

/// $1 stream after which it goes on, $2 how many: the end that each stream has by its own row and by its last event.
pub(super) const CHAIN_ENDS: &str = "select s.id, s.revision, s.last_hash, e.position, e.revision, e.hash \
     from streams s left join lateral (select position, revision, hash from events where stream_id = s.id \
     order by revision desc, seq desc limit 1) e on true where s.id > $1 order by s.id limit $2";

/// $1 after, $2 up to, $3 how many.
pub(super) const POSITIONS: &str =
    "select position from events where position > $1 and position <= $2 order by position limit $3";

/// $1 digests.
pub(super) const CLIENTS: &str = "select digest, ip, agent from clients where digest = any($1)";

/// Who holds the tail of the log: the backend and the call that it is in.
pub(super) const TAIL_HOLDER: &str = "select a.pid, a.query_start from pg_locks l join pg_stat_activity a on a.pid = l.pid \
     where l.locktype = 'advisory' and l.database = (select oid from pg_database where datname = current_database()) \
     and l.classid = 0 and l.objid = 7001 and l.objsubid = 1 and l.granted and a.query_start is not null";

/// $1 backend, $2 beginning of its call: ends it if it is still in it.
pub(super) const FREE_TAIL: &str =
    "select pg_terminate_backend(a.pid) from pg_stat_activity a where a.pid = $1 and a.query_start = $2";

/// Ends a backend that holds streams while its client has not moved for longer than $1 seconds: a
/// stopped process must not keep others from its streams.
pub(super) const FREE_STREAMS: &str = "select pg_terminate_backend(a.pid) from pg_stat_activity a \
     where (a.state = 'idle' or a.wait_event_type = 'Client') \
     and a.state_change < clock_timestamp() - make_interval(secs => $1) \
     and a.pid in (select l.pid from pg_locks l where l.locktype = 'advisory' and l.classid = 7003 and l.granted \
     and l.database = (select oid from pg_database where datname = current_database()))";

/// Every statement, for the test that prepares them.
pub const ALL: &[&str] = &[
    DOMAINS,
    RRSETS,
    BELOW,
    HOSTNAMES,
    CERTIFICATES,
    SITES,
    RECEIPTS,
    HEADS,
    RELATIVES,
    TENANT,
    LAST_SERIAL,
    HOLDERS,
    LOCK_ONE,
    LOCK_NAME,
    LOCK_STREAM,
    DOMAIN_ID,
    REPLACED,
    TARGETS,
    BATCH_ENDED,
    BATCH,
    UNLOCK_ALL,
    GENERATION,
    CLAIM,
    MEMBER,
    DOMAIN_MEMBER,
    DELEGATION_LOST,
    USER,
    PERSON,
    TENANT_FACTS,
    TOKEN_ACTIVE,
    CLUSTERS,
    CLUSTER,
    PAUSED,
    SCOPE_EXISTS,
    IDENTITY,
    OPERATION_TERMINAL,
    LOG,
    RENEW_LOG,
    EDGE,
    WEBHOOK,
    WEBHOOK_OWNER,
    WEBHOOK_REPLAY,
    IDENTITY_RECORDED,
    IS_LAST_ENDPOINT,
    HEAD,
    PAGE,
    RAW_PAGE,
    RAW_WINDOW,
    STREAM_PAGE,
    PAST_PAGE,
    FIRST_UNDONE,
    UNDO_PAGE,
    MILESTONES,
    NEXT_CHANGE,
    ACKNOWLEDGED,
    KEPT_REVISIONS,
    DOMAIN_PAGE,
    TENANT_PAGE,
    CHAIN_PAGE,
    CHAIN_ENDS,
    POSITIONS,
    CLIENTS,
    TAIL_HOLDER,
    FREE_TAIL,
    FREE_STREAMS,
    APPEND,
    RIGHTS,
    OF_OTHERS,
    UNDO_BY,
];
