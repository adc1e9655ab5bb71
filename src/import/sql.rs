//! Statements of imports: those to the database of a PowerDNS that zones come from, and those to our own.

/// To a source: $1 after which id, $2 how many, $3 whether with something that changes when the zone does.
pub(super) const PDNS_ZONES: &str = "select d.id, d.name, upper(d.type), coalesce(d.account, ''), coalesce(d.master, ''), \
     coalesce((select jsonb_object_agg(m.kind, m.n) from (select kind, count(*) as n from domainmetadata \
       where domain_id = d.id and kind is not null group by kind) m), '{}'::jsonb), \
     (select count(*) from cryptokeys k where k.domain_id = d.id), \
     (select count(*) from comments c where c.domain_id = d.id), \
     case when $3 then \
       (select concat(count(*), ' ', coalesce(sum(hashtextextended(concat_ws(chr(31), r.name, coalesce(r.type, '-'), \
          coalesce(r.content, ''), coalesce(r.ttl, -1), coalesce(r.prio, -1), r.disabled), 0)::numeric), 0)) \
        from records r where r.domain_id = d.id) || ' ' || \
       (select concat(count(*), ' ', coalesce(sum(hashtextextended(concat_ws(chr(31), c.name, c.type, c.comment), 0)::numeric), 0)) \
        from comments c where c.domain_id = d.id) end \
     from domains d where d.id > $1 order by d.id limit $2";

/// To a source: $1 zone.
pub(super) const PDNS_RECORDS: &str = "select coalesce(name, ''), type, coalesce(content, ''), ttl, prio, \
     coalesce(disabled, false) from records where domain_id = $1";

/// To a source: $1 zone.
pub(super) const PDNS_COMMENTS: &str =
    "select name, type, comment from comments where domain_id = $1 order by modified_at, id";

/// To a source: names, and nothing of their secrets.
pub(super) const PDNS_TSIG_KEYS: &str = "select coalesce(name, '') from tsigkeys order by name";

/// Only while a lease is held: $1 its name, $2 its owner.
macro_rules! held {
    () => {
        "exists (select from leases where name = $1 and owner = $2 and until > clock_timestamp())"
    };
}

/// $1 lease, $2 owner, $3 import, $4 what belongs to no zone.
pub(super) const BEGIN: &str = concat!(
    "insert into imports (id, notes) select $3, $4 where ",
    held!(),
    " on conflict (id) do update set notes = excluded.notes, updated_at = now()"
);

/// $1 lease, $2 owner, $3 import, then of each zone: $4 name, $5 domain, $6 outcome, $7 records, $8 what is told, $9 marker,
/// $10 base. A row for each that was kept. Where a look found the same, what is told of the zone stays.
pub(super) const SAVE_ZONES: &str = concat!(
    "insert into import_zones as z (import, zone, domain_id, outcome, records, told, marker, base) \
     select $3, n.zone, n.domain_id, n.outcome, n.records, n.told::jsonb, n.marker, n.base \
     from unnest($4::text[], $5::uuid[], $6::text[], $7::bigint[], $8::text[], $9::text[], $10::bytea[]) \
       as n(zone, domain_id, outcome, records, told, marker, base) where ",
    held!(),
    " on conflict (import, zone) do update set \
       domain_id = coalesce(excluded.domain_id, z.domain_id), outcome = excluded.outcome, records = excluded.records, \
       told = excluded.told, marker = excluded.marker, base = coalesce(excluded.base, z.base), at = now() \
     returning 1"
);

/// $1 import, $2 zones: what is known of each.
pub(super) const KNOWN: &str = "select zone, domain_id, outcome, records, told, marker, base from import_zones \
     where import = $1 and zone = any($2)";

/// $1 import, $2 zones that the source has: those that it had and has no more.
pub(super) const GONE: &str = "select zone, domain_id, outcome, records, told, marker, base from import_zones \
     where import = $1 and outcome <> 'missing' and base is not null and not zone = any($2) order by zone";

/// $1 stream of the domain, $2 import: whether the import made any of it.
pub(super) const IS_OURS: &str = "select exists (select from events where stream_id = $1 and change_id = $2)";

/// $1 lease, $2 owner, $3 import, $4 seconds until the next look: its source is looked at from now on.
pub(super) const FOLLOW: &str = concat!(
    "update imports set following = true, looked_at = now(), next_look_at = now() + make_interval(secs => $4), \
     updated_at = now() where id = $3 and ",
    held!()
);

