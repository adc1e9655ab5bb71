//! Undoing one revision of a domain by itself, and everything that one token did.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use headwater_events::admin::AdminCommand;
use headwater_events::domain::{DomainCommand, Undo};
use headwater_events::event::UndoRequested;
use headwater_events::ids::{OperationId, TokenId};
use headwater_events::reject::{Guard, Reject};
use headwater_events::time::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::Problem;
use super::body::{Fields, FromBody};
use super::domains::visible;
use super::dto::Receipt;
use super::mutation::Mutation;
use super::path::DomainPath;
use super::rollback::{OfRevision, RolledBack, answered, moved_on};
use crate::app::App;
use crate::command::{Command, Plan};
use crate::operation::undo::{self as everywhere, Changed};
use crate::rebuild::Difference;
use crate::store::undo;

/// Domains that one request may change without an allowance.
const DOMAINS_UNGUARDED_COUNT: usize = 100;
/// Domains that a preview tells of; of more it says how many there are.
const PREVIEW_MAX_DOMAINS: usize = 200;
/// How long a preview waits for the audit trail.
const TRAIL_MAX: Duration = Duration::from_secs(5);

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(undo_one)).routes(routes!(undo_token))
}

/// Undo one revision of a domain, as a new one: what it changed is put back as if it had never been, and what others
/// changed later is kept, in an RRset value by value. Where both meet, nothing is undone: 409 `undo_conflict` names each
/// thing with the revision that changed it, by its path in `errors`.
#[utoipa::path(post, path = "/api/domains/{d}/undo", tag = "history",
    params(("d" = String, Path, description = "The domain's name")), request_body = OfRevision,
    responses((status = 200, body = RolledBack), (status = 202, body = RolledBack)))]
async fn undo_one(
    State(app): State<App>,
    DomainPath(name): DomainPath,
    mutation: Mutation<OfRevision>,
) -> Result<Response, Problem> {
    let (mut mutation, body) = mutation.split();
    let revision = body.get();
    let mut tries = 0;
    loop {
        tries += 1;
        let domain = visible(&app, &mutation.auth, &name).await?.state;
        let (undoing, cause) = undo::read(&app.pool, &domain, BTreeSet::from([revision])).await?;
        mutation.caused_by(cause);
        let undo = Undo::new(Arc::new(undoing), app.config.sites.destinations.clone(), false);
        let command = DomainCommand::Undo(Box::new(undo));
        let submitted = mutation.submit(&app, Command::Domain { name: name.clone(), command }).await;
        if !moved_on(&submitted, tries) {
            return answered(submitted);
        }
    }
}

/// Whose changes to undo.
#[derive(Debug, ToSchema)]
struct UndoEverything {
    /// The id of the token that made them.
    #[schema(value_type = Uuid)]
    token: TokenId,
    /// From this time on (RFC 3339).
    #[schema(value_type = String, format = DateTime)]
    since: Timestamp,
    /// Before this time; up to the request where it is left out.
    #[schema(value_type = Option<String>, format = DateTime)]
    until: Option<Timestamp>,
}

impl FromBody for UndoEverything {
    fn read(fields: &mut Fields) -> Option<Self> {
        for key in ["token", "since"] {
            if !fields.has(key) {
                fields.missing(key);
            }
        }
        let wrong =
            || ("invalid_time", "this must be an RFC 3339 time, such as 2026-01-31T12:00:00Z".to_owned());
        let time = |text: &str| Timestamp::parse(text).ok_or_else(wrong);
        let (token, since) = (fields.id("token"), fields.parsed("since", time));
        let until = fields.parsed("until", time);
        Some(Self { token: token?, since: since?, until })
    }
}

/// What an undo of everything would do.
#[derive(Debug, Serialize, ToSchema)]
struct UndoPreview {
    /// Whether anything would change.
    changed: bool,
    /// What would: domain, path, before, after.
    #[schema(value_type = Vec<Object>)]
    diff: Vec<Value>,
    /// What would stay, because others changed it later or because it cannot be undone: domain, path, present, detail.
    #[schema(value_type = Vec<Object>)]
    conflicts: Vec<Value>,
    /// How many domains the token changed, of those that the caller may write.
    domains: usize,
    /// What the caller may want to know.
    warnings: Vec<String>,
    /// Guards that stand in the way, or would be crossed by allowance.
    guards: Vec<String>,
    /// Names of the targets concerned.
    targets: BTreeSet<String>,
    /// Null: there is no one resource that it could name.
    if_match: Option<String>,
}

