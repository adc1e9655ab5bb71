//! The statements of rebuilding what follows the log.

/// A table of a projection.
pub(crate) struct Table {
    /// Its name, with its schema.
    pub(crate) name: &'static str,
    /// The member of a row that names it.
    pub(crate) key: &'static str,
    /// Columns that are not told by the log.
    pub(crate) working: &'static str,
    /// Which rows the log tells of.
    pub(crate) filter: &'static str,
    /// Which rows a rebuild begins without; the others are written over.
    pub(crate) cleared: &'static str,
}

const fn table(name: &'static str, key: &'static str) -> Table {
    Table { name, key, working: "", filter: "true", cleared: "true" }
}

/// The tables of `operations`.
pub(crate) const OPERATIONS_TABLES: [Table; 3] = [
    table("operations.operations", "id"),
    table("operations.verified", "domain_id"),
    table("operations.targets", "cluster_id"),
];

/// The tables of `audit`.
pub(crate) const AUDIT_TABLES: [Table; 1] = [table("audit.entries", "position")];

/// The tables of `edge`. What is published stays while it is rendered anew: where the newest revision cannot be
/// rendered, the last one that could is known nowhere else. Who signed it is no matter of the log.
pub(crate) const EDGE_TABLES: [Table; 2] = [
    Table {
        working: "key_id,signature",
        cleared: "not exists (select from desired.sites s where s.domain_id = t.domain_id)",
        ..table("edge.domains", "name")
    },
    Table {
        working: "unused_since",
        filter: "exists (select from edge.domains d where d.checksum = t.checksum)",
        cleared: "false",
        ..table("edge.artifacts", "checksum")
    },
];

/// Long work in one transaction, and long statements: it is an operator's, and bounded by the log.
pub(super) const PATIENCE: &str =
    "set local statement_timeout = 0; set local idle_in_transaction_session_timeout = '5min'";

pub(super) const SNAPSHOT: &str = "set transaction isolation level repeatable read";

/// $1 name. Keeps whoever else runs the projection waiting.
pub(super) const LOCK_CURSOR: &str = "select position from projection_cursors where name = $1 for update";

pub(super) const HEAD: &str = "select coalesce(max(position), 0) from events";

/// $1 name, $2 version, $3 position.
pub(super) const SET_CURSOR: &str = "insert into projection_cursors as c (name, version, position) values ($1, $2, $3) \
     on conflict (name) do update set version = excluded.version, position = excluded.position, state = 'live', \
     last_error = null, updated_at = now()";

pub(crate) const ALL: &[&str] = &[LOCK_CURSOR, HEAD, SET_CURSOR];

/// Empties a table without keeping its readers out.
pub(super) fn clear(table: &Table) -> String {
    format!("delete from {} t where {}", table.name, table.cleared)
}

/// Keeps what is live aside, until the transaction ends.
pub(super) fn keep(table: &Table, number: usize) -> String {
    format!(
        "create temporary table kept_{number} on commit drop as \
         select to_jsonb(t) - '{{{working}}}'::text[] as row from {name} t where {filter}",
        name = table.name,
        working = table.working,
        filter = table.filter
    )
}

/// $1 the key, $2 how many: rows that are only on one side, as (was live, row).
pub(super) fn compare(table: &Table, number: usize) -> String {
    let fresh = format!(
        "select to_jsonb(t) - '{{{}}}'::text[] as row from {} t where {}",
        table.working, table.name, table.filter
    );
    format!(
        "select live, row from ( \
           (select true as live, row from (select row from kept_{number} except {fresh}) l) \
           union all \
           (select false, row from ({fresh} except select row from kept_{number}) f) \
         ) both_sides order by row->>$1, live desc limit $2"
    )
}
