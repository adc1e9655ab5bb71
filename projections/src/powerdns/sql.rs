//! The statements of the projection. The first half reads the control database, the second reads and writes the
//! database of a PowerDNS; a test prepares each against its schema.

/// The platform's identity and generation, and the log. Read in the snapshot that everything else is read in.
pub const PLATFORM: &str = "select p.identity, p.generation, m.log_id, p.endpoints, p.zone_generation \
     from desired.platform p, log_meta m";

/// $1 domains, $2 the revisions they are at, $3 the revisions they go to, $4 events per domain at most: changes of
/// RRsets and of proxied names in between.
pub const TOUCHED: &str = "select n.id, e.type, e.schema, e.data, e.revision \
     from unnest($1::uuid[], $2::bigint[], $3::bigint[]) as n(id, after, up_to) \
     cross join lateral (select e.type, e.schema, e.data, e.revision, e.seq from events e \
      where e.stream_id = n.id and e.revision > n.after and e.revision <= n.up_to \
        and e.type in ('rrset.replaced', 'rrset.deleted', 'domain.updated', 'hostname.replaced', 'hostname.deleted') \
      order by e.revision, e.seq limit $4) e";

/// $1 domains, $2 owner keys, pairwise: their RRsets, and marks of what the platform answers for.
pub const OWNERS: &str = "select r.domain_id, r.owner_key, r.type, r.ttl, r.records \
     from unnest($1::uuid[], $2::text[]) as n(domain_id, owner_key) \
     join desired.rrsets r on r.domain_id = n.domain_id and r.owner_key = n.owner_key \
     union all select h.domain_id, h.owner_key, 0, 0, '{}' \
     from unnest($1::uuid[], $2::text[]) as n(domain_id, owner_key) \
     join desired.hostnames h on h.domain_id = n.domain_id and h.owner_key = n.owner_key and h.leaving is null \
     where exists (select from desired.platform p where p.endpoints is not null) \
     union all select n.domain_id, n.owner_key, 65535, 0, '{}' \
     from desired.platform p join desired.domains d on d.name = p.endpoints->>'zone' and d.current \
     join unnest($1::uuid[], $2::text[]) as n(domain_id, owner_key) on n.domain_id = d.id \
     where p.endpoints->'pools'->n.owner_key <> '{}'";

/// $1 domain: the marks of what the platform answers for.
pub const MARKS: &str = "select h.owner_key, 0 from desired.hostnames h \
     where h.domain_id = $1 and h.leaving is null \
       and exists (select from desired.platform p where p.endpoints is not null) \
     union all select o.pool, 65535 from desired.platform p \
     join desired.domains d on d.name = p.endpoints->>'zone' and d.current \
     cross join lateral jsonb_object_keys(p.endpoints->'pools') o(pool) where d.id = $1 order by 1";

/// $1 domains, $2 owner keys, pairwise: those that have names below them.
pub const WITH_NAMES_BELOW: &str = "select n.domain_id, n.owner_key \
     from unnest($1::uuid[], $2::text[]) as n(domain_id, owner_key) \
     where exists (select from desired.rrsets r where r.domain_id = n.domain_id \
       and r.owner_key > n.owner_key || ' ' and r.owner_key < n.owner_key || '!') \
     or exists (select from desired.hostnames h, desired.platform p where h.domain_id = n.domain_id \
       and h.owner_key > n.owner_key || ' ' and h.owner_key < n.owner_key || '!' \
       and h.leaving is null and p.endpoints is not null)";

/// $1 domain, $2 key of a cut, $3 the last key had, $4 how many: the next keys below the cut.
pub const KEYS_BELOW: &str = "select distinct r.owner_key from desired.rrsets r \
     where r.domain_id = $1 and r.owner_key > $2 || ' ' and r.owner_key < $2 || '!' and r.owner_key > $3 \
     order by r.owner_key limit $4";

/// $1 domain, $2 and $3 the last (key, type) had, $4 how many: the next RRsets of the zone.
pub const ZONE_PAGE: &str = "select r.owner_key, r.type, r.ttl, r.records from desired.rrsets r \
     where r.domain_id = $1 and (r.owner_key, r.type) > ($2, $3) order by r.owner_key, r.type limit $4";

