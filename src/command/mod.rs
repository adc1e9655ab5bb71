//! The single way in for every mutation: who asks ([`Caller`]), what
//! ([`Command`]), and under which conditions ([`Meta`]). The answer is an
//! [`Outcome`] or a reason.

use headwater_events::actor::Caller;
use headwater_events::admin::AdminCommand;
use headwater_events::dns::DomainName;
use headwater_events::domain::{CreateDomain, DomainCommand, DomainState, NotRestored, Precondition};
use headwater_events::envelope::Client;
use headwater_events::ids::{
    EdgeId, OperationId, Position, RequestId, Revision, TenantId, TokenId, UserId, WebhookId,
};
use headwater_events::reject::{Guard, Reject};
use headwater_events::webhook::SealedWebhookSecret;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use uuid::Uuid;

use crate::secret::Secret;

/// `Change-Note`, at most.
pub const NOTE_MAX_CHARS: usize = 500;

/// What is asked.
#[derive(Debug, Clone)]
pub enum Command {
    /// Make a domain.
    CreateDomain(CreateDomain),
    /// Change a domain.
    Domain {
        /// Which.
        name: DomainName,
        /// How.
        command: DomainCommand,
    },
    /// Everything else.
    Admin {
        /// What.
        command: AdminCommand,
        /// What stands beside the log for it.
        aside: Aside,
    },
}

impl Command {
    /// A command that nothing stands beside.
    pub fn admin(command: AdminCommand) -> Self {
        Self::Admin { command, aside: Aside::Nothing }
    }
}

/// What a command stores beside the log: things that no event may hold.
#[derive(Clone)]
pub enum Aside {
    /// Nothing.
    Nothing,
    /// Who a user is.
    Person {
        /// The user.
        user: UserId,
        /// Its mail address, canonical.
        email: String,
    },
    /// What a token's holder must show.
    TokenSecret {
        /// The token.
        token: TokenId,
        /// Whose.
        user: UserId,
        /// BLAKE3 of the secret.
        hash: [u8; 32],
    },
    /// Who a user is, anew: what is none stays.
    Profile {
        /// The user.
        user: UserId,
        /// Its mail address, canonical.
        email: Option<String>,
        /// `Some(None)`: it has no name.
        name: Option<Option<String>>,
    },
    /// How a user proves who it is. What it had open ends.
    Password {
        /// The user.
        user: UserId,
        /// An Argon2id hash in its text form.
        verifier: Secret,
        /// The session that stays.
        keep: Option<Uuid>,
    },
    /// A user may not come in any more.
    UserOut {
        /// The user.
        user: UserId,
    },
    /// Nothing of a person is left.
    UserGone {
        /// The user.
        user: UserId,
    },
    /// The names that a tenant had are free.
    TenantRenamed {
        /// The tenant.
        tenant: TenantId,
        /// The name that it has now.
        name: String,
    },
    /// The name of a tenant is free.
    TenantGone {
        /// The tenant.
        tenant: TenantId,
    },
    /// What an edge must show to enrol. Whatever identity it had ends.
    EdgeToken {
        /// The edge.
        edge: EdgeId,
        /// The digest of the token.
        hash: [u8; 32],
        /// For how long it is good.
        seconds: u32,
    },
    /// The log tells of an identity from now on.
    EdgeIdentity {
        /// Its serial number.
        serial: Vec<u8>,
    },
    /// Nothing of an edge is left.
    EdgeGone {
        /// The edge.
        edge: EdgeId,
    },
    /// What a webhook signs with from now on.
    WebhookSecret {
        /// The webhook.
        webhook: WebhookId,
        /// The version that it was sealed for.
        version: u32,
        /// The secret, sealed.
        sealed: SealedWebhookSecret,
    },
}

impl std::fmt::Debug for Aside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Nothing => "Nothing",
            Self::Person { .. } => "Person",
            Self::TokenSecret { .. } => "TokenSecret",
            Self::Profile { .. } => "Profile",
            Self::Password { .. } => "Password",
            Self::UserOut { .. } => "UserOut",
            Self::UserGone { .. } => "UserGone",
            Self::TenantRenamed { .. } => "TenantRenamed",
            Self::TenantGone { .. } => "TenantGone",
            Self::EdgeToken { .. } => "EdgeToken",
            Self::EdgeIdentity { .. } => "EdgeIdentity",
            Self::EdgeGone { .. } => "EdgeGone",
            Self::WebhookSecret { .. } => "WebhookSecret",
        })
    }
}

