//! A process that dies while it erases a user, or gives it another password, leaves all of it or nothing; asked again
//! with its key, it is done once.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command as Program, Stdio};

use headwater::command::{Aside, Command, Outcome};
use headwater::secret::Secret;
use headwater_events::actor::Caller;
use headwater_events::admin::AdminCommand;
use headwater_events::ids::{TokenId, UserId};
use nix::sys::signal::{Signal, raise};
use uuid::Uuid;

use crate::support::log::*;

const URL: &str = "HEADWATER_TEST_PEOPLE_URL";
const POINT: &str = "HEADWATER_TEST_PEOPLE_POINT";
const WHAT: &str = "HEADWATER_TEST_PEOPLE_WHAT";
const USER: UserId = UserId::from_uuid(Uuid::from_u128(7));

/// What is asked, with the key that every try has.
async fn ask(log: &Log, what: &str) -> Outcome {
    let (command, aside) = match what {
        "erase" => (AdminCommand::DeleteUser { user: USER }, Aside::UserGone { user: USER }),
        _ => {
            let verifier = Secret::new("new".to_owned());
            (AdminCommand::SetPassword { user: USER }, Aside::Password { user: USER, verifier, keep: None })
        }
    };
    let command = Command::Admin { command, aside };
    log.commit.submit(Caller::system(), command, keyed(Uuid::from_u128(1), 1)).await.unwrap()
}

/// Not a test by itself: the process that is killed.
#[tokio::test]
async fn child() {
    let read = |name| std::env::var(name).ok();
    let (Some(url), Some(point), Some(what)) = (read(URL), read(POINT), read(WHAT)) else { return };
    let log = Log::join(Secret::new(url)).await;
    fail::cfg_callback(point, || raise(Signal::SIGKILL).unwrap()).unwrap();
    ask(&log, &what).await;
}

/// How many there are of: mail addresses, passwords that are the old one, sessions, tokens that work, claims.
async fn left(log: &Log) -> [i64; 5] {
    let counts: Vec<i64> = sqlx::query_scalar(
        "select count(*) from people where user_id = $1 \
         union all select count(*) from credentials where user_id = $1 and verifier = 'old' \
         union all select count(*) from sessions where user_id = $1 \
         union all select count(*) from token_secrets s join desired.tokens t on t.id = s.token_id \
             join desired.users u on u.id = t.user_id where t.user_id = $1 and t.revoked_at is null \
         union all select count(*) from claims where holder = $1",
    )
    .bind(USER.as_uuid())
    .fetch_all(&log.pool)
    .await
    .unwrap();
    counts.try_into().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_leaves_all_of_a_user_or_nothing() {
    for (what, after) in [("erase", [0; 5]), ("password", [1, 0, 0, 1, 1])] {
        for (point, written) in [("append.before_call", false), ("append.after_call", true)] {
            let log = Log::new().await;
            log.submit(create_user(USER, "ann@example.test")).await.unwrap();
            log.submit(create_token(USER, TokenId::from_uuid(Uuid::from_u128(8)))).await.unwrap();
            let old = Aside::Password { user: USER, verifier: Secret::new("old".to_owned()), keep: None };
            let command = AdminCommand::SetPassword { user: USER };
            log.submit(Command::Admin { command, aside: old }).await.unwrap();
            sqlx::query("insert into sessions values ($1, $2, $3, now(), now(), now() + interval '1 hour')")
                .bind(Uuid::now_v7())
                .bind(USER.as_uuid())
                .bind([1_u8; 32].as_slice())
                .execute(&log.pool)
                .await
                .unwrap();
            assert_eq!(left(&log).await, [1; 5]);
            let status = Program::new(std::env::current_exe().unwrap())
                .args(["people::crash::child", "--exact", "--nocapture"])
                .env(URL, log.url.expose())
                .env(POINT, point)
                .env(WHAT, what)
                .stdout(Stdio::null())
                .status()
                .unwrap();
            assert_eq!(status.signal(), Some(9), "{what} {point}: it was not killed there");
            assert_eq!(left(&log).await, if written { after } else { [1; 5] }, "{what} {point}");
            // Whoever asked got no answer, and asks again.
            let answer = ask(&log, what).await;
            assert_eq!((answer.changed, answer.replayed), (true, written), "{what} {point}");
            assert_eq!(left(&log).await, after, "{what} {point}");
            log.assert_sound().await;
        }
    }
}
