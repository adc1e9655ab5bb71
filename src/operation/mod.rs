//! Operations: durable receipts of accepted work, and how they end. Their end is
//! a fold of the log ([`headwater_projections::operations`]); what facts alone do
//! not tell is decided by [`deadline`] and told to the log. Imperative work has a stream of its own and is carried out
//! by [`runner`], which keeps in [`run`] how it comes along.

pub mod deadline;
pub mod project;
pub mod read;
mod run;
pub mod runner;
pub mod sql;
pub mod undo;

pub(crate) use run::Holder;
pub(crate) use undo::asker;

use crate::app::App;
use crate::edge::{forget, signing};
use crate::history::heads;
use crate::people::erase;
use headwater_events::ids::Position;
use headwater_projections::audit::Audit;
use headwater_projections::operations::Operations;
use tokio::sync::watch;

/// How far a projection has come in this process; wakes whoever waits for what it makes of the log.
#[derive(Debug, Clone)]
pub struct Progress(watch::Sender<Position>);

impl Default for Progress {
    fn default() -> Self {
        Self(watch::channel(Position::ZERO).0)
    }
}

impl Progress {
    /// What a projector of this process moves.
    pub fn sender(&self) -> watch::Sender<Position> {
        self.0.clone()
    }

    /// Wakes at every move.
    pub fn subscribe(&self) -> watch::Receiver<Position> {
        self.0.subscribe()
    }
}

/// Follows the log for `operations`, `audit` and `edge` and ends what is overdue, until the process stops.
pub async fn run(app: App) {
    let operations = Operations { moved: app.progress.0.clone() };
    let edge = signing::projection(&app).await;
    tokio::join!(
        project::run(app.clone(), operations),
        project::run(app.clone(), Audit),
        project::run(app.clone(), edge.clone()),
        signing::run(app.clone(), edge),
        forget::run(app.clone()),
        erase::run(app.clone()),
        heads::run(app.clone()),
        deadline::run(app.clone()),
    );
}
