//! `PATCH` of a zone: REPLACE, DELETE, EXTEND and PRUNE of RRsets, in order, all or nothing, one revision.
//!
//! What may stand beside what is judged once, at the end, as in every batch of ours: what PowerDNS takes is taken.

use axum::extract::{FromRequest, FromRequestParts, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use headwater_events::dns::{DomainName, FaultCode, OwnerName, Rdata, RrSet, RrSetInput, RrType, Ttl};
use headwater_events::domain::{BATCH_MAX_CHANGES, DomainCommand, RrsetChange};
use headwater_events::ids::{OperationId, Revision};
use headwater_events::reject::{Fault, Guard};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::apex::{self, Apex};
use super::error::refused;
use super::zones::{ZonePath, zone};
use crate::app::App;
use crate::command::{Command, Meta, Outcome};
use crate::http::auth::Authenticated;
use crate::http::dto::rrset::BATCH_MAX_BYTES;
use crate::http::operations::{self, WAIT_MAX_SECONDS};
use crate::http::query::Pairs;
use crate::http::{Problem, body, conditional, mutation};
use crate::operation::read;
use crate::query::domains::{self, Platform, StoredDomain};
use crate::query::rrsets;

/// The serial before a change.
const OLD_SERIAL: HeaderName = HeaderName::from_static("x-pdns-old-serial");
/// The serial after it.
const NEW_SERIAL: HeaderName = HeaderName::from_static("x-pdns-new-serial");
/// What carries it out.
const OPERATION: HeaderName = HeaderName::from_static("x-operation-id");
/// How that stood when the answer was sent.
const OPERATION_STATE: HeaderName = HeaderName::from_static("x-operation-state");
const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// A change as it was sent, with everything that stands around it.
pub struct Sent {
    /// Who asks.
    pub auth: Authenticated,
    /// Under which conditions.
    pub meta: Meta,
    /// The body; `null` where there is none.
    pub body: Value,
    /// How long the client wants to wait for the end of the work.
    wait: Option<Duration>,
}

impl FromRequest<App> for Sent {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        let auth = Authenticated::from_request_parts(&mut parts, app).await?;
        let mut pairs = Pairs::parse(parts.uri.query())?;
        let (allow, take_over) = (mutation::guards(&mut pairs), pairs.flag("take_over"));
        pairs.taken()?;
        let meta = Meta { take_over, ..mutation::meta(&parts, allow)? };
        let wait = wait(&parts.headers);
        let body = body::undeclared(&parts.headers, body, BATCH_MAX_BYTES).await?;
        Ok(Self { auth, meta, body, wait })
    }
}

/// `Prefer: wait` or `wait=SECONDS` (RFC 7240); what it says else is somebody else's.
fn wait(headers: &HeaderMap) -> Option<Duration> {
    let values = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    let mut preferences = values.flat_map(|value| value.split([',', ';'])).map(str::trim);
    let most = WAIT_MAX_SECONDS;
    preferences.find_map(|preference| {
        let seconds = match preference.split_once('=') {
            None if preference.eq_ignore_ascii_case("wait") => most,
            Some((name, seconds)) if name.trim().eq_ignore_ascii_case("wait") => {
                seconds.trim().parse().ok()?
            }
            _ => return None,
        };
        Some(Duration::from_secs(seconds.min(most)))
    })
}

impl Sent {
    /// Submits a command.
    ///
    /// # Errors
    /// Why not.
    pub async fn submit(&self, app: &App, command: Command) -> Result<Outcome, Problem> {
        Ok(app.commit.submit(self.auth.caller.clone(), command, self.meta.clone()).await?)
    }

    /// Says what carries a change out, after waiting for its end where the client wants that.
    pub async fn follow(&self, app: &App, operation: Option<OperationId>, headers: &mut HeaderMap) {
        let Some(id) = operation else { return };
        if let Ok(value) = HeaderValue::try_from(id.to_string()) {
            headers.insert(OPERATION, value);
        }
        let Some(wait) = self.wait else { return };
        let look = || async {
            let found = read::one(&app.pool, id).await?;
            found.ok_or_else(|| Problem::not_found("the operation"))
        };
        // What was decided is durable already; that nobody can say how it stands changes nothing of it.
        let Ok(operation) = operations::ended(app, wait, look).await else { return };
        if let Ok(value) = HeaderValue::try_from(operation.state.name()) {
            headers.insert(OPERATION_STATE, value);
        }
        if operation.state.is_terminal() {
            headers.insert(PREFERENCE_APPLIED, HeaderValue::from_static("wait"));
        }
    }
}

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(patch))
}

