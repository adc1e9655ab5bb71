//! The log by its commands: what each appends, what stands in `desired` after it, what a repeated key answers,
//! and that a dry run writes nothing.

use headwater::command::{Meta, Outcome, SubmitError};
use headwater_events::admin::AdminCommand;
use headwater_events::dns::{OwnerName, RrType};
use headwater_events::domain::{DomainCommand, DomainPatch, Precondition, RrsetChange};
use headwater_events::ids::{DomainId, Revision, TenantId, TokenId, UserId};
use headwater_events::reject::Reject;
use sqlx::{AssertSqlSafe, Connection, Executor, Row, SqlSafeStr};
use uuid::Uuid;

use crate::support::log::*;

const ZONE: &str = "example.test";

/// Owner, type, TTL and records of every RRset of a domain, as `desired` has them.
async fn rows(log: &Log, domain: DomainId) -> Vec<(String, i32, i64, Vec<String>)> {
    sqlx::query_as(
        "select owner, type, ttl, records from desired.rrsets where domain_id = $1 order by owner_key, type",
    )
    .bind(domain.as_uuid())
    .fetch_all(&log.pool)
    .await
    .unwrap()
}

/// Status, revision, RRsets, records.
async fn standing(log: &Log, domain: DomainId) -> (String, i64, i64, i64) {
    sqlx::query_as("select status, revision, rrsets, records from desired.domains where id = $1")
        .bind(domain.as_uuid())
        .fetch_one(&log.pool)
        .await
        .unwrap()
}

async fn head(log: &Log) -> i64 {
    log.reader.meta().await.unwrap().head.get()
}

#[tokio::test]
async fn accounts_are_events_and_rows() {
    let log = Log::new().await;
    let tenant = TenantId::from_uuid(Uuid::now_v7());
    let (user, token) = (UserId::from_uuid(Uuid::now_v7()), TokenId::from_uuid(Uuid::now_v7()));
    log.admin(create_tenant(tenant, "acme")).await;
    log.submit(create_user(user, "a@example.test")).await.unwrap();
    log.admin(AdminCommand::AddMember { tenant, user, role: None }).await;
    let again = log.admin(AdminCommand::AddMember { tenant, user, role: None }).await;
    assert!(!again.changed && again.revision == Revision::new(2));
    log.submit(create_token(user, token)).await.unwrap();
    log.admin(AdminCommand::RevokeToken { user, token, possessed: false }).await;
    let types: Vec<String> = log.all().await.into_iter().map(|event| event.event_type).collect();
    let told = ["platform.initialized", "tenant.created", "tenant.created", "user.created"];
    let then = ["tenant.member_added", "token.created", "token.revoked"];
    assert_eq!(types, [told.as_slice(), then.as_slice()].concat());
    let row = sqlx::query(
        "select (select email from people where user_id = $1), \
         (select count(*) from desired.members where user_id = $1 and tenant_id = $2), \
         (select count(*) from desired.tokens where user_id = $1 and revoked_at is not null), \
         (select count(*) from token_secrets where user_id = $1)",
    );
    let row = row.bind(user.as_uuid()).bind(tenant.as_uuid()).fetch_one(&log.pool).await.unwrap();
    assert_eq!(row.get::<String, _>(0), "a@example.test");
    assert_eq!([row.get::<i64, _>(1), row.get(2), row.get(3)], [1, 1, 1]);
    let twin = log.submit(create_user(UserId::from_uuid(Uuid::now_v7()), "a@example.test")).await;
    assert!(matches!(twin, Err(SubmitError::Rejected(Reject::NameTaken(_)))), "{twin:?}");
    let twin = log.submit(headwater::command::Command::admin(create_tenant(log.tenant, "acme"))).await;
    assert!(matches!(twin, Err(SubmitError::Rejected(Reject::NameTaken(_)))), "{twin:?}");
    log.assert_sound().await;
}

