//! One zone: read, judged, and made a domain or compared with the one that is here. As whoever asked, by the commands
//! that everybody gives, so that what stands in the log is what stands there of any domain.

use super::report::{Line, Outcome, ShownLine, Told};
use super::room::Room;
use super::source::{Listed, Source, SourceError, is_catalog};
use super::{allowed, sql};
use crate::app::App;
use crate::command::{Command, Meta, SubmitError};
use crate::http::pdns::{ACCOUNT, DEFAULT_KIND, KIND};
use crate::query::{domains, rrsets};
use crate::rebuild::RebuildError;
use futures_util::StreamExt;
use headwater_events::actor::Caller;
use headwater_events::dns::DomainName;
use headwater_events::domain::{
    Comparison, CreateDomain, DomainCommand, DomainState, IMPORT_MAX_CHANGES, MOVED_ON, RrsetChange,
    ZoneImport,
};
use headwater_events::ids::{DomainId, OperationId, Position, TenantId};
use headwater_events::migration::{
    Base, Carried, ImportRequested, Mode, OnExisting, Refused, SourceFault, merge,
};
use headwater_events::reject::{Fault, Reject};
use headwater_events::zonetext::TextRrset;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// How often a zone is compared anew because its domain changed meanwhile, and how often the source is asked for it.
const TRIES_MAX_TIMES: u32 = 5;
/// The pause before a command is given again that found the log busy.
const BUSY_PAUSE: Duration = Duration::from_millis(200);
/// How often it is given again.
const BUSY_MAX_TIMES: u32 = 50;

/// What was asked for, by whom, and what for.
pub(super) struct Work {
    pub(super) app: App,
    pub(super) source: Source,
    pub(super) caller: Caller,
    pub(super) import: OperationId,
    pub(super) position: Option<Position>,
    pub(super) requested: ImportRequested,
    pub(super) note: Option<String>,
    /// Nothing is changed.
    pub(super) rehearse: bool,
}

/// What one command came to.
enum Tried {
    Changed(Vec<String>),
    Unchanged(Vec<String>),
    MovedOn,
    Refused(Reject),
}

impl Work {
    fn meta(&self) -> Meta {
        Meta {
            note: self.note.clone(),
            change: Some(self.import.as_uuid()),
            cause: self.position,
            allow: allowed(&self.requested),
            take_over: self.requested.take_over,
            ..Meta::internal()
        }
    }

    fn is_followed(&self) -> bool {
        self.requested.mode == Mode::Follow
    }

    async fn submit(&self, command: Command) -> Result<Tried, RebuildError> {
        let mut tries = 0;
        loop {
            tries += 1;
            let (caller, meta, command) = (self.caller.clone(), self.meta(), command.clone());
            let tried = if self.rehearse {
                let blocked = |guards: &[String]| format!("it would be refused by {}", guards.join(", "));
                self.app.commit.plan(caller, command, meta).await.map(|plan| {
                    let mut warnings = plan.warnings;
                    warnings.extend(Some(blocked(&plan.guards)).filter(|_| !plan.guards.is_empty()));
                    (plan.changed, warnings)
                })
            } else {
                let done = self.app.commit.submit(caller, command, meta).await;
                done.map(|outcome| (outcome.changed, outcome.warnings))
            };
            return Ok(match tried {
                Ok((true, warnings)) => Tried::Changed(warnings),
                Ok((false, warnings)) => Tried::Unchanged(warnings),
                Err(SubmitError::Rejected(Reject::Conflict { code: MOVED_ON, .. })) => Tried::MovedOn,
                Err(SubmitError::Rejected(reject)) => Tried::Refused(reject),
                Err(SubmitError::Text) => Tried::Refused(Reject::Invalid(vec![Fault::at(
                    "",
                    "invalid_text",
                    SubmitError::Text.to_string(),
                )])),
                Err(SubmitError::Busy) if tries < BUSY_MAX_TIMES => {
                    tokio::time::sleep(BUSY_PAUSE).await;
                    continue;
                }
                Err(error) => return Err(RebuildError::Import(error.to_string())),
            });
        }
    }
}

fn line(listed: &Listed, outcome: Outcome) -> Line {
    let zone = listed.name.as_ref().map_or_else(|_| listed.called.clone(), ToString::to_string);
    let marker = listed.marker.clone();
    Line { zone, domain: None, outcome, records: 0, told: Told::default(), marker, base: None }
}

fn refused(listed: &Listed, why: Refused) -> Line {
    let told = Told { faults: why.faults, faults_total: why.total, ..Told::default() };
    Line { told, ..line(listed, Outcome::Refused) }
}

