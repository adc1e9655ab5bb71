//! A cluster, tested: its database with schema and rights, its PowerDNS, its front. Every fault is named.

use super::batch::Reach;
use super::cluster::{ClusterRow, Target};
use super::dns::{self, Answer};
use super::fault::DeployError;
use domain::base::iana::Rcode;
use headwater_events::dns::RrType;
use headwater_projections::powerdns::sql as powerdns_sql;
use serde::Serialize;
use sqlx::postgres::PgPool;
use std::net::SocketAddr;
use std::time::Instant;

/// A name that no zone here holds: a server that lives refuses it, one without its database fails.
const UNHOSTED_NAME: &str = "a.root-servers.net";

/// One step of a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct TestStep {
    /// `database`, `schema`, `rights`, `powerdns` or `front`.
    pub name: String,
    /// Whether it went well.
    pub ok: bool,
    /// How long it took, in milliseconds.
    pub ms: u64,
    /// What is wrong, and what to do.
    pub detail: Option<String>,
}

/// What a test of a cluster says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct TestReport {
    /// Whether every step went well.
    pub ok: bool,
    /// The steps, in order. What could not be tried is left out.
    pub steps: Vec<TestStep>,
}

/// Tests a cluster. The schema of its database is brought up to date on the way.
pub async fn test_cluster(cluster: &ClusterRow) -> TestReport {
    let mut steps = Vec::new();
    let mut step = |name: &str, began: Instant, result: Result<(), String>| {
        let ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let ok = result.is_ok();
        steps.push(TestStep { name: name.to_owned(), ok, ms, detail: result.err() });
        ok
    };
    let began = Instant::now();
    let connected = async {
        let target = Target::open(cluster.clone()).map_err(|error| error.to_string())?;
        alive(&target.pool).await?;
        Ok::<_, String>(target)
    };
    let connected = connected.await;
    let failed = connected.as_ref().err().cloned();
    step("database", began, failed.map_or(Ok(()), Err));
    if let Ok(target) = connected {
        let began = Instant::now();
        let schema = target.ensure_schema().await.map_err(|error| error.to_string());
        if step("schema", began, schema) {
            let began = Instant::now();
            step("rights", began, rights(&target.pool).await);
        }
        target.pool.close().await;
    }
    for (name, address) in [("powerdns", Some(cluster.dns)), ("front", cluster.front)] {
        let Some(address) = address else { continue };
        let began = Instant::now();
        step(name, began, answers(address).await);
    }
    TestReport { ok: steps.iter().all(|step| step.ok), steps }
}

/// Whether a cluster can be deployed to and answers.
pub(super) async fn reach(target: &Target) -> Reach {
    if let Err(why) = alive(&target.pool).await {
        return Reach::Nothing(why);
    }
    for (what, server) in target.cluster.listeners() {
        if let Err(why) = answers(server).await {
            return Reach::Database(format!("{what} at {server}: {why}"));
        }
    }
    Reach::All
}

async fn alive(pool: &PgPool) -> Result<(), String> {
    let acquired = pool.acquire().await.map_err(|error| DeployError::target(error).to_string())?;
    drop(acquired);
    Ok(())
}

async fn rights(pool: &PgPool) -> Result<(), String> {
    let all: Result<bool, _> = sqlx::query_scalar(powerdns_sql::RIGHTS).fetch_one(pool).await;
    match all {
        Ok(true) => Ok(()),
        Ok(false) => Err("the role may not write every table: give the URL of the owner role".into()),
        Err(error) => Err(DeployError::target(error).to_string()),
    }
}

async fn answers(server: SocketAddr) -> Result<(), String> {
    let answer: Answer =
        dns::ask(server, UNHOSTED_NAME, RrType::A).await.map_err(|error| error.to_string())?;
    match answer.rcode {
        Rcode::SERVFAIL => Err("it answers SERVFAIL: its database cannot be reached from there".into()),
        _ => Ok(()),
    }
}
