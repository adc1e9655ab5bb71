//! The statements of the API's reads. A test prepares each against the migrated schema.

/// Columns of a domain, in the order that the store reads them, and whether every target has let go of it.
macro_rules! domain_columns {
    () => {
        "d.id, d.name, d.tenant_id, d.status, d.status_before_delete, d.revision, d.labels, d.external_id, \
         d.serial_base, d.hold_until, d.rrsets, d.records, d.created_at, d.updated_at, \
         d.disabled_by, d.delegation_lost_at, \
         d.status = 'deprovisioning' and not exists (select from desired.deployments p \
             where p.domain_id = d.id and p.state <> 'removed') as removed, \
         (select max(p.desired_generation) from desired.deployments p where p.domain_id = d.id and p.wanted) as generation, \
         (select to_jsonb(v) from domain_checks v where v.domain_id = d.id) as checked"
    };
}

/// What is read of an RRset and of the mutation that last changed it.
macro_rules! rrset_fields {
    () => {
        "r.owner_key, r.type, r.owner, r.ttl, r.records, r.comment, r.changed, \
         e.at, e.actor_kind, e.actor_id, e.token_id, e.on_behalf_of, e.note, r.managed_by"
    };
}

/// Columns of an RRset and of the mutation that last changed it.
macro_rules! rrset_columns {
    () => {
        concat!(
            rrset_fields!(),
            " from desired.rrsets r left join events e \
             on e.stream_id = r.domain_id and e.revision = r.changed and e.seq = 0"
        )
    };
}

pub(in crate::query) use rrset_fields;

/// Columns of a deployment.
macro_rules! deployment_columns {
    () => {
        "d.id, d.name, d.tenant_id, d.serial_base, c.id, c.name, c.enabled, p.wanted, p.desired_revision, \
         p.desired_generation, p.active_revision, p.active_generation, p.state, p.checksum, p.serial, p.attempts, \
         nullif(p.next_attempt_at, '-infinity'), p.last_error, p.desired_at, p.verified_at \
         from desired.deployments p join desired.domains d on d.id = p.domain_id \
         join desired.clusters c on c.id = p.cluster_id"
    };
}

/// Columns of a token.
macro_rules! token_columns {
    () => {
        "t.id, t.user_id, t.name, t.created_at, t.expires_at, t.revoked_at, t.scopes, t.max_unused_days, t.networks, \
         w.used_at, t.manager, t.view from desired.tokens t left join token_uses w on w.token_id = t.id"
    };
}

/// Columns of a user.
macro_rules! user_columns {
    () => {
        "u.id, p.email, u.admin, u.revision, u.created_at, \
         array(select m.tenant_id from desired.members m where m.user_id = u.id order by 1), p.name, u.enabled \
         from desired.users u left join people p on p.user_id = u.id"
    };
}

/// Columns of a cluster and of its health.
macro_rules! cluster_columns {
    () => {
        "c.id, c.name, c.database_url_file, c.dns, c.front, c.nameservers, c.enabled, c.revision, c.created_at, \
         h.reached_at, h.failed_at, h.last_error, \
         c.enabled and coalesce(h.reached_at > now() - interval '60 seconds', false), c.leaving \
         from desired.clusters c left join cluster_health h on h.cluster_id = c.id"
    };
}

/// $1 name.
pub(super) const DOMAIN: &str =
    concat!("select ", domain_columns!(), " from desired.domains d where d.name = $1 and d.current");

/// $1 after name, $2 tenants or null, $3 labels, $4 external id, $5 tenant, $6 what the name is like, $7 how many, $8 ids of
/// single domains beside the tenants, $9 the only names that may be shown.
pub(super) const DOMAINS: &str = concat!(
    "select ",
    domain_columns!(),
    " from desired.domains d where d.current and ($1::text is null or d.name > $1) \
     and ($2::uuid[] is null or d.tenant_id = any($2) or d.id = any($8)) \
     and ($9::text[] is null or d.name = any($9)) and ($3::jsonb is null or d.labels @> $3) \
     and ($4::text is null or d.external_id = $4) and ($5::uuid is null or d.tenant_id = $5) \
     and ($6::text is null or d.name like $6) order by d.name limit $7"
);

