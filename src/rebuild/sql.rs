//! The statements of rebuild and verification. The tables and procedures of a
//! copy of `desired` are the text of the migrations with another schema in the
//! place of `desired`, so that the copy cannot be of another shape.

const TABLES: &str = include_str!("../../migrations/control/0002_desired.sql");
const PROCEDURES: &str = include_str!("../../migrations/control/0004_append.sql");
const FOUND: &str = include_str!("../../migrations/control/0036_deployments.sql");
const OUTCOMES: &str = include_str!("../../migrations/control/0037_outcomes.sql");
const SITES: &str = include_str!("../../migrations/control/0020_sites.sql");
const EDGES: &str = include_str!("../../migrations/control/0030_edges.sql");
const PLACEMENT: &str = include_str!("../../migrations/control/0050_placement.sql");
const CERTIFICATES: &str = include_str!("../../migrations/control/0040_certificates.sql");
const ACCESS: &str = include_str!("../../migrations/control/0060_access.sql");
const PEOPLE: &str = include_str!("../../migrations/control/0070_people.sql");
const MANAGERS: &str = include_str!("../../migrations/control/0120_managers.sql");
const WEBHOOKS: &str = include_str!("../../migrations/control/0130_webhooks.sql");
const SEARCH: &str = include_str!("../../migrations/control/0170_search.sql");
const LIFE: &str = include_str!("../../migrations/control/0180_lifecycle.sql");
const REMOVAL: &str = include_str!("../../migrations/control/0196_cluster_removal.sql");

/// Where in its file the part of `desired` ends.
const EDGE_TABLES_END: &str = "-- Beside the log, not derived from it.";
/// Where in its file the part of `desired` ends.
const OWN_TABLES_END: &str = "-- What follows is not desired.";
/// Where in its file the part of `desired` ends.
const TABLES_END: &str = "-- When each cluster was last reached";
/// Where in its file the part of `desired` begins.
const PROCEDURES_BEGIN: &str = "-- Everything below is also read by the rebuild";

/// $1 names in their order. `desired` follows in the append, so it is at the head whenever it is there.
pub(super) const STANDINGS: &str = "select n.name, coalesce(c.version, 1), \
     case when n.name = 'desired' then h.head else coalesce(c.position, 0) end, \
     case when n.name = 'desired' then 0 else h.head - coalesce(c.position, 0) end, \
     case when n.name = 'desired' and to_regclass('desired.platform') is null then 'missing' \
          else coalesce(c.state, 'live') end, c.last_error \
     from unnest($1::text[]) with ordinality as n(name, place) \
     cross join (select coalesce(max(position), 0) as head from events) h \
     left join projection_cursors c on c.name = n.name order by n.place";

/// How far `powerdns` is: up to the oldest change that some enabled target lacks. With the head.
pub(super) const POWERDNS_STANDING: &str = "select coalesce(min(e.position) - 1, h.head), h.head \
     from (select coalesce(max(position), 0) as head from events) h left join ( \
         select p.domain_id, p.active_revision from desired.deployments p join desired.clusters k on k.id = p.cluster_id \
         where k.enabled and p.desired_revision <> p.active_revision order by p.desired_at limit 100) w on true \
     left join events e on e.stream_id = w.domain_id and e.revision = w.active_revision + 1 group by h.head";

/// One rebuild or verification at a time, until the connection ends.
pub(super) const CLAIM: &str = "select pg_try_advisory_lock(7002)";

/// Nobody appends from here to the end of the transaction.
pub(super) const CLOSE_GATE: &str = "select pg_advisory_xact_lock(7000)";

/// One snapshot for everything that follows.
pub(super) const SNAPSHOT: &str = "begin isolation level repeatable read";

pub(super) const BEGIN: &str = "begin";

pub(super) const COMMIT: &str = "commit";

pub(super) const ROLLBACK: &str = "rollback";

pub(super) const HEAD: &str = "select coalesce(max(position), 0) from events";

/// $1 name.
pub(super) const DOMAIN: &str = "select holder from claims where ns = 1 and name = $1";

/// $1 cluster or null.
pub(super) const DEPLOYMENTS: &str = "select count(*) from desired.deployments d \
     join desired.clusters c on c.id = d.cluster_id and c.enabled and ($1::uuid is null or c.id = $1) \
     join desired.domains m on m.id = d.domain_id and m.current where d.wanted or d.state <> 'removed'";

/// $1 version, $2 position, $3 state, $4 what went wrong.
pub(super) const RECORD: &str = "insert into projection_cursors as c (name, version, position, state, last_error) \
     values ('desired', $1, $2, $3, $4) on conflict (name) do update \
     set version = excluded.version, position = excluded.position, state = excluded.state, last_error = excluded.last_error, updated_at = now()";

/// Every statement with a fixed text.
pub(super) const ALL: &[&str] =
    &[STANDINGS, POWERDNS_STANDING, CLAIM, CLOSE_GATE, HEAD, DOMAIN, DEPLOYMENTS, RECORD];

/// A table of `desired`: its name, its key, and the columns that are not told by the log.
pub(super) struct Table {
    pub(super) name: &'static str,
    key: &'static str,
    working: &'static str,
    domain: Option<&'static str>,
}

const fn table(name: &'static str, key: &'static str) -> Table {
    Table { name, key, working: "", domain: None }
}

