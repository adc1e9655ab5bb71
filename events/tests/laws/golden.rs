//! Every event that was ever written, byte for byte: `golden/<type>.<schema>.json` is read and written again to the
//! same octets. A file is never changed: a new shape is a new schema with a file of its own.
//!
//! `HEADWATER_WRITE_GOLDEN=1` makes the files that are missing.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use headwater_events::actor::Role;
use headwater_events::codec::decode;
use headwater_events::dns::{DomainName, OwnerName, RrSetBody, RrType, Ttl};
use headwater_events::domain::{
    Backup, CachePolicy, CertificateBody, CertificateDeleted, CertificateReplaced, CertificateSource,
    DomainRolledBack, DomainUndone, Health, HostnameBody, HostnameDeleted, HostnameReplaced,
    HostnameWithdrawn, Origin, PurgeRequested, PurgeScope, Scheme,
};
use headwater_events::edge::*;
use headwater_events::event::*;
use headwater_events::ids::{
    CertificateId, ClusterId, EdgeId, OperationId, PurgeId, Revision, TenantId, TokenId, UserId,
};
use headwater_events::manager::{Managing, View};
use headwater_events::people::*;
use headwater_events::scope::{Domains, Grant, NamePattern, Scope};
use headwater_events::time::Timestamp;
use proptest::collection::vec;
use proptest::prelude::*;
use uuid::Uuid;

const AT: Timestamp = Timestamp::from_millis(1_700_000_000_005);

fn id(n: u128) -> Uuid {
    Uuid::from_u128(0x0190_0000_0000_7000_8000_0000_0000_0000 + n)
}

fn name(text: &str) -> DomainName {
    DomainName::parse(text).unwrap()
}

fn body(records: &[&str], comment: Option<&str>) -> RrSetBody {
    let records = records.iter().map(|&record| record.to_owned()).collect();
    RrSetBody { ttl: Ttl::new(300).unwrap(), records, comment: comment.map(str::to_owned), managed_by: None }
}

fn managed(body: RrSetBody) -> RrSetBody {
    RrSetBody { managed_by: Some("octodns".parse().unwrap()), ..body }
}

fn labels() -> Labels {
    [("env".to_owned(), "prod".to_owned()), ("team".to_owned(), "dns".to_owned())].into()
}

fn fact(error: Option<&str>) -> DeploymentFact {
    let done = error.is_none();
    DeploymentFact {
        revision: Revision::new(7),
        active: Revision::new(if done { 7 } else { 6 }),
        checksum: Some("ab".repeat(32)),
        generation: Some(1),
        serial: Some(9),
        attempts: 2,
        stages: Stages { rendered: Some(AT), activated: done.then_some(AT), verified: None },
        error: error.map(str::to_owned),
        removed: false,
    }
}

fn identity(minimum: u32) -> DnsIdentity {
    DnsIdentity {
        nameservers: vec![name("ns1.example.net"), name("ns2.example.net")],
        hostmaster: name("hostmaster.example.net"),
        soa_ttl: 3_600,
        ns_ttl: 86_400,
        refresh: 3_600,
        retry: 600,
        expire: 1_209_600,
        minimum,
    }
}

