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
            | Event::HostnameWithdrawn(_)
            | Event::CacheChanged(_)
            | Event::PurgeRequested(_)
            | Event::CertificateReplaced(_)
            | Event::CertificateDeleted(_)
            | Event::DomainDeleted(_)
            | Event::DomainRestored(_)
            | Event::DomainActivated(_)
            | Event::DomainDisabled(_)
            | Event::DomainEnabled(_)
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

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_events::dns::{DomainName, OwnerName};
    use headwater_events::domain::destination::Destinations;
    use headwater_events::domain::{CachePolicy, HostnameBody, HostnameInput, OriginInput};
    use uuid::Uuid;

    fn known(revision: i64, names: &[&str], served: bool, told: bool) -> Known {
        let name = DomainName::parse("a.test").unwrap();
        let origin = OriginInput {
            scheme: Some("http".into()),
            host: Some("1.1.1.1".into()),
            ..OriginInput::default()
        };
        let input = HostnameInput { origin, ..HostnameInput::default() };
        let hostnames = names.iter().map(|text| {
            let owner = OwnerName::parse(text, &name).unwrap();
            let body = HostnameBody::parse(&input, &owner, &name, &Destinations::default()).unwrap();
            (owner, body)
        });
        let hostnames = hostnames.collect();
        let site = Site {
            id: DomainId::from_uuid(Uuid::from_u128(1)),
            name: name.clone(),
            revision: Revision::new(revision),
            hostnames,
            cache: CachePolicy::default(),
            epoch: 0,
            certificate: None,
        };
        Known { site, served, told }
    }

    /// Given a domain as `desired` has it, and its newest event of a page at revision 5, then that.
    #[test]
    fn only_what_stands_at_the_event_is_rendered() {
        let rows = [
            (known(5, &["www"], true, true), false, "put"),
            (known(5, &["www"], true, false), true, "put"),
            (known(6, &["www"], true, true), false, "nothing"),
            (known(6, &["www"], true, true), true, "nothing"),
            (known(6, &["www"], true, false), true, "mark"),
            (known(6, &[], true, false), false, "nothing"),
            (known(5, &[], true, true), false, "remove"),
            (known(5, &[], true, false), true, "remove"),
            (known(5, &[], true, false), false, "nothing"),
            (known(5, &["www"], false, true), false, "remove"),
        ];
        for (row, (known, proxied, expected)) in rows.into_iter().enumerate() {
            let touch = Touch { position: Position::new(9), revision: Revision::new(5), proxied };
            let told = match write(&known, touch, ArtifactBudget::default()) {
                Write::Put(_) => "put",
                Write::Remove => "remove",
                Write::Fault(_) => "fault",
                Write::Mark => "mark",
                Write::Nothing => "nothing",
            };
            assert_eq!(told, expected, "row {row}");
        }
    }

    #[test]
    fn a_site_renders_to_the_same_bytes_whatever_its_order() {
        let one = known(5, &["www", "@", "b.a"], true, true);
        let mut other = one.clone();
        other.site.hostnames.reverse();
        let of = |known: &Known| render(&known.site, ArtifactBudget::default()).unwrap();
        assert_eq!(of(&one), of(&other));
        let mut purged = one.clone();
        purged.site.epoch = 1;
        assert_ne!(of(&one).checksum, of(&purged).checksum);
    }
}
