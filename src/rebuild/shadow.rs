//! A copy of `desired` that is folded from the log, page by page, in a schema of
//! its own. Memory is bounded by one page. The connection carries the claim that
//! nobody else rebuilds: when it ends, so does the claim, and what is left of
//! the copy is removed by the next one.

use super::{Phase, Progress, RebuildError, Watch, sql};
use crate::store::append::bind_changes;
use crate::store::read::{LogReader, PAGE_MAX_EVENTS};
use headwater_events::envelope::Recorded;
use headwater_events::ids::{DomainId, Position};
use headwater_projections::desired::{Changes, Folded, fold};
use serde_json::Value;
use sqlx::postgres::{PgConnection, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions};

/// The copy.
pub(super) struct Shadow {
    pub(super) schema: &'static str,
    pub(super) connection: PgConnection,
    pub(super) position: Position,
    reader: LogReader,
    write: String,
    indexes: String,
}

impl Shadow {
    /// Makes an empty one; what an interrupted one left goes first.
    pub(super) async fn make(
        pool: &PgPool,
        schema: &'static str,
        leftovers: &[&str],
    ) -> Result<Self, RebuildError> {
        // An index over many rows takes longer than any request may.
        let options = (*pool.connect_options()).clone();
        let options = options.options([("statement_timeout", "0"), ("lock_timeout", "2s")]);
        let mut connection = options.connect().await?;
        let claimed: bool = sqlx::query_scalar(sql::CLAIM).fetch_one(&mut connection).await?;
        if !claimed {
            return Err(RebuildError::Busy);
        }
        for leftover in leftovers.iter().chain([&schema]) {
            run(&mut connection, sql::remove(leftover)).await?;
        }
        let (first, indexes) = sql::make(schema);
        run(&mut connection, first).await?;
        // A connection of its own: while the gate is closed, nothing may wait for the others.
        let own = PgPoolOptions::new().max_connections(1).connect_with((*pool.connect_options()).clone());
        let reader = LogReader::new(own.await?);
        Ok(Self { schema, connection, position: Position::ZERO, reader, write: sql::write(schema), indexes })
    }

    /// Takes in what the log holds, until less than a page is left.
    pub(super) async fn catch_up(&mut self, watch: Watch<'_>) -> Result<(), RebuildError> {
        loop {
            let total = self.reader.meta().await?.head.get();
            watch(Progress { phase: Phase::Fold, done: self.position.get(), total });
            if total - self.position.get() < PAGE_MAX_EVENTS {
                return Ok(());
            }
            let page = self.reader.page(self.position, PAGE_MAX_EVENTS).await?;
            self.take(&page).await?;
        }
    }

    /// Takes in everything up to a position that is known to be committed.
    pub(super) async fn reach(&mut self, head: Position) -> Result<(), RebuildError> {
        while self.position < head {
            let most = (head.get() - self.position.get()).min(PAGE_MAX_EVENTS);
            let page = self.reader.page(self.position, most).await?;
            if page.is_empty() {
                return Ok(());
            }
            self.take(&page).await?;
        }
        Ok(())
    }

    /// Takes in the events of one domain alone, up to a position.
    pub(super) async fn reach_domain(
        &mut self,
        domain: DomainId,
        head: Position,
    ) -> Result<(), RebuildError> {
        loop {
            let mut page = self.reader.domain(domain, self.position, PAGE_MAX_EVENTS).await?;
            page.retain(|event| event.position <= head);
            if page.is_empty() {
                return Ok(());
            }
            self.take(&page).await?;
        }
    }

    async fn take(&mut self, page: &[Recorded]) -> Result<(), RebuildError> {
        let mut changes = Changes::default();
        for recorded in page {
            let position = recorded.position;
            let event = recorded.decode().map_err(|source| RebuildError::Poison { position, source })?;
            let folded = Folded {
                event: &event,
                stream: recorded.stream,
                domain: recorded.domain.as_ref().map(|(id, name)| (*id, name.as_str())),
                tenant: recorded.tenant,
                revision: recorded.revision,
                at: recorded.at,
                actor: recorded.provenance.actor.id,
                operation: recorded.operation,
            };
            fold(&mut changes, &folded);
            self.position = position;
        }
        let others = std::mem::take(&mut changes.others);
        let others = (!others.is_empty()).then_some(Value::Array(others));
        let call = sqlx::query(AssertSqlSafe(self.write.clone()));
        bind_changes(call, &changes, others).execute(&mut self.connection).await?;
        Ok(())
    }

    /// Makes what was put off.
    pub(super) async fn index(&mut self) -> Result<(), RebuildError> {
        run(&mut self.connection, self.indexes.clone()).await?;
        run(&mut self.connection, sql::analyze(self.schema)).await
    }
}

/// Runs a script of ours.
pub(super) async fn run(connection: &mut PgConnection, script: String) -> Result<(), RebuildError> {
    sqlx::raw_sql(AssertSqlSafe(script)).execute(connection).await?;
    Ok(())
}
