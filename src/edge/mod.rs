//! The control plane's side of the edge: identities of edge hosts, what each is to hold, and what their agents say.
//!
//! What must hold: nothing here ever connects to an edge host; whether an edge may be answered is read of the database
//! at every request, so a revocation counts at the next one; what an agent reports is no event; a page says nothing
//! that a reader would have to refuse.

mod answers;
pub mod authority;
mod changes;
pub mod clones;
pub mod csr;
pub mod forget;
mod heartbeat;
mod keys;
pub mod listener;
mod manifest;
mod peer;
mod polls;
mod rate;
mod register;
mod routes;
pub mod signing;
pub mod sql;
mod streams;
pub mod token;

pub use keys::{Signer, add_signing_key, authority_certificate, signer};
pub use listener::{bind, run};
pub use polls::Polls;

use headwater_edge_wire::canonical::CanonicalError;
use headwater_edge_wire::ids::OutOfRange;
use headwater_edge_wire::manifest::PublishError;
use headwater_edge_wire::seal::SealError;
use headwater_edge_wire::sign::SignError;

use crate::http::Problem;
use crate::vault::VaultError;

/// What went wrong by itself.
#[derive(Debug, thiserror::Error)]
pub enum EdgeError {
    /// No secret can be had.
    #[error(transparent)]
    Vault(#[from] VaultError),
    /// The database does not answer.
    #[error("the control database did not answer: {0}")]
    Database(#[from] sqlx::Error),
    /// A certificate cannot be made.
    #[error("a certificate cannot be made: {0}")]
    Certificate(#[from] rcgen::Error),
    /// TLS cannot be set up.
    #[error("TLS cannot be set up: {0}")]
    Tls(String),
    /// Something cannot be signed.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// Something cannot be sealed.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// A page cannot be published.
    #[error("a page cannot be published: {0}")]
    Publish(#[from] PublishError),
    /// A frame cannot be written.
    #[error("a frame cannot be written: {0}")]
    Frame(#[from] CanonicalError),
    /// A stored value is none that this program writes.
    #[error("a stored {0} is none that this program writes")]
    Odd(&'static str),
    /// The listener broke.
    #[error("the edge control listener broke: {0}")]
    Listener(#[from] std::io::Error),
}

impl From<OutOfRange> for EdgeError {
    fn from(_: OutOfRange) -> Self {
        Self::Odd("number")
    }
}

impl From<EdgeError> for Problem {
    fn from(error: EdgeError) -> Self {
        match error {
            EdgeError::Database(error) | EdgeError::Vault(VaultError::Database(error)) => error.into(),
            // What is to be done about the key file is for the operator, who is the one that asks the API.
            EdgeError::Vault(error) => {
                tracing::error!(%error, "a secret cannot be had");
                Self::unavailable(error.to_string())
            }
            error => {
                tracing::error!(%error, "edge control failed");
                Self::unavailable("edge control cannot answer this now: its log has the details")
            }
        }
    }
}
