//! Decisions about one edge. Nothing is decided about what its agent reports: readiness and acknowledgements are no
//! events.

use super::{
    ADDRESSES_MAX_COUNT, AddressesChanged, CELLS_MAX_COUNT, CONTINENTS, CellSwitched, EDGE_NAME_MAX_BYTES,
    EdgeCommand, EdgeCreated, EdgeDeleted, EdgePatch, EdgeSettings, EdgeState, EdgeView, IdentityRevoked,
    is_country,
};
use crate::admin::name_faults;
use crate::domain::tag_faults;
use crate::event::{Change, Event, Nothing};
use crate::ids::EdgeId;
use crate::reject::{Fault, Guard, Reject};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Decides one command; no events: nothing changes.
///
/// # Errors
/// Why not, with every fault of the input.
pub fn decide(id: EdgeId, view: &EdgeView, command: &EdgeCommand) -> Result<Vec<Event>, Reject> {
    if let EdgeCommand::Create(created, addresses) = command {
        return create(created, addresses);
    }
    let Some(edge) = &view.edge else {
        return Err(Reject::NotFound(format!("edge {id}")));
    };
    if matches!(command, EdgeCommand::SetEnabled(false) | EdgeCommand::SetDrained(true)) {
        last_endpoint(edge, view)?;
    }
    let event = match command {
        EdgeCommand::Create(..) => None,
        EdgeCommand::Update(patch) => return update(edge, view, patch),
        EdgeCommand::SetEnabled(enabled) => {
            switch(edge.enabled, *enabled, Event::EdgeEnabled as fn(Nothing) -> Event, Event::EdgeDisabled)
        }
        EdgeCommand::SetDrained(drained) => {
            switch(edge.drained, *drained, Event::EdgeDrained as fn(Nothing) -> Event, Event::EdgeUndrained)
        }
        EdgeCommand::SetCellDrained { cell, drained } => drain_cell(edge, *cell, *drained)?,
        EdgeCommand::RecordIdentity(issued) => {
            (!view.is_recorded).then(|| Event::EdgeIdentityIssued(issued.clone()))
        }
        // Also where there is none: a token that was given and not used ends with it.
        EdgeCommand::RevokeIdentity(reason) => {
            Some(Event::EdgeIdentityRevoked(IdentityRevoked { reason: *reason }))
        }
        EdgeCommand::ReportClone(cloned) => {
            (edge.has_identity && !edge.is_cloned).then(|| Event::EdgeIdentityCloned(cloned.clone()))
        }
        EdgeCommand::Delete if edge.enabled => {
            let detail = "the edge is enabled and may be serving: disable it first".to_owned();
            return Err(Reject::Conflict { code: "edge_enabled", detail });
        }
        EdgeCommand::Delete => Some(Event::EdgeDeleted(EdgeDeleted { name: edge.name.clone() })),
    };
    Ok(event.into_iter().collect())
}

fn switch(is: bool, wanted: bool, on: fn(Nothing) -> Event, off: impl Fn(Nothing) -> Event) -> Option<Event> {
    (is != wanted).then(|| if wanted { on(Nothing {}) } else { off(Nothing {}) })
}

fn place_faults(country: &str, continent: &str, faults: &mut Vec<Fault>) {
    if !is_country(country) {
        faults.push(Fault::at("/country", "invalid_country", "an ISO 3166-1 alpha-2 code, such as DE"));
    }
    if !CONTINENTS.contains(&continent) {
        let detail = format!("one of {}", CONTINENTS.join(", "));
        faults.push(Fault::at("/continent", "invalid_continent", detail));
    }
}

/// Without any endpoint nobody finds the sites: that is asked for by name.
fn last_endpoint(edge: &EdgeState, view: &EdgeView) -> Result<(), Reject> {
    if !view.is_last_endpoint || view.allows_last_endpoint {
        return Ok(());
    }
    let detail = format!(
        "{} is the only edge that DNS sends visitors to: without it every proxied name loses its addresses. Bring another \
         edge into service first, or allow it by ?allow={}",
        edge.name,
        Guard::LastEndpoint
    );
    Err(Reject::Guarded { guards: vec![Guard::LastEndpoint], detail })
}

