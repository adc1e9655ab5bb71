//! Statements of the benchmarks.

/// Rows that the raw writer of the append rows needs: 100 domains with one RRset each, on two clusters.
pub const RAW_SEED: &str = "
create sequence raw_positions;
insert into streams select ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, 1, 1, decode(repeat('ab', 32), 'hex')
  from generate_series(1, 100) n;
insert into desired.domains (id, name, name_key, tenant_id, status, revision, labels, serial_base, created_at, updated_at)
select ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, 'raw' || n || '.example', 'example raw' || n,
       '00000000-0000-7000-8000-000000000001', 'active', 1, '{}', 1, now(), now() from generate_series(1, 100) n;
insert into desired.deployments (cluster_id, domain_id, wanted, desired_revision, desired_generation, desired_at)
select ('00000000-0000-7000-8000-00000000000' || c)::uuid, d.id, true, 1, 0, now()
  from desired.domains d, generate_series(1, 2) c;
";

/// One command's rows, as a transaction of pgbench: every table that a PUT of one RRset writes. `{DATA}` stands for
/// the event's data in hex: pgbench would take a colon for a variable.
pub const RAW_PUT: &str = "\\set d random(1, 100)
\\set n random(1, 1000)
\\set v random(1, 250)
begin;
update streams set revision = revision + 1, last_hash = decode(repeat('cd', 32), 'hex')
 where id = ('00000000-0000-7000-8000-' || lpad((:d)::text, 12, '0'))::uuid;
insert into desired.rrsets (domain_id, owner_key, type, owner, ttl, records, comment, changed)
values (('00000000-0000-7000-8000-' || lpad((:d)::text, 12, '0'))::uuid, 'w' || (:n)::text, 1, 'w' || (:n)::text, 300,
        array['192.0.2.' || (:v)::text], null, 1)
on conflict (domain_id, owner_key, type) do update set ttl = excluded.ttl, records = excluded.records, changed = excluded.changed;
update desired.domains set revision = revision + 1, updated_at = now()
 where id = ('00000000-0000-7000-8000-' || lpad((:d)::text, 12, '0'))::uuid;
update desired.deployments set desired_revision = desired_revision + 1, desired_at = now(), state = 'pending', attempts = 0
 where domain_id = ('00000000-0000-7000-8000-' || lpad((:d)::text, 12, '0'))::uuid;
insert into operations.operations (id, kind, lane, domain_id, domain, tenant_id, revision, actor_id, created_at)
values (gen_random_uuid(), 'domain.rrsets', 'runtime', ('00000000-0000-7000-8000-' || lpad((:d)::text, 12, '0'))::uuid,
        'raw.example', '00000000-0000-7000-8000-000000000001', 1, '00000000-0000-7000-8000-000000000001', now());
insert into events (position, id, stream_kind, stream_id, revision, seq, type, schema, at, domain_id, domain, tenant_id,
                    actor_kind, actor_id, request_id, operation_id, hash, data)
select p, gen_random_uuid(), 1, ('00000000-0000-7000-8000-' || lpad((:d)::text, 12, '0'))::uuid, p, 0, 'rrset.replaced', 1,
       now(), ('00000000-0000-7000-8000-' || lpad((:d)::text, 12, '0'))::uuid, 'raw.example',
       '00000000-0000-7000-8000-000000000001', 2, '00000000-0000-7000-8000-000000000001', gen_random_uuid(),
       gen_random_uuid(), decode(repeat('ef', 32), 'hex'),
       decode('{DATA}', 'hex')
  from nextval('raw_positions') p;
commit;
";

/// The whole log, ordered, as a replay would have to read it.
pub const COPY_LOG: &str = "copy (select * from events order by position) to stdout (format binary)";

/// Positions of the log.
pub const HEAD: &str = "select coalesce(max(position), 0) from events";

/// The finished rows of a PowerDNS database.
pub const COPY_RECORDS_OUT: &str = "copy (select domain_id, name, type, content, ttl, prio, disabled, ordername, auth \
     from records order by name) to stdout (format binary)";

