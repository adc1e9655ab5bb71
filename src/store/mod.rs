//! The log: the single write path's end (group commit, [`committer`]), and every
//! way to read it. Only this folder writes events, and only through one CALL.

mod append;
mod batch;
pub mod committer;
mod decide;
pub mod head;
mod load;
pub mod pool;
pub mod read;
pub(crate) mod row;
mod sql;
mod watchdog;

pub use append::AppendError;
pub use committer::{Committer, CommitterHandle};
