//! Why a name is answered as it is: each hop between what its owner wrote and what a client is told, in the order in which
//! a change goes through them. What is broken is named with the mutation that did it and the command that mends it.
//!
//! What must hold: nothing is changed; listeners are asked at once, with a bound for each and for all; and what is told is
//! what somebody who may read the domain may know.

mod delegation;
mod deployment;
mod desired;
mod probe;
mod sql;

use headwater_events::actor::Actor;
use headwater_events::dns::{OwnerName, RrType};
use headwater_events::event::{DisabledBy, DomainStatus};
use headwater_events::ids::Revision;
use headwater_events::time::Timestamp;
use sqlx::Row;
use sqlx::postgres::{PgPool, PgRow};
use std::time::Duration;
use uuid::Uuid;

use self::desired::{Answer, Why, absolute, relative};
use self::probe::Question;
use crate::app::App;
use crate::query::asof::{self, AsOfError};
use crate::query::domains::{self, Platform, StoredDomain};
use crate::query::{self, rrsets};

pub use sql::ALL as STATEMENTS;

/// How long all listeners together may take.
const PROBES_LIMIT: Duration = Duration::from_secs(4);

/// How a hop is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HopState {
    /// As it should be.
    Ok,
    /// Not as it should be.
    Broken,
    /// It cannot be told.
    Unknown,
}

/// The mutation that made something as it is.
#[derive(Debug, Clone)]
pub struct Cause {
    /// What it was.
    pub event: String,
    /// The revision it made, of its stream.
    pub revision: Revision,
    /// When.
    pub at: Timestamp,
    /// Who.
    pub actor: Actor,
    /// Why, in their words.
    pub note: Option<String>,
}

/// One hop.
#[derive(Debug, Clone)]
pub struct Hop {
    /// Which: `domain`, `desired`, `deployment`, `powerdns`, `dnsdist`, `delegation`.
    pub hop: &'static str,
    /// Where, if there are several of them.
    pub target: Option<String>,
    /// How it is.
    pub state: HopState,
    /// In a sentence.
    pub detail: String,
    /// The mutation that did it.
    pub change: Option<Cause>,
    /// What mends it.
    pub command: Option<String>,
}

impl Hop {
    fn new(hop: &'static str, state: HopState, detail: impl Into<String>) -> Self {
        Self { hop, target: None, state, detail: detail.into(), change: None, command: None }
    }

    fn ok(hop: &'static str, detail: impl Into<String>) -> Self {
        Self::new(hop, HopState::Ok, detail)
    }

    fn broken(hop: &'static str, detail: impl Into<String>) -> Self {
        Self::new(hop, HopState::Broken, detail)
    }

    fn unknown(hop: &'static str, detail: impl Into<String>) -> Self {
        Self::new(hop, HopState::Unknown, detail)
    }

    fn on(self, target: &str) -> Self {
        Self { target: Some(target.to_owned()), ..self }
    }

    fn by(self, change: Option<Cause>) -> Self {
        Self { change, ..self }
    }

    fn mend(self, command: impl Into<String>) -> Self {
        Self { command: Some(command.into()), ..self }
    }
}

/// Reads who made something.
fn cause(row: &PgRow) -> Result<Cause, sqlx::Error> {
    Ok(Cause {
        revision: Revision::new(row.try_get(0)?),
        event: row.try_get(1)?,
        at: query::at(row, 2)?,
        actor: rrsets::actor(row, 3)?,
        note: row.try_get(7)?,
    })
}

async fn made(pool: &PgPool, stream: Uuid, revision: Revision) -> Result<Option<Cause>, sqlx::Error> {
    let row = sqlx::query(sql::MADE).bind(stream).bind(revision.get()).fetch_optional(pool).await?;
    row.as_ref().map(cause).transpose()
}

/// A word of a command.
fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@' | '/' | ':');
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

/// What is asked about.
struct Asked<'a> {
    app: &'a App,
    stored: &'a StoredDomain,
    platform: Platform,
    owner: &'a OwnerName,
    rrtype: RrType,
}

