//! `desired` from the log: rebuilt under load while readers look, rebuilt from nothing, interrupted at each phase,
//! compared row by row; and the verification of the log itself, which names what was altered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use futures_util::future::join_all;
use headwater::command::{Command, Meta};
use headwater::rebuild::desired::{rebuild, verify};
use headwater::rebuild::{self, Phase, RebuildError};
use headwater::store::verify::{FaultKind, verify as verify_log};
use headwater_events::actor::{Caller, Role};
use headwater_events::admin::{AdminCommand, Observation, Outcome, OwnedDomain};
use headwater_events::dns::DomainName;
use headwater_events::domain::{
    CertificateBody, CertificateSource, DomainCommand, NewCertificate, RrsetChange, SealedPrivateKey,
};
use headwater_events::event::{DeploymentFact, PauseScope, Stages};
use headwater_events::ids::{
    CertificateId, ClusterId, DomainId, Position, Revision, TenantId, TokenId, UserId, WebhookId,
};
use headwater_events::manager::{Managing, View};
use headwater_events::people::TokenLimits;
use headwater_events::scope::{Domains, Grant, Scope};
use headwater_events::time::Timestamp;
use headwater_events::webhook::{
    DisableReason, WebhookCommand, WebhookCreated, WebhookDisabled, WebhookPatch, WebhookSettings,
};
use sqlx::postgres::PgPool;
use sqlx::{AssertSqlSafe, Executor};
use uuid::Uuid;

use crate::sites::{host, purge, unhost};
use crate::support::TestDb;
use crate::support::log::*;

/// Domains that are written while `desired` is rebuilt.
const WRITERS: i64 = 2;

fn fact(revision: Revision) -> DeploymentFact {
    DeploymentFact {
        revision,
        active: revision,
        checksum: Some("ab".into()),
        generation: Some(0),
        serial: Some(7),
        attempts: 1,
        stages: Stages::default(),
        error: None,
        removed: false,
    }
}

async fn record(log: &Log, cluster: ClusterId, domain: DomainId, zone: &str, outcome: Outcome) {
    let observed = vec![Observation { domain, name: domain_name(zone), tenant: log.tenant, outcome }];
    log.admin(AdminCommand::RecordDeployments { cluster, observed }).await;
}

/// Every row of `desired` as text, table by table.
async fn dump(pool: &PgPool) -> Vec<(String, Vec<String>)> {
    let names =
        "select table_name::text from information_schema.tables where table_schema = 'desired' order by 1";
    let tables: Vec<String> = sqlx::query_scalar(names).fetch_all(pool).await.unwrap();
    let mut dumped = Vec::new();
    for table in tables {
        let text = format!("select t::text from desired.{table} t order by 1");
        let rows = sqlx::query_scalar(AssertSqlSafe(text)).fetch_all(pool).await.unwrap();
        dumped.push((table, rows));
    }
    dumped
}

/// A certificate, as far as `desired` is concerned.
fn brought(zone: &str, version: u32) -> Command {
    let at = Timestamp::from_millis(1_700_000_000_000);
    let body = CertificateBody {
        id: CertificateId::from_uuid(Uuid::from_u128(7)),
        version,
        source: CertificateSource::Custom,
        names: vec![format!("*.{zone}")],
        issuer: "CN=Issuer".into(),
        serial: "01".into(),
        fingerprint: format!("{version:02}"),
        key: "p-256".into(),
        not_before: at,
        not_after: at,
        chain: String::new(),
    };
    let key = SealedPrivateKey::new(b"sealed".to_vec());
    let new = NewCertificate { body, key, warnings: Vec::new() };
    on(zone, DomainCommand::PutCertificate(Box::new(new)))
}

