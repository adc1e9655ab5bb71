//! Reading a domain as it was: `?revision=` and `?at=` of everything that shows what it desires, and what differs
//! between two of its revisions. What the platform adds to a zone is shown as the platform is now, with the serial of
//! that revision.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use headwater_events::domain::DomainState;
use headwater_events::ids::Revision;
use headwater_events::time::Timestamp;
use serde::Serialize;
use serde_json::Value;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::sync::Semaphore;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::auth::Authenticated;
use super::domains::visible;
use super::page::{Listing, Page, PageParams};
use super::path::DomainPath;
use super::query::{FromQuery, Pairs};
use super::{Problem, page};
use crate::app::App;
use crate::query::asof::{self, AsOf, AsOfError, Moment, Way};
use crate::query::domains::StoredDomain;

/// Whole states that one process puts together at once.
const STATES_MAX_COUNT: usize = 4;
/// How long a request waits for its turn to put one together.
const STATE_WAIT: Duration = Duration::from_secs(10);

static STATES: LazyLock<Arc<Semaphore>> = LazyLock::new(|| Arc::new(Semaphore::new(STATES_MAX_COUNT)));

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(diff))
}

/// As of when; the newest where neither is given.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)] // the documentation of what `Moment` reads
pub struct MomentParams {
    /// As it was after this revision.
    revision: Option<i64>,
    /// As it was at this time (RFC 3339): after the newest revision at or before it.
    at: Option<String>,
}

fn number(text: &str) -> Result<Revision, String> {
    let number = text.parse::<i64>().ok().filter(|number| *number >= 0);
    number.map(Revision::new).ok_or_else(|| "write the number of a revision".to_owned())
}

impl FromQuery for Moment {
    fn read(pairs: &mut Pairs) -> Self {
        let revision = pairs.parsed("revision", number);
        let at = pairs.parsed("at", |text| {
            Timestamp::parse(text)
                .ok_or_else(|| "write an RFC 3339 time, such as 2026-01-31T12:00:00Z".into())
        });
        match (revision, at) {
            (Some(_), Some(_)) => {
                pairs.fault("invalid_query_value", "revision and at exclude each other: give one".to_owned());
                Self::Now
            }
            (Some(revision), None) => Self::Revision(revision),
            (None, Some(at)) => Self::At(at),
            (None, None) => Self::Now,
        }
    }
}

impl From<AsOfError> for Problem {
    fn from(error: AsOfError) -> Self {
        match error {
            AsOfError::Database(error) => error.into(),
            AsOfError::Unreadable(_) => Self::unavailable(error.to_string()),
            AsOfError::Gone(_) => Self::new(StatusCode::GONE, "gone", error.to_string()),
            AsOfError::Never(what) => Self::not_found(what),
            AsOfError::TooMuch => Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", error.to_string()),
        }
    }
}

/// The revision of a moment of a domain; none for now.
///
/// # Errors
/// 404 for what never was, 410 for what is no longer kept.
pub async fn resolve(app: &App, domain: &DomainState, moment: Moment) -> Result<Option<Revision>, Problem> {
    Ok(asof::resolve(&app.pool, domain, moment).await?)
}

/// Everything that a domain desired after a revision, and the domain as it was.
///
/// # Errors
/// 503 where too many ask for that at once.
pub async fn state(
    app: &App,
    stored: &StoredDomain,
    revision: Revision,
) -> Result<(AsOf, StoredDomain), Problem> {
    let turn = tokio::time::timeout(STATE_WAIT, STATES.clone().acquire_owned()).await;
    let busy = "too many earlier states are being put together at once";
    let _turn = turn.ok().and_then(Result::ok).ok_or_else(|| Problem::unavailable(busy))?;
    let state = asof::state(&app.pool, &stored.state, revision, Way::Nearer).await?;
    let was = StoredDomain {
        state: state.domain.clone(),
        removed: false,
        generation: stored.generation,
        checked: None,
    };
    Ok((state, was))
}

/// Between which revisions.
#[derive(Debug, Clone, Copy)]
struct Between {
    from: Option<Revision>,
    to: Option<Revision>,
}

impl FromQuery for Between {
    fn read(pairs: &mut Pairs) -> Self {
        let read = Self { from: pairs.parsed("from", number), to: pairs.parsed("to", number) };
        if read.from.is_none() {
            pairs.fault("missing_query_key", "from: say from which revision on".to_owned());
        }
        read
    }
}

/// Between which revisions.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)] // the documentation of what `Between` reads
struct BetweenParams {
    /// `before` is as it was after this one.
    from: i64,
    /// `after` is as it was after this one; the newest where it is left out.
    to: Option<i64>,
}

/// One thing that is otherwise.
#[derive(Debug, Serialize, ToSchema)]
#[allow(dead_code)] // the description of what the log says
struct DiffRow {
    /// What: `/rrsets/{name}/{type}`, `/hostnames/{name}`, `/cache`, `/cache/epoch`, `/tls/certificate`, `/status`, or
    /// `/` for labels, external id and the serial's base.
    #[schema(example = "/rrsets/www/A")]
    path: String,
    /// What it was; null where it was not there.
    #[schema(value_type = Option<Object>)]
    before: Value,
    /// What it is; null where it is not there.
    #[schema(value_type = Option<Object>)]
    after: Value,
}

/// What differs between two revisions of a domain; what changed and changed back is left out.
#[utoipa::path(get, path = "/api/domains/{d}/diff", tag = "history",
    params(("d" = String, Path, description = "The domain's name"), BetweenParams, PageParams),
    responses((status = 200, body = Vec<DiffRow>, description = "A page: items and next")))]
async fn diff(
    State(app): State<App>,
    auth: Authenticated,
    DomainPath(name): DomainPath,
    wanted: Listing<Between, String>,
) -> Result<Response, Problem> {
    let domain = visible(&app, &auth, &name).await?.state;
    let Between { from, to } = wanted.filter;
    let to = to.unwrap_or(domain.revision);
    let from = from.unwrap_or(to);
    for revision in [from, to] {
        resolve(&app, &domain, Moment::Revision(revision)).await?;
    }
    page::list(wanted, move |after: Option<String>, most| {
        let (pool, id) = (app.pool.clone(), domain.id);
        async move {
            let after = after.map(hex::decode).transpose();
            let after = after.map_err(|_| Problem::malformed("this is not a cursor of this list"))?;
            let found = asof::diff(&pool, id, (from, to), after.unwrap_or_default(), most).await?;
            Ok(Page { items: found.into_iter().map(|one| (hex::encode(one.key), one.row)).collect() })
        }
    })
    .await
}
