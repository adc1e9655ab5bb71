//! Every statement with a fixed text that this program sends to the control
//! database. A test prepares each against the migrated schema: a folder with an
//! `sql.rs` of its own adds its list here.

/// All of them.
pub fn all() -> Vec<&'static str> {
    [
        crate::store::STATEMENTS,
        crate::rebuild::STATEMENTS,
        crate::rebuild::FOLLOWED_STATEMENTS,
        crate::query::sql::ALL,
        crate::query::search::STATEMENTS,
        crate::query::asof::STATEMENTS,
        crate::query::edges::sql::ALL,
        crate::deploy::sql::ALL,
        crate::edge::sql::ALL,
        crate::history::sql::ALL,
        crate::import::sql::ALL,
        crate::compare::sql::ALL,
        crate::operation::sql::ALL,
        crate::people::sql::ALL,
        crate::placement::sql::ALL,
        crate::vault::sql::ALL,
        crate::query::webhooks::STATEMENTS,
        crate::webhook::sql::ALL,
        crate::verify::sql::ALL,
        crate::why::STATEMENTS,
        headwater_projections::audit::ALL,
        headwater_projections::edge::ALL,
        headwater_projections::operations::ALL,
        headwater_projections::powerdns::sql::ALL_CONTROL,
    ]
    .concat()
}
