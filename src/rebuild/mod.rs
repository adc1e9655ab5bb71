//! Projections as a whole: which there are and how far each is, building one
//! anew beside the live one, and comparing the live one with the log. What the
//! log says is right; a difference is never explained away.

pub mod desired;
mod followed;
pub mod powerdns;
mod shadow;
mod sql;

pub use powerdns::Intent;

use crate::app::App;
use crate::store::read::ReadError;
use headwater_events::codec::DecodeError;
use headwater_events::dns::DomainName;
use headwater_events::event::Projection;
use headwater_events::ids::{ClusterId, Position};
use headwater_projections::audit::Audit;
use headwater_projections::follow;
use headwater_projections::operations::Operations;
use serde::Serialize;
use serde_json::{Value, json};
use sqlx::Row;
use sqlx::postgres::PgPool;
use std::future::Future;

/// The statements of this folder, for the test that prepares them.
pub const STATEMENTS: &[&str] = sql::ALL;

/// Those of what follows the log.
pub const FOLLOWED_STATEMENTS: &[&str] = followed::sql::ALL;

/// How a rebuild or a verification comes along.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// What is being done.
    pub phase: Phase,
    /// How much of it is done.
    pub done: i64,
    /// How much there is, as far as it is known.
    pub total: i64,
}

/// The steps of a rebuild, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Empty tables are made beside the live ones.
    Prepare,
    /// The log is read; counted in events.
    Fold,
    /// Indexes are made.
    Index,
    /// The new one takes the place of the old one.
    Switch,
    /// What is left of the old one is removed.
    Clean,
    /// Live and fresh rows are compared; counted in tables.
    Compare,
    /// What a token did is undone; counted in domains.
    Undo,
    /// Zones of another server are taken in; counted in zones.
    Import,
    /// Zones are taken away from a DNS cluster that goes; counted in zones.
    Remove,
    /// Answers of servers are compared; counted in zones.
    Answers,
}

/// Told of every step.
pub type Watch<'a> = &'a mut (dyn FnMut(Progress) + Send);

/// In which way something is not what the log says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// It is not there.
    Missing,
    /// It should not be there.
    Extra,
    /// It is there and not as it should be.
    Changed,
    /// The target holds what this log does not know; `live` says what.
    Ahead,
    /// A target serves a zone for a domain that the log does not have.
    Lost,
    /// It was to be undone, and stays as it is.
    Kept,
    /// A server answers otherwise than the one it takes the place of.
    Answered,
}

/// One row that is not what the log says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// In which way it differs.
    pub kind: Kind,
    /// The table.
    pub table: String,
    /// The row's key, as a JSON array.
    pub key: serde_json::Value,
    /// What stands there; null when the row is missing.
    pub live: serde_json::Value,
    /// What the log says; null when the row should not be there.
    pub expected: serde_json::Value,
}

impl Difference {
    /// A row, as it is and as it should be.
    pub fn of_row(
        table: String,
        key: serde_json::Value,
        live: serde_json::Value,
        expected: serde_json::Value,
    ) -> Self {
        let kind = match (live.is_null(), expected.is_null()) {
            (true, _) => Kind::Missing,
            (false, true) => Kind::Extra,
            (false, false) => Kind::Changed,
        };
        Self { kind, table, key, live, expected }
    }
}

