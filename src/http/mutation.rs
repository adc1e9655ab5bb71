//! What every mutation comes with: its caller, its conditions, its note, its idempotency key, its body. One extractor,
//! so that no route can forget one of them; one way to submit, so that `?dry_run=true` works everywhere.

use axum::Json;
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderName, StatusCode, header};
use axum::response::{IntoResponse, Response};
use headwater_events::domain::{DomainCommand, Precondition};
use headwater_events::ids::{Position, RequestId};
use headwater_events::reject::{Fault, Guard};
use serde_json::json;
use std::collections::BTreeSet;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::auth::{Authenticated, Identity};
use super::body::{self, FromBody};
use super::query::Pairs;
use super::{Problem, conditional, envelope};
use crate::app::App;
use crate::command::{Command, Idempotency, Meta, NOTE_MAX_CHARS, Outcome, Plan};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const CHANGE_NOTE: HeaderName = HeaderName::from_static("change-note");

/// A mutation that has been read whole.
pub struct Mutation<T> {
    /// Who asks.
    pub auth: Authenticated,
    /// What the body says.
    pub body: T,
    meta: Meta,
    dry_run: bool,
    identity: Option<Identity>,
}

/// What submitting came to.
pub enum Submitted {
    /// `?dry_run=true`: nothing was written.
    Plan(Plan),
    /// The same of something that does not exist yet.
    PlanOfNew(Plan),
    /// It is durable.
    Done(Outcome),
}

impl<T: FromBody> FromRequest<App> for Mutation<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &App) -> Result<Self, Problem> {
        Self::asked(request, state, |_| ()).await.map(|(mutation, ())| mutation)
    }
}

impl<T: FromBody> Mutation<T> {
    /// Reads a mutation with keys of its own in the query.
    ///
    /// # Errors
    /// What is wrong with any of it.
    pub(super) async fn asked<Q>(
        request: Request,
        state: &App,
        read: impl FnOnce(&mut Pairs) -> Q,
    ) -> Result<(Self, Q), Problem> {
        let (mut parts, body) = request.into_parts();
        let auth = Authenticated::from_request_parts(&mut parts, state).await?;
        let mut pairs = Pairs::parse(parts.uri.query())?;
        let dry_run = pairs.flag("dry_run");
        let (allow, take_over) = (guards(&mut pairs), pairs.flag("take_over"));
        let query = read(&mut pairs);
        pairs.finish()?;
        let mut meta = Meta { take_over, ..meta(&parts, allow)? };
        let key = idempotency_key(&parts)?;
        let sent = body::json(&parts.headers, body, T::MAX_BYTES).await?;
        let identity = parts.extensions.get::<Identity>().cloned();
        let secret =
            identity.as_ref().filter(|_| T::HAS_SECRET).map(|identity| identity.keys().of_requests());
        meta.idempotency =
            key.map(|key| Idempotency { key, request: digest(&parts, sent.value.to_string(), secret) });
        let body = body::read::<T>(sent)?;
        Ok((Self { auth, body, meta, dry_run, identity }, query))
    }
}

/// A mutation whose body is a text and not read yet: whoever may not ask at all need not have sent it for nothing.
pub(super) struct Upload {
    /// Who asks.
    pub(super) auth: Authenticated,
    parts: Parts,
    body: Body,
}

impl Upload {
    /// Looks at who asks.
    ///
    /// # Errors
    /// As every route.
    pub(super) async fn begin(request: Request, app: &App) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let auth = Authenticated::from_request_parts(&mut parts, app).await?;
        Ok(Self { auth, parts, body })
    }

    /// Reads the rest: the keys of a mutation and those of `read`, and the text, of one of these media types.
    ///
    /// # Errors
    /// What is wrong with any of it.
    pub(super) async fn finish<Q>(
        self,
        read: impl FnOnce(&mut Pairs) -> Q,
        media: &[&str],
        most: usize,
    ) -> Result<(Mutation<Vec<u8>>, Q), Problem> {
        let Self { auth, parts, body } = self;
        let mut pairs = Pairs::parse(parts.uri.query())?;
        let dry_run = pairs.flag("dry_run");
        let (allow, take_over) = (guards(&mut pairs), pairs.flag("take_over"));
        let query = read(&mut pairs);
        pairs.finish()?;
        let mut meta = Meta { take_over, ..meta(&parts, allow)? };
        let key = idempotency_key(&parts)?;
        let sent = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let sent = sent.and_then(|sent| sent.split(';').next()).unwrap_or_default().trim();
        if !media.iter().any(|media| media.eq_ignore_ascii_case(sent)) {
            let detail =
                format!("send the text with Content-Type: {}", media.first().copied().unwrap_or_default());
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported_media_type", detail));
        }
        let body = body::bounded(&parts.headers, body, most).await?;
        let request = || digest(&parts, blake3::hash(&body).to_hex().to_string(), None);
        meta.idempotency = key.map(|key| Idempotency { key, request: request() });
        Ok((Mutation { auth, body, meta, dry_run, identity: None }, query))
    }
}

