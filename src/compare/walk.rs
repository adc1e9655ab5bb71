//! The zones of an import, one after the other. What must hold: what is asked is what is here, and what the import could
//! not carry its report tells; a process that dies goes on after the last zone that was kept.

use super::{Listener, Names, sql, zone};
use crate::app::App;
use crate::deploy;
use crate::rebuild::{Difference, Keep, Phase, Progress, RebuildError, Watch};
use futures_util::{StreamExt, stream};
use headwater_events::dns::{DomainName, OwnerName, RrType};
use headwater_events::ids::{ClusterId, DomainId};
use headwater_events::migration::ImportCompareRequested;
use sqlx::Row;
use sqlx::postgres::PgPool;
use std::time::Duration;
use uuid::Uuid;

/// Zones that are looked up at once.
const PAGE_MAX_ZONES: i64 = 200;
/// Zones that are asked about at once: with their questions, what an old server may be asked at once.
const ZONES_AT_ONCE_COUNT: usize = 4;
/// How often it is told that the walk goes on.
const STEP_PAUSE: Duration = Duration::from_secs(10);
/// Under which the place is kept: zones are walked once.
const WALK: ClusterId = ClusterId::from_uuid(Uuid::nil());

/// Compares; gives nothing, since what differs was given to `keep`.
///
/// # Errors
/// When the control database does not answer, or there is nobody to compare with.
pub async fn import(
    app: &App,
    asked: &ImportCompareRequested,
    watch: Watch<'_>,
    keep: &impl Keep,
) -> Result<Vec<Difference>, RebuildError> {
    let old = Listener { name: "old".to_owned(), address: asked.old };
    let new = listeners(app).await?;
    let import = asked.import.as_uuid();
    let total: i64 = sqlx::query_scalar(sql::COUNT).bind(import).fetch_one(&app.pool).await?;
    let (mut after, mut done) = match keep.before(WALK).await {
        Some((zone, done)) => (zone.to_string(), done),
        None => (String::new(), 0),
    };
    watch(Progress { phase: Phase::Answers, done, total });
    loop {
        let query = sqlx::query(sql::ZONES).bind(import).bind(&after).bind(PAGE_MAX_ZONES);
        let rows = query.fetch_all(&app.pool).await?;
        let mut zones = Vec::with_capacity(rows.len());
        for row in &rows {
            after = row.try_get(0)?;
            let Ok(name) = DomainName::parse(&after) else { continue };
            if asked.wants(&name) {
                zones.push((name, DomainId::from_uuid(row.try_get(1)?)));
            } else {
                done += 1;
            }
        }
        if rows.is_empty() {
            watch(Progress { phase: Phase::Answers, done: total, total });
            return Ok(Vec::new());
        }
        let compared = zones.into_iter().map(|(name, domain)| {
            let (old, new) = (&old, &new);
            async move {
                let names = names(&app.pool, domain).await?;
                let compared = zone(old, new, &name, &names, !asked.ignore_ttl).await;
                Ok::<_, RebuildError>((name, compared))
            }
        });
        let mut compared = stream::iter(compared).buffered(ZONES_AT_ONCE_COUNT);
        loop {
            let one = tokio::select! {
                one = compared.next() => one,
                // A large zone takes long, and each of its questions has an end.
                () = tokio::time::sleep(STEP_PAUSE) => {
                    watch(Progress { phase: Phase::Answers, done: done.min(total), total });
                    continue;
                }
            };
            let Some(one) = one else { break };
            let (name, compared) = one?;
            done += 1;
            fail::fail_point!("compare.before_zone");
            keep.done(WALK, &name, compared.differences).await?;
            fail::fail_point!("compare.after_zone");
            watch(Progress { phase: Phase::Answers, done: done.min(total), total });
        }
    }
}

/// Where clients are answered from each cluster that is deployed to.
async fn listeners(app: &App) -> Result<Vec<Listener>, RebuildError> {
    let clusters = deploy::clusters(&app.pool).await?;
    let new: Vec<Listener> = clusters
        .into_iter()
        .filter(|cluster| cluster.enabled)
        .map(|cluster| Listener { address: cluster.front.unwrap_or(cluster.dns), name: cluster.name })
        .collect();
    match new.is_empty() {
        true => Err(RebuildError::Source(
            "no DNS cluster is enabled: there is nothing to compare with".to_owned(),
        )),
        false => Ok(new),
    }
}

/// The names of a domain with their types.
async fn names(pool: &PgPool, domain: DomainId) -> Result<Names, RebuildError> {
    let mut names = Names::new();
    let mut rows = sqlx::query(sql::NAMES).bind(domain.as_uuid()).fetch(pool);
    while let Some(row) = rows.next().await {
        let row = row?;
        let (key, owner): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let Ok(code) = u16::try_from(row.try_get::<i32, _>(2)?) else { continue };
        let Ok(owner) = OwnerName::from_canonical(&owner) else { continue };
        names.entry(key).or_insert_with(|| (owner, [].into())).1.insert(RrType::from_code(code));
    }
    // The apex is asked about whatever stands there.
    names.entry(String::new()).or_insert_with(|| (OwnerName::apex(), [].into()));
    Ok(names)
}
