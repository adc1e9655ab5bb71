//! Samples of what is asked of an import, for the golden files.

use headwater_events::dns::DomainName;
use headwater_events::event::Event;
use headwater_events::ids::{OperationId, TenantId};
use headwater_events::migration::{
    ImportCompareRequested, ImportCutoverRequested, ImportRequested, ImportSource, Mode, OnExisting, Tenants,
    TsigAlgorithm, TsigReference, ZonePattern,
};
use uuid::Uuid;

/// One of each event.
pub fn samples(id: fn(u128) -> Uuid) -> Vec<Event> {
    let import = || import(TenantId::from_uuid(id(4)));
    let cutover = ImportCutoverRequested {
        import: OperationId::from_uuid(id(9)),
        without_last_look: true,
        requested: ImportRequested {
            source: ImportSource::PdnsPostgres { database_url_file: "/etc/headwater/old-pdns.url".into() },
            zones: None,
            allowed: Vec::new(),
            take_over: false,
            ..import()
        },
    };
    let compare = ImportCompareRequested {
        import: OperationId::from_uuid(id(9)),
        old: "192.0.2.53:53".parse().unwrap(),
        zones: Some(vec![ZonePattern::parse("*.example.com").unwrap()]),
        ignore_ttl: true,
    };
    vec![
        Event::ImportRequested(Box::new(import())),
        Event::ImportCutoverRequested(Box::new(cutover)),
        Event::ImportCompareRequested(Box::new(compare)),
    ]
}

fn import(tenant: TenantId) -> ImportRequested {
    let tsig = TsigReference {
        name: DomainName::parse("transfer.example.net").unwrap(),
        algorithm: TsigAlgorithm::Sha256,
        secret_file: "/etc/headwater/transfer.key".into(),
    };
    ImportRequested {
        source: ImportSource::Axfr {
            primary: "192.0.2.53:53".parse().unwrap(),
            zones: vec![DomainName::parse("example.com").unwrap()],
            tsig: Some(tsig),
        },
        mode: Mode::Follow,
        tenants: Tenants { by_account: [("acme".to_owned(), tenant)].into(), default: None },
        zones: Some(vec![ZonePattern::parse("*.example.com").unwrap()]),
        activate: true,
        on_existing: OnExisting::Merge,
        follow_seconds: 60,
        allowed: vec!["mass_delete".into()],
        take_over: true,
    }
}
