//! Bodies of edges, cells and pools.

use headwater_events::domain::destination::{Destinations, Special, special};
use headwater_events::edge::{CELLS_DEFAULT_COUNT, EdgeCreated, EdgePatch};
use headwater_events::event::Labels;
use headwater_events::ids::EdgeId;
use headwater_events::reject::Fault;
use headwater_events::time::Timestamp;
use serde::Serialize;
use serde_json::Value;
use std::net::IpAddr;
use std::str::FromStr;
use utoipa::ToSchema;
use uuid::Uuid;

use super::{labels, labels_patch};
use crate::http::body::{Fields, FromBody};
use crate::placement::{CellFacts, EdgeFacts, Facts, readiness};
use crate::query::edges::{Refusal, StoredCell, StoredEdge, StoredIdentity, StoredPool};

/// An edge to make known.
#[derive(Debug, ToSchema)]
#[allow(dead_code)] // the schema; what is read is the fact itself
pub struct NewEdge {
    /// Its name, unique.
    name: String,
    /// Where it is: ISO 3166-1 alpha-2.
    #[schema(example = "DE")]
    country: String,
    /// Where it is: AF, AN, AS, EU, NA, OC or SA.
    #[schema(example = "EU")]
    continent: String,
    /// How many cells it has (8); it never changes.
    cells: Option<u8>,
    /// Its public addresses: DNS sends visitors there while it is ready.
    addresses: Option<Vec<String>>,
    /// Labels.
    labels: Option<Labels>,
    /// The operator's own number for it.
    external_id: Option<String>,
}

/// What is made known of an edge, and its public addresses.
#[derive(Debug)]
pub struct SentEdge {
    /// The fact.
    pub created: EdgeCreated,
    /// The addresses.
    pub addresses: Vec<IpAddr>,
}

/// Public addresses, as they were sent; one that is none is a fault.
fn addresses(fields: &mut Fields) -> Option<Vec<IpAddr>> {
    let list = match fields.take_nullable("addresses")? {
        Value::Null => return Some(Vec::new()),
        Value::Array(list) => list,
        _ => {
            fields.fault("addresses", "invalid_type", "addresses must be a list");
            return None;
        }
    };
    let mut read = Vec::with_capacity(list.len());
    for (index, one) in list.iter().enumerate() {
        match one.as_str().and_then(|text| text.parse().ok()) {
            Some(address) => read.push(address),
            None => fields.fault(
                &format!("addresses/{index}"),
                "invalid_address",
                "an IPv4 or IPv6 address".to_owned(),
            ),
        }
    }
    Some(read)
}

/// What visitors everywhere could not reach: the registries' special addresses. Of those, private ones count as public
/// where the administrators name them, and where origins on loopback are allowed too, loopback does.
pub fn unreachable(addresses: &[IpAddr], destinations: &Destinations) -> Vec<Fault> {
    let judge = |address: &IpAddr| match special(*address) {
        None => None,
        Some(Special::Loopback | Special::Private) if destinations.unsafe_allow_loopback => None,
        Some(Special::Private) if destinations.allow_private.iter().any(|net| net.holds(*address)) => None,
        Some(found) => Some(found),
    };
    let fault = |(index, address): (usize, &IpAddr)| {
        let found = judge(address)?;
        let detail = format!("{address} is {}: visitors cannot reach it", found.meaning());
        Some(Fault::at(format!("/addresses/{index}"), "not_public", detail))
    };
    addresses.iter().enumerate().filter_map(fault).collect()
}

impl FromBody for SentEdge {
    fn read(fields: &mut Fields) -> Option<Self> {
        let addresses = addresses(fields).unwrap_or_default();
        let created = read_edge(fields)?;
        Some(Self { created, addresses })
    }
}

fn read_edge(fields: &mut Fields) -> Option<EdgeCreated> {
    let (name, country) = (fields.required_text("name"), fields.required_text("country"));
    let continent = fields.required_text("continent");
    // What is out of range is told by the decision, with its range.
    let cells = fields.integer("cells").map(|cells| u8::try_from(cells).unwrap_or(0));
    let (labels, external_id) = (labels(fields), fields.text("external_id"));
    let cells = cells.unwrap_or(CELLS_DEFAULT_COUNT);
    Some(EdgeCreated { name: name?, country: country?, continent: continent?, cells, labels, external_id })
}

/// What changes of an edge; what is left out stays.
#[derive(Debug, ToSchema)]
#[allow(dead_code)] // the schema; what is read is the patch itself
pub struct PatchedEdge {
    /// Where it is: ISO 3166-1 alpha-2.
    country: Option<String>,
    /// Where it is: AF, AN, AS, EU, NA, OC or SA.
    continent: Option<String>,
    /// Its public addresses, all of them.
    addresses: Option<Vec<String>>,
    /// Labels to set; null removes one, or all.
    labels: Option<std::collections::BTreeMap<String, Option<String>>>,
    /// The operator's own number for it; null removes it.
    external_id: Option<String>,
}

