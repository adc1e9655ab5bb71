//! Bodies of tenants, users and tokens.

use headwater_events::actor::Role;
use headwater_events::admin::{NAME_MAX_BYTES, TOKEN_NAME_MAX_BYTES, name_faults};
use headwater_events::dns::DomainName;
use headwater_events::domain::destination::Network;
use headwater_events::domain::tag_faults;
use headwater_events::event::Labels;
use headwater_events::ids::{TenantId, UserId};
use headwater_events::manager::{Manager, NotAManager, View};
use headwater_events::people::{TOKEN_NETWORKS_MAX_COUNT, TokenLimits, UNUSED_MAX_DAYS};
use headwater_events::scope::Scope;
use headwater_events::time::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

use super::labels;
use super::scope::{self, ScopeBody};
use crate::http::auth::Authenticated;
use crate::http::body::{Fields, FromBody};
use crate::mail::MailAddress;
use crate::query::accounts::{StoredMember, StoredTenant, StoredToken, StoredUser};
use crate::secret::Secret;

/// A tenant that is asked for.
#[derive(Debug, ToSchema)]
pub struct NewTenant {
    /// Its name, unique.
    pub name: String,
    /// Labels.
    #[schema(required = false)]
    pub labels: Labels,
    /// The operator's own number for it.
    pub external_id: Option<String>,
}

impl FromBody for NewTenant {
    fn read(fields: &mut Fields) -> Option<Self> {
        let name = fields.required_text("name");
        let labels = labels(fields);
        let external_id = fields.text("external_id");
        fields.also(|| {
            let named = name.as_ref().map(|name| name_faults(name, NAME_MAX_BYTES));
            let mut faults = tag_faults(&labels, external_id.as_deref());
            faults.extend(named.into_iter().flatten());
            faults
        });
        Some(Self { name: name?, labels, external_id })
    }
}

