//! The read side of history: one tailer per process that encodes each event once
//! ([`hub`]), what a reader may see ([`rights`]), how it is written ([`frames`]),
//! and the pull of one reader over both ([`reader`]). The log alone is the truth;
//! everything in memory is only acceleration.

pub mod frames;
pub mod heads;
pub mod hub;
pub mod page;
pub mod query;
pub mod reader;
pub mod rights;
pub mod sql;
pub mod trail;
