//! The system under test: `headwater demo` in a directory of its own, and databases beside the control one.

use anyhow::{Context, Result, bail};
use headwater::demo::api::Api;
use headwater::secret::Secret;
use serde_json::Value;
use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use sqlx::{Connection, Executor};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How long the demo may take to come up.
const START_LIMIT_SECONDS: u64 = 120;

/// A DNS cluster of the system.
pub struct Cluster {
    /// Its database.
    pub database_url: Secret,
    /// Its PowerDNS.
    pub dns: SocketAddr,
}

/// The running system.
pub struct System {
    demo: Child,
    /// The root of the API.
    pub api_address: SocketAddr,
    /// An administrator's token.
    pub token: Secret,
    /// The control database.
    pub database_url: Secret,
    /// The clusters.
    pub clusters: Vec<Cluster>,
    /// Where `bench.json` goes.
    pub target_dir: PathBuf,
    /// The configuration of the demo.
    pub config: PathBuf,
    dir: PathBuf,
    /// How many databases have been made.
    databases: AtomicU64,
    /// The most memory that earlier processes of `serve` held.
    peak_before_kib: AtomicU64,
}

impl System {
    /// Starts it and waits until everything answers.
    pub async fn start() -> Result<Self> {
        let target_dir =
            std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
        std::fs::create_dir_all(&target_dir)?;
        let dir = std::env::temp_dir().join(format!("headwater-bench-{}", std::process::id()));
        std::fs::create_dir_all(&dir)?;
        let log = std::fs::File::create(target_dir.join("bench-demo.log"))?;
        let demo = Command::new(env!("CARGO_BIN_EXE_headwater"))
            .arg("demo")
            .env("HEADWATER_DEMO_DIR", &dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start the demo")?;
        let deadline = Instant::now() + Duration::from_secs(START_LIMIT_SECONDS);
        let facts = loop {
            if let Ok(text) = std::fs::read_to_string(dir.join("demo.json"))
                && let Ok(facts) = serde_json::from_str::<Value>(&text)
                && facts["ready"] == true
            {
                break facts;
            }
            if Instant::now() > deadline {
                bail!("the demo does not come up; see bench-demo.log in the target directory");
            }
            sleep(Duration::from_millis(100)).await;
        };
        let text = |pointer: &str| facts.pointer(pointer).and_then(Value::as_str).context(pointer.to_owned());
        let clusters = facts["clusters"].as_array().context("clusters")?;
        let cluster = |value: &Value| -> Result<Cluster> {
            Ok(Cluster {
                database_url: Secret::new(value["database_url"].as_str().context("database_url")?.to_owned()),
                dns: value["dns"].as_str().context("dns")?.parse()?,
            })
        };
        Ok(Self {
            api_address: text("/api")?.trim_start_matches("http://").parse()?,
            token: Secret::new(text("/admin_token")?.to_owned()),
            database_url: Secret::new(text("/database_url")?.to_owned()),
            clusters: clusters.iter().map(cluster).collect::<Result<_>>()?,
            config: PathBuf::from(text("/config")?),
            databases: AtomicU64::new(0),
            peak_before_kib: AtomicU64::new(0),
            demo,
            target_dir,
            dir,
        })
    }

    /// A client of the API.
    pub fn api(&self) -> Result<Api> {
        Api::new(format!("http://{}", self.api_address), self.token.clone())
    }

    /// A fresh database beside the control one, with the control schema; gives its URL. Nothing drops it: the whole
    /// server goes with the system, and a worker of autovacuum in it could not be ended by its owner.
    pub async fn database(&self, purpose: &str) -> Result<Secret> {
        let number = self.databases.fetch_add(1, Ordering::Relaxed);
        let name = format!("{purpose}_{number}");
        let mut admin = PgConnection::connect(self.database_url.expose()).await?;
        admin.execute(AssertSqlSafe(format!("create database {name}"))).await?;
        let (base, _) = self.database_url.expose().rsplit_once('/').context("database URL")?;
        let url = Secret::new(format!("{base}/{name}"));
        let pool = pool(&url).await?;
        headwater::store::pool::migrate(&pool).await?;
        pool.close().await;
        Ok(url)
    }

    /// The most memory that a process of `serve` has held, in MiB.
    pub fn peak_mib(&self) -> Result<f64> {
        Ok(self.status("VmHWM:")?.max(self.peak_before_kib.load(Ordering::Relaxed) as f64) / 1024.0)
    }

    /// Ends `serve` and waits for the one that the demo starts in its place.
    pub async fn restart_serve(&self) -> Result<()> {
        self.peak_before_kib.fetch_max(self.status("VmHWM:")? as u64, Ordering::Relaxed);
        let old = self.serve_pid()?;
        let id = u32::try_from(old)
            .ok()
            .and_then(headwater::demo::process::ProcessId::of)
            .context("serve is gone")?;
        id.signal(nix::sys::signal::Signal::SIGTERM)?;
        let deadline = Instant::now() + Duration::from_secs(START_LIMIT_SECONDS);
        while self.serve_pid().map_or(true, |pid| pid == old) {
            if Instant::now() > deadline {
                bail!("serve does not come back; see bench-demo.log in the target directory");
            }
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    fn serve_pid(&self) -> Result<u64> {
        let facts: Value = serde_json::from_str(&std::fs::read_to_string(self.dir.join("demo.json"))?)?;
        facts["pids"]["headwater"].as_u64().context("pids.headwater")
    }

    /// The memory that `serve` holds now, in KiB.
    pub fn resident_kib(&self) -> Result<f64> {
        self.status("VmRSS:")
    }

    fn status(&self, key: &str) -> Result<f64> {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.serve_pid()?))?;
        let line =
            text.lines().find(|line| line.starts_with(key)).context("no such line of /proc/PID/status")?;
        Ok(line.split_whitespace().nth(1).context("no value")?.parse()?)
    }

    /// Stops it and removes its directory.
    pub async fn stop(mut self) -> Result<()> {
        let id = headwater::demo::process::ProcessId::of(self.demo.id())
            .context("the demo has ended by itself")?;
        id.signal(nix::sys::signal::Signal::SIGTERM)?;
        id.wait_gone(Duration::from_secs(60)).await?;
        let _status = self.demo.wait()?;
        std::fs::remove_dir_all(&self.dir)?;
        Ok(())
    }
}

impl Drop for System {
    // A benchmark that fails leaves nothing running.
    fn drop(&mut self) {
        if let Some(id) = headwater::demo::process::ProcessId::of(self.demo.id())
            && id.signal(nix::sys::signal::Signal::SIGTERM).is_ok()
        {
            let _status = self.demo.wait();
        }
    }
}

/// A pool on a database.
pub async fn pool(url: &Secret) -> Result<PgPool> {
    Ok(PgPoolOptions::new().max_connections(8).connect(url.expose()).await?)
}
