//! The statements of the search over all domains. Each goes along one index in the order in which RRsets are listed, and
//! so stops at the end of the page; what else is asked of an RRset is looked at on the way.

use crate::query::sql::rrset_fields;

/// A sight in which nothing but the indexes that the statements are made for can be used: a plan outlives the table that
/// it was made for, and what a value or a name has in number differs by six orders.
pub(super) const BEGIN: &str = "begin read only; set local enable_seqscan = off; set local enable_bitmapscan = off; \
     set local enable_hashjoin = off; set local enable_mergejoin = off; set local enable_sort = off; set local jit = off";

/// What is asked of an RRset `k` with the records `r`, and of its domain: $5 types, $6 owner key, $7 how the key begins, $8
/// how it ends, $9 manager, $10 values or words of them, $11 tenants, $12 single domains beside them, $13 the only names
/// of domains that may be shown; each null where it does not matter. The domain is looked up for each by itself, so that no
/// plan goes through all domains.
macro_rules! asked {
    () => {
        " and ($5::integer[] is null or k.type = any($5)) and ($6::text is null or k.owner_key = $6) \
         and ($7::text is null or starts_with(k.owner_key, $7)) \
         and ($8::text is null or right(k.owner_key, length($8)) = $8) \
         and ($9::text is null or r.managed_by = $9) \
         and ($10::text[] is null or exists (select from unnest(r.records) v \
             where v = any($10) or string_to_array(translate(v, '\"', ' '), ' ') && $10)) \
         and (select d.current and ($11::uuid[] is null or d.tenant_id = any($11) or d.id = any($12)) \
             and ($13::text[] is null or d.name = any($13)) from desired.domains d where d.id = k.domain_id) "
    };
}

/// The RRsets after ($1 domain, $2 owner key, $3 type), $4 at most, that are found `$along` something for each `$of`.
macro_rules! search {
    ($of:literal, $along:literal) => {
        concat!(
            "select ",
            rrset_fields!(),
            ", d.id, d.name, d.tenant_id from (select distinct f.domain_id, f.owner_key, f.type from ",
            $of,
            " cross join lateral (select k.domain_id, k.owner_key, k.type from ",
            $along,
            " and (k.domain_id, k.owner_key, k.type) > ($1, $2, $3)",
            asked!(),
            "order by k.domain_id, k.owner_key, k.type limit $4) f order by 1, 2, 3 limit $4) p \
             join desired.rrsets r on r.domain_id = p.domain_id and r.owner_key = p.owner_key and r.type = p.type \
             join desired.domains d on d.id = p.domain_id \
             left join events e on e.stream_id = r.domain_id and e.revision = r.changed and e.seq = 0 \
             order by p.domain_id, p.owner_key, p.type"
        )
    };
}

/// $14 texts, $15 what they are of an RRset.
pub(super) const BY_TERMS: &str = search!(
    "unnest($14::text[]) w(text)",
    "desired.terms k cross join lateral (select t.records, t.managed_by from desired.rrsets t \
         where t.domain_id = k.domain_id and t.owner_key = k.owner_key and t.type = k.type offset 0) r \
     where k.term = hashtextextended(w.text, $15::bigint)"
);

/// $14 texts, $15 what they are of an RRset, $16 domains.
pub(super) const BY_TERMS_IN: &str = search!(
    "unnest($16::uuid[]) v(id) cross join unnest($14::text[]) w(text)",
    "desired.terms k cross join lateral (select t.records, t.managed_by from desired.rrsets t \
         where t.domain_id = k.domain_id and t.owner_key = k.owner_key and t.type = k.type offset 0) r \
     where k.term = hashtextextended(w.text, $15::bigint) and k.domain_id = v.id"
);

/// The owner key $6.
pub(super) const BY_NAME: &str = search!(
    "(select 1) o",
    "desired.rrsets k cross join lateral (select k.records, k.managed_by) r where k.owner_key = $6"
);