/// Roles in a tenant and with a single domain, given, changed and taken away; a token that is limited.
async fn access(log: &Log, user: UserId, id: DomainId, name: &str) {
    let tenant = log.tenant;
    let domain = OwnedDomain { id, name: DomainName::parse(name).unwrap(), tenant };
    let put = |user, role| AdminCommand::AddDomainMember { domain: domain.clone(), user, role };
    let guest = UserId::from_uuid(Uuid::now_v7());
    log.submit(create_user(guest, "guest@example.test")).await.unwrap();
    log.admin(AdminCommand::AddMember { tenant, user, role: Some(Role::Viewer) }).await;
    log.admin(put(user, Role::Editor)).await;
    log.admin(put(guest, Role::Editor)).await;
    log.admin(put(user, Role::Viewer)).await;
    log.admin(AdminCommand::RemoveDomainMember { domain: domain.clone(), user: guest }).await;
    let scope = Scope { verbs: [Grant::Read].into(), domains: Domains::All, names: None, types: None };
    let (token, scopes) = (TokenId::from_uuid(Uuid::now_v7()), Some(vec![scope]));
    let limits = TokenLimits { max_unused_days: Some(30), networks: vec!["192.0.2.0/24".parse().unwrap()] };
    let managing = Managing { manager: Some("octodns".parse().unwrap()), view: View::Own };
    let name = "ci".to_owned();
    log.admin(AdminCommand::CreateToken { user, token, name, expires_at: None, scopes, limits, managing })
        .await;
    // Whoever goes leaves no membership behind, and no token that works.
    let (gone, token) = (UserId::from_uuid(Uuid::now_v7()), TokenId::from_uuid(Uuid::now_v7()));
    log.submit(create_user(gone, "gone@example.test")).await.unwrap();
    log.admin(AdminCommand::AddMember { tenant, user: gone, role: None }).await;
    log.admin(put(gone, Role::Owner)).await;
    log.submit(create_token(gone, token)).await.unwrap();
    log.admin(AdminCommand::SetUserEnabled { user: gone, enabled: false }).await;
    log.admin(AdminCommand::DeleteUser { user: gone }).await;
    let left: i64 = sqlx::query_scalar("select count(*) from desired.domain_members where user_id = $1")
        .bind(gone.as_uuid())
        .fetch_one(&log.pool)
        .await
        .unwrap();
    assert_eq!(left, 0, "a user that is gone is still a member of a single domain");
}

/// RRsets that a tool owns: new, taken over by a person, and gone.
async fn managed(log: &Log, zone: &str) {
    let tool = || {
        let mut caller = member(UserId::from_uuid(Uuid::now_v7()), log.tenant);
        caller.shown.managing = Managing { manager: Some("octodns".parse().unwrap()), view: View::All };
        caller
    };
    for owner in ["kept", "taken", "gone"] {
        log.commit.submit(tool(), put(zone, owner, "192.0.2.1"), Meta::internal()).await.unwrap();
    }
    log.commit.submit(tool(), delete(zone, "gone", "A"), Meta::internal()).await.unwrap();
    let take_over = Meta { take_over: true, ..Meta::internal() };
    log.commit.submit(Caller::system(), put(zone, "taken", "192.0.2.1"), take_over).await.unwrap();
    let owned: Vec<String> =
        sqlx::query_scalar("select owner from desired.rrsets where managed_by = 'octodns'")
            .fetch_all(&log.pool)
            .await
            .unwrap();
    assert_eq!(owned, ["kept"]);
}

/// Webhooks in every state, one of them with a tenant that goes.
async fn webhooks(log: &Log) {
    let going = TenantId::from_uuid(Uuid::now_v7());
    log.admin(create_tenant(going, "going")).await;
    for (number, owner) in (0..).zip([Some(log.tenant), None, Some(log.tenant), Some(going)]) {
        let webhook = WebhookId::from_uuid(Uuid::now_v7());
        let named = Domains::Named([domain_name("a.test")].into());
        let settings = WebhookSettings {
            name: format!("hook {number}"),
            url: "https://hooks.example.net/".into(),
            types: vec!["rrset.".into()],
            domains: if number == 0 { named } else { Domains::All },
            labels: [("a".to_owned(), "b".to_owned())].into(),
            description: None,
        };
        let until = Timestamp::from_millis(1_700_000_000_000);
        let patch = WebhookPatch { types: Some(Vec::new()), ..WebhookPatch::default() };
        let gone = WebhookDisabled { reason: DisableReason::Gone, position: None, detail: Some("x".into()) };
        let mut commands = vec![
            WebhookCommand::Create(WebhookCreated { settings, enabled: true }),
            WebhookCommand::Update(patch),
            WebhookCommand::RotateSecret { version: 2, until },
            WebhookCommand::Replay { after: Position::ZERO },
        ];
        commands.extend((number < 2).then_some(WebhookCommand::Disable(gone)));
        commands.extend((number == 2).then_some(WebhookCommand::Delete));
        for command in commands {
            log.admin(AdminCommand::Webhook { webhook, owner, command }).await;
        }
    }
    log.admin(AdminCommand::DeleteTenant { tenant: going }).await;
}

