//! `GET /api/events`: the log in pages, ascending, with the filters and the rights of the stream.

use crate::app::App;
use crate::history::frames::{self, Extras};
use crate::history::page::{self, Form};
use crate::history::query::Params;
use crate::history::reader::Filter;
use crate::history::rights::{Rights, Seen};
use crate::http::Problem;
use crate::http::auth::Authenticated;
use crate::http::dto::history::Event;
use crate::store::raw::{RawPage, Selection};
use async_stream::stream;
use axum::body::{Body, Bytes};
use axum::extract::{OriginalUri, State};
use axum::http::HeaderMap;
use axum::response::Response;
use headwater_events::ids::Position;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// Windows of the log that one page looks at, at most; it then ends early, with a cursor.
const PAGE_MAX_WINDOWS: usize = 100;
/// Events that are read at once for the whole list.
const LINES_PAGE_EVENTS: i64 = 1_000;

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Which events are wanted.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)] // the documentation of what `list` reads
struct EventListParams {
    /// Of these domains (repeated, at most 100).
    domain: Option<Vec<String>>,
    /// Whose type begins so (repeated, at most 100).
    r#type: Option<Vec<String>>,
    /// After this position or event id; without it, from the beginning.
    after: Option<String>,
    /// The same as `after`, and wins over it.
    cursor: Option<String>,
    /// How many, from 1 to 1000.
    #[param(default = 50)]
    limit: Option<u32>,
}

/// What is listed, and for whom.
#[derive(Debug)]
struct Listing {
    app: App,
    rights: Rights,
    filter: Filter,
    up_to: Position,
}

/// The log, ascending, as far as the caller may see it.
#[utoipa::path(get, path = "/api/events", tag = "history", params(EventListParams),
    responses((status = 200, body = Vec<Event>, description = "A page: items and next")))]
async fn list(
    State(app): State<App>,
    who: Authenticated,
    OriginalUri(uri): OriginalUri,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let params = Params::read(&uri, &["after", "cursor", "limit", "domain", "type"])?;
    let filter = Filter { domains: params.domains("domain")?, types: params.types("type")? };
    let after = match params.cursor("cursor")? {
        Some(cursor) => Some(cursor),
        None => params.cursor("after")?,
    };
    let after = after.map_or(Position::ZERO, |cursor| cursor.position);
    let limit = params.limit()?;
    let rights = Rights::load(&app.pool, &who).await?;
    // Nothing after the position of the rights is shown: it may hold a revocation.
    let up_to = rights.at();
    let listing = Listing { app, rights, filter, up_to };
    if Form::of(&headers) == Form::Lines {
        return Ok(Form::Lines.response(lines(listing, after)));
    }
    let mut items = Vec::new();
    let mut cursor = after;
    let mut wanted = limit;
    for _ in 0..PAGE_MAX_WINDOWS {
        if cursor >= up_to || wanted == 0 {
            break;
        }
        let page = listing.read(cursor, wanted).await?;
        wanted -= listing.write(&page, &mut items, b",")?;
        cursor = page.end;
    }
    Ok(page::page(&uri, &items, "after", (cursor < up_to).then_some(cursor)))
}

/// The whole list, one event a line, pulled by the reader.
fn lines(listing: Listing, after: Position) -> Body {
    Body::from_stream(stream! {
        let mut cursor = after;
        while cursor < listing.up_to {
            let page = listing.read(cursor, LINES_PAGE_EVENTS).await.map_err(std::io::Error::other)?;
            let mut out = Vec::new();
            listing.write(&page, &mut out, b"\n").map_err(std::io::Error::other)?;
            if !out.is_empty() {
                out.push(b'\n');
                yield Ok::<_, std::io::Error>(Bytes::from(out));
            }
            cursor = page.end;
        }
    })
}

impl Listing {
    async fn read(&self, after: Position, most: i64) -> Result<RawPage, crate::store::read::ReadError> {
        let Filter { domains, types } = self.filter.clone();
        let selection = Selection { domains, types, ..self.rights.selection() };
        let page = self.app.log.select(&selection, after, self.up_to, most).await?;
        self.app.hub.learn_clients(&self.app.log, &page.events).await?;
        Ok(page)
    }

    /// Appends the envelopes that may be shown; gives how many.
    fn write(&self, page: &RawPage, out: &mut Vec<u8>, between: &[u8]) -> Result<i64, sqlx::Error> {
        let mut count = 0;
        for event in &page.events {
            let view = event.view()?;
            let seen = Seen::from(&view);
            if !self.filter.passes(&seen) || !self.rights.shows(&seen) {
                continue;
            }
            if !out.is_empty() {
                out.extend_from_slice(between);
            }
            let client = self.app.hub.shown_client(&view, self.rights.shows_client(&seen));
            frames::envelope(out, &view, Extras { client: client.as_deref(), ..Extras::default() });
            count += 1;
        }
        Ok(count)
    }
}
