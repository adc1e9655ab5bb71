//! Decisions about tenants, users, tokens, clusters, the platform, deployments: tables of given, when, then.

use headwater_events::actor::{Caller, Role};
use headwater_events::admin::{AdminCommand, AdminView, Observation, Outcome, OwnedDomain, decide};
use headwater_events::dns::DomainName;
use headwater_events::domain::Decided;
use headwater_events::event::{
    ClusterCreated, ClusterRemovalRequested, DnsIdentity, DriftMended, OperationFinished, OperationRequested,
    PauseScope, Projection, Work,
};
use headwater_events::ids::{ClusterId, OperationId, Revision, TokenId, UserId};
use uuid::Uuid;

use crate::given::{DOMAIN, OPERATION, TENANT, told, user, zone};

const USER: UserId = UserId::from_uuid(Uuid::from_u128(9));
const TOKEN: TokenId = TokenId::from_uuid(Uuid::from_u128(10));
const CLUSTER: ClusterId = ClusterId::from_uuid(Uuid::from_u128(11));

fn there() -> AdminView {
    AdminView { revision: Revision::new(3), user_exists: true, scope_exists: true, ..AdminView::default() }
}

fn owned() -> OwnedDomain {
    OwnedDomain { id: DOMAIN, name: zone(), tenant: TENANT }
}

fn tenant(name: &str) -> AdminCommand {
    AdminCommand::CreateTenant { id: TENANT, name: name.into(), labels: [].into(), external_id: None }
}

fn token(user: UserId, name: &str) -> AdminCommand {
    AdminCommand::CreateToken {
        user,
        token: TOKEN,
        name: name.into(),
        expires_at: None,
        scopes: None,
        limits: Default::default(),
        managing: Default::default(),
    }
}

fn cluster(file: &str, dns: &str) -> AdminCommand {
    let cluster = ClusterCreated {
        name: "dns-1".into(),
        database_url_file: file.into(),
        dns: dns.into(),
        front: None,
        nameservers: Vec::new(),
        enabled: true,
    };
    AdminCommand::CreateCluster { id: CLUSTER, cluster }
}

fn request(kind: Work, domain: Option<DomainName>) -> AdminCommand {
    let requested =
        OperationRequested { kind, projection: Projection::Powerdns, domain, mend: true, cluster: None };
    AdminCommand::RequestOperation { operation: OPERATION, requested }
}

fn identity(nameservers: usize, refresh: u32, expire: u32) -> DnsIdentity {
    let name = |text: String| DomainName::parse(&text).unwrap();
    DnsIdentity {
        nameservers: (0..nameservers).map(|n| name(format!("ns{n}.example.net"))).collect(),
        hostmaster: name("hostmaster.example.net".into()),
        soa_ttl: 3_600,
        ns_ttl: 3_600,
        refresh,
        retry: 600,
        expire,
        minimum: 300,
    }
}

