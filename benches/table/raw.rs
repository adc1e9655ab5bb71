//! RAW: pgbench writing the same rows as one command does, all tables of the batch.

use super::report::median;
use super::sql;
use super::system::{System, pool};
use anyhow::{Context, Result, bail};
use headwater::secret::Secret;
use sqlx::Executor;
use std::path::PathBuf;
use std::process::Command;

/// The program; Debian keeps it out of the PATH.
const PGBENCH: &str = "/usr/lib/postgresql/15/bin/pgbench";
/// The data of one event, as long as that of a PUT.
const EVENT_DATA: &str = r#"{"name":"w500","type":"A","before":{"ttl":300,"records":["198.51.100.1"],"comment":null},"after":{"ttl":300,"records":["198.51.100.2"],"comment":null}}"#;
/// Seconds of one run.
pub const RUN_SECONDS: u64 = 4;

/// The raw writer on a database of its own.
pub struct Raw {
    url: Secret,
    script: PathBuf,
    dir: PathBuf,
}

impl Raw {
    /// Makes its database.
    pub async fn prepare(system: &System) -> Result<Self> {
        let url = system.database("bench_raw").await?;
        let pool = pool(&url).await?;
        pool.execute(sql::RAW_SEED).await?;
        pool.close().await;
        let dir = std::env::temp_dir().join(format!("headwater-bench-raw-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let script = dir.join("put.sql");
        std::fs::write(&script, sql::RAW_PUT.replace("{DATA}", &hex::encode(EVENT_DATA)))?;
        Ok(Self { url, script, dir })
    }

    /// Transactions per second with this many clients.
    pub async fn rate(&self, clients: u32) -> Result<f64> {
        let out = self.run(clients, false).await?;
        let line = out.lines().find(|line| line.starts_with("tps = ")).context("pgbench printed no tps")?;
        Ok(line.split_whitespace().nth(2).context("no tps")?.parse()?)
    }

    /// The median latency of one client, in milliseconds.
    pub async fn single_p50(&self) -> Result<f64> {
        for old in std::fs::read_dir(&self.dir)?.flatten() {
            if old.file_name().to_string_lossy().starts_with("pgbench_log") {
                std::fs::remove_file(old.path())?;
            }
        }
        self.run(1, true).await?;
        let mut millis = Vec::new();
        for log in std::fs::read_dir(&self.dir)?.flatten() {
            if log.file_name().to_string_lossy().starts_with("pgbench_log") {
                for line in std::fs::read_to_string(log.path())?.lines() {
                    millis.push(line.split(' ').nth(2).context("pgbench log")?.parse::<f64>()? / 1000.0);
                }
            }
        }
        Ok(median(&mut millis))
    }

    async fn run(&self, clients: u32, log: bool) -> Result<String> {
        let mut command = Command::new(PGBENCH);
        command.current_dir(&self.dir).args(["-n", "-M", "prepared", "-j", "2"]);
        command.args(["-c", &clients.to_string(), "-T", &RUN_SECONDS.to_string()]);
        if log {
            command.arg("-l");
        }
        command.arg("-f").arg(&self.script).arg(self.url.expose());
        let out = tokio::task::spawn_blocking(move || command.output()).await??;
        if !out.status.success() {
            bail!("pgbench failed: {}", String::from_utf8_lossy(&out.stderr));
        }
        Ok(String::from_utf8_lossy(&out.stdout).into_owned())
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _removed = std::fs::remove_dir_all(&self.dir);
    }
}
