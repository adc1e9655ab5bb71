//! What the end of a DNS cluster changes in `desired`.

use super::change::Folded;
use headwater_events::event::Event;
use serde_json::{Value, json};

/// The change, as `desired_apply_clusters` takes it.
pub(super) fn change(e: &Folded<'_>) -> Option<Value> {
    Some(match e.event {
        Event::ClusterRemovalRequested(requested) => {
            json!({"do": "leaving_cluster", "id": requested.cluster})
        }
        Event::ClusterDeleted(_) => json!({"do": "leaving_cluster_gone", "id": e.stream.id}),
        _ => return None,
    })
}
