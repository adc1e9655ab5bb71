//! The access log: who came in, and who was turned away. Administrators read all of it, others what is theirs.

use axum::extract::State;
use axum::response::Response;
use headwater_events::actor::{self, Resource, Verb};
use headwater_events::ids::UserId;
use headwater_events::time::Timestamp;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::Authenticated;
use super::dto::person::AccessEntry;
use super::page::{Listing, Page, PageParams};
use super::query::{FromQuery, Pairs};
use super::{Problem, page};
use crate::app::App;
use crate::people::seen::Kind;
use crate::query::access::{self, AccessFilter};

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Which lines are wanted.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)] // the documentation of what `AccessFilter` reads
struct AccessParams {
    /// Of this user.
    user: Option<Uuid>,
    /// Of this kind.
    kind: Option<String>,
    /// Last seen from then on.
    from: Option<String>,
    /// First seen before then.
    to: Option<String>,
}

impl FromQuery for AccessFilter {
    fn read(pairs: &mut Pairs) -> Self {
        let time = |text: &str| {
            Timestamp::parse(text).ok_or_else(|| "write a time as 2030-01-31T12:00:00Z".to_owned())
        };
        let kind = pairs.parsed("kind", |text| {
            let names: Vec<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
            let known = Kind::from_name(text).map(Kind::name);
            known.ok_or_else(|| format!("write one of {}", names.join(", ")))
        });
        let user = pairs.id::<UserId>("user").map(UserId::as_uuid);
        Self { user, kind, from: pairs.parsed("from", time), to: pairs.parsed("to", time) }
    }
}

/// Who came in and who was turned away, newest first: one line a caller, reason and minute. Users see what is theirs.
#[utoipa::path(get, path = "/api/access-log", tag = "history", params(AccessParams, PageParams),
    responses((status = 200, body = Vec<AccessEntry>, description = "A page: items and next")))]
async fn list(
    State(app): State<App>,
    auth: Authenticated,
    mut wanted: Listing<AccessFilter, i64>,
) -> Result<Response, Problem> {
    if !actor::decide(&auth.caller, Verb::Read, Resource::Platform).is_granted() {
        let own = auth.user();
        if let Some(asked) = wanted.filter.user {
            let asked = UserId::from_uuid(asked);
            auth.may(Verb::Read, Resource::User(asked), format!("user {asked}"))?;
        }
        wanted.filter.user = Some(own.as_uuid());
    }
    let filter = wanted.filter.clone();
    page::list(wanted, move |before, most| {
        let (app, filter) = (app.clone(), filter.clone());
        async move {
            let found = access::page(&app.pool, &filter, before, most).await?;
            Ok(Page { items: found.into_iter().map(|one| (one.id, AccessEntry::from(one))).collect() })
        }
    })
    .await
}
