//! Level-triggered deployment: a worker per DNS cluster makes what is active what is desired.
//!
//! `claim` what is due → `load` and render it → `target` writes it, behind the `fence` and with a
//! `permit` → `verify` reads it back over
//! `dns` → `record` says so in the log; `batch` is that way for many domains, `worker` drives it with what it has on `hold`. `drift` and
//! `compare` look at whole zones, `stray` at zones that nobody deployed, `ahead` decides about what the log does not know, `probe` tests a cluster.

mod ahead;
mod batch;
mod claim;
mod cluster;
mod compare;
pub mod dns;
mod drift;
mod fault;
mod fence;
mod hold;
mod lease;
mod load;
mod permit;
mod probe;
mod record;
mod removal;
mod sample;
mod spacing;
pub mod sql;
mod stray;
mod target;
mod verify;
mod worker;
mod zone;

pub use ahead::{DecideError, adopt, discard};
pub(crate) use cluster::options;
pub use cluster::{ClusterRow, TARGET_MIGRATIONS, Target, clusters, database_answers};
pub use drift::{deployed, rebuild_zone, verify_zone};
pub use fault::DeployError;
pub use fence::serial_before;
pub use lease::Lease;
pub use permit::writes_ended;
pub use probe::{TestReport, TestStep, test_cluster};
pub use removal::remove;
pub use stray::{Page, Stray, strays};

use crate::app::App;
use crate::pace;
use headwater_events::ids::ClusterId;
use std::collections::HashMap;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A worker that runs.
struct Running {
    cluster: ClusterRow,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

/// Runs a worker for every enabled cluster until the process stops. Clusters come and go by the log.
pub async fn run(app: App) {
    let mut head = app.commit.head().subscribe();
    let mut running: HashMap<ClusterId, Running> = HashMap::new();
    loop {
        match clusters(&app.pool).await {
            Ok(found) => follow(&app, found, &mut running),
            Err(error) => tracing::warn!(%error, "the DNS clusters cannot be read; trying again"),
        }
        if !pace::next_look(&app, &mut head, false).await {
            break;
        }
    }
    for (_, worker) in running {
        worker.stop.cancel();
        if let Err(error) = worker.task.await {
            tracing::error!(cluster = worker.cluster.name, %error, "a worker broke off");
        }
    }
}

/// Starts and stops workers so that each enabled cluster has one that knows it as it is.
fn follow(app: &App, found: Vec<ClusterRow>, running: &mut HashMap<ClusterId, Running>) {
    running.retain(|id, worker| {
        let same = found.iter().any(|cluster| cluster.id == *id && *cluster == worker.cluster);
        if !same || worker.task.is_finished() {
            worker.stop.cancel();
        }
        // A worker that is told to stop finishes what is under way; its successor waits for the lease.
        same && !worker.task.is_finished()
    });
    for cluster in found.into_iter().filter(|cluster| cluster.enabled) {
        running.entry(cluster.id).or_insert_with(|| {
            let stop = app.stop.child_token();
            let task = tokio::spawn(worker::run(app.clone(), cluster.clone(), stop.clone()));
            Running { cluster, stop, task }
        });
    }
}
