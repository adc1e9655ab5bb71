//! A source that is followed: what changes there arrives, what others changed here stays, and after the cutover nothing
//! more comes.

use headwater::import::follow;
use headwater_events::ids::OperationId;
use reqwest::Method;
use serde_json::{Value, json};

use super::old::Old;
use super::{Importing, outcomes};
use crate::imperative::ended;
use crate::support::eventually;

/// A source that is followed, with four zones.
struct Following {
    old: Old,
    here: Importing,
    id: OperationId,
}

impl Following {
    async fn start(source: impl Fn(&Old) -> Value) -> Self {
        let (old, here) = (Old::start(4).await, Importing::new().await);
        for _ in 0..2 {
            // Two processes, of which one looks at a time.
            tokio::spawn(follow::run(here.api.app.clone()));
        }
        let (id, report) = here.import(&source(&old), json!({"mode": "follow", "follow_seconds": 1})).await;
        assert_eq!(outcomes(&report), [("imported", 4)].into(), "{report:#?}");
        let it = Self { old, here, id };
        it.stands("following").await;
        it
    }

    /// Waits until the import stands so: what ends an operation in the log is shown a little later.
    async fn stands(&self, state: &str) {
        let now = || async { self.here.shown(self.id).await["state"].clone() };
        eventually(state, now, |now| now == state).await;
    }

    /// What an A record of a zone is here.
    async fn value(&self, zone: &str, owner: &str) -> Value {
        let path = format!("/api/domains/{zone}/rrsets/{owner}/A");
        let answer = self.here.api.get(&path).await;
        if answer.status == 404 { Value::Null } else { answer.json()["records"].clone() }
    }

    async fn becomes(&self, zone: &str, owner: &str, records: Value) {
        let what = format!("{owner}.{zone} becomes {records}");
        eventually(&what, || self.value(zone, owner), |now| *now == records).await;
    }

    async fn put(&self, zone: &str, owner: &str, address: &str) {
        let body = json!({"ttl": 300, "records": [address]});
        let path = format!("/api/domains/{zone}/rrsets/{owner}/A");
        self.here.api.call(Method::PUT, &path, body).await.expect(202);
    }

    /// Looks that have ended.
    async fn passes(&self) -> i64 {
        self.here.shown(self.id).await["follow"]["passes"].as_i64().unwrap()
    }

    /// Waits until a look that began after now has ended.
    async fn looked(&self) {
        let now = self.passes().await;
        eventually("it looks again", || self.passes(), |passes| *passes >= now + 2).await;
    }

