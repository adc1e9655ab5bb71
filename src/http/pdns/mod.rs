//! The HTTP API of PowerDNS in front of our own commands, for clients that speak it: the same callers, policy, bounds,
//! limits and audit, in the shapes, errors and media types of PowerDNS 4.9.
//!
//! What must hold: whatever is changed here is a command that our own API has too, one revision for each request; a zone
//! that the caller may not know of does not exist here either; what we do not carry is refused by a text that says so.

pub mod auth;
pub mod error;
pub mod patch;

mod apex;
mod change;
mod dto;
mod fixed;
mod search;
mod zones;

pub use dto::{ACCOUNT, DEFAULT_KIND, KIND};
use utoipa_axum::router::OpenApiRouter;

use crate::app::App;

/// The base of what clients ask.
pub const BASE: &str = "/api/v1";
/// The version that clients are told: they choose by it what they may ask. Single values can be changed from this one on.
pub const VERSION: &str = "4.9.12";

/// Whether a path is one of PowerDNS's API.
pub fn is_here(path: &str) -> bool {
    let below = path.strip_prefix(BASE);
    path == "/api" || below.is_some_and(|below| below.is_empty() || below.starts_with('/'))
}

/// Every route, for a caller that has shown who it is. They are described by PowerDNS, not by our description.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .merge(fixed::routes())
        .merge(zones::routes())
        .merge(change::routes())
        .merge(patch::routes())
        .merge(search::routes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_own_paths_are_here() {
        for path in ["/api", "/api/v1", "/api/v1/", "/api/v1/servers/localhost/zones/a."] {
            assert!(is_here(path), "{path}");
        }
        for path in ["/", "/api/", "/api/v10", "/api/domains", "/apiv1", "/v1"] {
            assert!(!is_here(path), "{path}");
        }
    }
}
