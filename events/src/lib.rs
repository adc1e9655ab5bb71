//! What can happen: ids, names, RDATA, the typed events and their envelope, and
//! the pure `decide` of every aggregate. Nothing here awaits, reads a clock,
//! draws a random number or knows a database.

pub mod actor;
pub mod admin;
pub mod codec;
pub mod credential;
pub mod deployment;
pub mod dns;
pub mod domain;
pub mod edge;
pub mod envelope;
pub mod event;
pub mod ids;
pub mod manager;
pub mod migration;
pub mod operation;
pub mod people;
pub mod reject;
pub mod scope;
pub mod time;
pub mod webhook;
pub mod zonetext;
