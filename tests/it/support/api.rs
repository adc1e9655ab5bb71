//! The API of one test: the real router over a real database, on a loopback port of its own.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use headwater::app::{App, Parts};
use headwater::clock::{Clock, SystemClock};
use headwater::command::{Aside, Command, Meta};
use headwater::config::Config;
use headwater::http::router::router;
use headwater::people::digest::DigestKeys;
use headwater::query::domains;
use headwater::secret::Secret;
use headwater::store::read::LogReader;
use headwater::store::{Committer, pool};
use headwater::{cli, serve, token};
use headwater_events::actor::Caller;
use headwater_events::admin::AdminCommand;
use headwater_events::event::DnsIdentity;
use headwater_events::ids::{Position, TenantId, TokenId, UserId};
use headwater_events::time::Timestamp;
use reqwest::{Client, Method, Response, StatusCode};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::TestDb;

/// A running API with an administrator.
pub struct TestApi {
    pub app: App,
    pub address: SocketAddr,
    pub admin: Secret,
    pub database: TestDb,
    pub draining: CancellationToken,
    pub clock: Arc<TurnedClock>,
    client: Client,
}

/// The machine's clock, turned by so many milliseconds.
#[derive(Debug, Default)]
pub struct TurnedClock(AtomicI64);

impl TurnedClock {
    /// Turns it from now on.
    pub fn turn(&self, by: i64) {
        self.0.store(by, Ordering::SeqCst);
    }
}

impl Clock for TurnedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(SystemClock.now().as_millis() + self.0.load(Ordering::SeqCst))
    }
}

/// An answer, read whole.
#[derive(Debug)]
pub struct Answer {
    pub status: StatusCode,
    pub headers: reqwest::header::HeaderMap,
    pub text: String,
}

impl Answer {
    pub async fn of(response: Response) -> Self {
        let (status, headers) = (response.status(), response.headers().clone());
        Self { status, headers, text: response.text().await.unwrap() }
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {self:?}"))
    }

    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).unwrap_or_else(|| panic!("no {name}: {self:?}")).to_str().unwrap()
    }

    /// Fails with the whole answer when the status is another.
    #[track_caller]
    pub fn expect(self, status: u16) -> Self {
        assert_eq!(self.status.as_u16(), status, "{self:?}");
        self
    }

    /// The same for a problem of this code.
    #[track_caller]
    pub fn expect_problem(self, status: u16, code: &str) -> Self {
        assert_eq!((self.status.as_u16(), self.json()["code"].as_str()), (status, Some(code)), "{self:?}");
        assert_eq!(self.header("content-type"), "application/problem+json");
        assert_eq!(self.json()["request_id"].as_str(), Some(self.header("x-request-id")));
        self
    }
}

/// Another process on the database of a test.
pub struct Twin {
    pub app: App,
    pub address: SocketAddr,
}

impl Twin {
    /// A process on the database of another process's test.
    pub async fn on(url: &Secret, config: &str) -> Self {
        let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let (app, address, _) = process(url, config, &Arc::default()).await;
        Self { app, address }
    }
}

impl Drop for Twin {
    fn drop(&mut self) {
        self.app.stop.cancel();
    }
}

