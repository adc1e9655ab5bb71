//! Zones that are made, changed as a whole and deleted.
//!
//! What an administrator's token makes is active at once: it stands for the platform, and whoever provisions by it
//! expects the zone to be served. What anybody else makes is pending until its ownership is proven, and can be read and
//! written until then.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use headwater_events::dns::{DomainName, RrSet};
use headwater_events::domain::{BATCH_MAX_CHANGES, CreateDomain, DomainCommand, DomainPatch, LabelsPatch};
use headwater_events::ids::{DomainId, TenantId};
use headwater_events::zonetext;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::apex::Apex;
use super::dto::{ACCOUNT, DEFAULT_KIND, DEFAULT_SOA_EDIT_API, KIND, SOA_EDIT, SOA_EDIT_API};
use super::error::refused;
use super::patch::{One, Sent};
use super::zones::{self, Wanted, ZonePath, zone};
use crate::app::App;
use crate::command::Command;
use crate::http::Problem;
use crate::query::domains;

/// Kinds of zones that are served from here alone.
const KINDS: [&str; 3] = ["Native", "Master", "Primary"];
/// Kinds that others are the source of, or that list other zones.
const OTHER_KINDS: [&str; 4] = ["Slave", "Secondary", "Producer", "Consumer"];

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(create)).routes(routes!(update, delete))
}

/// What clients set of a zone and want to read again.
struct Settings {
    labels: BTreeMap<String, Option<String>>,
    account: Option<String>,
}

fn flag(body: &Value, key: &str) -> bool {
    body.get(key) == Some(&Value::Bool(true))
}

fn is_filled(body: &Value, key: &str) -> bool {
    body.get(key).and_then(Value::as_array).is_some_and(|items| !items.is_empty())
}

fn text(body: &Value, key: &str, errors: &mut Vec<String>) -> Option<String> {
    match body.get(key) {
        None | Some(Value::Null) => None,
        Some(Value::String(text)) => Some(text.clone()),
        Some(_) => {
            errors.push(format!("Key '{key}' is not a String"));
            None
        }
    }
}

impl Settings {
    fn read(body: &Value, errors: &mut Vec<String>) -> Self {
        let mut labels = BTreeMap::new();
        let mut set = |key: &str, value: Option<String>, default: &str| {
            if let Some(value) = value {
                labels.insert(key.to_owned(), (value != default).then_some(value));
            }
        };
        set(KIND, kind(body, errors), DEFAULT_KIND);
        let account = text(body, "account", errors);
        set(ACCOUNT, account.clone(), "");
        set(SOA_EDIT, text(body, "soa_edit", errors), "");
        set(SOA_EDIT_API, text(body, "soa_edit_api", errors), DEFAULT_SOA_EDIT_API);
        if is_filled(body, "masters") {
            errors.push("a zone has no masters here: its source is this server".to_owned());
        }
        if flag(body, "dnssec") {
            errors.push("zones are not signed here: leave dnssec out".to_owned());
        }
        Self { labels, account }
    }
}

