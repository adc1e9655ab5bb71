//! The rolling check: every zone is compared whole within a day, never fewer than 50 a minute, a changed one within
//! half a minute. What differs is put right in one transaction, read back, and told in the log; what the log does not
//! know is told and left alone; zones of others are neither.

use super::batch::{self, Context, Manner, Reach};
use super::claim;
use super::cluster::Target;
use super::compare::{self, Comparison, Found};
use super::fault::DeployError;
use super::hold::Hold;
use super::permit::Order;
use super::record::{self, Ended, Ending};
use super::sample::{self, Asked, Sample};
use super::sql;
use super::stray;
use super::target::{self, Pending};
use super::verify::{self, Check};
use crate::app::App;
use crate::config::Deploy;
use futures_util::StreamExt;
use headwater_events::admin::Outcome;
use headwater_events::dns::DomainName;
use headwater_events::event::{DriftMended, Stages};
use headwater_events::ids::{ClusterId, DomainId};
use headwater_projections::powerdns::{Difference, Plan, Row, SetHash, sql as powerdns_sql};
use sqlx::postgres::{PgConnection, PgPool};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// Within what time every zone is compared.
const WHOLE_ROUND_SECONDS: u64 = 24 * 3_600;
/// Zones that are compared in a minute at least, if there are as many.
const PER_MINUTE_MIN_ZONES: u64 = 50;
/// Within what time a changed zone is compared.
const CHANGED_WITHIN_SECONDS: u64 = 30;
/// Changed zones of one round.
const CHANGED_MAX_ZONES: i64 = 500;
/// Differences that are told in an event.
const SAMPLE_MAX_ROWS: usize = 5;
/// Deployments of one page.
pub const PAGE_MAX_DEPLOYMENTS: i64 = 500;

/// How often a round begins.
pub(super) fn interval(config: &Deploy) -> Duration {
    config.drift_check.min(Duration::from_secs(CHANGED_WITHIN_SECONDS / 2))
}

/// Zones of one round that did not change.
fn rolling(zones: u32, interval: Duration) -> u64 {
    let seconds = interval.as_secs().max(1);
    let daily = (u64::from(zones) * seconds).div_ceil(WHOLE_ROUND_SECONDS);
    daily.max((PER_MINUTE_MIN_ZONES * seconds).div_ceil(60))
}

/// One round of a cluster.
pub(super) async fn round(context: &Context) -> Result<(), DeployError> {
    let (app, cluster) = (&context.app, context.target.cluster.id);
    stray::look(&app.pool, &context.target).await?;
    let zones = compare::count(&app.pool, &context.target).await?;
    let most = i64::try_from(rolling(zones, interval(&app.config.deploy))).unwrap_or(i64::MAX);
    let changed = sqlx::query_scalar::<_, Uuid>(sql::CHECK_CHANGED).bind(cluster.as_uuid());
    let changed = changed.bind(CHANGED_MAX_ZONES).fetch_all(&app.pool).await.map_err(DeployError::control)?;
    let old = sqlx::query_scalar::<_, Uuid>(sql::CHECK_ROLLING).bind(cluster.as_uuid()).bind(most);
    let old = old
        .bind(interval(&app.config.deploy).as_secs_f64())
        .fetch_all(&app.pool)
        .await
        .map_err(DeployError::control)?;
    let mut due: Vec<DomainId> = changed.into_iter().chain(old).map(DomainId::from_uuid).collect();
    due.sort_unstable();
    due.dedup();
    for domain in &due {
        if app.stop.is_cancelled() {
            return Ok(());
        }
        let began = Instant::now();
        check(context, *domain).await?;
        // Half of the time at most: deployment goes first.
        tokio::time::sleep(began.elapsed()).await;
        let checked = sqlx::query(sql::CHECKED).bind(cluster.as_uuid()).bind([domain.as_uuid()]);
        checked.execute(&app.pool).await.map_err(DeployError::control)?;
    }
    Ok(())
}

/// Compares one zone and puts right what differs.
async fn check(context: &Context, domain: DomainId) -> Result<(), DeployError> {
    let (app, target) = (&context.app, &context.target);
    let Some(compared) = compare::compare(&app.pool, target, domain).await? else { return Ok(()) };
    match &compared.found {
        Found::Moving => Ok(()),
        Found::Ahead(why) => {
            let claim = compared.claim.clone();
            let ending = Ending::Ahead(format!("{why}: adopt it to continue above it, or discard it"));
            let ended = Ended { claim, ending, stages: Stages::default(), checksum: None };
            record::record(app, target.cluster.id, &[ended]).await
        }
        Found::Compared { differences, .. } if differences.is_empty() => Ok(()),
        Found::Compared { differences, plan, checksum } => {
            tracing::warn!(
                cluster = target.cluster.name,
                zone = %compared.claim.name,
                differences = differences.len(),
                "a zone differs from what was deployed; it is mended"
            );
            let mended = match plan {
                Some(plan) => mend(context, &compared, plan, *checksum).await?,
                None => anew(context, domain).await?,
            };
            match mended {
                Mended::Seen => told(context, &compared, differences).await,
                Mended::Unseen(why) => unseen(context, &compared, why).await,
                Mended::Not => Ok(()),
            }
        }
    }
}

