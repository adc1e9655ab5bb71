//! The agent of one edge host: fetch → verify → compile → stage → switch → probe → acknowledge.
//!
//! What serves traffic works without the agent, and the agent works without the control plane: everything that is
//! active lies on the disk, authenticated, and no path takes it away before the next state is proven. The centre
//! ([`plan`], [`backoff`], [`status`]) is synchronous and takes time as an argument; the rest is thin. The agent may be
//! killed at any instruction: it is crash-only, and its next start finds the old state or the new one.

pub mod agent;
pub mod attend;
pub mod backoff;
pub mod build;
pub mod cell;
pub mod cli;
pub mod connect;
pub mod control;
pub mod damage;
pub mod deliver;
pub mod disk;
pub mod enrol;
pub mod fetch;
pub mod heartbeat;
pub mod identity;
pub mod index;
pub mod inspect;
pub mod journal;
pub mod keys;
pub mod layout;
pub mod mac;
pub mod open;
pub mod pins;
pub mod plan;
pub mod probe;
pub mod process;
pub mod settings;
pub mod snapshot;
pub mod spool;
pub mod status;
pub mod store;
pub mod tls;
pub mod twin;
pub mod verify;
pub mod watch;
