//! The event stream: exact resumption, replay and live without a seam, rights in the order of the log.
//! Rows of `cases/sse.tsv` are named by their ids.

use std::time::Duration;

use axum::http::StatusCode;
use headwater::cli::sse::SseParser;
use headwater_events::actor::Caller;
use headwater_events::admin::AdminCommand;
use headwater_events::ids::{Position, TokenId};
use headwater_events::time::Timestamp;
use serde_json::{Value, json};
use sqlx::Executor;
use uuid::Uuid;

use crate::support::eventually;
use crate::support::sse::{Stream, position};
use crate::support::world::{Runs, World, put_large};

fn rows(kind: &str) -> Vec<Vec<&'static str>> {
    let rows = include_str!("../cases/sse.tsv").lines().map(|line| line.split('\t').collect::<Vec<_>>());
    rows.filter(|row| row.get(1) == Some(&kind)).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

#[test]
fn every_parse_row_is_read_as_the_standard_says_however_it_is_cut() {
    let rows = rows("parse");
    assert_eq!(rows.len(), 29);
    for row in rows {
        let input: String = serde_json::from_str(row[3]).unwrap();
        let expected: Value = serde_json::from_str(row[4]).unwrap();
        let end: Value = serde_json::from_str(row[5]).unwrap();
        for size in [1, 2, 3, usize::MAX] {
            let mut parser = SseParser::default();
            let mut fired = Vec::new();
            for piece in input.as_bytes().chunks(size.min(input.len())) {
                fired.extend(parser.feed(piece));
            }
            let shown: Value =
                fired.iter().map(|e| json!({"type": e.event, "data": e.data, "id": e.id})).collect();
            assert_eq!(shown, expected, "{} in pieces of {size}", row[0]);
            assert_eq!(parser.last_event_id(), text(&end["last_event_id"]), "{}", row[0]);
            assert_eq!(json!(parser.retry().map(|pause| pause.as_millis())), end["retry"], "{}", row[0]);
        }
    }
    // CR LF ends one line, not two, wherever it is cut.
    for size in [1, 2, 9, 100] {
        let mut parser = SseParser::default();
        let lines = b"data: a\r\ndata: b\r\n\r\n";
        let fired: Vec<String> = lines.chunks(size).flat_map(|p| parser.feed(p)).map(|e| e.data).collect();
        assert_eq!(fired, ["a\nb"], "in pieces of {size}");
    }
}

/// S030, S031, S035, S040, S041, S046: the stored events, whole, from wherever one was; then live.
#[tokio::test]
async fn a_reader_gets_exactly_what_follows_its_id_and_then_what_happens() {
    let world = World::with(Runs::SmallRing, |_| {}).await;
    world.domain("example.test", world.tenant).await;
    world.flood("example.test", 700).await;
    let whole = world.whole().await;
    let head = world.head().await;

    let mut stream = Stream::open(&world, "system", "?after=0", None).await;
    assert_eq!(stream.header("content-type"), "text/event-stream");
    assert_eq!(stream.header("cache-control"), "no-store, no-transform");
    assert_eq!(stream.header("x-accel-buffering"), "no");
    let events = stream.up_to(head).await;
    let seen: Vec<(Position, String)> = events.iter().map(|e| (position(e), e.data.clone())).collect();
    assert_eq!(seen, whole);
    for event in &events {
        let data: Value = serde_json::from_str(&event.data).unwrap();
        assert_eq!(data["type"], event.event.as_str());
    }
    assert!((2_000..=5_000).contains(&stream.parser.retry().unwrap().as_millis()));
    let text = String::from_utf8(stream.bytes.clone()).unwrap();
    assert_eq!(text.matches("\nretry:").count() + text.matches("retry:").count(), 1, "retry: once");

    // The last three, though the history is long; the header wins over the query.
    let last_but_three = &events[events.len() - 4].id;
    let mut resumed = Stream::open(&world, "system", "?after=0", Some(last_but_three)).await;
    assert_eq!(resumed.up_to(head).await, events[events.len() - 3..]);

    // Nothing is new; what happens then arrives once, and within a second.
    let mut live = Stream::open(&world, "system", "", Some(&events[events.len() - 1].id)).await;
    assert!(live.read().await);
    let outcome = world.put(&Caller::system(), "example.test", "www", "192.0.2.1").await;
    let event = tokio::time::timeout(Duration::from_secs(1), live.next()).await.unwrap().unwrap();
    assert_eq!(Some(position(&event)), outcome.position);
    // S045: what changes nothing is no event.
    let unchanged = world.put(&Caller::system(), "example.test", "www", "192.0.2.1").await;
    assert_eq!(unchanged.position, None);
    let outcome = world.put(&Caller::system(), "example.test", "www", "192.0.2.2").await;
    assert_eq!(Some(position(&live.next().await.unwrap())), outcome.position);

    // From the head when nothing is said; a bare position is one.
    let mut fresh = Stream::open(&world, "system", "", None).await;
    assert!(fresh.read().await);
    assert_eq!(position_of(fresh.parser.last_event_id()), world.head().await);
    let bare = world.head().await.get() - 1;
    let mut bare = Stream::open(&world, "system", &format!("?after={bare}"), None).await;
    assert_eq!(Some(position(&bare.next().await.unwrap())), outcome.position);
}

