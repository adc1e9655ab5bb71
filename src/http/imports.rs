//! Zones of other servers, taken in (administrators): an operation, its report, and the end of one that follows its source.

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use headwater_events::actor::{Resource, Verb};
use headwater_events::admin::AdminCommand;
use headwater_events::ids::OperationId;
use headwater_events::migration::{ImportCompareRequested, ImportCutoverRequested, ImportRequested};
use headwater_events::reject::Fault;
use serde_json::Value;
use std::time::Duration;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::Authenticated;
use super::dto::Receipt;
use super::dto::import::{Comparison, Cutover, Import, ImportPreview, NewImport};
use super::mutation::Mutation;
use super::page::{Listing, PAGE_MAX_ITEMS, Page, PageParams, accepts};
use super::path::IdPath;
use super::query::{FromQuery, NoQuery, Pairs, Query};
use super::{Problem, page};
use crate::app::App;
use crate::command::Command;
use crate::history::page::conflict;
use crate::import::rehearse;
use crate::import::report::{self, Outcome, Shown, ShownLine};
use crate::query::domains;

/// Zones that a preview judges; of more it says how many there are.
const PREVIEW_MAX_ZONES: usize = 500;
/// How long it may take.
const PREVIEW_MAX: Duration = Duration::from_secs(20);
/// The head of a report as a table.
const CSV_HEAD: &str = "zone,outcome,records,warnings,not_carried,faults,conflicts,at\n";

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(get))
        .routes(routes!(lines))
        .routes(routes!(cutover))
        .routes(routes!(compare))
}

/// Imports, newest first.
#[utoipa::path(get, path = "/api/imports", tag = "imports", params(PageParams),
    responses((status = 200, body = Vec<Import>, description = "A page: items and next")))]
async fn list(
    State(app): State<App>,
    auth: Authenticated,
    wanted: Listing<NoQuery, Uuid>,
) -> Result<Response, Problem> {
    auth.may(Verb::Read, Resource::Platform, "imports")?;
    page::list(wanted, move |before, most| {
        let app = app.clone();
        async move {
            let found = report::list(&app.pool, before, most).await?;
            Ok(Page { items: found.into_iter().map(|one| (one.id.as_uuid(), one.body)).collect() })
        }
    })
    .await
}

/// Take zones of another server in: an operation, zone by zone, each as one revision of its own domain. A zone that cannot
/// be taken in is refused alone; `report` says of each what came of it. Zones that are here already and say the same give
/// nothing, so it may be repeated. With `dry_run` the first zones are judged at once and nothing is done; `mode: rehearse`
/// judges all of them, as an operation. The id of the operation is that of the import.
#[utoipa::path(post, path = "/api/imports", tag = "imports", request_body = NewImport,
    responses((status = 202, body = Receipt), (status = 200, body = ImportPreview, description = "With dry_run")))]
async fn create(State(app): State<App>, mutation: Mutation<NewImport>) -> Result<Response, Problem> {
    mutation.auth.may(Verb::Write, Resource::Platform, "imports")?;
    let (mutation, new) = mutation.split();
    mutation.refuse_conditions()?;
    if mutation.auth.caller.scopes.is_some() {
        return Err(Problem::forbidden("a token that is limited cannot import: use one that is not"));
    }
    let named = new.tenants();
    let there = report::tenants(&app.pool, &named).await?;
    if let Some(unknown) = named.iter().find(|tenant| !there.contains(tenant)) {
        let detail = format!("there is no tenant {unknown}");
        return Err(Problem::invalid(vec![Fault::at("/tenants", "unknown_tenant", detail)]));
    }
    let meta = mutation.meta();
    let allowed = meta.allow.iter().map(|guard| guard.name().to_owned()).collect();
    let own = domains::platform(&app.pool).await?.tenant;
    let requested = new.requested(own, allowed, meta.take_over);
    if mutation.is_dry_run() {
        return preview(&app, &mutation, requested).await;
    }
    let operation = OperationId::from_uuid(Uuid::now_v7());
    let command = AdminCommand::RequestImport { operation, requested: Box::new(requested) };
    Ok(mutation.submit(&app, Command::admin(command)).await?.into_response())
}

