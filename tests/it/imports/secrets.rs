//! The keys of a source are nowhere but in their files: not in the log, a table, an answer or an error.

use reqwest::Method;
use serde_json::{Value, json};

use super::Importing;
use super::old::{self, API_KEY, Old, TSIG_SECRET};
use crate::imperative::ended;

/// Everything that the database holds, as text.
async fn dump(importing: &Importing) -> String {
    let pool = &importing.api.app.pool;
    let text = "select format('%I.%I', schemaname, tablename) from pg_tables \
                where schemaname not in ('pg_catalog', 'information_schema')";
    let tables: Vec<String> = sqlx::query_scalar(text).fetch_all(pool).await.unwrap();
    let mut dump = String::new();
    for table in tables {
        let text =
            sqlx::AssertSqlSafe(format!("select coalesce(string_agg(t::text, E'\\n'), '') from {table} t"));
        dump.push_str(&sqlx::query_scalar::<_, String>(text).fetch_one(pool).await.unwrap());
    }
    let text = "select coalesce(string_agg(convert_from(data, 'UTF8'), E'\\n'), '') from events";
    dump.push_str(&sqlx::query_scalar::<_, String>(text).fetch_one(pool).await.unwrap());
    dump
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_of_a_source_are_found_nowhere() {
    let old = Old::start(3).await;
    let importing = Importing::new().await;
    let names: Vec<String> = (0..3).map(old::name).collect();
    let mut seen = String::new();
    let (_, report) = importing.import(&old.http(), json!({})).await;
    seen.push_str(&format!("{report:?}"));
    let (_, report) = importing.import(&old.transfers(&names), json!({})).await;
    seen.push_str(&format!("{report:?}"));
    // What does not work tells no more.
    let mut wrong = old.transfers(&names);
    wrong["tsig"]["name"] = json!("another.example.net");
    let (_, report) = importing.import(&wrong, json!({})).await;
    assert!(report.values().all(|line| line["outcome"] == "failed"), "{report:#?}");
    seen.push_str(&format!("{report:?}"));
    let mut unsigned = old.transfers(&names);
    unsigned["tsig"] = Value::Null;
    let (_, report) = importing.import(&unsigned, json!({})).await;
    assert!(report.values().all(|line| line["outcome"] == "failed"), "{report:#?}");
    let (key_as_secret, body) = (json!(old.key_file), old.transfers(&names));
    let mut body = importing.body(&body, json!({})).await;
    body["source"]["tsig"]["secret_file"] = key_as_secret;
    let answer = importing.api.call(Method::POST, "/api/imports?dry_run=true", body).await.expect(422);
    seen.push_str(&answer.text);
    std::fs::write(&old.tsig_file, API_KEY).unwrap();
    let id = importing.ask(&old.transfers(&names), json!({})).await;
    seen.push_str(&ended(&importing.api.app.pool, id).await.to_string());
    for path in ["/api/imports", "/api/operations", "/api/events?after=0&limit=1000", "/api/audit?limit=1000"]
    {
        seen.push_str(&importing.api.get(path).await.text);
    }
    seen.push_str(&dump(&importing).await);
    assert!(
        seen.contains("api_key_file") && seen.contains(old::TSIG_NAME),
        "what is looked through is there"
    );
    let password = std::fs::read_to_string(&old.url_file).unwrap();
    let password = password.split(':').nth(2).unwrap().split('@').next().unwrap().to_owned();
    for (what, secret) in
        [("API key", API_KEY), ("TSIG secret", TSIG_SECRET), ("password", password.as_str())]
    {
        for spelling in [secret.to_owned(), hex::encode(secret), secret.replace('=', "")] {
            assert!(!seen.contains(&spelling), "the {what} was found");
        }
    }
}