/// $1 domains, $2 revisions, pairwise: where the chain of the domain's stream stood at the revision.
pub const CHAIN: &str = "select distinct on (n.id, n.revision) n.id, n.revision, e.hash \
     from unnest($1::uuid[], $2::bigint[]) as n(id, revision) \
     join events e on e.stream_id = n.id and e.revision = n.revision order by n.id, n.revision, e.seq desc";

/// $1 keys of names, $2 how many: hosted domains below them. Their names are answered from their own zones.
pub const HOSTED_BELOW: &str = "select d.name from unnest($1::text[]) as n(name_key) \
     join desired.domains d on d.current and d.status = 'active' \
      and d.name_key > n.name_key || ' ' and d.name_key < n.name_key || '!' limit $2";

/// $1 zones, $2 their domains, $3 the log: makes their rows in the ledger. A zone that is there already without one
/// was written by somebody else; it gets none.
pub const LEDGER_BEGIN: &str = "insert into hw_zones (name, domain_id, log_id) \
     select n.name, n.id, $3 from unnest($1::text[], $2::uuid[]) as n(name, id) \
      where not exists (select from domains d where d.name = n.name) \
      order by n.name on conflict (name) do nothing";

/// $1 zones: their rows in the ledger, locked in the order of names.
pub const LEDGER_LOCK: &str = "select z.name, z.domain_id, z.log_id, z.revision, z.generation, z.serial, z.checksum, \
     z.chain, z.present, z.released, (select d.id from domains d where d.name = z.name) \
     from hw_zones z where z.name = any($1) order by z.name for update";

/// $1 zone: its row in the ledger, if it has one.
pub const LEDGER_READ: &str = "select z.name, z.domain_id, z.log_id, z.revision, z.generation, z.serial, z.checksum, \
     z.chain, z.present, z.released, (select d.id from domains d where d.name = z.name) \
     from hw_zones z where z.name = $1";

/// $1 zones, $2 domains, $3 the log, $4 revisions, $5 generations, $6 serials, $7 checksums, $8 chain ends,
/// $9 whether they are there.
pub const LEDGER_SET: &str = "update hw_zones z set domain_id = n.id, log_id = $3, revision = n.revision, \
     generation = n.generation, serial = n.serial, checksum = n.checksum, chain = n.chain, present = n.present, \
     released = false, written_at = now() \
     from unnest($1::text[], $2::uuid[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bytea[], $8::bytea[], \
                 $9::boolean[]) as n(name, id, revision, generation, serial, checksum, chain, present) \
     where z.name = n.name";

/// $1 zone, $2 domain, $3 the log: lets the next deployment write over whatever is there.
pub const LEDGER_RELEASE: &str = "insert into hw_zones (name, domain_id, log_id, released) values ($1, $2, $3, true) \
     on conflict (name) do update set released = true";

/// How many zones were written here.
pub const LEDGER_COUNT: &str = "select count(*) from hw_zones";

/// $1 how many: zones that were written here are taken away, with all that is said of them. One that was never there, or
/// was taken off, may be somebody else's by now.
pub const LEDGER_TAKE_AWAY: &str = "with gone as (delete from hw_zones where name in \
       (select name from hw_zones order by name limit $1) returning name, present), \
     zones as (delete from domains d using gone g where g.present and d.name = g.name) \
     select name from gone";

/// $1 zone, $2 checksum.
pub const LEDGER_CHECKSUM: &str = "update hw_zones set checksum = $2 where name = $1";

/// $1 zones.
pub const DOMAINS_PUT: &str = "insert into domains (name, type) \
     select n.name, 'NATIVE' from unnest($1::text[]) as n(name) order by n.name \
     on conflict (name) do update set type = 'NATIVE', master = null, catalog = null \
       where domains.type <> 'NATIVE' or domains.master is not null or domains.catalog is not null";

/// $1 zones.
pub const DOMAINS_IDS: &str = "select name, id from domains where name = any($1)";

/// $1 zones: off they go, with everything that hangs on them.
pub const DOMAINS_DELETE: &str = "delete from domains where name = any($1)";