/// Undo everything that one token did in domains since a time, in every domain that the caller may write: an operation,
/// domain by domain, each as one revision. What others changed later is kept; what stays is at `differences` of the
/// operation. With `dry_run` every change and every conflict is told, and nothing is done.
#[utoipa::path(post, path = "/api/undo", tag = "history", request_body = UndoEverything,
    responses((status = 202, body = Receipt), (status = 200, body = UndoPreview, description = "With dry_run")))]
async fn undo_token(State(app): State<App>, mutation: Mutation<UndoEverything>) -> Result<Response, Problem> {
    let (mutation, UndoEverything { token, since, until }) = mutation.split();
    mutation.refuse_conditions()?;
    if mutation.auth.caller.scopes.is_some() {
        return Err(Problem::forbidden(
            "a token that is limited cannot undo everything: use one that is not",
        ));
    }
    let allow = mutation.meta().allow;
    let allowed = allow.iter().map(|guard| guard.name().to_owned()).collect();
    let take_over = mutation.meta().take_over;
    let requested = UndoRequested { token, since, until, allowed, take_over };
    let head = app.log.meta().await?.head;
    // Only who is told of it now has to wait until the trail knows of it; the operation waits by itself.
    let wait = if mutation.is_dry_run() { TRAIL_MAX } else { Duration::ZERO };
    let reached = everywhere::trail_reaches(&app, head, wait).await?;
    let caller = &mutation.auth.caller;
    let domains = everywhere::changed(&app, caller, &requested, head).await?;
    let is_guarded = domains.len() > DOMAINS_UNGUARDED_COUNT;
    if mutation.is_dry_run() {
        if !reached {
            return Err(Problem::unavailable("the audit trail, which says what the token did, is behind"));
        }
        let mut preview = preview(&app, &mutation, &domains).await?;
        if is_guarded {
            preview.guards.insert(0, Guard::ManyDomains.name().to_owned());
        }
        return Ok(Json(preview).into_response());
    }
    if is_guarded && !allow.contains(&Guard::ManyDomains) {
        let guards = vec![Guard::ManyDomains];
        let detail = format!(
            "{} domains would be changed: repeat it with ?allow={} if it is meant",
            domains.len(),
            Guard::ManyDomains
        );
        return Err(Reject::Guarded { guards, detail }.into());
    }
    let operation = OperationId::from_uuid(Uuid::now_v7());
    let command = Command::admin(AdminCommand::RequestUndo { operation, requested });
    Ok(mutation.submit(&app, command).await?.into_response())
}

async fn preview(app: &App, mutation: &Mutation<()>, domains: &[Changed]) -> Result<UndoPreview, Problem> {
    let mut told = UndoPreview {
        changed: false,
        diff: Vec::new(),
        conflicts: Vec::new(),
        domains: domains.len(),
        warnings: Vec::new(),
        guards: Vec::new(),
        targets: BTreeSet::new(),
        if_match: None,
    };
    for domain in domains.iter().take(PREVIEW_MAX_DOMAINS) {
        let caller = &mutation.auth.caller;
        let (kept, plan) = everywhere::plan_one(app, caller, mutation.meta(), domain).await?;
        told.conflicts.extend(kept.iter().map(|one| conflict(domain, one)));
        if let Some(plan) = plan {
            told.take(domain, plan);
        }
    }
    if domains.len() > PREVIEW_MAX_DOMAINS {
        let more = domains.len() - PREVIEW_MAX_DOMAINS;
        told.warnings.push(format!("{more} more domains would be changed, which are not told here"));
    }
    Ok(told)
}

fn conflict(domain: &Changed, kept: &Difference) -> Value {
    json!({"domain": domain.name, "path": kept.key[1], "present": kept.live, "detail": kept.expected})
}

impl UndoPreview {
    fn take(&mut self, domain: &Changed, plan: Plan) {
        self.changed |= plan.changed;
        self.diff.extend(plan.diff.into_iter().map(|mut row| {
            row["domain"] = json!(domain.name);
            row
        }));
        self.warnings.extend(plan.warnings.into_iter().map(|text| format!("{}: {text}", domain.name)));
        for guard in plan.guards {
            if !self.guards.contains(&guard) {
                self.guards.push(guard);
            }
        }
        self.targets.extend(plan.targets);
    }
}
