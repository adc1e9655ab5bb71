//! The kit of parts, each really run: databases that survive `kill -9`, name servers that answer what is committed,
//! a front that leaves a cluster whose database is gone, and one that finds the cell of a name.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use domain::base::Rtype;
use domain::base::iana::Rcode;
use headwater::demo::front::{CellAddress, Front};
use headwater::demo::origin::Origin;
use headwater::demo::ports::PortLease;
use headwater::demo::stack::DnsCluster;
use reqwest::Method;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Executor};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{DnsStack, TestDb, eventually};

/// The rows of a small zone whose answer names the cluster that gave it.
pub async fn write_zone(cluster: &DnsCluster, address: &str) {
    let mut connection = PgConnection::connect(cluster.database_url().expose()).await.unwrap();
    sqlx::query("INSERT INTO domains (name, type) VALUES ('example.test', 'NATIVE')")
        .execute(&mut connection)
        .await
        .unwrap();
    let rows = [
        ("example.test", "SOA", "ns1.example.net hostmaster.example.net 1 3600 600 1209600 300"),
        ("example.test", "NS", "ns1.example.net"),
        ("www.example.test", "A", address),
    ];
    for (name, kind, content) in rows {
        sqlx::query(
            "INSERT INTO records (domain_id, name, type, content, ttl) \
             SELECT id, $1, $2, $3, 300 FROM domains WHERE name = 'example.test'",
        )
        .bind(name)
        .bind(kind)
        .bind(content)
        .execute(&mut connection)
        .await
        .unwrap();
    }
    connection.close().await.unwrap();
}

/// Awaits that a server answers with this address.
pub async fn shows(what: &str, server: SocketAddr, address: &str) {
    let ask = || DnsStack::ask(server, "www.example.test", Rtype::A);
    let _answer =
        eventually(what, ask, |answer| answer.as_ref().is_ok_and(|answer| answer.is_exactly(address))).await;
}

#[tokio::test]
async fn test_databases_are_separate_and_survive_nothing_but_the_run() {
    let (one, two) = (TestDb::new().await, TestDb::new().await);
    assert_ne!(one.url().expose(), two.url().expose());
    one.pool().await.execute("CREATE TABLE t (n int)").await.unwrap();
    let pool = two.pool().await;
    let found: Option<i32> =
        sqlx::query_scalar("SELECT 1 FROM pg_class WHERE relname = 't'").fetch_optional(&pool).await.unwrap();
    assert_eq!(found, None);
    let safe: Vec<String> = sqlx::query_scalar(
        "SELECT current_setting(s) FROM unnest(ARRAY['fsync', 'full_page_writes', 'data_checksums', \
         'synchronous_commit', 'log_parameter_max_length']) s",
    )
    .fetch_all(&pool)
    .await
    .unwrap();
    assert_eq!(safe, ["on", "on", "on", "on", "0"]);
}

#[tokio::test]
async fn an_answer_shows_what_is_committed_and_comes_back_after_kills() {
    let mut stack = DnsStack::start(1).await;
    let address = stack.clusters[0].pdns.address();
    let unhosted = DnsStack::ask(address, "www.example.test", Rtype::A).await.unwrap();
    assert_eq!(unhosted.rcode, Rcode::REFUSED);

    // No cache: the answer after the commit is the new one, even right after another answer to the same question.
    write_zone(&stack.clusters[0], "192.0.2.1").await;
    let answer = DnsStack::ask(address, "www.example.test", Rtype::A).await.unwrap();
    assert!(answer.is_exactly("192.0.2.1") && answer.authoritative, "{answer:?}");

    stack.clusters[0].pdns.service().kill().await.unwrap();
    stack.clusters[0].pdns.service().start().await.unwrap();
    assert!(DnsStack::ask(address, "www.example.test", Rtype::A).await.unwrap().is_exactly("192.0.2.1"));

    let before = stack.clusters[0].postgres.id();
    stack.clusters[0].postgres.kill().await.unwrap();
    let answer = DnsStack::ask(address, "www.example.test", Rtype::A).await.unwrap();
    assert_eq!(answer.rcode, Rcode::SERVFAIL);
    stack.clusters[0].postgres.restart().await.unwrap();
    assert_ne!(stack.clusters[0].postgres.id(), before);
    shows("PowerDNS finds its database again", address, "192.0.2.1").await;
}

