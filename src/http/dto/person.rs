//! Bodies of people who log in, and of what was seen of them. What holds a password is never shown.

use headwater_events::admin::{NAME_MAX_BYTES, TenantPatch, name_faults};
use headwater_events::domain::{LabelsPatch, tag_faults};
use headwater_events::event::Labels;
use headwater_events::time::Timestamp;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;
use uuid::Uuid;

use super::account::User;
use super::labels_patch;
use crate::http::body::{Fields, FromBody};
use crate::mail::MailAddress;
use crate::people::password;
use crate::people::session::CsrfToken;
use crate::query::access::StoredAccess;
use crate::query::accounts::StoredUser;
use crate::secret::Secret;

/// Who wants to log in.
#[derive(ToSchema)]
pub struct Login {
    /// The mail address.
    #[schema(value_type = String, example = "ann@example.com")]
    pub email: MailAddress,
    /// The password.
    #[schema(value_type = String)]
    pub password: Secret,
}

impl FromBody for Login {
    fn read(fields: &mut Fields) -> Option<Self> {
        if !fields.has("email") {
            fields.missing("email");
        }
        let email = fields.parsed("email", |text| text.parse().map_err(|detail| ("invalid_email", detail)));
        let password = fields.required_text("password").map(Secret::new);
        Some(Self { email: email?, password: password? })
    }
}

/// A session that has begun. Its secret is in the cookie alone.
#[derive(Serialize, ToSchema)]
pub struct LoggedIn {
    /// Who it is.
    user: User,
    /// What unsafe requests of the session show in `X-CSRF-Token`.
    csrf_token: String,
    /// When the session ends, whatever happens.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
}

impl LoggedIn {
    /// A session of a user.
    pub fn new(user: StoredUser, csrf: &CsrfToken, expires_at: Timestamp) -> Self {
        Self { user: user.into(), csrf_token: csrf.expose().to_owned(), expires_at }
    }
}

/// Another password.
#[derive(ToSchema)]
pub struct PasswordChange {
    /// The one that counts now.
    #[schema(value_type = String)]
    pub current: Secret,
    /// The one that counts from then on: 12 to 256 characters.
    #[schema(value_type = String)]
    pub new: Secret,
}

impl FromBody for PasswordChange {
    const HAS_SECRET: bool = true;

    fn read(fields: &mut Fields) -> Option<Self> {
        let current = fields.required_text("current").map(Secret::new);
        let new = wanted(fields, "new", true);
        Some(Self { current: current?, new: new? })
    }
}

/// A password that somebody wants to have, with every fault of it.
fn wanted(fields: &mut Fields, key: &str, required: bool) -> Option<Secret> {
    let text = if required { fields.required_text(key) } else { fields.text(key) };
    let password = text.map(Secret::new)?;
    fields.faults(password::faults(&format!("/{key}"), &password));
    Some(password)
}

/// A name that may be taken away.
fn name(fields: &mut Fields) -> Option<Option<String>> {
    match fields.take_nullable("name")? {
        Value::Null => Some(None),
        Value::String(name) => {
            fields.faults(name_faults(&name, NAME_MAX_BYTES));
            Some(Some(name))
        }
        _ => {
            fields.fault("name", "invalid_type", "name must be a text or null");
            None
        }
    }
}

/// What one says of oneself.
#[derive(ToSchema)]
pub struct MePatch {
    /// What one is called; null removes it.
    #[schema(value_type = Option<String>)]
    pub name: Option<Option<String>>,
}

impl FromBody for MePatch {
    fn read(fields: &mut Fields) -> Option<Self> {
        Some(Self { name: name(fields) })
    }
}

/// What is to change of a user. A password stands alone.
#[derive(ToSchema)]
pub struct PatchUser {
    /// Its mail address, unique.
    #[schema(value_type = Option<String>, example = "ann@example.com")]
    pub email: Option<MailAddress>,
    /// What it is called; null removes it.
    #[schema(value_type = Option<String>)]
    pub name: Option<Option<String>>,
    /// Administrator of the platform.
    pub admin: Option<bool>,
    /// Another password, 12 to 256 characters: every session of the user ends.
    #[schema(value_type = Option<String>)]
    pub password: Option<Secret>,
}

impl FromBody for PatchUser {
    const HAS_SECRET: bool = true;

    fn read(fields: &mut Fields) -> Option<Self> {
        let email = fields.parsed("email", |text| text.parse().map_err(|detail| ("invalid_email", detail)));
        let name = name(fields);
        let admin = fields.has("admin").then(|| fields.flag("admin"));
        let password = wanted(fields, "password", false);
        if password.is_some() && (email.is_some() || name.is_some() || admin.is_some()) {
            fields.fault("password", "stands_alone", "a password is changed by a request of its own");
        }
        Some(Self { email, name, admin, password })
    }
}

/// What `PATCH` says of a tenant, as it is described.
#[derive(ToSchema)]
#[allow(dead_code)] // the documentation of what `TenantPatch` reads
pub struct PatchTenant {
    /// Its name, unique.
    name: Option<String>,
    /// Labels to set; null removes one, or all.
    labels: Option<std::collections::BTreeMap<String, Option<String>>>,
    /// The operator's own number for it; null removes it.
    external_id: Option<String>,
}

impl FromBody for TenantPatch {
    fn read(fields: &mut Fields) -> Option<Self> {
        let name = fields.text("name");
        let labels = labels_patch(fields);
        let external_id = match fields.take_nullable("external_id") {
            None => None,
            Some(Value::Null) => Some(None),
            Some(Value::String(text)) => Some(Some(text)),
            Some(_) => {
                fields.fault("external_id", "invalid_type", "external_id must be a text or null");
                None
            }
        };
        let set = match &labels {
            Some(LabelsPatch::Merge(entries)) => {
                entries.iter().filter_map(|(key, value)| Some((key.clone(), value.clone()?))).collect()
            }
            _ => Labels::new(),
        };
        fields.also(|| {
            let mut faults = tag_faults(&set, external_id.as_ref().and_then(Option::as_deref));
            faults.extend(name.iter().flat_map(|name| name_faults(name, NAME_MAX_BYTES)));
            faults
        });
        Some(Self { name, labels, external_id })
    }
}

/// One caller, in one minute, for one reason.
#[derive(Debug, Serialize, ToSchema)]
pub struct AccessEntry {
    /// Its place.
    id: i64,
    /// `login`, `login_failed`, `logout`, `denied` (401 with something that could be a token) or `forbidden` (403).
    kind: String,
    /// Who, where that is known.
    user: Option<Uuid>,
    /// Its mail address; null when it was erased.
    email: Option<String>,
    /// With which token.
    token: Option<Uuid>,
    /// From which address; null in the line of all for whom there was no line of their own.
    ip: Option<String>,
    /// With which program, the first time.
    agent: Option<String>,
    /// On which route, the first time.
    route: Option<String>,
    /// How often in that minute.
    times: i64,
    /// The first time.
    #[schema(value_type = String, format = DateTime)]
    first_at: Timestamp,
    /// The last time.
    #[schema(value_type = String, format = DateTime)]
    last_at: Timestamp,
}

impl From<StoredAccess> for AccessEntry {
    fn from(stored: StoredAccess) -> Self {
        let StoredAccess { id, kind, user, email, token, ip, agent, route, times, first_at, last_at } =
            stored;
        Self { id, kind, user, email, token, ip, agent, route, times, first_at, last_at }
    }
}
