//! Pure: which domains a page of the log changes on the edges, and what is to be written of each.

use super::render::{RenderFault, Rendered, Site, render};
use crate::follow::Logged;
use headwater_edge_wire::artifact::ArtifactBudget;
use headwater_events::event::Event;
use headwater_events::ids::{DomainId, Position, Revision};
use std::collections::BTreeMap;

/// The newest event of a page that changes what edges serve of a domain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touch {
    /// Where it stands.
    pub position: Position,
    /// The domain's revision after it.
    pub revision: Revision,
    /// Whether a name was proxied in the page: from then on edges know of the domain.
    pub proxied: bool,
}

/// Whether an event of a domain changes what edges serve.
pub fn affects_edges(event: &Event) -> bool {
    matches!(
        event,
        Event::HostnameReplaced(_)
            | Event::HostnameDeleted(_)
            | Event::CacheChanged(_)
            | Event::PurgeRequested(_)
            | Event::DomainDeleted(_)
            | Event::DomainRestored(_)
    )
}

/// The domains that a page changes.
pub fn touched(page: &[Logged]) -> BTreeMap<DomainId, Touch> {
    let mut touched: BTreeMap<DomainId, Touch> = BTreeMap::new();
    for logged in page {
        let Some((id, _)) = &logged.recorded.domain else { continue };
        if !affects_edges(&logged.event) {
            continue;
        }
        let (position, revision) = (logged.recorded.position, logged.recorded.revision);
        let proxied = matches!(logged.event, Event::HostnameReplaced(_));
        let touch = touched.entry(*id).or_insert(Touch { position, revision, proxied });
        (touch.position, touch.revision) = (position, revision);
        touch.proxied |= proxied;
    }
    touched
}

/// What is known of a domain when it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// As `desired` has it now.
    pub site: Site,
    /// Whether the domain is meant to be served at all.
    pub served: bool,
    /// Whether edges were told of it before.
    pub told: bool,
}

/// What is written of a domain.
#[derive(Debug)]
pub enum Write {
    /// This is published from now on.
    Put(Rendered),
    /// Nothing is.
    Remove,
    /// What is published stays, and this is why.
    Fault(RenderFault),
    /// Edges have to do with it, but a later page says what.
    Mark,
    /// Edges have nothing to do with it, or a later page says what.
    Nothing,
}

/// What a domain's newest event in the page comes to. Where `desired` is further on already, a later page has that
/// event, and what is written then bears its position: an artifact never bears the number of another revision.
pub fn write(known: &Known, touch: Touch, budget: ArtifactBudget) -> Write {
    let told = known.told || touch.proxied;
    if known.site.revision > touch.revision {
        return if told && !known.told { Write::Mark } else { Write::Nothing };
    }
    if !known.served || known.site.hostnames.is_empty() {
        return if told { Write::Remove } else { Write::Nothing };
    }
    match render(&known.site, budget) {
        Ok(rendered) => Write::Put(rendered),
        Err(fault) => Write::Fault(fault),
    }
}