/// What people read of a value: a text bare, an object without what is null.
fn shown(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            let fields: Vec<String> = fields.map(|(name, value)| format!("{name} {value}")).collect();
            fields.join(", ")
        }
        other => other.to_string(),
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { kind, table, key, live, expected } = self;
        write!(f, "{table} {key}: ")?;
        match (kind, live.as_object(), expected.as_object()) {
            (Kind::Missing, ..) => write!(f, "missing, the log says {}", shown(expected)),
            (Kind::Extra, ..) => write!(f, "extra, {}", shown(live)),
            (Kind::Ahead, ..) => write!(f, "ahead: {}: adopt it or discard it", shown(live)),
            (Kind::Changed, Some(live), Some(expected)) => {
                let differs = expected.iter().filter(|(name, value)| live.get(*name) != Some(*value));
                for (n, (name, value)) in differs.enumerate() {
                    let comma = if n > 0 { ", " } else { "" };
                    let found = live.get(name).unwrap_or(&serde_json::Value::Null);
                    write!(f, "{comma}{name} is {found}, the log says {value}")?;
                }
                Ok(())
            }
            (Kind::Lost, ..) => {
                write!(f, "lost: {}: create the domain again, then adopt it or discard it", shown(live))
            }
            (Kind::Kept, ..) => write!(f, "kept: {}", shown(expected)),
            (Kind::Answered, ..) => {
                write!(f, "{}, where the old server says {}", shown(live), shown(expected))
            }
            (Kind::Changed, ..) => write!(f, "{}, the log says {}", shown(live), shown(expected)),
        }
    }
}

/// Where a projection stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// Its name.
    pub name: String,
    /// The version of its shape.
    pub version: i32,
    /// The last position it has taken in.
    pub position: Position,
    /// How many events it is behind.
    pub lag: i64,
    /// `live`, or what keeps it from being so.
    pub state: String,
    /// The last thing that went wrong.
    pub last_error: Option<String>,
}