/// The owner key $6 in the domains $14.
pub(super) const BY_NAME_IN: &str = search!(
    "unnest($14::uuid[]) v(id)",
    "desired.rrsets k cross join lateral (select k.records, k.managed_by) r where k.owner_key = $6 and k.domain_id = v.id"
);

/// The type $14.
pub(super) const BY_TYPE: &str = search!(
    "(select 1) o",
    "desired.rrsets k cross join lateral (select k.records, k.managed_by) r where k.type = $14::integer"
);

/// The type $14 in the domains $15.
pub(super) const BY_TYPE_IN: &str = search!(
    "unnest($15::uuid[]) v(id)",
    "desired.rrsets k cross join lateral (select k.records, k.managed_by) r where k.type = $14::integer and k.domain_id = v.id"
);

/// The manager $9.
pub(super) const BY_MANAGER: &str = search!(
    "(select 1) o",
    "desired.rrsets k cross join lateral (select k.records, k.managed_by) r where k.managed_by = $9"
);

/// The manager $9 in the domains $14.
pub(super) const BY_MANAGER_IN: &str = search!(
    "unnest($14::uuid[]) v(id)",
    "desired.rrsets k cross join lateral (select k.records, k.managed_by) r where k.managed_by = $9 and k.domain_id = v.id"
);

/// All of them.
pub(super) const ALL_OF_THEM: &str = search!(
    "(select 1) o",
    "desired.rrsets k cross join lateral (select k.records, k.managed_by) r where true"
);

/// All in the domains $14.
pub(super) const ALL_IN: &str = search!(
    "unnest($14::uuid[]) v(id)",
    "desired.rrsets k cross join lateral (select k.records, k.managed_by) r where k.domain_id = v.id"
);

/// The owner keys $15 in the domains of the names $14.
pub(super) const BY_ABSOLUTE: &str = search!(
    "unnest($14::text[], $15::text[]) n(name, key)",
    "(select t.id from desired.domains t where t.name = n.name and t.current offset 0) z \
     cross join lateral (select t.* from desired.rrsets t where t.domain_id = z.id and t.owner_key = n.key offset 0) k \
     cross join lateral (select k.records, k.managed_by) r where true"
);

/// $1 texts, $2 what they are of an RRset, $3 at most.
pub(super) const COUNT_TERMS: &str = "select count(*) from unnest($1::text[]) w(text) cross join lateral \
     (select from desired.terms k where k.term = hashtextextended(w.text, $2::bigint) limit $3) n";

/// $1 owner key, $2 at most.
pub(super) const COUNT_NAME: &str =
    "select count(*) from (select from desired.rrsets k where k.owner_key = $1 limit $2) n";

/// $1 type, $2 at most.
pub(super) const COUNT_TYPE: &str =
    "select count(*) from (select from desired.rrsets k where k.type = $1 limit $2) n";

/// $1 manager, $2 at most.
pub(super) const COUNT_MANAGER: &str =
    "select count(*) from (select from desired.rrsets k where k.managed_by = $1 limit $2) n";

/// $1 from domain, $2 tenants or null, $3 single domains beside them, $4 the only names that may be shown or null, $5 how
/// many: the next domains that may be seen, by their ids.
pub(super) const SEEN: &str = "select d.id from desired.domains d where d.current and d.id >= $1 \
     and ($2::uuid[] is null or d.tenant_id = any($2) or d.id = any($3)) \
     and ($4::text[] is null or d.name = any($4)) order by d.id limit $5";

/// Every statement, for the tests that prepare and plan them.
pub const ALL: &[&str] = &[
    BY_TERMS,
    BY_TERMS_IN,
    BY_NAME,
    BY_NAME_IN,
    BY_TYPE,
    BY_TYPE_IN,
    BY_MANAGER,
    BY_MANAGER_IN,
    ALL_OF_THEM,
    ALL_IN,
    BY_ABSOLUTE,
    COUNT_TERMS,
    COUNT_NAME,
    COUNT_TYPE,
    COUNT_MANAGER,
    SEEN,
];