impl<T> Mutation<T> {
    /// The body by itself, to be turned into a command.
    pub fn split(self) -> (Mutation<()>, T) {
        let Self { auth, body, meta, dry_run, identity } = self;
        (Mutation { auth, body: (), meta, dry_run, identity }, body)
    }

    /// Submits the command of this mutation, or plans it when only that was asked.
    ///
    /// # Errors
    /// Why not.
    pub async fn submit(&self, app: &App, command: Command) -> Result<Submitted, Problem> {
        let (caller, meta) = (self.auth.caller.clone(), self.meta.clone());
        // A condition that nobody looks at must not seem to hold.
        let unlooked = match &command {
            Command::Domain { .. } => false,
            Command::CreateDomain(_) => meta.precondition.if_match.is_some(),
            Command::Admin { .. } => meta.precondition != Precondition::default(),
        };
        if unlooked {
            self.refuse_conditions()?;
        }
        if self.dry_run {
            let can_be_new = matches!(
                &command,
                Command::CreateDomain(_)
                    | Command::Domain {
                        command: DomainCommand::PutRrset(_) | DomainCommand::PutCertificate(_),
                        ..
                    }
            );
            let plan = app.commit.plan(caller, command, meta).await?;
            let is_new = can_be_new && plan.if_match.is_none();
            return Ok(if is_new { Submitted::PlanOfNew(plan) } else { Submitted::Plan(plan) });
        }
        let forget = self.identity.as_ref().filter(|_| matches!(command, Command::Admin { .. }));
        let outcome = app.commit.submit(caller, command, meta).await;
        // Whatever came of it: who may do what is read again from now on.
        if let Some(identity) = forget {
            identity.forget();
        }
        Ok(Submitted::Done(outcome?))
    }

    /// Submits what belongs to this mutation too. The key and the conditions are those of the first command alone.
    ///
    /// # Errors
    /// Why not.
    pub async fn submit_also(&self, app: &App, command: Command) -> Result<Outcome, Problem> {
        let meta = Meta { idempotency: None, precondition: Precondition::default(), ..self.meta.clone() };
        let outcome = app.commit.submit(self.auth.caller.clone(), command, meta).await;
        if let Some(identity) = &self.identity {
            identity.forget();
        }
        Ok(outcome?)
    }

    /// Says which event caused this.
    pub fn caused_by(&mut self, cause: Option<Position>) {
        self.meta.cause = cause;
    }

    /// Whether only a plan was asked for.
    pub fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    /// Refuses a condition where there is nothing with an entity tag: it must not seem to hold.
    ///
    /// # Errors
    /// 400 when there is one.
    pub fn refuse_conditions(&self) -> Result<(), Problem> {
        if self.meta.precondition == Precondition::default() {
            return Ok(());
        }
        Err(Problem::malformed(
            "what this request makes or changes has no entity tag: leave the condition out",
        ))
    }

    /// What the command comes with, for parts that submit by themselves.
    pub fn meta(&self) -> Meta {
        self.meta.clone()
    }

    /// Whether this may be a repetition.
    pub fn has_key(&self) -> bool {
        self.meta.idempotency.is_some()
    }
}