/// Why a rebuild or a verification did not come to its end.
#[derive(Debug, thiserror::Error)]
pub enum RebuildError {
    /// The database did not answer or refused.
    #[error("the control database refused: {0}")]
    Database(#[from] sqlx::Error),
    /// The log could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An event cannot be read: it is never skipped.
    #[error("the event at position {position} cannot be taken in: {source}")]
    Poison {
        /// Where it stands.
        position: Position,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// A target or the control database failed on the way.
    #[error(transparent)]
    Deploy(#[from] crate::deploy::DeployError),
    /// Another one is at work.
    #[error("another rebuild or verification is running on this database: wait until it has ended")]
    Busy,
    /// It was told to stop.
    #[error("it was stopped")]
    Stopped,
    /// There is no such domain.
    #[error("there is no domain {0}")]
    NoDomain(String),
    /// What is to be undone cannot be undone now.
    #[error("{0}")]
    Undo(String),
    /// Zones cannot be taken in now.
    #[error("{0}")]
    Import(String),
    /// What zones are to come from cannot be used.
    #[error("{0}")]
    Source(String),
    /// Whoever asked may do nothing any more.
    #[error("whoever asked for it may do nothing any more")]
    Forbidden,
}

/// Keeps what a long walk has done, so that another one goes on from there.
pub trait Keep: Sync {
    /// The last zone of a cluster that is done, and how many of its zones are.
    fn before(&self, cluster: ClusterId) -> impl Future<Output = Option<(DomainName, i64)>> + Send;

    /// A zone of a cluster is done; with what differed. An error ends the walk there.
    fn done(
        &self,
        cluster: ClusterId,
        zone: &DomainName,
        differences: Vec<Difference>,
    ) -> impl Future<Output = Result<(), RebuildError>> + Send;
}

/// Builds one projection anew, or compares it; gives what differed, but for what was given to `keep`. A domain
/// narrows `desired` and `powerdns`; the others are built whole, and what
/// differs of them is told of that domain only.
///
/// # Errors
/// Why it did not come to its end. What was live before is live still.
pub async fn run(
    app: &App,
    projection: Projection,
    intent: Intent,
    (domain, cluster): (Option<&DomainName>, Option<ClusterId>),
    watch: Watch<'_>,
    keep: &impl Keep,
) -> Result<Vec<Difference>, RebuildError> {
    match (projection, intent) {
        (Projection::Powerdns, _) => powerdns::walk(app, intent, (domain, cluster), watch, keep).await,
        (Projection::Desired, Intent::Verify) => desired::verify(&app.pool, domain, watch).await,
        (Projection::Desired, Intent::Rebuild) => {
            let found = or_gone(projection, desired::verify(&app.pool, domain, &mut *watch).await)?;
            desired::rebuild(&app.pool, watch).await?;
            Ok(found)
        }
        (Projection::Edge, _) => {
            let edge = crate::edge::signing::projection(app).await;
            follows(app, projection, (&edge, followed::sql::EDGE_TABLES.as_slice()), intent, domain, watch)
                .await
        }
        (Projection::Operations, _) => {
            let operations = Operations { moved: app.progress.sender() };
            let followed = (&operations, followed::sql::OPERATIONS_TABLES.as_slice());
            follows(app, projection, followed, intent, domain, watch).await
        }
        (Projection::Audit, _) => {
            let followed = (&Audit, followed::sql::AUDIT_TABLES.as_slice());
            follows(app, projection, followed, intent, domain, watch).await
        }
    }
}

/// Of what follows the log: what differed, after the rebuild if one is intended.
async fn follows<P: follow::Projection>(
    app: &App,
    projection: Projection,
    (followed, tables): (&P, &[followed::sql::Table]),
    intent: Intent,
    domain: Option<&DomainName>,
    watch: Watch<'_>,
) -> Result<Vec<Difference>, RebuildError> {
    let found = followed::verify(app, followed, tables, domain, &mut *watch).await;
    let found = or_gone(projection, found)?;
    if intent == Intent::Rebuild {
        followed::rebuild(app, followed, tables, watch).await?;
    }
    Ok(found)
}

/// What a comparison before a rebuild found. A projection whose tables are gone differs as a whole.
fn or_gone(
    projection: Projection,
    found: Result<Vec<Difference>, RebuildError>,
) -> Result<Vec<Difference>, RebuildError> {
    match found {
        Err(RebuildError::Database(error)) if is_absent(&error) => {
            let (key, live, expected) =
                (Value::Array(Vec::new()), Value::Null, json!("the whole projection"));
            Ok(vec![Difference::of_row(projection.name().to_owned(), key, live, expected)])
        }
        other => other,
    }
}

/// Where every projection stands.
///
/// # Errors
/// When the database does not answer.
pub async fn list(pool: &PgPool) -> Result<Vec<Standing>, RebuildError> {
    let rows = sqlx::query(sql::STANDINGS)
        .bind(Projection::ALL.map(Projection::name).as_slice())
        .fetch_all(pool)
        .await?;
    let mut standings = Vec::with_capacity(rows.len());
    for row in rows {
        standings.push(Standing {
            name: row.try_get(0)?,
            version: row.try_get(1)?,
            position: Position::new(row.try_get(2)?),
            lag: row.try_get(3)?,
            state: row.try_get(4)?,
            last_error: row.try_get(5)?,
        });
    }
    if let Some(powerdns) = standings.iter_mut().find(|standing| standing.name == "powerdns") {
        match sqlx::query_as::<_, (i64, i64)>(sql::POWERDNS_STANDING).fetch_one(pool).await {
            Ok((position, head)) => {
                (powerdns.position, powerdns.lag) = (Position::new(position), head - position)
            }
            // It is told from `desired`, which may be being rebuilt.
            Err(error) if is_absent(&error) => "waiting".clone_into(&mut powerdns.state),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(standings)
}

/// Whether a table or schema is not there.
fn is_absent(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|e| e.code()).is_some_and(|code| code == "42P01" || code == "3F000")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_reads_right() {
        let row = |live: Value, expected: Value| {
            Difference::of_row("t".to_owned(), json!(["a"]), live, expected).to_string()
        };
        assert_eq!(row(Value::Null, json!({"x": 1, "y": null})), "t [\"a\"]: missing, the log says x 1");
        assert_eq!(row(json!("the zone"), Value::Null), "t [\"a\"]: extra, the zone");
        let changed = row(json!({"x": 1, "y": 2}), json!({"x": 3, "y": 2}));
        assert_eq!(changed, "t [\"a\"]: x is 1, the log says 3");
        let live = json!("it holds revision 9");
        let ahead = Difference {
            kind: Kind::Ahead,
            ..Difference::of_row("t".into(), json!(["a"]), live, Value::Null)
        };
        assert_eq!(ahead.to_string(), "t [\"a\"]: ahead: it holds revision 9: adopt it or discard it");
    }
}
