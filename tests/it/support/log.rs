//! A migrated control database with committers on it, and the commands that the tests of the log submit.

use std::sync::Arc;
use std::time::Duration;

use headwater::clock::SystemClock;
use headwater::command::{Aside, Command, Idempotency, Meta, Outcome, SubmitError};
use headwater::secret::Secret;
use headwater::store::read::LogReader;
use headwater::store::{Committer, CommitterHandle, pool};
use headwater_events::actor::{Actor, ActorKind, Caller, Role};
use headwater_events::admin::AdminCommand;
use headwater_events::dns::{DomainName, OwnerName, RrSet, RrSetInput, RrType};
use headwater_events::domain::{CreateDomain, DomainCommand, Limits};
use headwater_events::envelope::Recorded;
use headwater_events::event::ClusterCreated;
use headwater_events::ids::{ClusterId, DomainId, Position, TenantId, TokenId, UserId};
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection, Executor};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::TestDb;

/// Connections of one test's pool.
const POOL_MAX_CONNECTIONS: u32 = 12;

/// How long a test waits for one of them: the machine may be busy with other tests.
pub const POOL_PATIENCE: Duration = Duration::from_secs(60);

/// Bounds that no test meets by accident.
pub const LIMITS: Limits = Limits {
    domains_per_tenant: 100_000,
    records_per_domain: 1_000_000,
    ttl_floor_seconds: 30,
    hold: Duration::from_secs(3_600),
};

/// Full sizes instead of those of every day.
pub fn torture() -> bool {
    std::env::var_os("HEADWATER_TORTURE").is_some()
}

/// One of two sizes.
pub fn size(every_day: usize, full: usize) -> usize {
    if torture() { full } else { every_day }
}

/// A log with one committer, more on demand: each is what a replica would be.
pub struct Log {
    pub url: Secret,
    pub pool: PgPool,
    pub commit: CommitterHandle,
    pub reader: LogReader,
    pub tenant: TenantId,
    pub stop: CancellationToken,
}

impl Log {
    /// A fresh database with an initialized platform.
    pub async fn new() -> Self {
        let database = TestDb::new().await;
        Self::at(database.url().clone()).await
    }

    /// The same, with the text of the append procedure changed: a planted fault.
    pub async fn with_fault(change: impl Fn(&str) -> String) -> Self {
        let log = Self::new().await;
        log.plant(change).await;
        log
    }

    /// Plants a fault in a log that is there.
    pub async fn plant(&self, change: impl Fn(&str) -> String) {
        let append = include_str!("../../../migrations/control/0145_rights.sql");
        let append = &append[append.find("create procedure append_batch(").unwrap()..];
        let write = include_str!("../../../migrations/control/0170_search.sql");
        let write = &write[write.find("create or replace procedure desired_write(").unwrap()..];
        let text = format!("{append}{write}");
        let changed = change(&text);
        assert_ne!(text, changed, "the fault was not planted: the migration's text has moved on");
        let procedures = changed.replace("create procedure", "create or replace procedure");
        self.pool.execute(AssertSqlSafe(procedures)).await.unwrap();
    }

    /// On a database that another process has initialized.
    pub async fn join(url: Secret) -> Self {
        let mut log = Self::open(url).await;
        let tenant = sqlx::query_scalar("select tenant_id from desired.platform").fetch_one(&log.pool).await;
        log.tenant = TenantId::from_uuid(tenant.unwrap());
        log
    }

    /// On a database that is there; migrates and initializes it.
    pub async fn at(url: Secret) -> Self {
        let log = Self::open(url).await;
        let tenant = log.tenant;
        log.admin(AdminCommand::InitializePlatform { tenant }).await;
        log.admin(create_tenant(tenant, "platform")).await;
        log
    }

    /// On a database that is there; migrates it and leaves the log as it is.
    pub async fn open(url: Secret) -> Self {
        // Patient: the machine may be busy with other tests.
        let options =
            PgPoolOptions::new().max_connections(POOL_MAX_CONNECTIONS).acquire_timeout(POOL_PATIENCE);
        let pool = options.connect_with(pool::options(&url).unwrap()).await.unwrap();
        pool::migrate(&pool).await.unwrap();
        let stop = CancellationToken::new();
        let commit = committer(&url, &pool, &stop);
        let tenant = TenantId::from_uuid(Uuid::now_v7());
        let reader = LogReader::new(pool.clone());
        Self { url, pool, commit, reader, tenant, stop }
    }

    /// Another replica on the same database.
    pub fn replica(&self) -> CommitterHandle {
        committer(&self.url, &self.pool, &self.stop)
    }

    /// Submits as the control plane itself.
    pub async fn submit(&self, command: Command) -> Result<Outcome, SubmitError> {
        self.commit.submit(Caller::system(), command, Meta::internal()).await
    }

    pub async fn admin(&self, command: AdminCommand) -> Outcome {
        self.submit(Command::admin(command)).await.unwrap()
    }

    /// An active domain of the log's tenant.
    pub async fn domain(&self, name: &str) -> DomainId {
        let create = create_domain(name, self.tenant);
        let id = create.id;
        self.submit(Command::CreateDomain(create)).await.unwrap();
        id
    }

