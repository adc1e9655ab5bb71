//! Pure: which edges visitors may be sent to, and what follows for what is published.
//!
//! An edge is ready when it has public addresses, is enabled and not drained, its identity is live and used by nobody
//! else, its heartbeat is fresh, and at least as many of its cells as the pool asks for are ready: not drained, both
//! listeners answer, and what every worker of it serves, in the numbering of now, lacks no change that is older than a
//! minute.

use headwater_events::dns::DomainName;
use headwater_events::edge::Endpoints;
use headwater_events::ids::EdgeId;
use headwater_projections::powerdns::SHARED_POOL;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;

use super::facts::Facts;

/// What is known of a cell.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct CellFacts {
    /// Which, from 0.
    pub cell: u8,
    /// Whether domains were taken off it.
    pub drained: bool,
    /// Whether both its listeners answer.
    pub answers: bool,
    /// Whether it has acknowledged anything in the numbering of now.
    pub acked: bool,
    /// Whether it lacks no change that is older than a minute.
    pub current: bool,
}

/// What is known of an edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeFacts {
    /// Its id.
    pub id: EdgeId,
    /// Its name.
    pub name: String,
    /// Its public addresses.
    pub addresses: Vec<IpAddr>,
    /// Whether it is answered.
    pub enabled: bool,
    /// Whether it is to get no visitors.
    pub drained: bool,
    /// Whether it has an identity that has not ended.
    pub identified: bool,
    /// Whether its identity is used twice.
    pub cloned: bool,
    /// Whether it was heard of lately.
    pub fresh: bool,
    /// Its cells.
    pub cells: Vec<CellFacts>,
}

/// Why visitors are not sent to an edge or a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotReady {
    /// Whether somebody wants it so; otherwise it is unwell.
    pub asked: bool,
    /// For people.
    pub why: String,
}

fn asked(why: &str) -> Result<(), NotReady> {
    Err(NotReady { asked: true, why: why.to_owned() })
}

fn unwell(why: impl Into<String>) -> Result<(), NotReady> {
    Err(NotReady { asked: false, why: why.into() })
}

impl CellFacts {
    /// Whether the cell of an edge that was heard of lately is ready.
    ///
    /// # Errors
    /// Why not.
    pub fn readiness(&self) -> Result<(), NotReady> {
        match self {
            Self { drained: true, .. } => asked("it is drained"),
            Self { answers: false, .. } => unwell("a listener of it does not answer"),
            Self { acked: false, .. } => unwell("it has taken in nothing yet"),
            Self { current: false, .. } => unwell("it lacks a change that is older than a minute"),
            _ => Ok(()),
        }
    }
}

/// Whether visitors may be sent to an edge, of which so many cells at least must be ready.
///
/// # Errors
/// Why not.
pub fn readiness(edge: &EdgeFacts, minimum_cells: usize) -> Result<(), NotReady> {
    if edge.addresses.is_empty() {
        return asked("it has no public addresses");
    }
    if !edge.enabled {
        return asked("it is disabled");
    }
    if edge.drained {
        return asked("it is drained");
    }
    if !edge.identified {
        return unwell("it has no identity, or one that has ended");
    }
    if edge.cloned {
        return unwell("its identity seems to be used twice");
    }
    if !edge.fresh {
        return unwell("it was not heard of lately");
    }
    let ready = edge.cells.iter().filter(|cell| cell.readiness().is_ok()).count();
    if ready >= minimum_cells {
        return Ok(());
    }
    let first = edge.cells.iter().find_map(|cell| Some((cell.cell, cell.readiness().err()?)));
    let first = first.map_or(String::new(), |(cell, not)| format!(" (cell {cell}: {})", not.why));
    unwell(format!("{ready} of its cells are ready, {minimum_cells} are needed{first}"))
}

/// A change of what is published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Proposal {
    /// What is to be published.
    pub endpoints: Endpoints,
    /// Why, edge by edge.
    pub why: Vec<String>,
    /// Whether it is done at once: somebody asked for all of it. What health says must be said twice.
    pub at_once: bool,
}