/// $1 after name, $2 tenants or null, $3 how many or null, $4 ids of single domains beside the tenants, $5 the only names
/// that may be shown: domains that are not deleted, with no more than a list of zones shows.
pub(super) const LISTED_ZONES: &str = "select d.name, d.labels, d.revision, d.serial_base, g.generation \
     from desired.domains d left join lateral (select max(p.desired_generation) as generation \
         from desired.deployments p where p.domain_id = d.id and p.wanted) g on true \
     where d.current and d.status <> 'deprovisioning' and ($1::text is null or d.name > $1) \
     and ($2::uuid[] is null or d.tenant_id = any($2) or d.id = any($4)) \
     and ($5::text[] is null or d.name = any($5)) order by d.name limit $3";

/// $1 pattern, $2 tenants or null, $3 how many, $4 ids of single domains beside the tenants, $5 the only names that may
/// be shown.
pub(super) const FOUND_ZONES: &str = "select d.id, d.name, d.tenant_id from desired.domains d \
     where d.current and d.status <> 'deprovisioning' and d.name like $1 \
     and ($2::uuid[] is null or d.tenant_id = any($2) or d.id = any($4)) \
     and ($5::text[] is null or d.name = any($5)) order by d.name limit $3";

/// As [`FOUND_ZONES`], of RRsets whose owner, values or comment are like it.
pub(super) const FOUND_RRSETS: &str = "select r.owner, r.type, r.ttl, r.records, r.comment, r.managed_by, d.id, d.name, d.tenant_id \
     from desired.domains d join desired.rrsets r on r.domain_id = d.id \
     where d.current and d.status <> 'deprovisioning' \
     and ((case r.owner when '@' then d.name else r.owner || '.' || d.name end) like $1 \
         or r.comment ilike $1 or exists (select from unnest(r.records) v where rtrim(v, '.') ilike $1)) \
     and ($2::uuid[] is null or d.tenant_id = any($2) or d.id = any($4)) \
     and ($5::text[] is null or d.name = any($5)) order by d.name, r.owner_key, r.type limit $3";

/// $1 domain, $2 its revision, $3 the platform's stream: whether the revision came after everything of the platform.
pub(super) const NEWER_THAN_PLATFORM: &str = "select coalesce( \
     (select position from events where stream_id = $1 and revision = $2 order by seq desc limit 1) > \
     (select position from events where stream_id = $3 order by revision desc, seq desc limit 1), true)";

/// The platform's own tenant, its generation and its DNS identity.
pub(super) const PLATFORM: &str = "select tenant_id, generation, identity, endpoints from desired.platform";

/// $1 domain, $2 owner key, $3 type.
pub(super) const RRSET: &str =
    concat!("select ", rrset_columns!(), " where r.domain_id = $1 and r.owner_key = $2 and r.type = $3");

/// $1 domain, $2 after owner key, $3 after type, $4 how many.
pub(super) const RRSETS: &str = concat!(
    "select ",
    rrset_columns!(),
    " where r.domain_id = $1 and ($2::text is null or (r.owner_key, r.type) > ($2, $3)) \
     order by r.owner_key, r.type limit $4"
);

/// $1 domain: all of it, in order.
pub(super) const ZONE: &str = "select r.owner, r.type, r.ttl, r.records, r.comment, r.managed_by from desired.rrsets r \
     where r.domain_id = $1 order by r.owner_key, r.type";

/// Columns of a proxied name and of the mutation that last changed it.
macro_rules! hostname_columns {
    () => {
        "h.owner, h.body, h.changed, e.at, e.actor_kind, e.actor_id, e.token_id, e.on_behalf_of, e.note \
         from desired.hostnames h left join events e \
         on e.stream_id = h.domain_id and e.revision = h.changed and e.seq = 0"
    };
}

/// $1 domain, $2 owner key.
pub(super) const HOSTNAME: &str = concat!(
    "select ",
    hostname_columns!(),
    " where h.domain_id = $1 and h.leaving is null and h.owner_key = $2"
);

