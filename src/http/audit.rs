//! `GET /api/audit`: who did what, by whatever an auditor asks; newest first, as JSON pages, as a table, or as lines.

use crate::app::App;
use crate::command::{Command, Meta};
use crate::history::heads;
use crate::history::page::{self, Form};
use crate::history::query::Params;
use crate::history::rights::Rights;
use crate::history::trail::{self, CSV_HEAD, Question};
use crate::http::auth::Authenticated;
use crate::http::dto::history::{AuditEvent, SignedHeads};
use crate::http::page::{self as list, Listing, Page, PageParams};
use crate::http::query::NoQuery;
use crate::http::{Problem, envelope};
use async_stream::stream;
use axum::body::{Body, Bytes};
use axum::extract::{OriginalUri, State};
use axum::http::HeaderMap;
use axum::http::request::Parts;
use axum::response::Response;
use chrono::NaiveDate;
use futures_util::StreamExt;
use headwater_events::actor::{Resource, Verb};
use headwater_events::admin::AdminCommand;
use headwater_events::event::AuditExported;
use headwater_events::ids::Position;
use headwater_events::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use tokio::sync::Semaphore;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

/// Events that are read at once for the whole list.
const LINES_PAGE_EVENTS: i64 = 1_000;
/// Exports of heads at once, in one process: each holds a connection.
const HEADS_MAX_COUNT: usize = 2;

static HEADS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(HEADS_MAX_COUNT)));

/// The keys of the query.
const KEYS: &[&str] =
    &["domain", "tenant", "actor", "token", "type", "operation", "from", "to", "text", "cursor", "limit"];

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(trail_of)).routes(routes!(signed))
}

/// What an auditor asks.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)] // the documentation of what `question` reads
struct AuditParams {
    /// Of this domain.
    domain: Option<String>,
    /// Of this tenant.
    tenant: Option<Uuid>,
    /// By this actor.
    actor: Option<Uuid>,
    /// With this token.
    token: Option<Uuid>,
    /// Whose type begins so (repeated, at most 100).
    r#type: Option<Vec<String>>,
    /// Of this operation.
    operation: Option<Uuid>,
    /// From this time on (RFC 3339).
    from: Option<String>,
    /// Before this time (RFC 3339).
    to: Option<String>,
    /// With words that begin so.
    text: Option<String>,
    /// Where the next page begins.
    cursor: Option<String>,
    /// How many, from 1 to 1000.
    #[param(default = 50)]
    limit: Option<u32>,
}

fn time(params: &Params, key: &str) -> Result<Option<Timestamp>, Problem> {
    let wrong = |text: &str| Problem::malformed(format!("{key}={text:?} is not an RFC 3339 time"));
    params.one(key)?.map(|text| Timestamp::parse(text).ok_or_else(|| wrong(text))).transpose()
}

fn question(params: &Params) -> Result<Question, Problem> {
    const ID: &str = "a UUID";
    let text = params.one("text")?.map(str::to_owned);
    if text.as_ref().is_some_and(|text| !text.chars().any(char::is_alphanumeric)) {
        return Err(Problem::malformed("text holds no word to search for"));
    }
    let domain = params.domains("domain")?;
    if domain.as_ref().is_some_and(|domains| domains.len() > 1) {
        return Err(Problem::malformed("domain stands more than once in the query"));
    }
    Ok(Question {
        domain: domain.and_then(|domains| domains.into_iter().next()),
        tenant: params.parsed("tenant", ID)?,
        actor: params.parsed("actor", ID)?,
        token: params.parsed("token", ID)?,
        types: params.types("type")?,
        operation: params.parsed("operation", ID)?,
        from: time(params, "from")?,
        to: time(params, "to")?,
        text,
        before: params.cursor("cursor")?.map(|cursor| cursor.position),
    })
}

/// Who did what, newest first.
#[utoipa::path(get, path = "/api/audit", tag = "history", params(AuditParams),
    responses((status = 200, description = "A page: items and next; the whole trail as lines or as a table",
        content((Vec<AuditEvent> = "application/json"), (String = "text/csv")))))]
async fn trail_of(
    State(app): State<App>,
    who: Authenticated,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
    parts: Parts,
) -> Result<Response, Problem> {
    let params = Params::read(&uri, KEYS)?;
    let mut asked = question(&params)?;
    let limit = params.limit()?;
    let rights = Rights::load(&app.pool, &who).await?;
    let form = Form::of(&headers);
    if form != Form::Json {
        let media = form.content_type();
        let media = media.to_str().unwrap_or_default().split(';').next().unwrap_or_default();
        // What is exported ends before the event that tells of it.
        if let Some(told) = record(&app, &who, &parts, "trail", media, &asked).await? {
            asked.before = Some(asked.before.map_or(told, |before| before.min(told)));
        }
        return Ok(form.response(whole(app, rights, asked, form)));
    }
    // One more than is shown says whether there is a next page.
    let mut trail = trail::read(&app.pool, &app.log, &app.hub, &rights, &asked, limit + 1).await?;
    let shown = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = trail.events.len() > shown;
    let events: Vec<_> = trail.events.drain(..).take(shown).collect();
    let mut items = Vec::new();
    for event in &events {
        if !items.is_empty() {
            items.push(b',');
        }
        trail.json(&mut items, event, &app.hub, &rights)?;
    }
    let last = events.last().map(|event| event.position()).transpose()?;
    Ok(page::page(&uri, &items, "cursor", last.filter(|_| more)))
}

