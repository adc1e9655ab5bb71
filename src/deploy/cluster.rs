//! The DNS clusters as `desired` has them, and connections to their databases. The schema there is brought up to date
//! by whoever connects first; the operator gives the URL of the owner role.

use super::fault::DeployError;
use super::sql;
use super::verify::IN_FLIGHT_MAX_ZONES;
use crate::secret::Secret;
use headwater_events::ids::ClusterId;
use sqlx::migrate::Migrator;
use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions, PgRow};
use sqlx::{ConnectOptions, Row};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// The schema of a PowerDNS database, embedded.
pub static TARGET_MIGRATIONS: Migrator = sqlx::migrate!("migrations/pdns");

/// Connections to one target: the batches in hand, the drift check, and one to spare.
const TARGET_MAX_CONNECTIONS: u32 = 6;
/// How long a connection to a target may take.
const TARGET_CONNECT_SECONDS: u64 = 5;

/// A registered DNS cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterRow {
    /// Its id.
    pub id: ClusterId,
    /// Its name.
    pub name: String,
    /// The file with the URL of its database.
    pub database_url_file: PathBuf,
    /// Where its PowerDNS answers.
    pub dns: SocketAddr,
    /// Where dnsdist answers from this cluster alone.
    pub front: Option<SocketAddr>,
    /// Whether it is deployed to.
    pub enabled: bool,
}

impl ClusterRow {
    /// Where its answers are read back, in order, and how each place is called.
    pub fn listeners(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        [("PowerDNS", Some(self.dns)), ("dnsdist", self.front)]
            .into_iter()
            .filter_map(|(what, address)| address.map(|address| (what, address)))
    }
}

/// Every registered cluster.
///
/// # Errors
/// When the control database does not answer, or a row is not one of ours.
pub async fn clusters(pool: &PgPool) -> Result<Vec<ClusterRow>, DeployError> {
    let rows = sqlx::query(sql::CLUSTERS).fetch_all(pool).await.map_err(DeployError::control)?;
    rows.iter().map(|row| read(row).map_err(DeployError::control)).collect()
}

fn read(row: &PgRow) -> Result<ClusterRow, sqlx::Error> {
    let address = |text: &str, column: &str| {
        text.parse::<SocketAddr>()
            .map_err(|error| sqlx::Error::ColumnDecode { index: column.to_owned(), source: Box::new(error) })
    };
    Ok(ClusterRow {
        id: ClusterId::from_uuid(row.try_get(0)?),
        name: row.try_get(1)?,
        database_url_file: row.try_get::<String, _>(2)?.into(),
        dns: address(row.try_get(3)?, "dns")?,
        front: row.try_get::<Option<&str>, _>(4)?.map(|text| address(text, "front")).transpose()?,
        enabled: row.try_get(5)?,
    })
}

/// A cluster with connections to its database, made when they are needed.
#[derive(Debug, Clone)]
pub struct Target {
    /// The cluster.
    pub cluster: ClusterRow,
    /// Its database.
    pub pool: PgPool,
    /// Turns for zones that are asked about, of all batches together.
    pub(super) questions: Arc<Semaphore>,
}

impl Target {
    /// Reads the URL of its database; connects to nothing yet.
    ///
    /// # Errors
    /// When the file cannot be read or holds no URL.
    pub fn open(cluster: ClusterRow) -> Result<Self, DeployError> {
        let options = options(&cluster.database_url_file)?;
        let pool = PgPoolOptions::new()
            .max_connections(TARGET_MAX_CONNECTIONS)
            .acquire_timeout(Duration::from_secs(TARGET_CONNECT_SECONDS))
            .connect_lazy_with(options);
        Ok(Self { cluster, pool, questions: Arc::new(Semaphore::new(IN_FLIGHT_MAX_ZONES)) })
    }

    /// Brings its schema up to date. Several at once wait for each other; doing it again does nothing.
    ///
    /// # Errors
    /// When the database cannot be reached, or holds another schema.
    pub async fn ensure_schema(&self) -> Result<(), DeployError> {
        // First whether it answers at all: that is mended elsewhere than a schema.
        drop(self.pool.acquire().await.map_err(unanswered)?);
        let migrate = TARGET_MIGRATIONS.run(&self.pool);
        match tokio::time::timeout(Duration::from_secs(6 * TARGET_CONNECT_SECONDS), migrate).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(DeployError::Unreachable(format!(
                "its schema cannot be brought up to date: {error}; the URL must be the owner's, and the database \
                 empty or made by Headwater"
            ))),
            Err(_) => Err(DeployError::Unreachable("it does not answer in time".into())),
        }
    }
}

/// Whether the database of a cluster takes a connection.
///
/// # Errors
/// Why not.
pub async fn database_answers(cluster: &ClusterRow) -> Result<(), String> {
    let options = options(&cluster.database_url_file).map_err(|error| error.to_string())?;
    let connection = options.connect().await.map_err(|error| unanswered(error).to_string())?;
    // What matters was seen.
    drop(connection);
    Ok(())
}

/// A database to which no connection is made.
fn unanswered(error: sqlx::Error) -> DeployError {
    DeployError::Unreachable(match error {
        sqlx::Error::PoolTimedOut => format!("it does not answer within {TARGET_CONNECT_SECONDS} s"),
        sqlx::Error::Io(error) => format!("it does not answer: {error}"),
        error => format!("it takes no connection: {error}"),
    })
}

/// Options of a connection, from the file of a URL.
pub(crate) fn options(file: &Path) -> Result<PgConnectOptions, DeployError> {
    let url = Secret::read(file).map_err(|error| DeployError::Unreachable(format!("{error:#}")))?;
    // The parser takes any scheme, and what is left out (all of it, at worst) from the environment.
    let is_url = ["postgres://", "postgresql://"].iter().any(|scheme| url.expose().starts_with(scheme));
    let options = Some(url.expose()).filter(|_| is_url).and_then(|url| PgConnectOptions::from_str(url).ok());
    let options = options.ok_or_else(|| {
        DeployError::Unreachable(format!(
            "{} holds no PostgreSQL URL: write postgres://user:password@host:port/database",
            file.display()
        ))
    })?;
    Ok(options.application_name("headwater").disable_statement_logging().options([
        // Plans follow the tables as they grow, and the sizes of the arrays that they are given.
        ("plan_cache_mode", "force_custom_plan"),
        ("lock_timeout", "5s"),
        ("statement_timeout", "60s"),
        ("idle_in_transaction_session_timeout", "30s"),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_url_no_answer_and_no_schema_are_told_apart() {
        let rows = [
            ("postgres", "holds no PostgreSQL URL"),
            ("host:5432", "holds no PostgreSQL URL"),
            ("http://127.0.0.1/x", "holds no PostgreSQL URL"),
            ("postgres://u@127.0.0.1:1/x", "it does not answer"),
        ];
        for (url, told) in rows {
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), url).unwrap();
            let row = ClusterRow {
                id: ClusterId::from_uuid(uuid::Uuid::now_v7()),
                name: "dns-1".to_owned(),
                database_url_file: file.path().to_owned(),
                dns: SocketAddr::from(([127, 0, 0, 1], 1)),
                front: None,
                enabled: true,
            };
            let answer = match Target::open(row) {
                Ok(target) => target.ensure_schema().await,
                Err(error) => Err(error),
            };
            let answer = answer.unwrap_err().to_string();
            assert!(answer.contains(told) && !answer.contains("schema"), "{url}: {answer}");
        }
    }
}