fn domain_samples() -> Vec<Event> {
    let owner = OwnerName::from_canonical("_sip._tcp").unwrap();
    let settings = |external_id: Option<&str>, serial_base| DomainSettings {
        labels: labels(),
        external_id: external_id.map(str::to_owned),
        serial_base,
    };
    vec![
        Event::DomainCreated(DomainCreated {
            name: name("example.com"),
            tenant: TenantId::from_uuid(id(1)),
            status: DomainStatus::Active,
            labels: labels(),
            external_id: Some("4711".into()),
            serial_base: 1,
        }),
        Event::DomainUpdated(Change {
            before: settings(None, 1),
            after: settings(Some("4711"), 4_000_000_000),
        }),
        Event::DomainDeleted(DomainDeleted {
            before: DomainStatus::Active,
            hold_until: AT,
            last_serial: 8,
            allowed: vec!["empties_zone".into()],
        }),
        Event::DomainRestored(DomainRestored {
            status: DomainStatus::PendingVerification,
            disabled_by: None,
        }),
        Event::DomainActivated(DomainActivated { proof: Proof::Delegation }),
        Event::DomainDisabled(DomainDisabled { before: DomainStatus::Active, by: DisabledBy::Operator }),
        Event::DomainEnabled(Nothing {}),
        Event::DomainExpired(DomainExpired { expired_at: AT, last_serial: 4 }),
        Event::DelegationLost(DelegationLost { detail: "the parent delegates it to nobody".into() }),
        Event::DelegationRestored(DelegationRestored {
            detail: "the parent delegates it to ns1.example.net".into(),
        }),
        Event::RrsetReplaced(RrsetReplaced {
            name: owner.clone(),
            rrtype: RrType::parse("SRV").unwrap(),
            before: None,
            after: managed(body(&["10 60 5060 sip.example.net."], Some("a \"quoted\" ü"))),
            allowed: Vec::new(),
        }),
        Event::RrsetDeleted(RrsetDeleted {
            name: OwnerName::apex(),
            rrtype: RrType::parse("TXT").unwrap(),
            before: managed(body(&["\"v=spf1 -all\"", "\"\\195\\188\""], None)),
            allowed: vec!["mass_delete".into()],
        }),
        Event::AuditExported(AuditExported {
            what: "trail".into(),
            format: "text/csv".into(),
            filters: [("domain".to_owned(), "example.com".to_owned())].into(),
        }),
        Event::UndoRequested(UndoRequested {
            token: TokenId::from_uuid(id(3)),
            since: AT,
            until: None,
            allowed: vec!["many_domains".into()],
            take_over: true,
        }),
        Event::DomainRolledBack(DomainRolledBack { to: Revision::new(3), edges: true }),
        Event::DomainUndone(DomainUndone {
            revisions: vec![Revision::new(3), Revision::new(5)],
            edges: true,
            kept: vec!["/rrsets/www/A".into()],
        }),
    ]
}

fn account_samples() -> Vec<Event> {
    let (user, token) = (UserId::from_uuid(id(2)), TokenId::from_uuid(id(3)));
    vec![
        Event::TenantCreated(TenantCreated { name: "Acme".into(), labels: labels(), external_id: None }),
        Event::MemberAdded(MemberAdded { user, role: Role::Owner }),
        Event::MemberChanged(MemberChanged { user, before: Role::Owner, after: Role::Viewer }),
        Event::MemberRemoved(MemberRemoved { user }),
        Event::DomainMemberAdded(MemberAdded { user, role: Role::Editor }),
        Event::DomainMemberChanged(MemberChanged { user, before: Role::Editor, after: Role::Viewer }),
        Event::DomainMemberRemoved(MemberRemoved { user }),
        Event::UserCreated(UserCreated { admin: true }),
        Event::TokenCreated(TokenCreated {
            token,
            name: "ci".into(),
            expires_at: Some(AT),
            scopes: Some(vec![
                Scope {
                    verbs: [Grant::Read, Grant::Write].into(),
                    domains: Domains::Named([name("example.com")].into()),
                    names: Some([NamePattern::parse("_acme-challenge.*").unwrap()].into()),
                    types: Some([RrType::TXT].into()),
                },
                Scope { verbs: [Grant::Read].into(), domains: Domains::All, names: None, types: None },
            ]),
            limits: TokenLimits {
                max_unused_days: Some(30),
                networks: vec!["192.0.2.0/24".parse().unwrap(), "2001:db8::/32".parse().unwrap()],
            },
            managing: Managing { manager: Some("octodns".parse().unwrap()), view: View::Own },
        }),
        Event::TokenRevoked(TokenRevoked { token }),
        Event::OperationFinished(OperationFinished {
            operation: OperationId::from_uuid(id(4)),
            state: "failed".into(),
            partial: vec![ClusterId::from_uuid(id(5))],
            error: Some(OperationError {
                code: "deadline".into(),
                detail: "dns-2 did not follow within 120 s".into(),
                target: Some(ClusterId::from_uuid(id(5))),
            }),
            result: None,
            cells: Vec::new(),
            warnings: Vec::new(),
        }),
        Event::OperationRequested(OperationRequested {
            kind: Work::Rebuild,
            projection: Projection::Powerdns,
            domain: Some(name("example.com")),
            mend: true,
            cluster: None,
        }),
        Event::PlatformInitialized(PlatformInitialized { tenant: TenantId::from_uuid(id(1)) }),
        Event::DnsIdentityChanged(DnsIdentityChanged {
            before: Some(identity(300)),
            after: identity(60),
            generation: 1,
        }),
    ]
}

