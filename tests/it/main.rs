//! Black-box tests, one binary: every binary links the whole tree. This file only declares the modules.

// A test and its helpers may fail loudly.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod audit;
mod demo;
mod operations;
mod parts;
mod stream;
mod stream_cost;
mod support;
mod tidy;
