//! RRsets of a domain: list, read, put, delete, and many at once.

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use headwater_events::actor::{self, Caller, DomainRef, Resource, Verb};
use headwater_events::dns::RrType;
use headwater_events::domain::{DomainCommand, DomainState};
use headwater_events::ids::Revision;
use headwater_events::reject::Fault;
use std::sync::Arc;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::asof::{self, MomentParams};
use super::auth::Authenticated;
use super::body::NoBody;
use super::domains::{known, seen, unchanged};
use super::dto::Receipt;
use super::dto::rrset::{Batch, BatchChanges, PutRrset, Rrset};
use super::mutation::Mutation;
use super::page::{Listing, Page, PageParams};
use super::path::{DomainPath, RrsetPath};
use super::query::{FromQuery, Pairs, Query};
use super::{Problem, conditional, page};
use crate::app::App;
use crate::command::Command;
use crate::query::asof::{self as past, Moment};
use crate::query::domains::{self, StoredDomain};
use crate::query::rrsets::{self, ShownRrset};

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(batch)).routes(routes!(get, put, delete))
}

/// Which RRsets are wanted, and as of when.
#[derive(Debug, Clone, Default)]
struct Filter {
    moment: Moment,
    managed_by: Option<String>,
}

/// Which RRsets are wanted.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)] // the documentation of what `Filter` reads
struct FilterParams {
    /// Those that this tool owns; `platform`: those that the platform derives.
    managed_by: Option<String>,
}

impl FromQuery for Filter {
    fn read(pairs: &mut Pairs) -> Self {
        Self { moment: Moment::read(pairs), managed_by: pairs.one("managed_by") }
    }
}

impl Filter {
    fn passes(&self, one: &ShownRrset) -> bool {
        self.managed_by.as_deref().is_none_or(|manager| one.managed_by() == Some(manager))
    }
}

/// RRsets of a domain in the order of the zone, those that the platform adds among them.
#[utoipa::path(get, path = "/api/domains/{d}/rrsets", tag = "rrsets",
    params(("d" = String, Path, description = "The domain's name"), MomentParams, FilterParams, PageParams),
    responses((status = 200, body = Vec<Rrset>, description = "A page: items and next")))]
async fn list(
    State(app): State<App>,
    auth: Authenticated,
    DomainPath(name): DomainPath,
    headers: HeaderMap,
    wanted: Listing<Filter, (String, i32)>,
) -> Result<Response, Problem> {
    let stored = known(&app, &auth, &name).await?;
    if let Some(revision) = asof::resolve(&app, &stored.state, wanted.filter.moment).await? {
        return list_asof(app, &auth.caller, stored, revision, headers, wanted).await;
    }
    let domain = stored.state.clone();
    let revision = domain.revision;
    if unchanged(&app, &headers, domain.id, revision).await? {
        return Ok(conditional::not_modified(revision));
    }
    let platform = domains::platform(&app.pool).await?;
    let mut derived = rrsets::derived(&stored, &platform);
    derived.extend(rrsets::answers(&app.pool, &domain, &platform).await?);
    let derived = Arc::new(derived);
    let filter = wanted.filter.clone();
    let listed = page::list(wanted, move |after: Option<(String, i32)>, most| {
        let (app, domain, derived) = (app.clone(), domain.clone(), Arc::clone(&derived));
        let (caller, filter) = (auth.caller.clone(), filter.clone());
        async move {
            let found = readable(&app, &caller, &domain, &derived, &filter, (after, most)).await?;
            Ok(Page { items: found.into_iter().map(|one| (one.key(), Rrset::from(one))).collect() })
        }
    });
    let mut response = listed.await?;
    conditional::set_etag(response.headers_mut(), revision);
    Ok(response)
}

