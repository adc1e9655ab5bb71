//! Bodies of webhooks. A secret is shown where it is made and nowhere else.

use headwater_events::dns::DomainName;
use headwater_events::event::Labels;
use headwater_events::ids::{Position, TenantId};
use headwater_events::scope::{ALL_DOMAINS, Domains};
use headwater_events::time::Timestamp;
use headwater_events::webhook::{DOMAINS_MAX_COUNT, WebhookPatch, WebhookSettings, settings_faults};
use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeSet;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{labels, labels_patch};
use crate::history::query::Cursor;
use crate::http::body::{Fields, FromBody};
use crate::query::webhooks::{FailingWebhook, StoredDelivery, StoredWebhook};
use crate::secret::Secret;

/// A webhook that is asked for.
#[derive(Debug, ToSchema)]
pub struct NewWebhook {
    /// What it is called.
    #[schema(example = "to the inventory")]
    pub name: String,
    /// Where it is sent to: https, http only where the administrators allow it. It is shown to whoever may read the
    /// webhook, so it should hold no secret.
    #[schema(example = "https://hooks.example.net/headwater")]
    pub url: String,
    /// Beginnings of the types that are sent; none: all of them.
    #[schema(required = false, example = json!(["rrset.", "domain.created"]))]
    pub types: Vec<String>,
    /// Names of the domains whose events are sent; `["*"]`: all of them, and what concerns no domain.
    #[schema(required = false, value_type = Vec<String>, example = json!(["*"]))]
    pub domains: Domains,
    /// Labels.
    #[schema(required = false)]
    pub labels: Labels,
    /// What it is for.
    pub description: Option<String>,
    /// Whether anything is sent (true).
    #[schema(required = false, example = true)]
    pub enabled: bool,
    /// Whose it is; needed only where the caller is in several tenants.
    #[schema(value_type = Option<Uuid>)]
    pub tenant: Option<TenantId>,
    /// It is the platform's own and gets every event (administrators).
    #[schema(required = false, example = false)]
    pub platform: bool,
}

impl NewWebhook {
    /// What is said of it.
    pub fn settings(self) -> WebhookSettings {
        let Self { name, url, types, domains, labels, description, .. } = self;
        WebhookSettings { name, url, types, domains, labels, description }
    }
}

impl FromBody for NewWebhook {
    fn read(fields: &mut Fields) -> Option<Self> {
        let name = fields.required_text("name");
        let url = fields.required_text("url");
        let types = texts(fields, "types").unwrap_or_default();
        let domains = domains(fields).unwrap_or(Domains::All);
        let labels = labels(fields);
        let description = fields.text("description");
        let enabled = !fields.has("enabled") || fields.flag("enabled");
        let (tenant, platform) = (fields.id("tenant"), fields.flag("platform"));
        if platform && tenant.is_some() {
            fields.fault("platform", "contradicts", "it belongs to a tenant or to the platform");
        }
        let settings = WebhookSettings {
            name: name.clone().unwrap_or_else(|| "-".to_owned()),
            url: url.clone().unwrap_or_default(),
            types: types.clone(),
            domains: domains.clone(),
            labels: labels.clone(),
            description: description.clone(),
        };
        fields.also(|| settings_faults(&settings));
        Some(Self { name: name?, url: url?, types, domains, labels, description, enabled, tenant, platform })
    }
}

fn texts(fields: &mut Fields, key: &str) -> Option<Vec<String>> {
    fields.texts(key).map(|texts| texts.into_iter().flatten().collect())
}

/// `["*"]`, or names.
fn domains(fields: &mut Fields) -> Option<Domains> {
    let texts = fields.texts("domains")?;
    if texts.len() > DOMAINS_MAX_COUNT {
        fields.fault("domains", "too_many", format!("at most {DOMAINS_MAX_COUNT} domains"));
        return None;
    }
    let (mut names, mut wrong) = (BTreeSet::new(), false);
    for (index, text) in texts.into_iter().enumerate() {
        match text.as_deref().map(|text| (text, DomainName::parse(text))) {
            Some((ALL_DOMAINS, _)) => return Some(Domains::All),
            Some((_, Ok(name))) => drop(names.insert(name)),
            Some((_, Err(fault))) => {
                fields.fault(&format!("domains/{index}"), fault.code.as_str(), fault.detail);
                wrong = true;
            }
            None => wrong = true,
        }
    }
    // What is left of them is not what was meant.
    if wrong {
        return None;
    }
    Some(Domains::Named(names))
}

