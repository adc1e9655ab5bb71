//! What the control plane and an edge say to each other, and what an edge keeps on its disk. Pure: nothing here
//! awaits, reads a clock or touches a file; only making a key and sealing draw from the system's random source.
//!
//! What comes from outside is bounded before it is read, verified before it is parsed, and refused with a reason
//! that has a type. Secrets have no `Debug`, no `Clone` and no serialized form.

pub mod artifact;
pub mod canonical;
pub mod cell;
pub mod check;
pub mod checksum;
pub mod compiled;
pub mod frame;
pub mod ids;
pub mod manifest;
pub mod profile;
pub mod protocol;
pub mod seal;
pub mod secret;
pub mod sign;
pub mod snapshot;
pub mod tasks;
pub mod text;
pub mod time;
pub mod token;
pub mod verify;
