//! What an event of an edge or a pool changes in `desired`.

use super::change::Folded;
use headwater_events::event::Event;
use serde_json::{Value, json};

/// The change, as `desired_apply_edges` takes it.
pub(super) fn change(e: &Folded<'_>) -> Option<Value> {
    let (id, revision) = (e.stream.id, e.revision);
    let enabled = |on: bool| json!({"do": "edge_enabled", "id": id, "enabled": on, "revision": revision});
    let drained = |on: bool| json!({"do": "edge_drained", "id": id, "drained": on, "revision": revision});
    let cell = |cell: u8, on: bool| json!({"do": "cell_drained", "id": id, "cell": cell, "drained": on, "revision": revision});
    Some(match e.event {
        Event::EdgeCreated(created) => json!({
            "do": "edge_put", "id": id, "name": created.name, "country": created.country,
            "continent": created.continent, "cells": created.cells, "labels": created.labels,
            "external_id": created.external_id, "revision": revision, "at": e.at,
        }),
        Event::EdgeUpdated(change) => json!({
            "do": "edge_update", "id": id, "country": change.after.country, "continent": change.after.continent,
            "labels": change.after.labels, "external_id": change.after.external_id, "revision": revision,
        }),
        Event::EdgeEnabled(_) => enabled(true),
        Event::EdgeDisabled(_) => enabled(false),
        Event::EdgeDrained(_) => drained(true),
        Event::EdgeUndrained(_) => drained(false),
        Event::CellDrained(switched) => cell(switched.cell, true),
        Event::CellUndrained(switched) => cell(switched.cell, false),
        Event::EdgeIdentityIssued(issued) => json!({
            "do": "edge_identity", "id": id, "serial": issued.serial, "key": issued.key,
            "not_after": issued.not_after, "revision": revision,
        }),
        Event::EdgeIdentityRevoked(_) => json!({"do": "edge_revoked", "id": id, "revision": revision}),
        Event::EdgeIdentityCloned(cloned) => {
            json!({"do": "edge_cloned", "id": id, "sign": cloned.sign, "revision": revision, "at": e.at})
        }
        Event::EdgeDeleted(_) => json!({"do": "edge_gone", "id": id}),
        Event::PoolCreated(pool) => json!({
            "do": "pool_put", "id": id, "name": pool.name, "kind": pool.kind, "routing": pool.routing,
            "replicas_per_edge": pool.replicas_per_edge, "domains_per_cell": pool.domains_per_cell,
            "minimum_ready_cells": pool.minimum_ready_cells, "revision": revision, "at": e.at,
        }),
        Event::AddressesChanged(changed) => {
            json!({"do": "edge_addresses", "id": id, "addresses": changed.after})
        }
        _ => return None,
    })
}
