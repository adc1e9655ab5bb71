//! The zone of a domain as a file: BIND text, or JSON. Streamed from one statement, so that it is the zone of one
//! moment however large it is; a few at once, because a slow reader holds a connection.

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use futures_util::{Stream, StreamExt};
use headwater_events::domain::DomainState;
use headwater_events::zonetext;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::asof::{self, MomentParams};
use super::auth::Authenticated;
use super::domains::{known, unchanged};
use super::dto::rrset::Rrset;
use super::path::DomainPath;
use super::query::Query;
use super::rrsets::reads;
use super::{Problem, conditional, page};
use crate::app::App;
use crate::query::asof::Moment;
use crate::query::domains::{self, StoredDomain};
use crate::query::rrsets::{self, ShownRrset};

/// Exports at once, in one process.
const EXPORTS_MAX_COUNT: usize = 4;
/// How long a client that met as many should stay away.
const EXPORT_RETRY: Duration = Duration::from_secs(5);
/// Octets that are put together before they are sent.
const CHUNK_BYTES: usize = 32 * 1024;

static EXPORTS: std::sync::LazyLock<Arc<Semaphore>> =
    std::sync::LazyLock::new(|| Arc::new(Semaphore::new(EXPORTS_MAX_COUNT)));

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(export))
}

/// How an export is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Text,
    Json,
}

/// The whole zone: BIND text, or JSON for those that ask for it. A token that is limited to some records gets those alone.
#[utoipa::path(get, path = "/api/domains/{d}/zone", tag = "zone",
    params(("d" = String, Path, description = "The domain's name"), MomentParams),
    responses((status = 200, content_type = "text/dns", body = String)))]
async fn export(
    State(app): State<App>,
    auth: Authenticated,
    DomainPath(name): DomainPath,
    Query(moment): Query<Moment>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let held = known(&app, &auth, &name).await?;
    let past = asof::resolve(&app, &held.state, moment).await?;
    let revision = past.unwrap_or(held.state.revision);
    if unchanged(&app, &headers, held.state.id, revision).await? {
        return Ok(conditional::not_modified(revision));
    }
    let json = page::accepts(&headers, "application/json") && !page::accepts(&headers, "text/dns");
    let (form, media) =
        if json { (Form::Json, "application/json") } else { (Form::Text, "text/dns; charset=utf-8") };
    let busy =
        |_| Problem::unavailable("too many zones are being exported at once").retry_after(EXPORT_RETRY);
    let permit = EXPORTS.clone().try_acquire_owned().map_err(busy)?;
    let platform = domains::platform(&app.pool).await?;
    // SOA first, as a zone file begins with it.
    let caller = auth.caller;
    let first = |held: &StoredDomain| rrsets::derived(held, &platform).into_iter().rev();
    let body = match past {
        Some(revision) => {
            let (state, held) = asof::state(&app, &held, revision).await?;
            let answers = rrsets::answers_of(&held.state, state.hostnames.keys(), &platform)?;
            let derived =
                first(&held).chain(answers).filter(|one| reads(&caller, &held.state, one)).collect();
            let of = held.state.clone();
            let shown = state.rrsets.into_values().filter(move |one| reads(&caller, &of, one));
            let stored = futures_util::stream::iter(shown.map(Ok));
            Body::from_stream(chunks(form, held.state, derived, stored, permit))
        }
        None => {
            let answers = rrsets::answers(&app.pool, &held.state, &platform).await?;
            let derived =
                first(&held).chain(answers).filter(|one| reads(&caller, &held.state, one)).collect();
            let of = held.state.clone();
            let stored = rrsets::zone(app.pool.clone(), held.state.id).filter(move |one| {
                std::future::ready(one.as_ref().map_or(true, |one| reads(&caller, &of, one)))
            });
            Body::from_stream(chunks(form, held.state, derived, stored, permit))
        }
    };
    let mut response = body.into_response();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    conditional::set_etag(response.headers_mut(), revision);
    Ok(response)
}

fn chunks(
    form: Form,
    domain: DomainState,
    derived: Vec<ShownRrset>,
    stored: impl Stream<Item = Result<ShownRrset, sqlx::Error>> + Send,
    permit: OwnedSemaphorePermit,
) -> impl Stream<Item = Result<Bytes, std::io::Error>> + Send {
    async_stream::try_stream! {
        let _held_until_the_end = permit;
        let mut out = opening(form, &domain);
        let mut first = true;
        for rrset in derived {
            write(form, &mut out, rrset, true, &mut first)?;
        }
        let mut stored = std::pin::pin!(stored);
        while let Some(rrset) = stored.next().await {
            write(form, &mut out, rrset.map_err(std::io::Error::other)?, false, &mut first)?;
            if out.len() >= CHUNK_BYTES {
                yield Bytes::from(std::mem::take(&mut out));
            }
        }
        if form == Form::Json {
            out.push_str("]}\n");
        }
        yield Bytes::from(out);
    }
}

fn opening(form: Form, domain: &DomainState) -> String {
    match form {
        Form::Text => format!("$ORIGIN {}.\n", domain.name),
        Form::Json => format!(
            "{{\"name\":{},\"revision\":{},\"rrsets\":[",
            json!(domain.name.as_str()),
            domain.revision
        ),
    }
}

fn write(
    form: Form,
    out: &mut String,
    rrset: ShownRrset,
    derived: bool,
    first: &mut bool,
) -> Result<(), std::io::Error> {
    if form == Form::Json {
        if !std::mem::replace(first, false) {
            out.push(',');
        }
        let shown = Rrset::of_zone(rrset, derived);
        out.push_str(&serde_json::to_string(&shown).map_err(std::io::Error::other)?);
        return Ok(());
    }
    let ttl = rrset.body.ttl.seconds();
    for record in &rrset.body.records {
        out.push_str(&zonetext::line(&rrset.owner, ttl, rrset.rrtype, record, derived));
    }
    Ok(())
}