fn position_of(id: &str) -> Position {
    Position::new(id.split_once('.').unwrap().1.parse().unwrap())
}

/// Eventlog test 12: a recorded stream, cut at random octets, gives with its reconnects the exact sequence.
#[tokio::test]
async fn a_stream_cut_anywhere_resumes_exactly() {
    let world = World::with(Runs::SmallRing, |_| {}).await;
    world.domain("example.test", world.tenant).await;
    world.flood("example.test", 60).await;
    let whole = world.whole().await;
    let head = world.head().await;
    let mut recorded = Stream::open(&world, "system", "?after=0", None).await;
    recorded.up_to(head).await;
    let bytes = recorded.bytes;
    let other = World::join(world.url.clone(), Runs::Streams, |_| {}).await;
    for n in 0..500 {
        let cut = rand::random_range(0..=bytes.len());
        let mut parser = SseParser::default();
        let mut union: Vec<String> = parser.feed(&bytes[..cut]).into_iter().map(|e| e.data).collect();
        if parser.last_event_id().is_empty() || union.len() == whole.len() {
            continue;
        }
        // Every other time to another process.
        let world = if n % 2 == 0 { &world } else { &other };
        let last = parser.last_event_id().to_owned();
        let mut rest = Stream::open(world, "system", "", Some(&last)).await;
        union.extend(rest.up_to(head).await.into_iter().map(|e| e.data));
        assert!(union.iter().eq(whole.iter().map(|e| &e.1)), "cut at {cut}");
    }
}

/// S034, S043, S044, S047 and the ends of eventlog test 12.
#[tokio::test]
async fn what_cannot_be_resumed_is_said() {
    let world = World::with(Runs::Streams, |_| {}).await;
    let (_id, created) = world.domain("example.test", world.tenant).await;
    let meta = world.app.log.meta().await.unwrap();
    let short = meta.log.short();
    for id in ["abc", "-1", "1e3", "99999999999999999999"] {
        let answer = world.get_with("system", "/events/stream", &[("last-event-id", id)]).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{id}");
    }
    for path in ["?after=1&after=2", "?last_event_id=4", "?after=x", "?domain=a..b", "?type=A"] {
        let answer = world.get("system", &format!("/events/stream{path}")).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{path}");
    }
    let answer = world.get_with("system", "/events/stream", &[("accept", "application/json")]).await;
    assert_eq!(answer.status(), StatusCode::NOT_ACCEPTABLE);
    let answer = world.get("nobody", "/events/stream").await;
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);

    // An empty id is none.
    let mut empty = Stream::open(&world, "system", "?after=0", Some("")).await;
    assert_eq!(position(&empty.next().await.unwrap()), Position::new(1));

    world.app.pool.execute("update log_meta set floor_position = 2").await.unwrap();
    let head = meta.head;
    let cases = [
        (format!("{short}.1"), "expired"),
        (format!("{short}.{}", head.get() + 1), "ahead"),
        ("00000000.2".to_owned(), "other_log"),
    ];
    for (id, reason) in cases {
        let mut stream = Stream::open(&world, "system", "", Some(&id)).await;
        let reset = stream.next().await.unwrap();
        assert_eq!((reset.event.as_str(), position(&reset)), ("reset", head), "{id}");
        let expected = json!({"reason": reason, "floor": 2, "head": head, "state": "/api/domains"});
        assert_eq!(serde_json::from_str::<Value>(&reset.data).unwrap(), expected);
    }
    for (id, next) in
        [(format!("{short}.2"), Position::new(3)), (format!("{short}.{}", head.get() - 1), head)]
    {
        let mut stream = Stream::open(&world, "system", "", Some(&id)).await;
        assert_eq!(position(&stream.next().await.unwrap()), next, "{id}");
    }
    assert_eq!(created.position, Some(head));

    // The log is restored under an open stream: it is told, and goes on live.
    let mut open = Stream::open(&world, "system", "", None).await;
    assert!(open.read().await);
    world.app.pool.execute("update log_meta set log_id = gen_random_uuid()").await.unwrap();
    let reset = open.next().await.unwrap();
    assert_eq!(reset.event, "reset");
    assert!(reset.data.contains("other_log") && !reset.id.starts_with(&short), "{reset:?}");
    let outcome = world.put(&Caller::system(), "example.test", "www", "192.0.2.1").await;
    assert_eq!(Some(position(&open.next().await.unwrap())), outcome.position);
}

