//! `GET /explain`: why a name is answered as it is, hop by hop.

use axum::Json;
use axum::extract::State;
use headwater_events::actor::{self, Resource, Verb};
use headwater_events::dns::{DomainName, OwnerName, RrType};
use headwater_events::time::Timestamp;
use serde::Serialize;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::auth::Authenticated;
use super::domains::seen;
use super::dto::Actor;
use super::query::{FromQuery, Pairs, Query};
use crate::app::App;
use crate::query::domains::{self, StoredDomain};
use crate::why::{self, Cause, Hop, HopState};

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(explain))
}

/// What is asked about.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
#[allow(dead_code)] // the documentation of what `Asked` reads
struct ExplainParams {
    /// The absolute name, with or without its final dot: `www.example.com`.
    name: String,
    /// The type: `A`.
    r#type: String,
}

/// The same, read.
#[derive(Debug)]
struct Asked {
    /// The absolute name with its final dot.
    name: String,
    rrtype: RrType,
}

impl FromQuery for Option<Asked> {
    fn read(pairs: &mut Pairs) -> Self {
        for key in ["name", "type"] {
            if !pairs.has(key) {
                pairs.fault("missing_query_key", format!("{key}: say which"));
            }
        }
        let name = pairs.parsed("name", |text| match text.trim_end_matches('.') {
            "" => Err("write a name".to_owned()),
            name => Ok(format!("{name}.")),
        });
        let rrtype = pairs.parsed("type", |text| RrType::parse(text).map_err(|fault| fault.detail));
        Some(Asked { name: name?, rrtype: rrtype? })
    }
}

/// How a hop is.
#[derive(Debug, Clone, Copy, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum HopStateBody {
    Ok,
    Broken,
    Unknown,
}

/// The mutation that made something as it is.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct CauseBody {
    /// What it was.
    #[schema(example = "rrset.deleted")]
    event: String,
    /// The revision it made, of the domain, of the DNS cluster or of the platform.
    revision: i64,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Who.
    actor: Actor,
    /// Why, in their words.
    note: Option<String>,
}

/// One hop.
#[derive(Debug, Clone, Serialize, ToSchema)]
struct HopBody {
    /// `domain`, `desired`, `deployment`, `powerdns`, `dnsdist` or `delegation`.
    #[schema(value_type = String, example = "powerdns")]
    hop: &'static str,
    /// Which of several: the name of the DNS cluster.
    target: Option<String>,
    /// How it is.
    state: HopStateBody,
    /// In a sentence.
    detail: String,
    /// The mutation that did it, if one did.
    change: Option<CauseBody>,
    /// What mends it: a command of this program, or one for the host of the target.
    command: Option<String>,
}

/// Why a name is answered as it is.
#[derive(Debug, Serialize, ToSchema)]
struct Explanation {
    /// The domain that holds the name.
    domain: String,
    /// The owner, relative to it.
    name: String,
    /// The type.
    #[schema(value_type = String, example = "A")]
    r#type: RrType,
    /// Every hop, in the order in which a change goes through them.
    hops: Vec<HopBody>,
    /// The first of them that is broken.
    first_broken: Option<HopBody>,
}

impl From<Cause> for CauseBody {
    fn from(cause: Cause) -> Self {
        let Cause { event, revision, at, actor, note } = cause;
        Self { event, revision: revision.get(), at, actor: actor.into(), note }
    }
}

impl From<Hop> for HopBody {
    fn from(hop: Hop) -> Self {
        let state = match hop.state {
            HopState::Ok => HopStateBody::Ok,
            HopState::Broken => HopStateBody::Broken,
            HopState::Unknown => HopStateBody::Unknown,
        };
        let Hop { hop, target, detail, change, command, .. } = hop;
        Self { hop, target, state, detail, change: change.map(CauseBody::from), command }
    }
}

/// Why a name is answered as it is: what is desired, what of it is deployed, and what each name server says, asked now.
/// The first broken hop is named with the mutation that did it and the command that mends it.
#[utoipa::path(get, path = "/api/explain", tag = "status", params(ExplainParams),
    responses((status = 200, body = Explanation)))]
async fn explain(
    State(app): State<App>,
    auth: Authenticated,
    Query(asked): Query<Option<Asked>>,
) -> Result<Json<Explanation>, Problem> {
    let Some(Asked { name, rrtype }) = asked else {
        return Err(Problem::malformed("say which name and which type"));
    };
    let (stored, owner) = holder(&app, &auth, &name).await?;
    let (domain, about) = (seen(&stored.state), format!("{name} {rrtype}"));
    auth.may(Verb::Read, Resource::Rrset(domain, &owner, rrtype), about.clone())?;
    if auth.caller.sees_own_alone() {
        // What hides a name may be another tool's.
        auth.may(Verb::Read, Resource::Contents(domain), about)?;
    }
    let hops = why::explain(&app, &stored, &owner, rrtype).await?;
    let first_broken = why::first_broken(&hops).cloned().map(HopBody::from);
    Ok(Json(Explanation {
        domain: stored.state.name.to_string(),
        name: owner.to_string(),
        r#type: rrtype,
        hops: hops.into_iter().map(HopBody::from).collect(),
        first_broken,
    }))
}

/// The domain that holds a name: the nearest that the caller may know of.
async fn holder(app: &App, auth: &Authenticated, name: &str) -> Result<(StoredDomain, OwnerName), Problem> {
    let whole = name.trim_end_matches('.');
    let ends = std::iter::once(0).chain(whole.match_indices('.').map(|(at, _)| at + 1));
    let zones = ends.filter_map(|at| DomainName::parse(whole.get(at..)?).ok());
    for zone in zones {
        let Ok(owner) = OwnerName::parse(name, &zone) else { continue };
        let Some(found) = domains::by_name(&app.pool, &zone).await? else { continue };
        if actor::decide(&auth.caller, Verb::Read, Resource::Domain(seen(&found.state))).is_granted() {
            return Ok((found, owner));
        }
    }
    Err(Problem::not_found(format!("a domain of yours that holds {whole}")))
}
