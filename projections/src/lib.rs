//! What the log means to a reader. Each projection is a pure change (event →
//! rows) beside its SQL; all of it can be dropped and rebuilt from the events.

pub mod audit;
pub mod desired;
pub mod edge;
pub mod follow;
pub mod operations;
pub mod powerdns;