/// A refusal of the decision, each fault with the RRset that it is about.
fn of_reject(reject: Reject, changes: &[RrsetChange], lines: &[usize]) -> Refused {
    let faults = match reject {
        Reject::Invalid(faults) | Reject::ManagedByOther { conflicts: faults } => faults,
        Reject::Guarded { guards, detail } => {
            let names: Vec<&str> = guards.iter().map(|guard| guard.name()).collect();
            return Refused::whole("guarded", format!("{detail} ({})", names.join(", ")));
        }
        Reject::NameTaken(detail) => return Refused::whole("name_taken", detail),
        Reject::Conflict { code, detail } => return Refused::whole(code, detail),
        other => return Refused::whole("refused", other.to_string()),
    };
    let total = faults.len();
    let told = faults.into_iter().take(headwater_events::migration::NOTES_MAX_COUNT).map(|fault| {
        let index =
            fault.pointer.strip_prefix("/changes/").and_then(|rest| rest.split('/').next()?.parse().ok());
        let change = index.and_then(|index: usize| changes.get(index));
        let line = index.and_then(|index| lines.get(index).copied()).filter(|line| *line > 0);
        let record = change.map(|change| format!("{} {}", change.owner(), change.rrtype()));
        SourceFault { line, record, code: fault.code.to_owned(), detail: fault.detail }
    });
    Refused { faults: told.collect(), total }
}

/// Takes one zone in. None: it is as it was when it was looked at last.
pub(super) async fn one(
    work: &Work,
    listed: &Listed,
    known: Option<&Line>,
    whole: bool,
) -> Result<Option<Line>, RebuildError> {
    let name = match &listed.name {
        Ok(name) => name,
        Err((code, detail)) => return Ok(Some(refused(listed, Refused::whole(code, detail.clone())))),
    };
    if is_catalog(&listed.kind) {
        let why = "it lists zones for secondaries, and answers nobody: catalogs are not carried";
        return Ok(Some(refused(listed, Refused::whole("catalog", why))));
    }
    let is_same = |known: &Line| {
        known.marker.is_some() && known.marker == listed.marker && known.outcome != Outcome::Missing
    };
    if work.is_followed() && !whole && known.is_some_and(is_same) {
        return Ok(None);
    }
    let Some(tenant) = work.requested.tenants.of(&listed.account) else {
        let detail = format!(
            "nobody was named for the account `{}`: add it to tenants.by_account, or give tenants.default",
            listed.account.escape_debug()
        );
        return Ok(Some(refused(listed, Refused::whole("no_tenant", detail))));
    };
    // It takes its room until it is done.
    let mut room = Room::default();
    let carried = match work.source.load(listed, &mut room).await {
        Ok(Ok(carried)) => carried,
        Ok(Err(why)) => {
            let base = known.and_then(|known| known.base.clone());
            return Ok(Some(Line { base, ..refused(listed, why) }));
        }
        Err(SourceError::Zone(detail)) => {
            let fault = Refused::whole("not_given", detail);
            // It is asked for again at the next look.
            return Ok(Some(Line { outcome: Outcome::Failed, marker: None, ..refused(listed, fault) }));
        }
        Err(SourceError::Away(why)) => return Err(RebuildError::Import(why)),
        Err(SourceError::Unusable(why)) => return Err(RebuildError::Source(why)),
    };
    let mut told = settle(work, listed, name, tenant, &carried, known).await?;
    told.records = carried.records;
    if matches!(told.outcome, Outcome::Imported | Outcome::Unchanged | Outcome::Conflict | Outcome::Skipped) {
        let (mut warnings, more) = (carried.warnings, std::mem::take(&mut told.told.warnings));
        warnings.extend(more);
        told.told.warnings = warnings;
        told.told.not_carried = carried.not_carried;
    }
    Ok(Some(told))
}

