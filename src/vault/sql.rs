//! The statements of data keys and of their rotation. A test prepares each against the migrated schema. Sealed bytes
//! begin with a byte that says their form, then with what names the key: eight octets of a key of the file.

/// $1 tenant; none: the platform.
pub(super) const DATA_KEY: &str =
    "select id, tenant_id, wrapped from data_keys where tenant_id is not distinct from $1";

/// $1 ids.
pub(super) const DATA_KEYS: &str = "select id, tenant_id, wrapped from data_keys where id = any($1)";

/// $1 id, $2 tenant or none, $3 wrapped. Whoever comes second changes nothing; a tenant that is gone gets none.
pub(super) const MAKE_DATA_KEY: &str = "insert into data_keys (id, tenant_id, wrapped) \
     select $1, $2::uuid, $3 where $2 is null or exists (select from desired.tenants t where t.id = $2) \
     on conflict do nothing";

/// The keys of tenants that were deleted.
pub(super) const ERASE_DATA_KEYS: &str = "delete from data_keys k where k.tenant_id is not null \
     and not exists (select from desired.tenants t where t.id = k.tenant_id) \
     and exists (select from events e where e.stream_id = k.tenant_id and e.type = 'tenant.deleted')";

/// One rotation at a time, until the connection ends.
pub(super) const CLAIM: &str = "select pg_try_advisory_lock(7012)";

/// $1 the newest key, $2 after this id, $3 how many: data keys that are sealed under another.
pub(super) const OLD_DATA_KEYS: &str = "select id, tenant_id, wrapped from data_keys \
     where substring(wrapped from 2 for 8) <> $1 and id > $2 order by id limit $3";

/// $1 the newest key.
pub(super) const COUNT_OLD_DATA_KEYS: &str =
    "select count(*) from data_keys where substring(wrapped from 2 for 8) <> $1";

/// $1 id, $2 as it was, $3 as it is to be.
pub(super) const REWRAP: &str =
    "update data_keys set wrapped = $3, wrapped_at = now() where id = $1 and wrapped = $2";

/// $1 kind, $2 id, $3 version, after which; $4 how many: what is sealed directly under a key of the file, with whose it
/// is. The domain of a certificate that is gone is nobody's.
pub(super) const DIRECT: &str = "select s.kind, s.id, s.version, s.sealed, \
     case when s.kind = 'certificate_key' then (select d.tenant_id from desired.domains d \
         where d.id = (convert_from(s.public, 'UTF8')::jsonb->>'domain')::uuid) end \
     from sealed_secrets s where get_byte(s.sealed, 0) = 1 and (s.kind, s.id, s.version) > ($1, $2, $3) \
     order by s.kind, s.id, s.version limit $4";

pub(super) const COUNT_DIRECT: &str = "select count(*) from sealed_secrets where get_byte(sealed, 0) = 1";

/// $1 kind, $2 id, $3 version, $4 as it was, $5 as it is to be.
pub(super) const RESEAL: &str = "update sealed_secrets set sealed = $5 \
     where kind = $1 and id = $2 and version = $3 and sealed = $4";

/// The keys of the file that something is sealed under: which, how many data keys, how many other secrets.
pub(super) const IN_USE: &str = "select key, sum(data_keys)::bigint, sum(secrets)::bigint from ( \
     select encode(substring(wrapped from 2 for 8), 'hex') as key, 1 as data_keys, 0 as secrets from data_keys \
     union all select encode(substring(sealed from 2 for 8), 'hex'), 0, 1 from sealed_secrets \
         where get_byte(sealed, 0) = 1) u group by key order by key";

/// $1 kind: what is stored of it, the first one first.
pub(super) const OF_KIND: &str =
    "select id, version, sealed from sealed_secrets where kind = $1 order by created_at, id, version";

/// $1 kind, $2 id, $3 version, $4 sealed. Whoever comes second changes nothing.
pub(super) const PUT: &str = "insert into sealed_secrets (kind, id, version, public, sealed) \
     values ($1, $2, $3, '', $4) on conflict do nothing";

/// Every statement with a fixed text.
pub(crate) const ALL: &[&str] = &[
    DATA_KEY,
    DATA_KEYS,
    MAKE_DATA_KEY,
    ERASE_DATA_KEYS,
    CLAIM,
    OLD_DATA_KEYS,
    COUNT_OLD_DATA_KEYS,
    REWRAP,
    DIRECT,
    COUNT_DIRECT,
    RESEAL,
    IN_USE,
    OF_KIND,
    PUT,
];
