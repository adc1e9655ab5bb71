//! The HTTP API: extract, one call, answer. No handler decides anything; the
//! only place that turns an error into a status is `problem.rs`.

pub mod auth;
pub mod problem;

pub use problem::Problem;