/// S032 and eventlog test 13: whoever connects while events are appended sees each once, in order.
#[tokio::test]
async fn replay_and_live_have_no_seam() {
    let world = World::with(Runs::SmallRing, |_| {}).await;
    world.domain("example.test", world.tenant).await;
    world.flood("example.test", 300).await;
    let appending = world.flood("example.test", 3_000);
    let reading = async {
        let mut readers = Vec::new();
        for n in 0..20_i64 {
            let mut stream = Stream::open(&world, "system", &format!("?after={}", n * 10), None).await;
            let first = stream.next().await.unwrap();
            assert_eq!(position(&first), Position::new(n * 10 + 1));
            readers.push((stream, position(&first)));
        }
        readers
    };
    let ((), readers) = tokio::join!(appending, reading);
    let head = world.head().await;
    for (mut stream, first) in readers {
        let mut last = first;
        while last < head {
            match stream.next_or_cut().await {
                Some(event) => {
                    assert_eq!(position(&event), last.next());
                    last = position(&event);
                }
                // Whoever was not read from for too long was let go; it goes on from its id.
                None => {
                    let id = stream.parser.last_event_id().to_owned();
                    stream = Stream::open(&world, "system", "", Some(&id)).await;
                }
            }
        }
        assert_eq!(last, head);
    }
}