#[tokio::test]
async fn powerdns_can_only_read() {
    let stack = DnsStack::start(1).await;
    let mut connection = PgConnection::connect(stack.clusters[0].database_url().expose()).await.unwrap();
    let grants: Vec<String> = sqlx::query_scalar(
        "SELECT DISTINCT privilege_type FROM information_schema.role_table_grants WHERE grantee = 'pdns_ro'",
    )
    .fetch_all(&mut connection)
    .await
    .unwrap();
    assert_eq!(grants, ["SELECT"]);
    let settings: Vec<String> =
        sqlx::query_scalar("SELECT unnest(rolconfig) FROM pg_roles WHERE rolname = 'pdns_ro'")
            .fetch_all(&mut connection)
            .await
            .unwrap();
    assert_eq!(settings, ["default_transaction_read_only=on"]);
}

#[tokio::test]
async fn the_front_leaves_a_cluster_whose_database_is_gone_and_returns() {
    let mut stack = DnsStack::start(2).await;
    write_zone(&stack.clusters[0], "192.0.2.1").await;
    write_zone(&stack.clusters[1], "192.0.2.2").await;
    let front = stack.dnsdist.address();
    let fronts: Vec<_> = stack.clusters.iter().map(|cluster| cluster.front).collect();

    shows("the preferred cluster answers", front, "192.0.2.1").await;
    shows("the first cluster answers at its own front", fronts[0], "192.0.2.1").await;
    shows("the second cluster answers at its own front", fronts[1], "192.0.2.2").await;

    stack.clusters[0].postgres.kill().await.unwrap();
    shows("the other cluster takes over", front, "192.0.2.2").await;
    // Its own front never falls back to another cluster: a deployment on it could not be told from the other's.
    let alone = DnsStack::ask(fronts[0], "www.example.test", Rtype::A).await.unwrap();
    assert_eq!(alone.rcode, Rcode::SERVFAIL);
    let other = DnsStack::ask(fronts[1], "www.example.test", Rtype::A).await.unwrap();
    assert!(other.is_exactly("192.0.2.2"), "{other:?}");

    stack.clusters[0].postgres.restart().await.unwrap();
    shows("the preferred cluster is back", front, "192.0.2.1").await;

    stack.clusters[0].pdns.service().kill().await.unwrap();
    shows("the other cluster takes over again", front, "192.0.2.2").await;
    stack.dnsdist.service().kill().await.unwrap();
    stack.dnsdist.service().start().await.unwrap();
    shows("a new front finds the healthy one", front, "192.0.2.2").await;
}

/// What a cell says of a name that is not its own: in the clear, and as a record of TLS.
const NOT_MINE: (StatusCode, &str) = (StatusCode::MISDIRECTED_REQUEST, "not mine");
const REFUSAL: [u8; 7] = [21, 3, 3, 0, 2, 2, 40];
/// A first record of TLS, and the answer of a cell that takes it.
const HELLO: [u8; 9] = [22, 3, 1, 0, 4, 1, 2, 3, 4];
const WELCOME: &[u8] = &[22, 3, 3, 0, 1, 9];

/// A cell that serves one name, in the clear.
async fn plain_cell(at: SocketAddr, name: &'static str) {
    let listener = TcpListener::bind(at).await.unwrap();
    let answer = move |headers: HeaderMap, body: String| async move {
        let is_mine = headers.get("host").is_some_and(|host| host == name);
        if is_mine {
            (StatusCode::OK, format!("{name} got {body}"))
        } else {
            (NOT_MINE.0, NOT_MINE.1.to_owned())
        }
    };
    tokio::spawn(async move { axum::serve(listener, Router::new().fallback(answer)).await.unwrap() });
}

