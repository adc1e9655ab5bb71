//! RRsets of all domains that a caller may see, by a value, a name, a type, a tool, in the order (domain, owner, type).
//!
//! What must hold: nothing is read of domains that the caller may not see but to pass it by; and a page costs what the
//! rarest thing that is asked for costs, or what the caller's own domains cost, whichever is less.

mod sql;

use headwater_events::actor::Visible;
use headwater_events::dns::OwnerKey;
use headwater_events::ids::{DomainId, TenantId};
use sqlx::postgres::{PgArguments, PgConnection, PgPool, PgRow};
use sqlx::query::Query;
use sqlx::{Postgres, Row, Transaction};
use uuid::Uuid;

use super::Shown;
use super::rrsets::{self, ShownRrset};

pub use sql::ALL as STATEMENTS;

/// So many RRsets are looked at wherever they are before the caller's domains are gone through one by one instead.
const ANYWHERE_MAX_RRSETS: i64 = 4_000;
/// How far is counted to find what is rarest.
const COUNTED_MAX_RRSETS: i64 = 50_000;
/// Domains of the first turn of that; each further turn has four times as many.
const TURN_MIN_DOMAINS: i64 = 64;
/// Domains of one turn.
const TURN_MAX_DOMAINS: i64 = 1_024;

/// What a value or a word of it is among the terms of an RRset.
const OF_VALUE: i64 = 0;
/// What the last label of an owner of several is.
const OF_LAST_LABEL: i64 = 1;
/// What the first label of an owner of several is.
const OF_FIRST_LABEL: i64 = 2;

/// Which owners are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WantedName {
    /// This one, in every domain.
    Exact(OwnerKey),
    /// Everything below this one, in every domain.
    Below(OwnerKey),
    /// What begins with these labels and has more, in every domain.
    Beginning(OwnerKey),
    /// An absolute name: what it is in each domain that could hold it.
    Absolute(Vec<(String, OwnerKey)>),
}

/// What is wanted; what is none does not matter.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Spellings of a value, or of a word of one.
    pub texts: Option<Vec<String>>,
    /// Types.
    pub types: Option<Vec<i32>>,
    /// Owners.
    pub name: Option<WantedName>,
    /// The tool that owns it.
    pub manager: Option<String>,
}

/// The place of an RRset among all: domain, owner key, type.
pub type Place = (Uuid, String, i32);

/// An RRset that was found.
#[derive(Debug, Clone)]
pub struct FoundRrset {
    /// Its domain.
    pub domain: DomainId,
    /// The domain's name.
    pub name: String,
    /// Who owns the domain.
    pub tenant: TenantId,
    /// The RRset.
    pub rrset: ShownRrset,
}

impl FoundRrset {
    /// Its place in the order.
    pub fn place(&self) -> Place {
        let (key, rrtype) = self.rrset.key();
        (self.domain.as_uuid(), key, rrtype)
    }
}

/// Along what RRsets are found.
#[derive(Debug, Clone)]
enum Along {
    Terms(Vec<String>, i64),
    Name,
    Type(i32),
    Manager,
    All,
}

impl Wanted {
    /// Everything along which what is wanted can be found.
    fn ways(&self) -> Vec<Along> {
        let mut ways = Vec::new();
        if let Some(texts) = &self.texts {
            ways.push(Along::Terms(texts.clone(), OF_VALUE));
        }
        let label =
            |label: Option<&str>, kind| Along::Terms(label.map(str::to_owned).into_iter().collect(), kind);
        match &self.name {
            Some(WantedName::Exact(_)) => ways.push(Along::Name),
            Some(WantedName::Below(key)) => ways.push(label(key.as_str().split(' ').next(), OF_LAST_LABEL)),
            Some(WantedName::Beginning(key)) => {
                ways.push(label(key.as_str().rsplit(' ').next(), OF_FIRST_LABEL));
            }
            Some(WantedName::Absolute(_)) | None => {}
        }
        if self.manager.is_some() {
            ways.push(Along::Manager);
        }
        if let Some([rrtype]) = self.types.as_deref() {
            ways.push(Along::Type(*rrtype));
        }
        ways
    }

