//! Members of single domains.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use headwater_events::actor::{Resource, Verb};
use headwater_events::admin::{AdminCommand, OwnedDomain};
use headwater_events::dns::DomainName;
use headwater_events::ids::UserId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::Authenticated;
use super::body::NoBody;
use super::domains::{known, seen, visible};
use super::dto::Receipt;
use super::dto::account::{DomainMember, PutDomainMember};
use super::mutation::{Mutation, Submitted};
use super::page::{Listing, Page, PageParams};
use super::path::{DomainPath, MemberPath};
use super::query::{NoQuery, Query};
use super::{Problem, answer, page};
use crate::app::App;
use crate::command::Command;
use crate::query::accounts::{self, StoredMember};

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(get, put, delete))
}

/// Members of a domain alone; those of its tenant are members of all its domains.
#[utoipa::path(get, path = "/api/domains/{d}/members", tag = "domains",
    params(("d" = String, Path, description = "The domain's name"), PageParams),
    responses((status = 200, body = Vec<DomainMember>, description = "A page: items and next")))]
async fn list(
    State(app): State<App>,
    auth: Authenticated,
    DomainPath(name): DomainPath,
    wanted: Listing<NoQuery, Uuid>,
) -> Result<Response, Problem> {
    let domain = visible(&app, &auth, &name).await?.state;
    page::list(wanted, move |after, most| {
        let (app, name) = (app.clone(), name.clone());
        async move {
            let found = accounts::domain_members(&app.pool, domain.id, None, after, most).await?;
            let item = |one: StoredMember| (one.user.as_uuid(), DomainMember::new(&name, one));
            Ok(Page { items: found.into_iter().map(item).collect() })
        }
    })
    .await
}

/// One member of a domain alone.
#[utoipa::path(get, path = "/api/domains/{d}/members/{user}", tag = "domains",
    params(("d" = String, Path, description = "The domain's name"), ("user" = Uuid, Path)),
    responses((status = 200, body = DomainMember)))]
async fn get(
    State(app): State<App>,
    auth: Authenticated,
    at: MemberPath,
    _: Query<NoQuery>,
) -> Result<Json<DomainMember>, Problem> {
    let domain = visible(&app, &auth, &at.domain).await?.state;
    let owned = OwnedDomain { id: domain.id, name: domain.name, tenant: domain.tenant };
    Ok(Json(membership(&app, &owned, at.user).await?))
}

async fn membership(app: &App, domain: &OwnedDomain, user: UserId) -> Result<DomainMember, Problem> {
    let found = accounts::domain_members(&app.pool, domain.id, Some(user), None, 1).await?.pop();
    let missing = || Problem::not_found(format!("member {user} of domain {}", domain.name));
    Ok(DomainMember::new(&domain.name, found.ok_or_else(missing)?))
}

/// The domain, if the caller may decide about its members.
async fn managed(app: &App, auth: &Authenticated, name: &DomainName) -> Result<OwnedDomain, Problem> {
    let domain = known(app, auth, name).await?.state;
    auth.may(Verb::Manage, Resource::Contents(seen(&domain)), format!("domain {name}"))?;
    Ok(OwnedDomain { id: domain.id, name: domain.name, tenant: domain.tenant })
}

/// Make a user a member of this domain alone, or give such a member another role (owners). It changes nothing that is
/// served, and the domain keeps its revision.
#[utoipa::path(put, path = "/api/domains/{d}/members/{user}", tag = "domains", request_body = PutDomainMember,
    params(("d" = String, Path, description = "The domain's name"), ("user" = Uuid, Path)),
    responses((status = 200, body = DomainMember)))]
async fn put(
    State(app): State<App>,
    at: MemberPath,
    mutation: Mutation<PutDomainMember>,
) -> Result<Response, Problem> {
    let domain = managed(&app, &mutation.auth, &at.domain).await?;
    let (user, role) = (at.user, mutation.body.role);
    let command = AdminCommand::AddDomainMember { domain: domain.clone(), user, role };
    match mutation.submit(&app, Command::admin(command)).await? {
        Submitted::Done(outcome) => Ok(answer::resource(&outcome, &membership(&app, &domain, user).await?)),
        plan => Ok(plan.into_response()),
    }
}

/// End the membership of this domain alone (owners).
#[utoipa::path(delete, path = "/api/domains/{d}/members/{user}", tag = "domains",
    params(("d" = String, Path, description = "The domain's name"), ("user" = Uuid, Path)),
    responses((status = 200, body = Receipt)))]
async fn delete(
    State(app): State<App>,
    at: MemberPath,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    let domain = managed(&app, &mutation.auth, &at.domain).await?;
    if !mutation.has_key() {
        membership(&app, &domain, at.user).await?;
    }
    let command = AdminCommand::RemoveDomainMember { domain, user: at.user };
    Ok(mutation.submit(&app, Command::admin(command)).await?.into_response())
}
