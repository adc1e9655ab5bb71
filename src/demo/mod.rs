//! The whole system on loopback in one directory, and the kit of parts it is made of.
//!
//! The kit starts the real servers: [`postgres`], [`pdns`], [`dnsdist`], put together in [`stack`], and the [`edge`]
//! with its cells, the [`front`] before them and an [`origin`] behind. The demo and the tests use the same kit, so what
//! a test proves is what a demo shows. Below it: [`ports`] nobody else takes, [`home`] with directories and accounts,
//! [`part`] and [`service`] for child processes, [`process`] for naming them and [`probe`] for asking them.
//!
//! The demo on top: [`run`] is the command; [`ledger`] what it remembers, [`manifest`] what it publishes, [`supervise`]
//! what keeps its parts alive, [`tour`] what it shows, on `sites` what of it is seen through the edge.

pub mod api;
pub mod dnsdist;
pub mod edge;
pub mod front;
mod headwater;
pub mod home;
pub mod ledger;
pub mod manifest;
pub mod origin;
pub mod part;
pub mod pdns;
pub mod ports;
pub mod postgres;
pub mod probe;
pub mod process;
pub mod run;
pub mod service;
mod sites;
mod sql;
pub mod stack;
pub mod supervise;
pub mod tour;

pub use sql::PDNS_MIGRATIONS;
