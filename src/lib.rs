//! The control plane. The modules stand in the order in which a mutation flows:
//! command → decide → append → project → deploy → acknowledge.

pub mod app;
pub mod cli;
pub mod http;
pub mod serve;

pub mod command;
pub mod query;
pub mod store;

pub mod compare;
pub mod deploy;
pub mod dnsdist;
pub mod edge;
pub mod history;
pub mod import;
pub mod operation;
pub mod placement;
pub mod rebuild;
pub mod verify;
pub mod webhook;
pub mod why;

pub mod certificate;
pub mod clock;
pub mod config;
pub mod demo;
pub mod mail;
pub mod pace;
pub mod people;
pub mod replicas;
pub mod secret;
pub mod statements;
pub mod token;
pub mod vault;
