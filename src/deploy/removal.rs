//! Taking away what was deployed to a DNS cluster that is to go. What must hold: nothing but what this log wrote there is
//! taken away, and zones of others stay; nobody deploys to it meanwhile or later; a process that dies goes on, since what
//! is gone is not found again.

use super::cluster::{Target, clusters};
use super::fault::DeployError;
use super::permit;
use crate::app::App;
use crate::command::{Command, Meta};
use crate::rebuild::{Difference, Keep, Phase, Progress, RebuildError, Watch};
use headwater_events::actor::Caller;
use headwater_events::admin::AdminCommand;
use headwater_events::dns::DomainName;
use headwater_events::event::ClusterRemovalRequested;
use headwater_events::ids::ClusterId;
use headwater_projections::powerdns::sql as powerdns_sql;
use uuid::Uuid;

/// Zones that are taken away at once. Where that is too much for one statement, because they are large, it becomes less.
const BATCH_MAX_ZONES: i64 = 200;
/// Under which the place is kept: it is one walk.
const WALK: ClusterId = ClusterId::from_uuid(Uuid::nil());

/// Takes everything away, then forgets the cluster.
///
/// # Errors
/// When the cluster cannot be reached, or the control database does not answer.
pub async fn remove(
    app: &App,
    asked: &ClusterRemovalRequested,
    watch: Watch<'_>,
    keep: &impl Keep,
) -> Result<Vec<Difference>, RebuildError> {
    let Some(cluster) = clusters(&app.pool).await?.into_iter().find(|one| one.id == asked.cluster) else {
        // An earlier try came through, or another request.
        return Ok(Vec::new());
    };
    permit::writes_ended(&app.pool, cluster.id).await?;
    let target = Target::open(cluster)?;
    target.ensure_schema().await?;
    let mut done = keep.before(WALK).await.map_or(0, |(_, done)| done);
    let left: i64 = sqlx::query_scalar(powerdns_sql::LEDGER_COUNT)
        .fetch_one(&target.pool)
        .await
        .map_err(DeployError::target)?;
    let total = done + left;
    let mut batch = BATCH_MAX_ZONES;
    loop {
        watch(Progress { phase: Phase::Remove, done, total });
        fail::fail_point!("removal.before_batch");
        let query = sqlx::query_scalar::<_, String>(powerdns_sql::LEDGER_TAKE_AWAY).bind(batch);
        let gone = match query.fetch_all(&target.pool).await {
            Ok(gone) => gone,
            Err(error) if batch > 1 => {
                batch /= 2;
                tracing::warn!(%error, batch, "fewer zones are taken away at once");
                continue;
            }
            Err(error) => return Err(DeployError::target(error).into()),
        };
        fail::fail_point!("removal.after_batch");
        if gone.is_empty() {
            break;
        }
        for zone in gone.iter().filter_map(|name| DomainName::parse(name).ok()) {
            done += 1;
            keep.done(WALK, &zone, Vec::new()).await?;
        }
    }
    let zones = u64::try_from(done).unwrap_or(0);
    let command = AdminCommand::DeleteCluster { cluster: asked.cluster, retained: false, zones };
    let submitted = app.commit.submit(Caller::system(), Command::admin(command), Meta::internal()).await;
    target.pool.close().await;
    submitted.map(|_| Vec::new()).map_err(|error| RebuildError::Undo(error.to_string()))
}