async fn preview(
    app: &App,
    mutation: &Mutation<()>,
    requested: ImportRequested,
) -> Result<Response, Problem> {
    let caller = mutation.auth.caller.clone();
    let (diff, total) = rehearse(app, caller, requested, PREVIEW_MAX_ZONES, PREVIEW_MAX).await?;
    let mut warnings = Vec::new();
    if total > diff.len() {
        warnings.push(format!(
            "{} more zones were not judged here: `mode: rehearse` judges all of them",
            total - diff.len()
        ));
    }
    let changed = diff.iter().any(|line| line.outcome == Outcome::Imported);
    let preview = ImportPreview {
        changed,
        total,
        diff,
        warnings,
        guards: Vec::new(),
        targets: Vec::new(),
        if_match: None,
    };
    Ok(Json(preview).into_response())
}

async fn one(app: &App, id: OperationId) -> Result<Shown, Problem> {
    report::one(&app.pool, id).await?.ok_or_else(|| Problem::not_found(format!("import {id}")))
}

/// One import.
#[utoipa::path(get, path = "/api/imports/{id}", tag = "imports", params(("id" = Uuid, Path)),
    responses((status = 200, body = Import)))]
async fn get(
    State(app): State<App>,
    auth: Authenticated,
    IdPath(id): IdPath<OperationId>,
    _: Query<NoQuery>,
) -> Result<Json<Value>, Problem> {
    auth.may(Verb::Read, Resource::Platform, "imports")?;
    Ok(Json(one(&app, id).await?.body))
}

/// Which lines of a report are wanted.
struct Wanted(Option<Vec<Outcome>>);

impl FromQuery for Wanted {
    fn read(pairs: &mut Pairs) -> Self {
        Self(pairs.parsed("outcome", |text| {
            let known = || Outcome::ALL.map(Outcome::name).join(", ");
            let one =
                |name: &str| Outcome::from_name(name).ok_or_else(|| format!("the outcomes are {}", known()));
            text.split(',').map(one).collect()
        }))
    }
}

/// What came of each zone, by name: a page, all of it as lines, or as a table.
#[utoipa::path(get, path = "/api/imports/{id}/report", tag = "imports",
    params(("id" = Uuid, Path), PageParams,
        ("outcome" = Option<String>, Query, description = "Only these, separated by commas: imported, unchanged, refused, \
            skipped, failed, conflict, missing")),
    responses((status = 200, description = "A page: items and next; the whole report as lines or as a table",
        content((Vec<ShownLine> = "application/json"), (String = "text/csv")))))]
async fn lines(
    State(app): State<App>,
    auth: Authenticated,
    IdPath(id): IdPath<OperationId>,
    headers: HeaderMap,
    wanted: Listing<Wanted, String>,
) -> Result<Response, Problem> {
    auth.may(Verb::Read, Resource::Platform, "imports")?;
    let id = one(&app, id).await?.id;
    let outcomes = wanted.filter.0.clone();
    if accepts(&headers, "text/csv") {
        let body = Body::from_stream(table(app, id, outcomes));
        return Ok(([(header::CONTENT_TYPE, "text/csv; charset=utf-8")], body).into_response());
    }
    page::list(wanted, move |after: Option<String>, most| {
        let (app, outcomes) = (app.clone(), outcomes.clone());
        async move {
            let found = report::page(&app.pool, id, after.as_deref(), outcomes.as_deref(), most).await?;
            Ok(Page { items: found.into_iter().map(|line| (line.zone.clone(), line)).collect() })
        }
    })
    .await
}

fn table(
    app: App,
    id: OperationId,
    outcomes: Option<Vec<Outcome>>,
) -> impl futures_util::Stream<Item = Result<Bytes, std::io::Error>> + Send {
    async_stream::try_stream! {
        yield Bytes::from_static(CSV_HEAD.as_bytes());
        let mut after: Option<String> = None;
        loop {
            let found = report::page(&app.pool, id, after.as_deref(), outcomes.as_deref(), PAGE_MAX_ITEMS).await;
            let found = found.map_err(std::io::Error::other)?;
            let Some(last) = found.last() else { return };
            after = Some(last.zone.clone());
            yield Bytes::from(found.iter().map(row).collect::<String>());
        }
    }
}

