//! One process of the control plane as far as history goes: the log, its tailer, its projections, and their routes.
//! Callers are put in front of the routes by a layer of the test's own, by the text of their token.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::Response;
use axum::serve::ListenerExt;
use headwater::app::{App, Parts};
use headwater::clock::SystemClock;
use headwater::command::{Aside, Command, Meta, Outcome};
use headwater::config::Config;
use headwater::history::hub::{self, Hub, RING_MAX_BYTES, RING_MAX_FRAMES};
use headwater::http::auth::Authenticated;
use headwater::http::{audit, events, operations, stall, stream};
use headwater::secret::Secret;
use headwater::store::read::LogReader;
use headwater::store::{Committer, pool};
use headwater_events::actor::{Actor, ActorKind, Caller, Role};
use headwater_events::admin::{AdminCommand, Observation, Outcome as Seen};
use headwater_events::dns::{DomainName, OwnerName, RrSet, RrSetInput, RrType};
use headwater_events::domain::{CreateDomain, DomainCommand, Limits};
use headwater_events::envelope::Client;
use headwater_events::event::{ClusterCreated, DeploymentFact, Stages};
use headwater_events::ids::{ClusterId, DomainId, Position, Revision, TenantId, TokenId, UserId};
use headwater_events::time::Timestamp;
use sqlx::postgres::{PgPool, PgPoolOptions};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::TestDb;

/// Connections of one process's pool.
const POOL_MAX_CONNECTIONS: u32 = 12;

/// How long a peer of an impatient process may take nothing.
const SHORT_STALL: Duration = Duration::from_secs(2);

type Callers = Arc<Mutex<HashMap<String, Authenticated>>>;

/// One process.
pub struct World {
    pub url: Secret,
    pub app: App,
    pub base: String,
    pub tenant: TenantId,
    pub stop: CancellationToken,
    callers: Callers,
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A user with a token.
#[derive(Clone)]
pub struct Person {
    pub user: UserId,
    pub token: TokenId,
    pub bearer: String,
    pub caller: Caller,
}

/// What runs in a process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Runs {
    /// The routes and their tailer alone.
    Streams,
    /// The same with a ring of a few frames, so that readers go over between the ring and the log all the time.
    SmallRing,
    /// The same, and a peer that takes nothing is let go soon. Elsewhere it has the time that it has in earnest: on a
    /// busy machine a test, too, may read nothing for seconds.
    Impatient,
    /// The routes and their tailer, and no notification of what others append comes through.
    Deaf,
    /// Projections too.
    All,
}

impl World {
    /// A fresh database, with everything running.
    pub async fn new() -> Self {
        Self::with(Runs::All, |_| {}).await
    }

    /// A fresh database and a process on it.
    pub async fn with(runs: Runs, change: impl FnOnce(&mut Config)) -> Self {
        let database = TestDb::new().await;
        let world = Self::join(database.url().clone(), runs, change).await;
        let tenant = world.tenant;
        world.admin(AdminCommand::InitializePlatform { tenant }).await;
        world.tenant(tenant, "platform").await;
        world
    }

    /// Another process on the same database.
    pub async fn join(url: Secret, runs: Runs, change: impl FnOnce(&mut Config)) -> Self {
        let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let pool = connect(&url).await;
        pool::migrate(&pool).await.unwrap();
        let stop = CancellationToken::new();
        let ring = if matches!(runs, Runs::SmallRing | Runs::Impatient) { 40 } else { RING_MAX_FRAMES };
        let stall = if runs == Runs::Impatient { SHORT_STALL } else { stall::WRITE_STALL };
        let app = app(&url, pool, &stop, Hub::with_ring(ring, RING_MAX_BYTES), change);
        let callers = Callers::default();
        let system = Authenticated { caller: Caller::system(), expires_at: None, session: None };
        callers.lock().unwrap().insert("system".into(), system);
        if runs != Runs::Deaf {
            tokio::spawn(app.commit.head().clone().follow(app.pool.clone(), stop.clone()));
        }
        tokio::spawn(hub::run(app.clone()));
        if runs == Runs::All {
            tokio::spawn(headwater::operation::run(app.clone()));
        }
        let base = serve(app.clone(), callers.clone(), stall).await;
        let known: Option<Uuid> =
            sqlx::query_scalar("select tenant_id from desired.platform").fetch_one(&app.pool).await.unwrap();
        let tenant = TenantId::from_uuid(known.unwrap_or_else(Uuid::now_v7));
        Self { url, app, base, tenant, stop, callers }
    }

    pub async fn submit(&self, caller: Caller, command: Command) -> Outcome {
        self.app.commit.submit(caller, command, Meta::internal()).await.unwrap()
    }

    pub async fn admin(&self, command: AdminCommand) -> Outcome {
        self.submit(Caller::system(), Command::admin(command)).await
    }

