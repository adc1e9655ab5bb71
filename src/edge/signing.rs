//! Who signs what is published to edges, as this process knows it. Which keys there are and which of them signs is asked
//! of the database for every page, so a key that was added counts in every process at once; it is opened once. While it
//! cannot be, what is published stays unsigned, no edge is told of it, and it is signed as soon as the key is there.

use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::sign::Signature;
use headwater_projections::edge::{Edge, Sign};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;

use super::keys::Standing;
use super::{EdgeError, Signer, signer};
use crate::app::App;

/// How often it is looked for what nobody has signed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Artifacts that are signed together.
const CHUNK_MAX_ARTIFACTS: i64 = 500;

/// The platform's signer, once this process has it.
#[derive(Clone, Default)]
pub struct PlatformSigner(Arc<ArcSwapOption<Signer>>);

impl std::fmt::Debug for PlatformSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PlatformSigner")
    }
}

impl PlatformSigner {
    /// The keys as this process last knew them. For an edge that registers that is enough: it pins a newer one with its
    /// first page, and none signs that it has not said to pin.
    ///
    /// # Errors
    /// When they are not open yet and cannot be opened.
    pub async fn known(&self, app: &App) -> Result<Arc<Signer>, EdgeError> {
        match self.0.load_full() {
            Some(held) => Ok(held),
            None => self.current(app).await,
        }
    }

    /// The keys of now, opened where they were not yet.
    ///
    /// # Errors
    /// When the key file cannot be used, or the database does not answer.
    pub async fn current(&self, app: &App) -> Result<Arc<Signer>, EdgeError> {
        let (held, now) = (self.0.load_full(), Standing::read(&app.pool).await?);
        if let (Some(held), Some(now)) = (held, now)
            && held.stands(&now)
        {
            return Ok(held);
        }
        let opened = Arc::new(signer(app).await?);
        self.0.store(Some(Arc::clone(&opened)));
        Ok(opened)
    }
}

impl Sign for PlatformSigner {
    fn sign(&self, checksum: &Checksum) -> Result<Option<Signature>, sqlx::Error> {
        let Some(signer) = self.0.load_full() else { return Ok(None) };
        signer.sign_artifact(checksum).map(Some).map_err(|error| sqlx::Error::Encode(error.into()))
    }
}

/// The projection `edge` as this process runs it.
pub async fn projection(app: &App) -> Edge {
    if let Err(error) = app.signer.current(app).await {
        tracing::info!(%error, "what is published to edges is not signed yet");
    }
    let (signer, moved) = (Arc::new(app.signer.clone()), app.published.sender());
    Edge { budget: app.config.sites.artifact, signer, moved }
}

/// Signs what was published while there was no key, until the process stops.
pub async fn run(app: App, edge: Edge) {
    while !app.stop.is_cancelled() {
        match look(&app, &edge).await {
            Ok(signed) if signed > 0 => {
                tracing::info!(signed, "signed what was published without a signature");
                continue;
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "what is published to edges cannot be signed"),
        }
        tokio::select! {
            () = app.stop.cancelled() => return,
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
    }
}

async fn look(app: &App, edge: &Edge) -> Result<usize, EdgeError> {
    app.signer.current(app).await?;
    let mut transaction = app.pool.begin().await?;
    let signed = edge.sign_unsigned(&mut transaction, CHUNK_MAX_ARTIFACTS).await?;
    transaction.commit().await?;
    Ok(signed)
}
