//! The audit trail: events by whatever an auditor asks, newest first, with the
//! names of the actors as they are known now. Names are never stored with events.

use super::frames::{self, Extras};
use super::hub::Hub;
use super::rights::{Rights, Seen};
use super::sql;
use crate::store::raw::{RawEvent, RawView, Selection};
use crate::store::read::{LogReader, ReadError};
use chrono::{DateTime, Utc};
use headwater_events::actor::Owned;
use headwater_events::domain::sides;
use headwater_events::event::Event;
use headwater_events::ids::{DomainId, OperationId, Position, StreamKind, TenantId, TokenId, UserId};
use headwater_events::time::Timestamp;
use headwater_projections::audit::words;
use serde_json::{Value, json};
use sqlx::postgres::{PgArguments, PgPool};
use sqlx::query::Query;
use sqlx::{Postgres, Row};
use std::collections::{BTreeSet, HashMap};
use uuid::Uuid;

/// Words of one search, at most.
pub const SEARCH_MAX_WORDS: usize = 20;

/// What is asked.
#[derive(Debug, Clone, Default)]
pub struct Question {
    /// Of a domain.
    pub domain: Option<String>,
    /// Of a tenant.
    pub tenant: Option<TenantId>,
    /// By an actor.
    pub actor: Option<Uuid>,
    /// With a token.
    pub token: Option<TokenId>,
    /// The beginning of types.
    pub types: Option<Vec<String>>,
    /// Of an operation.
    pub operation: Option<OperationId>,
    /// From this time on.
    pub from: Option<Timestamp>,
    /// Before this time.
    pub to: Option<Timestamp>,
    /// With words that begin so.
    pub text: Option<String>,
    /// Before this position.
    pub before: Option<Position>,
}

impl Question {
    /// The domain, where nothing else is asked but where the page begins.
    fn domain_alone(&self) -> Option<&str> {
        let Self { domain, tenant, actor, token, types, operation, from, to, text, before: _ } = self;
        let is_alone = tenant.is_none()
            && actor.is_none()
            && token.is_none()
            && types.is_none()
            && operation.is_none()
            && from.is_none()
            && to.is_none()
            && text.is_none();
        domain.as_deref().filter(|_| is_alone)
    }
}

/// A page of the trail.
#[derive(Debug)]
pub struct Trail {
    /// The events, newest first.
    pub events: Vec<RawEvent>,
    names: HashMap<Uuid, String>,
}

/// How far the trail has come.
///
/// # Errors
/// When the database does not answer.
pub async fn position(pool: &PgPool) -> Result<Position, sqlx::Error> {
    sqlx::query_scalar(sql::AUDIT_POSITION).fetch_one(pool).await.map(Position::new)
}

/// The next page.
///
/// # Errors
/// When the database does not answer.
pub async fn read(
    pool: &PgPool,
    log: &LogReader,
    hub: &Hub,
    rights: &Rights,
    asked: &Question,
    most: i64,
) -> Result<Trail, ReadError> {
    let Selection { readable, named, .. } = rights.selection();
    let (owned, user) = readable.unzip();
    let user = user.flatten().map(UserId::as_uuid);
    let (tenants, single) = match owned {
        Some(Owned { tenants, domains }) => (
            Some(tenants.into_iter().map(TenantId::as_uuid).collect::<Vec<_>>()),
            Some(domains.into_iter().map(DomainId::as_uuid).collect::<Vec<_>>()),
        ),
        None => (None, None),
    };
    let rows = match (asked.domain_alone(), &named) {
        (Some(domain), None) => {
            let query = sqlx::query(sql::AUDIT_OF_DOMAIN).bind(domain).bind(asked.before.map(Position::get));
            query.bind(most).bind(&tenants).bind(user).bind(single).fetch_all(pool).await?
        }
        _ => any(asked, most, (&tenants, user, single), named).fetch_all(pool).await?,
    };
    let events: Vec<RawEvent> = rows.into_iter().map(RawEvent::new).collect();
    hub.learn_clients(log, &events).await?;
    let mut actors = BTreeSet::new();
    for event in &events {
        actors.insert(event.view()?.actor);
    }
    let actors: Vec<Uuid> = actors.into_iter().collect();
    let mut names = HashMap::new();
    for row in sqlx::query(sql::NAMES).bind(actors).bind(&tenants).bind(user).fetch_all(pool).await? {
        names.insert(row.try_get(0)?, row.try_get(1)?);
    }
    Ok(Trail { events, names })
}

type Readable<'a> = (&'a Option<Vec<Uuid>>, Option<Uuid>, Option<Vec<Uuid>>);

/// Whatever was asked.
fn any<'q>(
    asked: &Question,
    most: i64,
    (tenants, user, single): Readable<'_>,
    named: Option<Vec<String>>,
) -> Query<'q, Postgres, PgArguments> {
    let sql_time = |at: Option<Timestamp>| at.map(DateTime::<Utc>::from);
    sqlx::query(sql::AUDIT)
        .bind(tenants.clone())
        .bind(user)
        .bind(asked.domain.clone())
        .bind(asked.tenant.map(TenantId::as_uuid))
        .bind(asked.actor)
        .bind(asked.token.map(TokenId::as_uuid))
        .bind(asked.types.as_deref().map(full_types))
        .bind(asked.operation.map(OperationId::as_uuid))
        .bind(sql_time(asked.from))
        .bind(sql_time(asked.to))
        .bind(asked.text.as_deref().map(search))
        .bind(asked.before.map(Position::get))
        .bind(most)
        .bind(single)
        .bind(named)
        .persistent(false)
}

