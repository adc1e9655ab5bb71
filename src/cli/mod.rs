//! The command line: one noun and verb per action.

pub mod client;
pub mod sse;
