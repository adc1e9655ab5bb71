//! Zones as they are read: all of them, one with its RRsets, one as text. Each is streamed from one statement, so that it
//! is of one moment however large it is.

use axum::body::{Body, Bytes};
use axum::extract::{FromRequestParts, Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt};
use headwater_events::actor::Caller;
use headwater_events::dns::{DomainName, OwnerName, RrType};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::dto::{self, Rrset};
use crate::app::App;
use crate::http::auth::Authenticated;
use crate::http::domains::{known, unchanged};
use crate::http::query::Pairs;
use crate::http::rrsets::reads;
use crate::http::{Problem, conditional, page};
use crate::query::domains::{self, Platform, StoredDomain};
use crate::query::rrsets::{self, ShownRrset};
use crate::query::zones::{self as all, ListedZone};

/// Answers at once that hold a connection to the database, in one process; the next waits.
const STREAMS_MAX_COUNT: usize = 4;
/// How long it waits: those who read slowly hold up nobody for longer.
const TURN_MAX: Duration = Duration::from_secs(10);
/// How long a client that had no turn should stay away.
const TURN_RETRY: Duration = Duration::from_secs(5);
/// Octets that are put together before they are sent.
const CHUNK_BYTES: usize = 32 * 1024;
/// Zones of a page where one is asked for, at most.
const PAGE_MAX_ZONES: i64 = 10_000;
/// What JSON is here: clients compare it as it stands.
const JSON: HeaderValue = HeaderValue::from_static("application/json");

static STREAMS: std::sync::LazyLock<Arc<Semaphore>> =
    std::sync::LazyLock::new(|| Arc::new(Semaphore::new(STREAMS_MAX_COUNT)));

/// `{zone}`: its id or its name, with the final dot or without, in any case.
pub struct ZonePath(pub DomainName);

impl<S: Send + Sync> FromRequestParts<S> for ZonePath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let missing = || Problem::not_found("a zone of this name");
        let path = Path::<HashMap<String, String>>::from_request_parts(parts, state).await;
        let Path(path) = path.map_err(|_| missing())?;
        let id = path.get("zone").ok_or_else(missing)?;
        dto::zone_name(id).map(Self).ok_or_else(missing)
    }
}

/// A zone that the caller may know of, for routes that say something fixed of it.
pub struct Known(pub DomainName);

impl FromRequestParts<App> for Known {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Problem> {
        let auth = Authenticated::from_request_parts(parts, app).await?;
        let ZonePath(name) = ZonePath::from_request_parts(parts, app).await?;
        zone(app, &auth, &name).await?;
        Ok(Self(name))
    }
}

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get)).routes(routes!(export))
}

/// The domain of a zone, if the caller may know of it and it is not deleted.
///
/// # Errors
/// 404.
pub async fn zone(app: &App, auth: &Authenticated, name: &DomainName) -> Result<StoredDomain, Problem> {
    let found = known(app, auth, name).await?;
    if found.state.status.is_deleted() {
        return Err(Problem::not_found(format!("domain {name}")));
    }
    Ok(found)
}

/// Waits for its turn to hold a connection.
async fn turn() -> Result<OwnedSemaphorePermit, Problem> {
    let turn = tokio::time::timeout(TURN_MAX, STREAMS.clone().acquire_owned()).await;
    let busy = |_| Problem::unavailable("too many zones are being read at once").retry_after(TURN_RETRY);
    turn.map_err(busy)?.map_err(|_| Problem::unavailable("the program is ending"))
}

fn streamed(
    chunks: impl Stream<Item = Result<Bytes, std::io::Error>> + Send + 'static,
    media: HeaderValue,
) -> Response {
    let mut response = Body::from_stream(chunks).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, media);
    response
}