fn kind(body: &Value, errors: &mut Vec<String>) -> Option<String> {
    let sent = text(body, "kind", errors)?;
    let known = |kinds: &[&'static str]| kinds.iter().find(|kind| kind.eq_ignore_ascii_case(&sent)).copied();
    match (known(&KINDS), known(&OTHER_KINDS)) {
        (Some(kind), _) => return Some(kind.to_owned()),
        (None, Some(kind)) => errors.push(format!("zones of kind {kind} are not kept here: use Native")),
        (None, None) => errors.push(format!("Zone kind '{sent}' is not known")),
    }
    None
}

/// A zone as text, in which SOA and apex NS are read and not taken over. The body is bounded, so its records are.
fn zone_text(text: &str, zone: &DomainName) -> Result<Vec<RrSet>, Vec<String>> {
    match zonetext::read(text.as_bytes(), zone, text.len()) {
        Ok(read) => Ok(read.rrsets.into_iter().map(|one| one.rrset).collect()),
        Err(found) => Err(found.faults.iter().map(ToString::to_string).collect()),
    }
}

/// What a new zone holds.
fn rrsets(body: &Value, zone: &DomainName, apex: &Apex, errors: &mut Vec<String>) -> Vec<RrSet> {
    let items = match body.get("rrsets") {
        None | Some(Value::Null) => &[],
        Some(Value::Array(items)) => items.as_slice(),
        Some(_) => {
            errors.push("Key 'rrsets' is not an Array".to_owned());
            &[]
        }
    };
    if items.len() > BATCH_MAX_CHANGES {
        errors.push(format!("{} RRsets: at most {BATCH_MAX_CHANGES} at once", items.len()));
        return Vec::new();
    }
    let (mut all, mut seen) = (Vec::new(), BTreeSet::new());
    for item in items {
        let one = match One::read(item, zone) {
            Ok(one) => one,
            Err(told) => {
                errors.extend(told);
                continue;
            }
        };
        if one.place().is_some_and(|place| !seen.insert(place)) {
            errors.push(format!("{}: Duplicate RRset", one.called()));
        }
        match one.initial(zone, apex) {
            Ok(rrset) => all.extend(rrset),
            Err(told) => errors.extend(told),
        }
    }
    all
}

/// Whether the RRsets of a body hold the NS set of the apex.
fn has_apex_ns(body: &Value, zone: &DomainName) -> bool {
    let items = body.get("rrsets").and_then(Value::as_array).into_iter().flatten();
    let mut read = items.filter_map(|item| One::read(item, zone).ok()?.place());
    read.any(|(owner, rrtype)| Apex::is_here(&owner, rrtype) && rrtype == headwater_events::dns::RrType::NS)
}

fn nameservers(body: &Value, zone: &DomainName, apex: &Apex, errors: &mut Vec<String>) {
    let items = body.get("nameservers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let names: Vec<&str> = items.iter().filter_map(Value::as_str).collect();
    if names.len() < items.len() {
        errors.push("Nameservers are not Strings".to_owned());
    } else if !names.is_empty() && has_apex_ns(body, zone) {
        errors.push("Nameservers list MUST NOT be mixed with zone-level NS in rrsets".to_owned());
    } else {
        errors.extend(apex.nameservers(&names));
    }
}

/// Reads the body of a new zone.
fn new_zone(body: &Value, apex: &Apex) -> Result<(DomainName, Settings, Vec<RrSet>), Problem> {
    let name = body.get("name").and_then(Value::as_str);
    let name = name.ok_or_else(|| refused(vec!["Key 'name' not present or not a String".to_owned()]))?;
    if !name.ends_with('.') {
        return Err(refused(vec![format!("DNS Name '{name}' is not canonical")]));
    }
    let zone = DomainName::parse(name).map_err(|fault| refused(vec![fault.detail]))?;
    let mut errors = Vec::new();
    let settings = Settings::read(body, &mut errors);
    if body.get("kind").and_then(Value::as_str).is_none() {
        errors.push("Key 'kind' not present or not a String".to_owned());
    }
    nameservers(body, &zone, apex, &mut errors);
    let mut held = rrsets(body, &zone, apex, &mut errors);
    let as_text = body.get("zone").and_then(Value::as_str).filter(|text| !text.is_empty());
    if as_text.is_some() && !held.is_empty() {
        errors.push("You cannot give rrsets AND zone data as text".to_owned());
    } else if let Some(as_text) = as_text {
        match zone_text(as_text, &zone) {
            Ok(read) => held = read,
            Err(told) => errors.extend(told),
        }
    }
    if errors.is_empty() { Ok((zone, settings, held)) } else { Err(refused(errors)) }
}

/// Make a zone with everything it holds, at once or not at all. An account that is the id of a tenant says whose it is.
#[utoipa::path(post, path = "/api/v1/servers/localhost/zones")]
async fn create(State(app): State<App>, uri: Uri, sent: Sent) -> Result<Response, Problem> {
    let wanted = Wanted::read(&uri)?;
    let platform = domains::platform(&app.pool).await?;
    let (name, settings, rrsets) = new_zone(&sent.body, &Apex::new(platform.identity.as_ref()))?;
    let named = settings.account.as_deref().and_then(|text| Uuid::parse_str(text).ok());
    let tenant = crate::http::domains::tenant(named.map(TenantId::from_uuid), platform.tenant, &sent.auth)?;
    let labels = settings.labels.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
    let command = Command::CreateDomain(CreateDomain {
        id: DomainId::from_uuid(Uuid::now_v7()),
        name: name.clone(),
        tenant,
        force_active: sent.auth.caller.admin,
        labels,
        external_id: None,
        rrsets,
        serial_floor: None,
    });
    let outcome = sent.submit(&app, command).await?;
    let mut followed = HeaderMap::new();
    sent.follow(&app, outcome.operation, &mut followed).await;
    let held = zone(&app, &sent.auth, &name).await?;
    let mut response = zones::shown(&app, sent.auth.caller, held, &wanted).await?;
    *response.status_mut() = StatusCode::CREATED;
    response.headers_mut().extend(followed);
    Ok(response)
}

/// Change what is said of a zone, not what it holds.
#[utoipa::path(put, path = "/api/v1/servers/localhost/zones/{zone}")]
async fn update(State(app): State<App>, ZonePath(name): ZonePath, sent: Sent) -> Result<Response, Problem> {
    zone(&app, &sent.auth, &name).await?;
    let mut errors = Vec::new();
    let settings = Settings::read(&sent.body, &mut errors);
    if is_filled(&sent.body, "rrsets") {
        errors.push("RRsets are changed by PATCH here: leave rrsets out".to_owned());
    }
    if !errors.is_empty() {
        return Err(refused(errors));
    }
    let labels = Some(LabelsPatch::Merge(settings.labels));
    let command = DomainCommand::Patch(DomainPatch { labels, ..DomainPatch::default() });
    let outcome = sent.submit(&app, Command::Domain { name, command }).await?;
    let mut response = StatusCode::NO_CONTENT.into_response();
    sent.follow(&app, outcome.operation, response.headers_mut()).await;
    Ok(response)
}

/// Delete a zone; its owner can restore it for a while.
#[utoipa::path(delete, path = "/api/v1/servers/localhost/zones/{zone}")]
async fn delete(State(app): State<App>, ZonePath(name): ZonePath, sent: Sent) -> Result<Response, Problem> {
    let command = DomainCommand::Delete;
    let outcome = sent.submit(&app, Command::Domain { name, command }).await?;
    let mut response = StatusCode::NO_CONTENT.into_response();
    sent.follow(&app, outcome.operation, response.headers_mut()).await;
    Ok(response)
}
