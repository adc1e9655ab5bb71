//! Black-box tests of the agent, one binary: a control plane that speaks mutual TLS and may be hostile, the real agent,
//! real nginx with the real runtime. This file only declares the modules.

// A test and its helpers may fail loudly.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod boot;
mod crash;
mod damage;
mod delivery;
mod faults;
mod hostile;
mod rotation;
mod scale;
mod support;
mod tasks;
mod unit;