/// What a mutation comes with, but for its idempotency key.
///
/// # Errors
/// 400 or 422 for a header that is at fault.
pub fn meta(parts: &Parts, allow: BTreeSet<Guard>) -> Result<Meta, Problem> {
    Ok(Meta {
        take_over: false,
        request: envelope::current_request().unwrap_or_else(|| RequestId::from_uuid(Uuid::now_v7())),
        client: envelope::client(parts),
        note: note(parts)?,
        change: None,
        cause: None,
        idempotency: None,
        precondition: conditional::precondition(&parts.headers)?,
        allow,
    })
}

/// The guards that `?allow=` names.
pub(super) fn guards(pairs: &mut Pairs) -> BTreeSet<Guard> {
    let mut allow = BTreeSet::new();
    for name in pairs.all("allow").iter().flat_map(|names| names.split(',')) {
        match Guard::from_name(name) {
            Some(guard) => {
                allow.insert(guard);
            }
            None => {
                let known: Vec<&str> = Guard::ALL.iter().map(|guard| guard.name()).collect();
                pairs.fault("unknown_guard", format!("allow: the guards are {}", known.join(", ")));
            }
        }
    }
    allow
}

/// A note is UTF-8; clients that cannot send that send Latin-1, of which every octet is a character.
fn note(parts: &Parts) -> Result<Option<String>, Problem> {
    let Some(value) = parts.headers.get(&CHANGE_NOTE) else { return Ok(None) };
    let note = match std::str::from_utf8(value.as_bytes()) {
        Ok(text) => text.to_owned(),
        Err(_) => value.as_bytes().iter().copied().map(char::from).collect(),
    };
    if note.chars().count() > NOTE_MAX_CHARS || note.chars().any(char::is_control) {
        let detail =
            format!("Change-Note has at most {NOTE_MAX_CHARS} characters, none of them a control character");
        return Err(Problem::invalid(vec![Fault::at("", "invalid_note", detail)]));
    }
    Ok((!note.is_empty()).then_some(note))
}

fn idempotency_key(parts: &Parts) -> Result<Option<Uuid>, Problem> {
    let mut keys = parts.headers.get_all(&IDEMPOTENCY_KEY).iter();
    let Some(value) = keys.next() else { return Ok(None) };
    // Quoted too: the header is a structured-field string in the draft.
    let text = value.to_str().unwrap_or_default().trim().trim_matches('"');
    match (Uuid::parse_str(text), keys.next()) {
        (Ok(key), None) => Ok(Some(key)),
        _ => Err(Problem::malformed("Idempotency-Key must be one UUID")),
    }
}

/// BLAKE3 of method, path, query without `dry_run`, and the body with its keys in order; keyed where it holds a secret.
fn digest(parts: &Parts, body: String, secret: Option<&[u8; 32]>) -> [u8; 32] {
    let mut query: Vec<&str> = parts.uri.query().unwrap_or_default().split('&').collect();
    query.retain(|pair| !pair.is_empty() && *pair != "dry_run" && !pair.starts_with("dry_run="));
    query.sort_unstable();
    let mut hasher = secret.map_or_else(blake3::Hasher::new, blake3::Hasher::new_keyed);
    // It may hold a private key: what is kept is the digest alone.
    let body = Zeroizing::new(body);
    for part in [parts.method.as_str(), parts.uri.path(), &query.join("&"), body.as_str()] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    *hasher.finalize().as_bytes()
}

/// The answer to a dry run: what would change, and the condition under which exactly that happens.
impl IntoResponse for Submitted {
    fn into_response(self) -> Response {
        match self {
            Self::Done(outcome) => super::answer::receipt(&outcome),
            Self::Plan(plan) => planned(&plan, None),
            Self::PlanOfNew(plan) => planned(&plan, Some("*")),
        }
    }
}

fn planned(plan: &Plan, if_none_match: Option<&str>) -> Response {
    let mut body = json!({
        "changed": plan.changed,
        "diff": plan.diff,
        "warnings": plan.warnings,
        "guards": plan.guards,
        "targets": plan.targets,
        "if_match": plan.if_match.map(conditional::etag),
        "if_none_match": if_none_match,
    });
    if let Some(not_restored) = &plan.not_restored {
        body["not_restored"] = json!(not_restored);
    }
    let mut response = Json(body).into_response();
    if let Some(revision) = plan.if_match {
        conditional::set_etag(response.headers_mut(), revision);
    }
    response
}
