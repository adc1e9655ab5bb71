//! What agents say is wrong with their hosts: seen where somebody looks, and gone once they no longer say it.

use reqwest::Method;
use serde_json::{Value, json};

use super::agent::Agent;
use super::lab::{Lab, name};

async fn beat(agent: &Agent, sequence: u32, more: Value) {
    let mut body: Value = serde_json::from_slice(&agent.heartbeat(sequence)).unwrap();
    for (key, value) in more.as_object().unwrap() {
        body[key] = value.clone();
    }
    agent.post("heartbeat", &body).await.expect(200);
}

async fn problems(lab: &Lab) -> Vec<String> {
    let status = lab.api.get("/api/status").await.expect(200).json();
    let told = status["problems"].as_array().unwrap().iter();
    let told = told.map(|one| one.as_str().unwrap().to_owned());
    told.filter(|one| one.contains("damaged") || one.contains("ahead")).collect()
}

/// Why each of the edge's cells does not come along.
async fn why(lab: &Lab, agent: &Agent) -> Vec<(Value, Value)> {
    let cells = lab.api.get(&format!("/api/cells?edge={}", agent.edge)).await.expect(200).json();
    let cells = cells["items"].as_array().unwrap().iter();
    cells.map(|cell| (cell["refusal"]["code"].clone(), cell["refusal"]["domain"].clone())).collect()
}

#[tokio::test]
async fn a_damaged_disk_is_seen_until_it_is_whole() {
    let lab = Lab::new().await;
    let (agent, other) = (lab.enrolled("fra1").await, lab.enrolled("fra2").await);
    let signer = lab.signer().await;
    lab.put(&signer, 1, 10).await;
    lab.cursor(10).await;
    let since = "2026-11-30T12:00:00.000Z";
    let artifact = json!({"file": "artifacts/ab", "domain": name(1), "revision": 10, "since": since});
    let told = json!({"damaged": [artifact, {"file": "index", "since": since}], "damaged_count": 30});
    beat(&agent, 1, told).await;
    beat(&other, 1, json!({})).await;
    let seen = problems(&lab).await;
    let all = format!("the disk of the edge fra1 is damaged: artifacts/ab ({} revision 10)", name(1));
    assert!(seen.len() == 1 && seen[0].starts_with(&all) && seen[0].contains("1 more files"), "{seen:?}");
    let status = lab.api.get("/api/status").await.expect(200).json();
    assert_eq!((&status["ok"], &status["edges"][0]["name"]), (&json!(false), &json!("fra1")));
    assert_eq!(status["edges"][0]["damaged"][1], "index");
    // The journal is of every cell, an artifact of those that its domain stands on.
    let shown = lab.show(agent.edge).await;
    let files: Vec<&str> =
        shown["refusals"].as_array().unwrap().iter().map(|one| one["detail"].as_str().unwrap()).collect();
    assert!(files.len() == 2 && files[0].starts_with("artifacts/ab does not hold"), "{files:?}");
    let cells = why(&lab, &agent).await;
    assert!(cells.iter().all(|(code, _)| code == "damaged"), "{cells:?}");
    assert_eq!(cells.iter().filter(|(_, domain)| *domain == name(1)).count(), 1, "{cells:?}");
    assert!(why(&lab, &other).await.iter().all(|(code, _)| code.is_null()));

    // One that is whole again is told of once more, and is in nobody's way.
    let mended = json!({"file": "cell-1/keys/x.pem", "since": since, "mended": true});
    beat(&agent, 2, json!({"damaged": [mended], "damaged_count": 1})).await;
    assert!(problems(&lab).await[0].contains("cell-1/keys/x.pem, whole again"));
    assert!(why(&lab, &agent).await.iter().all(|(code, _)| code.is_null()));
    beat(&agent, 3, json!({"damaged": [{"file": "cell-1", "since": since}], "damaged_count": 1})).await;
    let cells: Vec<Value> = why(&lab, &agent).await.into_iter().map(|(code, _)| code).collect();
    assert_eq!(cells, [Value::Null, json!("damaged")]);
    beat(&agent, 4, json!({})).await;
    assert_eq!(problems(&lab).await, Vec::<String>::new());
    assert_eq!(lab.api.get("/api/status").await.expect(200).json()["edges"], json!([]));
    assert_eq!(lab.show(agent.edge).await["refusals"], json!([]));
}

#[tokio::test]
async fn an_edge_that_is_ahead_of_a_restored_log_is_seen_until_the_log_is_another() {
    let lab = Lab::new().await;
    let agent = lab.enrolled("fra1").await;
    let head = lab.api.head().await.get();
    lab.cursor(head).await;
    let holds = |epoch: u32, sequence: i64| json!({"holds": {"epoch": epoch, "sequence": sequence}});
    beat(&agent, 1, holds(1, head)).await;
    assert_eq!(problems(&lab).await, Vec::<String>::new());
    beat(&agent, 2, holds(1, head + 30)).await;
    let seen = problems(&lab).await;
    let what = format!("the edge fra1 is ahead of this log: it holds change {} of epoch 1", head + 30);
    assert!(seen.len() == 1 && seen[0].starts_with(&what), "{seen:?}");
    assert!(seen[0].contains("headwater admin renew-log-id"), "{seen:?}");
    assert!(why(&lab, &agent).await.iter().all(|(code, _)| code == "ahead"));
    // Its agent is told the same, with where the changes end.
    let refused = agent.get(&format!("manifest?after={}&epoch=1", head + 30)).await;
    let refused = refused.expect_problem(503, "unavailable").json();
    assert_eq!((&refused["epoch"], &refused["head"]), (&json!(1), &json!(head)));
    let applied = json!({"cell": 0, "epoch": 1, "sequence": head + 30});
    let refused = agent.post("applied", &applied).await.expect_problem(422, "ahead").json();
    assert_eq!((&refused["epoch"], &refused["head"]), (&json!(1), &json!(head)));
    headwater::store::renew_log_id(lab.pool()).await.unwrap();
    assert_eq!(problems(&lab).await, Vec::<String>::new());
    agent.get(&format!("manifest?after={}&epoch=1", head + 30)).await.expect(200);
    // Another restore, of a backup from before that.
    beat(&agent, 3, holds(3, 1)).await;
    assert!(problems(&lab).await[0].contains("of epoch 3"));
    lab.api.call(Method::POST, &format!("/api/edges/{}/disable", agent.edge), Value::Null).await.expect(200);
    assert_eq!(problems(&lab).await, Vec::<String>::new(), "one that is disabled is nobody's concern");
}