/// A little of everything that `desired` folds.
async fn history(log: &Log) {
    webhooks(log).await;
    let user = UserId::from_uuid(Uuid::now_v7());
    log.submit(create_user(user, "a@example.test")).await.unwrap();
    log.admin(AdminCommand::AddMember { tenant: log.tenant, user, role: None }).await;
    let token = TokenId::from_uuid(Uuid::now_v7());
    log.submit(create_token(user, token)).await.unwrap();
    log.submit(create_token(user, TokenId::from_uuid(Uuid::now_v7()))).await.unwrap();
    log.admin(AdminCommand::RevokeToken { user, token, possessed: false }).await;
    let first = log.cluster("dns-1").await;
    let mut domains = Vec::new();
    for zone in ["a.test", "b.test", "c.test"] {
        domains.push(log.domain(zone).await);
        log.submit(put(zone, "www", "192.0.2.1")).await.unwrap();
    }
    access(log, user, domains[0], "a.test").await;
    record(log, first, domains[0], "a.test", Outcome::Acknowledged(fact(Revision::new(2)))).await;
    record(log, first, domains[1], "b.test", Outcome::Failed(fact(Revision::new(2)))).await;
    log.submit(put("b.test", "x", "192.0.2.1")).await.unwrap();
    record(log, first, domains[1], "b.test", Outcome::Acknowledged(fact(Revision::new(2)))).await;
    log.submit(put("c.test", "x", "192.0.2.1")).await.unwrap();
    record(log, first, domains[2], "c.test", Outcome::Activated(fact(Revision::new(3)))).await;
    log.submit(delete("c.test", "www", "A")).await.unwrap();
    for command in [
        host("b.test", "shop", "1.1.1.1"),
        host("b.test", "gone", "1.1.1.1"),
        unhost("b.test", "gone"),
        purge("b.test"),
        brought("b.test", 1),
        brought("b.test", 2),
        on("b.test", DomainCommand::DeleteCertificate),
        brought("b.test", 1),
    ] {
        log.submit(command).await.unwrap();
    }
    managed(log, "b.test").await;
    let second = log.cluster("dns-2").await;
    log.admin(AdminCommand::SetClusterEnabled { cluster: second, enabled: false }).await;
    for scope in [PauseScope::All, PauseScope::Target(first)] {
        log.admin(AdminCommand::Pause { scope, reason: "a test".into() }).await;
    }
    log.admin(AdminCommand::Resume { scope: PauseScope::All, reason: "done".into() }).await;
    log.submit(on("b.test", DomainCommand::Delete)).await.unwrap();
    log.submit(on("b.test", DomainCommand::Restore)).await.unwrap();
    log.submit(on("c.test", DomainCommand::Delete)).await.unwrap();
    log.domain("c.test").await;
}

#[tokio::test]
async fn desired_can_be_dropped_and_comes_back_the_same() {
    let log = Log::new().await;
    history(&log).await;
    assert_eq!(verify(&log.pool, None, &mut |_| {}).await.unwrap(), []);
    let before = dump(&log.pool).await;
    assert_eq!(before.len(), 21, "a table that the rebuild does not know: {before:?}");
    log.pool.execute("drop schema desired cascade").await.unwrap();
    let standings = rebuild::list(&log.pool).await.unwrap();
    assert_eq!((standings[0].name.as_str(), standings[0].state.as_str()), ("desired", "missing"));
    assert!(log.submit(put("a.test", "www", "192.0.2.2")).await.is_err());
    rebuild(&log.pool, &mut |_| {}).await.unwrap();
    assert_eq!(dump(&log.pool).await, before);
    let standings = rebuild::list(&log.pool).await.unwrap();
    let head = log.reader.meta().await.unwrap().head;
    assert_eq!((standings[0].state.as_str(), standings[0].position, standings[0].lag), ("live", head, 0));
    assert!(log.submit(put("a.test", "www", "192.0.2.2")).await.unwrap().changed);
    assert_eq!(verify(&log.pool, None, &mut |_| {}).await.unwrap(), []);
    let indexes = "select count(*) from pg_indexes where schemaname = 'desired'";
    let rebuilt: i64 = sqlx::query_scalar(indexes).fetch_one(&log.pool).await.unwrap();
    let fresh = TestDb::new().await.pool().await;
    headwater::store::pool::migrate(&fresh).await.unwrap();
    let migrated: i64 = sqlx::query_scalar(indexes).fetch_one(&fresh).await.unwrap();
    assert_eq!(rebuilt, migrated);
    let left =
        "select count(*) from pg_namespace where nspname in ('desired_next', 'desired_old', 'desired_check')";
    assert_eq!(sqlx::query_scalar::<_, i64>(left).fetch_one(&log.pool).await.unwrap(), 0);
}

