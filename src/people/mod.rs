//! People who come in: how they prove who they are, what is open for them, and what was seen of them.
//!
//! What must hold: a password is hashed off the async threads and never many at once; what a holder must show (a token,
//! a session) stands in the database as a keyed digest alone; what is seen of a request (a use, a denial) is written
//! later, in batches of a bounded size, and never in the request's way.

pub mod digest;
pub mod erase;
pub mod password;
pub mod rate;
pub mod seen;
pub mod session;
pub mod sql;