/// An `Idempotency-Key` and what it was sent with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Idempotency {
    /// The key.
    pub key: Uuid,
    /// BLAKE3 of method, path and normalized body.
    pub request: [u8; 32],
}

/// What a command comes with.
#[derive(Debug, Clone)]
pub struct Meta {
    /// The request.
    pub request: RequestId,
    /// From where.
    pub client: Option<Client>,
    /// `Change-Note`.
    pub note: Option<String>,
    /// The set of changes it belongs to.
    pub change: Option<Uuid>,
    /// The event that caused it.
    pub cause: Option<Position>,
    /// `Idempotency-Key`.
    pub idempotency: Option<Idempotency>,
    /// `If-Match`, `If-None-Match`.
    pub precondition: Precondition,
    /// `?allow=`.
    pub allow: BTreeSet<Guard>,
    /// `?take_over=`: what tools of others own may be changed.
    pub take_over: bool,
}

impl Meta {
    /// Of a command that the control plane gives itself.
    pub fn internal() -> Self {
        Self {
            request: RequestId::from_uuid(Uuid::now_v7()),
            client: None,
            note: None,
            change: None,
            cause: None,
            idempotency: None,
            precondition: Precondition::default(),
            allow: BTreeSet::new(),
            take_over: false,
        }
    }
}

/// What a command did. Stored as the receipt of an idempotency key: it holds no secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Whether anything changed.
    pub changed: bool,
    /// The stream's revision now.
    pub revision: Revision,
    /// The operation that carries it out.
    pub operation: Option<OperationId>,
    /// The stream that was written.
    pub stream: Uuid,
    /// The domain as it is now, when the command was about one.
    pub domain: Option<DomainState>,
    /// What the caller may want to know.
    pub warnings: Vec<String>,
    /// What a rollback leaves as it is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_restored: Vec<NotRestored>,
    /// The position of the command's last event; none when nothing changed.
    #[serde(skip)]
    pub position: Option<Position>,
    /// Whether this is the stored answer of an earlier call.
    #[serde(skip)]
    pub replayed: bool,
}

/// What a dry run says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Plan {
    /// Whether anything would change.
    pub changed: bool,
    /// What would.
    pub diff: Vec<serde_json::Value>,
    /// What the caller may want to know.
    pub warnings: Vec<String>,
    /// Guards that stand in the way, or would be crossed by allowance.
    pub guards: Vec<String>,
    /// Names of the targets that would be deployed to.
    pub targets: Vec<String>,
    /// The `If-Match` with which exactly this is applied, or nothing.
    pub if_match: Option<Revision>,
    /// What would stay as it is; of a rollback alone.
    pub not_restored: Option<Vec<NotRestored>>,
}

/// Why a command has no outcome.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// It was refused; nothing was written.
    #[error(transparent)]
    Rejected(#[from] Reject),
    /// The key was used with another request.
    #[error("this Idempotency-Key was used with another request: take a new one")]
    IdempotencyConflict,
    /// The first request with this key has not been answered yet.
    #[error("a request with this Idempotency-Key is still being worked on")]
    IdempotencyInProgress,
    /// The caller may not come in any more.
    #[error("the token is unknown, revoked or expired, or the session is over")]
    Out,
    /// Too much is queued.
    #[error("too many mutations are queued")]
    Busy,
    /// The log cannot be written now. Whether the command took effect may be
    /// unknown: repeat it with the same Idempotency-Key.
    #[error("{0}")]
    Unavailable(String),
    /// The database cannot hold a text of the request.
    #[error("a text of the request holds a character that cannot be stored, such as U+0000: leave it out")]
    Text,
}

/// A command with everything it needs to be decided.
#[derive(Debug, Clone)]
pub struct Request {
    /// Who asks.
    pub caller: Caller,
    /// What.
    pub command: Command,
    /// Under which conditions.
    pub meta: Meta,
    /// The id that the operation gets if one is needed.
    pub operation: OperationId,
}
