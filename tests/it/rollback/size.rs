//! As much as one rollback may change goes into one append.

use std::time::Instant;

use headwater_events::domain::{BATCH_MAX_CHANGES, ROLLBACK_MAX_CHANGES};
use reqwest::Method;
use serde_json::{Value, json};

use super::{NAME, ZONE};
use crate::support::TestApi;
use crate::support::log::size;

/// Changes of every day; the campaign takes as many as there may be.
const EVERY_DAY: usize = 2 * BATCH_MAX_CHANGES;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn torture_a_rollback_changes_as_much_as_it_may() {
    let api = TestApi::start("").await;
    // Served by nobody, every revision of it counts as validated.
    api.call(Method::POST, "/api/domains", json!({"name": NAME})).await.expect(201);
    let count = size(EVERY_DAY, ROLLBACK_MAX_CHANGES);
    for first in (0..count).step_by(BATCH_MAX_CHANGES) {
        let put = |n: usize| json!({"op": "put", "name": format!("n{n}"), "type": "A", "ttl": 300, "records": ["192.0.2.1"]});
        let changes: Vec<Value> = (first..first + BATCH_MAX_CHANGES).map(put).collect();
        let path = format!("{ZONE}/rrsets/batch");
        api.call(Method::POST, &path, json!({"changes": changes})).await.expect(200);
    }
    let begun = Instant::now();
    let path = format!("{ZONE}/rollback?allow=mass_delete");
    let done = api.call(Method::POST, &path, json!({"revision": 1})).await.expect(200).json();
    println!("{count} changes back in {:?}", begun.elapsed());
    assert_eq!(done["changed"], true, "{done}");
    let events = format!("{ZONE}/revisions/{}", done["revision"]);
    let shown = api.get(&events).await.expect(200).json();
    assert_eq!(shown["changes"].as_array().map(Vec::len), Some(count));
    let left: i64 =
        sqlx::query_scalar("select count(*) from desired.rrsets").fetch_one(&api.app.pool).await.unwrap();
    assert_eq!(left, 0);
}