/// What is to be published, where that differs from what is. Where no edge is ready at all, those stay that are only
/// unwell: an answer that may be wrong is better than none, and most likely it is we who do not hear them.
pub fn propose(facts: &Facts, zone: &DomainName, ttl: u32) -> Option<Proposal> {
    let published = facts.endpoints.as_ref();
    let before = published.and_then(|endpoints| endpoints.pools.get(SHARED_POOL));
    let states: BTreeMap<EdgeId, (&EdgeFacts, Result<(), NotReady>)> =
        facts.edges.iter().map(|edge| (edge.id, (edge, readiness(edge, facts.minimum_cells)))).collect();
    let mut after: BTreeMap<EdgeId, Vec<IpAddr>> = BTreeMap::new();
    for (id, (edge, state)) in &states {
        if state.is_ok() {
            after.insert(*id, edge.addresses.clone());
        }
    }
    if after.is_empty() {
        for (id, addresses) in before.into_iter().flatten() {
            if states.get(id).is_some_and(|(_, state)| state.as_ref().is_err_and(|not| !not.asked)) {
                after.insert(*id, addresses.clone());
            }
        }
    }
    // At first there is something to answer, or nothing is answered.
    if published.is_none() && after.is_empty() {
        return None;
    }
    let nothing = BTreeMap::new();
    let before = before.unwrap_or(&nothing);
    let endpoints = Endpoints { zone: zone.clone(), ttl, pools: [(SHARED_POOL.to_owned(), after)].into() };
    if published == Some(&endpoints) {
        return None;
    }
    let after = endpoints.pools.get(SHARED_POOL).unwrap_or(&nothing);
    let (mut why, mut at_once) = (Vec::new(), true);
    for (id, addresses) in after.iter().filter(|(id, addresses)| before.get(id) != Some(addresses)) {
        let known = before.contains_key(id);
        at_once &= known;
        let name = states.get(id).map_or("", |(edge, _)| edge.name.as_str());
        why.push(if known {
            format!("{name} has the addresses {}", shown(addresses))
        } else {
            format!("{name} is ready")
        });
    }
    for id in before.keys().filter(|id| !after.contains_key(id)) {
        let told = match states.get(id) {
            Some((edge, Err(not))) => {
                at_once &= not.asked;
                format!("{}: {}", edge.name, not.why)
            }
            _ => format!("{id}: it is gone"),
        };
        why.push(told);
    }
    if published.is_some_and(|published| (&published.zone, published.ttl) != (zone, ttl)) {
        why.push(format!("the zone is {zone}, the TTL {ttl} s"));
    }
    Some(Proposal { endpoints, why, at_once })
}

/// What an operator should know of where visitors are sent.
pub fn alarms(facts: &Facts, configured: Option<&DomainName>) -> Vec<String> {
    let Some(endpoints) = &facts.endpoints else { return Vec::new() };
    let mut alarms = Vec::new();
    if configured.is_none_or(|name| *name != endpoints.zone) {
        alarms.push(format!(
            "what was published in {} stays as it is: [sites] platform_zone does not name it any more",
            endpoints.zone
        ));
    }
    let states: Vec<_> =
        facts.edges.iter().map(|edge| (edge, readiness(edge, facts.minimum_cells))).collect();
    if endpoints.addresses(SHARED_POOL).is_empty() {
        alarms.push("DNS sends visitors to no edge: the last one was taken out on demand".to_owned());
    } else if !states.iter().any(|(_, state)| state.is_ok()) {
        let told = states.iter().filter(|(edge, _)| facts.publishes(edge.id));
        let told =
            told.filter_map(|(edge, state)| Some(format!("{}: {}", edge.name, state.as_ref().err()?.why)));
        let told: Vec<String> = told.collect();
        alarms.push(format!(
            "no edge is ready, what DNS answered with last stays as it is ({})",
            told.join("; ")
        ));
    }
    alarms
}