/// S037, and current rights in the order of the log: gained, lost, and a client shown to its own people only.
#[tokio::test]
async fn a_tenants_reader_sees_its_own_and_follows_its_rights() {
    let world = World::with(Runs::SmallRing, |_| {}).await;
    let (ours, theirs) = (world.new_tenant("ours").await, world.new_tenant("theirs").await);
    world.domain("ours.test", ours).await;
    world.domain("theirs.test", theirs).await;
    let reader = world.person("reader@example.test", &[ours]).await;
    let colleague = world.person("colleague@example.test", &[ours, theirs]).await;
    world.put(&colleague.caller, "ours.test", "a", "192.0.2.1").await;
    world.put(&colleague.caller, "theirs.test", "a", "192.0.2.1").await;
    let head = world.head().await;

    let replayed = world.json(&reader.bearer, "/api/events?limit=1000").await;
    for event in replayed["items"].as_array().unwrap() {
        let own = event["stream"]["id"] == reader.user.to_string();
        assert!(own || event["tenant"] == ours.to_string(), "{event}");
    }
    let mut live = Stream::open(&world, &reader.bearer, "?type=rrset.&type=tenant.", None).await;
    assert!(live.read().await);
    world.put(&colleague.caller, "theirs.test", "b", "192.0.2.1").await;
    world.put(&colleague.caller, "ours.test", "b", "192.0.2.2").await;
    let event: Value = serde_json::from_str(&live.next().await.unwrap().data).unwrap();
    assert_eq!(event["domain"], "ours.test");
    assert_eq!(event["client"], json!({"ip": "192.0.2.77", "agent": "test"}));
    world.put(&Caller::system(), "ours.test", "c", "192.0.2.2").await;
    let event: Value = serde_json::from_str(&live.next().await.unwrap().data).unwrap();
    assert_eq!((&event["actor"]["kind"], &event["client"]), (&json!("system"), &Value::Null));

    // Gained without a reconnect, replay included for whoever asks from the start.
    world.admin(AdminCommand::AddMember { tenant: theirs, user: reader.user, role: None }).await;
    world.put(&colleague.caller, "theirs.test", "c", "192.0.2.3").await;
    let event: Value = serde_json::from_str(&live.next().await.unwrap().data).unwrap();
    assert_eq!(event["type"], "tenant.member_added");
    let event: Value = serde_json::from_str(&live.next().await.unwrap().data).unwrap();
    assert_eq!(event["domain"], "theirs.test");
    let mut replay =
        Stream::open(&world, &reader.bearer, "?after=0&domain=theirs.test&type=rrset.", None).await;
    assert!(position(&replay.next().await.unwrap()) <= head);

    // Lost: neither live nor in a replay.
    world.admin(AdminCommand::RemoveMember { tenant: theirs, user: reader.user }).await;
    world.put(&colleague.caller, "theirs.test", "d", "192.0.2.4").await;
    world.put(&colleague.caller, "ours.test", "d", "192.0.2.4").await;
    let event: Value = serde_json::from_str(&live.next().await.unwrap().data).unwrap();
    assert_eq!(event["domain"], "ours.test");
}

/// Eventlog test 14: a token is revoked at R while events flood in: nothing after R is sent, then bye.
#[tokio::test]
async fn nothing_after_a_revocation_is_ever_sent() {
    let world = World::with(Runs::SmallRing, |_| {}).await;
    let ours = world.new_tenant("ours").await;
    world.domain("ours.test", ours).await;
    for round in 0..6 {
        let reader = world.person(&format!("r{round}@example.test"), &[ours]).await;
        // Some read along, some are far behind in a replay.
        let query = if round % 2 == 0 { "" } else { "?after=0" };
        let mut streams = Vec::new();
        for _ in 0..4 {
            let mut stream = Stream::open(&world, &reader.bearer, query, None).await;
            assert!(stream.read().await);
            streams.push(stream);
        }
        let flood = world.flood("ours.test", 600);
        let revoke = async {
            tokio::task::yield_now().await;
            let token = reader.token;
            let gone = AdminCommand::RevokeToken { user: reader.user, token, possessed: false };
            world.admin(gone).await.position.unwrap()
        };
        let reading = futures_util::future::join_all(streams.iter_mut().map(Stream::rest));
        let ((), revoked, all) = tokio::join!(flood, revoke, reading);
        assert!(world.head().await > revoked, "the flood outlasts the revocation");
        for events in all {
            let (bye, before) = events.split_last().unwrap();
            assert_eq!((bye.event.as_str(), bye.data.as_str()), ("bye", "{\"reason\":\"token_revoked\"}"));
            for event in before {
                assert!(position(event) <= revoked, "{} after {revoked}", position(event));
            }
        }
    }
}

/// A token whose time is over ends its stream by itself; so does the end of the process.
#[tokio::test]
async fn a_stream_ends_with_its_token_and_with_the_process() {
    let world = World::with(Runs::Streams, |_| {}).await;
    let person = world.person("short@example.test", &[]).await;
    let end = Timestamp::from(chrono::Utc::now()).plus(Duration::from_millis(700));
    let token = TokenId::from_uuid(Uuid::now_v7());
    let short = world.token(person.user, token, &[], Some(end)).await;
    let mut stream = Stream::open(&world, &short.bearer, "", None).await;
    assert_eq!(stream.next().await.unwrap().data, "{\"reason\":\"token_expired\"}");
    assert_eq!(stream.next().await, None);
    let mut stream = Stream::open(&world, "system", "", None).await;
    world.stop.cancel();
    let events = stream.rest().await;
    assert_eq!(events.last().unwrap().data, "{\"reason\":\"stopping\"}");
}