    fn key(&self) -> Option<&str> {
        match &self.name {
            Some(WantedName::Exact(key)) => Some(key.as_str()),
            _ => None,
        }
    }

    fn begin(&self) -> Option<String> {
        match &self.name {
            Some(WantedName::Below(key)) => Some(key.subtree_prefix()),
            _ => None,
        }
    }

    fn end(&self) -> Option<String> {
        match &self.name {
            Some(WantedName::Beginning(key)) => Some(format!(" {}", key.as_str())),
            _ => None,
        }
    }
}

/// One search.
struct Search<'a> {
    wanted: &'a Wanted,
    shown: Shown,
    after: Place,
    most: i64,
}

type Bound<'q> = Query<'q, Postgres, PgArguments>;

impl Search<'_> {
    /// The arguments that every statement has.
    fn bind<'q>(&'q self, statement: &'static str) -> Bound<'q> {
        let (domain, key, rrtype) = &self.after;
        let query = sqlx::query(statement).bind(domain).bind(key.as_str()).bind(rrtype).bind(self.most);
        let query = query.bind(self.wanted.types.as_deref()).bind(self.wanted.key());
        let query = query.bind(self.wanted.begin()).bind(self.wanted.end());
        let query = query.bind(self.wanted.manager.as_deref()).bind(self.wanted.texts.as_deref());
        let shown = &self.shown;
        query.bind(shown.tenants.as_deref()).bind(shown.domains.as_deref()).bind(shown.names.as_deref())
    }

    /// Wherever it is.
    async fn anywhere(
        &self,
        connection: &mut PgConnection,
        along: &Along,
    ) -> Result<Vec<FoundRrset>, sqlx::Error> {
        let query = match along {
            Along::Terms(texts, kind) => self.bind(sql::BY_TERMS).bind(texts).bind(kind),
            Along::Name => self.bind(sql::BY_NAME),
            Along::Type(rrtype) => self.bind(sql::BY_TYPE).bind(rrtype),
            Along::Manager => self.bind(sql::BY_MANAGER),
            Along::All => self.bind(sql::ALL_OF_THEM),
        };
        found(query.fetch_all(connection).await?)
    }

    /// In these domains.
    async fn within(
        &self,
        connection: &mut PgConnection,
        along: &Along,
        domains: &[Uuid],
    ) -> Result<Vec<FoundRrset>, sqlx::Error> {
        let query = match along {
            Along::Terms(texts, kind) => self.bind(sql::BY_TERMS_IN).bind(texts).bind(kind).bind(domains),
            Along::Name => self.bind(sql::BY_NAME_IN).bind(domains),
            Along::Type(rrtype) => self.bind(sql::BY_TYPE_IN).bind(rrtype).bind(domains),
            Along::Manager => self.bind(sql::BY_MANAGER_IN).bind(domains),
            Along::All => self.bind(sql::ALL_IN).bind(domains),
        };
        found(query.fetch_all(connection).await?)
    }

    /// The next domains that may be seen.
    async fn seen(
        &self,
        connection: &mut PgConnection,
        from: Uuid,
        most: i64,
    ) -> Result<Vec<Uuid>, sqlx::Error> {
        let shown = &self.shown;
        // Planned for what it is asked: who sees one domain and who sees all need different ways.
        let query = sqlx::query_scalar(sql::SEEN).persistent(false).bind(from).bind(shown.tenants.as_deref());
        let query = query.bind(shown.domains.as_deref()).bind(shown.names.as_deref()).bind(most);
        query.fetch_all(connection).await
    }

    /// How many RRsets there are along something, if not more than are worth a look.
    async fn count(&self, connection: &mut PgConnection, along: &Along) -> Result<i64, sqlx::Error> {
        let most = COUNTED_MAX_RRSETS;
        let query = match along {
            Along::Terms(texts, kind) => sqlx::query_scalar(sql::COUNT_TERMS).bind(texts).bind(kind),
            Along::Name => sqlx::query_scalar(sql::COUNT_NAME).bind(self.wanted.key()),
            Along::Type(rrtype) => sqlx::query_scalar(sql::COUNT_TYPE).bind(rrtype),
            Along::Manager => sqlx::query_scalar(sql::COUNT_MANAGER).bind(self.wanted.manager.as_deref()),
            Along::All => return Ok(most),
        };
        query.bind(most).fetch_one(connection).await
    }

    /// The way with the fewest RRsets, and how many those are. Of several with very many the first counts: the narrowest
    /// as a rule.
    async fn best(&self, connection: &mut PgConnection) -> Result<(Along, i64), sqlx::Error> {
        let mut best = (Along::All, i64::MAX);
        for way in self.wanted.ways() {
            let count = self.count(connection, &way).await?;
            if count < best.1 {
                best = (way, count);
            }
        }
        Ok(best)
    }

    /// Turn by turn, until the page is full.
    async fn turns(
        &mut self,
        connection: &mut PgConnection,
        along: &Along,
        mut domains: Vec<Uuid>,
    ) -> Result<Vec<FoundRrset>, sqlx::Error> {
        let (most, mut turn) = (self.most, TURN_MIN_DOMAINS);
        let mut all = Vec::new();
        loop {
            all.extend(self.within(connection, along, &domains).await?);
            self.most = most - i64::try_from(all.len()).unwrap_or(most);
            let is_last = i64::try_from(domains.len()).is_ok_and(|count| count < turn);
            let Some(last) = domains.last().filter(|_| !is_last && self.most > 0) else { return Ok(all) };
            let next = Uuid::from_u128(last.as_u128().saturating_add(1));
            turn = (turn * 4).min(TURN_MAX_DOMAINS);
            domains = self.seen(connection, next, turn).await?;
        }
    }

    async fn run(&mut self, connection: &mut PgConnection) -> Result<Vec<FoundRrset>, sqlx::Error> {
        if let Some(WantedName::Absolute(places)) = &self.wanted.name {
            let (names, keys): (Vec<&str>, Vec<&str>) =
                places.iter().map(|(name, key)| (name.as_str(), key.as_str())).unzip();
            let query = self.bind(sql::BY_ABSOLUTE).bind(names).bind(keys);
            return found(query.fetch_all(connection).await?);
        }
        let is_limited = self.shown.tenants.is_some() || self.shown.names.is_some();
        if !is_limited {
            let (along, _) = self.best(connection).await?;
            return self.anywhere(connection, &along).await;
        }
        let domains = self.seen(connection, self.after.0, TURN_MIN_DOMAINS).await?;
        let (along, count) = self.best(connection).await?;
        let has_few = i64::try_from(domains.len()).is_ok_and(|count| count < TURN_MIN_DOMAINS);
        if !has_few && count < ANYWHERE_MAX_RRSETS {
            return self.anywhere(connection, &along).await;
        }
        self.turns(connection, &along, domains).await
    }
}

fn found(rows: Vec<PgRow>) -> Result<Vec<FoundRrset>, sqlx::Error> {
    let one = |row: &PgRow| {
        Ok(FoundRrset {
            domain: DomainId::from_uuid(row.try_get(14)?),
            name: row.try_get(15)?,
            tenant: TenantId::from_uuid(row.try_get(16)?),
            rrset: rrsets::shown(row)?,
        })
    };
    rows.iter().map(one).collect()
}

/// The next RRsets that are wanted, in domains that may be seen. Which of their records may be, the caller asks.
///
/// # Errors
/// When the database does not answer.
pub async fn page(
    pool: &PgPool,
    visible: &Visible,
    wanted: &Wanted,
    after: Option<&Place>,
    most: i64,
) -> Result<Vec<FoundRrset>, sqlx::Error> {
    let after = after.cloned().unwrap_or((Uuid::nil(), String::new(), 0));
    let mut search = Search { wanted, shown: visible.into(), after, most };
    let mut transaction: Transaction<'_, Postgres> = pool.begin_with(sql::BEGIN).await?;
    let found = search.run(&mut transaction).await?;
    transaction.commit().await?;
    Ok(found)
}
