//! What the names of a domain are proven with: read it, bring a certificate, take it away.
//!
//! What must hold: a private key is sealed before it is queued, and nothing that is queued, stored, logged or answered
//! holds it in clear.

use axum::Json;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use headwater_events::actor::{Resource, Verb};
use headwater_events::dns::DomainName;
use headwater_events::domain::{
    DomainCommand, DomainState, NewCertificate, SealedPrivateKey, StoredCertificate, uncovered,
};
use headwater_events::ids::CertificateId;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::asof::{self, MomentParams};
use super::auth::Authenticated;
use super::body::{self, NoBody};
use super::domains::{seen, visible};
use super::dto::Receipt;
use super::dto::tls::{PutCertificate, SentCertificate, TlsBody};
use super::mutation::{Mutation, Submitted};
use super::path::DomainPath;
use super::query::Query;
use super::{Problem, conditional};
use crate::app::App;
use crate::certificate::{self, Checked, Refused};
use crate::command::Command;
use crate::edge::EdgeError;
use crate::query::asof::{self as past, Moment};
use crate::query::sites;
use crate::vault::{Owner, Place, Vault};

/// How often a key is sealed anew because somebody else brought a certificate meanwhile.
const SEAL_MAX_TRIES: usize = 5;
/// The code of a certificate whose turn another one took.
const MOVED: &str = "certificate_moved";

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(get)).routes(routes!(put, delete))
}

/// What the names of a domain are proven with.
#[utoipa::path(get, path = "/api/domains/{d}/tls", tag = "tls",
    params(("d" = String, Path, description = "The domain's name"), MomentParams),
    responses((status = 200, body = TlsBody)))]
async fn get(
    State(app): State<App>,
    auth: Authenticated,
    DomainPath(name): DomainPath,
    Query(moment): Query<Moment>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let domain = visible(&app, &auth, &name).await?.state;
    let found = match asof::resolve(&app, &domain, moment).await? {
        Some(revision) => past::certificate(&app.pool, &domain, revision).await?,
        None => sites::certificate(&app.pool, domain.id).await?,
    };
    match found.as_ref().map(|found| found.changed.revision) {
        Some(changed) => conditional::answer(&headers, changed, &TlsBody::from(found)),
        // What does not exist has no entity tag: a certificate is brought with `If-None-Match: *`.
        None => Ok(Json(TlsBody::from(None)).into_response()),
    }
}

/// Bring a certificate, in the place of the one before.
#[utoipa::path(put, path = "/api/domains/{d}/tls/custom-certificate", tag = "tls",
    params(("d" = String, Path, description = "The domain's name")),
    request_body = PutCertificate, responses((status = 200, body = Receipt), (status = 202, body = Receipt)))]
async fn put(
    State(app): State<App>,
    DomainPath(name): DomainPath,
    mutation: Mutation<SentCertificate>,
) -> Result<Response, Problem> {
    let (mutation, SentCertificate(sent)) = mutation.split();
    let domain = visible(&app, &mutation.auth, &name).await?.state;
    mutation.auth.may(Verb::Write, Resource::Contents(seen(&domain)), format!("domain {name}"))?;
    let checked = match certificate::check(&sent, name.as_str(), app.clock.now()) {
        Ok(checked) => checked,
        Err(refused) => return Err(every_fault(&app, &domain, refused).await?),
    };
    drop(sent);
    let vault = Vault::open(&app.config).map_err(EdgeError::from)?;
    for _ in 1..SEAL_MAX_TRIES {
        match seal_and_submit(&app, &vault, &mutation, &domain, &name, &checked).await {
            Err(problem) if problem.code() == MOVED => {}
            other => return Ok(other?.into_response()),
        }
    }
    Ok(seal_and_submit(&app, &vault, &mutation, &domain, &name, &checked).await?.into_response())
}

/// Seals the key for the version that would come now. Where another one came first, the decision says so.
async fn seal_and_submit(
    app: &App,
    vault: &Vault,
    mutation: &Mutation<()>,
    domain: &DomainState,
    name: &DomainName,
    checked: &Checked,
) -> Result<Submitted, Problem> {
    let current = sites::certificate(&app.pool, domain.id).await?.map(StoredCertificate::from);
    let fresh = CertificateId::from_uuid(Uuid::now_v7());
    let (id, version) = StoredCertificate::following(current.as_ref(), fresh);
    let text = id.to_string();
    let number = i32::try_from(version).unwrap_or(i32::MAX);
    let place = Place { kind: certificate::KEY_KIND, id: &text, version: number };
    let mut connection = app.pool.acquire().await?;
    let owner = Owner::Tenant(domain.tenant);
    let sealed = vault.seal_for(&mut connection, owner, place, checked.key().expose()).await;
    drop(connection);
    let sealed = sealed.map_err(EdgeError::from)?;
    let new = NewCertificate {
        body: checked.body(id, version),
        key: SealedPrivateKey::new(sealed),
        warnings: checked.warnings().to_vec(),
    };
    let command = DomainCommand::PutCertificate(Box::new(new));
    mutation.submit(app, Command::Domain { name: name.clone(), command }).await
}

/// What is wrong with a certificate by itself, and with its names.
async fn every_fault(app: &App, domain: &DomainState, refused: Refused) -> Result<Problem, Problem> {
    let Refused { mut faults, names } = refused;
    if let Some(names) = names.filter(|names| !names.is_empty()) {
        let owners = sites::owners(&app.pool, domain.id).await?;
        let hostnames: Vec<String> = owners.iter().map(|owner| owner.absolute(&domain.name)).collect();
        faults.extend(uncovered(&names, hostnames.iter().map(String::as_str)));
    }
    Ok(body::refused(faults))
}

/// Take the certificate away: TLS is refused for every proxied name; 404 when there is none.
#[utoipa::path(delete, path = "/api/domains/{d}/tls/custom-certificate", tag = "tls",
    params(("d" = String, Path, description = "The domain's name")),
    responses((status = 200, body = Receipt), (status = 202, body = Receipt)))]
async fn delete(
    State(app): State<App>,
    DomainPath(name): DomainPath,
    mutation: Mutation<NoBody>,
) -> Result<Response, Problem> {
    let command = DomainCommand::DeleteCertificate;
    Ok(mutation.submit(&app, Command::Domain { name, command }).await?.into_response())
}