impl FromBody for EdgePatch {
    fn read(fields: &mut Fields) -> Option<Self> {
        let (country, continent) = (fields.text("country"), fields.text("continent"));
        let labels = labels_patch(fields);
        let external_id = match fields.take_nullable("external_id") {
            None => None,
            Some(Value::Null) => Some(None),
            Some(Value::String(text)) => Some(Some(text)),
            Some(_) => {
                fields.fault("external_id", "invalid_type", "external_id must be a text or null");
                None
            }
        };
        let addresses = addresses(fields);
        Some(Self { country, continent, labels, external_id, addresses })
    }
}

/// What enrols an edge; the token is shown once, by the first answer alone.
#[derive(Serialize, ToSchema)]
pub struct Enrolment {
    /// The edge.
    pub id: Uuid,
    /// The one-time token, good for an hour; null in a repeated answer.
    pub bootstrap_token: Option<String>,
    /// The line that enrols the edge, with the token in it.
    pub command: Option<String>,
}

/// An edge.
#[derive(Debug, Serialize, ToSchema)]
pub struct Edge {
    /// Its id.
    id: Uuid,
    /// Its name.
    name: String,
    /// Where it is: ISO 3166-1 alpha-2.
    country: String,
    /// Where it is.
    continent: String,
    /// How many cells it has.
    cells: i16,
    /// Its public addresses.
    addresses: Vec<String>,
    /// Labels.
    labels: Labels,
    /// The operator's own number for it.
    external_id: Option<String>,
    /// `enabled` or `disabled`.
    state: &'static str,
    /// Whether it gets no visitors.
    drained: bool,
    /// Enabled, and heard of lately.
    in_service: bool,
    /// It has a token and no identity yet.
    awaits_registration: bool,
    /// What it proves itself with.
    identity: Option<StoredIdentity>,
    /// Its last heartbeat.
    #[schema(value_type = Option<String>, format = DateTime)]
    heartbeat_at: Option<Timestamp>,
    /// The address that it came from.
    source: Option<String>,
    /// The version of its agent.
    agent: Option<String>,
    /// Whether visitors may be sent to it.
    ready: bool,
    /// Why not.
    not_ready: Option<String>,
    /// Whether DNS sends visitors to it.
    published: bool,
    /// The newest change there is.
    desired: i64,
    /// The last change that every cell with domains serves.
    acked: Option<i64>,
    /// Its revision.
    revision: i64,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

impl Edge {
    /// An edge, with what placement makes of it.
    pub fn new(stored: StoredEdge, facts: &Facts) -> Self {
        let known = facts.edges.iter().find(|edge| edge.id == stored.id);
        let readiness = known.map(|edge| readiness(edge, facts.minimum_cells));
        Self {
            ready: matches!(readiness, Some(Ok(()))),
            not_ready: readiness.and_then(Result::err).map(|not| not.why),
            published: facts.publishes(stored.id),
            id: stored.id.as_uuid(),
            name: stored.name,
            country: stored.country,
            continent: stored.continent,
            cells: stored.cells,
            addresses: stored.addresses,
            labels: stored.labels,
            external_id: stored.external_id,
            state: if stored.enabled { "enabled" } else { "disabled" },
            drained: stored.drained,
            in_service: stored.in_service,
            awaits_registration: stored.awaits_registration,
            identity: stored.identity,
            heartbeat_at: stored.heartbeat_at,
            source: stored.source,
            agent: stored.agent,
            desired: stored.desired,
            acked: stored.acked,
            revision: stored.revision.get(),
            created_at: stored.created_at,
        }
    }
}

/// An edge with everything that is known of how it is.
#[derive(Debug, Serialize, ToSchema)]
pub struct EdgeDetail {
    /// The edge.
    #[serde(flatten)]
    pub edge: Edge,
    /// How many changes it has still to take in.
    pub lag: i64,
    /// Its cells, one by one.
    pub cell_states: Vec<Cell>,
    /// What it refused last and still refuses.
    pub refusals: Vec<Refusal>,
}

/// `{edge}-{number}`: a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellId {
    /// The edge.
    pub edge: EdgeId,
    /// Which of its cells.
    pub number: u8,
}

impl FromStr for CellId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (edge, number) = text.rsplit_once('-').ok_or(())?;
        let id = Self { edge: edge.parse().map_err(|_| ())?, number: number.parse().map_err(|_| ())? };
        // One spelling for one cell.
        if id.to_string() == text { Ok(id) } else { Err(()) }
    }
}

impl std::fmt::Display for CellId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.edge, self.number)
    }
}

