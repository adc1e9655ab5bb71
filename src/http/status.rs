//! `GET /status` (administrators): what is wrong now, and nothing else.

use axum::Json;
use axum::extract::State;
use headwater_events::actor::{Resource, Verb};
use headwater_events::ids::Position;
use serde::Serialize;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::auth::Authenticated;
use super::dto::webhook::WebhookStatus;
use super::query::{NoQuery, Query};
use crate::app::App;
use crate::placement;
use crate::query::edges::{self, StaleEdge};
use crate::query::status::{
    self, FailingDeployment, LaneStatus, LostDelegation, PauseStatus, StrayZones, TargetStatus,
};
use crate::query::webhooks;
use crate::rebuild::{self, Standing};

/// How long a deployment may wait before it counts as wrong, in seconds.
const WAIT_MAX_SECONDS: i64 = 30;
/// How long work on whole projections may be open before it is told.
const BULK_WAIT_MAX_SECONDS: i64 = 300;
/// How far a projection may be behind before it counts as wrong, in events.
const LAG_MAX_EVENTS: i64 = 1_000;

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(get))
}

/// What is wrong now.
#[derive(Debug, Serialize, ToSchema)]
struct Status {
    /// Nothing is wrong.
    ok: bool,
    /// What is, in a sentence each.
    problems: Vec<String>,
    /// The log: its short id and its head.
    log: String,
    #[schema(value_type = i64)]
    head: Position,
    /// Targets, and what waits for them.
    targets: Vec<TargetStatus>,
    /// Deployments that do not come along.
    failing: Vec<FailingDeployment>,
    /// Zones on targets that somebody else wrote; they are never touched.
    foreign_zones: Vec<StrayZones>,
    /// Zones that Headwater wrote for domains that this log does not have, as after a restore. They are served as they
    /// were, and never touched.
    lost_zones: Vec<StrayZones>,
    /// Where the projections stand.
    #[schema(value_type = Vec<Object>)]
    projections: Vec<Standing>,
    /// Lanes with operations that have not ended.
    lanes: Vec<LaneStatus>,
    /// What is paused.
    paused: Vec<PauseStatus>,
    /// Enabled edges that are silent, whose identity ends soon or is used twice, whose disk is damaged, or that hold
    /// changes which this log does not know.
    edges: Vec<StaleEdge>,
    /// Why DNS may send visitors to edges that are not ready, or to none.
    placement: Vec<String>,
    /// Domains that their parents do not delegate to the platform any more, the newest first. They are served on: whose
    /// they are is a matter of their owners, and makes nothing wrong here.
    delegations_lost: Vec<LostDelegation>,
    /// Webhooks that have failed for more than a minute. A tenant's is a matter of that tenant: it makes nothing wrong here.
    webhooks: Vec<WebhookStatus>,
    /// How many events have not been looked at for webhooks yet.
    webhooks_lag: i64,
}

/// What is wrong now.
#[utoipa::path(get, path = "/api/status", tag = "status", responses((status = 200, body = Status)))]
async fn get(
    State(app): State<App>,
    auth: Authenticated,
    _: Query<NoQuery>,
) -> Result<Json<Status>, Problem> {
    auth.may(Verb::Read, Resource::Platform, "the status")?;
    let meta = app.log.meta().await?;
    let mut status = Status {
        ok: true,
        problems: Vec::new(),
        log: meta.log.short(),
        head: meta.head,
        targets: status::targets(&app.pool).await?,
        failing: status::failing(&app.pool).await?,
        foreign_zones: status::strays(&app.pool, false).await?,
        lost_zones: status::strays(&app.pool, true).await?,
        projections: rebuild::list(&app.pool).await?,
        lanes: status::lanes(&app.pool).await?,
        paused: status::pauses(&app.pool).await?,
        edges: edges::stale(&app.pool).await?,
        placement: placed(&app).await?,
        delegations_lost: status::delegations_lost(&app.pool).await?,
        webhooks: webhooks::failing(&app.pool).await?.into_iter().map(WebhookStatus::from).collect(),
        webhooks_lag: webhooks::scan_lag(&app.pool).await?,
    };
    status.problems = problems(&status);
    status.ok = status.problems.is_empty();
    Ok(Json(status))
}

async fn placed(app: &App) -> Result<Vec<String>, Problem> {
    let facts = placement::load(&app.pool).await?;
    Ok(placement::alarms(&facts, app.config.sites.platform_zone.as_ref()))
}

/// What an edge says of its own host.
fn host_problems(edge: &StaleEdge) -> Vec<String> {
    let (name, mut problems) = (&edge.name, Vec::new());
    if let Some(first) = edge.damaged.first() {
        let more = match edge.damaged.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more files"),
        };
        problems.push(format!(
            "the disk of the edge {name} is damaged: {first}{more}; it serves what it had read and makes them whole again"
        ));
    }
    if let Some(what) = &edge.ahead {
        problems.push(format!("the edge {name} is ahead of this log: {what}"));
    }
    problems
}