#[tokio::test]
async fn every_row_that_differs_is_named() {
    let log = Log::new().await;
    history(&log).await;
    log.pool
        .execute(
            "update desired.rrsets set ttl = 1 where owner = 'www' and domain_id = (select id from desired.domains where name = 'a.test'); \
             delete from desired.members; \
             insert into desired.pauses values ('all', '', 'nobody', now())",
        )
        .await
        .unwrap();
    let found = verify(&log.pool, None, &mut |_| {}).await.unwrap();
    let told: Vec<(&str, bool, bool)> =
        found.iter().map(|d| (d.table.as_str(), d.live.is_null(), d.expected.is_null())).collect();
    assert_eq!(
        told,
        [("members", true, false), ("rrsets", false, false), ("pauses", false, true)],
        "{found:?}"
    );
    assert!(found[1].to_string().contains("ttl is 1, the log says 300"), "{}", found[1]);
    let one = verify(&log.pool, Some(&domain_name("a.test")), &mut |_| {}).await.unwrap();
    assert_eq!(one, [found[1].clone()]);
    assert_eq!(verify(&log.pool, Some(&domain_name("b.test")), &mut |_| {}).await.unwrap(), []);
    rebuild(&log.pool, &mut |_| {}).await.unwrap();
    assert_eq!(verify(&log.pool, None, &mut |_| {}).await.unwrap(), []);
}

#[tokio::test]
async fn a_log_without_events_can_be_rebuilt() {
    let log = Log::open(TestDb::new().await.url().clone()).await;
    let before = dump(&log.pool).await;
    let built = rebuild(&log.pool, &mut |_| {}).await.unwrap();
    assert_eq!(built.position, Position::ZERO);
    assert_eq!(dump(&log.pool).await, before);
    assert_eq!(verify(&log.pool, None, &mut |_| {}).await.unwrap(), []);
}

#[tokio::test]
async fn an_event_that_cannot_be_read_stops_the_rebuild_and_leaves_the_live_one() {
    let log = Log::new().await;
    history(&log).await;
    let before = dump(&log.pool).await;
    let copy = "insert into events select h.head + 1, id, stream_kind, stream_id, revision + 1000, seq, 'no.such', schema, at, \
                domain_id, domain, tenant_id, actor_kind, actor_id, token_id, on_behalf_of, client, request_id, \
                operation_id, note, change_id, cause, hash, data \
                from events, (select max(position) as head from events) h where position = 1";
    log.pool.execute(copy).await.unwrap();
    let head = log.reader.meta().await.unwrap().head;
    let failed = rebuild(&log.pool, &mut |_| {}).await;
    assert!(matches!(&failed, Err(RebuildError::Poison { position, .. }) if *position == head), "{failed:?}");
    assert_eq!(dump(&log.pool).await, before);
    let standing = rebuild::list(&log.pool).await.unwrap().swap_remove(0);
    assert_eq!(standing.state, "rebuild_failed");
    assert!(standing.last_error.is_some_and(|error| error.contains(&format!("position {head}"))));
}

