//! `powerdns` against the log and anew from it, zone by zone on every enabled
//! cluster: a zone is compared at the revision that is active there, and replaced
//! in one transaction, so that answers never stop and nobody sees half a zone.

use super::{Difference, Keep, Kind, Phase, Progress, RebuildError, Watch, sql};
use crate::app::App;
use crate::deploy::{DeployError, Target, clusters, deployed, rebuild_zone, strays, verify_zone};
use futures_util::future::try_join_all;
use headwater_events::dns::DomainName;
use headwater_events::ids::{ClusterId, DomainId};
use headwater_projections::powerdns::{Difference as Row, Row as ZoneRow};
use serde_json::{Value, json};
use std::sync::{Mutex, PoisonError};
use uuid::Uuid;

/// Lost zones of a cluster that are told.
const LOST_MAX_ZONES: usize = 1_000;

/// What is done with each zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Intent {
    /// Compare and change nothing.
    Verify,
    /// Render anew and replace what differs.
    Rebuild,
}

/// Walks over every deployed zone, or that of one domain, on every cluster or on one, from where an earlier walk ended. Tells `keep` what differed,
/// and gives what a comparison of all of them found beside them.
///
/// # Errors
/// When a database fails, or a target holds what this log does not know; zones before it are done.
pub async fn walk(
    app: &App,
    intent: Intent,
    (domain, cluster): (Option<&DomainName>, Option<ClusterId>),
    watch: Watch<'_>,
    keep: &impl Keep,
) -> Result<Vec<Difference>, RebuildError> {
    let phase = if intent == Intent::Verify { Phase::Compare } else { Phase::Switch };
    let targets = clusters(&app.pool).await?.into_iter();
    let targets = targets.filter(|one| one.enabled && cluster.is_none_or(|wanted| one.id == wanted));
    let targets = targets.map(Target::open).collect::<Result<Vec<_>, _>>()?;
    if targets.is_empty() && cluster.is_some() {
        let why = "the DNS cluster is disabled or gone: nothing is written to it".to_owned();
        return Err(DeployError::Refused(why).into());
    }
    let one = match domain {
        Some(name) => Some((holder(app, name).await?, name.clone())),
        None => None,
    };
    let total = match &one {
        Some(_) => i64::try_from(targets.len()).unwrap_or(i64::MAX),
        None => {
            let query = sqlx::query_scalar(sql::DEPLOYMENTS).bind(cluster.map(ClusterId::as_uuid));
            query.fetch_one(&app.pool).await?
        }
    };
    let mut before = 0;
    for target in &targets {
        before += keep.before(target.cluster.id).await.map_or(0, |(_, done)| done);
    }
    // The clusters side by side: none waits for another.
    let walked = Mutex::new((before, watch));
    let step = || {
        let mut walked = walked.lock().unwrap_or_else(PoisonError::into_inner);
        let (done, watch) = &mut *walked;
        watch(Progress { phase, done: *done, total });
        *done += 1;
    };
    let walks = targets.iter().map(|target| walk_cluster(app, intent, target, one.as_ref(), &step, keep));
    try_join_all(walks).await?;
    let (done, watch) = walked.into_inner().unwrap_or_else(PoisonError::into_inner);
    watch(Progress { phase, done, total });
    let mut lost = Vec::new();
    if intent == Intent::Verify && one.is_none() {
        for target in &targets {
            lost.extend(lost_zones(app, target).await?);
        }
    }
    Ok(lost)
}

/// Zones that a cluster serves for domains that the log does not have; they stand beside every deployment.
async fn lost_zones(app: &App, target: &Target) -> Result<Vec<Difference>, RebuildError> {
    let table = format!("powerdns of {}", target.cluster.name);
    let (mut lost, mut after) = (Vec::new(), Some(String::new()));
    while let Some(zone) = after {
        let page = strays(&app.pool, target, &zone).await?;
        let live = json!("it is served, and the log has no such domain");
        let told = page.strays.into_iter().filter(|stray| stray.lost).map(|stray| {
            let row = Difference::of_row(table.clone(), json!([stray.zone]), live.clone(), Value::Null);
            Difference { kind: Kind::Lost, ..row }
        });
        lost.extend(told.take(LOST_MAX_ZONES.saturating_sub(lost.len())));
        after = page.next;
    }
    Ok(lost)
}