    /// An enabled DNS cluster that nobody deploys to.
    pub async fn cluster(&self, name: &str) -> ClusterId {
        let id = ClusterId::from_uuid(Uuid::now_v7());
        let cluster = ClusterCreated {
            name: name.to_owned(),
            database_url_file: "/nowhere".into(),
            dns: "127.0.0.1:53".into(),
            front: None,
            nameservers: Vec::new(),
            enabled: true,
        };
        self.admin(AdminCommand::CreateCluster { id, cluster }).await;
        id
    }

    /// The whole log, page by page, each page dense.
    pub async fn all(&self) -> Vec<Recorded> {
        let mut events: Vec<Recorded> = Vec::new();
        loop {
            let after = events.last().map_or(Position::ZERO, |event| event.position);
            let page = self.reader.page(after, 1_000).await.unwrap();
            if page.is_empty() {
                return events;
            }
            events.extend(page);
        }
    }

    /// The log verifies: chains, density, ends.
    pub async fn assert_sound(&self) {
        let found = headwater::store::verify::verify(&self.pool, &mut |_, _| {}).await.unwrap();
        assert_eq!(found.faults, [], "the log is not as it was written");
    }

    /// A connection with the rights of the owner, for what a test does behind the program's back.
    pub async fn connection(&self) -> PgConnection {
        PgConnection::connect(self.url.expose()).await.unwrap()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

fn committer(url: &Secret, pool: &PgPool, stop: &CancellationToken) -> CommitterHandle {
    Committer::start(url, pool.clone(), LIMITS, Arc::new(SystemClock), stop).unwrap().0
}

pub fn create_tenant(id: TenantId, name: &str) -> AdminCommand {
    AdminCommand::CreateTenant { id, name: name.into(), labels: [].into(), external_id: None }
}

pub fn create_domain(name: &str, tenant: TenantId) -> CreateDomain {
    CreateDomain {
        id: DomainId::from_uuid(Uuid::now_v7()),
        name: domain_name(name),
        tenant,
        force_active: true,
        labels: [].into(),
        external_id: None,
        rrsets: Vec::new(),
        serial_floor: None,
    }
}

pub fn domain_name(name: &str) -> DomainName {
    DomainName::parse(name).unwrap()
}

pub fn rrset(zone: &str, owner: &str, rrtype: &str, records: &[&str]) -> RrSet {
    let zone = domain_name(zone);
    let records = records.iter().map(|&record| record.to_owned()).collect();
    let input = RrSetInput { ttl: 300, records, comment: None };
    RrSet::new(OwnerName::parse(owner, &zone).unwrap(), RrType::parse(rrtype).unwrap(), &input, &zone)
        .unwrap()
}

/// `PUT` of an A record.
pub fn put(zone: &str, owner: &str, address: &str) -> Command {
    on(zone, DomainCommand::PutRrset(rrset(zone, owner, "A", &[address])))
}

pub fn delete(zone: &str, owner: &str, rrtype: &str) -> Command {
    let owner = OwnerName::parse(owner, &domain_name(zone)).unwrap();
    on(zone, DomainCommand::DeleteRrset { owner, rrtype: RrType::parse(rrtype).unwrap() })
}

pub fn on(zone: &str, command: DomainCommand) -> Command {
    Command::Domain { name: domain_name(zone), command }
}

pub fn keyed(key: Uuid, request: u8) -> Meta {
    let idempotency = Some(Idempotency { key, request: [request; 32] });
    Meta { idempotency, ..Meta::internal() }
}

pub fn member(user: UserId, tenant: TenantId) -> Caller {
    let actor = Actor { kind: ActorKind::User, id: user.as_uuid(), token: None, on_behalf_of: None };
    Caller { tenants: [(tenant, Role::Owner)].into(), ..Caller::new(actor, false) }
}

/// A user with a mail address, and a token of it.
pub fn create_user(id: UserId, email: &str) -> Command {
    let aside = Aside::Person { user: id, email: email.into() };
    Command::Admin { command: AdminCommand::CreateUser { id, admin: false }, aside }
}

pub fn create_token(user: UserId, token: TokenId) -> Command {
    let aside =
        Aside::TokenSecret { token, user, hash: *blake3::hash(token.as_uuid().as_bytes()).as_bytes() };
    let command = AdminCommand::CreateToken {
        user,
        token,
        name: "ci".into(),
        expires_at: None,
        scopes: None,
        limits: Default::default(),
        managing: Default::default(),
    };
    Command::Admin { command, aside }
}

/// Waits until somebody appends and finds the gate closed.
pub async fn at_the_gate(log: &Log) {
    let waiting = || async {
        let count = "select count(*) from pg_locks where locktype = 'advisory' and objid = 7000 and not granted \
                     and database = (select oid from pg_database where datname = current_database())";
        sqlx::query_scalar::<_, i64>(count).fetch_one(&log.pool).await.unwrap()
    };
    let _count = super::eventually("somebody waits at the gate", waiting, |count| *count > 0).await;
}
