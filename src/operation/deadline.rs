//! Ends operations in ways that the facts of the log alone do not tell: a target
//! is out of service, or the deadline has passed. It only submits what it decided;
//! the log is asked once more whether the operation is still open.

use super::sql;
use crate::app::App;
use crate::command::{Command, Meta};
use futures_util::future::join_all;
use headwater_events::actor::Caller;
use headwater_events::admin::AdminCommand;
use headwater_events::dns::DomainName;
use headwater_events::event::{OperationError, OperationFinished};
use headwater_events::ids::{ClusterId, DomainId, OperationId, TenantId};
use serde::Deserialize;
use sqlx::Row;
use sqlx::types::Json;
use std::time::Duration;
use uuid::Uuid;

/// How often open operations are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Operations that one look ends, at most.
const LOOK_MAX_OPERATIONS: i64 = 200;
/// How long the leader leads without saying so again.
const LEASE_SECONDS: f64 = 5.0;
/// The lease of the one leader.
const LEASE_NAME: &str = "operations.deadline";

/// A target of an operation, as it is now.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct TargetView {
    /// Which.
    pub id: ClusterId,
    /// Its name.
    pub name: String,
    /// Whether it has verified the operation's revision or a later one.
    pub verified: bool,
    /// Whether it is deployed to.
    pub enabled: bool,
    /// Whether it is enabled and was reached within the last 60 s.
    pub in_service: bool,
    /// The deployment's state.
    pub state: Option<String>,
    /// The deployment's last error.
    pub error: Option<String>,
    /// Tries so far.
    pub attempts: Option<i64>,
    /// When it is tried again.
    pub next_attempt_at: Option<String>,
}

/// Runs until the process stops.
pub async fn run(app: App) {
    let owner = Uuid::now_v7();
    while !app.stop.is_cancelled() {
        let more = match look(&app, owner).await {
            Ok(more) => more,
            Err(error) => {
                tracing::warn!(%error, "open operations cannot be looked at");
                false
            }
        };
        if !more {
            tokio::select! {
                () = app.stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
            }
        }
    }
}

/// One look; true when a full set was ended and there may be more.
///
/// # Errors
/// When the database does not answer.
pub async fn look(app: &App, owner: Uuid) -> Result<bool, sqlx::Error> {
    let lease: Option<i64> = sqlx::query_scalar(sql::LEASE)
        .bind(LEASE_NAME)
        .bind(owner)
        .bind(LEASE_SECONDS)
        .fetch_optional(&app.pool)
        .await?;
    if lease.is_none() {
        return Ok(false);
    }
    let deadline = app.config.operations.deadline.as_secs_f64();
    let query = sqlx::query(sql::OVERDUE).bind(deadline).bind(LOOK_MAX_OPERATIONS);
    let rows = query.fetch_all(&app.pool).await?;
    let mut commands = Vec::new();
    for row in &rows {
        let operation = OperationId::from_uuid(row.try_get(0)?);
        let Json(targets): Json<Vec<TargetView>> = row.try_get(5)?;
        let Some(finished) = verdict(operation, &targets, row.try_get(4)?) else { continue };
        let domain: Option<&str> = row.try_get(2)?;
        let name = domain.and_then(|name| DomainName::parse(name).ok());
        commands.push(AdminCommand::FinishOperation {
            domain: row.try_get::<Option<Uuid>, _>(1)?.map(DomainId::from_uuid).zip(name),
            tenant: row.try_get::<Option<Uuid>, _>(3)?.map(TenantId::from_uuid),
            finished,
        });
    }
    for row in sqlx::query(sql::CLUSTERS).bind(deadline).fetch_all(&app.pool).await? {
        let (id, cluster) = (OperationId::from_uuid(row.try_get(0)?), ClusterId::from_uuid(row.try_get(1)?));
        let (name, error): (String, Option<String>) = (row.try_get(2)?, row.try_get(5)?);
        if let Some(finished) = cluster_verdict(id, cluster, &name, row.try_get(3)?, row.try_get(4)?, error) {
            commands.push(AdminCommand::FinishOperation { domain: None, tenant: None, finished });
        }
    }
    let full = i64::try_from(commands.len()).is_ok_and(|n| n >= LOOK_MAX_OPERATIONS);
    let submitted = commands
        .into_iter()
        .map(|command| app.commit.submit(Caller::system(), Command::admin(command), Meta::internal()));
    let mut all_ended = true;
    for outcome in join_all(submitted).await {
        if let Err(error) = outcome {
            tracing::warn!(%error, "an operation could not be ended; trying again");
            all_ended = false;
        }
    }
    // The projection has to see what was just ended before another look is worth it.
    Ok(full && all_ended && wait_for_projection(app).await)
}

async fn wait_for_projection(app: &App) -> bool {
    let head = app.commit.head().get();
    let mut moved = app.progress.subscribe();
    let caught_up = moved.wait_for(|position| *position >= head);
    tokio::time::timeout(LOOK_INTERVAL, caught_up).await.is_ok_and(|found| found.is_ok())
}