async fn walk_cluster(
    app: &App,
    intent: Intent,
    target: &Target,
    one: Option<&(DomainId, DomainName)>,
    step: &(dyn Fn() + Sync),
    keep: &impl Keep,
) -> Result<(), RebuildError> {
    let cluster = target.cluster.id;
    let before = keep.before(cluster).await.map(|(zone, _)| zone);
    let mut page = match one {
        Some(_) if before.is_some() => Vec::new(),
        Some(one) => vec![one.clone()],
        None => deployed(&app.pool, cluster, before.as_ref()).await?,
    };
    while let Some((_, last)) = page.last().cloned() {
        for (id, name) in page {
            step();
            let found = match intent {
                Intent::Verify => verify_zone(&app.pool, target, id).await?,
                Intent::Rebuild => rebuild_zone(app, target, id).await?,
            };
            fail::fail_point!("rebuild.zone_done");
            keep.done(cluster, &name, told(&target.cluster.name, &name, &found)).await?;
        }
        page = match one {
            Some(_) => Vec::new(),
            None => deployed(&app.pool, cluster, Some(&last)).await?,
        };
    }
    Ok(())
}

async fn holder(app: &App, name: &DomainName) -> Result<DomainId, RebuildError> {
    let found: Option<Uuid> =
        sqlx::query_scalar(sql::DOMAIN).bind(name.as_str()).fetch_optional(&app.pool).await?;
    found.map(DomainId::from_uuid).ok_or_else(|| RebuildError::NoDomain(name.to_string()))
}

/// What differs of a zone: a row that is missing and one that is extra for the same name and type are one that changed.
fn told<'a>(cluster: &str, zone: &DomainName, rows: &'a [Row]) -> Vec<Difference> {
    let table = format!("powerdns of {cluster}");
    let about = |key: Value, live, expected| Difference::of_row(table.clone(), key, live, expected);
    let place = |row: &ZoneRow| json!([zone, row.name, row.rrtype]);
    let unexpected = |row: &'a Row| if let Row::Unexpected(row) = row { Some(row) } else { None };
    let mut extra: Vec<&ZoneRow> = rows.iter().filter_map(unexpected).collect();
    let mut told = Vec::new();
    for row in rows {
        told.push(match row {
            Row::ZoneMissing(_) => about(json!([zone]), Value::Null, json!("the whole zone")),
            Row::ZoneUnexpected(_) => about(json!([zone]), json!("the whole zone"), Value::Null),
            Row::Ledger(detail) => {
                about(json!([zone]), json!(detail), json!("what was written for its revision"))
            }
            Row::Ahead(detail) => {
                Difference { kind: Kind::Ahead, ..about(json!([zone]), json!(detail), Value::Null) }
            }
            Row::Missing(row) => {
                let same =
                    extra.iter().position(|other| (&other.name, &other.rrtype) == (&row.name, &row.rrtype));
                let live = same.map_or(Value::Null, |at| fields(extra.remove(at)));
                about(place(row), live, fields(row))
            }
            Row::Unexpected(_) => continue,
        });
    }
    told.extend(extra.into_iter().map(|row| about(place(row), fields(row), Value::Null)));
    told
}

/// A row by its columns; name and type are its key.
fn fields(row: &ZoneRow) -> Value {
    json!({
        "content": row.content,
        "ttl": row.ttl,
        "auth": row.auth,
        "ordername": row.ordername,
        "prio": row.prio,
        "disabled": row.disabled,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn live_and_expected_are_both_told() {
        let row = |name: &str, content: &str| ZoneRow {
            name: name.to_owned(),
            rrtype: Some("A".into()),
            content: Some(content.to_owned()),
            ttl: Some(300),
            auth: true,
            ordername: None,
            prio: None,
            disabled: false,
        };
        let zone = DomainName::parse("example.com").unwrap();
        let rows = [
            Row::Missing(row("www.example.com", "192.0.2.1")),
            Row::Missing(row("gone.example.com", "192.0.2.2")),
            Row::Unexpected(row("www.example.com", "192.0.2.66")),
            Row::Unexpected(row("new.example.com", "192.0.2.3")),
            Row::Ahead("it holds revision 9".to_owned()),
        ];
        let shown: Vec<String> = told("dns-1", &zone, &rows).iter().map(ToString::to_string).collect();
        let expected = [
            r#"powerdns of dns-1 ["example.com","www.example.com","A"]: content is "192.0.2.66", the log says "192.0.2.1""#,
            r#"powerdns of dns-1 ["example.com","gone.example.com","A"]: missing, the log says "#,
            r#"powerdns of dns-1 ["example.com"]: ahead: it holds revision 9: adopt it or discard it"#,
            r#"powerdns of dns-1 ["example.com","new.example.com","A"]: extra, "#,
        ];
        assert_eq!(shown.len(), expected.len(), "{shown:#?}");
        for (shown, expected) in shown.iter().zip(expected) {
            assert!(shown.starts_with(expected) && !shown.contains("null"), "{shown}");
        }
    }
}
