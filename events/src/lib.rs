//! What can happen.

pub mod dns;
