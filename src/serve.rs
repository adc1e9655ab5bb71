//! `headwater serve`: the parts of one process, started in order and stopped in the other.
//!
//! A stop is: say "not ready", so that a load balancer looks elsewhere; end what never ends by itself; let requests
//! finish within the grace; then the committer, which answers what it has taken.

use anyhow::{Context, Result, bail};
use axum::Router;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use headwater_events::domain::Limits;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use sqlx::postgres::PgPool;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::app::{App, Parts, Wake};
use crate::clock::{Clock, SystemClock};
use crate::config::Config;
use crate::edge::signing::PlatformSigner;
use crate::history::hub::{self, Hub};
use crate::http::accept;
use crate::operation::{self, Progress};
use crate::people::digest::DigestKeys;
use crate::people::password::Passwords;
use crate::replicas::{self, Replicas};
use crate::secret::Secret;
use crate::store::read::LogReader;
use crate::store::{Committer, CommitterHandle, pool};
use crate::{deploy, edge, http, import, placement, verify, webhook};

/// How long a starting process waits for its database.
const DATABASE_WAIT: Duration = Duration::from_secs(60);
/// Pause between two tries to reach it.
const DATABASE_PAUSE: Duration = Duration::from_millis(250);
/// How long "not ready" is shown before the listener closes.
const DRAIN_NOTICE: Duration = Duration::from_millis(500);
/// How long the committer may take for what it has taken.
const COMMITTER_GRACE: Duration = Duration::from_secs(5);
/// How often metrics are tidied.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);
/// Upper bounds of every histogram of seconds.
const SECONDS_BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0];
/// Upper bounds of every histogram of counts.
const COUNT_BUCKETS: [f64; 9] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0];

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Roles {
    /// Answers requests.
    pub api: bool,
    /// Deploys to DNS clusters.
    pub deploy: bool,
    /// Follows the log: projections, operations.
    pub projections: bool,
    /// Answers edges, where the configuration has a listener for them.
    pub edge: bool,
}

impl Roles {
    /// Everything.
    pub const ALL: Self = Self { api: true, deploy: true, projections: true, edge: true };
}

impl FromStr for Roles {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut roles = Self { api: false, deploy: false, projections: false, edge: false };
        for name in text.split(',').map(str::trim) {
            match name {
                "all" => roles = Self::ALL,
                "api" => roles.api = true,
                "deploy" => roles.deploy = true,
                "projections" => roles.projections = true,
                "edge" => roles.edge = true,
                other => {
                    return Err(format!("{other:?} is not a role: api, deploy, projections, edge or all"));
                }
            }
        }
        Ok(roles)
    }
}

/// What decisions take from the configuration.
pub fn limits(config: &Config) -> Limits {
    Limits {
        domains_per_tenant: i64::from(config.limits.domains_per_tenant),
        records_per_domain: i64::from(config.limits.records_per_domain),
        ttl_floor_seconds: config.dns.minimum_ttl,
        hold: config.limits.hold,
    }
}

