//! The control plane. The modules stand in the order in which a mutation flows:
//! command → decide → append → project → deploy → acknowledge.

pub mod clock;
pub mod command;
pub mod secret;
pub mod store;
