//! One-time tokens of edges, and the line that enrols one.

use headwater_edge_wire::ids::EdgeId as WireEdge;
use headwater_edge_wire::secret::SecretArray;
use headwater_edge_wire::token::{AuthorityFingerprint, BootstrapToken};
use headwater_events::ids::EdgeId;
use zeroize::Zeroizing;

use super::{EdgeError, keys};
use crate::app::App;
use crate::command::Aside;
use crate::secret::Secret;

/// How long a token is good.
pub const TOKEN_LIFE_SECONDS: u32 = 3_600;

/// A token that was just drawn. It is shown once.
pub struct Drawn {
    /// Its text.
    pub text: Secret,
    /// What stands of it beside the log.
    pub aside: Aside,
}

/// Draws a token for an edge.
///
/// # Errors
/// When there is no authority, and none can be made.
pub async fn draw(app: &App, edge: EdgeId) -> Result<Drawn, EdgeError> {
    let certificate = keys::authority_certificate(app).await?;
    let random = Zeroizing::new(rand::random::<[u8; 32]>());
    let secret = SecretArray::from_slice(random.as_ref()).ok_or(EdgeError::Odd("token"))?;
    let token = BootstrapToken::new(secret, AuthorityFingerprint::of(&certificate));
    let hash = token.stored(WireEdge::from_uuid(edge.as_uuid()));
    let text = token.to_text();
    let text = Secret::new(text.expose_str().ok_or(EdgeError::Odd("token"))?.to_owned());
    Ok(Drawn { text, aside: Aside::EdgeToken { edge, hash, seconds: TOKEN_LIFE_SECONDS } })
}

/// The one line that enrols an edge. The token stands in the environment, where no list of processes shows it.
pub fn command(app: &App, edge: EdgeId, token: &Secret) -> Secret {
    let control = public_url(app).unwrap_or_else(|| "https://CONTROL:PORT".to_owned());
    let token = token.expose();
    Secret::new(format!(
        "HEADWATER_EDGE_TOKEN={token} headwater-edge enroll --control {control} --edge {edge}"
    ))
}

/// How edges reach the listener.
pub fn public_url(app: &App) -> Option<String> {
    let edge_control = &app.config.edge_control;
    let listens = || edge_control.listen.map(|address| format!("https://{address}"));
    edge_control.public_url.as_ref().map(|url| url.as_str().to_owned()).or_else(listens)
}