/// What `PATCH` says of a webhook, as it is described.
#[derive(ToSchema)]
#[allow(dead_code)] // the documentation of what `WebhookChange` reads
pub struct PatchWebhook {
    /// What it is called.
    #[schema(example = "to the inventory")]
    name: Option<String>,
    /// Where it is sent to.
    #[schema(example = "https://hooks.example.net/headwater")]
    url: Option<String>,
    /// Beginnings of types, all of them; none: all types.
    #[schema(example = json!(["rrset."]))]
    types: Option<Vec<String>>,
    /// Names of domains, all of them, or `["*"]`.
    #[schema(example = json!(["example.com"]))]
    domains: Option<Vec<String>>,
    /// Labels to set; null removes one, or all.
    labels: Option<std::collections::BTreeMap<String, Option<String>>>,
    /// What it is for; null removes it.
    description: Option<String>,
    /// Whether anything is sent. Enabled again it gets what happens from then on; a replay gives what was missed.
    enabled: Option<bool>,
    /// Give it another secret, which the answer shows; the one before counts beside it for 24 hours. It stands alone.
    rotate_secret: Option<bool>,
}

/// What is to change of a webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WebhookChange {
    /// What is said of it.
    Patch(Box<WebhookPatch>),
    /// Its secret.
    RotateSecret,
}

impl FromBody for WebhookChange {
    fn read(fields: &mut Fields) -> Option<Self> {
        let rotate = fields.flag("rotate_secret");
        let description = match fields.take_nullable("description") {
            None => None,
            Some(Value::Null) => Some(None),
            Some(Value::String(text)) => Some(Some(text)),
            Some(_) => {
                fields.fault("description", "invalid_type", "description must be a text or null");
                None
            }
        };
        let patch = WebhookPatch {
            name: fields.text("name"),
            url: fields.text("url"),
            types: texts(fields, "types"),
            domains: domains(fields),
            labels: labels_patch(fields),
            description,
            enabled: fields.has("enabled").then(|| fields.flag("enabled")),
        };
        if !rotate {
            return Some(Self::Patch(Box::new(patch)));
        }
        if patch != WebhookPatch::default() {
            fields.fault("rotate_secret", "stands_alone", "a secret is changed by a request of its own");
        }
        Some(Self::RotateSecret)
    }
}

/// From where on events are sent again.
#[derive(Debug, ToSchema)]
pub struct Replay {
    /// After this position, or event id (`<log>.<position>`).
    #[schema(value_type = i64, example = 1042)]
    pub after: Cursor,
}

impl FromBody for Replay {
    fn read(fields: &mut Fields) -> Option<Self> {
        let after = match fields.take("after") {
            None => {
                fields.missing("after");
                return None;
            }
            Some(Value::Number(number)) => number
                .as_i64()
                .filter(|position| *position >= 0)
                .map(|position| Cursor { log: None, position: Position::new(position) }),
            Some(Value::String(text)) => text.parse().ok(),
            Some(_) => None,
        };
        if after.is_none() {
            fields.fault("after", "invalid_position", "a position, or the id of an event as it was received");
        }
        Some(Self { after: after? })
    }
}

