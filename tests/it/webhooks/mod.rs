//! Webhooks: what receivers are sent, in which order, how often, and what never reaches them.

mod api;
mod crash;
mod deliver;
mod guard;
pub mod lab;
mod retry;