/// $1 domain, $2 after owner key, $3 how many.
pub(super) const HOSTNAMES: &str = concat!(
    "select ",
    hostname_columns!(),
    " where h.domain_id = $1 and h.leaving is null and ($2::text is null or h.owner_key > $2) order by h.owner_key limit $3"
);

/// $1 domain.
pub(super) const CACHE: &str =
    "select s.cache, s.cache_epoch, s.cache_changed from desired.sites s where s.domain_id = $1";

/// $1 domain.
pub(super) const CERTIFICATE: &str = "select c.body, c.changed, e.at, e.actor_kind, e.actor_id, e.token_id, e.on_behalf_of, e.note \
     from desired.certificates c left join events e \
     on e.stream_id = c.domain_id and e.revision = c.changed and e.seq = 0 where c.domain_id = $1";

/// $1 domain.
pub(super) const HOSTNAME_OWNERS: &str =
    "select h.owner from desired.hostnames h where h.domain_id = $1 order by h.owner_key";

/// $1 domain, $2 id, $3 revision, $4 before epoch, $5 how many.
pub(super) const PURGES: &str = "select p.id, p.scope, p.epoch, p.revision, p.requested_at, p.operation_id, o.state \
     from desired.purges p left join operations.operations o on o.id = p.operation_id \
     where p.domain_id = $1 and ($2::uuid is null or p.id = $2) and ($3::bigint is null or p.revision = $3) \
     and ($4::bigint is null or p.epoch < $4) order by p.epoch desc limit $5";

/// $1 stream, $2 before revision, $3 exactly revision, $4 how many: each mutation once.
pub(super) const REVISIONS: &str = "select e.revision, e.at, e.type, e.actor_kind, e.actor_id, e.token_id, \
     e.on_behalf_of, e.note, e.operation_id, e.request_id, \
     (select count(*) from events x where x.stream_id = e.stream_id and x.revision = e.revision), p.email \
     from events e left join people p on p.user_id = e.actor_id \
     where e.stream_id = $1 and e.seq = 0 and ($2::bigint is null or e.revision < $2) \
     and ($3::bigint is null or e.revision = $3) order by e.revision desc limit $4";

/// $1 what may be stored of a token, $2 the same of a session. A session has no scopes.
pub(super) const HOLDER: &str = concat!(
    "select h.token, h.user_id, u.admin, h.ends_at, \
     (select coalesce(jsonb_object_agg(m.tenant_id, m.role), '{}') from desired.members m where m.user_id = u.id), \
     h.session, h.hash, h.networks, h.used_at, h.max_unused_days, u.enabled, \
     (select coalesce(jsonb_object_agg(m.domain_id, m.role), '{}') from desired.domain_members m where m.user_id = u.id), \
     h.scopes, h.manager, h.view, ",
    crate::store::rights_number!("u.id"),
    " from (select t.id as token, null::uuid as session, t.user_id, t.expires_at as ends_at, s.hash, t.networks, \
               coalesce(w.used_at, t.created_at) as used_at, t.max_unused_days, t.scopes, t.manager, t.view \
           from token_secrets s join desired.tokens t on t.id = s.token_id \
           left join token_uses w on w.token_id = t.id where s.hash = any($1) and t.revoked_at is null \
           union all select null, e.id, e.user_id, e.ends_at, e.hash, '{}', e.used_at, null, null, null, 'all' \
           from sessions e where e.hash = any($2)) h join desired.users u on u.id = h.user_id"
);

/// $1 id below which, $2 user, $3 kind, $4 from, $5 to, $6 how many: newest first.
pub(super) const ACCESS_LOG: &str = "select a.id, a.kind, a.user_id, p.email, a.token_id, a.ip, a.agent, a.route, a.times, \
     a.first_at, a.last_at from access_log a left join people p on p.user_id = a.user_id \
     where ($1::bigint is null or a.id < $1) and ($2::uuid is null or a.user_id = $2) \
     and ($3::text is null or a.kind = $3) and ($4::timestamptz is null or a.last_at >= $4) \
     and ($5::timestamptz is null or a.first_at < $5) order by a.id desc limit $6";

