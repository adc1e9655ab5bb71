//! A database for one test, on a server that all tests of the run share.

use std::sync::atomic::{AtomicU32, Ordering};

use headwater::demo::ports::PortLease;
use headwater::demo::postgres::{DatabaseName, Postgres};
use headwater::secret::Secret;
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, Executor};
use tokio::sync::OnceCell;

use super::test_home;

/// Connections of one test's pool: many tests share the 200 of the server.
const POOL_MAX_CONNECTIONS: u32 = 10;

static SERVER: OnceCell<Postgres> = OnceCell::const_new();
static NEXT: AtomicU32 = AtomicU32::new(1);

/// An empty database of its own. It goes with the server at the end of the run.
pub struct TestDb {
    url: Secret,
}

impl TestDb {
    /// Makes one. The first call of a run starts the server.
    pub async fn new() -> Self {
        let server = SERVER.get_or_init(start).await;
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        let mut connection = PgConnection::connect(server.url("postgres").expose()).await.unwrap();
        connection.execute(AssertSqlSafe(format!("CREATE DATABASE {name}"))).await.unwrap();
        connection.close().await.unwrap();
        Self { url: server.url(&name) }
    }

    /// Its URL, for the owner role.
    pub fn url(&self) -> &Secret {
        &self.url
    }

    /// A pool on it. A pool belongs to the runtime that made it, so each test makes its own.
    pub async fn pool(&self) -> PgPool {
        PgPoolOptions::new().max_connections(POOL_MAX_CONNECTIONS).connect(self.url.expose()).await.unwrap()
    }
}

async fn start() -> Postgres {
    let lease = PortLease::take().unwrap();
    Postgres::start(&test_home(), "postgres", lease, DatabaseName::HEADWATER).await.unwrap()
}