/// Every fault of an edge's public addresses, whatever they are.
pub fn address_faults(addresses: &[IpAddr]) -> Vec<Fault> {
    if addresses.len() <= ADDRESSES_MAX_COUNT {
        return Vec::new();
    }
    vec![Fault::at("/addresses", "out_of_range", format!("at most {ADDRESSES_MAX_COUNT} addresses"))]
}

/// In order, each once.
fn ordered(addresses: &[IpAddr]) -> Vec<IpAddr> {
    addresses.iter().copied().collect::<BTreeSet<_>>().into_iter().collect()
}

fn create(created: &EdgeCreated, addresses: &[IpAddr]) -> Result<Vec<Event>, Reject> {
    let mut faults = tag_faults(&created.labels, created.external_id.as_deref());
    faults.extend(name_faults(&created.name, EDGE_NAME_MAX_BYTES));
    place_faults(&created.country, &created.continent, &mut faults);
    faults.extend(address_faults(addresses));
    if !(1..=CELLS_MAX_COUNT).contains(&created.cells) {
        faults.push(Fault::at("/cells", "out_of_range", format!("1 to {CELLS_MAX_COUNT} cells")));
    }
    if !faults.is_empty() {
        return Err(Reject::Invalid(faults));
    }
    let mut events = vec![Event::EdgeCreated(created.clone())];
    events.extend(readdress(&[], addresses));
    Ok(events)
}

fn readdress(before: &[IpAddr], addresses: &[IpAddr]) -> Option<Event> {
    let after = ordered(addresses);
    (before != after).then(|| Event::AddressesChanged(AddressesChanged { before: before.to_vec(), after }))
}

fn update(edge: &EdgeState, view: &EdgeView, patch: &EdgePatch) -> Result<Vec<Event>, Reject> {
    let before = edge.settings.clone();
    let mut after = EdgeSettings {
        country: patch.country.clone().unwrap_or_else(|| before.country.clone()),
        continent: patch.continent.clone().unwrap_or_else(|| before.continent.clone()),
        labels: before.labels.clone(),
        external_id: patch.external_id.clone().unwrap_or_else(|| before.external_id.clone()),
    };
    if let Some(labels) = &patch.labels {
        labels.apply(&mut after.labels);
    }
    let mut faults = tag_faults(&after.labels, after.external_id.as_deref());
    place_faults(&after.country, &after.continent, &mut faults);
    let addresses = patch.addresses.as_deref().unwrap_or(&edge.addresses);
    faults.extend(address_faults(addresses));
    if !faults.is_empty() {
        return Err(Reject::Invalid(faults));
    }
    if addresses.is_empty() && !edge.addresses.is_empty() {
        last_endpoint(edge, view)?;
    }
    let updated = (before != after).then_some(Event::EdgeUpdated(Change { before, after }));
    Ok(updated.into_iter().chain(readdress(&edge.addresses, addresses)).collect())
}

fn drain_cell(edge: &EdgeState, cell: u8, drained: bool) -> Result<Option<Event>, Reject> {
    if cell >= edge.cells {
        return Err(Reject::NotFound(format!("cell {cell} of the edge {}", edge.name)));
    }
    if edge.drained_cells.contains(&cell) == drained {
        return Ok(None);
    }
    // What is on it must have somewhere to go; to empty an edge, drain the edge.
    if drained && edge.drained_cells.len() + 1 >= usize::from(edge.cells) {
        let detail = "it is the last cell of the edge that holds domains: drain the edge instead".to_owned();
        return Err(Reject::Conflict { code: "last_cell", detail });
    }
    let switched = CellSwitched { cell };
    Ok(Some(if drained { Event::CellDrained(switched) } else { Event::CellUndrained(switched) }))
}
