//! The control plane.

pub mod config;
pub mod demo;
pub mod secret;