/// A process on a database, with these settings.
async fn process(
    url: &Secret,
    config: &str,
    turned: &Arc<TurnedClock>,
) -> (App, SocketAddr, CancellationToken) {
    let config = Config::parse(config, None, []).unwrap();
    let pool = pool::connect(url, 10).await.unwrap();
    pool::migrate(&pool).await.unwrap();
    let clock: Arc<dyn Clock> = turned.clone();
    let stop = CancellationToken::new();
    let limits = serve::limits(&config);
    let (commit, _task) = Committer::start(url, pool.clone(), limits, clock.clone(), &stop).unwrap();
    tokio::spawn(commit.head().clone().follow(pool.clone(), stop.clone()));
    let log = LogReader::new(pool.clone());
    let digests = DigestKeys::load(&pool, &config).await.unwrap();
    let app = App::new(Parts {
        config,
        digests,
        pool,
        log,
        commit,
        clock,
        hub: Default::default(),
        progress: Default::default(),
        acked: Default::default(),
        published: Default::default(),
        replicas: Default::default(),
        passwords: Default::default(),
        signer: headwater::edge::signing::PlatformSigner::default(),
        stop: stop.clone(),
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let draining = CancellationToken::new();
    let routes = router(app.clone(), draining.clone()).unwrap();
    tokio::spawn(serve::serve(listener, routes, stop));
    (app, address, draining)
}

impl TestApi {
    /// Starts one on a fresh database, with these limits in the configuration.
    pub async fn start(config: &str) -> Self {
        // Whichever test is first installs it.
        let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let database = TestDb::new().await;
        let turned = Arc::new(TurnedClock::default());
        let (app, address, draining) = process(database.url(), config, &turned).await;
        let client = Client::builder().no_proxy().build().unwrap();
        let admin = token::generate();
        let mut api = Self { app, address, admin, database, draining, clock: turned, client };
        api.initialize().await;
        api
    }

    /// A process on a database that is there already.
    pub async fn process_on(url: &Secret, config: &str) -> Twin {
        let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
        let (app, address, _) = process(url, config, &Arc::new(TurnedClock::default())).await;
        Twin { app, address }
    }

    /// Another process on the same database, by the same clock.
    pub async fn join(&self, config: &str) -> Twin {
        let (app, address, _) = process(self.database.url(), config, &self.clock).await;
        Twin { app, address }
    }

    async fn initialize(&mut self) {
        let tenant = TenantId::from_uuid(Uuid::now_v7());
        self.submit(AdminCommand::InitializePlatform { tenant }, Aside::Nothing).await;
        self.tenant_with(tenant, "platform").await;
        self.identify(|_| {}).await;
        self.admin = self.user("admin@example.test", true, &[]).await.1;
    }

    /// Sets the platform's DNS identity: that of the configuration, changed.
    pub async fn identify(&self, change: impl FnOnce(&mut DnsIdentity)) {
        let mut identity = cli::init::identity(&self.app.config).unwrap();
        change(&mut identity);
        self.submit(AdminCommand::SetDnsIdentity(identity), Aside::Nothing).await;
    }

    async fn submit(&self, command: AdminCommand, aside: Aside) {
        let command = Command::Admin { command, aside };
        self.app.commit.submit(Caller::system(), command, Meta::internal()).await.unwrap();
    }

    async fn tenant_with(&self, id: TenantId, name: &str) {
        let (name, labels) = (name.to_owned(), Default::default());
        self.submit(AdminCommand::CreateTenant { id, name, labels, external_id: None }, Aside::Nothing).await;
    }

    /// Makes a tenant.
    pub async fn tenant(&self, name: &str) -> TenantId {
        let id = TenantId::from_uuid(Uuid::now_v7());
        self.tenant_with(id, name).await;
        id
    }

    /// Makes a user with a token.
    pub async fn user(&self, email: &str, admin: bool, tenants: &[TenantId]) -> (UserId, Secret) {
        let user = UserId::from_uuid(Uuid::now_v7());
        let aside = Aside::Person { user, email: email.to_owned() };
        self.submit(AdminCommand::CreateUser { id: user, admin }, aside).await;
        for tenant in BTreeSet::from_iter(tenants) {
            self.submit(AdminCommand::AddMember { tenant: *tenant, user, role: None }, Aside::Nothing).await;
        }
        let (secret, token) = (token::generate(), TokenId::from_uuid(Uuid::now_v7()));
        let hash = *token::hash(secret.expose()).unwrap().bytes();
        let aside = Aside::TokenSecret { token, user, hash };
        let name = "test".to_owned();
        let create = AdminCommand::CreateToken {
            user,
            token,
            name,
            expires_at: None,
            scopes: None,
            limits: Default::default(),
            managing: Default::default(),
        };
        self.submit(create, aside).await;
        (user, secret)
    }

    /// One more token of a user, limited to these scopes.
    pub async fn limited(&self, user: UserId, scopes: Value) -> Secret {
        let (secret, token) = (token::generate(), TokenId::from_uuid(Uuid::now_v7()));
        let hash = *token::hash(secret.expose()).unwrap().bytes();
        let aside = Aside::TokenSecret { token, user, hash };
        let (name, scopes) = ("limited".to_owned(), serde_json::from_value(scopes).unwrap());
        let create = AdminCommand::CreateToken {
            user,
            token,
            name,
            expires_at: None,
            scopes: Some(scopes),
            limits: Default::default(),
            managing: Default::default(),
        };
        self.submit(create, aside).await;
        secret
    }

    /// A request that is not sent yet, without a token.
    pub fn request(&self, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.request_at(self.address, method, path)
    }

    /// The same to one process of several.
    pub fn request_at(&self, address: SocketAddr, method: Method, path: &str) -> reqwest::RequestBuilder {
        self.client.request(method, format!("http://{address}{path}"))
    }

    /// Sends a request with a token, a body and headers.
    pub async fn send(
        &self,
        token: &Secret,
        method: Method,
        path: &str,
        body: Option<&Value>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request = self.request(method, path).bearer_auth(token.expose());
        if let Some(body) = body {
            request = request.json(body);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        Answer::of(request.send().await.unwrap()).await
    }

    /// As the administrator.
    pub async fn call(&self, method: Method, path: &str, body: Value) -> Answer {
        let body = (!body.is_null()).then_some(body);
        self.send(&self.admin, method, path, body.as_ref(), &[]).await
    }

    /// A GET as the administrator.
    pub async fn get(&self, path: &str) -> Answer {
        self.call(Method::GET, path, Value::Null).await
    }

    /// The head of the log, asked of the database.
    pub async fn head(&self) -> Position {
        self.app.log.meta().await.unwrap().head
    }

    /// The platform's own tenant.
    pub async fn platform_tenant(&self) -> TenantId {
        domains::platform(&self.app.pool).await.unwrap().tenant.unwrap()
    }
}