/// The same as of a revision.
async fn list_asof(
    app: App,
    caller: &Caller,
    stored: StoredDomain,
    revision: Revision,
    headers: HeaderMap,
    wanted: Listing<Filter, (String, i32)>,
) -> Result<Response, Problem> {
    if unchanged(&app, &headers, stored.state.id, revision).await? {
        return Ok(conditional::not_modified(revision));
    }
    let platform = domains::platform(&app.pool).await?;
    let (state, was) = asof::state(&app, &stored, revision).await?;
    let mut derived = rrsets::derived(&was, &platform);
    derived.extend(rrsets::answers_of(&was.state, state.hostnames.keys(), &platform)?);
    let mut all = state.rrsets;
    all.extend(derived.into_iter().map(|one| (one.key(), one)));
    all.retain(|_, one| reads(caller, &was.state, one) && wanted.filter.passes(one));
    let all = Arc::new(all);
    let listed = page::list(wanted, move |after: Option<(String, i32)>, most| {
        let (app, all, id) = (app.clone(), Arc::clone(&all), was.state.id);
        async move {
            let most = usize::try_from(most).unwrap_or(usize::MAX);
            let from = after.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
            let next = all.range((from, std::ops::Bound::Unbounded)).take(most);
            let mut found: Vec<ShownRrset> = next.map(|(_, one)| one.clone()).collect();
            past::attribute(&app.pool, id, found.iter_mut().filter_map(|one| one.changed.as_mut())).await?;
            Ok(Page { items: found.into_iter().map(|one| (one.key(), Rrset::from(one))).collect() })
        }
    });
    let mut response = listed.await?;
    conditional::set_etag(response.headers_mut(), revision);
    Ok(response)
}

/// The next RRsets that the caller may read and that are wanted: that may be a few of a large zone, so it is looked at page
/// by page until there are enough.
async fn readable(
    app: &App,
    caller: &Caller,
    domain: &DomainState,
    derived: &[ShownRrset],
    filter: &Filter,
    (mut after, most): (Option<(String, i32)>, i64),
) -> Result<Vec<ShownRrset>, Problem> {
    let may_all = actor::decide(caller, Verb::Read, Resource::Contents(seen(domain))).is_granted();
    let whole = may_all && filter.managed_by.is_none();
    let wanted = usize::try_from(most).unwrap_or(usize::MAX);
    let look = if whole { most } else { page::PAGE_MAX_ITEMS };
    let is_shown =
        |one: &ShownRrset| whole || ((may_all || reads(caller, domain, one)) && filter.passes(one));
    let mut shown = Vec::new();
    loop {
        let found = rrsets::page(&app.pool, domain.id, after.as_ref(), look).await?;
        let found = with_derived(found, derived, after.as_ref(), look);
        let next = found.last().map(ShownRrset::key);
        let is_last = i64::try_from(found.len()).is_ok_and(|count| count < look);
        shown.extend(found.into_iter().filter(is_shown));
        if shown.len() >= wanted || is_last || next.is_none() {
            shown.truncate(wanted);
            return Ok(shown);
        }
        after = next;
    }
}

/// Whether the caller may read an RRset, and is shown it.
pub(super) fn reads(caller: &Caller, domain: &DomainState, one: &ShownRrset) -> bool {
    reads_in(caller, seen(domain), one)
}

/// The same of a domain of which no more is known.
pub(super) fn reads_in(caller: &Caller, domain: DomainRef<'_>, one: &ShownRrset) -> bool {
    let resource = Resource::Rrset(domain, &one.owner, one.rrtype);
    actor::decide(caller, Verb::Read, resource).is_granted()
        && caller.shown.managing.shows(one.body.managed_by.as_ref())
}

/// Puts what the platform adds in its place among the stored RRsets of one page.
fn with_derived(
    mut found: Vec<ShownRrset>,
    derived: &[ShownRrset],
    after: Option<&(String, i32)>,
    most: i64,
) -> Vec<ShownRrset> {
    let derived = derived.iter().filter(|one| after.is_none_or(|after| one.key() > *after));
    found.extend(derived.cloned());
    found.sort_by_key(ShownRrset::key);
    found.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    found
}

/// One RRset.
#[utoipa::path(get, path = "/api/domains/{d}/rrsets/{name}/{type}", tag = "rrsets",
    params(("d" = String, Path, description = "The domain's name"), ("name" = String, Path, description = "The owner: www, @, *"), ("type" = String, Path), MomentParams),
    responses((status = 200, body = Rrset)))]