/// Every table of `desired`.
pub(super) const COMPARED: [Table; 21] = [
    table("tenants", "id"),
    table("users", "id"),
    table("members", "user_id, tenant_id"),
    // Not of the domain alone: a user that goes takes its memberships along, and that is no event of the domain.
    table("domain_members", "user_id, domain_id"),
    table("tokens", "id"),
    Table { domain: Some("id"), ..table("domains", "id") },
    Table { domain: Some("domain_id"), ..table("rrsets", "domain_id, owner_key, type") },
    Table { domain: Some("domain_id"), ..table("terms", "term, domain_id, owner_key, type") },
    Table { domain: Some("domain_id"), ..table("hostnames", "domain_id, owner_key") },
    Table { domain: Some("domain_id"), ..table("sites", "domain_id") },
    Table { domain: Some("domain_id"), ..table("purges", "domain_id, epoch") },
    Table { domain: Some("domain_id"), ..table("certificates", "domain_id") },
    table("serials", "name"),
    table("clusters", "id"),
    Table { working: "attempts,next_attempt_at,checked_at", ..table("deployments", "domain_id, cluster_id") },
    table("platform", "one"),
    table("pauses", "scope, id"),
    table("edges", "id"),
    table("cells", "edge_id, number"),
    table("pools", "id"),
    table("webhooks", "id"),
];

/// Compares one table with its copy: key, live row, expected row of each that differs.
/// $1 how many at most, $2 a domain or null: then only its rows. None when the table has no rows of a domain's own.
pub(super) fn compare(table: &Table, schema: &str, domain_only: bool) -> Option<String> {
    let filter = match (domain_only, table.domain) {
        (false, _) => "$2::uuid is null".to_owned(),
        (true, Some(column)) => format!("{column} = $2::uuid"),
        (true, None) => return None,
    };
    let Table { name, key, working, .. } = table;
    let side = |schema: &str| {
        format!(
            "select {key}, to_jsonb(t) - '{{{working}}}'::text[] as row from {schema}.{name} t where {filter}"
        )
    };
    let (live, fresh) = (side("desired"), side(schema));
    Some(format!(
        "select jsonb_build_array({key}), l.row, f.row from ({live}) l full join ({fresh}) f using ({key}) \
         where l.row is distinct from f.row order by {key} limit $1"
    ))
}

/// What makes an empty copy, and what is put off until its rows are there.
pub(super) fn make(schema: &str) -> (String, String) {
    let own = TABLES.split_once(TABLES_END).map_or(TABLES, |(own, _)| own);
    let (sites, _) = SITES.split_at(SITES.find(PROCEDURES_BEGIN).unwrap_or(SITES.len()));
    let edges = EDGES.split_once(EDGE_TABLES_END).map_or(EDGES, |(own, _)| own);
    let placement = PLACEMENT.split_once(EDGE_TABLES_END).map_or(PLACEMENT, |(own, _)| own);
    let part = |text: &'static str| text.split_once(OWN_TABLES_END).map_or(text, |(own, _)| own);
    let (certificates, access, people) = (part(CERTIFICATES), part(ACCESS), part(PEOPLE));
    let (managers, webhooks, search) = (part(MANAGERS), part(WEBHOOKS), part(SEARCH));
    let (life, removal) = (part(LIFE), part(REMOVAL));
    let tables = format!(
        "{own}{sites}{edges}{FOUND}{certificates}{placement}{access}{people}{managers}{webhooks}{search}{life}{removal}"
    );
    let (mut first, mut later) = (String::new(), String::new());
    for statement in tables.split_inclusive(";\n") {
        let of_index = |line: &str| line.starts_with("create index ") || line.starts_with("drop index ");
        let puts_off = statement.lines().any(of_index);
        let place = if puts_off { &mut later } else { &mut first };
        place.push_str(statement);
    }
    let all = [
        PROCEDURES,
        OUTCOMES,
        SITES,
        EDGES,
        CERTIFICATES,
        PLACEMENT,
        ACCESS,
        PEOPLE,
        MANAGERS,
        WEBHOOKS,
        SEARCH,
        LIFE,
        REMOVAL,
    ];
    for procedures in all {
        first.push_str(procedures.find(PROCEDURES_BEGIN).map_or(procedures, |at| &procedures[at..]));
    }
    (renamed(&first, schema), renamed(&later, schema))
}

fn renamed(text: &str, schema: &str) -> String {
    text.replace("create schema desired;", &format!("create schema {schema};"))
        .replace("desired.", &format!("{schema}."))
        .replace("desired_apply", &format!("{schema}_apply"))
        .replace("desired_write", &format!("{schema}_write"))
}

/// Takes a run of events in; the arguments are those of `desired_write`.
pub(super) fn write(schema: &str) -> String {
    format!("call {schema}_write($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15)")
}

/// Removes a copy and whatever is left of one that was interrupted.
pub(super) fn remove(schema: &str) -> String {
    format!(
        "drop schema if exists {schema} cascade; drop procedure if exists {schema}_apply; \
         drop procedure if exists {schema}_apply_sites; drop procedure if exists {schema}_apply_edges; \
         drop procedure if exists {schema}_apply_certificates; \
         drop procedure if exists {schema}_apply_outcomes; drop procedure if exists {schema}_apply_access; drop procedure if exists {schema}_apply_people; \
         drop procedure if exists {schema}_apply_webhooks; drop procedure if exists {schema}_apply_before_webhooks; \
         drop procedure if exists {schema}_apply_life; drop procedure if exists {schema}_apply_before_life; \
         drop procedure if exists {schema}_apply_clusters; drop procedure if exists {schema}_apply_before_clusters; \
         drop procedure if exists {schema}_write"
    )
}

/// Puts the copy in the place of the live one; the live one may be missing.
pub(super) fn switch(schema: &str, old: &str) -> String {
    format!(
        "do $$ begin if to_regnamespace('desired') is not null then alter schema desired rename to {old}; end if; \
         end $$; alter schema {schema} rename to desired"
    )
}

pub(super) fn analyze(schema: &str) -> String {
    format!("analyze {schema}.domains, {schema}.rrsets, {schema}.terms, {schema}.deployments")
}