/// Brings the domain to what is carried.
async fn settle(
    work: &Work,
    listed: &Listed,
    name: &DomainName,
    tenant: TenantId,
    carried: &Carried,
    known: Option<&Line>,
) -> Result<Line, RebuildError> {
    let comments = work.requested.source.has_comments();
    let new_base = || work.is_followed().then(|| Base::of(&carried.rrsets, comments).to_bytes());
    let base = known.and_then(|known| known.base.as_deref()).map(Base::from_bytes);
    let mut tries = 0;
    loop {
        tries += 1;
        let held = domains::by_name(&work.app.pool, name).await?;
        let held = held.filter(|held| !held.state.status.is_deleted());
        let Some(held) = held else {
            if known.is_some_and(|known| known.domain.is_some()) {
                let told =
                    Told { conflicts: vec!["the domain was deleted here".to_owned()], ..Told::default() };
                let base = known.and_then(|known| known.base.clone());
                return Ok(Line { told, base, ..line(listed, Outcome::Conflict) });
            }
            let (made, id) = create(work, listed, name, tenant, carried).await?;
            return Ok(match made {
                Tried::Changed(warnings) | Tried::Unchanged(warnings) => {
                    let told = Told { warnings, ..Told::default() };
                    Line { told, domain: Some(id), base: new_base(), ..line(listed, Outcome::Imported) }
                }
                // Somebody was faster: it is there now.
                Tried::Refused(Reject::NameTaken(_))
                    if tries < TRIES_MAX_TIMES && exists(work, name).await? =>
                {
                    continue;
                }
                Tried::MovedOn if tries < TRIES_MAX_TIMES => continue,
                Tried::MovedOn => moved_on(listed),
                Tried::Refused(reject) => {
                    let changes: Vec<RrsetChange> = puts(carried);
                    refused(listed, of_reject(reject, &changes, &carried.lines))
                }
            });
        };
        let domain = held.state;
        if domain.tenant != tenant {
            let detail = format!("the domain is here already and belongs to tenant {}", domain.tenant);
            return Ok(refused(listed, Refused::whole("other_tenant", detail)));
        }
        let settled = match &base {
            Some(base) => again(work, listed, &domain, carried, base).await?,
            None => beside(work, listed, &domain, carried).await?.map(|line| {
                let base =
                    matches!(line.outcome, Outcome::Imported | Outcome::Unchanged).then(new_base).flatten();
                Line { base, ..line }
            }),
        };
        match settled {
            Some(line) => return Ok(Line { domain: Some(domain.id), ..line }),
            None if tries >= TRIES_MAX_TIMES => return Ok(moved_on(listed)),
            None => {}
        }
    }
}

async fn exists(work: &Work, name: &DomainName) -> Result<bool, RebuildError> {
    let held = domains::by_name(&work.app.pool, name).await?;
    Ok(held.is_some_and(|held| !held.state.status.is_deleted()))
}

fn moved_on(listed: &Listed) -> Line {
    let fault = Refused::whole("moved_on", "the domain keeps changing while the zone is compared with it");
    Line { outcome: Outcome::Failed, marker: None, ..refused(listed, fault) }
}

fn puts(carried: &Carried) -> Vec<RrsetChange> {
    carried.rrsets.iter().cloned().map(RrsetChange::Put).collect()
}

async fn create(
    work: &Work,
    listed: &Listed,
    name: &DomainName,
    tenant: TenantId,
    carried: &Carried,
) -> Result<(Tried, DomainId), RebuildError> {
    let id = DomainId::from_uuid(Uuid::now_v7());
    let mut labels = std::collections::BTreeMap::new();
    if work.requested.source.has_comments() {
        // What clients of PowerDNS's API read of a zone, they read here too.
        let account = Some(listed.account.clone()).filter(|account| !account.is_empty());
        labels.extend(account.map(|account| (ACCOUNT.to_owned(), account)));
        let is_master = ["MASTER", "PRIMARY"].iter().any(|kind| kind.eq_ignore_ascii_case(&listed.kind));
        let kind = if is_master { "Master" } else { DEFAULT_KIND };
        labels.extend(Some((KIND.to_owned(), kind.to_owned())).filter(|_| kind != DEFAULT_KIND));
    }
    if carried.rrsets.len() > IMPORT_MAX_CHANGES {
        let detail = format!(
            "{} RRsets: at most {IMPORT_MAX_CHANGES} in one revision; take its file in by parts with `headwater zone import --mode merge`",
            carried.rrsets.len()
        );
        return Ok((Tried::Refused(Reject::Invalid(vec![Fault::at("", "too_many_changes", detail)])), id));
    }
    let create = CreateDomain {
        id,
        name: name.clone(),
        tenant,
        force_active: work.requested.activate,
        labels,
        external_id: None,
        rrsets: carried.rrsets.clone(),
        serial_floor: Some(carried.serial.unwrap_or(0)),
    };
    Ok((work.submit(Command::CreateDomain(create)).await?, id))
}