async fn get(
    State(app): State<App>,
    auth: Authenticated,
    at: RrsetPath,
    Query(moment): Query<Moment>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let stored = known(&app, &auth, &at.domain).await?;
    let domain = &stored.state;
    let (owner, rrtype) = at.read().map_err(Problem::invalid)?;
    auth.may(Verb::Read, Resource::Rrset(seen(domain), &owner, rrtype), format!("domain {}", at.domain))?;
    let past = asof::resolve(&app, domain, moment).await?;
    let mut found = match past {
        Some(revision) => past::rrset(&app.pool, domain, revision, &owner, rrtype).await?,
        None => rrsets::one(&app.pool, domain.id, &owner.key(), rrtype).await?,
    };
    if let (None, Some(revision)) = (&found, past) {
        let platform = domains::platform(&app.pool).await?;
        let name = past::hostname(&app.pool, domain, revision, &owner).await?.map(|one| one.owner.key());
        let was = past::settings(&app.pool, &stored, revision).await?;
        let answers = rrsets::answers_of(domain, name.iter(), &platform)?;
        let mut all = rrsets::derived(&was, &platform).into_iter().chain(answers);
        found = all.find(|one| one.owner == owner && one.rrtype == rrtype);
    } else if found.is_none() {
        let platform = domains::platform(&app.pool).await?;
        let answers = rrsets::answers(&app.pool, domain, &platform).await?;
        let mut all = rrsets::derived(&stored, &platform).into_iter().chain(answers);
        found = all.find(|one| one.owner == owner && one.rrtype == rrtype);
    }
    let missing = || Problem::not_found(format!("RRset {owner} {rrtype} of {}", at.domain));
    let shown = found.filter(|one| auth.caller.shown.managing.shows(one.body.managed_by.as_ref()));
    let found = shown.ok_or_else(missing)?;
    if let Some(changed) = &found.changed {
        let revision = changed.revision;
        return conditional::answer(&headers, revision, &Rrset::from(found));
    }
    let revision = past.unwrap_or(domain.revision);
    let unchanged = unchanged(&app, &headers, domain.id, revision).await?;
    Ok(if unchanged {
        conditional::not_modified(revision)
    } else {
        conditional::shown(revision, &Rrset::from(found))
    })
}

/// Put an RRset, whole.
#[utoipa::path(put, path = "/api/domains/{d}/rrsets/{name}/{type}", tag = "rrsets",
    params(("d" = String, Path, description = "The domain's name"), ("name" = String, Path, description = "The owner: www, @, *"), ("type" = String, Path)),
    request_body = PutRrset, responses((status = 200, body = Receipt), (status = 202, body = Receipt)))]
async fn put(
    State(app): State<App>,
    at: RrsetPath,
    mutation: Mutation<PutRrset>,
) -> Result<Response, Problem> {
    let (mutation, body) = mutation.split();
    let command = DomainCommand::PutRrset(body.parse(&at)?);
    Ok(mutation.submit(&app, Command::Domain { name: at.domain, command }).await?.into_response())
}

/// Delete an RRset, whole; 404 when it is absent.
#[utoipa::path(delete, path = "/api/domains/{d}/rrsets/{name}/{type}", tag = "rrsets",
    params(("d" = String, Path, description = "The domain's name"), ("name" = String, Path, description = "The owner: www, @, *"), ("type" = String, Path)),
    responses((status = 200, body = Receipt), (status = 202, body = Receipt)))]
async fn delete(
    State(app): State<App>,
    at: RrsetPath,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    let (owner, rrtype) = at.read().map_err(Problem::invalid)?;
    if owner.is_apex() && matches!(rrtype, RrType::SOA | RrType::NS) {
        known(&app, &mutation.auth, &at.domain).await?;
        let detail = format!("the {rrtype} records of the apex come from the platform");
        return Err(Problem::invalid(vec![Fault::at("", "derived", detail)]));
    }
    let command = DomainCommand::DeleteRrset { owner, rrtype };
    Ok(mutation.submit(&app, Command::Domain { name: at.domain, command }).await?.into_response())
}

/// Change many RRsets atomically, in one revision, judged at the end state. `put` and `delete` take whole RRsets, `add`
/// and `remove` single values, and what of those is there or absent already is no fault. What `delete` names must be
/// there when its turn comes: 404 with the pointer of the change. `ttl` may stand with every op; it says nothing where
/// the RRset goes.
#[utoipa::path(post, path = "/api/domains/{d}/rrsets/batch", tag = "rrsets",
    params(("d" = String, Path, description = "The domain's name")),
    request_body = Batch, responses((status = 200, body = Receipt), (status = 202, body = Receipt)))]
async fn batch(
    State(app): State<App>,
    DomainPath(name): DomainPath,
    mutation: Mutation<Batch>,
) -> Result<Response, Problem> {
    let (mutation, body) = mutation.split();
    let BatchChanges(changes) = BatchChanges::try_from((&name, body))?;
    let command = Command::Domain { name, command: DomainCommand::ChangeRrsets(changes) };
    Ok(mutation.submit(&app, command).await.map_err(Problem::or_absent)?.into_response())
}