fn shown(addresses: &[IpAddr]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn id(n: u8) -> EdgeId {
        EdgeId::from_uuid(Uuid::from_u128(n.into()))
    }

    fn edge(n: u8) -> EdgeFacts {
        let cell = |cell| CellFacts { cell, drained: false, answers: true, acked: true, current: true };
        EdgeFacts {
            id: id(n),
            name: format!("e{n}"),
            addresses: vec![IpAddr::from([1, 1, 1, n])],
            enabled: true,
            drained: false,
            identified: true,
            cloned: false,
            fresh: true,
            cells: vec![cell(0), cell(1)],
        }
    }

    fn zone() -> DomainName {
        DomainName::parse("edge.example.net").unwrap()
    }

    fn published(edges: &[u8]) -> Option<Endpoints> {
        let edges = edges.iter().map(|n| (id(*n), vec![IpAddr::from([1, 1, 1, *n])])).collect();
        Some(Endpoints { zone: zone(), ttl: 60, pools: [(SHARED_POOL.to_owned(), edges)].into() })
    }

    /// What is proposed, as the last octets of the addresses, and whether at once; none: nothing changes.
    fn proposed(before: Option<Endpoints>, edges: Vec<EdgeFacts>) -> Option<(Vec<u8>, bool)> {
        let facts = Facts { endpoints: before, edges, minimum_cells: 1 };
        let proposal = propose(&facts, &zone(), 60)?;
        assert!(!proposal.why.is_empty());
        let octet = |address: IpAddr| match address {
            IpAddr::V4(address) => address.octets()[3],
            IpAddr::V6(_) => 0,
        };
        Some((proposal.endpoints.addresses(SHARED_POOL).into_iter().map(octet).collect(), proposal.at_once))
    }

    #[test]
    fn an_edge_is_ready_when_nothing_is_wrong_with_it() {
        assert_eq!(readiness(&edge(1), 2), Ok(()));
        type Spoil = fn(&mut EdgeFacts);
        let wrong: [(Spoil, bool, &str); 11] = [
            (|e| e.addresses.clear(), true, "addresses"),
            (|e| e.enabled = false, true, "disabled"),
            (|e| e.drained = true, true, "drained"),
            (|e| e.identified = false, false, "identity"),
            (|e| e.cloned = true, false, "twice"),
            (|e| e.fresh = false, false, "heard"),
            (|e| e.cells[0].drained = true, false, "cell 0: it is drained"),
            (|e| e.cells[1].answers = false, false, "cell 1: a listener"),
            (|e| e.cells[1].acked = false, false, "nothing yet"),
            (|e| e.cells[0].current = false, false, "older than a minute"),
            (|e| e.cells.clear(), false, "0 of its cells"),
        ];
        for (spoil, asked, why) in wrong {
            let mut edge = edge(1);
            spoil(&mut edge);
            let not = readiness(&edge, 2).unwrap_err();
            assert!(not.asked == asked && not.why.contains(why), "{not:?}");
        }
        let mut one_cell = edge(1);
        one_cell.cells[0].answers = false;
        assert_eq!(readiness(&one_cell, 1), Ok(()));
    }

    #[test]
    fn what_is_ready_is_published_and_what_is_not_is_withdrawn() {
        let with = |n, spoil: fn(&mut EdgeFacts)| {
            let mut edge = edge(n);
            spoil(&mut edge);
            edge
        };
        let silent = |n| with(n, |e| e.fresh = false);
        let drained = |n| with(n, |e| e.drained = true);
        let rows = [
            // At first: when there is something to answer.
            (None, vec![edge(1), silent(2)], Some((vec![1], false))),
            (None, vec![silent(1)], None),
            (None, vec![], None),
            (published(&[1]), vec![edge(1)], None),
            (published(&[1]), vec![edge(1), edge(2)], Some((vec![1, 2], false))),
            // Somebody asked: at once. Health: when it says so twice.
            (published(&[1, 2]), vec![edge(1), drained(2)], Some((vec![1], true))),
            (published(&[1, 2]), vec![edge(1), silent(2)], Some((vec![1], false))),
            (published(&[1, 2]), vec![edge(1)], Some((vec![1], true))),
            // Nothing is ready: what is only unwell stays.
            (published(&[1, 2]), vec![silent(1), silent(2)], None),
            (published(&[1, 2]), vec![silent(1), drained(2)], Some((vec![1], true))),
            (published(&[1]), vec![silent(1), silent(2)], None),
            // Only on demand is nothing left.
            (published(&[1]), vec![drained(1), silent(2)], Some((vec![], true))),
            (published(&[]), vec![edge(1)], Some((vec![1], false))),
        ];
        for (row, (before, edges, expected)) in rows.into_iter().enumerate() {
            assert_eq!(proposed(before, edges), expected, "row {row}");
        }
        let mut moved = edge(1);
        moved.addresses = vec![IpAddr::from([1, 1, 1, 9])];
        assert_eq!(proposed(published(&[1]), vec![moved]), Some((vec![9], true)));
    }
}
