//! Decisions about one webhook. Whether its URL may be sent to is judged at the door and again at every connection, by
//! settings that no decision knows.

use super::{
    DESCRIPTION_MAX_BYTES, DOMAINS_MAX_COUNT, DisableReason, REPLAY_MAX_EVENTS, TYPE_MAX_CHARS,
    TYPES_MAX_COUNT, URL_MAX_BYTES, WEBHOOKS_MAX_COUNT, WebhookCommand, WebhookDeleted, WebhookDisabled,
    WebhookPatch, WebhookReplayed, WebhookSecretRotated, WebhookSettings, WebhookState, WebhookView,
};
use crate::admin::{NAME_MAX_BYTES, name_faults};
use crate::domain::tag_faults;
use crate::event::{Change, Event, Nothing};
use crate::ids::{Position, TenantId, WebhookId};
use crate::reject::{Fault, Reject};
use crate::scope::Domains;

/// Decides one command; no events: nothing changes.
///
/// # Errors
/// Why not, with every fault of the input.
pub fn decide(
    id: WebhookId,
    owner: Option<TenantId>,
    view: &WebhookView,
    command: &WebhookCommand,
) -> Result<Vec<Event>, Reject> {
    if let WebhookCommand::Create(created) = command {
        if let Some(tenant) = owner.filter(|_| !view.owner_exists) {
            return Err(Reject::NotFound(format!("tenant {tenant}")));
        }
        refuse(settings_faults(&created.settings))?;
        if view.count >= WEBHOOKS_MAX_COUNT {
            let detail = format!("there are {WEBHOOKS_MAX_COUNT} webhooks already: delete one first");
            return Err(Reject::Conflict { code: "too_many_webhooks", detail });
        }
        return Ok(vec![Event::WebhookCreated(created.clone())]);
    }
    // The policy was asked about the owner that the command names.
    let Some(webhook) = view.webhook.as_ref().filter(|webhook| webhook.owner == owner) else {
        return Err(Reject::NotFound(format!("webhook {id}")));
    };
    Ok(match command {
        WebhookCommand::Create(_) => Vec::new(),
        WebhookCommand::Update(patch) => update(webhook, patch)?,
        WebhookCommand::RotateSecret { version, until } => {
            // It is sealed for one version: where somebody was faster, it has to be sealed anew.
            if *version != webhook.secret_version.saturating_add(1) {
                let detail = "its secret was changed at the same time: try again".to_owned();
                return Err(Reject::Conflict { code: "secret_moved", detail });
            }
            vec![Event::WebhookSecretRotated(WebhookSecretRotated { version: *version, until: *until })]
        }
        WebhookCommand::Replay { after } => vec![replay(webhook, view, *after)?],
        WebhookCommand::Disable(_) if !webhook.enabled => Vec::new(),
        WebhookCommand::Disable(disabled) => vec![Event::WebhookDisabled(disabled.clone())],
        WebhookCommand::Delete => {
            vec![Event::WebhookDeleted(WebhookDeleted { name: webhook.settings.name.clone() })]
        }
    })
}

fn refuse(faults: Vec<Fault>) -> Result<(), Reject> {
    if faults.is_empty() { Ok(()) } else { Err(Reject::Invalid(faults)) }
}

/// Every fault of what is said of a webhook, but for where its URL leads.
pub fn settings_faults(settings: &WebhookSettings) -> Vec<Fault> {
    let mut faults = name_faults(&settings.name, NAME_MAX_BYTES);
    faults.extend(tag_faults(&settings.labels, None));
    if settings.url.len() > URL_MAX_BYTES {
        faults.push(Fault::at("/url", "too_long", format!("at most {URL_MAX_BYTES} octets")));
    }
    if settings.types.len() > TYPES_MAX_COUNT {
        faults.push(Fault::at("/types", "too_many", format!("at most {TYPES_MAX_COUNT} types")));
    }
    for (index, text) in settings.types.iter().enumerate().take(TYPES_MAX_COUNT) {
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'_';
        if text.is_empty() || text.len() > TYPE_MAX_CHARS || !text.bytes().all(fits) {
            let detail = "the beginning of an event's type, such as rrset. or domain.created";
            faults.push(Fault::at(format!("/types/{index}"), "invalid_type_filter", detail));
        }
    }
    if matches!(&settings.domains, Domains::Named(names) if names.is_empty() || names.len() > DOMAINS_MAX_COUNT)
    {
        let detail = format!("1 to {DOMAINS_MAX_COUNT} domains, or [\"*\"] for all");
        faults.push(Fault::at("/domains", "out_of_range", detail));
    }
    let is_odd = |text: &String| {
        text.len() > DESCRIPTION_MAX_BYTES || text.chars().any(|c| c.is_control() && c != '\n')
    };
    if settings.description.as_ref().is_some_and(is_odd) {
        let detail = format!("at most {DESCRIPTION_MAX_BYTES} octets without control characters");
        faults.push(Fault::at("/description", "invalid_description", detail));
    }
    faults
}

fn update(webhook: &WebhookState, patch: &WebhookPatch) -> Result<Vec<Event>, Reject> {
    let before = webhook.settings.clone();
    let mut after = before.clone();
    if let Some(name) = &patch.name {
        after.name.clone_from(name);
    }
    if let Some(url) = &patch.url {
        after.url.clone_from(url);
    }
    if let Some(types) = &patch.types {
        after.types.clone_from(types);
    }
    if let Some(domains) = &patch.domains {
        after.domains.clone_from(domains);
    }
    if let Some(description) = &patch.description {
        after.description.clone_from(description);
    }
    if let Some(labels) = &patch.labels {
        labels.apply(&mut after.labels);
    }
    refuse(settings_faults(&after))?;
    let mut events = Vec::new();
    if before != after {
        events.push(Event::WebhookUpdated(Box::new(Change { before, after })));
    }
    match patch.enabled.filter(|enabled| *enabled != webhook.enabled) {
        Some(true) => events.push(Event::WebhookEnabled(Nothing {})),
        Some(false) => {
            let reason = DisableReason::Asked;
            events.push(Event::WebhookDisabled(WebhookDisabled { reason, position: None, detail: None }));
        }
        None => {}
    }
    Ok(events)
}

fn replay(webhook: &WebhookState, view: &WebhookView, after: Position) -> Result<Event, Reject> {
    let fault = |code, detail: String| Err(Reject::Invalid(vec![Fault::at("/after", code, detail)]));
    if !webhook.enabled {
        let detail = "the webhook is disabled: enable it first".to_owned();
        return Err(Reject::Conflict { code: "webhook_disabled", detail });
    }
    if after < view.floor || after > view.head {
        let detail = format!("the log has what stands after {} up to {}", view.floor, view.head);
        return fault("out_of_range", detail);
    }
    if view.behind > REPLAY_MAX_EVENTS {
        let detail =
            format!("more than {REPLAY_MAX_EVENTS} events stand after it: begin later, or read /api/events");
        return fault("too_far", detail);
    }
    Ok(Event::WebhookReplayed(WebhookReplayed { after }))
}
