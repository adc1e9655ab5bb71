//! Leave to write to a cluster. What must hold: once a disable has been acknowledged, nothing is written any more that
//! was claimed before it.
//!
//! Whoever writes takes a shared lock in the control database, then looks whether the cluster is enabled, and lets go of
//! the lock when the target has committed. Whoever disables records that first and acknowledges it when it had the lock
//! for itself: what was on its way has ended by then, and what comes later finds the cluster disabled. No append ever
//! waits for a target by this: a target that does not answer holds up the answer to the disable alone.

use super::fault::DeployError;
use super::sql;
use headwater_events::ids::ClusterId;
use sqlx::postgres::{PgPool, PgTransaction};

/// On whose behalf a cluster is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// By the reconciler: only where the cluster is enabled.
    Standing,
    /// By an operator, who named the zone.
    Explicit,
}

/// Leave to commit, until this is given back.
pub(super) struct Permit(Option<PgTransaction<'static>>);

impl Permit {
    /// Takes it, or says that the cluster is disabled.
    pub(super) async fn take(
        control: &PgPool,
        cluster: ClusterId,
        order: Order,
    ) -> Result<Self, DeployError> {
        if order == Order::Explicit {
            return Ok(Self(None));
        }
        let mut held = control.begin_with(sql::PERMIT_BEGIN).await.map_err(DeployError::control)?;
        let permitted = sqlx::query_scalar::<_, bool>(sql::PERMIT).bind(cluster.as_uuid());
        match permitted.fetch_one(&mut *held).await.map_err(DeployError::control)? {
            true => Ok(Self(Some(held))),
            false => Err(DeployError::Disabled),
        }
    }

    /// Gives it back.
    pub(super) async fn end(self) {
        if let Some(held) = self.0
            && let Err(error) = held.rollback().await
        {
            tracing::debug!(%error, "the permit ended with its connection");
        }
    }
}

/// Waits until nothing is on its way to a cluster that was begun while it was enabled.
///
/// # Errors
/// When something is still on its way after a while, or the control database does not answer.
pub async fn writes_ended(control: &PgPool, cluster: ClusterId) -> Result<(), DeployError> {
    let wait = sqlx::query(sql::PERMITS_ENDED).bind(cluster.to_string());
    wait.execute(control).await.map_err(DeployError::control)?;
    Ok(())
}
