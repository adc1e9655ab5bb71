//! From ready edges to what DNS answers for proxied names, and from deleted names to edges that forget them.
//!
//! One replica at a time, by a lease, looks again and again: `facts` of the edges → `ready` says which visitors may be
//! sent to → where that differs from what was published last, the difference becomes an event. `zone` makes the
//! platform's own zone, `leave` ends the serving of names that DNS has not answered with for long enough.
//!
//! What must hold: nothing is published that is not ready; lost heartbeats never empty what is published; a name leaves
//! the edges only after it left DNS.

mod facts;
mod leave;
mod ready;
pub mod sql;
mod zone;

pub use facts::{Facts, load};
pub use ready::{CellFacts, EdgeFacts, NotReady, Proposal, alarms, propose, readiness};

use headwater_events::actor::Caller;
use headwater_events::admin::AdminCommand;
use headwater_events::edge::Endpoints;
use std::time::Duration;

use crate::app::App;
use crate::command::{Command, Meta, SubmitError};
use crate::deploy::{DeployError, Lease};

/// How often the edges are looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// The lease of the one that looks.
const LEASE_NAME: &str = "placement";

/// Why a look came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum PlacementError {
    /// The database does not answer.
    #[error("the control database did not answer: {0}")]
    Database(#[from] sqlx::Error),
    /// The lease cannot be had.
    #[error(transparent)]
    Lease(#[from] DeployError),
    /// The log did not take what was decided.
    #[error(transparent)]
    Submit(#[from] SubmitError),
}

/// Runs until the process stops.
pub async fn run(app: App) {
    let mut lease = Lease::new(LEASE_NAME.to_owned());
    let mut damper = Damper::default();
    while !app.stop.is_cancelled() {
        if let Err(error) = turn(&app, &mut lease, &mut damper).await {
            tracing::warn!(%error, "the placement of visitors waits");
        }
        tokio::select! {
            () = app.stop.cancelled() => {}
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
        }
    }
    lease.end(&app.pool).await;
}

async fn turn(app: &App, lease: &mut Lease, damper: &mut Damper) -> Result<(), PlacementError> {
    if !lease.keep(&app.pool).await? {
        *damper = Damper::default();
        return Ok(());
    }
    publish(app, damper).await?;
    leave::turn(app).await
}

/// What a health that comes and goes must show twice in a row before it counts.
#[derive(Debug, Default)]
struct Damper(Option<Endpoints>);

impl Damper {
    /// Whether a proposal is to be carried out now.
    fn lets(&mut self, proposal: &Proposal) -> bool {
        let again = self.0.as_ref() == Some(&proposal.endpoints);
        self.0 = Some(proposal.endpoints.clone());
        again || proposal.at_once
    }
}

async fn publish(app: &App, damper: &mut Damper) -> Result<(), PlacementError> {
    let Some(name) = &app.config.sites.platform_zone else { return Ok(()) };
    if !zone::ensure(app, name).await? {
        return Ok(());
    }
    let facts = load(&app.pool).await?;
    let Some(proposal) = propose(&facts, name, app.config.sites.answer_ttl) else {
        damper.0 = None;
        return Ok(());
    };
    if !damper.lets(&proposal) {
        return Ok(());
    }
    let why = proposal.why.join("; ");
    let command = AdminCommand::SetEndpoints { endpoints: proposal.endpoints, why: proposal.why };
    let outcome = app.commit.submit(Caller::system(), Command::admin(command), Meta::internal()).await?;
    if outcome.changed {
        tracing::info!(why, "what DNS answers for proxied names changes");
    }
    Ok(())
}
