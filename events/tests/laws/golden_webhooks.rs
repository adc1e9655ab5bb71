//! One sample of each event of a webhook.

use headwater_events::dns::DomainName;
use headwater_events::event::{Change, Event, Labels, Nothing};
use headwater_events::ids::Position;
use headwater_events::scope::Domains;
use headwater_events::time::Timestamp;
use headwater_events::webhook::*;

const AT: Timestamp = Timestamp::from_millis(1_700_000_000_005);

fn labels() -> Labels {
    [("env".to_owned(), "prod".to_owned()), ("team".to_owned(), "dns".to_owned())].into()
}

pub fn samples() -> Vec<Event> {
    let before = WebhookSettings {
        name: "to the inventory".into(),
        url: "https://hooks.example.net/headwater".into(),
        types: vec!["rrset.".into(), "domain.created".into()],
        domains: Domains::Named([DomainName::parse("example.com").unwrap()].into()),
        labels: labels(),
        description: Some("what changes".into()),
    };
    let after = WebhookSettings {
        name: "inventory".into(),
        domains: Domains::All,
        description: None,
        ..before.clone()
    };
    vec![
        Event::WebhookCreated(WebhookCreated { settings: before.clone(), enabled: true }),
        Event::WebhookUpdated(Box::new(Change { before, after })),
        Event::WebhookEnabled(Nothing {}),
        Event::WebhookDisabled(WebhookDisabled {
            reason: DisableReason::Failing,
            position: Some(Position::new(1_042)),
            detail: Some("3 events in a row could not be delivered: 503".into()),
        }),
        Event::WebhookSecretRotated(WebhookSecretRotated { version: 2, until: AT }),
        Event::WebhookReplayed(WebhookReplayed { after: Position::new(1_042) }),
        Event::WebhookDeleted(WebhookDeleted { name: "inventory".into() }),
    ]
}