/// $1 zone: whether its row is as we write it.
pub const DOMAIN_AS_WRITTEN: &str =
    "select id, type = 'NATIVE' and master is null and catalog is null from domains where name = $1";

/// Columns of a record in the order in which they are read.
macro_rules! record_columns {
    () => {
        "r.id, r.domain_id, r.name, r.type, r.content, r.ttl, r.auth, r.ordername, r.prio, r.disabled"
    };
}

/// $1 zones' ids, $2 names, pairwise.
pub const RECORDS_OF_NAMES: &str = concat!(
    "select ",
    record_columns!(),
    " from unnest($1::int[], $2::text[]) as n(domain_id, name) \
     join records r on r.name = n.name and r.domain_id = n.domain_id"
);

/// $1 zone's id: its rows, in no order.
pub const RECORDS_OF_ZONE: &str =
    concat!("select ", record_columns!(), " from records r where r.domain_id = $1");

/// $1 ids.
pub const RECORDS_DELETE: &str = "delete from records where id = any($1)";

/// $1 zones' ids.
pub const RECORDS_CLEAR: &str = "delete from records where domain_id = any($1)";

/// $1 zones' ids. What a former zone of the name left must not outlive it.
pub const METADATA_CLEAR: &str = "delete from domainmetadata where domain_id = any($1)";

/// $1 zones' ids.
pub const KEYS_CLEAR: &str = "delete from cryptokeys where domain_id = any($1)";

/// $1 zones' ids.
pub const COMMENTS_CLEAR: &str = "delete from comments where domain_id = any($1)";

/// $1 zone's id, $2 how many: what hangs on a zone besides its records. Nothing of it is ever written here; of a key it
/// is told that it is there and no more.
pub const EXTRAS_OF_ZONE: &str = "select t.what from ( \
       select 'domainmetadata ' || coalesce(kind, '') as what from domainmetadata where domain_id = $1 \
       union all select 'cryptokeys ' || flags from cryptokeys where domain_id = $1 \
       union all select 'comments ' || name || ' ' || type from comments where domain_id = $1) t order by 1 limit $2";

/// $1 zones' ids, $2 names, $3 types, $4 contents, $5 TTLs, $6 auth, $7 sort keys.
pub const RECORDS_INSERT: &str = "insert into records (domain_id, name, type, content, ttl, auth, ordername) \
     select * from unnest($1::int[], $2::text[], $3::text[], $4::text[], $5::int[], $6::boolean[], $7::text[])";

/// $1 the last zone had, $2 how many: the next zones, and the domain that each was written for. One without was written
/// by somebody else.
pub const ZONES_PAGE: &str = "select d.name, case when z.present or z.released then z.domain_id end \
     from domains d left join hw_zones z on z.name = d.name where d.name > $1 order by d.name limit $2";

/// Whether this role can do what deployment needs.
pub const RIGHTS: &str = "select bool_and(has_table_privilege(t, 'select, insert, update, delete')) \
     from unnest(array['domains', 'records', 'domainmetadata', 'cryptokeys', 'comments', 'hw_zones']) as t";

/// Statements on the control database.
pub const ALL_CONTROL: &[&str] =
    &[PLATFORM, TOUCHED, OWNERS, MARKS, WITH_NAMES_BELOW, KEYS_BELOW, ZONE_PAGE, CHAIN, HOSTED_BELOW];

/// Statements on the database of a PowerDNS.
pub const ALL_TARGET: &[&str] = &[
    LEDGER_BEGIN,
    LEDGER_LOCK,
    LEDGER_READ,
    LEDGER_SET,
    LEDGER_RELEASE,
    LEDGER_CHECKSUM,
    LEDGER_COUNT,
    LEDGER_TAKE_AWAY,
    DOMAINS_PUT,
    DOMAINS_IDS,
    DOMAINS_DELETE,
    DOMAIN_AS_WRITTEN,
    RECORDS_OF_NAMES,
    RECORDS_OF_ZONE,
    RECORDS_DELETE,
    RECORDS_CLEAR,
    METADATA_CLEAR,
    KEYS_CLEAR,
    COMMENTS_CLEAR,
    EXTRAS_OF_ZONE,
    RECORDS_INSERT,
    ZONES_PAGE,
    RIGHTS,
];
