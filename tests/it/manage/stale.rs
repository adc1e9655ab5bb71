//! Whoever was let in with rights that were read before they changed: what it asked for is judged by those of now, each of
//! them, and by nobody else's.

use futures_util::future::join_all;
use headwater::command::{Command, Meta, Outcome, SubmitError};
use headwater_events::actor::{Actor, ActorKind, Caller, Role};
use headwater_events::admin::AdminCommand;
use headwater_events::credential::Credential;
use headwater_events::ids::{DomainId, RightsNumber, TenantId, TokenId, UserId};
use headwater_events::reject::Reject;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::api;
use crate::people::{login, set_password};
use crate::support::TestApi;
use crate::support::log::put;

const PASSWORD: &str = "correct horse battery";
/// Commands of each of two callers that come at once.
const AT_ONCE_COUNT: usize = 12;

struct Lab {
    api: TestApi,
    tenant: TenantId,
    domain: DomainId,
}

impl Lab {
    async fn new() -> Self {
        let (api, _) = api().await;
        let (domain, tenant): (Uuid, Uuid) =
            sqlx::query_as("select id, tenant_id from desired.domains where name = 'example.test'")
                .fetch_one(&api.app.pool)
                .await
                .unwrap();
        Self { api, tenant: TenantId::from_uuid(tenant), domain: DomainId::from_uuid(domain) }
    }

    /// Somebody with nothing but a token, with the number that its rights have now.
    async fn caller(&self, email: &str, admin: bool) -> (UserId, Caller) {
        let (user, _) = self.api.user(email, admin, &[]).await;
        (user, self.read(user, admin).await)
    }

    async fn read(&self, user: UserId, admin: bool) -> Caller {
        let (token, number): (Uuid, i64) = sqlx::query_as(
            "select t.id, coalesce((select r.number from rights r where r.user_id = t.user_id), 0) \
             from desired.tokens t where t.user_id = $1",
        )
        .bind(user.as_uuid())
        .fetch_one(&self.api.app.pool)
        .await
        .unwrap();
        let kind = if admin { ActorKind::Operator } else { ActorKind::User };
        let token = Some(TokenId::from_uuid(token));
        let actor = Actor { kind, id: user.as_uuid(), token, on_behalf_of: None };
        let rights = Some(RightsNumber::new(number));
        Caller { shown: Credential { rights, ..Credential::default() }, ..Caller::new(actor, admin) }
    }

    async fn with_tenant(&self, email: &str, role: &str) -> (UserId, Caller) {
        let (user, _) = self.caller(email, false).await;
        self.change(
            Method::PUT,
            &format!("/api/tenants/{}/members/{user}", self.tenant),
            json!({"role": role}),
        )
        .await;
        let mut caller = self.read(user, false).await;
        caller.tenants.insert(self.tenant, Role::from_name(role).unwrap());
        (user, caller)
    }

    async fn change(&self, method: Method, path: &str, body: Value) {
        let answer = self.api.call(method, path, body).await;
        assert!(answer.status.is_success(), "{answer:?}");
    }

    async fn submit(&self, caller: &Caller, command: Command) -> Result<Outcome, SubmitError> {
        self.api.app.commit.submit(caller.clone(), command, Meta::internal()).await
    }

    async fn put(&self, caller: &Caller, owner: &str, address: &str) -> Result<Outcome, SubmitError> {
        self.submit(caller, put("example.test", owner, address)).await
    }
}

fn hidden(answer: &Result<Outcome, SubmitError>) -> bool {
    matches!(answer, Err(SubmitError::Rejected(Reject::NotFound(_))))
}

fn forbidden(answer: &Result<Outcome, SubmitError>) -> bool {
    matches!(answer, Err(SubmitError::Rejected(Reject::Forbidden(_))))
}

fn out(answer: &Result<Outcome, SubmitError>) -> bool {
    matches!(answer, Err(SubmitError::Out))
}

#[tokio::test]
async fn each_right_that_was_lost_is_missed_behind_the_lock() {
    let lab = Lab::new().await;
    // An administrator no more.
    let (user, admin) = lab.caller("admin2@example.test", true).await;
    lab.change(Method::PATCH, &format!("/api/users/{user}"), json!({"admin": false})).await;
    let tenant = |name: &str| {
        let (id, name) = (TenantId::from_uuid(Uuid::now_v7()), name.to_owned());
        Command::admin(AdminCommand::CreateTenant { id, name, labels: [].into(), external_id: None })
    };
    let answer = lab.submit(&admin, tenant("not to be")).await;
    assert!(forbidden(&answer), "{answer:?}");
    // A member of the tenant no more, and one with a lower role.
    let (user, member) = lab.with_tenant("member@example.test", "editor").await;
    lab.change(Method::DELETE, &format!("/api/tenants/{}/members/{user}", lab.tenant), Value::Null).await;
    let answer = lab.put(&member, "a", "192.0.2.1").await;
    assert!(hidden(&answer), "{answer:?}");
    let (user, lower) = lab.with_tenant("lower@example.test", "editor").await;
    let path = format!("/api/tenants/{}/members/{user}", lab.tenant);
    lab.change(Method::PUT, &path, json!({"role": "viewer"})).await;
    let answer = lab.put(&lower, "a", "192.0.2.1").await;
    assert!(forbidden(&answer), "{answer:?}");
    // A member of the domain alone no more.
    let (user, _) = lab.caller("guest@example.test", false).await;
    let path = format!("/api/domains/example.test/members/{user}");
    lab.change(Method::PUT, &path, json!({"role": "editor"})).await;
    let mut guest = lab.read(user, false).await;
    guest.domains.insert(lab.domain, Role::Editor);
    lab.put(&guest, "a", "192.0.2.1").await.unwrap();
    lab.change(Method::DELETE, &path, Value::Null).await;
    let answer = lab.put(&guest, "a", "192.0.2.2").await;
    assert!(hidden(&answer), "{answer:?}");
}

