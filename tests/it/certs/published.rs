//! What edges get of a certificate: the names that somebody needs, which keys go with it, and until when those are kept.

use headwater::edge::{forget, signing};
use headwater::operation::project::{self, Stepped};
use headwater::rebuild::Intent;
use headwater_edge_wire::artifact::{Artifact, ArtifactBudget};
use headwater_events::event::Projection;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::Executor;

use super::api::with_zone;
use super::mint::Ca;
use crate::support::{TestApi, projection};

const ZONE: &str = "/api/domains/example.test";
const CUSTOM: &str = "/api/domains/example.test/tls/custom-certificate";

async fn follow(api: &TestApi) {
    let (edge, head) = (signing::projection(&api.app).await, api.head().await);
    while !matches!(project::step(&api.app, &edge).await.unwrap(), Stepped::AtHead(at) if at >= head) {}
}

async fn host(api: &TestApi, method: Method, name: &str) {
    let origin = json!({"origin": {"scheme": "http", "host": "origin.example.org"}});
    let body = if method == Method::PUT { origin } else { Value::Null };
    api.call(method, &format!("{ZONE}/hostnames/{name}"), body).await.expect(202);
}

async fn published(api: &TestApi) -> (Artifact, Value) {
    let query = "select a.bytes, d.keys from edge.domains d join edge.artifacts a on a.checksum = d.checksum \
                 where d.name = 'example.test' and not d.removed and d.fault is null";
    let (bytes, keys): (Vec<u8>, Value) = sqlx::query_as(query).fetch_one(&api.app.pool).await.unwrap();
    let artifact = Artifact::parse(&bytes, ArtifactBudget::default()).unwrap();
    assert_eq!(artifact.check(), vec![]);
    (artifact, keys)
}

async fn sealed(api: &TestApi) -> Vec<i32> {
    let query = "select version from sealed_secrets where kind = 'certificate_key' order by created_at";
    sqlx::query_scalar(query).fetch_all(&api.app.pool).await.unwrap()
}

#[tokio::test]
async fn names_that_no_proxied_name_needs_are_not_published() {
    let (api, _dir) = with_zone().await;
    let issuer = Ca::root("Root").below("Issuer");
    let names =
        ["*.example.test", "example.test", "mail.example.test", "www.example.test", "other.tenant.test"];
    let leaf = issuer.leaf(&names);
    api.call(Method::PUT, CUSTOM, leaf.body(Some(&issuer.pem))).await.expect(202);
    follow(&api).await;
    let rows: i64 =
        sqlx::query_scalar("select count(*) from edge.domains").fetch_one(&api.app.pool).await.unwrap();
    assert_eq!(rows, 0, "a domain that proxies nothing is nothing to an edge");

    host(&api, Method::PUT, "www").await;
    follow(&api).await;
    let (artifact, keys) = published(&api).await;
    let certificate = &artifact.certificates[0];
    assert_eq!(certificate.names, ["*.example.test", "www.example.test"]);
    assert_eq!(certificate.chain_pem, format!("{}{}", leaf.pem, issuer.pem));
    assert_eq!(keys, json!([{"id": certificate.id, "version": 1}]));

    // A name that it is not for is proxied beside it, without a certificate.
    host(&api, Method::PUT, "a.deep").await;
    host(&api, Method::PUT, "@").await;
    follow(&api).await;
    let (artifact, _) = published(&api).await;
    assert_eq!(artifact.hostnames.len(), 3);
    assert_eq!(artifact.certificates[0].names, ["*.example.test", "example.test", "www.example.test"]);
    for name in ["www", "@"] {
        host(&api, Method::DELETE, name).await;
    }
    follow(&api).await;
    let (artifact, keys) = published(&api).await;
    assert_eq!((artifact.certificates.len(), keys), (0, json!([])), "nothing that is proxied needs it");
    host(&api, Method::PUT, "www").await;
    follow(&api).await;

    let before = (published(&api).await, api.get(&format!("{ZONE}/tls")).await.text);
    for projection in [Projection::Desired, Projection::Edge] {
        assert_eq!(projection::run(&api.app, projection, Intent::Verify).await, []);
        projection::run(&api.app, projection, Intent::Rebuild).await;
        assert_eq!(projection::run(&api.app, projection, Intent::Verify).await, []);
    }
    assert_eq!((published(&api).await, api.get(&format!("{ZONE}/tls")).await.text), before);
    for (spoil, projection) in [
        ("update desired.certificates set version = 9", Projection::Desired),
        ("update edge.domains set keys = '[]'", Projection::Edge),
    ] {
        api.app.pool.execute(spoil).await.unwrap();
        assert!(!projection::run(&api.app, projection, Intent::Verify).await.is_empty(), "{spoil}");
        projection::run(&api.app, projection, Intent::Rebuild).await;
        assert_eq!(projection::run(&api.app, projection, Intent::Verify).await, [], "{spoil}");
    }
    api.call(Method::DELETE, CUSTOM, Value::Null).await.expect(202);
    follow(&api).await;
    assert_eq!(published(&api).await.0.certificates, vec![]);
}

/// The registry of edges as the test has it.
const REGISTRY: &str = "create table test_cells (in_service boolean, acked bigint); \
     create or replace function edge.cells(_domain uuid) returns table (edge_id uuid, cell integer, name text, \
     in_service boolean, acked bigint, refused_revision bigint, refused_why text) language sql stable as $$ \
     select null::uuid, 0, 'fra1', t.in_service, t.acked, null::bigint, null::text from test_cells t $$; \
     insert into test_cells values (true, 0), (false, 0)";

#[tokio::test]
async fn the_key_of_a_replaced_version_goes_once_nobody_can_ask_for_it() {
    let (api, _dir) = with_zone().await;
    let pool = &api.app.pool;
    pool.execute(sqlx::raw_sql(REGISTRY)).await.unwrap();
    let issuer = Ca::root("Root").below("Issuer");
    host(&api, Method::PUT, "www").await;
    let bring = || async {
        let body = issuer.leaf(&["www.example.test"]).body(Some(&issuer.pem));
        api.call(Method::PUT, CUSTOM, body).await.expect(202);
    };
    let forget = || async { forget::look(pool).await.unwrap() };
    let caught_up = || async {
        let query = "update test_cells set acked = (select max(position) from events) where in_service";
        pool.execute(query).await.unwrap();
    };
    bring().await;
    follow(&api).await;
    caught_up().await;
    assert_eq!((forget().await, sealed(&api).await), (0, vec![1]));
    bring().await;
    assert_eq!(forget().await, 0, "the version before is still published");
    follow(&api).await;
    assert_eq!(
        (forget().await, sealed(&api).await),
        (0, vec![1, 2]),
        "a cell in service lacks the newer one"
    );
    caught_up().await;
    assert_eq!((forget().await, sealed(&api).await), (1, vec![2]), "one out of service does not count");
    // A deleted domain can come back, and its certificate with it.
    api.call(Method::DELETE, ZONE, Value::Null).await.expect(202);
    follow(&api).await;
    caught_up().await;
    assert_eq!((forget().await, sealed(&api).await), (0, vec![2]));
    api.call(Method::POST, &format!("{ZONE}/restore"), Value::Null).await.expect(202);
    follow(&api).await;
    assert_eq!(published(&api).await.1[0]["version"], 2);
    api.call(Method::DELETE, CUSTOM, Value::Null).await.expect(202);
    follow(&api).await;
    assert_eq!(forget().await, 0);
    caught_up().await;
    assert_eq!((forget().await, sealed(&api).await), (1, vec![]));
}