/// A tenant.
#[derive(Debug, Serialize, ToSchema)]
pub struct Tenant {
    /// Its id.
    id: Uuid,
    /// Its name.
    name: String,
    /// Labels.
    labels: Labels,
    /// The operator's own number for it.
    external_id: Option<String>,
    /// Domains it owns.
    domains: i64,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

impl From<StoredTenant> for Tenant {
    fn from(stored: StoredTenant) -> Self {
        Self {
            id: stored.id.as_uuid(),
            name: stored.name,
            labels: stored.labels,
            external_id: stored.external_id,
            domains: stored.domains,
            created_at: stored.created_at,
        }
    }
}

/// A user's membership of a tenant.
#[derive(Debug, Serialize, ToSchema)]
pub struct Member {
    /// The tenant.
    pub tenant: Uuid,
    /// The user.
    pub user: Uuid,
    /// Its mail address.
    pub email: Option<String>,
    /// `viewer`, `editor` or `owner`.
    #[schema(value_type = String, example = "editor")]
    pub role: Role,
}

impl Member {
    /// A member of a tenant.
    pub fn new(tenant: TenantId, stored: StoredMember) -> Self {
        let StoredMember { user, email, role } = stored;
        Self { tenant: tenant.as_uuid(), user: user.as_uuid(), email, role }
    }
}

/// A user's membership of a single domain.
#[derive(Debug, Serialize, ToSchema)]
pub struct DomainMember {
    /// The domain's name.
    domain: String,
    /// The user.
    user: Uuid,
    /// Its mail address.
    email: Option<String>,
    /// `viewer`, `editor` or `owner`.
    #[schema(value_type = String, example = "editor")]
    role: Role,
}

impl DomainMember {
    /// A member of a domain.
    pub fn new(domain: &DomainName, stored: StoredMember) -> Self {
        let StoredMember { user, email, role } = stored;
        Self { domain: domain.to_string(), user: user.as_uuid(), email, role }
    }
}

fn role(fields: &mut Fields) -> Option<Role> {
    let known = || ("unknown_role", "the roles are viewer, editor, owner".to_owned());
    fields.parsed("role", |text| Role::from_name(text).ok_or_else(known))
}

/// What a member of a tenant may do.
#[derive(Debug, ToSchema)]
pub struct PutMember {
    /// `viewer`, `editor` or `owner`; left out, a member keeps its role and a new one is an owner.
    #[schema(value_type = Option<String>, example = "editor")]
    pub role: Option<Role>,
}

impl FromBody for PutMember {
    fn read(fields: &mut Fields) -> Option<Self> {
        Some(Self { role: role(fields) })
    }
}

/// What a member of a single domain may do.
#[derive(Debug, ToSchema)]
pub struct PutDomainMember {
    /// `viewer`, `editor` or `owner`.
    #[schema(value_type = String, example = "editor")]
    pub role: Role,
}

impl FromBody for PutDomainMember {
    fn read(fields: &mut Fields) -> Option<Self> {
        if !fields.has("role") {
            fields.missing("role");
        }
        Some(Self { role: role(fields)? })
    }
}

/// A user that is asked for.
#[derive(ToSchema)]
pub struct NewUser {
    /// Its mail address, unique.
    #[schema(value_type = String, example = "ann@example.com")]
    pub email: MailAddress,
    /// Administrator of the platform.
    #[schema(required = false)]
    pub admin: bool,
    /// A tenant that it becomes a member of.
    #[schema(value_type = Option<Uuid>)]
    pub tenant: Option<TenantId>,
}

impl FromBody for NewUser {
    fn read(fields: &mut Fields) -> Option<Self> {
        if !fields.has("email") {
            fields.missing("email");
        }
        let email = fields.parsed("email", |text| text.parse().map_err(|detail| ("invalid_email", detail)));
        let (admin, tenant) = (fields.flag("admin"), fields.id("tenant"));
        Some(Self { email: email?, admin, tenant })
    }
}

/// A user.
#[derive(Debug, Serialize, ToSchema)]
pub struct User {
    /// Its id.
    id: Uuid,
    /// Its mail address; null when it was erased.
    email: Option<String>,
    /// What it is called, if it says so.
    name: Option<String>,
    /// Administrator of the platform.
    admin: bool,
    /// Whether it may come in.
    enabled: bool,
    /// The tenants it is a member of.
    tenants: Vec<Uuid>,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

impl From<StoredUser> for User {
    fn from(stored: StoredUser) -> Self {
        Self {
            id: stored.id.as_uuid(),
            email: stored.email,
            name: stored.name,
            admin: stored.admin,
            enabled: stored.enabled,
            tenants: stored.tenants.iter().map(|tenant| tenant.as_uuid()).collect(),
            created_at: stored.created_at,
        }
    }
}

/// The caller.
#[derive(Debug, Serialize, ToSchema)]
pub struct Me {
    /// Who it is.
    #[serde(flatten)]
    user: User,
    /// The token it has shown.
    token: Option<Uuid>,
    /// When that token stops working.
    #[schema(value_type = Option<String>, format = DateTime)]
    token_expires_at: Option<Timestamp>,
    /// What unsafe requests of its session show in `X-CSRF-Token`; null with a token.
    csrf_token: Option<String>,
    /// When its session ends, whatever happens.
    #[schema(value_type = Option<String>, format = DateTime)]
    session_expires_at: Option<Timestamp>,
}

impl Me {
    /// The caller, as a user.
    pub fn new(user: StoredUser, auth: &Authenticated) -> Self {
        let token = auth.caller.actor.token.map(|token| token.as_uuid());
        let session = auth.session.as_ref();
        Self {
            user: user.into(),
            token,
            token_expires_at: auth.expires_at.filter(|_| session.is_none()),
            csrf_token: session.map(|session| session.csrf.expose().to_owned()),
            session_expires_at: session.map(|session| session.ends_at),
        }
    }
}

/// A token that is asked for.
#[derive(Debug, ToSchema)]
pub struct NewToken {
    /// What its owner calls it.
    pub name: String,
    /// When it stops working by itself.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// What it is limited to; left out, to nothing but what its owner may.
    #[schema(value_type = Option<Vec<ScopeBody>>)]
    pub scopes: Option<Vec<Scope>>,
    /// It stops working after so many days without use.
    pub max_unused_days: Option<u32>,
    /// It works from these networks alone, as 192.0.2.0/24; none: from everywhere.
    #[schema(required = false, value_type = Vec<String>)]
    pub networks: Vec<Network>,
    /// The tool that owns the RRsets that are written with it: of a-z, 0-9, `.`, `_` and `-`, at most 64. Others change them
    /// only with `take_over`. Left out, nobody owns them.
    #[schema(value_type = Option<String>, example = "octodns")]
    pub manager: Option<Manager>,
    /// Which RRsets it is shown: `all` that it may read, or of those its manager's `own`.
    #[schema(required = false, value_type = String, example = "all")]
    pub view: View,
}

impl NewToken {
    /// When and from where it works.
    pub fn limits(&self) -> TokenLimits {
        TokenLimits { max_unused_days: self.max_unused_days, networks: self.networks.clone() }
    }
}

fn networks(fields: &mut Fields) -> Vec<Network> {
    let texts = fields.texts("networks").unwrap_or_default();
    if texts.len() > TOKEN_NETWORKS_MAX_COUNT {
        let detail = format!("a token is limited to at most {TOKEN_NETWORKS_MAX_COUNT} networks");
        fields.fault("networks", "too_many", detail);
        return Vec::new();
    }
    let mut networks = Vec::new();
    for (index, text) in texts.into_iter().enumerate() {
        match text.map(|text| text.parse()) {
            Some(Ok(network)) => networks.push(network),
            Some(Err(error)) => {
                let error: headwater_events::domain::destination::NotANetwork = error;
                fields.fault(&format!("networks/{index}"), "invalid_network", error.to_string());
            }
            None => {}
        }
    }
    networks
}

fn managing(fields: &mut Fields) -> (Option<Manager>, View) {
    let manager = fields.parsed("manager", |text| {
        text.parse().map_err(|error: NotAManager| ("invalid_manager", error.to_string()))
    });
    let view = fields.parsed("view", |text| {
        View::from_name(text).ok_or(("unknown_view", "the views are all and own".to_owned()))
    });
    (manager, view.unwrap_or_default())
}

impl FromBody for NewToken {
    fn read(fields: &mut Fields) -> Option<Self> {
        let name = fields.required_text("name");
        let time = |text: &str| {
            Timestamp::parse(text)
                .ok_or(("invalid_time", "this must be a time as 2030-01-31T12:00:00Z".to_owned()))
        };
        let expires_at = fields.parsed("expires_at", time);
        let max_unused_days = fields.integer("max_unused_days").and_then(|days| {
            let days = u32::try_from(days).ok().filter(|days| (1..=UNUSED_MAX_DAYS).contains(days));
            if days.is_none() {
                let detail = format!("this must be a whole number from 1 to {UNUSED_MAX_DAYS}");
                fields.fault("max_unused_days", "out_of_range", detail);
            }
            days
        });
        let networks = networks(fields);
        let (manager, view) = managing(fields);
        let scopes = scope::scopes(fields);
        fields.also(|| name.as_ref().map(|name| name_faults(name, TOKEN_NAME_MAX_BYTES)).unwrap_or_default());
        Some(Self { name: name?, expires_at, scopes, max_unused_days, networks, manager, view })
    }
}

/// A token, without what its holder must show.
#[derive(Debug, Serialize, ToSchema)]
pub struct Token {
    /// Its id.
    id: Uuid,
    /// Whose it is.
    user: Uuid,
    /// What its owner calls it.
    name: String,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it stops working by itself.
    #[schema(value_type = Option<String>, format = DateTime)]
    expires_at: Option<Timestamp>,
    /// When it was revoked.
    #[schema(value_type = Option<String>, format = DateTime)]
    revoked_at: Option<Timestamp>,
    /// What it is limited to; null: to nothing but what its owner may.
    #[schema(value_type = Option<Vec<ScopeBody>>)]
    scopes: Option<Vec<Scope>>,
    /// It stops working after so many days without use.
    max_unused_days: Option<u32>,
    /// It works from these networks alone; none: from everywhere.
    #[schema(value_type = Vec<String>)]
    networks: Vec<Network>,
    /// When it was used last, to the minute.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_used_at: Option<Timestamp>,
    /// The tool that owns the RRsets that are written with it; null: nobody does.
    #[schema(value_type = Option<String>)]
    manager: Option<Manager>,
    /// Which RRsets it is shown: `all`, or its `own`.
    #[schema(value_type = String, example = "all")]
    view: View,
}

impl From<StoredToken> for Token {
    fn from(stored: StoredToken) -> Self {
        Self {
            id: stored.id.as_uuid(),
            user: stored.user.as_uuid(),
            name: stored.name,
            created_at: stored.created_at,
            expires_at: stored.expires_at,
            revoked_at: stored.revoked_at,
            scopes: stored.scopes,
            max_unused_days: stored.max_unused_days,
            networks: stored.networks,
            last_used_at: stored.used_at,
            manager: stored.managing.manager,
            view: stored.managing.view,
        }
    }
}

/// A new token, with what its holder must show: once, and never in a replay.
#[derive(Serialize, ToSchema)]
pub struct CreatedToken {
    /// What is known of it.
    #[serde(flatten)]
    known: Token,
    /// The token itself; null in a replay.
    token: Option<String>,
}

impl CreatedToken {
    /// Shows a new token. Its secret leaves the program here and nowhere else.
    pub fn new(stored: StoredToken, secret: Option<&Secret>) -> Self {
        Self { known: stored.into(), token: secret.map(|secret| secret.expose().to_owned()) }
    }
}

/// A token to revoke, shown by whoever has it.
#[derive(ToSchema)]
pub struct ShownToken {
    /// The token itself.
    #[schema(value_type = String)]
    pub token: Secret,
}

impl FromBody for ShownToken {
    fn read(fields: &mut Fields) -> Option<Self> {
        fields.required_text("token").map(|token| Self { token: Secret::new(token) })
    }
}

/// Which tokens are wanted.
#[derive(Debug, Clone, Copy)]
pub struct OfUser(pub Option<UserId>);
