//! Statements of `edge`.

/// $1 domains: each that edges know of, with what is published of it now.
pub(super) const SITES: &str = "select s.domain_id, d.name, d.status, s.edge_revision, s.cache, s.cache_epoch, \
     e.domain_id is not null, e.checksum, c.body \
     from desired.sites s join desired.domains d on d.id = s.domain_id \
     left join desired.certificates c on c.domain_id = s.domain_id \
     left join edge.domains e on e.domain_id = s.domain_id where s.domain_id = any($1) order by s.domain_id";

/// $1 domains.
pub(super) const HOSTNAMES: &str = "select domain_id, owner, body from desired.hostnames where domain_id = any($1) order by domain_id, owner_key";

/// $1 checksums, $2 bytes, pairwise. Bytes that somebody altered are set right.
pub(super) const PUT_ARTIFACTS: &str = "insert into edge.artifacts as a (checksum, bytes) \
     select * from unnest($1::bytea[], $2::bytea[]) \
     on conflict (checksum) do update set bytes = excluded.bytes, unused_since = null \
     where a.bytes <> excluded.bytes or a.unused_since is not null";

/// $1 … $10 domain, name, sequence, revision, checksum, size, key, signature, removed, keys of certificates. Where nobody signs now, what was
/// signed of the same bytes stays.
pub(super) const PUT_DOMAINS: &str = "insert into edge.domains as t \
     (domain_id, name, sequence, revision, checksum, size, key_id, signature, removed, keys) \
     select * from unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::bytea[], $6::integer[], \
     $7::bytea[], $8::bytea[], $9::boolean[], $10::jsonb[]) \
     on conflict (domain_id) do update set name = excluded.name, sequence = excluded.sequence, \
     revision = excluded.revision, checksum = excluded.checksum, size = excluded.size, \
     key_id = case when t.checksum = excluded.checksum then coalesce(excluded.key_id, t.key_id) else excluded.key_id end, \
     signature = case when t.checksum = excluded.checksum then coalesce(excluded.signature, t.signature) \
                      else excluded.signature end, \
     removed = excluded.removed, keys = excluded.keys, fault = null";

/// $1 … $5 domain, name, sequence, revision, fault: what is published stays; where nothing is, a removed row says why.
pub(super) const PUT_FAULTS: &str = "insert into edge.domains as t (domain_id, name, sequence, revision, removed, fault) \
     select domain_id, name, sequence, revision, true, fault \
     from unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::text[]) \
     as n(domain_id, name, sequence, revision, fault) \
     on conflict (domain_id) do update set fault = excluded.fault, \
     sequence = case when t.removed then excluded.sequence else t.sequence end, \
     revision = case when t.removed then excluded.revision else t.revision end";

/// $1 … $4 domain, name, sequence, revision: marks that edges were told of a domain, before there is anything to say.
pub(super) const PUT_MARKS: &str = "insert into edge.domains (domain_id, name, sequence, revision, removed) \
     select domain_id, name, sequence, revision, true \
     from unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[]) as n(domain_id, name, sequence, revision) \
     on conflict do nothing";

/// $1 checksums that nothing publishes any more.
pub(super) const RETIRE: &str = "update edge.artifacts a set unused_since = now() where a.checksum = any($1) \
     and a.unused_since is null and not exists (select from edge.domains d where d.domain_id = any($2) and d.checksum = a.checksum)";

/// $1 seconds, $2 how many: artifacts that nothing has published for so long.
pub(super) const PRUNE: &str = "delete from edge.artifacts where checksum in (select checksum from edge.artifacts \
     where unused_since < now() - make_interval(secs => $1) order by unused_since limit $2)";

/// $1 how many: what is published and has no signature.
pub(super) const UNSIGNED: &str = "select domain_id, checksum from edge.domains \
     where checksum is not null and signature is null order by domain_id limit $1 for update skip locked";

/// $1 … $4 domain, checksum, key, signature.
pub(super) const SIGN: &str = "update edge.domains d set key_id = n.key_id, signature = n.signature \
     from unnest($1::uuid[], $2::bytea[], $3::bytea[], $4::bytea[]) as n(domain_id, checksum, key_id, signature) \
     where d.domain_id = n.domain_id and d.checksum = n.checksum";

/// Every statement, for the test that prepares them.
pub const ALL: &[&str] =
    &[SITES, HOSTNAMES, PUT_ARTIFACTS, PUT_DOMAINS, PUT_FAULTS, PUT_MARKS, RETIRE, PRUNE, UNSIGNED, SIGN];
