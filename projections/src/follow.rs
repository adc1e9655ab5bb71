//! What a projection is that follows the log by a cursor. Whoever runs it writes
//! its rows and moves its cursor in one transaction, so each event counts once.

use headwater_events::envelope::Recorded;
use headwater_events::event::Event;
use headwater_events::ids::Position;
use sqlx::postgres::PgConnection;
use std::future::Future;

/// An event with what it says.
#[derive(Debug, Clone)]
pub struct Logged {
    /// As it stands in the log.
    pub recorded: Recorded,
    /// What it says, lifted to its newest schema.
    pub event: Event,
}

/// A projection that follows the log.
pub trait Projection: Send + Sync {
    /// Its name in the table of cursors.
    const NAME: &'static str;
    /// Raised whenever the same events would give other rows.
    const VERSION: i32;

    /// Applies events, in the order of the log, inside the transaction that moves the cursor.
    fn apply(
        &self,
        transaction: &mut PgConnection,
        page: &[Logged],
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Told after the transaction was committed.
    fn committed(&self, to: Position);
}