    pub async fn tenant(&self, id: TenantId, name: &str) {
        let create =
            AdminCommand::CreateTenant { id, name: name.into(), labels: [].into(), external_id: None };
        self.admin(create).await;
    }

    pub async fn new_tenant(&self, name: &str) -> TenantId {
        let id = TenantId::from_uuid(Uuid::now_v7());
        self.tenant(id, name).await;
        id
    }

    /// A user that is a member of tenants, with a token.
    pub async fn person(&self, email: &str, tenants: &[TenantId]) -> Person {
        let (user, token) = (UserId::from_uuid(Uuid::now_v7()), TokenId::from_uuid(Uuid::now_v7()));
        let aside = Aside::Person { user, email: email.into() };
        let command = AdminCommand::CreateUser { id: user, admin: false };
        self.submit(Caller::system(), Command::Admin { command, aside }).await;
        for tenant in tenants {
            self.admin(AdminCommand::AddMember { tenant: *tenant, user, role: None }).await;
        }
        self.token(user, token, tenants, None).await
    }

    /// One more token of a user.
    pub async fn token(
        &self,
        user: UserId,
        token: TokenId,
        tenants: &[TenantId],
        expires_at: Option<Timestamp>,
    ) -> Person {
        let hash = *blake3::hash(token.as_uuid().as_bytes()).as_bytes();
        let aside = Aside::TokenSecret { token, user, hash };
        let command = AdminCommand::CreateToken {
            user,
            token,
            name: "t".into(),
            expires_at,
            scopes: None,
            limits: Default::default(),
            managing: Default::default(),
        };
        self.submit(Caller::system(), Command::Admin { command, aside }).await;
        let actor =
            Actor { kind: ActorKind::User, id: user.as_uuid(), token: Some(token), on_behalf_of: None };
        let tenants = tenants.iter().map(|tenant| (*tenant, Role::Owner)).collect();
        let caller = Caller { tenants, ..Caller::new(actor, false) };
        let bearer = token.to_string();
        let who = Authenticated { caller: caller.clone(), expires_at, session: None };
        self.callers.lock().unwrap().insert(bearer.clone(), who);
        Person { user, token, bearer, caller }
    }

    /// An active domain.
    pub async fn domain(&self, name: &str, tenant: TenantId) -> (DomainId, Outcome) {
        let id = DomainId::from_uuid(Uuid::now_v7());
        let name = DomainName::parse(name).unwrap();
        let create = CreateDomain {
            id,
            name,
            tenant,
            force_active: true,
            labels: [].into(),
            external_id: None,
            rrsets: Vec::new(),
            serial_floor: None,
        };
        (id, self.submit(Caller::system(), Command::CreateDomain(create)).await)
    }

    /// `PUT` of an A record with the caller's address and agent.
    pub async fn put(&self, caller: &Caller, zone: &str, owner: &str, address: &str) -> Outcome {
        let client = Some(Client { ip: "192.0.2.77".into(), agent: "test".into() });
        let meta = Meta { client, note: Some("why not".into()), ..Meta::internal() };
        self.app.commit.submit(caller.clone(), put(zone, owner, address), meta).await.unwrap()
    }

    /// As many events in a domain, some at once.
    pub async fn flood(&self, zone: &str, count: usize) {
        let system = Caller::system();
        let numbers: Vec<usize> = (0..count).collect();
        for some in numbers.chunks(128) {
            let puts = some.iter().map(|n| {
                let address = format!("192.0.{}.{}", n / 250 % 250, n % 250);
                let (system, address, owner) = (system.clone(), address, format!("n{}", n % 50));
                async move { self.submit(system, put(zone, &owner, &address)).await }
            });
            futures_util::future::join_all(puts).await;
        }
    }

    /// An enabled DNS cluster that nobody deploys to.
    pub async fn cluster(&self, name: &str) -> ClusterId {
        let id = ClusterId::from_uuid(Uuid::now_v7());
        let cluster = ClusterCreated {
            name: name.into(),
            database_url_file: "/nowhere".into(),
            dns: "127.0.0.1:53".into(),
            front: None,
            nameservers: Vec::new(),
            enabled: true,
        };
        self.admin(AdminCommand::CreateCluster { id, cluster }).await;
        id
    }

    /// Records that a cluster was seen to do something with a domain.
    pub async fn record(&self, cluster: ClusterId, domain: (DomainId, &str), outcome: Seen) {
        let (id, name) = domain;
        let name = DomainName::parse(name).unwrap();
        let seen = Observation { domain: id, name, tenant: self.tenant, outcome };
        self.admin(AdminCommand::RecordDeployments { cluster, observed: vec![seen] }).await;
    }

    pub async fn head(&self) -> Position {
        self.app.log.meta().await.unwrap().head
    }

