//! Who a request is from. Everything behind `/api` needs a caller; a token is
//! looked up by the hash of what is shown.

use crate::http::Problem;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use headwater_events::actor::Caller;
use headwater_events::time::Timestamp;

/// A caller that has shown a valid token. Made only by its extractor.
#[derive(Debug, Clone)]
pub struct Authenticated {
    /// Who, with the rights held now.
    pub caller: Caller,
    /// When the token stops working.
    pub expires_at: Option<Timestamp>,
}

impl<S: Send + Sync> FromRequestParts<S> for Authenticated {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        // Put there by the layer; a route outside of it has no callers.
        let absent = || Problem::new(StatusCode::UNAUTHORIZED, "unauthenticated", "show a token");
        parts.extensions.get::<Self>().cloned().ok_or_else(absent)
    }
}