/// A running log: its writer, and what ends it.
pub struct Log {
    /// Connections to the control database.
    pub pool: PgPool,
    /// Writes the log.
    pub commit: CommitterHandle,
    /// The clock it decides by.
    pub clock: Arc<dyn Clock>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Log {
    /// Connects, checks the schema, and starts the writer.
    ///
    /// # Errors
    /// When the database cannot be reached within a minute, or its schema is not this program's.
    pub async fn open(config: &Config) -> Result<Self> {
        let url = config.database.read_url()?;
        let pool = connect(&url, config.database.max_connections).await?;
        pool::check_level(&pool).await?;
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        // Its own token: what has been taken is written even while the rest stops.
        let stop = CancellationToken::new();
        let (commit, task) = Committer::start(&url, pool.clone(), limits(config), clock.clone(), &stop)?;
        Ok(Self { pool, commit, clock, stop, task })
    }

    /// Ends the writer after it has answered what it has taken.
    pub async fn close(self) {
        self.stop.cancel();
        drop(self.commit);
        if tokio::time::timeout(COMMITTER_GRACE, self.task).await.is_err() {
            tracing::warn!("the writer of the log did not end in time; what it had not answered is unknown");
        }
        self.pool.close().await;
    }
}

/// A database that is just being restarted is waited for.
async fn connect(url: &Secret, most: u32) -> Result<PgPool> {
    let deadline = tokio::time::Instant::now() + DATABASE_WAIT;
    loop {
        match pool::connect(url, most).await {
            Ok(pool) => return Ok(pool),
            Err(error @ pool::StoreError::Url(_)) => return Err(error.into()),
            Err(error) if tokio::time::Instant::now() >= deadline => return Err(error.into()),
            Err(error) => {
                tracing::warn!(%error, "waiting for the control database");
                tokio::time::sleep(DATABASE_PAUSE).await;
            }
        }
    }
}

/// Runs until SIGTERM or SIGINT.
///
/// # Errors
/// When it cannot start, or a part of it ends by itself.
pub async fn run(config: Config, roles: Roles) -> Result<()> {
    let mut stopped = Signals::listen()?;
    let metrics = recorder()?;
    let log = Log::open(&config).await?;
    let stop = CancellationToken::new();
    let draining = CancellationToken::new();
    let grace = config.server.shutdown_grace;
    let (api, private) = (config.server.listen, config.server.metrics_listen);
    let digests = DigestKeys::load(&log.pool, &config).await.context("keys of tokens cannot be read")?;
    let app = App::new(Parts {
        config,
        digests,
        pool: log.pool.clone(),
        log: LogReader::new(log.pool.clone()),
        commit: log.commit.clone(),
        hub: Hub::default(),
        progress: Progress::default(),
        acked: Wake::default(),
        published: Progress::default(),
        replicas: Replicas::default(),
        passwords: Passwords::default(),
        signer: PlatformSigner::default(),
        clock: log.clock.clone(),
        stop: stop.clone(),
    });
    warn_of_other_identity(&app).await;
    let mut tasks = JoinSet::new();
    tasks.spawn(follow(app.clone()));
    tasks.spawn(listen(private, private_routes(metrics), stop.clone()));
    if roles.api {
        tasks.spawn(listen(api, http::router::router(app.clone(), draining.clone())?, stop.clone()));
    }
    if let (true, Some(address)) = (roles.edge, app.config.edge_control.listen) {
        let bound = edge::bind(app.clone(), address).await.context("edge control cannot start")?;
        tracing::info!(address = %bound.address, "listening for edges");
        tasks.spawn(async move { edge::run(bound).await.context("edge control ended") });
    }
    spawn_roles(&app, roles, &mut tasks);
    drop(app);
    let ended = tokio::select! {
        () = stopped.wait() => Ok(()),
        Some(ended) = tasks.join_next() => {
            let why = ended.context("a part of the process was aborted").and_then(|result| result);
            why.and_then(|()| bail!("a part of the process ended by itself"))
        }
    };
    tracing::info!("stopping");
    draining.cancel();
    tokio::time::sleep(DRAIN_NOTICE).await;
    stop.cancel();
    let all = async { while tasks.join_next().await.is_some() {} };
    if tokio::time::timeout(grace, all).await.is_err() {
        tracing::warn!(seconds = grace.as_secs(), "requests were cut off at the end of the grace");
        tasks.shutdown().await;
    }
    log.close().await;
    ended
}

/// The workers of this process's roles.
fn spawn_roles(app: &App, roles: Roles, tasks: &mut JoinSet<Result<()>>) {
    let mut spawn = |part: BoxFuture<'static, ()>| {
        tasks.spawn(async move {
            part.await;
            Ok(())
        });
    };
    if roles.api {
        spawn(hub::run(app.clone()).boxed());
        spawn(replicas::run(app.clone()).boxed());
    }
    if roles.projections {
        spawn(operation::run(app.clone()).boxed());
    }
    if roles.deploy {
        spawn(deploy::run(app.clone()).boxed());
        // It reaches the clusters, as deployment does.
        spawn(operation::runner::run(app.clone()).boxed());
        spawn(import::follow::run(app.clone()).boxed());
        spawn(placement::run(app.clone()).boxed());
        spawn(webhook::run(app.clone()).boxed());
        spawn(verify::run(app.clone()).boxed());
    }
}

async fn follow(app: App) -> Result<()> {
    app.commit.head().clone().follow(app.pool.clone(), app.stop.clone()).await;
    Ok(())
}

/// Listens until `stop`, then lets requests that have begun end.
async fn listen(address: SocketAddr, router: Router, stop: CancellationToken) -> Result<()> {
    let listener = TcpListener::bind(address).await;
    let listener = listener.with_context(|| format!("cannot listen on {address}; is it in use?"))?;
    tracing::info!(%address, "listening");
    serve(listener, router, stop).await
}

