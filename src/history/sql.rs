//! Statements of the read side of history. A test prepares each against the migrated schema.

/// $1 user, $2 token: the position, whether an administrator, its tenants and single domains with its role in each,
/// whether the token is revoked, when it expires, whether the user may come in, and the number of its rights. One statement, so that all of it is as of
/// the position.
pub(super) const RIGHTS: &str = concat!(
    "select (select coalesce(max(position), 0) from events), \
     (select admin from desired.users where id = $1), \
     (select coalesce(jsonb_object_agg(tenant_id, role), '{}') from desired.members where user_id = $1), \
     (select coalesce(jsonb_object_agg(domain_id, role), '{}') from desired.domain_members where user_id = $1), \
     $2::uuid is not null and exists (select from desired.tokens where id = $2 and revoked_at is not null), \
     (select expires_at from desired.tokens where id = $2), \
     (select enabled from desired.users where id = $1), ",
    crate::store::rights_number!("$1")
);

/// $1 tenants (none: all), $2 user, $3 domain, $4 tenant, $5 actor, $6 token, $7 types, $8 operation, $9 from,
/// $10 to, $11 words, $12 before, $13 how many, $14 ids of single domains
/// beside the tenants, $15 the only domains that may be read: newest first. Planned anew each time, so that what is not asked
/// for costs nothing. Each event is fetched by its position: a join would rather walk the log back to the newest entry
/// that is asked for, however far that is.
pub(super) const AUDIT: &str = concat!(
    "select e.position, e.id, e.stream_kind, e.stream_id, e.revision, e.seq, e.type, \
     e.schema, e.at, e.domain_id, e.domain, e.tenant_id, e.actor_kind, e.actor_id, e.token_id, e.on_behalf_of, \
     e.client, e.request_id, e.operation_id, e.note, e.change_id, e.cause, e.hash, e.data from (",
    "select a.position from audit.entries a where ($1::uuid[] is null or a.tenant_id = any($1) or a.stream_id = $2 or a.domain_id = any($14)) \
     and ($15::text[] is null or a.domain = any($15)) \
     and ($3::text is null or a.domain = $3) and ($4::uuid is null or a.tenant_id = $4) \
     and ($5::uuid is null or a.actor_id = $5) and ($6::uuid is null or a.token_id = $6) \
     and ($7::text[] is null or a.type = any($7)) and ($8::uuid is null or a.operation_id = $8) \
     and ($9::timestamptz is null or a.at >= $9) and ($10::timestamptz is null or a.at < $10) \
     and ($11::text is null or to_tsvector('simple', a.text) @@ to_tsquery('simple', $11)) \
     and ($12::bigint is null or a.position < $12) \
     order by a.position desc limit $13",
    ") a cross join lateral (select * from events e where e.position = a.position offset 0) e order by a.position desc"
);

/// $1 domain, $2 before, $3 how many, $4 tenants (none: all), $5 user, $6 ids of single domains beside the tenants: newest
/// first. What most ask for, with few enough conditions that one plan is right for all; planning [`AUDIT`] anew costs more
/// than reading a page.
pub(super) const AUDIT_OF_DOMAIN: &str = concat!(
    "select e.position, e.id, e.stream_kind, e.stream_id, e.revision, e.seq, e.type, \
     e.schema, e.at, e.domain_id, e.domain, e.tenant_id, e.actor_kind, e.actor_id, e.token_id, e.on_behalf_of, \
     e.client, e.request_id, e.operation_id, e.note, e.change_id, e.cause, e.hash, e.data from (",
    "select a.position from audit.entries a where a.domain = $1 and a.position < coalesce($2, 9223372036854775807) \
     and ($4::uuid[] is null or a.tenant_id = any($4) or a.stream_id = $5 or a.domain_id = any($6)) \
     order by a.position desc limit $3",
    ") a cross join lateral (select * from events e where e.position = a.position offset 0) e order by a.position desc"
);

/// $1 actors, $2 tenants (none: all), $3 user: the names that a reader may know: its own people's.
pub(super) const NAMES: &str = "select p.user_id, p.email from people p where p.user_id = any($1) \
     and ($2::uuid[] is null or p.user_id = $3 \
     or exists (select from desired.members m where m.user_id = p.user_id and m.tenant_id = any($2)))";

/// How far the projection is.
pub(super) const AUDIT_POSITION: &str =
    "select coalesce(max(position), 0) from projection_cursors where name = 'audit'";

/// One snapshot for everything that follows.
pub(super) const SNAPSHOT: &str = "begin isolation level repeatable read, read only";

/// The log, its newest position, and how many streams there are.
pub(super) const HEADS_OPENING: &str = "select log_id, (select coalesce(max(position), 0) from events), \
     (select count(*) from streams) from log_meta";

/// Where every stream ends.
pub(super) const HEADS: &str = "select s.id, s.kind, s.revision, s.last_hash from streams s order by s.id";

/// $1 day.
pub(super) const HEADS_SIGNED: &str = "select exists (select from audit_heads where day = $1)";

/// $1 day, $2 log, $3 position, $4 when, $5 streams, $6 root, $7 key, $8 signature.
pub(super) const KEEP_HEADS: &str = "insert into audit_heads (day, log_id, position, at, streams, root, key, signature) \
     values ($1, $2, $3, $4, $5, $6, $7, $8) on conflict do nothing";

/// $1 before day, $2 how many.
pub(super) const SIGNED_HEADS: &str = "select day, log_id, position, at, streams, root, key, signature from audit_heads \
     where $1::date is null or day < $1 order by day desc limit $2";

/// $1 position, $2 key: the log, its newest position, whether the key is one of the platform's.
pub(super) const HEADS_LOG: &str = "select log_id, (select coalesce(max(position), 0) from events where position <= $1), \
     exists (select from sealed_secrets where kind = 'edge_signing_key' and public = $2) from log_meta";

/// $1 streams, $2 revisions, pairwise: the end of each at its revision, and its newest revision.
pub(super) const COMPARE_HEADS: &str = "select e.hash, l.revision from unnest($1::uuid[], $2::bigint[]) \
     with ordinality as n(stream, revision, place) \
     left join lateral (select hash from events where stream_id = n.stream and revision = n.revision \
         order by seq desc limit 1) e on true \
     left join lateral (select revision from events where stream_id = n.stream order by revision desc limit 1) l on true \
     order by n.place";

/// Every statement, for the test that prepares them.
pub const ALL: &[&str] = &[
    RIGHTS,
    AUDIT,
    AUDIT_OF_DOMAIN,
    NAMES,
    AUDIT_POSITION,
    HEADS_OPENING,
    HEADS,
    HEADS_SIGNED,
    KEEP_HEADS,
    SIGNED_HEADS,
    HEADS_LOG,
    COMPARE_HEADS,
];
