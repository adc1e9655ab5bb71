//! Rights are of now when what they let through gets its position: after a revocation nothing of whom it concerns stands
//! in the log, whichever process took it, and whoever keeps its rights is refused nothing.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use futures_util::future::join_all;
use headwater::secret::Secret;
use headwater_events::ids::{TenantId, UserId};
use reqwest::Method;
use serde_json::{Value, json};

use super::{ZONE, api, made};
use crate::support::log::size;
use crate::support::{Answer, TestApi, eventually};

/// Rounds in `make test`, and of the campaign of `make torture`.
const ROUNDS_COUNT: (usize, usize) = (8, 100);
/// Requests of whom it concerns that are on their way at once.
const WRITERS_COUNT: usize = 8;
/// Changes that are made before the rights end.
const CHANGES_BEFORE: usize = 20;
/// Changes of one writer that keeps its rights.
const WRITES_COUNT: usize = 60;
/// Changes of one writer, at most: it ends long before.
const CHANGES_MAX: usize = 5_000;

/// Writes until it is refused; gives the refusal.
async fn write(api: &TestApi, at: SocketAddr, by: &Secret, writer: usize, done: &AtomicUsize) -> u16 {
    for n in 0..CHANGES_MAX {
        let body = json!({"ttl": 300, "records": [format!("192.0.{}.{}", n / 250, n % 250)]});
        let path = format!("{ZONE}/rrsets/w{writer}/A");
        let request = api.request_at(at, Method::PUT, &path).bearer_auth(by.expose()).json(&body);
        let answer = Answer::of(request.send().await.unwrap()).await;
        match answer.status.as_u16() {
            202 => {
                done.fetch_add(1, Ordering::Relaxed);
            }
            // An earlier round may have ended with just this.
            200 => {}
            // A busy machine: it is asked again, as the answer says.
            503 => println!("writer {writer}: {}", answer.text),
            refused => return refused,
        }
    }
    202
}

/// Ends the rights of a user in one of the ways that there are.
async fn revoke(api: &TestApi, way: usize, tenant: TenantId, user: UserId, by: &Secret) {
    let member = format!("/api/tenants/{tenant}/members/{user}");
    let answer = match way % 5 {
        0 => api.call(Method::DELETE, &member, Value::Null).await,
        1 => api.call(Method::PUT, &member, json!({"role": "viewer"})).await,
        2 => api.call(Method::POST, &format!("/api/users/{user}/disable"), Value::Null).await,
        3 => {
            let shown = json!({"token": by.expose()});
            api.call(Method::POST, "/api/tokens/revoke", shown).await
        }
        _ => api.call(Method::DELETE, &format!("/api/users/{user}"), Value::Null).await,
    };
    assert!(answer.status.is_success(), "{answer:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torture_nothing_of_whom_lost_its_rights_is_appended_after_that() {
    let (api, _) = api().await;
    let api = Arc::new(api);
    let twin = api.join("[limits]\nmutations_per_minute = 100000\nreads_per_minute = 100000\n").await;
    let tenant: uuid::Uuid =
        sqlx::query_scalar("select tenant_id from desired.domains where name = 'example.test'")
            .fetch_one(&api.app.pool)
            .await
            .unwrap();
    let tenant = TenantId::from_uuid(tenant);
    for round in 0..size(ROUNDS_COUNT.0, ROUNDS_COUNT.1) {
        let (user, token) = api.user(&format!("u{round}@example.test"), false, &[tenant]).await;
        // The other process, and every few rounds the same, where both may be one batch.
        let at = if round % 4 == 3 { api.address } else { twin.address };
        let done = AtomicUsize::new(0);
        let (api, done, token) = (&api, &done, &token);
        let writers = join_all((0..WRITERS_COUNT).map(|writer| write(api, at, token, writer, done)));
        let ends = async {
            let written = || async { done.load(Ordering::Relaxed) };
            eventually("it writes", written, |count| *count >= CHANGES_BEFORE).await;
            revoke(api, round, tenant, user, token).await;
        };
        let (refused, ()) = tokio::join!(writers, ends);
        assert!(refused.iter().all(|status| [401, 403, 404].contains(status)), "round {round}: {refused:?}");
        let ended: i64 = sqlx::query_scalar(
            "select max(position) from events where stream_kind in (2, 3) and type <> 'token.created'",
        )
        .fetch_one(&api.app.pool)
        .await
        .unwrap();
        let (before, after): (i64, i64) = sqlx::query_as(
            "select count(*) filter (where position < $2), count(*) filter (where position > $2) \
             from events where actor_id = $1 and type like 'rrset.%'",
        )
        .bind(user.as_uuid())
        .bind(ended)
        .fetch_one(&api.app.pool)
        .await
        .unwrap();
        assert!(before >= CHANGES_BEFORE as i64, "round {round}: {before}");
        assert_eq!(
            after, 0,
            "round {round}: so many changes of {user} stand after {ended}, where its rights ended"
        );
    }
}

/// What happens in the same streams all the time and takes no rights of the writer away makes it neither wait nor fail.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_keeps_its_rights_writes_while_others_come_and_go() {
    let (api, person) = api().await;
    let twin = api.join("[limits]\nmutations_per_minute = 100000\nreads_per_minute = 100000\n").await;
    let (owned, stop) = (made(&api, &person, json!({"name": "works"})).await.0, AtomicBool::new(false));
    let tenant: uuid::Uuid =
        sqlx::query_scalar("select tenant_id from desired.domains where name = 'example.test'")
            .fetch_one(&api.app.pool)
            .await
            .unwrap();
    let (other, _) = api.user("other@example.test", false, &[]).await;
    let (api, person, stop, owned) = (&api, &person, &stop, &owned);
    let works = async {
        let each = (0..4).map(|writer| async move {
            for n in 0..WRITES_COUNT {
                let body = json!({"ttl": 300, "records": [format!("192.0.{}.{}", n / 250 % 250, n % 250)]});
                let path = format!("{ZONE}/rrsets/w{writer}/A");
                let request =
                    api.request_at(twin.address, Method::PUT, &path).bearer_auth(owned.expose()).json(&body);
                let answer = Answer::of(request.send().await.unwrap()).await;
                assert_eq!(answer.status.as_u16(), 202, "{answer:?}");
            }
        });
        join_all(each).await;
        stop.store(true, Ordering::Relaxed);
    };
    // Three at once, and no pause: in each of the streams there is always something new.
    let rename = async {
        let mut n = 0;
        while !stop.load(Ordering::Relaxed) {
            n += 1;
            let labels = json!({"labels": {"n": n.to_string()}});
            api.call(Method::PATCH, &format!("/api/tenants/{tenant}"), labels).await.expect(200);
        }
        n
    };
    let tokens = async {
        let mut n = 0;
        while !stop.load(Ordering::Relaxed) {
            n += 1;
            made(api, person, json!({"name": "another"})).await;
        }
        n
    };
    let members = async {
        let (path, mut n) = (format!("/api/tenants/{tenant}/members/{other}"), 0);
        while !stop.load(Ordering::Relaxed) {
            n += 1;
            let role = if n % 2 == 0 { "viewer" } else { "editor" };
            let answer = api.call(Method::PUT, &path, json!({"role": role})).await;
            assert!(answer.status.is_success(), "{answer:?}");
        }
        n
    };
    let ((), renamed, made, changed) = tokio::join!(works, rename, tokens, members);
    println!("{renamed} names, {made} tokens and {changed} members changed meanwhile");
    assert!(renamed > CHANGES_BEFORE && made > CHANGES_BEFORE && changed > CHANGES_BEFORE);
}