/// Every hop of a name and type in a domain.
///
/// # Errors
/// When the control database does not answer.
pub async fn explain(
    app: &App,
    stored: &StoredDomain,
    owner: &OwnerName,
    rrtype: RrType,
) -> Result<Vec<Hop>, AsOfError> {
    let platform = domains::platform(&app.pool).await?;
    let asked = Asked { app, stored, platform, owner, rrtype };
    let mut hops = vec![asked.domain().await?];
    let (answer, why) = asked.look().await?;
    hops.push(asked.desired(&answer, why).await?);
    let deployed = deployment::hops(&asked).await?;
    let question = |cluster: &deployment::Deployed| Question {
        zone: stored.state.name.clone(),
        name: owner.absolute(&stored.state.name),
        rrtype,
        expected: cluster.is_current.then(|| answer.clone()),
        serial: cluster.serial,
    };
    let asking = deployed.iter().map(|cluster| cluster.ask(question(cluster)));
    let probes = futures_util::future::join_all(asking);
    let delegated = delegation::hop(&asked);
    let both = async { tokio::join!(probes, delegated) };
    let listeners = tokio::time::timeout(PROBES_LIMIT, both).await;
    let (mut behind, mut fronts) = (Vec::new(), Vec::new());
    hops.extend(deployed.iter().map(|cluster| cluster.hop.clone()));
    match listeners {
        Ok((probed, delegation)) => {
            for hop in probed.into_iter().flatten() {
                if hop.hop == "dnsdist" { fronts.push(hop) } else { behind.push(hop) }
            }
            hops.extend(behind.into_iter().chain(fronts).chain([delegation]));
        }
        Err(_) => {
            let late = format!("the name servers were not asked within {} s", PROBES_LIMIT.as_secs());
            hops.push(Hop::unknown("powerdns", late));
        }
    }
    if deployed.is_empty() {
        let detail = "no DNS cluster is registered, so nothing answers";
        let command = "headwater cluster create NAME --database-url-file FILE --dns ADDRESS:PORT --enable";
        hops.insert(2, Hop::broken("deployment", detail).mend(command));
    }
    Ok(hops)
}

