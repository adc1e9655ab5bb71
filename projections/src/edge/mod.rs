//! `edge`: what is published to the edges. A domain's row bears the position of its newest event that changes what
//! edges serve; its artifact is stored by its checksum and signed once, the same for every edge.

mod change;
mod render;
mod sql;
mod store;

pub use change::{Known, Touch, Write, affects_edges, touched, write};
pub use render::{KeyName, RenderFault, Rendered, Site, render};
pub use sql::ALL;

use crate::follow::{Logged, Projection};
use headwater_edge_wire::artifact::ArtifactBudget;
use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::sign::Signature;
use headwater_events::ids::{DomainId, Position};
use sqlx::postgres::PgConnection;
use std::sync::Arc;
use tokio::sync::watch;

/// Domains that are read and written together, at most.
const CHUNK_MAX_DOMAINS: usize = 100;
/// How long an artifact is kept that nothing publishes any more.
const UNUSED_KEPT_SECONDS: f64 = 86_400.0;
/// Unused artifacts that one page removes, at most.
const PRUNE_MAX_ARTIFACTS: i64 = 200;

/// Signs checksums of artifacts. The same key gives the same signature.
pub trait Sign: Send + Sync {
    /// The signature; none while there is no key, and then what is published is signed later.
    ///
    /// # Errors
    /// When the library fails: the projection stands still rather than publish what nobody takes.
    fn sign(&self, checksum: &Checksum) -> Result<Option<Signature>, sqlx::Error>;
}

/// Nobody signs yet.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoKey;

impl Sign for NoKey {
    fn sign(&self, _: &Checksum) -> Result<Option<Signature>, sqlx::Error> {
        Ok(None)
    }
}

/// The projection.
#[derive(Clone)]
pub struct Edge {
    /// How large an artifact may be.
    pub budget: ArtifactBudget,
    /// Who signs.
    pub signer: Arc<dyn Sign>,
    /// Moves with every commit.
    pub moved: watch::Sender<Position>,
}

impl Edge {
    /// Signs what was published while there was no key; gives how many were signed.
    ///
    /// # Errors
    /// When the database does not answer, or nobody can sign.
    pub async fn sign_unsigned(
        &self,
        connection: &mut PgConnection,
        most: i64,
    ) -> Result<usize, sqlx::Error> {
        store::sign(connection, self, most).await
    }
}

impl Projection for Edge {
    const NAME: &'static str = "edge";
    const VERSION: i32 = 1;

    async fn apply(&self, transaction: &mut PgConnection, page: &[Logged]) -> Result<(), sqlx::Error> {
        let touched: Vec<(DomainId, Touch)> = touched(page).into_iter().collect();
        if touched.is_empty() {
            return Ok(());
        }
        for chunk in touched.chunks(CHUNK_MAX_DOMAINS) {
            store::save(transaction, self, chunk).await?;
        }
        store::prune(transaction, UNUSED_KEPT_SECONDS, PRUNE_MAX_ARTIFACTS).await
    }

    fn committed(&self, to: Position) {
        self.moved.send_replace(to);
    }
}