fn target_problems(target: &TargetStatus) -> Vec<String> {
    let mut problems = Vec::new();
    if target.state == "enabled" && !target.in_service {
        let why = target.last_error.as_deref().unwrap_or("it was not reached within the last minute");
        problems.push(format!("{} is out of service: {why}", target.name));
    }
    if target.state == "enabled" && target.oldest_pending_seconds > WAIT_MAX_SECONDS {
        problems.push(format!(
            "{}: {} deployments wait, the oldest for {} s",
            target.name, target.pending, target.oldest_pending_seconds
        ));
    }
    if target.failing > 0 {
        problems.push(format!("{}: {} deployments fail", target.name, target.failing));
    }
    if target.ahead > 0 {
        problems.push(format!(
            "{}: {} zones hold what this log does not know; adopt or discard each",
            target.name, target.ahead
        ));
    }
    problems
}

fn problems(status: &Status) -> Vec<String> {
    let mut problems = Vec::new();
    problems.extend(status.targets.iter().flat_map(target_problems));
    let enabled = status.targets.iter().any(|target| target.state == "enabled");
    if !status.targets.is_empty() && !enabled {
        problems
            .push("no DNS cluster is enabled, nothing is deployed: headwater cluster enable NAME".to_owned());
    }
    let slow = |lane: &&LaneStatus| {
        lane.oldest_seconds
            > if lane.lane == "bulk_maintenance" { BULK_WAIT_MAX_SECONDS } else { WAIT_MAX_SECONDS }
    };
    for lane in status.lanes.iter().filter(slow) {
        problems.push(format!(
            "lane {}: {} operations are open, the oldest for {} s",
            lane.lane, lane.open, lane.oldest_seconds
        ));
    }
    for zones in &status.foreign_zones {
        problems.push(format!("{} holds {} zones that somebody else wrote", zones.target, zones.count));
    }
    for zones in &status.lost_zones {
        problems.push(format!(
            "{} serves {} zones of domains that this log does not have ({}): create each domain again, then adopt it to \
             go on above what is served, or discard it",
            zones.target,
            zones.count,
            zones.zones.join(", ")
        ));
    }
    for projection in &status.projections {
        if projection.state != "live" || projection.lag > LAG_MAX_EVENTS {
            let why = projection.last_error.as_deref().unwrap_or("it follows");
            let (name, lag, state) = (&projection.name, projection.lag, &projection.state);
            problems.push(format!("projection {name} is {state}, {lag} events behind: {why}"));
        }
    }
    for pause in &status.paused {
        problems.push(format!("deployments are paused ({} {}): {}", pause.scope, pause.id, pause.reason));
    }
    for edge in &status.edges {
        let name = &edge.name;
        match edge.heartbeat_at {
            Some(at) if edge.silent => problems.push(format!("the edge {name} is silent since {at}")),
            None if edge.silent => {
                problems.push(format!("the edge {name} has not been heard of since it registered"))
            }
            _ => {}
        }
        if edge.identity_ends {
            problems.push(format!("the identity of the edge {name} ends within a day and was not renewed"));
        }
        if let Some(sign) = &edge.cloned {
            problems
                .push(format!("the identity of the edge {name} seems to be used twice ({sign}): rotate it"));
        }
    }
    problems.extend(status.edges.iter().flat_map(host_problems));
    problems.extend(status.placement.iter().cloned());
    for hook in status.webhooks.iter().filter(|hook| hook.tenant.is_none()) {
        let why = hook.error.as_deref().unwrap_or("nothing is known of why");
        problems.push(format!("the webhook {} of the platform fails since {}: {why}", hook.name, hook.since));
    }
    if status.webhooks_lag > LAG_MAX_EVENTS {
        problems.push(format!("webhooks are {} events behind", status.webhooks_lag));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(state: &'static str, lane: &str, oldest_seconds: i64) -> Vec<String> {
        let target = TargetStatus {
            id: uuid::Uuid::nil(),
            name: "dns-1".into(),
            state,
            in_service: state == "enabled",
            pending: 0,
            oldest_pending_seconds: 0,
            failing: 0,
            ahead: 0,
            reached_at: None,
            last_error: None,
        };
        problems(&Status {
            ok: true,
            problems: Vec::new(),
            log: String::new(),
            head: Position::ZERO,
            targets: vec![target],
            edges: Vec::new(),
            placement: Vec::new(),
            delegations_lost: Vec::new(),
            webhooks: Vec::new(),
            webhooks_lag: 0,
            failing: Vec::new(),
            foreign_zones: Vec::new(),
            lost_zones: Vec::new(),
            projections: Vec::new(),
            lanes: vec![LaneStatus { lane: lane.into(), open: 3, oldest_seconds }],
            paused: Vec::new(),
        })
    }

    #[test]
    fn what_stands_still_is_told() {
        assert_eq!(told("enabled", "runtime", WAIT_MAX_SECONDS), Vec::<String>::new());
        assert_eq!(told("enabled", "bulk_maintenance", BULK_WAIT_MAX_SECONDS), Vec::<String>::new());
        let late = told("enabled", "runtime", WAIT_MAX_SECONDS + 1);
        assert_eq!(late, ["lane runtime: 3 operations are open, the oldest for 31 s"]);
        let off = told("disabled", "runtime", 0);
        assert!(off.len() == 1 && off[0].contains("headwater cluster enable NAME"), "{off:?}");
    }
}
