//! Real servers for the tests.
//!
//! What must hold: tests run in parallel, in several clones at once, and twice in a row; so every port is leased,
//! every directory is of this run, and what a killed run left is removed by the next one.

mod api;
mod database;
mod dns;
pub mod log;
mod program;
pub mod projection;
pub mod proxy;
mod run;
pub mod schema;
pub mod sse;
pub mod world;

pub use api::{Answer, TestApi, Twin};
pub use database::TestDb;
pub use dns::DnsStack;
pub use program::edge_program;
pub use run::{eventually, test_home};