/// What an RRset is called in errors.
fn called(name: &str, rrtype: &str) -> String {
    let short = |text: &str| text.chars().take(300).collect::<String>();
    format!("RRset {} IN {}", short(name), short(rrtype))
}

/// A change, and what it is called.
struct Named {
    name: String,
    change: RrsetChange,
}

#[utoipa::path(patch, path = "/api/v1/servers/localhost/zones/{zone}")]
async fn patch(
    State(app): State<App>,
    ZonePath(name): ZonePath,
    mut sent: Sent,
) -> Result<Response, Problem> {
    let held = zone(&app, &sent.auth, &name).await?;
    let platform = domains::platform(&app.pool).await?;
    let named = read_all(&sent.body, &name, &Apex::new(platform.identity.as_ref()))?;
    spared(&app, &held, &platform, &named).await?;
    let outcome = if named.is_empty() {
        // Everything is as it was sent already.
        let revision = held.state.revision;
        if !sent.meta.precondition.holds(Some(revision)) {
            return Err(Problem::revision_mismatch(Some(revision)));
        }
        None
    } else {
        if let [Named { change: RrsetChange::Clear { .. } | RrsetChange::Remove { .. }, .. }] =
            named.as_slice()
        {
            // One RRset, by name, is its own intent.
            sent.meta.allow.insert(Guard::EmptiesZone);
        }
        let (names, changes): (Vec<String>, Vec<RrsetChange>) =
            named.into_iter().map(|one| (one.name, one.change)).unzip();
        let command = Command::Domain { name, command: DomainCommand::ChangeRrsets(changes) };
        let submitted = sent.submit(&app, command).await;
        Some(submitted.map_err(|problem| problem.told(|fault| named_fault(&names, fault)))?)
    };
    let (state, changed) = match &outcome {
        Some(outcome) => (outcome.domain.as_ref().unwrap_or(&held.state), outcome.changed),
        None => (&held.state, false),
    };
    let new = state.serial(state.revision, platform.generation);
    let before = if changed { Revision::new(state.revision.get() - 1) } else { state.revision };
    let old = state.serial(before, platform.generation);
    let mut response = StatusCode::NO_CONTENT.into_response();
    let headers = response.headers_mut();
    headers.insert(OLD_SERIAL, HeaderValue::from(old));
    headers.insert(NEW_SERIAL, HeaderValue::from(new));
    conditional::set_etag(headers, state.revision);
    sent.follow(&app, outcome.and_then(|outcome| outcome.operation), headers).await;
    Ok(response)
}

/// A fault of a change, by the name of its RRset.
fn named_fault(names: &[String], fault: Fault) -> Fault {
    let index = fault.pointer.strip_prefix("/changes/").and_then(|rest| rest.split('/').next());
    let name = index.and_then(|index| names.get(index.parse::<usize>().ok()?));
    match name {
        Some(name) => Fault { detail: format!("{name}: {}", fault.detail), ..fault },
        None => fault,
    }
}

/// Refuses to take away what the platform answers.
async fn spared(app: &App, held: &StoredDomain, platform: &Platform, named: &[Named]) -> Result<(), Problem> {
    let is_removal = |one: &&Named| {
        matches!(
            one.change,
            RrsetChange::Clear { .. } | RrsetChange::Remove { .. } | RrsetChange::Comment { .. }
        )
    };
    let mut removals = named.iter().filter(is_removal).peekable();
    if removals.peek().is_none() {
        return Ok(());
    }
    let answers = rrsets::answers(&app.pool, &held.state, platform).await?;
    let told = removals.filter_map(|one| {
        let why = apex::answered(&answers, one.change.owner(), one.change.rrtype(), &held.state.name)?;
        Some(format!("{}: {why}", one.name))
    });
    let told: Vec<String> = told.collect();
    if told.is_empty() { Ok(()) } else { Err(refused(told)) }
}

