//! What an event of a webhook changes in `desired`, and the end of a tenant, whose webhooks end with it.

use super::change::Folded;
use headwater_events::event::Event;
use serde_json::{Value, json};

/// The change, as `desired_apply_webhooks` takes it.
pub(super) fn change(e: &Folded<'_>) -> Option<Value> {
    let (id, revision) = (e.stream.id, e.revision);
    Some(match e.event {
        Event::WebhookCreated(created) => json!({
            "do": "webhook_put", "id": id, "tenant": e.tenant, "name": created.settings.name,
            "url": created.settings.url, "types": created.settings.types, "domains": created.settings.domains,
            "labels": created.settings.labels, "description": created.settings.description,
            "enabled": created.enabled, "revision": revision, "at": e.at,
        }),
        Event::WebhookUpdated(change) => json!({
            "do": "webhook_update", "id": id, "name": change.after.name, "url": change.after.url,
            "types": change.after.types, "domains": change.after.domains, "labels": change.after.labels,
            "description": change.after.description, "revision": revision,
        }),
        Event::WebhookEnabled(_) => {
            json!({"do": "webhook_enabled", "id": id, "enabled": true, "revision": revision})
        }
        Event::WebhookDisabled(disabled) => json!({
            "do": "webhook_enabled", "id": id, "enabled": false, "reason": disabled.reason.name(),
            "detail": disabled.detail, "revision": revision,
        }),
        Event::WebhookSecretRotated(rotated) => json!({
            "do": "webhook_secret_version", "id": id, "version": rotated.version, "until": rotated.until,
            "revision": revision,
        }),
        Event::WebhookReplayed(_) => json!({"do": "webhook_touch", "id": id, "revision": revision}),
        Event::WebhookDeleted(_) => json!({"do": "webhook_delete", "id": id}),
        Event::TenantDeleted(_) => json!({"do": "webhook_tenant_gone", "id": id}),
        _ => return None,
    })
}
