//! The log: the single write path's end (group commit, [`committer`]), and every
//! way to read it. Only this folder writes events, and only through one CALL.

pub(crate) mod append;
mod batch;
mod clusters;
pub mod committer;
mod decide;
mod edge;
mod failure;
pub mod head;
mod load;
mod lock;
mod member;
pub mod past;
mod people;
pub mod pool;
pub mod raw;
pub mod read;
mod renew;
mod rights;
pub(crate) mod row;
mod sites;
mod sql;
mod turn;
pub mod undo;
pub mod verify;
mod watchdog;
mod webhooks;

pub use append::AppendError;
pub use committer::{Committer, CommitterHandle};
pub use renew::renew_log_id;
pub(crate) use sql::rights_number;
pub use watchdog::TAIL_HELD_MAX;

/// SQLSTATE of a text that the encoding of the database cannot hold, in a parameter and in JSON.
const TEXT_REFUSED_STATES: [&str; 2] = ["22021", "22P05"];

/// Whether the database answers, but cannot hold a text that it was given: the request is at fault.
pub fn is_text_refused(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|refusal| refusal.code());
    code.is_some_and(|code| TEXT_REFUSED_STATES.contains(&code.as_ref()))
}

/// The statements of this folder, for the test that prepares them.
pub const STATEMENTS: &[&str] = sql::ALL;