/// A domain that was here before this import came to it. None: it moved on.
async fn beside(
    work: &Work,
    listed: &Listed,
    domain: &DomainState,
    carried: &Carried,
) -> Result<Option<Line>, RebuildError> {
    use headwater_events::domain::ImportMode::{Merge, Replace};
    let comments = work.requested.source.has_comments();
    let text: Vec<TextRrset> = carried
        .rrsets
        .iter()
        .zip(&carried.lines)
        .map(|(rrset, line)| TextRrset { rrset: rrset.clone(), line: *line })
        .collect();
    let mode = if work.requested.on_existing == OnExisting::Merge { Merge } else { Replace };
    let mut comparison = Comparison::new(&text, mode).with_comments(comments);
    let mut stored = std::pin::pin!(rrsets::zone(work.app.pool.clone(), domain.id));
    while let Some(one) = stored.next().await {
        let one = one?;
        comparison.stored(one.owner, one.rrtype, &one.body);
    }
    let (lines, changes) = comparison.finish();
    let done = if changes.is_empty() && is_ours(work, domain.id).await? {
        Outcome::Imported
    } else {
        Outcome::Unchanged
    };
    if work.requested.on_existing == OnExisting::Skip {
        if changes.is_empty() {
            return Ok(Some(line(listed, done)));
        }
        let why =
            format!("the domain is here already and differs in {} RRsets: it stays as it is", changes.len());
        let told = Told { warnings: vec![why], ..Told::default() };
        return Ok(Some(Line { told, ..line(listed, Outcome::Skipped) }));
    }
    let tried = import(work, domain, changes.clone(), carried.serial).await?;
    Ok(match tried {
        Tried::MovedOn => None,
        Tried::Changed(warnings) => {
            Some(Line { told: Told { warnings, ..Told::default() }, ..line(listed, Outcome::Imported) })
        }
        Tried::Unchanged(_) => Some(line(listed, done)),
        Tried::Refused(reject) => Some(refused(listed, of_reject(reject, &changes, &lines))),
    })
}

/// A domain that this import brought, and what changed at its source since. None: it moved on.
async fn again(
    work: &Work,
    listed: &Listed,
    domain: &DomainState,
    carried: &Carried,
    base: &Base,
) -> Result<Option<Line>, RebuildError> {
    let comments = work.requested.source.has_comments();
    let mut stored = Vec::new();
    let mut rows = std::pin::pin!(rrsets::zone(work.app.pool.clone(), domain.id));
    while let Some(one) = rows.next().await {
        let one = one?;
        stored.push((one.owner, one.rrtype, one.body));
    }
    let merged = merge(&carried.rrsets, base, stored, comments);
    let outcome = if merged.conflicts.is_empty() { Outcome::Imported } else { Outcome::Conflict };
    let tried = import(work, domain, merged.changes.clone(), carried.serial).await?;
    let told = |warnings| Told { warnings, conflicts: merged.conflicts.clone(), ..Told::default() };
    let next = Some(merged.base.to_bytes());
    Ok(match tried {
        Tried::MovedOn => None,
        Tried::Changed(warnings) => Some(Line { told: told(warnings), base: next, ..line(listed, outcome) }),
        Tried::Unchanged(_) => Some(Line { told: told(Vec::new()), base: next, ..line(listed, outcome) }),
        Tried::Refused(reject) => {
            let why = of_reject(reject, &merged.changes, &[]);
            Some(Line { base: Some(base.to_bytes()), ..refused(listed, why) })
        }
    })
}

async fn import(
    work: &Work,
    domain: &DomainState,
    changes: Vec<RrsetChange>,
    serial: Option<u32>,
) -> Result<Tried, RebuildError> {
    let import = ZoneImport {
        domain: domain.id,
        through: domain.revision,
        changes: Arc::new(changes),
        serial,
        warnings: Vec::new(),
    };
    let command = DomainCommand::ImportZone(Box::new(import));
    work.submit(Command::Domain { name: domain.name.clone(), command }).await
}

/// Whether an earlier try of this import made the domain what it is, and died before it could tell.
async fn is_ours(work: &Work, domain: DomainId) -> Result<bool, RebuildError> {
    let query = sqlx::query_scalar(sql::IS_OURS).bind(domain.as_uuid()).bind(work.import.as_uuid());
    Ok(query.fetch_one(&work.app.pool).await?)
}

/// What would come of the first zones of a source, of which at most so many are looked at within a time; with how many
/// there are.
///
/// # Errors
/// When the source cannot be read.
pub async fn rehearse(
    app: &App,
    caller: Caller,
    requested: ImportRequested,
    most: usize,
    within: Duration,
) -> Result<(Vec<ShownLine>, usize), RebuildError> {
    let deadline = tokio::time::Instant::now() + within;
    let of_source = |error| match error {
        SourceError::Unusable(why) => RebuildError::Source(why),
        other => RebuildError::Import(other.to_string()),
    };
    let source = Source::open(&requested.source).map_err(of_source)?;
    let listing = source.list(&requested, false);
    let listing = tokio::time::timeout_at(deadline, listing).await;
    let listing =
        listing.map_err(|_| RebuildError::Import("the source does not answer in time".to_owned()))?;
    let zones = listing.map_err(of_source)?.zones;
    let work = Work {
        app: app.clone(),
        source,
        caller,
        import: OperationId::from_uuid(Uuid::now_v7()),
        position: None,
        requested,
        note: None,
        rehearse: true,
    };
    let mut told = Vec::new();
    for listed in zones.iter().take(most) {
        match tokio::time::timeout_at(deadline, one(&work, listed, None, true)).await {
            Ok(line) => told.extend(line?.map(ShownLine::of)),
            Err(_) => break,
        }
    }
    Ok((told, zones.len()))
}
