//! Certificates that owners of domains bring: what is taken, what is told of it, what edges get of it.

mod api;
pub mod mint;
mod published;
mod table;