/// $1 after, $2 up to: whether anything about tenants (2) and users (3) happened.
pub(super) const IDENTITY_MOVED: &str = "select exists (select from events \
     where position > $1 and position <= $2 and stream_kind in (2, 3))";

/// $1 id.
pub(super) const USER: &str = concat!("select ", user_columns!(), " where u.id = $1");

/// $1 mail address.
pub(super) const USER_BY_EMAIL: &str = concat!("select ", user_columns!(), " where p.email = $1");

/// $1 after, $2 how many.
pub(super) const USERS: &str =
    concat!("select ", user_columns!(), " where ($1::uuid is null or u.id > $1) order by u.id limit $2");

/// Administrators that can show a token that is not limited to less.
pub(super) const ADMINISTRATORS: &str = "select count(*) from desired.users u where u.admin and u.enabled and exists \
     (select from desired.tokens t where t.user_id = u.id and t.revoked_at is null and t.scopes is null \
      and (t.expires_at is null or t.expires_at > now()))";

/// $1 id, or $2 user (after $3), $4 how many.
pub(super) const TOKENS: &str = concat!(
    "select ",
    token_columns!(),
    " where ($1::uuid is null or t.id = $1) and ($2::uuid is null or t.user_id = $2) \
     and ($3::uuid is null or t.id > $3) order by t.id limit $4"
);

/// $1 id, $2 name, $3 tenants or null, $4 after, $5 how many.
pub(super) const TENANTS: &str = "select t.id, t.name, t.labels, t.external_id, t.revision, t.domains, t.created_at \
     from desired.tenants t where ($1::uuid is null or t.id = $1) and ($2::text is null or t.name = $2) \
     and ($3::uuid[] is null or t.id = any($3)) and ($4::uuid is null or t.id > $4) order by t.id limit $5";

/// $1 tenant, $2 user or null, $3 after, $4 how many.
pub(super) const MEMBERS: &str = "select m.user_id, p.email, m.role from desired.members m \
     left join people p on p.user_id = m.user_id where m.tenant_id = $1 and ($2::uuid is null or m.user_id = $2) \
     and ($3::uuid is null or m.user_id > $3) order by m.user_id limit $4";

/// $1 domain, $2 user, $3 after, $4 how many.
pub(super) const DOMAIN_MEMBERS: &str = "select m.user_id, p.email, m.role from desired.domain_members m \
     left join people p on p.user_id = m.user_id where m.domain_id = $1 and ($2::uuid is null or m.user_id = $2) \
     and ($3::uuid is null or m.user_id > $3) order by m.user_id limit $4";

/// $1 id, $2 after, $3 how many.
pub(super) const CLUSTERS: &str = concat!(
    "select ",
    cluster_columns!(),
    " where ($1::uuid is null or c.id = $1) and ($2::uuid is null or c.id > $2) order by c.id limit $3"
);

/// $1 domain.
pub(super) const DEPLOYMENTS_OF_DOMAIN: &str =
    concat!("select ", deployment_columns!(), " where p.domain_id = $1 order by c.id");

/// $1 tenants or null, $2 state, $3 target, $4 after domain, $5 after target, $6 how many, $7 ids of single domains beside
/// the tenants, $8 the only names that may be shown.
pub(super) const DEPLOYMENTS: &str = concat!(
    "select ",
    deployment_columns!(),
    " where ($1::uuid[] is null or d.tenant_id = any($1) or d.id = any($7)) \
     and ($8::text[] is null or d.name = any($8)) and ($2::text is null or p.state = $2) \
     and ($3::uuid is null or c.id = $3) and ($4::uuid is null or (p.domain_id, p.cluster_id) > ($4, $5)) \
     order by p.domain_id, p.cluster_id limit $6"
);

/// Whether the database answers.
pub(super) const PING: &str = "select 1";