/// As `listen`, on a socket that is there already.
///
/// # Errors
/// Never: what cannot be accepted is tried again.
pub async fn serve(listener: TcpListener, router: Router, stop: CancellationToken) -> Result<()> {
    accept::serve(listener, router, stop, accept::HEAD_MAX).await;
    Ok(())
}

/// What the configuration says of `[dns]` counts only once `headwater init` has written it into the log.
async fn warn_of_other_identity(app: &App) {
    let Ok(platform) = crate::query::domains::platform(&app.pool).await else { return };
    match (platform.identity, crate::cli::init::identity(&app.config)) {
        (None, _) => tracing::warn!("the platform is not initialized: run `headwater init`"),
        (Some(logged), Ok(configured)) if logged != configured => {
            tracing::warn!(
                "[dns] of the configuration differs from what is in force: run `headwater init` to apply it"
            );
        }
        (_, Err(error)) => tracing::warn!(%error, "[dns] of the configuration cannot be used"),
        _ => {}
    }
}

/// The one recorder of metrics of this process.
fn recorder() -> Result<PrometheusHandle> {
    let handle = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &SECONDS_BUCKETS)
        .and_then(|builder| {
            builder.set_buckets_for_metric(Matcher::Suffix("_commands".to_owned()), &COUNT_BUCKETS)
        })
        .and_then(PrometheusBuilder::install_recorder)
        .context("metrics cannot be recorded")?;
    metrics::describe_counter!("cdn_http_requests_total", "Requests answered, by route");
    metrics::describe_histogram!("cdn_http_request_duration_seconds", "Time until an answer began");
    metrics::describe_counter!("cdn_http_panics_total", "Requests that ended in a panic");
    metrics::describe_histogram!("cdn_log_batch_commands", "Commands that were committed together");
    metrics::describe_histogram!("cdn_log_append_seconds", "Time to decide and commit one batch");
    metrics::describe_histogram!(
        "cdn_deploy_propagation_seconds",
        "Time from a commit until the listeners of a target answered with it, by target"
    );
    metrics::describe_counter!(
        "cdn_edge_registrations_total",
        "Identities given to edges, repeated answers included"
    );
    metrics::describe_counter!("cdn_edge_heartbeats_total", "Heartbeats taken in");
    metrics::describe_counter!("cdn_edge_refusals_total", "Revisions that edges refused");
    metrics::describe_counter!("cdn_edge_damaged_total", "Files that edges found damaged on their disks");
    metrics::describe_counter!("cdn_edge_clones_total", "Alarms that an identity is used twice");
    metrics::describe_counter!(
        "cdn_edge_handshakes_failed_total",
        "TLS handshakes of edge control that failed"
    );
    metrics::describe_counter!(
        "cdn_edge_connections_refused_total",
        "Connections of edge control beyond its bound"
    );
    metrics::describe_counter!("cdn_webhook_attempts_total", "Attempts to send an event, by what came of it");
    metrics::describe_histogram!("cdn_webhook_attempt_seconds", "Time that a receiver took");
    metrics::describe_counter!(
        "cdn_verification_looks_total",
        "Looks at the delegation and the ownership of domains, by what came of them"
    );
    metrics::describe_gauge!("cdn_webhooks_failing", "Webhooks whose last attempt failed");
    metrics::describe_gauge!(
        "cdn_webhooks_scan_lag_events",
        "How many events have not been looked at for webhooks yet"
    );
    metrics::describe_gauge!("cdn_projection_position", "The last position that a projection has taken in");
    metrics::describe_gauge!("cdn_projection_lag_events", "How many events a projection is behind");
    metrics::describe_gauge!("cdn_build_info", "The version of this program");
    metrics::gauge!("cdn_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
    Ok(handle)
}

fn private_routes(metrics: PrometheusHandle) -> Router {
    let upkeep = metrics.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(UPKEEP_INTERVAL).await;
            upkeep.run_upkeep();
        }
    });
    let text = move || {
        let text = metrics.render();
        async move { ([(axum::http::header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text) }
    };
    Router::new().route("/metrics", axum::routing::get(text))
}

/// SIGTERM and SIGINT.
struct Signals {
    term: tokio::signal::unix::Signal,
    int: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen() -> Result<Self> {
        let listen = |kind| signal(kind).context("signals cannot be received");
        Ok(Self { term: listen(SignalKind::terminate())?, int: listen(SignalKind::interrupt())? })
    }

    async fn wait(&mut self) {
        tokio::select! {
            _ = self.term.recv() => {}
            _ = self.int.recv() => {}
        }
    }
}
