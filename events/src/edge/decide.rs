//! Decisions about one edge. Nothing is decided about what its agent reports: readiness and acknowledgements are no
//! events.

use super::{
    CELLS_MAX_COUNT, CONTINENTS, CellSwitched, EDGE_NAME_MAX_BYTES, EdgeCommand, EdgeCreated, EdgeDeleted,
    EdgePatch, EdgeSettings, EdgeState, EdgeView, IdentityRevoked, is_country,
};
use crate::domain::{LabelsPatch, tag_faults};
use crate::event::{Change, Event, Nothing};
use crate::ids::EdgeId;
use crate::reject::{Fault, Reject};

/// Decides one command; no events: nothing changes.
///
/// # Errors
/// Why not, with every fault of the input.
pub fn decide(id: EdgeId, view: &EdgeView, command: &EdgeCommand) -> Result<Vec<Event>, Reject> {
    if let EdgeCommand::Create(created) = command {
        return create(created);
    }
    let Some(edge) = &view.edge else {
        return Err(Reject::NotFound(format!("edge {id}")));
    };
    let event = match command {
        EdgeCommand::Create(_) => None,
        EdgeCommand::Update(patch) => update(edge, patch)?,
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

fn create(created: &EdgeCreated) -> Result<Vec<Event>, Reject> {
    let mut faults = tag_faults(&created.labels, created.external_id.as_deref());
    let name = &created.name;
    if name.trim().is_empty() || name.len() > EDGE_NAME_MAX_BYTES || name.chars().any(char::is_control) {
        let detail = format!("1 to {EDGE_NAME_MAX_BYTES} octets without control characters");
        faults.push(Fault::at("/name", "invalid_name", detail));
    }
    place_faults(&created.country, &created.continent, &mut faults);
    if !(1..=CELLS_MAX_COUNT).contains(&created.cells) {
        faults.push(Fault::at("/cells", "out_of_range", format!("1 to {CELLS_MAX_COUNT} cells")));
    }
    if !faults.is_empty() {
        return Err(Reject::Invalid(faults));
    }
    Ok(vec![Event::EdgeCreated(created.clone())])
}

fn update(edge: &EdgeState, patch: &EdgePatch) -> Result<Option<Event>, Reject> {
    let before = edge.settings.clone();
    let mut after = EdgeSettings {
        country: patch.country.clone().unwrap_or_else(|| before.country.clone()),
        continent: patch.continent.clone().unwrap_or_else(|| before.continent.clone()),
        labels: before.labels.clone(),
        external_id: patch.external_id.clone().unwrap_or_else(|| before.external_id.clone()),
    };
    match &patch.labels {
        None => {}
        Some(LabelsPatch::Clear) => after.labels.clear(),
        Some(LabelsPatch::Merge(labels)) => {
            for (key, value) in labels {
                match value {
                    Some(value) => after.labels.insert(key.clone(), value.clone()),
                    None => after.labels.remove(key),
                };
            }
        }
    }
    let mut faults = tag_faults(&after.labels, after.external_id.as_deref());
    place_faults(&after.country, &after.continent, &mut faults);
    if !faults.is_empty() {
        return Err(Reject::Invalid(faults));
    }
    Ok((before != after).then_some(Event::EdgeUpdated(Change { before, after })))
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