#[tokio::test]
async fn rrsets_are_events_and_rows() {
    let log = Log::new().await;
    let domain = log.domain(ZONE).await;
    let first = log.submit(put(ZONE, "www", "192.0.2.1")).await.unwrap();
    assert!(first.changed && first.operation.is_some() && first.revision == Revision::new(2));
    assert_eq!(first.position.map(|p| p.get()), Some(head(&log).await));
    let same = log.submit(put(ZONE, "www", "192.0.2.1")).await.unwrap();
    assert_eq!((same.changed, same.operation, same.revision), (false, None, Revision::new(2)));
    let zone = domain_name(ZONE);
    let name = |text: &str| OwnerName::parse(text, &zone).unwrap();
    let changes = vec![
        RrsetChange::Put(rrset(ZONE, "@", "MX", &["10 mail.example.net."])),
        RrsetChange::Put(rrset(ZONE, "a", "TXT", &["\"one\"", "\"two\""])),
        RrsetChange::Delete { owner: name("www"), rrtype: RrType::A },
        RrsetChange::Put(rrset(ZONE, "www", "CNAME", &["a.example.net."])),
    ];
    let batch = log.submit(on(ZONE, DomainCommand::ChangeRrsets(changes))).await.unwrap();
    assert_eq!(batch.revision, Revision::new(3));
    let written: Vec<(String, i64, i32)> = log
        .all()
        .await
        .into_iter()
        .filter(|event| event.stream.id == domain.as_uuid())
        .map(|event| (event.event_type, event.revision.get(), event.seq))
        .collect();
    let expected = [
        ("domain.created", 1, 0),
        ("rrset.replaced", 2, 0),
        ("rrset.replaced", 3, 0),
        ("rrset.replaced", 3, 1),
        ("rrset.deleted", 3, 2),
        ("rrset.replaced", 3, 3),
    ];
    assert_eq!(written, expected.map(|(name, revision, seq)| (name.to_owned(), revision, seq)));
    assert_eq!(standing(&log, domain).await, ("active".into(), 3, 3, 4));
    let stand = rows(&log, domain).await;
    assert_eq!(
        stand.iter().map(|row| (row.0.as_str(), row.1)).collect::<Vec<_>>(),
        [("@", 15), ("a", 16), ("www", 5)]
    );
    log.submit(delete(ZONE, "www", "CNAME")).await.unwrap();
    let gone = log.submit(delete(ZONE, "www", "CNAME")).await;
    assert!(matches!(gone, Err(SubmitError::Rejected(Reject::NotFound(_)))), "{gone:?}");
    assert_eq!(standing(&log, domain).await, ("active".into(), 4, 2, 3));
    let operations: i64 =
        sqlx::query_scalar("select count(*) from operations.operations where domain_id = $1")
            .bind(domain.as_uuid())
            .fetch_one(&log.pool)
            .await
            .unwrap();
    assert_eq!(operations, 4, "each mutation of a served domain has its operation");
    log.assert_sound().await;
}

#[tokio::test]
async fn a_deleted_domain_comes_back_or_gives_way() {
    let log = Log::new().await;
    let domain = log.domain(ZONE).await;
    log.submit(put(ZONE, "www", "192.0.2.1")).await.unwrap();
    log.submit(on(ZONE, DomainCommand::Delete)).await.unwrap();
    assert_eq!(standing(&log, domain).await.0, "deprovisioning");
    let write = log.submit(put(ZONE, "www", "192.0.2.2")).await;
    assert!(matches!(write, Err(SubmitError::Rejected(Reject::NotFound(_)))), "{write:?}");
    log.submit(on(ZONE, DomainCommand::Restore)).await.unwrap();
    assert_eq!(standing(&log, domain).await, ("active".into(), 4, 1, 1));
    log.submit(on(ZONE, DomainCommand::Delete)).await.unwrap();
    let foreign = TenantId::from_uuid(Uuid::now_v7());
    log.admin(create_tenant(foreign, "foreign")).await;
    let held = log.submit(headwater::command::Command::CreateDomain(create_domain(ZONE, foreign))).await;
    assert!(matches!(held, Err(SubmitError::Rejected(Reject::NameTaken(_)))), "{held:?}");
    let again = log.domain(ZONE).await;
    assert_ne!(again, domain);
    let bases: Vec<(bool, i64)> = sqlx::query_as(
        "select current, serial_base from desired.domains where name = $1 order by created_at",
    )
    .bind(ZONE)
    .fetch_all(&log.pool)
    .await
    .unwrap();
    // The first was served up to serial 1 + 4 (its deletion is not served); the second begins above it.
    assert_eq!(bases, [(false, 1), (true, 6)]);
    let count: i64 = sqlx::query_scalar("select domains from desired.tenants where id = $1")
        .bind(log.tenant.as_uuid())
        .fetch_one(&log.pool)
        .await
        .unwrap();
    assert_eq!(count, 1);
    log.assert_sound().await;
}

#[tokio::test]
async fn a_key_answers_once() {
    let log = Log::new().await;
    log.domain(ZONE).await;
    let (user, key) = (UserId::from_uuid(Uuid::now_v7()), Uuid::now_v7());
    let caller = member(user, log.tenant);
    let submit = |address: &'static str, request| {
        let (log, caller) = (&log, caller.clone());
        async move { log.commit.submit(caller, put(ZONE, "www", address), keyed(key, request)).await }
    };
    let first: Outcome = submit("192.0.2.1", 1).await.unwrap();
    let before = head(&log).await;
    let replayed = submit("192.0.2.1", 1).await.unwrap();
    assert!(
        replayed.replayed && replayed.revision == first.revision && replayed.operation == first.operation
    );
    let other = submit("192.0.2.2", 2).await;
    assert!(matches!(other, Err(SubmitError::IdempotencyConflict)), "{other:?}");
    assert_eq!(head(&log).await, before, "neither of them wrote anything");
    // Rights are asked again: who is no longer a member learns nothing.
    let outsider = member(user, TenantId::from_uuid(Uuid::now_v7()));
    let asked = log.commit.submit(outsider.clone(), put(ZONE, "www", "192.0.2.1"), keyed(key, 1)).await;
    assert!(matches!(asked, Err(SubmitError::Rejected(Reject::NotFound(_)))), "{asked:?}");
    let create = create_domain("other.test", log.tenant);
    let mut create = create;
    create.force_active = false;
    let (key, command) = (Uuid::now_v7(), headwater::command::Command::CreateDomain(create));
    log.commit.submit(caller.clone(), command.clone(), keyed(key, 3)).await.unwrap();
    let asked = log.commit.submit(outsider, command.clone(), keyed(key, 3)).await;
    assert!(matches!(asked, Err(SubmitError::Rejected(Reject::NotFound(_)))), "{asked:?}");
    assert!(log.commit.submit(caller, command, keyed(key, 3)).await.unwrap().replayed);
}