/// The known types that begin so: each has an index range of its own.
fn full_types(beginnings: &[String]) -> Vec<String> {
    let begins = |name: &str| beginnings.iter().any(|beginning| name.starts_with(beginning.as_str()));
    Event::TYPES.iter().map(|(name, _)| (*name).to_owned()).filter(|name| begins(name)).collect()
}

/// A search for words that all occur, each as the beginning of one. Words hold letters and digits only, so
/// nothing of them is an operator.
fn search(text: &str) -> String {
    let each: Vec<String> = words(text).take(SEARCH_MAX_WORDS).map(|word| format!("{word}:*")).collect();
    each.join(" & ")
}

impl Trail {
    /// Appends one event as JSON.
    ///
    /// # Errors
    /// When the row was altered by somebody.
    pub fn json(
        &self,
        out: &mut Vec<u8>,
        event: &RawEvent,
        hub: &Hub,
        rights: &Rights,
    ) -> Result<(), sqlx::Error> {
        let view = event.view()?;
        let client = hub.shown_client(&view, rights.shows_client(&Seen::from(&view)));
        let name = self.names.get(&view.actor).map(String::as_str);
        let diff = difference(&view).to_string();
        let extras = Extras { client: client.as_deref(), name: Some(name), diff: Some(&diff) };
        frames::envelope(out, &view, extras);
        Ok(())
    }

    /// Appends one event as a line of CSV (RFC 4180), with the columns of [`CSV_HEAD`].
    ///
    /// # Errors
    /// When the row was altered by somebody.
    pub fn csv(
        &self,
        out: &mut Vec<u8>,
        event: &RawEvent,
        hub: &Hub,
        rights: &Rights,
    ) -> Result<(), sqlx::Error> {
        let view = event.view()?;
        let client = hub.shown_client(&view, rights.shows_client(&Seen::from(&view)));
        let client: serde_json::Value =
            client.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
        let or_empty = |id: Option<Uuid>| id.map(|id| id.to_string()).unwrap_or_default();
        let RawView { stream, domain, tenant, actor, token, on_behalf_of, operation, .. } = view;
        let kind = serde_json::to_value(view.actor_kind).unwrap_or_default();
        let cells = [
            view.position.to_string(),
            view.at.to_string(),
            view.event_type.to_owned(),
            stream.kind.name().to_owned(),
            stream.id.to_string(),
            view.revision.to_string(),
            domain.map(|domain| domain.1.to_owned()).unwrap_or_default(),
            or_empty(tenant.map(TenantId::as_uuid)),
            kind.as_str().unwrap_or_default().to_owned(),
            actor.to_string(),
            self.names.get(&actor).cloned().unwrap_or_default(),
            or_empty(token.map(TokenId::as_uuid)),
            or_empty(on_behalf_of.map(UserId::as_uuid)),
            client["ip"].as_str().unwrap_or_default().to_owned(),
            client["agent"].as_str().unwrap_or_default().to_owned(),
            view.request.to_string(),
            or_empty(operation.map(OperationId::as_uuid)),
            view.note.unwrap_or_default().to_owned(),
            String::from_utf8_lossy(view.data).into_owned(),
        ];
        for (index, text) in cells.iter().enumerate() {
            if index > 0 {
                out.push(b',');
            }
            cell(out, text);
        }
        out.extend_from_slice(b"\r\n");
        Ok(())
    }
}

/// What an event changed of what a domain desires: at most one thing; the rest of its mutation stands beside it.
fn difference(view: &RawView<'_>) -> Value {
    if view.stream.kind != StreamKind::Domain {
        return json!([]);
    }
    match view.decode() {
        Ok(Event::DomainRolledBack(_) | Event::DomainUndone(_)) | Err(_) => json!([]),
        Ok(event) => {
            let (path, before, after) = sides(&event);
            json!([{"path": path, "before": before, "after": after}])
        }
    }
}

/// The columns of the table.
pub const CSV_HEAD: &str = "position,at,type,stream_kind,stream_id,revision,domain,tenant,actor_kind,actor_id,\
actor_name,token,on_behalf_of,client_ip,client_agent,request_id,operation,note,data\r\n";

/// One cell. Text that a spreadsheet would take for a formula gets an apostrophe in front.
fn cell(out: &mut Vec<u8>, text: &str) {
    let formula = text.starts_with(['=', '+', '-', '@', '\t', '\r']);
    let quoted = formula || text.contains(['"', ',', '\r', '\n']);
    if !quoted {
        out.extend_from_slice(text.as_bytes());
        return;
    }
    out.push(b'"');
    if formula {
        out.push(b'\'');
    }
    out.extend_from_slice(text.replace('"', "\"\"").as_bytes());
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_survive_quotes_and_disarm_formulas() {
        let shown = |text: &str| {
            let mut out = Vec::new();
            cell(&mut out, text);
            String::from_utf8(out).unwrap()
        };
        assert_eq!(shown("plain"), "plain");
        assert_eq!(shown("a,\"b\""), "\"a,\"\"b\"\"\"");
        assert_eq!(shown("=1+1"), "\"'=1+1\"");
    }

    #[test]
    fn a_search_holds_no_operator_of_its_asker() {
        assert_eq!(search("www.example.test !foo | bar"), "www:* & example:* & test:* & foo:* & bar:*");
        assert_eq!(search(" & "), "");
    }
}
