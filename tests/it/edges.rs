//! Edges: enrolment, identities, what each is to hold, what its agent says. Real PostgreSQL, real TLS, and an agent
//! that is written from the wire crate alone.

mod access;
mod agent;
mod certificates;
mod enrol;
mod faults;
mod lab;
mod pages;
mod ring;
pub mod secrets;