/// The next import whose source is to be looked at, with what was asked for: one that is being cut over is not, unless that
/// came to nothing.
pub(super) const DUE: &str = "select i.id, e.type, e.schema, e.data, e.position, e.actor_kind, e.actor_id, e.token_id, \
     e.on_behalf_of, e.note, i.failures from imports i join events e on e.stream_id = i.id and e.revision = 1 and e.seq = 0 \
     where i.following and i.next_look_at <= now() and (i.cutting is null or exists (select from operations.operations o \
       where o.id = i.cutting and o.state in ('failed', 'cancelled'))) order by i.next_look_at limit 1";

/// $1 import: whether its source may be looked at still.
pub(super) const MAY_LOOK: &str = "select coalesce((select i.following and (i.cutting is null or exists (select from \
     operations.operations o where o.id = i.cutting and o.state in ('failed', 'cancelled'))) from imports i where i.id = $1), false)";

/// $1 lease, $2 owner, $3 import, $4 seconds until the next look, $5 why this one failed.
pub(super) const LOOKED: &str = concat!(
    "update imports set passes = passes + case when $5::text is null then 1 else 0 end, \
     looked_at = case when $5::text is null then now() else looked_at end, \
     failures = case when $5::text is null then 0 else failures + 1 end, error = $5, \
     next_look_at = now() + make_interval(secs => $4), updated_at = now() where id = $3 and ",
    held!()
);

/// $1 import, $2 the operation that ends it; a row when the source was followed.
pub(super) const CUT: &str =
    "update imports set cutting = $2, updated_at = now() where id = $1 and following returning id";

/// $1 lease, $2 owner, $3 import: it is followed no more.
pub(super) const CUT_OVER: &str = concat!(
    "update imports set following = false, cut_over_at = now(), error = null, updated_at = now() where id = $3 and ",
    held!()
);

/// $1 import: whether it was cut over.
pub(super) const IS_CUT_OVER: &str =
    "select exists (select from imports where id = $1 and cut_over_at is not null)";

macro_rules! import_columns {
    () => {
        "select o.id, o.state, coalesce(r.attempts, 0), coalesce(r.done, 0), coalesce(r.total, 0), o.error, o.created_at, \
         o.finished_at, convert_from(e.data, 'UTF8')::jsonb, coalesce(i.notes, '[]'::jsonb), coalesce(i.following, false), \
         i.cutting, i.cut_over_at, coalesce(i.passes, 0), i.looked_at, i.error, \
         (select coalesce(jsonb_object_agg(c.outcome, c.n), '{}'::jsonb) from (select outcome, count(*) as n \
            from import_zones z where z.import = o.id group by outcome) c), \
         (select c.state from operations.operations c where c.id = i.cutting) \
         from operations.operations o join events e on e.stream_id = o.id and e.revision = 1 and e.seq = 0 \
         left join operation_runs r on r.id = o.id left join imports i on i.id = o.id \
         where o.kind = 'import' and "
    };
}

/// $1 before, $2 how many: imports, newest first.
pub(super) const IMPORTS: &str =
    concat!(import_columns!(), "($1::uuid is null or o.id < $1) order by o.id desc limit $2");

/// $1 import.
pub(super) const IMPORT: &str = concat!(import_columns!(), "o.id = $1");

/// $1 import, $2 after, $3 outcomes (none: all), $4 how many.
pub(super) const REPORT: &str = "select zone, domain_id, outcome, records, told, at from import_zones \
     where import = $1 and ($2::text is null or zone > $2) and ($3::text[] is null or outcome = any($3)) \
     order by zone limit $4";

/// $1 tenants: those that there are.
pub(super) const TENANTS: &str = "select id from desired.tenants where id = any($1)";

/// $1 days: imports that ended so long ago are forgotten with their reports.
pub(super) const FORGET: &str =
    "delete from imports where not following and updated_at < now() - make_interval(days => $1)";

/// Every statement to our own database, for the test that prepares them.
pub const ALL: &[&str] = &[
    BEGIN,
    SAVE_ZONES,
    KNOWN,
    GONE,
    IS_OURS,
    FOLLOW,
    DUE,
    MAY_LOOK,
    LOOKED,
    CUT,
    CUT_OVER,
    IS_CUT_OVER,
    IMPORTS,
    IMPORT,
    REPORT,
    TENANTS,
    FORGET,
];