/// What became of a zone that differed.
enum Mended {
    /// It is right, and every listener shows it.
    Seen,
    /// It is right in the database, but a listener does not show it.
    Unseen(String),
    /// It has moved on since, or its deployment says by itself what became of it.
    Not,
}

/// Writes a zone anew. What is wrong with it then, its deployment says.
async fn anew(context: &Context, domain: DomainId) -> Result<Mended, DeployError> {
    let manner = Manner { whole: [domain].into(), rebuild: true };
    let left = batch::deploy(context, &[domain], &manner, &Hold::none()).await?;
    match left.reached {
        Some(Reach::All) => Ok(Mended::Seen),
        Some(Reach::Nothing(why)) => Err(DeployError::Unreachable(why)),
        Some(Reach::Database(_)) | None => Ok(Mended::Not),
    }
}

/// Puts rows right in one transaction, unless the zone has moved on since, and reads them back from every listener.
async fn mend(
    context: &Context,
    compared: &Comparison,
    plan: &Plan,
    checksum: SetHash,
) -> Result<Mended, DeployError> {
    let target = &context.target;
    let Some(seen) = &compared.ledger else { return Ok(Mended::Not) };
    let mut transaction = target.pool.begin().await.map_err(DeployError::target)?;
    let zones = [(seen.name.clone(), seen.domain)];
    let ledgers = target::lock(&mut transaction, seen.log, &zones).await?;
    let (Some(now), Some(id)) = (ledgers.get(&seen.name), seen.zone_id) else { return Ok(Mended::Not) };
    if (now.domain, now.revision, now.generation, now.zone_id)
        != (seen.domain, seen.revision, seen.generation, seen.zone_id)
    {
        return Ok(Mended::Not);
    }
    let mut pending = Pending {
        delete: plan.delete.iter().map(|stored| stored.id).collect(),
        insert: plan.insert.iter().map(|row| (id, row.clone())).collect(),
    };
    pending.flush(&mut transaction).await?;
    target::clear_extras(&mut transaction, &[id]).await?;
    let put = sqlx::query(powerdns_sql::DOMAINS_PUT).bind([&seen.name]);
    put.execute(&mut *transaction).await.map_err(DeployError::target)?;
    let sum =
        sqlx::query(powerdns_sql::LEDGER_CHECKSUM).bind(&seen.name).bind(checksum.to_bytes().as_slice());
    sum.execute(&mut *transaction).await.map_err(DeployError::target)?;
    let samples = samples(&mut transaction, compared, plan, id).await?;
    target::commit(transaction, &context.app.pool, target.cluster.id, context.order).await?;
    read_back(context, compared, seen.serial, samples).await
}

/// What to ask to see what was mended.
async fn samples(
    connection: &mut PgConnection,
    compared: &Comparison,
    plan: &Plan,
    id: i32,
) -> Result<Vec<Sample>, DeployError> {
    let rows = plan.insert.iter().chain(plan.delete.iter().map(|stored| &stored.row));
    let mended: BTreeSet<(&str, &str)> =
        rows.filter_map(|row| Some((row.name.as_str(), row.rrtype.as_deref()?))).collect();
    let mut names: Vec<&str> = mended.iter().map(|(name, _)| *name).collect();
    names.dedup();
    let query = sqlx::query(powerdns_sql::RECORDS_OF_NAMES).bind(vec![id; names.len()]).bind(names);
    let found = query.fetch_all(connection).await.map_err(DeployError::target)?;
    let rows: Result<Vec<Row>, _> =
        found.iter().map(|row| target::stored_row(row).map(|(_, stored)| stored.row)).collect();
    Ok(sample::of_mended(&compared.claim.name, &mended, &rows.map_err(DeployError::target)?))
}

