//! The values of the DNS: names, types, record data, RRsets.
//!
//! Everything here is pure and total: no clock, no randomness, no I/O, and no input, however hostile, makes it
//! panic. A value that exists is valid and in canonical form, so that two spellings of one thing compare equal
//! and have one text. Rules that need a whole zone (a CNAME stands alone, glue, the apex) are not judged here.

mod binary;
pub mod fault;
mod field;
pub(crate) mod label;
mod layout;
mod loc;
pub mod name;
pub mod owner;
pub mod ownerkey;
mod prefix;
pub mod rdata;
pub mod rrset;
pub mod rrtype;
pub(crate) mod soa;
mod svcb;
pub(crate) mod token;

pub use fault::{DnsFault, FaultCode, FaultPlace};
pub use name::DomainName;
pub use owner::OwnerName;
pub use ownerkey::OwnerKey;
pub use rdata::Rdata;
pub use rrset::{RrSet, RrSetBody, RrSetInput, Ttl};
pub use rrtype::RrType;
