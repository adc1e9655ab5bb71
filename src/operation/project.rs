//! Runs a projection that follows the log. Its rows and its cursor are written in
//! one transaction, the cursor first and only from where it was read: of two
//! processes that run the same page one finds no row and steps back. An event that
//! this program does not know halts the projection, visibly, until it is upgraded.

use super::sql;
use crate::app::App;
use crate::store::read::{PAGE_MAX_EVENTS, ReadError};
use headwater_events::codec::DecodeError;
use headwater_events::ids::Position;
use headwater_projections::follow::{Logged, Projection};
use std::time::Duration;
use tokio::time::Instant;

/// How often the log is looked at though nobody woke us.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How long a runner stays away after another one moved the cursor.
const FENCED_PAUSE: Duration = Duration::from_secs(1);
/// Pause after an error.
const ERROR_PAUSE: Duration = Duration::from_secs(1);

/// Why a projection does not move.
#[derive(Debug, thiserror::Error)]
pub enum ProjectError {
    /// The log could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// An event could not be read: the projection halts before it.
    #[error("halted at position {position}: {error}")]
    Halted {
        /// The event's position.
        position: Position,
        /// Why.
        error: DecodeError,
    },
    /// The rows that are there were made by a program with other rules: it halts until they are made anew.
    #[error(
        "halted: its rows are of version {found} and this program makes version {version}; run `headwater projection \
         rebuild {name}`"
    )]
    Outdated {
        /// Which projection.
        name: &'static str,
        /// The version of the rows that are there.
        found: i32,
        /// The version that this program makes.
        version: i32,
    },
    /// The database refused it or did not answer.
    #[error("the projection cannot be written: {0}")]
    Database(#[from] sqlx::Error),
}

/// What one step did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stepped {
    /// Events were applied; there may be more.
    Applied(Position),
    /// There is nothing to apply.
    AtHead(Position),
    /// Another process runs this projection.
    Fenced,
}

/// Runs until the process stops.
pub async fn run<P: Projection>(app: App, projection: P) {
    let mut head = app.commit.head().subscribe();
    let mut complained: Option<String> = None;
    // A process that ended may have left its complaint behind.
    let mut may_be_marked = true;
    let mut reached = None;
    while !app.stop.is_cancelled() {
        let stepped = step(&app, &projection).await;
        if let Ok(Stepped::Applied(at) | Stepped::AtHead(at)) = stepped {
            reached = Some(at);
        }
        // While it stands still, too: then it is the head that moves.
        if let Some(at) = reached {
            let lag = head.borrow().get().saturating_sub(at.get()).max(0);
            metrics::gauge!("cdn_projection_position", "projection" => P::NAME).set(at.get() as f64);
            metrics::gauge!("cdn_projection_lag_events", "projection" => P::NAME).set(lag as f64);
        }
        let (pause, seen) = match stepped {
            Ok(Stepped::Applied(_)) => {
                if complained.take().is_some() {
                    tracing::info!(projection = P::NAME, "the projection moves again");
                }
                continue;
            }
            Ok(Stepped::AtHead(at)) => {
                if may_be_marked && well(&app, P::NAME).await {
                    (complained, may_be_marked) = (None, false);
                }
                (POLL_INTERVAL, Some(at))
            }
            Ok(Stepped::Fenced) => (FENCED_PAUSE, None),
            Err(error) => {
                let text = error.to_string();
                if complained.as_ref() != Some(&text) {
                    tracing::error!(projection = P::NAME, %error, "the projection stands still");
                    complained = Some(text.clone());
                }
                may_be_marked = true;
                // Where the database is gone, the row that would show it is too; the log line stays.
                if let Err(error) = note(&app, P::NAME, &error, &text).await {
                    tracing::debug!(%error, "the projection's error cannot be shown in its row");
                }
                (ERROR_PAUSE, None)
            }
        };
        let wake = Instant::now() + pause;
        tokio::select! {
            () = app.stop.cancelled() => return,
            () = tokio::time::sleep_until(wake) => {}
            _ = head.wait_for(|head| seen.is_some_and(|seen| *head > seen)), if seen.is_some() => {}
        }
    }
}

/// Takes back what was noted; says whether that was done.
async fn well(app: &App, name: &str) -> bool {
    let done = sqlx::query(sql::CURSOR_WELL).bind(name).execute(&app.pool).await;
    done.inspect_err(|error| tracing::debug!(%error, "the projection cannot be shown to be well")).is_ok()
}

async fn note(app: &App, name: &str, error: &ProjectError, text: &str) -> Result<(), sqlx::Error> {
    let halted = matches!(error, ProjectError::Halted { .. } | ProjectError::Outdated { .. });
    let state = if halted { "halted" } else { "failing" };
    sqlx::query(sql::CURSOR_ERROR).bind(name).bind(state).bind(text).execute(&app.pool).await.map(|_| ())
}

/// Applies the next page.
///
/// # Errors
/// Why it does not move.
pub async fn step<P: Projection>(app: &App, projection: &P) -> Result<Stepped, ProjectError> {
    let at = cursor::<P>(app).await?;
    let mut page = Vec::new();
    for recorded in app.log.page(at, PAGE_MAX_EVENTS).await? {
        match recorded.decode() {
            Ok(event) => page.push(Logged { recorded, event }),
            // What stands before it is still applied.
            Err(_) if !page.is_empty() => break,
            Err(error) => return Err(ProjectError::Halted { position: recorded.position, error }),
        }
    }
    let Some(last) = page.last() else { return Ok(Stepped::AtHead(at)) };
    let to = last.recorded.position;
    let mut transaction = app.pool.begin_with(sql::STEP).await?;
    let moved = sqlx::query(sql::CURSOR_MOVE)
        .bind(P::NAME)
        .bind(P::VERSION)
        .bind(at.get())
        .bind(to.get())
        .execute(&mut *transaction)
        .await?;
    if moved.rows_affected() == 0 {
        transaction.rollback().await?;
        return Ok(Stepped::Fenced);
    }
    projection.apply(&mut transaction, &page).await?;
    fail::fail_point!("project.before_commit");
    transaction.commit().await?;
    fail::fail_point!("project.after_commit");
    projection.committed(to);
    Ok(Stepped::Applied(to))
}

async fn cursor<P: Projection>(app: &App) -> Result<Position, ProjectError> {
    let known: Option<i64> =
        sqlx::query_scalar(sql::CURSOR).bind(P::NAME).bind(P::VERSION).fetch_optional(&app.pool).await?;
    match known {
        Some(position) => Ok(Position::new(position)),
        None => {
            sqlx::query(sql::CURSOR_BEGIN).bind(P::NAME).bind(P::VERSION).execute(&app.pool).await?;
            let query = sqlx::query_scalar(sql::CURSOR).bind(P::NAME).bind(P::VERSION);
            if let Some(position) = query.fetch_optional(&app.pool).await? {
                return Ok(Position::new(position));
            }
            let query = sqlx::query_scalar(sql::CURSOR_VERSION).bind(P::NAME);
            let found = query.fetch_one(&app.pool).await?;
            Err(ProjectError::Outdated { name: P::NAME, found, version: P::VERSION })
        }
    }
}
