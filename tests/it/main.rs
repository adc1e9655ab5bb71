//! Black-box tests, one binary: every binary links the whole tree. This file only declares the modules.

// A test and its helpers may fail loudly.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod access;
mod audit;
mod certs;
mod cli;
mod cli_server;
mod demo;
mod deploy;
mod dnsdist;
mod edges;
mod history;
mod http_access;
mod http_bodies;
mod http_bounds;
mod http_conform;
mod http_faults;
mod http_once;
mod http_schema;
mod http_values;
mod http_walk;
mod http_zone;
mod imperative;
mod imports;
mod life;
mod log;
mod log_crash;
mod log_faults;
mod log_rebuild;
mod log_stall;
mod manage;
mod operations;
mod parts;
mod pdns;
mod people;
mod placement;
mod rollback;
mod search;
mod secrets;
mod sites;
mod stream;
mod stream_cost;
mod stream_life;
mod support;
mod system;
mod system_edge;
mod tidy;
mod webhooks;
mod whole;
mod why;