#[tokio::test]
async fn whoever_may_not_come_in_any_more_is_out() {
    let lab = Lab::new().await;
    let (_, revoked) = lab.with_tenant("revoked@example.test", "editor").await;
    let token = revoked.actor.token.unwrap();
    lab.change(Method::DELETE, &format!("/api/tokens/{token}"), Value::Null).await;
    let (user, disabled) = lab.with_tenant("disabled@example.test", "editor").await;
    lab.change(Method::POST, &format!("/api/users/{user}/disable"), Value::Null).await;
    let (user, deleted) = lab.with_tenant("deleted@example.test", "editor").await;
    lab.change(Method::DELETE, &format!("/api/users/{user}"), Value::Null).await;
    // A session, which another password ends; the token of the same user works on.
    let (user, mut session) = lab.with_tenant("session@example.test", "editor").await;
    set_password(&lab.api, user, PASSWORD).await;
    login(&lab.api, "session@example.test", PASSWORD).await.expect(200);
    let open: Uuid = sqlx::query_scalar("select id from sessions where user_id = $1")
        .bind(user.as_uuid())
        .fetch_one(&lab.api.app.pool)
        .await
        .unwrap();
    let mut token = lab.read(user, false).await;
    token.tenants.clone_from(&session.tenants);
    session.shown = Credential { session: Some(open), ..token.shown.clone() };
    session.actor.token = None;
    lab.put(&session, "b", "192.0.2.1").await.unwrap();
    let password = json!({"password": "another horse battery"});
    lab.change(Method::PATCH, &format!("/api/users/{user}"), password).await;
    for (what, caller) in
        [("token", revoked), ("disabled", disabled), ("deleted", deleted), ("session", session)]
    {
        let answer = lab.put(&caller, "a", "192.0.2.1").await;
        assert!(out(&answer), "{what}: {answer:?}");
    }
    lab.put(&token, "a", "192.0.2.1").await.unwrap();
}

#[tokio::test]
async fn of_two_in_one_batch_each_has_its_own_rights() {
    let lab = Lab::new().await;
    let (stays, raised) = lab.with_tenant("raised@example.test", "editor").await;
    let (goes, lost) = lab.with_tenant("lost@example.test", "editor").await;
    let member = |user| format!("/api/tenants/{}/members/{user}", lab.tenant);
    lab.change(Method::PUT, &member(stays), json!({"role": "owner"})).await;
    lab.change(Method::DELETE, &member(goes), Value::Null).await;
    let lab = &lab;
    // The first one is a batch of its own; what comes meanwhile is the next.
    let asks = (0..AT_ONCE_COUNT).flat_map(|n| [(n, &raised, false), (n, &lost, true)]);
    let asks = asks.map(|(n, caller, is_lost)| async move {
        let address = format!("192.0.2.{}", 2 * n + usize::from(is_lost));
        (is_lost, lab.put(caller, &format!("n{n}"), &address).await)
    });
    for (is_lost, answer) in join_all(asks).await {
        assert!(if is_lost { hidden(&answer) } else { answer.is_ok() }, "{is_lost}: {answer:?}");
    }
}

#[tokio::test]
async fn of_one_in_one_batch_what_was_read_earlier_does_not_count() {
    let lab = Lab::new().await;
    let (user, early) = lab.with_tenant("twice@example.test", "editor").await;
    let other = json!({"name": "other.test", "tenant": lab.tenant, "force_active": true});
    lab.change(Method::POST, "/api/domains", other).await;
    let path = format!("/api/domains/other.test/members/{user}");
    lab.change(Method::PUT, &path, json!({"role": "editor"})).await;
    lab.change(Method::DELETE, &format!("/api/tenants/{}/members/{user}", lab.tenant), Value::Null).await;
    let mut late = lab.read(user, false).await;
    let domain: Uuid = sqlx::query_scalar("select id from desired.domains where name = 'other.test'")
        .fetch_one(&lab.api.app.pool)
        .await
        .unwrap();
    late.domains.insert(DomainId::from_uuid(domain), Role::Editor);
    let (lab, late, early) = (&lab, &late, &early);
    // The later one comes first, so the number of the batch is the right one.
    let asks = (0..AT_ONCE_COUNT).flat_map(|n| [(n, late, "other.test"), (n, early, "example.test")]);
    let asks = asks.map(|(n, caller, zone)| async move {
        (zone, lab.submit(caller, put(zone, &format!("n{n}"), "192.0.2.1")).await)
    });
    for (zone, answer) in join_all(asks).await {
        assert!(if zone == "other.test" { answer.is_ok() } else { hidden(&answer) }, "{zone}: {answer:?}");
    }
}
