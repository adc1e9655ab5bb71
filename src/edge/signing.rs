//! Who signs what is published to edges, as this process knows it: the key is opened once. While it cannot be, what is
//! published stays unsigned, no edge is told of it, and it is signed as soon as the key is there.

use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::sign::{PublicKey, Signature};
use headwater_projections::edge::{Edge, Sign};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;

use super::{EdgeError, Signer, signer};
use crate::app::App;

/// How often it is looked for what nobody has signed.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Artifacts that are signed together.
const CHUNK_MAX_ARTIFACTS: i64 = 500;

/// The platform's signer, once this process has it.
#[derive(Clone, Default)]
pub struct PlatformSigner(Arc<OnceCell<Signer>>);

impl std::fmt::Debug for PlatformSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PlatformSigner")
    }
}

impl PlatformSigner {
    /// Opens the key, where that was not done yet.
    ///
    /// # Errors
    /// When the key file cannot be used, or the database does not answer.
    pub async fn open(&self, app: &App) -> Result<(), EdgeError> {
        self.0.get_or_try_init(|| signer(app)).await.map(|_| ())
    }
}

impl PlatformSigner {
    /// Signs where every stream of the log ends.
    ///
    /// # Errors
    /// When the key is not open, or the library fails.
    pub fn sign_heads(&self, root: &[u8; 32]) -> Result<Signature, EdgeError> {
        Ok(self.opened()?.sign_heads(root)?)
    }

    /// The public half of the key that signs.
    ///
    /// # Errors
    /// When the key is not open, or the library fails.
    pub fn public(&self) -> Result<PublicKey, EdgeError> {
        Ok(self.opened()?.public()?)
    }

    fn opened(&self) -> Result<&Signer, EdgeError> {
        self.0.get().ok_or(EdgeError::Odd("signing key"))
    }
}

impl Sign for PlatformSigner {
    fn sign(&self, checksum: &Checksum) -> Result<Option<Signature>, sqlx::Error> {
        let Some(signer) = self.0.get() else { return Ok(None) };
        signer.sign_artifact(checksum).map(Some).map_err(|error| sqlx::Error::Encode(error.into()))
    }
}

/// The projection `edge` as this process runs it.
pub async fn projection(app: &App) -> Edge {
    if let Err(error) = app.signer.open(app).await {
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
    app.signer.open(app).await?;
    let mut transaction = app.pool.begin().await?;
    let signed = edge.sign_unsigned(&mut transaction, CHUNK_MAX_ARTIFACTS).await?;
    transaction.commit().await?;
    Ok(signed)
}
