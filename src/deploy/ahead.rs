//! A target that holds what this log does not know, as after a restore that lost events: nothing is written over it
//! until an operator says how to go on.

use super::batch::{self, Context, Manner};
use super::claim;
use super::cluster::Target;
use super::fault::DeployError;
use super::hold::Hold;
use super::permit::Order;
use super::{sql, target};
use crate::app::App;
use crate::command::{Command, Meta, SubmitError};
use headwater_events::actor::Caller;
use headwater_events::dns::DomainName;
use headwater_events::domain::{DomainCommand, DomainPatch};
use headwater_events::ids::DomainId;
use headwater_projections::powerdns;
use sqlx::postgres::PgPool;
use uuid::Uuid;

/// Why nothing was decided.
#[derive(Debug, thiserror::Error)]
pub enum DecideError {
    /// There is no such domain.
    #[error("there is no domain {0}")]
    NoDomain(DomainName),
    /// The domain's serial could not be raised.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// A database failed.
    #[error(transparent)]
    Deploy(#[from] DeployError),
}

/// The domain that holds a name.
pub(super) async fn domain_by_name(
    pool: &PgPool,
    name: &DomainName,
) -> Result<Option<DomainId>, DeployError> {
    let query = sqlx::query_scalar::<_, Uuid>(sql::DOMAIN_BY_NAME).bind(name.as_str());
    let found = query.fetch_optional(pool).await.map_err(DeployError::control)?;
    Ok(found.map(DomainId::from_uuid))
}

/// Continues above what the target holds: the domain's serial is raised over the one that is served, by `caller`, and
/// the revision that this makes is deployed.
///
/// # Errors
/// When the domain does not exist, the caller may not, or a database fails.
pub async fn adopt(
    app: &App,
    target: &Target,
    name: &DomainName,
    caller: Caller,
    meta: Meta,
) -> Result<(), DecideError> {
    let domain = domain_by_name(&app.pool, name).await?.ok_or_else(|| DecideError::NoDomain(name.clone()))?;
    let row = sqlx::query(powerdns::sql::LEDGER_READ).bind(name.as_str()).fetch_optional(&target.pool).await;
    let row = row.map_err(DeployError::target)?;
    let ledger = row.as_ref().map(target::ledger).transpose().map_err(DeployError::target)?;
    if let Some(ledger) = ledger {
        let patch =
            DomainPatch { serial_floor: Some(ledger.serial.wrapping_add(1)), ..DomainPatch::default() };
        let command = Command::Domain { name: name.clone(), command: DomainCommand::Patch(patch) };
        app.commit.submit(caller, command, meta).await?;
    }
    release(app, target, name, domain).await?;
    Ok(())
}

/// Writes over what the target holds with what this log wants.
///
/// # Errors
/// When the domain does not exist or a database fails.
pub async fn discard(app: &App, target: &Target, name: &DomainName) -> Result<(), DecideError> {
    let domain = domain_by_name(&app.pool, name).await?.ok_or_else(|| DecideError::NoDomain(name.clone()))?;
    release(app, target, name, domain).await?;
    let context = Context { app: app.clone(), target: target.clone(), order: Order::Explicit };
    let manner = Manner { whole: [domain].into(), rebuild: true };
    batch::deploy(&context, &[domain], &manner, &Hold::none()).await?;
    Ok(())
}

/// Lets the next deployment write over whatever is there, and brings it on.
async fn release(app: &App, target: &Target, name: &DomainName, domain: DomainId) -> Result<(), DeployError> {
    let mut connection = app.pool.acquire().await.map_err(DeployError::control)?;
    let platform = claim::platform(&mut connection).await?;
    let release = sqlx::query(powerdns::sql::LEDGER_RELEASE).bind(name.as_str()).bind(domain.as_uuid());
    release.bind(platform.log.as_uuid()).execute(&target.pool).await.map_err(DeployError::target)?;
    let retry = sqlx::query(sql::RETRY_ONE_NOW).bind(target.cluster.id.as_uuid()).bind(domain.as_uuid());
    retry.execute(&mut *connection).await.map_err(DeployError::control)?;
    Ok(())
}