fn read_all(body: &Value, zone: &DomainName, apex: &Apex) -> Result<Vec<Named>, Problem> {
    let items = body.get("rrsets").and_then(Value::as_array);
    let items = items.ok_or_else(|| refused(vec!["Key 'rrsets' not present or not an Array".to_owned()]))?;
    if items.len() > BATCH_MAX_CHANGES {
        let detail = format!("{} RRsets: at most {BATCH_MAX_CHANGES} are changed at once", items.len());
        return Err(refused(vec![detail]));
    }
    let (mut named, mut errors, mut seen) = (Vec::new(), Vec::new(), BTreeSet::new());
    for item in items {
        match One::read(item, zone).and_then(|one| one.change(zone, apex, &mut seen)) {
            Ok(Some(change)) => named.push(change),
            Ok(None) => {}
            Err(told) => errors.extend(told),
        }
    }
    if errors.is_empty() { Ok(named) } else { Err(refused(errors)) }
}

/// One RRset of a body, its name and its type read.
pub(super) struct One<'a> {
    item: &'a Value,
    called: String,
    /// None: it lies outside of the zone.
    owner: Option<OwnerName>,
    rrtype: RrType,
}

fn text<'a>(item: &'a Value, key: &str) -> Result<&'a str, Vec<String>> {
    let found = item.get(key).and_then(Value::as_str);
    found.ok_or_else(|| vec![format!("Key '{key}' not present or not a String")])
}

/// A list, where there is one; `null` is none.
fn list<'a>(item: &'a Value, key: &str) -> Result<Option<&'a [Value]>, Vec<String>> {
    match item.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(items)) => Ok(Some(items)),
        Some(_) => Err(vec![format!("Key '{key}' is not an Array")]),
    }
}

impl<'a> One<'a> {
    pub(super) fn read(item: &'a Value, zone: &DomainName) -> Result<Self, Vec<String>> {
        let (name, type_text) = (text(item, "name")?, text(item, "type")?);
        let called = called(name, type_text);
        if !name.ends_with('.') {
            return Err(vec![format!("{called}: DNS Name '{name}' is not canonical")]);
        }
        let rrtype = RrType::parse(type_text).map_err(|fault| vec![format!("{called}: {}", fault.detail)])?;
        let owner = match OwnerName::parse(name, zone) {
            Ok(owner) => Some(owner),
            Err(fault) if fault.code == FaultCode::OutsideZone => None,
            Err(fault) => return Err(vec![format!("{called}: {}", fault.detail)]),
        };
        Ok(Self { item, called, owner, rrtype })
    }

    fn told(&self, what: impl std::fmt::Display) -> Vec<String> {
        vec![format!("{}: {what}", self.called)]
    }

    fn inside(&self) -> Result<OwnerName, Vec<String>> {
        self.owner.clone().ok_or_else(|| self.told("Name is out of zone"))
    }

    /// What the platform makes itself, judged by what was sent of it.
    fn of_platform(&self, apex: &Apex, records: Option<&[Value]>) -> Result<(), Vec<String>> {
        let why = match records {
            Some(records) if !records.is_empty() => apex.differs(self.rrtype, &apex::contents(records)),
            _ => Some(apex.told(self.rrtype)),
        };
        why.map_or(Ok(()), |why| Err(self.told(why)))
    }

    fn is_of_platform(&self) -> bool {
        self.owner.as_ref().is_some_and(|owner| Apex::is_here(owner, self.rrtype))
    }

    fn change(
        self,
        zone: &DomainName,
        apex: &Apex,
        seen: &mut BTreeSet<(bool, OwnerName, RrType)>,
    ) -> Result<Option<Named>, Vec<String>> {
        let changetype = text(self.item, "changetype").map_err(|told| self.told(told.join("")))?;
        let kind = changetype.to_ascii_uppercase();
        let is_delete = kind == "DELETE";
        if let (true, Some(owner)) = (is_delete || kind == "REPLACE", &self.owner)
            && !seen.insert((is_delete, owner.clone(), self.rrtype))
        {
            return Err(self.told(format!("Duplicate RRset with changetype: {kind}")));
        }
        let records = list(self.item, "records").map_err(|told| self.told(told.join("")))?;
        if self.is_of_platform() {
            let records = if kind == "REPLACE" { records } else { None };
            return self.of_platform(apex, records).map(|()| None);
        }
        let change = match kind.as_str() {
            // What is outside is not there.
            "DELETE" => self.owner.clone().map(|owner| RrsetChange::Clear { owner, rrtype: self.rrtype }),
            "REPLACE" => Some(self.replace(zone, records)?),
            "EXTEND" | "PRUNE" => Some(self.single(zone, records, kind == "EXTEND")?),
            _ => return Err(self.told("Changetype not understood")),
        };
        Ok(change.map(|change| Named { name: self.called, change }))
    }

