//! Who a request is from. Everything behind `/api` needs a caller; a token is
//! looked up by the hash of what is shown.

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
