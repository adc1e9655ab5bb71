//! The HTTP API: extract, one call, answer. No handler decides anything; the
//! only place that turns an error into a status is `problem.rs`.

pub mod accept;
pub mod audit;
pub mod auth;
pub mod client;
pub mod events;
mod explain;
pub mod operations;
pub mod problem;
mod search;
pub mod session;
pub mod stall;
pub mod stream;

pub use problem::Problem;

pub mod router;

mod access_log;
mod asof;
mod cache;
mod cells;
mod clusters;
mod deployments;
mod described;
mod domains;
mod edges;
mod health;
mod hostnames;
mod imports;
mod lifecycle;
mod members;
pub mod pdns;
mod placement;
mod projections;
mod revisions;
mod rollback;
mod rrsets;
mod status;
mod tenants;
mod tls;
mod tokens;
mod undo;
mod users;
mod webhooks;
mod zone;
mod zone_import;

pub mod answer;
pub mod body;
pub mod bounds;
pub mod conditional;
pub mod docs;
pub mod dto;
pub mod envelope;
pub mod mutation;
pub mod openapi;
pub mod page;
pub mod path;
pub mod policy;
pub mod query;
pub mod rate;
pub mod strict;
