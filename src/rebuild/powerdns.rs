//! `powerdns` against the log and anew from it, zone by zone on every enabled
//! cluster: a zone is compared at the revision that is active there, and replaced
//! in one transaction, so that answers never stop and nobody sees half a zone.

use super::{Difference, Phase, Progress, RebuildError, Watch, sql};
use crate::app::App;
use crate::deploy::{Target, clusters, deployed, rebuild_zone, verify_zone};
use headwater_events::dns::DomainName;
use headwater_events::ids::DomainId;
use headwater_projections::powerdns::Difference as Row;
use serde_json::{Value, json};
use uuid::Uuid;

/// What is done with each zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// Compare and change nothing.
    Verify,
    /// Render anew and replace what differs.
    Rebuild,
}

/// Walks over every deployed zone, or that of one domain. Gives what differed.
///
/// # Errors
/// When a database fails, or a target holds what this log does not know; zones before it are done.
pub async fn walk(
    app: &App,
    intent: Intent,
    domain: Option<&DomainName>,
    watch: Watch<'_>,
) -> Result<Vec<Difference>, RebuildError> {
    let phase = if intent == Intent::Verify { Phase::Compare } else { Phase::Switch };
    let targets = clusters(&app.pool).await?.into_iter().filter(|cluster| cluster.enabled);
    let targets = targets.map(Target::open).collect::<Result<Vec<_>, _>>()?;
    let one = match domain {
        Some(name) => Some((holder(app, name).await?, name.clone())),
        None => None,
    };
    let total = match &one {
        Some(_) => i64::try_from(targets.len()).unwrap_or(i64::MAX),
        None => sqlx::query_scalar(sql::DEPLOYMENTS).fetch_one(&app.pool).await?,
    };
    let (mut done, mut differences) = (0, Vec::new());
    for target in &targets {
        let mut page = match &one {
            Some(one) => vec![one.clone()],
            None => deployed(&app.pool, target.cluster.id, None).await?,
        };
        while let Some((_, last)) = page.last().cloned() {
            for (id, name) in page {
                watch(Progress { phase, done, total });
                let found = match intent {
                    Intent::Verify => verify_zone(&app.pool, target, id).await?,
                    Intent::Rebuild => rebuild_zone(app, target, id).await?,
                };
                differences.extend(found.iter().map(|row| told(&target.cluster.name, &name, row)));
                done += 1;
            }
            page = match one {
                Some(_) => Vec::new(),
                None => deployed(&app.pool, target.cluster.id, Some(&last)).await?,
            };
        }
    }
    watch(Progress { phase, done, total });
    Ok(differences)
}

async fn holder(app: &App, name: &DomainName) -> Result<DomainId, RebuildError> {
    let found: Option<Uuid> =
        sqlx::query_scalar(sql::DOMAIN).bind(name.as_str()).fetch_optional(&app.pool).await?;
    found.map(DomainId::from_uuid).ok_or_else(|| RebuildError::NoDomain(name.to_string()))
}

fn told(cluster: &str, zone: &DomainName, row: &Row) -> Difference {
    let (live, expected) = match row {
        Row::Missing(row) => (Value::Null, json!(row.to_string())),
        Row::Unexpected(row) => (json!(row.to_string()), Value::Null),
        other => (json!(other.to_string()), Value::Null),
    };
    Difference { table: format!("powerdns of {cluster}"), key: json!([zone]), live, expected }
}
