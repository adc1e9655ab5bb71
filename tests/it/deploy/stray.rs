//! Of two that look over a target's zones at once, one moves the walk on: a walk that skipped a part would take what is
//! there for gone.

use chrono::{DateTime, Utc};
use sqlx::postgres::PgPool;
use uuid::Uuid;

use crate::support::TestApi;

fn statement(part: &str) -> &'static str {
    headwater::statements::all().into_iter().find(|text| text.contains(part)).unwrap()
}

async fn found(pool: &PgPool, cluster: Uuid) -> (String, DateTime<Utc>) {
    sqlx::query_as(statement("insert into target_looks")).bind(cluster).fetch_one(pool).await.unwrap()
}

async fn strays(pool: &PgPool) -> Vec<String> {
    sqlx::query_scalar("select zone from target_strays order by zone").fetch_all(pool).await.unwrap()
}

#[tokio::test]
async fn a_look_that_was_overtaken_neither_moves_the_walk_nor_ends_it() {
    let api = TestApi::start("").await;
    let (pool, cluster) = (&api.app.pool, Uuid::now_v7());
    let (next, end) = (statement("update target_looks set after = $4"), statement("with walked as"));
    let keep = async |zone: &str| {
        let kept = sqlx::query(statement("insert into target_strays")).bind(cluster);
        kept.bind(vec![zone.to_owned()]).bind(vec![true]).execute(pool).await.unwrap();
    };
    let (after, began) = found(pool, cluster).await;
    assert_eq!(after, "");
    for last in ["m.example", "b.example"] {
        let moved = sqlx::query(next).bind(cluster).bind(&after).bind(began).bind(last);
        moved.execute(pool).await.unwrap();
    }
    assert_eq!(found(pool, cluster).await, ("m.example".to_owned(), began));

    keep("seen.example").await;
    for from in ["", "m.example"] {
        sqlx::query(end).bind(cluster).bind(from).bind(began).execute(pool).await.unwrap();
    }
    let (after, again) = found(pool, cluster).await;
    assert!(after.is_empty() && again > began, "{after:?} {again}");
    assert_eq!(strays(pool).await, ["seen.example"]);
    // The same end once more, by one that was overtaken: what the walk after it has seen is kept.
    sqlx::query(end).bind(cluster).bind("").bind(began).execute(pool).await.unwrap();
    assert_eq!((found(pool, cluster).await.1, strays(pool).await), (again, vec!["seen.example".to_owned()]));
    // A walk that sees it no more ends it.
    sqlx::query(end).bind(cluster).bind("").bind(again).execute(pool).await.unwrap();
    assert_eq!(strays(pool).await, [] as [String; 0]);
}
