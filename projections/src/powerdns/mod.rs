//! `powerdns`: the rows that PowerDNS answers from, as a function of desired state alone.
//!
//! [`render`] and [`ZoneRenderer`] make rows of owners (some of a zone, or all of it in order), [`SetHash`] sums them
//! up, [`plan`] says what to write so that a table holds them. Nothing here knows a connection; the statements that
//! load and write are in [`sql`].

mod checksum;
mod derived;
mod plan;
mod render;
mod row;
mod spelling;
pub mod sql;

pub use checksum::SetHash;
pub use derived::{POOL, PROXIED, SHARED_POOL, derived_at, expand, mark};
pub use plan::{Difference, Plan, plan};
pub use render::{
    Owner, Owners, RenderFault, RrsetData, Zone, ZoneRenderer, affected, powerdns_name, render,
};
pub use row::{Row, StoredRow};

#[cfg(test)]
mod tests;