/// S042, S039: the one too many is told when to come again; the others live, and a closed one makes room.
#[tokio::test]
async fn streams_are_bounded_for_each_token_and_tenant() {
    let world = World::with(Runs::Streams, |config| {
        config.limits.streams_per_token = 3;
        config.limits.streams_per_tenant = 5;
    })
    .await;
    let ours = world.new_tenant("ours").await;
    let one = world.person("one@example.test", &[ours]).await;
    let two = world.person("two@example.test", &[ours]).await;
    let mut open = Vec::new();
    for person in [&one, &one, &one, &two, &two] {
        open.push(Stream::open(&world, &person.bearer, "", None).await);
    }
    for person in [&one, &two] {
        let refused = world.get(&person.bearer, "/events/stream").await;
        assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(refused.headers().contains_key("retry-after"));
    }
    open.remove(0);
    let hub = world.app.hub.clone();
    let left =
        eventually("a closed stream is let go", || async { hub.open_streams(ours.as_uuid()) }, |n| *n == 4);
    left.await;
    Stream::open(&world, &one.bearer, "", None).await;
}

/// Eventlog test 16: what another process appends is seen within the poll though no notification comes.
#[tokio::test]
async fn a_lost_notification_costs_no_more_than_a_poll() {
    let world = World::with(Runs::Streams, |_| {}).await;
    world.domain("example.test", world.tenant).await;
    let other = World::join(world.url.clone(), Runs::Deaf, |_| {}).await;
    let mut stream = Stream::open(&other, "system", "", None).await;
    assert!(stream.read().await);
    for n in 0..5 {
        let outcome = world.put(&Caller::system(), "example.test", "www", &format!("192.0.2.{n}")).await;
        let since = tokio::time::Instant::now();
        assert_eq!(Some(position(&stream.next().await.unwrap())), outcome.position);
        assert!(since.elapsed() < Duration::from_millis(1_500), "{:?}", since.elapsed());
    }
}

/// S039: whoever stops reading is let go, though its connection stands; whoever reads on is not.
#[tokio::test]
async fn a_reader_that_takes_nothing_is_let_go() {
    let world = World::with(Runs::Impatient, |_| {}).await;
    world.domain("example.test", world.tenant).await;
    for some in (0..1_500).collect::<Vec<usize>>().chunks(50) {
        let puts = some.iter().map(|n| world.submit(Caller::system(), put_large("example.test", *n)));
        futures_util::future::join_all(puts).await;
    }
    let head = world.head().await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let address = world.base.strip_prefix("http://").unwrap();
    let mut stalled = socket.connect(address.parse().unwrap()).await.unwrap();
    let request = format!(
        "GET /events/stream?after=0 HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer system\r\n\r\n"
    );
    tokio::io::AsyncWriteExt::write_all(&mut stalled, request.as_bytes()).await.unwrap();
    let open = || async { world.app.hub.open_streams(Uuid::nil()) };
    eventually("it is served", open, |n| *n == 1).await;
    let mut reading = Stream::open(&world, "system", "?after=0", None).await;
    assert_eq!(i64::try_from(reading.up_to(head).await.len()).unwrap(), head.get());
    eventually("the one that stalls is let go", open, |n| *n == 1).await;
    assert!(reading.parser.retry().is_some());
}

/// A reader whose filter matches nothing still moves on.
#[tokio::test]
async fn a_filtered_reader_is_moved_on_by_bookmarks() {
    let world = World::with(Runs::Streams, |_| {}).await;
    world.domain("example.test", world.tenant).await;
    let mut stream = Stream::open(&world, "system", "?domain=other.test", None).await;
    assert!(stream.read().await);
    let before = stream.parser.last_event_id().to_owned();
    world.flood("example.test", 20).await;
    let since = tokio::time::Instant::now();
    while position_of(stream.parser.last_event_id()) < world.head().await {
        assert!(stream.read().await);
    }
    assert!(since.elapsed() < Duration::from_secs(15));
    assert_ne!(stream.parser.last_event_id(), before);
}