impl Asked<'_> {
    async fn domain(&self) -> Result<Hop, sqlx::Error> {
        let (state, pool) = (&self.stored.state, &self.app.pool);
        let name = &state.name;
        Ok(match state.status {
            DomainStatus::Active => {
                Hop::ok("domain", format!("{name} is active, at revision {}", state.revision))
            }
            DomainStatus::PendingVerification => {
                let detail = format!("{name} waits for the proof of who owns it: nothing of it is served");
                let change = made(pool, state.id.as_uuid(), Revision::new(1)).await?;
                Hop::broken("domain", detail).by(change).mend(format!("headwater domain verify {name}"))
            }
            DomainStatus::Disabled => {
                let row = sqlx::query(sql::DELETED).bind(state.id.as_uuid()).fetch_optional(pool).await?;
                let detail = match state.disabled_by {
                    Some(DisabledBy::Operator) => {
                        format!("an administrator disabled {name}: its name servers refuse it")
                    }
                    _ => format!("{name} is disabled: its name servers refuse it"),
                };
                let change = row.as_ref().map(cause).transpose()?;
                let command = format!("headwater domain enable {name} --wait");
                Hop::broken("domain", detail).by(change).mend(command)
            }
            DomainStatus::Deprovisioning => {
                let row = sqlx::query(sql::DELETED).bind(state.id.as_uuid()).fetch_optional(pool).await?;
                let detail = format!("{name} was deleted: it is not served, and can be restored");
                let change = row.as_ref().map(cause).transpose()?;
                Hop::broken("domain", detail)
                    .by(change)
                    .mend(format!("headwater domain restore {name} --wait"))
            }
        })
    }

    async fn look(&self) -> Result<(Answer, Why), sqlx::Error> {
        let key = self.owner.key();
        let sight = desired::sight(&self.app.pool, self.stored, &self.platform, &key).await?;
        Ok(sight.answer(key.as_str(), self.rrtype))
    }

    async fn made(&self, revision: Option<Revision>) -> Result<Option<Cause>, sqlx::Error> {
        match revision {
            Some(revision) => made(&self.app.pool, self.stored.state.id.as_uuid(), revision).await,
            None => Ok(None),
        }
    }

    /// The command that writes what is missing.
    fn set(&self) -> String {
        let (zone, owner) = (&self.stored.state.name, word(self.owner.as_str()));
        format!("headwater rrset set {zone} {owner} {} VALUE --wait", self.rrtype)
    }

    async fn desired(&self, answer: &Answer, why: Why) -> Result<Hop, AsOfError> {
        let (zone, rrtype) = (&self.stored.state.name, self.rrtype);
        let name = self.owner.absolute(zone);
        Ok(match why {
            Why::At(key, revision) => {
                let what = match answer {
                    Answer::Records(records) => format!("{rrtype} {}", records.join(", ")),
                    Answer::Alias(records) => format!("CNAME {}: ask for that name", records.join(", ")),
                    _ => String::new(),
                };
                let at = if key == self.owner.key().as_str() {
                    name
                } else {
                    format!("{name}, by the wildcard {},", absolute(&key, zone))
                };
                let from = if revision.is_none() { " (from the platform)" } else { "" };
                Hop::ok("desired", format!("{at} has {what}{from}")).by(self.made(revision).await?)
            }
            Why::Cut(key, revision) => self.cut(&key, revision, answer).await?,
            Why::Hidden { wildcard, by, because } => {
                let (wild, by) = (absolute(&wildcard, zone), absolute(&by, zone));
                let there = because
                    .as_ref()
                    .map(|(key, rrtype, _)| format!(", since there is {} {rrtype}", absolute(key, zone)));
                let detail = format!(
                    "the wildcard {wild} does not cover {name}: {by} exists{}",
                    there.unwrap_or_default()
                );
                let change = self.made(because.map(|(_, _, revision)| revision)).await?;
                Hop::broken("desired", detail).by(change).mend(self.set())
            }
            Why::NoCell => self.no_cell(&name).await?,
            Why::OtherTypes(types) => {
                let types: Vec<String> = types.iter().map(ToString::to_string).collect();
                let has = match types.is_empty() {
                    true => "nothing of its own, only names below it".to_owned(),
                    false => types.join(", "),
                };
                self.missing(format!("{name} has no {rrtype}: it has {has}")).await?
            }
            Why::Nothing => {
                self.missing(format!("there is no {name} in {zone}, and no wildcard covers it")).await?
            }
        })
    }

    async fn cut(&self, key: &str, revision: Option<Revision>, answer: &Answer) -> Result<Hop, sqlx::Error> {
        let zone = &self.stored.state.name;
        let to = match answer {
            Answer::Referral(records) => records.join(", "),
            _ => String::new(),
        };
        let change = self.made(revision).await?;
        if key == self.owner.key().as_str() && self.rrtype == RrType::NS {
            return Ok(Hop::ok("desired", format!("{} is delegated to {to}", absolute(key, zone))).by(change));
        }
        let detail = format!(
            "{} is delegated to {to}: those are asked for {}, and nothing that {zone} holds there counts",
            absolute(key, zone),
            self.owner.absolute(zone)
        );
        let command = format!("headwater rrset delete {zone} {} NS --wait", word(&relative(key)));
        Ok(Hop::broken("desired", detail).by(change).mend(command))
    }

    async fn no_cell(&self, name: &str) -> Result<Hop, sqlx::Error> {
        let detail = format!("{name} is proxied, and no cell of an edge is ready to serve it");
        let out: Option<(String, bool)> =
            sqlx::query_as(sql::EDGE_OUT).fetch_optional(&self.app.pool).await?;
        let command = match out {
            Some((edge, false)) => format!("headwater edge enable {}", word(&edge)),
            Some((edge, true)) => format!("headwater edge undrain {}", word(&edge)),
            None => "headwater edge status".to_owned(),
        };
        Ok(Hop::broken("desired", detail).mend(command))
    }

    /// What is not there: deleted by somebody, or never written.
    async fn missing(&self, detail: String) -> Result<Hop, AsOfError> {
        let (state, pool) = (&self.stored.state, &self.app.pool);
        let last = asof::last_change(pool, state, self.owner, self.rrtype).await?;
        let deleted = last.filter(|(_, deleted)| *deleted).map(|(changed, _)| changed.revision);
        let hop = Hop::broken("desired", detail);
        Ok(match self.made(deleted).await? {
            Some(change) => {
                let command = format!("headwater domain undo {} {} --wait", state.name, change.revision);
                hop.by(Some(change)).mend(command)
            }
            None => hop.mend(self.set()),
        })
    }
}

/// The first hop that is broken.
pub fn first_broken(hops: &[Hop]) -> Option<&Hop> {
    hops.iter().find(|hop| hop.state == HopState::Broken)
}