/// Every zone that the caller may see, without RRsets. A page, and where the next one begins, only where `?limit=` asks
/// for it.
#[utoipa::path(get, path = "/api/v1/servers/localhost/zones")]
async fn list(State(app): State<App>, auth: Authenticated, uri: Uri) -> Result<Response, Problem> {
    let mut pairs = Pairs::parse(uri.query())?;
    let wanted = pairs.one("zone");
    let limit = pairs.parsed("limit", |text| match text.parse::<i64>() {
        Ok(limit) if (1..=PAGE_MAX_ZONES).contains(&limit) => Ok(limit),
        _ => Err(format!("write a number from 1 to {PAGE_MAX_ZONES}")),
    });
    let after = pairs.one("cursor");
    pairs.taken()?;
    let platform = domains::platform(&app.pool).await?;
    let visible = auth.caller.visible();
    if let Some(wanted) = wanted {
        let found = match dto::zone_name(&wanted) {
            Some(name) => match zone(&app, &auth, &name).await {
                Err(problem) if problem.code() == "not_found" => None,
                found => Some(found?),
            },
            None => None,
        };
        let listed = found.map(|one| {
            let serial = one.serial(&platform);
            dto::zone(&one.state.name, &one.state.labels, serial)
        });
        return Ok(json_of(&json!(Vec::from_iter(listed))));
    }
    if let Some(limit) = limit {
        let rows = all::listed(app.pool.clone(), visible, after, Some(limit + 1));
        let found: Vec<Result<ListedZone, sqlx::Error>> = Box::pin(rows).collect().await;
        let mut found = found.into_iter().collect::<Result<Vec<_>, _>>()?;
        let most = usize::try_from(limit).unwrap_or(usize::MAX);
        let is_more = found.len() > most;
        found.truncate(most);
        let next = found.last().filter(|_| is_more).map(|last| last.name.to_string());
        let bodies: Vec<_> = found.iter().map(|one| listed(one, &platform)).collect();
        let mut response = json_of(&json!(bodies));
        let link = next.map(|next| format!("<{}?limit={limit}&cursor={next}>; rel=\"next\"", uri.path()));
        if let Some(link) = link.and_then(|link| HeaderValue::try_from(link).ok()) {
            response.headers_mut().insert(header::LINK, link);
        }
        return Ok(response);
    }
    let permit = turn().await?;
    let rows = all::listed(app.pool.clone(), visible, None, None);
    Ok(streamed(zone_list(rows, platform, permit), JSON))
}

fn listed(one: &ListedZone, platform: &Platform) -> Map<String, Value> {
    dto::zone(&one.name, &one.labels, one.serial(platform))
}

fn json_of(body: &Value) -> Response {
    let mut response = axum::Json(body).into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, JSON);
    response
}

fn zone_list(
    rows: impl Stream<Item = Result<ListedZone, sqlx::Error>> + Send,
    platform: Platform,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Bytes, std::io::Error>> + Send {
    async_stream::try_stream! {
        let _held_until_the_end = permit;
        let mut rows = std::pin::pin!(rows);
        let mut out = b"[".to_vec();
        let mut first = true;
        while let Some(row) = rows.next().await {
            let row = row.map_err(std::io::Error::other)?;
            if !std::mem::replace(&mut first, false) {
                out.push(b',');
            }
            serde_json::to_writer(&mut out, &listed(&row, &platform))?;
            if out.len() >= CHUNK_BYTES {
                yield Bytes::from(std::mem::take(&mut out));
            }
        }
        out.push(b']');
        yield Bytes::from(out);
    }
}

/// Which RRsets of a zone are wanted.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// None of them.
    pub none: bool,
    owner: Option<String>,
    rrtype: Option<String>,
}

impl Wanted {
    /// Reads them; what else the query says does not matter.
    ///
    /// # Errors
    /// 400.
    pub fn read(uri: &Uri) -> Result<Self, Problem> {
        let mut pairs = Pairs::parse(uri.query())?;
        let none = pairs.one("rrsets").is_some_and(|text| text.eq_ignore_ascii_case("false"));
        let (owner, rrtype) = (pairs.one("rrset_name"), pairs.one("rrset_type"));
        pairs.taken()?;
        Ok(Self { none, owner, rrtype })
    }

    /// What is told apart by owner and type; nothing where there can be none.
    fn read_at(&self, zone: &DomainName) -> Option<(Option<OwnerName>, Option<RrType>)> {
        let owner = self.owner.as_ref().map(|name| OwnerName::parse(name, zone)).transpose().ok()?;
        let rrtype = self.rrtype.as_ref().map(|text| RrType::parse(text)).transpose().ok()?;
        Some((owner, rrtype))
    }
}

/// One zone with its RRsets, those that the platform makes among them.
#[utoipa::path(get, path = "/api/v1/servers/localhost/zones/{zone}")]
async fn get(
    State(app): State<App>,
    auth: Authenticated,
    ZonePath(name): ZonePath,
    headers: HeaderMap,
    uri: Uri,
) -> Result<Response, Problem> {
    let wanted = Wanted::read(&uri)?;
    let held = zone(&app, &auth, &name).await?;
    if unchanged(&app, &headers, held.state.id, held.state.revision).await? {
        return Ok(conditional::not_modified(held.state.revision));
    }
    shown(&app, auth.caller, held, &wanted).await
}

/// A zone as it is shown.
///
/// # Errors
/// When the database does not answer.
pub async fn shown(
    app: &App,
    caller: Caller,
    held: StoredDomain,
    wanted: &Wanted,
) -> Result<Response, Problem> {
    let platform = domains::platform(&app.pool).await?;
    let revision = held.state.revision;
    let fields = dto::whole_zone(&held.state.name, &held.state.labels, held.serial(&platform));
    let mut response = if wanted.none {
        json_of(&json!(fields))
    } else {
        let permit = turn().await?;
        let rows = readable(app, caller, &held, &platform, wanted).await?;
        streamed(zone_whole(fields, held.state.name, rows, permit), JSON)
    };
    conditional::set_etag(response.headers_mut(), revision);
    Ok(response)
}

