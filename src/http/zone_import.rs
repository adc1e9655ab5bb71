//! A zone text that is taken in: read and checked before the answer, compared with what is stored, and carried out as one
//! revision. The text and the comparison are made outside of every lock; a few at once, because they hold memory.

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures_util::StreamExt;
use headwater_events::domain::{Comparison, DomainCommand, DomainState, ImportMode, RrsetChange, ZoneImport};
use headwater_events::reject::Fault;
use headwater_events::zonetext::{self, Faulty, TEXT_MAX_BYTES, ZoneText};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Problem;
use super::domains::known;
use super::dto::Receipt;
use super::mutation::{Mutation, Submitted, Upload};
use super::path::DomainPath;
use super::problem::line_pointer;
use super::query::Pairs;
use super::rollback::moved_on;
use super::rrsets::reads;
use crate::app::App;
use crate::command::Command;
use crate::query::rrsets;

/// Texts that are taken in at once, in one process.
const IMPORTS_MAX_COUNT: usize = 4;
/// How long a client that met as many should stay away.
const IMPORT_RETRY: Duration = Duration::from_secs(5);
/// What a zone text may be sent as.
const MEDIA: [&str; 2] = ["text/dns", "text/plain"];

static IMPORTS: std::sync::LazyLock<Arc<Semaphore>> =
    std::sync::LazyLock::new(|| Arc::new(Semaphore::new(IMPORTS_MAX_COUNT)));

/// The routes of this file.
pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(import))
}

fn mode(pairs: &mut Pairs) -> Option<ImportMode> {
    let read = pairs.parsed("mode", |text| match text {
        "replace" => Ok(ImportMode::Replace),
        "merge" => Ok(ImportMode::Merge),
        _ => Err("write replace or merge".to_owned()),
    });
    if read.is_none() {
        pairs.fault("missing_query_key", "mode: say replace or merge".to_owned());
    }
    read
}

/// Take a zone in: BIND text with `$ORIGIN`, `$TTL`, `$GENERATE` (not `$INCLUDE`). `mode=replace`: the zone is what the text
/// says; `mode=merge`: each RRset of the text takes the place of the one with its name and type, and all others stay. One
/// revision, all or nothing: 422 names each faulty line, up to 100 of them (`faults` says how many there are). What is as
/// it was gives no event. SOA, apex NS and what is marked `; derived` are checked and not taken over; a higher SOA serial
/// raises `serial_floor`; DNSSEC records are left out; a warning tells each. Whoever may write some records alone replaces
/// those alone.
#[utoipa::path(post, path = "/api/domains/{d}/zone", tag = "zone",
    params(("d" = String, Path, description = "The domain's name"),
        ("mode" = String, Query, description = "`replace` or `merge`", example = "merge")),
    request_body(content = String, content_type = "text/dns", example = "$TTL 3600\nwww A 192.0.2.1\n"),
    responses((status = 200, body = Receipt), (status = 202, body = Receipt)))]
async fn import(
    State(app): State<App>,
    DomainPath(name): DomainPath,
    request: Request,
) -> Result<Response, Problem> {
    let upload = Upload::begin(request, &app).await?;
    let held = known(&app, &upload.auth, &name).await?;
    let busy =
        |_| Problem::unavailable("too many zone texts are being taken in at once").retry_after(IMPORT_RETRY);
    let _held_until_the_end = IMPORTS.clone().try_acquire_owned().map_err(busy)?;
    let (mutation, mode) = upload.finish(mode, &MEDIA, TEXT_MAX_BYTES).await?;
    let (mutation, text) = mutation.split();
    let Some(mode) = mode else { return Err(Problem::malformed("mode: say replace or merge")) };
    let most = usize::try_from(app.config.limits.records_per_domain).unwrap_or(usize::MAX);
    let (zone, most) = (held.state.name.clone(), most.max(usize::try_from(held.state.records).unwrap_or(0)));
    let read = tokio::task::spawn_blocking(move || zonetext::read(&text, &zone, most)).await;
    let text =
        read.map_err(|_| Problem::unavailable("the text could not be read: try again"))?.map_err(faulty)?;
    let text = Arc::new(text);
    let mut tries = 0;
    loop {
        tries += 1;
        let domain = known(&app, &mutation.auth, &name).await?.state;
        let (lines, changes) = compared(&app, &mutation, &domain, Arc::clone(&text), mode).await?;
        let import = ZoneImport {
            domain: domain.id,
            through: domain.revision,
            changes: Arc::new(changes),
            serial: text.serial,
            warnings: text.warnings.clone(),
        };
        let command =
            Command::Domain { name: name.clone(), command: DomainCommand::ImportZone(Box::new(import)) };
        let submitted = mutation.submit(&app, command).await;
        if !moved_on(&submitted, tries) {
            return answered(submitted, &lines, &text);
        }
    }
}

/// What the text would change of what is stored now, as far as the caller is shown it.
async fn compared(
    app: &App,
    mutation: &Mutation<()>,
    domain: &DomainState,
    text: Arc<ZoneText>,
    mode: ImportMode,
) -> Result<(Vec<usize>, Vec<RrsetChange>), Problem> {
    let mut comparison = Comparison::new(&text.rrsets, mode);
    let mut stored = std::pin::pin!(rrsets::zone(app.pool.clone(), domain.id));
    while let Some(one) = stored.next().await {
        let one = one?;
        if reads(&mutation.auth.caller, domain, &one) {
            comparison.stored(one.owner, one.rrtype, &one.body);
        }
    }
    Ok(comparison.finish())
}

/// 422 with every faulty line that is told.
fn faulty(found: Faulty) -> Problem {
    let total = found.total;
    let told = found.faults.into_iter().map(|fault| {
        let detail = fault.to_string();
        Fault::at(line_pointer(fault.line), fault.code, detail)
    });
    Problem::invalid(told.collect()).with("faults", total)
}

/// The answer, with what the text said of itself where nothing changed; a fault of a change is one of its line.
fn answered(
    submitted: Result<Submitted, Problem>,
    lines: &[usize],
    text: &ZoneText,
) -> Result<Response, Problem> {
    let line_of =
        |pointer: &str| lines.get(pointer.strip_prefix("/changes/")?.parse::<usize>().ok()?).copied();
    let tell = |fault: Fault| match line_of(&fault.pointer) {
        None => fault,
        Some(0) => Fault::at("", fault.code, format!("(not in the text) {}", fault.detail)),
        Some(line) => Fault::at(line_pointer(line), fault.code, format!("line {line}: {}", fault.detail)),
    };
    let mut submitted = submitted.map_err(|problem| problem.told(tell))?;
    match &mut submitted {
        Submitted::Done(outcome) if !outcome.changed => outcome.warnings.clone_from(&text.warnings),
        Submitted::Plan(plan) if !plan.changed => plan.warnings.clone_from(&text.warnings),
        _ => {}
    }
    Ok(submitted.into_response())
}
