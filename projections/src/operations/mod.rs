//! `operations`: how accepted work ends, as a fold of the deployment facts.

mod change;
mod sql;
mod store;

pub use change::{Board, Ending, Operation, State, Target};
pub use sql::ALL;

use crate::follow::{Logged, Projection};
use headwater_events::ids::Position;
use sqlx::postgres::PgConnection;
use tokio::sync::watch;

/// The projection; it tells its position to whoever waits for an operation.
#[derive(Debug, Clone)]
pub struct Operations {
    /// Moves with every commit.
    pub moved: watch::Sender<Position>,
}

impl Projection for Operations {
    const NAME: &'static str = "operations";
    const VERSION: i32 = 2;

    async fn apply(&self, transaction: &mut PgConnection, page: &[Logged]) -> Result<(), sqlx::Error> {
        let mut board = store::load(transaction, page).await?;
        for logged in page {
            board.fold(&logged.recorded, &logged.event);
        }
        store::save(transaction, &board).await
    }

    fn committed(&self, to: Position) {
        self.moved.send_replace(to);
    }
}