/// Every target with what waits for it.
pub(super) const TARGET_STATUS: &str = "select c.id, c.name, c.enabled, \
     c.enabled and coalesce(h.reached_at > now() - interval '60 s', false), w.pending, w.oldest, w.failing, w.ahead, \
     h.reached_at, h.last_error \
     from desired.clusters c left join cluster_health h on h.cluster_id = c.id \
     cross join lateral (select \
         count(*) filter (where d.desired_revision <> d.active_revision or d.desired_generation <> d.active_generation) as pending, \
         coalesce(extract(epoch from now() - min(d.desired_at) filter (where d.desired_revision <> d.active_revision)), 0)::bigint as oldest, \
         count(*) filter (where d.state in ('failed', 'rejected')) as failing, \
         count(*) filter (where d.state = 'ahead') as ahead \
         from desired.deployments d where d.cluster_id = c.id) w order by c.name";

/// $1 how many: domains that their parents delegate elsewhere by now.
pub(super) const DELEGATIONS_LOST: &str = "select d.name, d.delegation_lost_at from desired.domains d \
     where d.delegation_lost_at is not null and d.current and d.status = 'active' \
     order by d.delegation_lost_at desc limit $1";

/// $1 how many.
pub(super) const FAILING: &str = "select o.name, c.name, d.state, d.attempts, \
     case when d.next_attempt_at = '-infinity' then null else d.next_attempt_at end, d.last_error \
     from desired.deployments d join desired.domains o on o.id = d.domain_id join desired.clusters c on c.id = d.cluster_id \
     where d.state in ('failed', 'rejected', 'ahead') order by d.attempts desc, o.name limit $1";

/// $1 whether lost ones or those of others, $2 how many are named: the zones of each cluster that nothing accounts for.
pub(super) const STRAYS: &str = "select c.name, count(*), (array_agg(s.zone order by s.zone collate \"C\"))[1:$2] \
     from target_strays s join desired.clusters c on c.id = s.cluster_id where s.lost = $1 group by c.id, c.name order by c.name";

/// $1 domain: what edges get of it, and how far each cell whose word counts has come with that.
pub(super) const CELLS_OF_DOMAIN: &str = "select c.edge_id, c.cell, c.name, c.in_service, c.acked >= d.sequence, \
       c.refused_revision >= d.revision, c.refused_why, d.revision, d.removed, d.checksum, d.fault, e.at, a.at \
     from edge.domains d cross join lateral edge.cells(d.domain_id) c join events e on e.position = d.sequence \
     left join edge.acks a on a.edge_id = c.edge_id and a.cell = c.cell where d.domain_id = $1 order by c.edge_id, c.cell";

/// Lanes with operations that have not ended.
pub(super) const LANES: &str = "select lane, count(*), \
     coalesce(extract(epoch from now() - min(created_at)), 0)::bigint from operations.operations \
     where state in ('pending', 'running') group by lane order by lane";

pub(super) const PAUSES: &str = "select scope, id, reason, since from desired.pauses order by since";

/// Every statement, for the test that prepares them.
pub const ALL: &[&str] = &[
    TARGET_STATUS,
    FAILING,
    DELEGATIONS_LOST,
    LANES,
    PAUSES,
    CELLS_OF_DOMAIN,
    STRAYS,
    DOMAIN,
    DOMAINS,
    LISTED_ZONES,
    FOUND_ZONES,
    FOUND_RRSETS,
    PLATFORM,
    NEWER_THAN_PLATFORM,
    RRSET,
    RRSETS,
    ZONE,
    HOSTNAME,
    HOSTNAMES,
    HOSTNAME_OWNERS,
    CERTIFICATE,
    CACHE,
    PURGES,
    REVISIONS,
    HOLDER,
    ACCESS_LOG,
    IDENTITY_MOVED,
    USER,
    USER_BY_EMAIL,
    USERS,
    ADMINISTRATORS,
    TOKENS,
    TENANTS,
    MEMBERS,
    DOMAIN_MEMBERS,
    CLUSTERS,
    DEPLOYMENTS_OF_DOMAIN,
    DEPLOYMENTS,
    PING,
];