    fn replace(&self, zone: &DomainName, records: Option<&[Value]>) -> Result<RrsetChange, Vec<String>> {
        let owner = self.inside()?;
        let comment = self.comment()?;
        match (records, comment) {
            (None, None) => Err(self.told("No change: send records or comments")),
            (None, Some(comment)) => Ok(RrsetChange::Comment { owner, rrtype: self.rrtype, comment }),
            (Some([]), _) => Ok(RrsetChange::Clear { owner, rrtype: self.rrtype }),
            (Some(records), None) => self.rrset(zone, owner, records, None).map(RrsetChange::Refill),
            (Some(records), Some(comment)) => self.rrset(zone, owner, records, comment).map(RrsetChange::Put),
        }
    }

    /// A whole RRset of a new zone; none where it says what the platform makes anyway, or nothing.
    pub(super) fn initial(self, zone: &DomainName, apex: &Apex) -> Result<Option<RrSet>, Vec<String>> {
        let records = list(self.item, "records").map_err(|told| self.told(told.join("")))?;
        if self.is_of_platform() {
            return self.of_platform(apex, records).map(|()| None);
        }
        let (owner, comment) = (self.inside()?, self.comment()?.flatten());
        match records {
            None | Some([]) => Ok(None),
            Some(records) => self.rrset(zone, owner, records, comment).map(Some),
        }
    }

    /// Where it stands.
    pub(super) fn place(&self) -> Option<(OwnerName, RrType)> {
        self.owner.clone().map(|owner| (owner, self.rrtype))
    }

    pub(super) fn called(&self) -> &str {
        &self.called
    }

    fn rrset(
        &self,
        zone: &DomainName,
        owner: OwnerName,
        records: &[Value],
        comment: Option<String>,
    ) -> Result<RrSet, Vec<String>> {
        let ttl = self.ttl()?;
        let records = records.iter().map(|record| self.content(record)).collect::<Result<Vec<_>, _>>()?;
        let count = records.len();
        let input = RrSetInput { ttl, records, comment };
        let rrset = RrSet::new(owner, self.rrtype, &input, zone).map_err(|faults| {
            faults.into_iter().flat_map(|fault| self.told(fault.detail)).collect::<Vec<_>>()
        })?;
        if rrset.records().len() < count {
            return Err(self.told("a record stands there twice (Duplicate record in RRset)"));
        }
        Ok(rrset)
    }

    fn ttl(&self) -> Result<i64, Vec<String>> {
        let ttl = self.item.get("ttl").and_then(Value::as_i64);
        ttl.ok_or_else(|| self.told("Key 'ttl' not present or not an Integer"))
    }

    fn content(&self, record: &Value) -> Result<String, Vec<String>> {
        if record.get("disabled").is_some_and(|disabled| *disabled == Value::Bool(true)) {
            return Err(self.told("a disabled record cannot be kept here: leave it out"));
        }
        text(record, "content").map(str::to_owned).map_err(|told| self.told(told.join("")))
    }

    /// The comment that was sent; none where nothing is said of it.
    fn comment(&self) -> Result<Option<Option<String>>, Vec<String>> {
        match list(self.item, "comments").map_err(|told| self.told(told.join("")))? {
            None => Ok(None),
            Some([]) => Ok(Some(None)),
            Some([one]) => {
                let content = text(one, "content").map_err(|told| self.told(told.join("")))?;
                Ok(Some((!content.is_empty()).then(|| content.to_owned())))
            }
            Some(many) => Err(self.told(format!("{} comments: an RRset has one here", many.len()))),
        }
    }

    /// EXTEND and PRUNE: one value.
    fn single(
        &self,
        zone: &DomainName,
        records: Option<&[Value]>,
        is_new: bool,
    ) -> Result<RrsetChange, Vec<String>> {
        let (owner, rrtype) = (self.inside()?, self.rrtype);
        let Some([record]) = records else {
            return Err(self.told("Exactly one record should be provided"));
        };
        let ttl = Ttl::new(self.ttl()?).map_err(|fault| self.told(fault.detail))?;
        let rdata =
            Rdata::parse(rrtype, &self.content(record)?, zone).map_err(|fault| self.told(fault.detail))?;
        let records = vec![rdata];
        Ok(if is_new {
            RrsetChange::Add { owner, rrtype, ttl: Some(ttl), records }
        } else {
            RrsetChange::Remove { owner, rrtype, records }
        })
    }
}