/// Writers that only add, so that a reader who ever sees less has seen an empty or an older view.
async fn load(log: &Log, zone: &str, stop: &AtomicBool) -> u64 {
    let domain = log.domain(zone).await;
    let cluster = log.cluster(&format!("cluster of {zone}")).await;
    let mut round = 0;
    while !stop.load(Ordering::SeqCst) {
        round += 1;
        let changes: Vec<RrsetChange> = (0..20)
            .map(|n| RrsetChange::Put(rrset(zone, &format!("r{round}-{n}"), "A", &["192.0.2.1"])))
            .collect();
        let outcome = log.submit(on(zone, DomainCommand::ChangeRrsets(changes))).await.unwrap();
        record(log, cluster, domain, zone, Outcome::Acknowledged(fact(outcome.revision))).await;
    }
    round
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torture_readers_see_the_old_or_the_new() {
    let log = Arc::new(Log::new().await);
    let stop = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..WRITERS)
        .map(|n| {
            let (log, stop) = (Arc::clone(&log), Arc::clone(&stop));
            tokio::spawn(async move { load(&log, &format!("w{n}.test"), &stop).await })
        })
        .collect();
    let rows = || async {
        sqlx::query_scalar::<_, i64>("select count(*) from desired.domains")
            .fetch_one(&log.pool)
            .await
            .unwrap()
    };
    let _count = crate::support::eventually("the writers are at work", rows, |count| *count == WRITERS).await;
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (pool, stop) = (log.pool.clone(), Arc::clone(&stop));
            tokio::spawn(async move {
                let (mut last, mut looks) = ((0, 0, 0), 0_u64);
                while !stop.load(Ordering::SeqCst) {
                    let query = "select (select count(*) from desired.rrsets), sum(revision)::bigint, \
                                 sum(serial_base + revision)::bigint from desired.domains";
                    let now: (i64, i64, i64) = sqlx::query_as(query).fetch_one(&pool).await.unwrap();
                    assert!(now.0 >= last.0 && now.1 >= last.1 && now.2 >= last.2, "{now:?} after {last:?}");
                    (last, looks) = (now, looks + 1);
                }
                looks
            })
        })
        .collect();
    for phase in [Phase::Prepare, Phase::Fold, Phase::Index, Phase::Switch, Phase::Clean] {
        crash_at(&log.pool, phase).await;
    }
    for round in 0..size(2, 50) {
        let since = Instant::now();
        let built = rebuild(&log.pool, &mut |_| {}).await.unwrap();
        println!(
            "rebuild {round}: {} events in {:?}, gate closed for {:?}",
            built.position,
            since.elapsed(),
            built.gate_closed
        );
        let differences = verify(&log.pool, None, &mut |_| {}).await.unwrap();
        assert_eq!(differences, []);
    }
    stop.store(true, Ordering::SeqCst);
    let rounds: u64 = join_all(writers).await.into_iter().map(Result::unwrap).sum();
    let looks: u64 = join_all(readers).await.into_iter().map(Result::unwrap).sum();
    println!("{rounds} rounds of 20 RRsets were written, {looks} times was looked");
    assert_eq!(verify(&log.pool, None, &mut |_| {}).await.unwrap(), []);
    log.assert_sound().await;
}

/// Ends a rebuild as it enters a phase: its connection goes, as it would with its process.
async fn crash_at(pool: &PgPool, phase: Phase) {
    let pool = pool.clone();
    let task = tokio::spawn(async move {
        let crash = &mut |progress: rebuild::Progress| {
            if progress.phase == phase {
                std::panic::resume_unwind(Box::new("crash"));
            }
        };
        let _built = rebuild(&pool, crash).await;
    });
    assert!(task.await.is_err(), "it ended before {phase:?}");
}

#[tokio::test]
async fn the_altered_row_is_named() {
    let log = Log::new().await;
    history(&log).await;
    log.assert_sound().await;
    let head = log.reader.meta().await.unwrap().head.get();
    let faults = || async {
        let found = verify_log(&log.pool, &mut |_, _| {}).await.unwrap();
        found.faults.iter().map(|fault| (fault.position.get(), fault.kind)).collect::<Vec<_>>()
    };
    let alter = |statement: String| {
        let pool = log.pool.clone();
        async move {
            let text = format!(
                "alter table events disable trigger user; {statement}; alter table events enable trigger user"
            );
            pool.execute(AssertSqlSafe(text)).await.unwrap();
        }
    };
    let put: i64 = sqlx::query_scalar("select min(position) from events where type = 'rrset.replaced'")
        .fetch_one(&log.pool)
        .await
        .unwrap();
    let flip =
        format!("update events set data = set_byte(data, 0, get_byte(data, 0) # 1) where position = {put}");
    alter(flip.clone()).await;
    assert_eq!(faults().await, [(put, FaultKind::DataAltered)]);
    alter(flip).await;
    assert_eq!(faults().await, []);
    for column in [
        "note = 'x'",
        "at = at + interval '1 ms'",
        "domain = upper(domain)",
        "actor_kind = 4",
        "tenant_id = null",
    ] {
        alter(format!("create table kept as select * from events where position = {put}; update events set {column} where position = {put}")).await;
        assert_eq!(faults().await, [(put, FaultKind::DataAltered)], "{column}");
        alter(format!("delete from events where position = {put}; insert into events select * from kept; drop table kept")).await;
        assert_eq!(faults().await, [], "{column}");
    }
    alter(format!("create table kept as select * from events where position = {put}; delete from events where position = {put}")).await;
    let found = faults().await;
    assert!(found.contains(&(put, FaultKind::RowMissing)), "{found:?}");
    alter("insert into events select * from kept; drop table kept".into()).await;
    alter(format!("delete from events where position = {head}")).await;
    assert!(matches!(faults().await.as_slice(), [(_, FaultKind::EndDiffers)]), "{:?}", faults().await);
}