    async fn cut_over(&self, body: Value) -> Value {
        let path = format!("/api/imports/{}/cutover", self.id);
        let answer = self.here.api.call(Method::POST, &path, body).await.expect(202).json();
        let id = answer["operation"]["id"].as_str().unwrap().parse().unwrap();
        ended(&self.here.api.app.pool, id).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_changes_at_a_database_arrives_and_what_others_changed_stays() {
    let it = Following::start(Old::database).await;
    // By hand, so that not even the serial says so.
    it.old.sql("update records set content = '192.0.2.77' where name = 'www.z001.test' and content = '192.0.2.1'").await;
    it.becomes("z001.test", "www", json!(["192.0.2.11", "192.0.2.77"])).await;
    let text = "select count(*) from events where change_id = $1 and domain = 'z001.test' and revision > 1";
    let query = sqlx::query_scalar::<_, i64>(text).bind(it.id.as_uuid());
    assert_eq!(query.fetch_one(&it.here.api.app.pool).await.unwrap(), 1, "one event for one RRset");

    // Changed here alone it stays; changed on both sides it stays and is told.
    it.put("z002.test", "www", "198.51.100.1").await;
    it.put("z003.test", "own", "198.51.100.2").await;
    it.old
        .sql("update records set content = '192.0.2.78' where name in ('www.z002.test', 'www.z003.test') and content = '192.0.2.1'")
        .await;
    it.becomes("z003.test", "www", json!(["192.0.2.11", "192.0.2.78"])).await;
    it.looked().await;
    assert_eq!(it.value("z002.test", "www").await, json!(["198.51.100.1"]));
    assert_eq!(it.value("z003.test", "own").await, json!(["198.51.100.2"]));
    let report = it.here.report(it.id).await;
    assert_eq!(report["z002.test"]["conflicts"], json!(["www A"]), "{report:#?}");
    assert_eq!(report["z002.test"]["outcome"], "conflict");

    // A new zone comes; one that is gone there stays here and is told; one that is deleted here is not made again.
    it.here
        .api
        .call(Method::DELETE, "/api/domains/z001.test?allow=empties_zone", Value::Null)
        .await
        .expect(202);
    it.old
        .sql("insert into domains (name, type) values ('late.test', 'NATIVE'); \
              insert into records (domain_id, name, type, content, ttl) \
                select id, 'www.late.test', 'A', '192.0.2.5', 300 from domains where name = 'late.test'; \
              delete from domains where name = 'z003.test'; \
              update records set content = '192.0.2.79' where name = 'www.z001.test' and content = '192.0.2.77'")
        .await;
    it.becomes("late.test", "www", json!(["192.0.2.5"])).await;
    it.looked().await;
    let report = it.here.report(it.id).await;
    assert_eq!(report["z003.test"]["outcome"], "missing", "{report:#?}");
    assert_eq!(report["z001.test"]["conflicts"], json!(["the domain was deleted here"]), "{report:#?}");
    assert_eq!(it.value("z003.test", "www").await, json!(["192.0.2.11", "192.0.2.78"]));

    // The last look, and nothing from there on.
    it.old.sql("update records set content = '192.0.2.80' where name = 'www.z000.test' and content = '192.0.2.1'").await;
    let end = it.cut_over(json!({})).await;
    assert_eq!(end["state"], "succeeded", "{end}");
    assert_eq!(it.value("z000.test", "www").await, json!(["192.0.2.11", "192.0.2.80"]));
    it.stands("cut_over").await;
    it.old.sql("update records set content = '192.0.2.81' where name = 'www.z000.test' and content = '192.0.2.80'").await;
    let due = "select count(*) from imports where following";
    assert_eq!(sqlx::query_scalar::<_, i64>(due).fetch_one(&it.here.api.app.pool).await.unwrap(), 0);
    let path = format!("/api/imports/{}/cutover", it.id);
    it.here.api.call(Method::POST, &path, json!({})).await.expect_problem(409, "not_following");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_changes_at_an_api_and_at_a_primary_arrives() {
    let bump = |address: &str| {
        json!({"rrsets": [{"name": "www.z001.test.", "type": "A", "changetype": "REPLACE", "ttl": 300,
            "records": [{"content": address, "disabled": false}]}]})
    };
    let change = async |it: &Following, address: &str| {
        let answer = it.old.call(Method::PATCH, "/zones/z001.test.", bump(address)).await;
        assert_eq!(answer.status(), 204, "{}", answer.text().await.unwrap());
        // Whoever has no setting of its own for it raises the serial by hand.
        it.old
            .sql(
                "update records set content = regexp_replace(content, ' [0-9]{10} ', ' 2031010101 ') \
                  where name = 'z001.test' and type = 'SOA'",
            )
            .await;
    };
    let it = Following::start(Old::http).await;
    change(&it, "192.0.2.90").await;
    it.becomes("z001.test", "www", json!(["192.0.2.90"])).await;
    let names: Vec<String> = (0..4).map(super::old::name).collect();
    let it = Following::start(|old| old.transfers(&names)).await;
    change(&it, "192.0.2.91").await;
    it.becomes("z001.test", "www", json!(["192.0.2.91"])).await;
    // The serial goes on from the higher one.
    let zone = it.here.api.get("/api/domains/z001.test/rrsets/@/SOA").await.expect(200).json();
    let serial: u32 = zone["records"][0].as_str().unwrap().split(' ').nth(2).unwrap().parse().unwrap();
    assert!(serial >= 2_031_010_101, "{zone}");
}

/// A source that is gone is told at the import; the cutover that wants to see it fails, and one that does not comes through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_source_that_is_gone_can_be_let_go_of() {
    let it = Following::start(Old::http).await;
    std::fs::write(&it.old.key_file, "another-key").unwrap();
    let error = || async { it.here.shown(it.id).await["follow"]["error"].clone() };
    let told = eventually("it is told", error, Value::is_string).await;
    assert!(told.as_str().unwrap().contains("refuses the key"), "{told}");
    let end = it.cut_over(json!({})).await;
    assert_eq!(
        (&end["state"], &end["error"]["code"]),
        (&json!("failed"), &json!("source_unusable")),
        "{end}"
    );
    it.stands("following").await;
    let end = it.cut_over(json!({"without_last_look": true})).await;
    assert_eq!(end["state"], "succeeded", "{end}");
    it.stands("cut_over").await;
}