#[tokio::test]
async fn a_key_in_flight_is_told() {
    let log = Log::new().await;
    log.domain(ZONE).await;
    // The gate is closed, so the first stays on its way.
    let mut gate = log.connection().await;
    gate.execute("select pg_advisory_lock(7000)").await.unwrap();
    let key = Uuid::now_v7();
    let (commit, caller) = (log.commit.clone(), headwater_events::actor::Caller::system());
    let first = tokio::spawn(async move {
        commit
            .submit(headwater_events::actor::Caller::system(), put(ZONE, "www", "192.0.2.1"), keyed(key, 1))
            .await
    });
    at_the_gate(&log).await;
    let ask = || log.commit.submit(caller.clone(), put(ZONE, "www", "192.0.2.1"), keyed(key, 1));
    let twin = ask().await;
    assert!(matches!(twin, Err(SubmitError::IdempotencyInProgress)), "{twin:?}");
    gate.execute("select pg_advisory_unlock_all()").await.unwrap();
    assert!(first.await.unwrap().is_ok_and(|outcome| outcome.changed));
    assert!(ask().await.unwrap().replayed);
}

#[tokio::test]
async fn a_dry_run_writes_nothing_and_its_if_match_does_the_same() {
    let log = Log::new().await;
    log.domain(ZONE).await;
    log.cluster("dns-1").await;
    let counts = "select (select count(*) from events), (select count(*) from receipts), \
                  (select count(*) from batches), (select coalesce(sum(revision), 0)::bigint from streams)";
    let before: (i64, i64, i64, i64) = sqlx::query_as(counts).fetch_one(&log.pool).await.unwrap();
    let caller = headwater_events::actor::Caller::system();
    let plan = log.commit.plan(caller.clone(), put(ZONE, "www", "192.0.2.1"), keyed(Uuid::now_v7(), 1)).await;
    let plan = plan.unwrap();
    assert!(plan.changed && plan.targets == ["dns-1"] && plan.if_match.is_none(), "{plan:?}");
    assert_eq!(plan.diff[0]["path"], "/rrsets/www/A");
    let after: (i64, i64, i64, i64) = sqlx::query_as(counts).fetch_one(&log.pool).await.unwrap();
    assert_eq!(before, after);
    let patch = || {
        on(
            ZONE,
            DomainCommand::Patch(DomainPatch {
                external_id: Some(Some("7".into())),
                ..DomainPatch::default()
            }),
        )
    };
    let plan = log.commit.plan(caller.clone(), patch(), Meta::internal()).await.unwrap();
    let matching = |revision| Precondition { if_match: Some(vec![revision]), if_absent: false };
    let meta = |revision| Meta { precondition: matching(revision), ..Meta::internal() };
    let stale = log.commit.submit(caller.clone(), patch(), meta(Revision::new(9))).await;
    assert!(matches!(stale, Err(SubmitError::Rejected(Reject::RevisionMismatch { .. }))), "{stale:?}");
    assert!(log.commit.submit(caller, patch(), meta(plan.if_match.unwrap())).await.unwrap().changed);
}

#[tokio::test]
async fn every_statement_suits_the_schema() {
    let log = Log::new().await;
    let mut connection = log.connection().await;
    for statement in headwater::statements::all() {
        let prepared = (&mut connection).prepare(AssertSqlSafe(statement).into_sql_str()).await;
        assert!(prepared.is_ok(), "{statement}\n{:?}", prepared.err());
    }
    connection.close().await.unwrap();
}

#[tokio::test]
async fn the_log_refuses_to_be_changed() {
    let log = Log::new().await;
    for statement in ["update events set note = 'x'", "delete from events", "truncate events"] {
        let refused = log.pool.execute(statement).await.unwrap_err().to_string();
        assert!(refused.contains("permanent"), "{statement}: {refused}");
    }
    // A transaction around it, or an older snapshot, is refused by the procedure itself.
    let mut connection = log.connection().await;
    connection.execute("set default_transaction_isolation = 'repeatable read'").await.unwrap();
    let nulls = vec!["null"; 68].join(", ");
    let refused = connection.execute(AssertSqlSafe(format!("call append_batch({nulls})"))).await.unwrap_err();
    assert!(refused.to_string().contains("READ COMMITTED"), "{refused}");
}
