//! `audit`: one row an event, with everything an auditor may ask by.

mod change;
mod sql;

pub use change::{Entry, words};
pub use sql::ALL;

use crate::follow::{Logged, Projection};
use chrono::{DateTime, Utc};
use headwater_events::ids::Position;
use sqlx::postgres::PgConnection;

/// The projection.
#[derive(Debug, Clone, Copy, Default)]
pub struct Audit;

impl Projection for Audit {
    const NAME: &'static str = "audit";
    const VERSION: i32 = 2;

    async fn apply(&self, transaction: &mut PgConnection, page: &[Logged]) -> Result<(), sqlx::Error> {
        let rows: Vec<Entry> = page.iter().map(|logged| Entry::of(&logged.recorded)).collect();
        sqlx::query(sql::INSERT)
            .bind(rows.iter().map(|e| e.position.get()).collect::<Vec<_>>())
            .bind(rows.iter().map(|e| DateTime::<Utc>::from(e.at)).collect::<Vec<_>>())
            .bind(rows.iter().map(|e| e.domain.clone().map(|d| d.1)).collect::<Vec<_>>())
            .bind(rows.iter().map(|e| e.domain.as_ref().map(|d| d.0.as_uuid())).collect::<Vec<_>>())
            .bind(rows.iter().map(|e| e.tenant.map(|id| id.as_uuid())).collect::<Vec<_>>())
            .bind(rows.iter().map(|e| e.stream.id).collect::<Vec<_>>())
            .bind(rows.iter().map(|e| e.actor).collect::<Vec<_>>())
            .bind(rows.iter().map(|e| e.token.map(|id| id.as_uuid())).collect::<Vec<_>>())
            .bind(rows.iter().map(|e| e.event_type.clone()).collect::<Vec<_>>())
            .bind(rows.iter().map(|e| e.operation.map(|id| id.as_uuid())).collect::<Vec<_>>())
            .bind(rows.iter().map(|e| e.text.clone()).collect::<Vec<_>>())
            .execute(transaction)
            .await
            .map(|_| ())
    }

    fn committed(&self, _to: Position) {}
}