/// Reads back what was mended; each RRset is a check of its own, so that all of them are asked.
async fn read_back(
    context: &Context,
    compared: &Comparison,
    serial: u32,
    mut samples: Vec<Sample>,
) -> Result<Mended, DeployError> {
    let claim = &compared.claim;
    let mut snapshot = claim::snapshot(&context.app.pool).await?;
    let asked = Asked { domain: claim.domain, name_key: &claim.name_key, samples: &mut samples };
    sample::drop_uncertain(&mut snapshot, &mut [asked]).await?;
    snapshot.rollback().await.map_err(DeployError::control)?;
    let check = |samples| Check { zone: claim.name.clone(), serial: Some(serial), samples };
    let mut checks: Vec<Check> = samples.into_iter().map(|sample| check(vec![sample])).collect();
    if checks.is_empty() {
        checks.push(check(Vec::new()));
    }
    let mut answers = verify::verify(&context.target, checks, |_| true);
    while let Some((_, answer)) = answers.next().await {
        if let Some(Err(why)) = answer {
            return Ok(Mended::Unseen(why));
        }
    }
    Ok(Mended::Seen)
}

/// A mended zone that a listener does not show is a deployment that failed, and is tried again as one.
async fn unseen(context: &Context, compared: &Comparison, why: String) -> Result<(), DeployError> {
    let ending = Ending::Failed(format!("mended in the database, but not shown: {why}"));
    let ended = Ended { claim: compared.claim.clone(), ending, stages: Stages::default(), checksum: None };
    record::record(&context.app, context.target.cluster.id, &[ended]).await
}

async fn told(
    context: &Context,
    compared: &Comparison,
    differences: &[Difference],
) -> Result<(), DeployError> {
    let mended = DriftMended {
        rows: u32::try_from(differences.len()).unwrap_or(u32::MAX),
        sample: differences.iter().take(SAMPLE_MAX_ROWS).map(ToString::to_string).collect(),
    };
    let observed = record::observation(&compared.claim, Outcome::Mended(mended));
    record::append(&context.app, context.target.cluster.id, vec![observed]).await
}

/// Compares one zone with the log, at the revision that is active there. Changes nothing. An empty list also stands
/// for a zone that is just being deployed.
///
/// # Errors
/// When one of the databases fails.
pub async fn verify_zone(
    control: &PgPool,
    target: &Target,
    domain: DomainId,
) -> Result<Vec<Difference>, DeployError> {
    let compared = compare::compare(control, target, domain).await?;
    Ok(match compared.map(|compared| compared.found) {
        None | Some(Found::Moving) => Vec::new(),
        Some(Found::Ahead(why)) => vec![Difference::Ahead(why)],
        Some(Found::Compared { differences, .. }) => differences,
    })
}

/// Renders a zone anew, compares it and replaces what differs, in one transaction; says what differed before.
///
/// # Errors
/// When one of the databases fails, or the target holds what this log does not know.
pub async fn rebuild_zone(
    app: &App,
    target: &Target,
    domain: DomainId,
) -> Result<Vec<Difference>, DeployError> {
    let context = Context { app: app.clone(), target: target.clone(), order: Order::Explicit };
    let Some(compared) = compare::compare(&app.pool, target, domain).await? else { return Ok(Vec::new()) };
    let differences = match &compared.found {
        Found::Ahead(why) => return Err(DeployError::Refused(why.clone())),
        Found::Compared { differences, .. } if differences.is_empty() => return Ok(Vec::new()),
        Found::Compared { differences, .. } => differences.clone(),
        Found::Moving => Vec::new(),
    };
    let mut mended = Mended::Not;
    if let Found::Compared { plan: Some(plan), checksum, .. } = &compared.found {
        mended = mend(&context, &compared, plan, *checksum).await?;
    }
    if matches!(mended, Mended::Not) {
        mended = anew(&context, domain).await?;
    }
    match mended {
        Mended::Seen if !differences.is_empty() => told(&context, &compared, &differences).await?,
        Mended::Seen | Mended::Not => {}
        Mended::Unseen(why) => {
            unseen(&context, &compared, why.clone()).await?;
            return Err(DeployError::Failed(why));
        }
    }
    Ok(differences)
}

/// The next domains that a cluster has or should have, by name, for a walk over all of them.
///
/// # Errors
/// When the control database fails.
pub async fn deployed(
    control: &PgPool,
    cluster: ClusterId,
    after: Option<&DomainName>,
) -> Result<Vec<(DomainId, DomainName)>, DeployError> {
    let after = after.map_or("", DomainName::as_str);
    let page = claim::page(control, cluster, after, PAGE_MAX_DEPLOYMENTS).await?;
    Ok(page.into_iter().map(|claim| (claim.domain, claim.name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_zones_in_a_round() {
        for (zones, seconds, expected) in [(0, 15, 13), (50, 15, 13), (100_000, 15, 18), (1_000_000, 60, 695)]
        {
            assert_eq!(rolling(zones, Duration::from_secs(seconds)), expected, "{zones} {seconds}");
        }
    }
}