/// How an operation on a domain ends, if it has to.
pub fn verdict(operation: OperationId, targets: &[TargetView], overdue: bool) -> Option<OperationFinished> {
    let in_service = || targets.iter().filter(|target| target.in_service);
    let done = in_service().next().is_some() && in_service().all(|target| target.verified);
    let away: Vec<ClusterId> =
        targets.iter().filter(|t| !t.in_service && !t.verified).map(|target| target.id).collect();
    if done {
        let state = "succeeded".into();
        return Some(OperationFinished { operation, state, partial: away, error: None, result: None });
    }
    if !overdue {
        return None;
    }
    // Nobody waits for a disabled one.
    let lagging: Vec<&TargetView> =
        targets.iter().filter(|target| target.enabled && !target.verified).collect();
    let detail = if !targets.iter().any(|target| target.enabled) {
        "no DNS cluster is enabled".to_owned()
    } else {
        let tell = |target: &&TargetView| {
            let service = if target.in_service { "" } else { " (out of service)" };
            let why = target.error.as_deref().or(target.state.as_deref()).unwrap_or("nothing is known of it");
            format!("{}{service}: {why}", target.name)
        };
        format!("not verified in time by {}", lagging.iter().map(tell).collect::<Vec<_>>().join("; "))
    };
    let error = OperationError {
        code: "deadline_exceeded".into(),
        detail,
        target: lagging.first().map(|target| target.id),
    };
    let state = "failed".into();
    Some(OperationFinished { operation, state, partial: away, error: Some(error), result: None })
}

/// How an operation that brings a cluster up to date ends: when every domain that is meant to be there
/// is current, or was verified since; it has no deadline while its cluster answers.
fn cluster_verdict(
    operation: OperationId,
    cluster: ClusterId,
    name: &str,
    lags: bool,
    unreached: bool,
    error: Option<String>,
) -> Option<OperationFinished> {
    if !lags {
        return Some(OperationFinished {
            operation,
            state: "succeeded".into(),
            partial: Vec::new(),
            error: None,
            result: None,
        });
    }
    if !unreached {
        return None;
    }
    let why = error.unwrap_or_else(|| "it was not reached".into());
    let error = OperationError {
        code: "deadline_exceeded".into(),
        detail: format!("{name} is out of service: {why}"),
        target: Some(cluster),
    };
    let (state, partial) = ("failed".into(), vec![cluster]);
    Some(OperationFinished { operation, state, partial, error: Some(error), result: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(n: u128, verified: bool, in_service: bool) -> TargetView {
        TargetView {
            id: ClusterId::from_uuid(Uuid::from_u128(n)),
            name: format!("dns-{n}"),
            verified,
            enabled: true,
            in_service,
            state: Some("failed".into()),
            error: Some("no route".into()),
            attempts: Some(3),
            next_attempt_at: None,
        }
    }

    #[test]
    fn an_operation_ends_by_its_targets_in_service_or_by_its_deadline() {
        let id = OperationId::from_uuid(Uuid::from_u128(9));
        let of = |targets: &[TargetView], overdue| verdict(id, targets, overdue);
        // One lags and is in service: wait; at the deadline it is named.
        let lagging = [target(1, true, true), target(2, false, true)];
        assert_eq!(of(&lagging, false), None);
        let failed = of(&lagging, true).unwrap();
        assert_eq!((failed.state.as_str(), failed.partial.len()), ("failed", 0));
        let error = failed.error.unwrap();
        assert_eq!(error.target, Some(lagging[1].id));
        assert!(error.detail.contains("dns-2: no route") && !error.detail.contains("dns-1"), "{error:?}");
        // It lags and is out of service: done without it.
        let away = [target(1, true, true), target(2, false, false)];
        let done = of(&away, false).unwrap();
        assert_eq!((done.state.as_str(), done.partial), ("succeeded", vec![away[1].id]));
        // Nobody is in service: nobody has verified it where it counts.
        assert_eq!(of(&[target(1, false, false)], false), None);
        assert_eq!(of(&[target(1, false, false)], true).unwrap().state, "failed");
        // A disabled one is out of service: it is not waited for and not blamed, but told.
        let disabled = |n, verified| TargetView { enabled: false, ..target(n, verified, false) };
        let without = [target(1, true, true), disabled(2, false), disabled(3, true)];
        let done = of(&without, false).unwrap();
        assert_eq!((done.state.as_str(), done.partial), ("succeeded", vec![without[1].id]));
        let late = of(&[target(1, false, true), disabled(2, false)], true).unwrap();
        assert_eq!(late.partial.len(), 1);
        assert!(!late.error.unwrap().detail.contains("dns-2"));
        // None is enabled: nothing is served, whatever was verified once.
        assert_eq!(of(&[], true).unwrap().error.unwrap().detail, "no DNS cluster is enabled");
        assert_eq!(of(&[disabled(1, true)], false), None);
        let none = of(&[disabled(1, true), disabled(2, false)], true).unwrap();
        assert_eq!((none.state.as_str(), none.partial.len()), ("failed", 1));
        assert_eq!(none.error.unwrap().detail, "no DNS cluster is enabled");
    }
}