/// A cell that answers every hello alike and then echoes.
async fn tls_cell(at: SocketAddr, answer: &'static [u8]) {
    let listener = TcpListener::bind(at).await.unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut hello = [0; HELLO.len()];
            stream.read_exact(&mut hello).await.unwrap();
            stream.write_all(answer).await.unwrap();
            if hello == HELLO && answer == WELCOME {
                let (mut read, mut write) = stream.split();
                let _gone = tokio::io::copy(&mut read, &mut write).await;
            }
        }
    });
}

#[tokio::test]
async fn the_front_finds_the_cell_of_a_name_and_waits_for_one_that_is_away() {
    let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let lease = || PortLease::take().unwrap();
    let cells: Vec<_> = (0..2).map(|_| (lease(), lease())).collect();
    let at = |n: usize| CellAddress { http: cells[n].0.address(), https: cells[n].1.address() };
    let front = Front::start(lease(), lease(), vec![at(0), at(1)]).await.unwrap();
    plain_cell(at(0).http, "one.test").await;
    let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20)).build().unwrap();
    let (client, root) = (&http, format!("http://{}/", front.http()));
    let ask = |method: Method, host: &'static str, body: &'static str| {
        let request = client.request(method, &root).header("host", host).body(body);
        async move {
            let answer = request.send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        }
    };
    assert_eq!(ask(Method::GET, "one.test", "").await, (200, "one.test got ".to_owned()));

    // The other cell is away and may be the one: it is waited for, and the body is given to it whole.
    let (got, ()) = tokio::join!(ask(Method::POST, "two.test", "a body"), async {
        tokio::task::yield_now().await;
        plain_cell(at(1).http, "two.test").await;
    });
    assert_eq!(got, (200, "two.test got a body".to_owned()));
    // Over one connection in turn, and a name that nobody serves.
    for _ in 0..3 {
        assert_eq!(ask(Method::PUT, "one.test", "x").await, (200, "one.test got x".to_owned()));
        assert_eq!(ask(Method::GET, "two.test", "").await, (200, "two.test got ".to_owned()));
    }
    assert_eq!(ask(Method::GET, "three.test", "").await, (421, NOT_MINE.1.to_owned()));

    // TLS is passed on as it comes.
    tls_cell(at(0).https, &REFUSAL).await;
    tls_cell(at(1).https, WELCOME).await;
    let mut stream = TcpStream::connect(front.https()).await.unwrap();
    let mut answer = vec![0; WELCOME.len()];
    stream.write_all(&HELLO).await.unwrap();
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, WELCOME);
    stream.write_all(b"more").await.unwrap();
    let mut more = [0; 4];
    stream.read_exact(&mut more).await.unwrap();
    assert_eq!(&more, b"more");
}

#[tokio::test]
async fn a_handshake_that_no_cell_takes_is_refused_as_they_refuse_it() {
    let lease = || PortLease::take().unwrap();
    let cell = (lease(), lease());
    let at = CellAddress { http: cell.0.address(), https: cell.1.address() };
    tls_cell(at.https, &REFUSAL).await;
    let front = Front::start(lease(), lease(), vec![at]).await.unwrap();
    let mut stream = TcpStream::connect(front.https()).await.unwrap();
    stream.write_all(&HELLO).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert_eq!(answer, REFUSAL);
}

#[tokio::test]
async fn every_answer_of_the_origin_is_another_and_is_fresh_for_a_minute() {
    let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let origin = Origin::start(PortLease::take().unwrap()).await.unwrap();
    let mut bodies = Vec::new();
    for path in ["", "a/b?c=d", "a/b?c=d"] {
        let answer = reqwest::get(format!("http://{}/{path}", origin.address())).await.unwrap();
        assert_eq!(
            (answer.status().as_u16(), &answer.headers()["cache-control"]),
            (200, &"max-age=60".parse().unwrap())
        );
        bodies.push(answer.text().await.unwrap());
    }
    assert!(bodies[1] != bodies[2] && bodies[2].contains("/a/b?c=d"), "{bodies:?}");
}