fn people_samples() -> Vec<Event> {
    let tenant = |name: &str| TenantSettings { name: name.into(), labels: labels(), external_id: None };
    vec![
        Event::UserUpdated(Change {
            before: UserSettings { admin: true },
            after: UserSettings { admin: false },
        }),
        Event::ProfileChanged(ProfileChanged { fields: vec!["email".into(), "name".into()] }),
        Event::PasswordChanged(Nothing {}),
        Event::UserEnabled(Nothing {}),
        Event::UserDisabled(Nothing {}),
        Event::UserDeleted(Nothing {}),
        Event::TenantUpdated(Change { before: tenant("Acme"), after: tenant("Acme Ltd") }),
        Event::TenantDeleted(Nothing {}),
    ]
}

fn reached(dns: &str) -> ClusterSettings {
    ClusterSettings {
        database_url_file: "/etc/headwater/dns-1.url".into(),
        dns: dns.into(),
        front: None,
        nameservers: vec![name("ns1.example.net")],
    }
}

fn target_samples() -> Vec<Event> {
    let pause = |scope| DeploymentsPaused { scope, reason: "maintenance".into() };
    vec![
        Event::ClusterCreated(ClusterCreated {
            name: "dns-1".into(),
            database_url_file: "/etc/headwater/dns-1.url".into(),
            dns: "192.0.2.1:53".into(),
            front: Some("192.0.2.2:53".into()),
            nameservers: vec![name("ns1.example.net")],
            enabled: true,
        }),
        Event::ClusterUpdated(Change { before: reached("192.0.2.1:53"), after: reached("192.0.2.3:53") }),
        Event::ClusterEnabled(Nothing {}),
        Event::ClusterDeleted(ClusterDeleted { name: "dns-1".into(), retained: false, zones: 1_200 }),
        Event::ClusterRemovalRequested(ClusterRemovalRequested { cluster: ClusterId::from_uuid(id(5)) }),
        Event::ClusterDisabled(Nothing {}),
        Event::DeploymentRendered(fact(None)),
        Event::DeploymentRejected(fact(Some("CNAME and other data"))),
        Event::DeploymentActivated(fact(None)),
        Event::DeploymentAcknowledged(DeploymentFact { removed: true, ..fact(None) }),
        Event::DeploymentFailed(fact(Some("connection refused"))),
        Event::DeploymentSuperseded(fact(None)),
        Event::DeploymentRecovered(fact(None)),
        Event::DeploymentAhead(fact(Some("the target holds serial 12"))),
        Event::DriftMended(DriftMended { rows: 2, sample: vec!["www.example.com A".into()] }),
        Event::DeploymentsPaused(pause(PauseScope::Domain(name("example.com")))),
        Event::DeploymentsResumed(DeploymentsResumed {
            scope: PauseScope::Target(ClusterId::from_uuid(id(5))),
            reason: String::new(),
        }),
    ]
}

fn origin(scheme: Scheme, host: &str) -> Origin {
    let https = scheme == Scheme::Https;
    Origin {
        scheme,
        host: host.into(),
        port: if https { 443 } else { 80 },
        host_header: "www.example.com".into(),
        sni: https.then(|| host.to_owned()),
        verify_tls: true,
        connect_timeout_ms: 3_000,
        response_timeout_ms: 30_000,
        retries: 1,
        websocket: https,
    }
}