/// The RRsets that the caller may read and that are wanted.
async fn readable(
    app: &App,
    caller: Caller,
    held: &StoredDomain,
    platform: &Platform,
    wanted: &Wanted,
) -> Result<impl Stream<Item = Result<ShownRrset, sqlx::Error>> + Send + use<>, Problem> {
    let at = wanted.read_at(&held.state.name);
    let of = held.state.clone();
    let asked = at.clone();
    let passes = move |one: &ShownRrset| {
        let Some((owner, rrtype)) = &at else { return false };
        owner.as_ref().is_none_or(|owner| *owner == one.owner)
            && rrtype.is_none_or(|rrtype| rrtype == one.rrtype)
            && reads(&caller, &of, one)
    };
    let mut derived: Vec<ShownRrset> = rrsets::derived(held, platform);
    derived.reverse();
    derived.extend(rrsets::answers(&app.pool, &held.state, platform).await?);
    // One RRset is found by its key, however large the zone is.
    let stored = match &asked {
        Some((Some(owner), Some(rrtype))) => {
            let one = rrsets::one(&app.pool, held.state.id, &owner.key(), *rrtype).await?;
            futures_util::stream::iter(one.map(Ok)).left_stream()
        }
        _ => rrsets::zone(app.pool.clone(), held.state.id).right_stream(),
    };
    let rows = futures_util::stream::iter(derived.into_iter().map(Ok)).chain(stored);
    Ok(rows.filter(move |one| std::future::ready(one.as_ref().map_or(true, &passes))))
}

fn zone_whole(
    fields: Map<String, Value>,
    name: DomainName,
    rows: impl Stream<Item = Result<ShownRrset, sqlx::Error>> + Send,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Bytes, std::io::Error>> + Send {
    async_stream::try_stream! {
        let _held_until_the_end = permit;
        let mut rows = std::pin::pin!(rows);
        let mut out = serde_json::to_vec(&fields)?;
        // The closing brace comes after the RRsets.
        out.pop();
        out.extend_from_slice(b",\"rrsets\":[");
        let mut first = true;
        while let Some(row) = rows.next().await {
            let row = row.map_err(std::io::Error::other)?;
            if !std::mem::replace(&mut first, false) {
                out.push(b',');
            }
            serde_json::to_writer(&mut out, &Rrset::new(row, &name))?;
            if out.len() >= CHUNK_BYTES {
                yield Bytes::from(std::mem::take(&mut out));
            }
        }
        out.extend_from_slice(b"]}");
        yield Bytes::from(out);
    }
}

/// A zone as text, one record on a line; inside JSON for those that ask for that.
#[utoipa::path(get, path = "/api/v1/servers/localhost/zones/{zone}/export")]
async fn export(
    State(app): State<App>,
    auth: Authenticated,
    ZonePath(name): ZonePath,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let held = zone(&app, &auth, &name).await?;
    let json = page::accepts(&headers, "application/json");
    let platform = domains::platform(&app.pool).await?;
    let permit = turn().await?;
    let rows = readable(&app, auth.caller, &held, &platform, &Wanted::default()).await?;
    let media = if json { JSON } else { HeaderValue::from_static("text/plain") };
    let mut response = streamed(zone_text(held.state.name, rows, json, permit), media);
    conditional::set_etag(response.headers_mut(), held.state.revision);
    Ok(response)
}

fn zone_text(
    name: DomainName,
    rows: impl Stream<Item = Result<ShownRrset, sqlx::Error>> + Send,
    json: bool,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Bytes, std::io::Error>> + Send {
    async_stream::try_stream! {
        let _held_until_the_end = permit;
        let mut rows = std::pin::pin!(rows);
        let mut out = if json { "{\"zone\":\"".to_owned() } else { String::new() };
        while let Some(row) = rows.next().await {
            let row = row.map_err(std::io::Error::other)?;
            let (owner, ttl, rrtype) = (dto::absolute(&row, &name), row.body.ttl, row.rrtype);
            for record in row.body.records {
                let line = format!("{owner}\t{ttl}\tIN\t{rrtype}\t{}\n", dto::content(rrtype, record));
                if json {
                    let quoted = serde_json::to_string(&line)?;
                    out.push_str(quoted.trim_start_matches('"').strip_suffix('"').unwrap_or_default());
                } else {
                    out.push_str(&line);
                }
            }
            if out.len() >= CHUNK_BYTES {
                yield Bytes::from(std::mem::take(&mut out));
            }
        }
        if json {
            out.push_str("\"}");
        }
        yield Bytes::from(out);
    }
}
