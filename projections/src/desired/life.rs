//! Pure: the life of a domain after it was made → changes of its rows.

use super::change::Folded;
use headwater_events::event::{DisabledBy, DomainStatus, Event};
use headwater_events::ids::DomainId;
use serde_json::{Value, json};

/// What a domain's row says of its life from now on.
pub(super) fn put(id: DomainId, status: DomainStatus, by: Option<DisabledBy>) -> Value {
    json!({"do": "life_status", "id": id, "status": status.name(), "by": by.map(DisabledBy::name)})
}

/// What an event of a domain's life changes.
pub(super) fn change(e: &Folded<'_>, id: DomainId, name: &str) -> Vec<Value> {
    let touch = || json!({"do": "site_touch", "id": id, "revision": e.revision});
    let served = || {
        vec![
            put(id, DomainStatus::Active, None),
            json!({"do": "deploy", "id": id, "revision": e.revision, "at": e.at}),
            // Names count as added anew: DNS waits a while for cells to have them.
            json!({"do": "site_touch", "id": id, "revision": e.revision, "restored": true, "at": e.at}),
            json!({"do": "regenerate", "id": id}),
        ]
    };
    match e.event {
        Event::DomainActivated(_) | Event::DomainEnabled(_) => served(),
        Event::DomainDisabled(disabled) => {
            vec![put(id, DomainStatus::Disabled, Some(disabled.by)), touch()]
        }
        Event::DomainExpired(expired) => vec![
            json!({
                "do": "domain_deleted", "id": id, "name": name, "tenant": e.tenant,
                "hold_until": expired.expired_at, "last_serial": expired.last_serial,
            }),
            touch(),
        ],
        _ => Vec::new(),
    }
}

/// Whether its parent delegates a domain here.
pub(super) fn delegation(e: &Folded<'_>) -> Option<Value> {
    let (id, _) = e.domain?;
    let lost_at = matches!(e.event, Event::DelegationLost(_)).then_some(e.at);
    Some(json!({"do": "life_delegation", "id": id, "lost_at": lost_at}))
}