fn site_samples() -> Vec<Event> {
    let plain = HostnameBody { origin: origin(Scheme::Http, "192.0.2.10"), backup: None, health: None };
    let whole = HostnameBody {
        origin: origin(Scheme::Https, "origin.example.org"),
        backup: Some(Backup {
            origin: origin(Scheme::Http, "2001:db8::1"),
            failure_threshold: 3,
            recovery_threshold: 2,
            hold_down_seconds: 30,
            failback_delay_seconds: 60,
        }),
        health: Some(Health { path: "/healthz?deep=1".into(), interval_seconds: 60 }),
    };
    let cache = CachePolicy::default();
    vec![
        Event::HostnameReplaced(Box::new(HostnameReplaced {
            name: OwnerName::from_canonical("www").unwrap(),
            before: Some(plain.clone()),
            after: whole,
        })),
        Event::HostnameDeleted(Box::new(HostnameDeleted {
            name: OwnerName::from_canonical("*.shop").unwrap(),
            before: plain,
        })),
        Event::CacheChanged(Change {
            before: cache.clone(),
            after: CachePolicy { enabled: false, edge_ttl_seconds: 600, ..cache },
        }),
        Event::PurgeRequested(PurgeRequested {
            purge: PurgeId::from_uuid(id(6)),
            scope: PurgeScope::All,
            before: 0,
            after: 1,
        }),
    ]
}

fn endpoints() -> Endpoints {
    let addresses = vec!["1.1.1.1".parse().unwrap(), "2606:4700::1".parse().unwrap()];
    let edges = [(EdgeId::from_uuid(id(9)), addresses)].into();
    Endpoints { zone: name("edge.example.net"), ttl: 300, pools: [("shared".to_owned(), edges)].into() }
}

fn certificate(version: u32, fingerprint: &str) -> CertificateBody {
    CertificateBody {
        id: CertificateId::from_uuid(id(7)),
        version,
        source: CertificateSource::Custom,
        names: vec!["*.example.com".into(), "example.com".into()],
        issuer: "C=XX, O=Example Trust, CN=Example Intermediate".into(),
        serial: "0b".repeat(16),
        fingerprint: fingerprint.repeat(32),
        key: "p-256".into(),
        not_before: AT,
        not_after: AT,
        chain: "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n".into(),
    }
}

fn certificate_samples() -> Vec<Event> {
    vec![
        Event::CertificateReplaced(Box::new(CertificateReplaced {
            before: Some(certificate(1, "ab")),
            after: certificate(2, "cd"),
        })),
        Event::CertificateDeleted(Box::new(CertificateDeleted { before: certificate(2, "cd") })),
    ]
}

fn edge_samples() -> Vec<Event> {
    let settings = |external_id: Option<&str>| EdgeSettings {
        country: "DE".into(),
        continent: "EU".into(),
        labels: labels(),
        external_id: external_id.map(str::to_owned),
    };
    vec![
        Event::EdgeCreated(EdgeCreated {
            name: "fra1".into(),
            country: "DE".into(),
            continent: "EU".into(),
            cells: 8,
            labels: labels(),
            external_id: Some("4711".into()),
        }),
        Event::EdgeUpdated(Change { before: settings(None), after: settings(Some("4711")) }),
        Event::EdgeEnabled(Nothing {}),
        Event::EdgeDisabled(Nothing {}),
        Event::EdgeDrained(Nothing {}),
        Event::EdgeUndrained(Nothing {}),
        Event::CellDrained(CellSwitched { cell: 3 }),
        Event::CellUndrained(CellSwitched { cell: 3 }),
        Event::EdgeIdentityIssued(IdentityIssued {
            serial: "0b".repeat(16),
            key: "ab".repeat(32),
            not_after: AT,
        }),
        Event::EdgeIdentityRevoked(IdentityRevoked { reason: RevocationReason::Rotated }),
        Event::EdgeIdentityCloned(IdentityCloned { serial: "0b".repeat(16), sign: CloneSign::Sources }),
        Event::EdgeDeleted(EdgeDeleted { name: "fra1".into() }),
        Event::PoolCreated(PoolCreated::shared()),
        Event::AddressesChanged(AddressesChanged {
            before: vec!["1.1.1.1".parse().unwrap()],
            after: vec!["1.1.1.1".parse().unwrap(), "2606:4700::1".parse().unwrap()],
        }),
        Event::EndpointsChanged(Box::new(EndpointsChanged {
            before: None,
            after: endpoints(),
            generation: 3,
            why: vec!["fra1 is ready".into()],
        })),
        Event::HostnameWithdrawn(HostnameWithdrawn { name: OwnerName::from_canonical("www").unwrap() }),
    ]
}

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