/// A cell.
#[derive(Debug, Serialize, ToSchema)]
pub struct Cell {
    /// Its id: the edge's and its number.
    id: String,
    /// Its edge.
    edge: Uuid,
    /// The edge's name.
    edge_name: String,
    /// Which of the edge's cells, from 0.
    number: i16,
    /// Whether domains were taken off it.
    drained: bool,
    /// Its edge is enabled and was heard of lately, it is not drained, both its listeners answer, and it lacks no change
    /// that is older than a minute.
    ready: bool,
    /// Why not.
    not_ready: Option<String>,
    /// The newest change there is.
    desired: i64,
    /// The last change that every worker of it serves.
    acked: Option<i64>,
    /// When it said so.
    #[schema(value_type = Option<String>, format = DateTime)]
    acked_at: Option<Timestamp>,
    /// The last change that is written for it on its host, by the last heartbeat.
    loaded: Option<i64>,
    /// The last change that it serves: what it acknowledged.
    active: Option<i64>,
    /// How many changes it does not serve yet.
    lag: i64,
    /// The newest refusal of a domain that stands on it; what the domain had before is served.
    refusal: Option<Refusal>,
    /// What is to be seen to: why it is not ready, or else what was wrong with what it refused.
    why: Option<String>,
    /// What its agent said of it last.
    report: Option<Value>,
}

impl Cell {
    /// A cell, with what placement makes of it and what it refused last.
    pub fn new(stored: StoredCell, facts: &Facts, refusal: Option<Refusal>) -> Self {
        let edge = facts.edges.iter().find(|edge| edge.id == stored.edge);
        let known =
            edge.and_then(|edge| edge.cells.iter().find(|cell| i16::from(cell.cell) == stored.number));
        let not_ready = match known.map(CellFacts::readiness) {
            _ if !stored.in_service => Some("its edge is disabled, or was not heard of lately".to_owned()),
            None => Some("nothing is known of it".to_owned()),
            Some(readiness) => readiness.err().map(|not| not.why),
        };
        // A cell follows the whole log; what is after the newest change of edges is none of it.
        let loaded = stored.report.as_ref().and_then(|report| report.get("loaded")?.as_i64());
        Self {
            id: format!("{}-{}", stored.edge, stored.number),
            edge: stored.edge.as_uuid(),
            ready: not_ready.is_none(),
            why: not_ready.clone().or_else(|| refusal.as_ref().map(|refusal| refusal.detail.clone())),
            not_ready,
            edge_name: stored.edge_name,
            number: stored.number,
            drained: stored.drained,
            desired: stored.desired,
            acked: stored.acked,
            acked_at: stored.acked_at,
            loaded: loaded.map(|loaded| loaded.min(stored.desired)),
            active: stored.acked,
            lag: stored.lag,
            refusal,
            report: stored.report,
        }
    }
}

/// A pool: a service class of cells.
#[derive(Debug, Serialize, ToSchema)]
pub struct Pool {
    /// Its id.
    id: Uuid,
    /// Its name.
    name: String,
    /// Who shares it.
    kind: String,
    /// How visitors find its cells.
    routing: String,
    /// On how many cells of an edge a domain stands.
    replicas_per_edge: i16,
    /// Domains of a cell, at most.
    domains_per_cell: i32,
    /// Below so many ready cells an edge gets no visitors of it.
    minimum_ready_cells: i16,
    /// How many cells belong to it.
    cells: i64,
    /// How many edges they are on.
    edges: i64,
    /// Whether visitors may be sent to any edge of it.
    ready: bool,
    /// The edges that visitors may not be sent to, and why.
    not_ready: Vec<Waiting>,
    /// The addresses that DNS answers with.
    published: Vec<String>,
    /// Its revision.
    revision: i64,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
}

/// An edge that visitors may not be sent to.
#[derive(Debug, Serialize, ToSchema)]
pub struct Waiting {
    /// The edge.
    edge: Uuid,
    /// Its name.
    name: String,
    /// Why not.
    why: String,
    /// Whether DNS sends visitors to it nevertheless, since no edge is ready.
    published: bool,
}

impl Pool {
    /// A pool, with what placement makes of its edges.
    pub fn new(stored: StoredPool, facts: &Facts) -> Self {
        let minimum = usize::try_from(stored.minimum_ready_cells).unwrap_or(1);
        let not = |edge: &EdgeFacts| {
            let why = readiness(edge, minimum).err()?.why;
            let published = facts.publishes(edge.id);
            Some(Waiting { edge: edge.id.as_uuid(), name: edge.name.clone(), why, published })
        };
        let not_ready: Vec<Waiting> = facts.edges.iter().filter_map(not).collect();
        Self {
            ready: not_ready.len() < facts.edges.len(),
            not_ready,
            published: facts.addresses(&stored.name),
            id: stored.id.as_uuid(),
            name: stored.name,
            kind: stored.kind,
            routing: stored.routing,
            replicas_per_edge: stored.replicas_per_edge,
            domains_per_cell: stored.domains_per_cell,
            minimum_ready_cells: stored.minimum_ready_cells,
            cells: stored.cells,
            edges: stored.edges,
            revision: stored.revision.get(),
            created_at: stored.created_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_has_one_spelling() {
        let text = "0190a000-0000-7000-8000-000000000001-31";
        assert_eq!(text.parse::<CellId>().unwrap().to_string(), text);
        for wrong in [
            "",
            "-",
            "0190a000-0000-7000-8000-000000000001",
            "x-1",
            &text.to_uppercase(),
            &format!("{text}0"),
        ] {
            assert!(wrong.parse::<CellId>().is_err(), "{wrong}");
        }
        assert!("0190a000-0000-7000-8000-000000000001-01".parse::<CellId>().is_err());
    }
}
