//! What changes of users and tenants that are there, and what limits a token.

use super::change::Folded;
use headwater_events::event::Event;
use headwater_events::manager::Managing;
use headwater_events::people::TokenLimits;
use serde_json::{Value, json};

/// What one event changes of a user or a tenant.
pub(super) fn change(e: &Folded<'_>) -> Option<Value> {
    let id = e.stream.id;
    Some(match e.event {
        Event::UserUpdated(change) => {
            json!({"do": "user_update", "id": id, "admin": change.after.admin, "revision": e.revision})
        }
        Event::UserEnabled(_) => {
            json!({"do": "user_enabled", "id": id, "enabled": true, "revision": e.revision})
        }
        Event::UserDisabled(_) => {
            json!({"do": "user_enabled", "id": id, "enabled": false, "revision": e.revision})
        }
        Event::UserDeleted(_) => json!({"do": "user_delete", "id": id, "at": e.at}),
        Event::TenantUpdated(change) => json!({
            "do": "tenant_update", "id": id, "tenant": id, "name": change.after.name, "labels": change.after.labels,
            "external_id": change.after.external_id, "revision": e.revision,
        }),
        Event::TenantDeleted(_) => json!({"do": "tenant_delete", "id": id, "tenant": id}),
        _ => return None,
    })
}

/// What an event changes besides what it always has.
pub(super) fn further(e: &Folded<'_>) -> Option<Value> {
    match e.event {
        Event::TokenCreated(token) if token.limits != TokenLimits::default() => Some(json!({
            "do": "user_token_limits", "id": token.token, "max_unused_days": token.limits.max_unused_days,
            "networks": token.limits.networks,
        })),
        _ => None,
    }
}

/// Whose tool a token belongs to, where that is anybody's.
pub(super) fn managing(e: &Folded<'_>) -> Option<Value> {
    match e.event {
        Event::TokenCreated(token) if token.managing != Managing::default() => Some(json!({
            "do": "token_managing", "id": token.token, "manager": token.managing.manager,
            "view": token.managing.view,
        })),
        _ => None,
    }
}