#[test]
fn every_event_that_was_ever_written_is_read_and_written_the_same() {
    let samples = [
        domain_samples(),
        account_samples(),
        crate::golden_imports::samples(id),
        people_samples(),
        target_samples(),
        site_samples(),
        certificate_samples(),
        edge_samples(),
        crate::golden_webhooks::samples(),
    ]
    .concat();
    let sampled: BTreeSet<_> = samples.iter().map(|event| (event.type_name(), event.schema())).collect();
    assert_eq!(sampled, Event::TYPES.iter().copied().collect(), "one sample of each type");
    for event in &samples {
        let file = golden().join(format!("{}.{}.json", event.type_name(), event.schema()));
        if !file.exists() && std::env::var_os("HEADWATER_WRITE_GOLDEN").is_some() {
            std::fs::write(&file, format!("{}\n", event.to_json().unwrap())).unwrap();
        }
        assert!(file.exists(), "{} is missing", file.display());
    }
    let mut seen = BTreeSet::new();
    for entry in std::fs::read_dir(golden()).unwrap().map(Result::unwrap) {
        let file_name = entry.file_name().into_string().unwrap();
        let (event_type, schema) = file_name.strip_suffix(".json").unwrap().rsplit_once('.').unwrap();
        let schema: i16 = schema.parse().unwrap();
        let text = std::fs::read_to_string(entry.path()).unwrap();
        let event = decode(event_type, schema, text.as_bytes()).unwrap();
        if Event::TYPES.contains(&(event_type, schema)) {
            assert_eq!(format!("{}\n", event.to_json().unwrap()), text, "{file_name}");
        }
        if let Some(sample) =
            samples.iter().find(|sample| (sample.type_name(), sample.schema()) == (event_type, schema))
        {
            assert_eq!(&event, sample, "{file_name} is not what the sample says: a shape has changed");
        }
        seen.insert((event_type.to_owned(), schema));
    }
    for (event_type, newest) in Event::TYPES {
        for schema in 1..=*newest {
            assert!(
                seen.contains(&((*event_type).to_owned(), schema)),
                "{event_type} schema {schema} has no file"
            );
        }
    }
}

fn any_body() -> impl Strategy<Value = RrSetBody> {
    let comment = proptest::option::of(".{0,40}");
    let manager = proptest::option::of("[a-z0-9][a-z0-9._-]{0,8}");
    let parts = (0..=2_147_483_647_i64, vec(".{0,60}", 0..5), comment, manager);
    parts.prop_map(|(ttl, records, comment, manager)| RrSetBody {
        managed_by: manager.and_then(|name| name.parse().ok()),
        ttl: Ttl::new(ttl).unwrap(),
        records,
        comment,
    })
}

fn any_owner() -> impl Strategy<Value = OwnerName> {
    let label = proptest::sample::select(vec!["www", "_dmarc", "a-b", "xn--mnchen-3ya", "0", "*"]);
    vec(label, 0..4).prop_filter_map("a wildcard stands first", |labels| {
        let text = if labels.is_empty() { "@".to_owned() } else { labels.join(".") };
        OwnerName::parse(&text, &name("example.com")).ok()
    })
}

proptest! {
    #[test]
    fn rrset_events_survive_the_log(
        owner in any_owner(),
        ty in proptest::sample::select(RrType::all_writable().collect::<Vec<_>>()),
        before in proptest::option::of(any_body()),
        after in any_body(),
        allowed in vec("[a-z_]{1,12}", 0..2),
    ) {
        let replaced = RrsetReplaced { name: owner.clone(), rrtype: ty, before, after: after.clone(), allowed: allowed.clone() };
        let deleted = RrsetDeleted { name: owner, rrtype: ty, before: after, allowed };
        for event in [Event::RrsetReplaced(replaced), Event::RrsetDeleted(deleted)] {
            let text = event.to_json().unwrap();
            prop_assert!(!text.contains('\n'), "one line");
            let read = decode(event.type_name(), event.schema(), text.as_bytes()).unwrap();
            prop_assert_eq!(&read, &event);
            prop_assert_eq!(read.to_json().unwrap(), text);
        }
    }
}