/// Says in the log that a part of the trail leaves the platform; gives the position at which it stands.
async fn record(
    app: &App,
    who: &Authenticated,
    parts: &Parts,
    what: &str,
    format: &str,
    asked: &Question,
) -> Result<Option<Position>, Problem> {
    let Some(user) = who.caller.user() else { return Ok(None) };
    let mut filters = BTreeMap::new();
    let mut tell = |key: &str, value: Option<String>| {
        filters.extend(value.map(|value| (key.to_owned(), value)));
    };
    tell("domain", asked.domain.clone());
    tell("tenant", asked.tenant.map(|id| id.to_string()));
    tell("actor", asked.actor.map(|id| id.to_string()));
    tell("token", asked.token.map(|id| id.to_string()));
    tell("type", asked.types.as_ref().map(|types| types.join(",")));
    tell("operation", asked.operation.map(|id| id.to_string()));
    tell("from", asked.from.map(|at| at.to_string()));
    tell("to", asked.to.map(|at| at.to_string()));
    tell("text", asked.text.as_ref().map(|_| "given".to_owned()));
    let exported = AuditExported { what: what.to_owned(), format: format.to_owned(), filters };
    let internal = Meta::internal();
    let request = envelope::current_request().unwrap_or(internal.request);
    let meta = Meta { request, client: envelope::client(parts), ..internal };
    let command = Command::admin(AdminCommand::RecordExport { user, exported });
    Ok(app.commit.submit(who.caller.clone(), command, meta).await?.position)
}

/// Where every stream of the log ended, signed once a day, newest first (administrators). As lines: where each of them
/// ends now, signed, to be kept elsewhere; `headwater audit verify --heads FILE` compares it with the log.
#[utoipa::path(get, path = "/api/audit/heads", tag = "history", params(PageParams),
    responses((status = 200, description = "A page: items and next; every stream's end as lines",
        content((Vec<SignedHeads> = "application/json"), (String = "application/x-ndjson")))))]
async fn signed(
    State(app): State<App>,
    who: Authenticated,
    headers: HeaderMap,
    parts: Parts,
    wanted: Listing<NoQuery, String>,
) -> Result<Response, Problem> {
    who.may(Verb::Read, Resource::Platform, "the heads of the log")?;
    if Form::of(&headers) == Form::Lines {
        let busy = |_| Problem::unavailable("the heads are being exported already");
        let permit = HEADS.clone().try_acquire_owned().map_err(busy)?;
        app.signer.current(&app).await?;
        record(&app, &who, &parts, "heads", "application/x-ndjson", &Question::default()).await?;
        let lines = heads::export(app).map(move |piece| {
            let _held_until_the_end = &permit;
            piece.map(Bytes::from).map_err(std::io::Error::other)
        });
        return Ok(Form::Lines.response(Body::from_stream(lines)));
    }
    list::list(wanted, move |before: Option<String>, most| {
        let pool = app.pool.clone();
        async move {
            let before = before.map(|day| day.parse::<NaiveDate>()).transpose();
            let before = before.map_err(|_| Problem::malformed("this is not a cursor of this list"))?;
            let found = heads::signed(&pool, before, most).await?;
            Ok(Page { items: found.into_iter().map(|(day, body)| (day.to_string(), body)).collect() })
        }
    })
    .await
}

/// Everything that was asked for, pulled by the reader.
fn whole(app: App, rights: Rights, mut asked: Question, form: Form) -> Body {
    Body::from_stream(stream! {
        if form == Form::Csv {
            yield Ok(Bytes::from_static(CSV_HEAD.as_bytes()));
        }
        loop {
            let trail = trail::read(&app.pool, &app.log, &app.hub, &rights, &asked, LINES_PAGE_EVENTS)
                .await
                .map_err(std::io::Error::other)?;
            let Some(last) = trail.events.last() else { return };
            let mut out = Vec::new();
            for event in &trail.events {
                let written = if form == Form::Csv {
                    trail.csv(&mut out, event, &app.hub, &rights)
                } else {
                    let written = trail.json(&mut out, event, &app.hub, &rights);
                    out.push(b'\n');
                    written
                };
                written.map_err(std::io::Error::other)?;
            }
            let before: Position = last.position().map_err(std::io::Error::other)?;
            asked.before = Some(before);
            yield Ok::<_, std::io::Error>(Bytes::from(out));
        }
    })
}