/// A webhook.
#[derive(Debug, Serialize, ToSchema)]
pub struct Webhook {
    /// Its id.
    id: Uuid,
    /// Whose it is; null: the platform's own.
    tenant: Option<Uuid>,
    /// What it is called.
    name: String,
    /// Where it is sent to.
    #[schema(example = "https://hooks.example.net/headwater")]
    url: String,
    /// Beginnings of the types that are sent; none: all of them.
    #[schema(example = json!(["rrset."]))]
    types: Vec<String>,
    /// The domains whose events are sent; `["*"]`: all of them, and what concerns no domain.
    #[schema(example = json!(["*"]))]
    domains: Vec<String>,
    /// Labels.
    labels: Labels,
    /// What it is for.
    description: Option<String>,
    /// Whether anything is sent.
    enabled: bool,
    /// Why not, if it is not.
    disabled: Option<Disabled>,
    /// Counts its secrets, from 1.
    secret_version: u32,
    /// Until when the secret before counts beside the newest; null when it does not.
    #[schema(value_type = Option<String>, format = DateTime)]
    previous_secret_until: Option<Timestamp>,
    /// Everything up to here was dealt with; null until the first look.
    position: Option<i64>,
    /// The event that could not be delivered and is tried again; those after it wait.
    trying: Option<Trying>,
    /// Since when attempts fail; null when the last one succeeded.
    #[schema(value_type = Option<String>, format = DateTime)]
    failing_since: Option<Timestamp>,
    /// Why the last attempt failed.
    last_error: Option<String>,
    /// Events in a row that were given up; after three the webhook is disabled.
    failed_in_row: i32,
    /// When an event was delivered last.
    #[schema(value_type = Option<String>, format = DateTime)]
    delivered_at: Option<Timestamp>,
    /// Its revision.
    revision: i64,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

/// Why nothing is sent.
#[derive(Debug, Serialize, ToSchema)]
struct Disabled {
    /// `asked`, `gone` (the receiver answered 410) or `failing` (several events in a row could not be delivered).
    #[schema(example = "gone")]
    reason: String,
    /// For people.
    detail: Option<String>,
}

/// An event that is tried again.
#[derive(Debug, Serialize, ToSchema)]
struct Trying {
    /// Its place in the log.
    position: i64,
    /// How often it was tried.
    attempts: i32,
    /// When it is tried again.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_at: Option<Timestamp>,
}

impl Webhook {
    /// As it is, at a time.
    pub fn new(stored: StoredWebhook, now: Timestamp) -> Self {
        let progress = stored.progress.as_ref();
        let trying = progress.and_then(|progress| progress.trying);
        Self {
            id: stored.id.as_uuid(),
            tenant: stored.owner.map(TenantId::as_uuid),
            name: stored.name,
            url: stored.url,
            types: stored.types,
            domains: stored.domains.unwrap_or_else(|| vec![ALL_DOMAINS.to_owned()]),
            labels: stored.labels,
            description: stored.description,
            enabled: stored.enabled,
            disabled: stored.disabled.map(|(reason, detail)| Disabled { reason, detail }),
            secret_version: stored.secret_version,
            previous_secret_until: stored.previous_until.filter(|until| now < *until),
            position: progress.map(|progress| progress.position.get()),
            trying: trying.map(|(position, attempts, next_at)| Trying {
                position: position.get(),
                attempts,
                next_at,
            }),
            failing_since: progress.and_then(|progress| progress.failing_since),
            last_error: progress.and_then(|progress| progress.last_error.clone()),
            failed_in_row: progress.map_or(0, |progress| progress.failed_in_row),
            delivered_at: progress.and_then(|progress| progress.delivered_at),
            revision: stored.revision.get(),
            created_at: stored.created_at,
        }
    }
}

/// A webhook with a new secret, which is shown once, and never in a replay.
#[derive(Serialize, ToSchema)]
pub struct WebhookWithSecret {
    /// What is known of it.
    #[serde(flatten)]
    known: Webhook,
    /// What messages are signed with; null where none was made, and in a replay.
    #[schema(example = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=")]
    secret: Option<String>,
}

impl WebhookWithSecret {
    /// Shows a new secret. It leaves the program here and nowhere else.
    pub fn new(known: Webhook, secret: Option<&Secret>) -> Self {
        Self { known, secret: secret.map(|secret| secret.expose().to_owned()) }
    }
}

/// What became of one event.
#[derive(Debug, Serialize, ToSchema)]
pub struct Delivery {
    /// Its place among the deliveries.
    id: i64,
    /// The event's place in the log.
    position: i64,
    /// The event.
    event: Uuid,
    /// What the receiver is told as `webhook-id`: the same in every attempt.
    #[schema(example = "msg_01982f6e7b4c7d309d0a3f1f0f3f5f10_01982f6e7b4c7d309d0a3f1f0f3f5f11")]
    message: String,
    /// Its type.
    #[schema(example = "rrset.replaced")]
    r#type: String,
    /// The domain concerned.
    domain: Option<String>,
    /// `delivered`, `retrying`, `failed` (given up) or `abandoned` (the webhook went on from elsewhere).
    #[schema(example = "delivered")]
    state: String,
    /// How often it was tried.
    attempts: i32,
    /// The status of the last answer; null when there was none.
    #[schema(example = 200)]
    status: Option<i32>,
    /// How long the last attempt took, in milliseconds.
    ms: i32,
    /// Why the last attempt failed.
    error: Option<String>,
    /// The beginning of the last answer, 1 KiB at most, if it was no success.
    response: Option<String>,
    /// The end of the first attempt.
    #[schema(value_type = String, format = DateTime)]
    first_at: Timestamp,
    /// The end of the last attempt.
    #[schema(value_type = String, format = DateTime)]
    last_at: Timestamp,
    /// When it is tried again.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_at: Option<Timestamp>,
}

impl Delivery {
    /// One of a webhook.
    pub fn new(stored: StoredDelivery, message: String) -> Self {
        let StoredDelivery { id, position, event, event_type, domain, state, attempts, .. } = stored;
        let StoredDelivery { status, ms, error, response, first_at, last_at, next_at, .. } = stored;
        Self {
            id,
            position: position.get(),
            event,
            message,
            r#type: event_type,
            domain,
            state,
            attempts,
            status,
            ms,
            error,
            response,
            first_at,
            last_at,
            next_at,
        }
    }
}

/// A webhook that has failed for more than a minute.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct WebhookStatus {
    /// Its id.
    id: Uuid,
    /// Whose; null: the platform's own.
    pub tenant: Option<Uuid>,
    /// What it is called.
    pub name: String,
    /// How often the event was tried that it is at.
    attempts: i32,
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    pub since: Timestamp,
    /// When it is tried again.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_at: Option<Timestamp>,
    /// Why.
    pub error: Option<String>,
}

impl From<FailingWebhook> for WebhookStatus {
    fn from(failing: FailingWebhook) -> Self {
        let FailingWebhook { id, tenant, name, attempts, since, next_at, error } = failing;
        Self { id, tenant, name, attempts, since, next_at, error }
    }
}