fn row(line: &ShownLine) -> String {
    let faults = line.faults.iter().map(|fault| {
        let place = fault.line.map_or_else(String::new, |line| format!("{line}: "));
        format!("{place}{}", fault.detail)
    });
    let left = line.not_carried.iter().map(|one| {
        let parts = [Some(one.what.as_str()), one.name.as_deref(), one.rrtype.as_deref()];
        parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
    });
    let cells = [
        line.zone.clone(),
        line.outcome.name().to_owned(),
        line.records.to_string(),
        line.warnings.join("\n"),
        left.collect::<Vec<_>>().join("\n"),
        faults.collect::<Vec<_>>().join("\n"),
        line.conflicts.join("\n"),
        line.at.map(|at| at.to_string()).unwrap_or_default(),
    ];
    let cells: Vec<String> = cells.iter().map(|cell| quoted(cell)).collect();
    format!("{}\n", cells.join(","))
}

/// A cell in quotes; one that a spreadsheet would take for a formula begins with an apostrophe.
fn quoted(cell: &str) -> String {
    let mark = if cell.starts_with(['=', '+', '-', '@', '\t', '\r']) { "'" } else { "" };
    format!("\"{mark}{}\"", cell.replace('"', "\"\""))
}

/// End an import that follows its source: everything is looked at a last time, then the source is asked no more. An
/// operation; where it fails, the source is followed on.
#[utoipa::path(post, path = "/api/imports/{id}/cutover", tag = "imports", params(("id" = Uuid, Path)),
    request_body = Cutover, responses((status = 202, body = Receipt)))]
async fn cutover(
    State(app): State<App>,
    IdPath(id): IdPath<OperationId>,
    mutation: Mutation<Cutover>,
) -> Result<Response, Problem> {
    mutation.auth.may(Verb::Write, Resource::Platform, "imports")?;
    let (mutation, Cutover { without_last_look }) = mutation.split();
    mutation.refuse_conditions()?;
    let import = one(&app, id).await?;
    if !import.is_followed {
        let state = import.body["state"].as_str().unwrap_or_default();
        let detail = format!("the import is {state}: only one that follows its source is cut over");
        return Err(conflict("not_following", &detail));
    }
    let requested: ImportRequested = serde_json::from_value(import.body["request"].clone())
        .map_err(|_| Problem::unavailable("the request of the import cannot be read"))?;
    let operation = OperationId::from_uuid(Uuid::now_v7());
    let requested = Box::new(ImportCutoverRequested { import: id, requested, without_last_look });
    let command = Command::admin(AdminCommand::RequestCutover { operation, requested });
    Ok(mutation.submit(&app, command).await?.into_response())
}

/// Ask an old server and every enabled cluster the same of the zones that an import took in: each RRset, names and types
/// that are not there, wildcards, empty names, and what lies below delegations. An operation; where an answer differs, or
/// one of them gives none, `differences` of the operation says what both said. What the import could not carry is in its
/// report. SOA and the NS set of the zone itself are the platform's own, and not compared.
#[utoipa::path(post, path = "/api/imports/{id}/compare", tag = "imports", params(("id" = Uuid, Path)),
    request_body = Comparison, responses((status = 202, body = Receipt)))]
async fn compare(
    State(app): State<App>,
    IdPath(id): IdPath<OperationId>,
    mutation: Mutation<Comparison>,
) -> Result<Response, Problem> {
    mutation.auth.may(Verb::Write, Resource::Platform, "imports")?;
    let (mutation, Comparison { old, zones, ignore_ttl }) = mutation.split();
    mutation.refuse_conditions()?;
    let import = one(&app, id).await?.id;
    let operation = OperationId::from_uuid(Uuid::now_v7());
    let requested = Box::new(ImportCompareRequested { import, old, zones, ignore_ttl });
    let command = Command::admin(AdminCommand::RequestCompare { operation, requested });
    Ok(mutation.submit(&app, command).await?.into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_neither_two_nor_a_formula() {
        assert_eq!(quoted("a,\"b\"\nc"), "\"a,\"\"b\"\"\nc\"");
        assert_eq!(quoted("=1+1"), "\"'=1+1\"");
    }
}