/// A table like that of PowerDNS, with its indexes.
pub const SCRATCH_RECORDS: &str = "drop table if exists scratch_records; \
     create table scratch_records (like records including defaults including constraints including indexes)";

/// The finished rows, as fast as PostgreSQL takes them.
pub const COPY_RECORDS_IN: &str = "copy scratch_records (domain_id, name, type, content, ttl, prio, disabled, ordername, auth) \
     from stdin (format binary)";

pub const DROP_SCRATCH: &str = "drop table scratch_records";

pub const COUNT_RECORDS: &str = "select count(*) from records where type is not null";

/// The tenant of the platform.
pub const PLATFORM_TENANT: &str = "select tenant_id from desired.platform";

/// $1 domain, $2 revision: how many cells say that they serve it; no row before it is published.
pub const CELLS_THAT_SERVE: &str = "select (select count(*) from edge.acks a cross join log_meta m \
     where a.epoch = m.edge_epoch and a.sequence >= d.sequence) from edge.domains d where d.name = $1 and d.revision >= $2";

/// How many cells say that they serve everything.
pub const CELLS_THAT_SERVE_ALL: &str = "select count(*) from edge.acks a cross join log_meta m \
     where a.epoch = m.edge_epoch and a.sequence >= (select max(sequence) from edge.domains)";

/// Whether the projections have taken the whole log in as it was at position $1, and everything is signed.
pub const IS_ALL_PUBLISHED: &str = "select coalesce((select position from projection_cursors where name = 'edge'), 0) >= $1 \
     and not exists (select from projection_cursors where position < $1) \
     and not exists (select from edge.domains where checksum is not null and signature is null)";

/// Ends the operations of what was made before anybody could carry it out.
pub const END_OPERATIONS: &str = "update operations.operations set state = 'succeeded', finished_at = now() \
     where state in ('pending', 'running')";

/// Rows written: of acknowledgements, and of all tables but what heartbeats write.
pub const ROWS_WRITTEN: &str = "select \
     coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del) filter (where relname = 'acks'), 0)::bigint, \
     coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint from pg_stat_user_tables \
     where relname not in ('heartbeats', 'edge_identities', 'edge_tokens')";

/// $1 domain: the first page of its trail, as an index gives it.
pub const AUDIT_OF_DOMAIN: &str = "select e.* from (select a.position from audit.entries a where a.domain = $1 \
     order by a.position desc limit 51) a cross join lateral (select * from events e where e.position = a.position offset 0) e";

/// What Debian gives for a PowerDNS on PostgreSQL.
pub const PLAIN_SCHEMA_FILE: &str = "/usr/share/pdns-backend-pgsql/schema/schema.pgsql.sql";

/// A zone of PowerDNS's own.
pub const PLAIN_ZONE: &str = "insert into domains (name, type) values ('plain.example', 'NATIVE')";

/// $1 how many records it holds.
pub const PLAIN_RECORDS: &str = "insert into records (domain_id, name, type, content, ttl, auth) \
     select d.id, r.name, r.type, r.content, 300, true from domains d, lateral ( \
         select 'plain.example' as name, 'SOA' as type, 'ns1.plain.example hostmaster.plain.example 1 3600 600 1209600 300' as content \
         union all select 'plain.example', 'NS', 'ns1.plain.example' \
         union all select 'r' || n || '.plain.example', 'A', '10.' || n / 65536 % 256 || '.' || n / 256 % 256 || '.' || n % 256 \
           from generate_series(1, $1 - 2) n) r";

/// After so many rows at once.
pub const PLAIN_ANALYZE: &str = "analyze domains; analyze records";

/// $1 cluster: how many zones are current on it, and how many are not.
pub const CURRENT_ON: &str = "select count(*) filter (where state = 'current' and desired_revision = active_revision), \
     count(*) filter (where state <> 'current' or desired_revision <> active_revision) \
     from desired.deployments where cluster_id = $1 and wanted";
