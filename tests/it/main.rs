//! Black-box tests, one binary: every binary links the whole tree. This file only declares the modules.

// A test and its helpers may fail loudly.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod cli_server;
mod demo;
mod http_access;
mod http_faults;
mod http_values;
mod http_walk;
mod parts;
mod support;
mod tidy;
