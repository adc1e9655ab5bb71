//! The log: the single write path's end (group commit, [`committer`]), and every
//! way to read it. Only this folder writes events, and only through one CALL.

pub(crate) mod append;
mod batch;
pub mod committer;
mod decide;
pub mod head;
mod load;
pub mod pool;
pub mod raw;
pub mod read;
mod renew;
pub(crate) mod row;
mod sql;
mod turn;
pub mod verify;
mod watchdog;

pub use append::AppendError;
pub use committer::{Committer, CommitterHandle};
pub use renew::renew_log_id;

/// The statements of this folder, for the test that prepares them.
pub const STATEMENTS: &[&str] = sql::ALL;
