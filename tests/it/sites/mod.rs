//! What edges are told of a domain: by the API, in the projection `edge`, and in how operations end.

mod api;
mod edge;
mod waits;

use headwater::command::Command;
use headwater_events::dns::{DomainName, OwnerName};
use headwater_events::domain::destination::Destinations;
use headwater_events::domain::{DomainCommand, HostnameBody, HostnameInput, OriginInput};
use headwater_events::ids::PurgeId;
use uuid::Uuid;

/// `PUT` of a hostname.
pub fn host(zone: &str, owner: &str, origin: &str) -> Command {
    let name = DomainName::parse(zone).unwrap();
    let owner = OwnerName::parse(owner, &name).unwrap();
    let sent = OriginInput {
        scheme: Some("http".into()),
        host: Some(origin.into()),
        host_header: Some("www.example.net".into()),
        ..OriginInput::default()
    };
    let input = HostnameInput { origin: sent, ..HostnameInput::default() };
    let body = HostnameBody::parse(&input, &owner, &name, &Destinations::default()).unwrap();
    Command::Domain { name, command: DomainCommand::PutHostname { owner, body } }
}

pub fn unhost(zone: &str, owner: &str) -> Command {
    let name = DomainName::parse(zone).unwrap();
    let owner = OwnerName::parse(owner, &name).unwrap();
    Command::Domain { name, command: DomainCommand::DeleteHostname { owner } }
}

pub fn on(zone: &str, command: DomainCommand) -> Command {
    Command::Domain { name: DomainName::parse(zone).unwrap(), command }
}

pub fn purge(zone: &str) -> Command {
    on(zone, DomainCommand::Purge { id: PurgeId::from_uuid(Uuid::now_v7()) })
}