    /// The envelopes of the whole log, client withheld, as the log itself shows them.
    pub async fn whole(&self) -> Vec<(Position, String)> {
        let mut all = Vec::new();
        let mut after = Position::ZERO;
        loop {
            let page = self.app.log.page(after, 1_000).await.unwrap();
            let Some(last) = page.last() else { return all };
            after = last.position;
            all.extend(page.iter().map(|event| (event.position, event.to_json(None).unwrap())));
        }
    }

    pub async fn get(&self, bearer: &str, path: &str) -> reqwest::Response {
        self.get_with(bearer, path, &[]).await
    }

    pub async fn get_with(&self, bearer: &str, path: &str, headers: &[(&str, &str)]) -> reqwest::Response {
        let mut request = client().get(format!("{}{path}", self.base)).bearer_auth(bearer);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap()
    }

    pub async fn json(&self, bearer: &str, path: &str) -> serde_json::Value {
        let answer = self.get(bearer, path).await;
        let status = answer.status();
        let body = answer.text().await.unwrap();
        assert_eq!(status, 200, "{path}: {body}");
        serde_json::from_str(&body).unwrap()
    }
}

pub fn client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

pub async fn connect(url: &Secret) -> PgPool {
    let options = PgPoolOptions::new().max_connections(POOL_MAX_CONNECTIONS);
    options.acquire_timeout(Duration::from_secs(60)).connect_with(pool::options(url).unwrap()).await.unwrap()
}

/// The shared parts of a process on a database.
pub fn app(
    url: &Secret,
    pool: PgPool,
    stop: &CancellationToken,
    hub: Hub,
    change: impl FnOnce(&mut Config),
) -> App {
    let limits = Limits {
        domains_per_tenant: 100_000,
        records_per_domain: 1_000_000,
        ttl_floor_seconds: 30,
        hold: Duration::from_secs(3_600),
    };
    let clock = Arc::new(SystemClock);
    let (commit, _task) = Committer::start(url, pool.clone(), limits, clock.clone(), stop).unwrap();
    let mut config = Config::parse("", None, []).unwrap();
    change(&mut config);
    App::new(Parts {
        config,
        log: LogReader::new(pool.clone()),
        pool,
        commit,
        hub,
        progress: Default::default(),
        acked: Default::default(),
        published: Default::default(),
        replicas: Default::default(),
        passwords: Default::default(),
        digests: Default::default(),
        signer: headwater::edge::signing::PlatformSigner::default(),
        clock,
        stop: stop.clone(),
    })
}

async fn serve(app: App, callers: Callers, stall: Duration) -> String {
    let api = events::routes().merge(audit::routes()).merge(operations::routes()).merge(stream::routes());
    let find = from_fn(move |mut request: Request, next: Next| {
        let callers = callers.clone();
        async move {
            let shown = request.headers().get("authorization").and_then(|value| value.to_str().ok());
            let bearer = shown.and_then(|shown| shown.strip_prefix("Bearer ")).unwrap_or_default().to_owned();
            if let Some(caller) = callers.lock().unwrap().get(&bearer).cloned() {
                request.extensions_mut().insert(caller);
            }
            let answer: Response = next.run(request).await;
            answer
        }
    });
    let stop = app.stop.clone();
    let router: Router = api.split_for_parts().0.layer(find).with_state(app);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let listener = listener.tap_io(move |stream| stall::watch(stream, stall));
    tokio::spawn(async move {
        axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await.unwrap();
    });
    base
}

/// `PUT` of an A record.
pub fn put(zone: &str, owner: &str, address: &str) -> Command {
    let name = DomainName::parse(zone).unwrap();
    let input = RrSetInput { ttl: 300, records: vec![address.to_owned()], comment: None };
    let owner = OwnerName::parse(owner, &name).unwrap();
    let rrset = RrSet::new(owner, RrType::parse("A").unwrap(), &input, &name).unwrap();
    Command::Domain { name, command: DomainCommand::PutRrset(rrset) }
}

/// `PUT` of an RRset of several kilobytes.
pub fn put_large(zone: &str, n: usize) -> Command {
    let name = DomainName::parse(zone).unwrap();
    let records = (0..200).map(|m| format!("192.{}.{}.{m}", n % 2, n % 250)).collect();
    let input = RrSetInput { ttl: 300, records, comment: None };
    let owner = OwnerName::parse("large", &name).unwrap();
    let rrset = RrSet::new(owner, RrType::parse("A").unwrap(), &input, &name).unwrap();
    Command::Domain { name, command: DomainCommand::PutRrset(rrset) }
}

/// A fact about a revision.
pub fn fact(revision: Revision, error: Option<&str>) -> DeploymentFact {
    let at = Timestamp::from(chrono::Utc::now());
    let reached = error.is_none().then_some(at);
    DeploymentFact {
        revision,
        active: if error.is_none() { revision } else { Revision::ZERO },
        checksum: None,
        generation: Some(0),
        serial: None,
        attempts: 1,
        stages: Stages { rendered: reached, activated: reached, verified: reached },
        error: error.map(str::to_owned),
        removed: false,
    }
}