type Row = (AdminView, AdminCommand, &'static str);

fn members() -> Vec<Row> {
    let new = AdminView::default;
    let member = || AdminView { role: Some(Role::Editor), ..there() };
    let put = |role| AdminCommand::AddMember { tenant: TENANT, user: USER, role };
    let add = || put(None);
    let put_in = |role| AdminCommand::AddDomainMember { domain: owned(), user: USER, role };
    let remove_in = || AdminCommand::RemoveDomainMember { domain: owned(), user: USER };
    let remove = || AdminCommand::RemoveMember { tenant: TENANT, user: USER };
    vec![
        (there(), add(), "4: tenant.member_added"),
        (member(), add(), "unchanged at 3"),
        (member(), put(Some(Role::Editor)), "unchanged at 3"),
        (member(), put(Some(Role::Owner)), "4: tenant.member_changed"),
        (there(), put_in(Role::Viewer), "4: domain.member_added"),
        (member(), put_in(Role::Editor), "unchanged at 3"),
        (member(), put_in(Role::Viewer), "4: domain.member_changed"),
        (member(), remove_in(), "4: domain.member_removed"),
        (there(), remove_in(), "unchanged at 3"),
        (AdminView { user_exists: false, ..there() }, put_in(Role::Viewer), "not found"),
        (member(), remove(), "4: tenant.member_removed"),
        (there(), remove(), "unchanged at 3"),
        (new(), add(), "not found"),
        (AdminView { user_exists: false, ..there() }, add(), "not found"),
    ]
}

fn rows() -> Vec<Row> {
    let new = AdminView::default;
    let taken = || AdminView { name_taken: true, ..there() };
    let cancel = || AdminCommand::CancelOperation { operation: OPERATION };
    let busy = || AdminView { running: Some(OPERATION), ..new() };
    let revoke = || AdminCommand::RevokeToken { user: USER, token: TOKEN, possessed: false };
    let enable = |enabled| AdminCommand::SetClusterEnabled { cluster: CLUSTER, enabled };
    let stands = || AdminView { scope_exists: true, ..there() };
    let gone = || AdminView { scope_exists: false, ..there() };
    let forget = || AdminCommand::DeleteCluster { cluster: CLUSTER, retained: true, zones: 0 };
    let leave = || AdminCommand::RequestRemoval {
        operation: OPERATION,
        requested: ClusterRemovalRequested { cluster: CLUSTER },
    };
    let pause = |reason: &str| AdminCommand::Pause { scope: PauseScope::All, reason: reason.into() };
    let known = || AdminView { identity: Some(identity(2, 3_600, 1_209_600)), generation: 4, ..there() };
    let set = |n, refresh, expire| AdminCommand::SetDnsIdentity(identity(n, refresh, expire));
    vec![
        (new(), AdminCommand::InitializePlatform { tenant: TENANT }, "1: platform.initialized"),
        (there(), AdminCommand::InitializePlatform { tenant: TENANT }, "unchanged at 3"),
        (new(), tenant("Acme"), "1: tenant.created"),
        (new(), tenant(" "), "invalid: /name invalid_name"),
        (new(), tenant("a\nb"), "invalid: /name invalid_name"),
        (taken(), tenant("Acme"), "name taken"),
        (new(), AdminCommand::CreateUser { id: USER, admin: false }, "1: user.created"),
        (taken(), AdminCommand::CreateUser { id: USER, admin: false }, "name taken"),
        (there(), token(USER, "ci"), "4: token.created"),
        (there(), token(USER, ""), "invalid: /name invalid_name"),
        (new(), token(USER, "ci"), "not found"),
        (AdminView { token_active: true, ..there() }, revoke(), "4: token.revoked"),
        (there(), revoke(), "not found"),
        (new(), cluster("/etc/dns-1.url", "192.0.2.1:53"), "1: dns_cluster.created"),
        (
            new(),
            cluster("dns-1.url", "192.0.2.1"),
            "invalid: /database_url_file invalid_path, /dns invalid_address",
        ),
        (AdminView { clusters: 16, ..new() }, cluster("/x", "192.0.2.1:53"), "invalid: too_many_clusters"),
        (stands(), enable(true), "4: dns_cluster.enabled"),
        (stands(), enable(false), "unchanged at 3"),
        (AdminView { enabled: true, ..stands() }, enable(false), "4: dns_cluster.disabled"),
        (new(), enable(true), "not found"),
        // One that is gone still has a stream; one that is to go is enabled never again.
        (gone(), enable(true), "not found"),
        (AdminView { leaving: true, ..stands() }, enable(true), "conflict: conflict"),
        (stands(), forget(), "4: dns_cluster.deleted"),
        (AdminView { enabled: true, ..stands() }, forget(), "conflict: conflict"),
        (gone(), forget(), "not found"),
        (AdminView { scope_exists: true, ..new() }, leave(), "1: dns_cluster.removal_requested"),
        (AdminView { scope_exists: true, enabled: true, ..new() }, leave(), "conflict: conflict"),
        (new(), leave(), "not found"),
        (there(), pause("maintenance"), "4: deployments.paused"),
        (AdminView { paused: true, ..there() }, pause("maintenance"), "unchanged at 3"),
        (AdminView { scope_exists: false, ..there() }, pause("x"), "invalid: /id not_found"),
        (new(), request(Work::Rebuild, None), "1: operation.requested"),
        (new(), request(Work::Verify, Some(zone())), "not found"),
        (
            AdminView { scope_exists: true, ..new() },
            request(Work::Verify, Some(zone())),
            "1: operation.requested",
        ),
        (busy(), request(Work::Rebuild, None), "conflict: conflict"),
        (there(), cancel(), "4: operation.finished"),
        (new(), cancel(), "not found"),
        (AdminView { operation_terminal: true, ..there() }, cancel(), "conflict: already_ended"),
        (there(), pause("a\nb"), "invalid: /reason invalid_reason"),
        (there(), set(2, 3_600, 1_209_600), "4: platform.dns_identity_changed"),
        (known(), set(2, 3_600, 1_209_600), "unchanged at 3"),
        (there(), set(1, 3_600, 1_209_600), "invalid: /nameservers nameserver_count"),
        (there(), set(2, 299, 1_209_600), "invalid: /refresh out_of_range"),
        (there(), set(2, 86_400, 86_400), "invalid: /expire out_of_range"),
        (
            there(),
            AdminCommand::RecordDeployments { cluster: CLUSTER, observed: Vec::new() },
            "unchanged at 3",
        ),
    ]
}

#[test]
fn a_table_of_decisions() {
    for (view, command, then) in [rows(), members()].concat() {
        assert_eq!(
            told(&decide(&view, &command, &Caller::system(), OPERATION)),
            then,
            "{command:?} {view:?}"
        );
    }
}

#[test]
fn users_may_only_what_is_theirs() {
    let mut anybody = user(TENANT);
    for role in Role::ALL {
        anybody.tenants.insert(TENANT, role);
        for (view, command, _) in [rows(), members()].concat() {
            let own = match &command {
                AdminCommand::CreateToken { .. } | AdminCommand::RevokeToken { .. } => true,
                AdminCommand::AddMember { .. }
                | AdminCommand::RemoveMember { .. }
                | AdminCommand::AddDomainMember { .. }
                | AdminCommand::RemoveDomainMember { .. } => role == Role::Owner,
                _ => false,
            };
            let refused = told(&decide(&view, &command, &anybody, OPERATION)) == "forbidden";
            assert_eq!(refused, !own, "{role:?} {command:?}");
        }
    }
    let other = UserId::from_uuid(Uuid::from_u128(77));
    assert_eq!(told(&decide(&there(), &token(other, "ci"), &anybody, OPERATION)), "not found");
    let active = AdminView { token_active: true, ..there() };
    let leaked = AdminCommand::RevokeToken { user: other, token: TOKEN, possessed: true };
    assert_eq!(told(&decide(&active, &leaked, &anybody, OPERATION)), "4: token.revoked");
}

#[test]
fn events_of_targets_and_operations_name_whom_they_concern() {
    let system = Caller::system();
    let outcome = Outcome::Mended(DriftMended { rows: 1, sample: Vec::new() });
    let observed = vec![Observation { domain: DOMAIN, name: zone(), tenant: TENANT, outcome }; 2];
    let command = AdminCommand::RecordDeployments { cluster: CLUSTER, observed };
    let Ok(Decided::Changed(decision)) = decide(&there(), &command, &system, OPERATION) else {
        panic!("refused")
    };
    assert_eq!((decision.events.len(), decision.operation), (2, None));
    assert!(
        decision
            .events
            .iter()
            .all(|event| event.domain == Some((DOMAIN, zone())) && event.tenant == Some(TENANT))
    );
    let operation = OperationId::from_uuid(Uuid::from_u128(12));
    let finished = OperationFinished {
        operation,
        state: "failed".into(),
        partial: Vec::new(),
        error: None,
        result: None,
        cells: Vec::new(),
        warnings: Vec::new(),
    };
    let finish =
        AdminCommand::FinishOperation { domain: Some((DOMAIN, zone())), tenant: Some(TENANT), finished };
    let Ok(Decided::Changed(decision)) = decide(&AdminView::default(), &finish, &system, OPERATION) else {
        panic!("refused")
    };
    assert_eq!(
        (decision.events[0].stream.id, decision.events[0].operation),
        (operation.as_uuid(), Some(operation))
    );
    let ended = AdminView { operation_terminal: true, ..there() };
    assert_eq!(told(&decide(&ended, &finish, &system, OPERATION)), "unchanged at 3");
    let enable = AdminCommand::SetClusterEnabled { cluster: CLUSTER, enabled: true };
    let there = AdminView { scope_exists: true, ..there() };
    let Ok(Decided::Changed(decision)) = decide(&there, &enable, &system, OPERATION) else {
        panic!("refused")
    };
    assert_eq!((decision.operation, decision.events[0].operation), (Some(OPERATION), Some(OPERATION)));
}
