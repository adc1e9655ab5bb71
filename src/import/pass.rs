//! Every zone of a source, in the order of their names, some at once. What came of each is kept in that order, so that
//! whoever goes on begins behind the last one that was; one that was done and not kept is done again and changes nothing.

use super::report::{self, Line, Outcome, Told};
use super::source::{Listed, Source, SourceError};
use super::sql;
use super::take::{self, Work};
use crate::app::App;
use crate::deploy::Lease;
use crate::operation::{Holder, asker};
use crate::query::rrsets;
use crate::rebuild::{Difference, Keep, Phase, Progress, RebuildError, Watch};
use futures_util::StreamExt;
use headwater_events::actor::{Actor, Caller};
use headwater_events::ids::{ClusterId, OperationId, Position};
use headwater_events::migration::{ImportCutoverRequested, ImportRequested, Mode};
use sqlx::Row;
use sqlx::postgres::PgRow;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// Zones that are taken in at once: they share commits.
const IN_FLIGHT_MAX_ZONES: usize = 64;
/// Zones of which it is read at once what is known.
const KNOWN_MAX_ZONES: usize = 1_024;
/// Lines that are kept at once.
const LINES_MAX_COUNT: usize = 128;
/// How often whoever ends an import asks for its lease, which another may hold until it notices.
const LEASE_PAUSE: Duration = Duration::from_millis(200);
/// How often a lease is renewed meanwhile.
const KEEP_INTERVAL: Duration = Duration::from_secs(1);
/// Under which the place is kept: zones are walked once.
const WALK: ClusterId = ClusterId::from_uuid(Uuid::nil());

/// An import, by whom it was asked for and why.
#[derive(Debug, Clone)]
pub struct Asked {
    pub(super) requested: ImportRequested,
    pub(super) import: OperationId,
    position: Position,
    actor: Actor,
    note: Option<String>,
}

impl Asked {
    /// From a row of what is due, with its position at a column and the actor and the note behind it.
    pub(crate) fn of(
        import: OperationId,
        requested: ImportRequested,
        row: &PgRow,
        first: usize,
    ) -> Result<Self, sqlx::Error> {
        Ok(Self {
            requested,
            import,
            position: Position::new(row.try_get(first)?),
            actor: rrsets::actor(row, first + 1)?,
            note: row.try_get(first + 5)?,
        })
    }

    async fn work(&self, app: &App) -> Result<Arc<Work>, RebuildError> {
        let caller = asker(app, self.actor).await?;
        if !caller.admin && caller != Caller::system() {
            return Err(RebuildError::Forbidden);
        }
        Ok(Arc::new(Work {
            app: app.clone(),
            source: Source::open(&self.requested.source).map_err(of_source)?,
            caller,
            import: self.import,
            position: Some(self.position),
            requested: self.requested.clone(),
            note: self.note.clone(),
            rehearse: self.requested.mode == Mode::Rehearse,
        }))
    }
}

/// An end that was asked for.
#[derive(Debug, Clone)]
pub struct AskedCutover {
    asked: Asked,
    operation: OperationId,
    without_last_look: bool,
}

impl AskedCutover {
    /// From a row of what is due.
    pub(crate) fn of(
        operation: OperationId,
        cutover: ImportCutoverRequested,
        row: &PgRow,
    ) -> Result<Self, sqlx::Error> {
        let asked = Asked::of(cutover.import, cutover.requested, row, 6)?;
        Ok(Self { asked, operation, without_last_look: cutover.without_last_look })
    }
}

pub(super) fn of_source(error: SourceError) -> RebuildError {
    match error {
        SourceError::Unusable(why) => RebuildError::Source(why),
        SourceError::Away(why) | SourceError::Zone(why) => RebuildError::Import(why),
    }
}

/// Whoever is told how far a pass has come.
trait Along: Send {
    /// The last zone that an earlier try came to.
    fn before(&mut self) -> impl Future<Output = Option<String>> + Send;

    /// So many are done, these of them since.
    fn done(
        &mut self,
        done: i64,
        total: i64,
        zones: &[Listed],
    ) -> impl Future<Output = Result<(), RebuildError>> + Send;
}

/// A try of an operation.
struct OfRun<'a, K> {
    watch: Watch<'a>,
    keep: &'a K,
}

impl<K: Keep> Along for OfRun<'_, K> {
    async fn before(&mut self) -> Option<String> {
        self.keep.before(WALK).await.map(|(zone, _)| zone.to_string())
    }

    async fn done(&mut self, done: i64, total: i64, zones: &[Listed]) -> Result<(), RebuildError> {
        (self.watch)(Progress { phase: Phase::Import, done, total });
        for name in zones.iter().filter_map(|zone| zone.name.as_ref().ok()) {
            self.keep.done(WALK, name, Vec::new()).await?;
        }
        Ok(())
    }
}

/// A look at a source that is followed.
struct OfFollow;

impl Along for OfFollow {
    async fn before(&mut self) -> Option<String> {
        None
    }

    async fn done(&mut self, _: i64, _: i64, _: &[Listed]) -> Result<(), RebuildError> {
        Ok(())
    }
}

/// A zone that is to be taken in.
struct Todo {
    work: Arc<Work>,
    zone: Listed,
    known: Option<Line>,
    whole: bool,
}

impl Todo {
    fn spawn(self) -> JoinHandle<Result<(Listed, Option<Line>), RebuildError>> {
        tokio::spawn(async move {
            fail::fail_point!("import.before_zone");
            let line = take::one(&self.work, &self.zone, self.known.as_ref(), self.whole).await?;
            fail::fail_point!("import.after_zone");
            Ok((self.zone, line))
        })
    }
}

/// Takes in every zone that there is.
async fn walk(
    work: &Arc<Work>,
    holder: &Holder,
    zones: Vec<Listed>,
    whole: bool,
    along: &mut impl Along,
) -> Result<(), RebuildError> {
    let total = i64::try_from(zones.len()).unwrap_or(i64::MAX);
    let before = along.before().await;
    let is_done = |zone: &Listed| match (&before, &zone.name) {
        (Some(before), Ok(name)) => name.as_str() <= before.as_str(),
        _ => false,
    };
    let left: Vec<Listed> = zones.into_iter().filter(|zone| !is_done(zone)).collect();
    let mut done = total - i64::try_from(left.len()).unwrap_or(0);
    along.done(done, total, &[]).await?;
    let pool = &work.app.pool;
    for some in left.chunks(KNOWN_MAX_ZONES) {
        let names: Vec<String> = some.iter().map(called).collect();
        let mut known = report::known(pool, work.import, &names).await?;
        let mut todo = Vec::with_capacity(some.len());
        for zone in some {
            let known = known.remove(&called(zone));
            todo.push(Todo { work: Arc::clone(work), zone: zone.clone(), known, whole });
        }
        let taken = futures_util::stream::iter(todo).map(Todo::spawn).buffered(IN_FLIGHT_MAX_ZONES);
        let mut taken = taken.ready_chunks(LINES_MAX_COUNT);
        while let Some(chunk) = taken.next().await {
            let (mut zones, mut lines) = (Vec::new(), Vec::new());
            for one in chunk {
                let (zone, line) = one.map_err(|error| RebuildError::Import(error.to_string()))??;
                zones.push(zone);
                lines.extend(line);
            }
            fail::fail_point!("import.before_report");
            keep(work, holder, &lines).await?;
            fail::fail_point!("import.after_report");
            done += i64::try_from(zones.len()).unwrap_or(0);
            along.done(done, total, &zones).await?;
        }
    }
    Ok(())
}

fn called(zone: &Listed) -> String {
    zone.name.as_ref().map_or_else(|_| zone.called.clone(), ToString::to_string)
}

async fn keep(work: &Work, holder: &Holder, lines: &[Line]) -> Result<(), RebuildError> {
    if lines.is_empty() || report::save(&work.app.pool, holder, work.import, lines).await? {
        return Ok(());
    }
    Err(RebuildError::Stopped)
}

/// What the source had and has no more is told, and stays.
async fn missing(work: &Work, holder: &Holder, names: &[String]) -> Result<(), RebuildError> {
    let why = "the source has this zone no more: the domain stays as it is here";
    let gone = report::gone(&work.app.pool, work.import, names).await?;
    let gone = gone.into_iter().map(|line| {
        let told = Told { warnings: vec![why.to_owned()], ..line.told };
        Line { outcome: Outcome::Missing, told, ..line }
    });
    keep(work, holder, &gone.collect::<Vec<_>>()).await
}

/// The first pass, which is what the operation of an import does; gives nothing, since its report tells everything.
///
/// # Errors
/// Why it did not come to its end.
pub(crate) async fn first(
    app: &App,
    asked: &Asked,
    holder: &Holder,
    watch: Watch<'_>,
    run: &impl Keep,
) -> Result<Vec<Difference>, RebuildError> {
    let work = asked.work(app).await?;
    let is_followed = asked.requested.mode == Mode::Follow;
    let listing = work.source.list(&asked.requested, is_followed).await.map_err(of_source)?;
    report::begin(&app.pool, holder, asked.import, &listing.notes).await?;
    walk(&work, holder, listing.zones, false, &mut OfRun { watch, keep: run }).await?;
    if is_followed {
        let query = sqlx::query(sql::FOLLOW).bind(&holder.lease).bind(holder.owner);
        let query = query.bind(asked.import.as_uuid()).bind(f64::from(asked.requested.follow_seconds));
        if query.execute(&app.pool).await?.rows_affected() == 0 {
            return Err(RebuildError::Stopped);
        }
    }
    Ok(Vec::new())
}

/// One more look at a source that is followed; `whole`: at all of it, whatever its zones say of themselves.
async fn look(
    app: &App,
    asked: &Asked,
    holder: &Holder,
    whole: bool,
    along: &mut impl Along,
) -> Result<(), RebuildError> {
    let work = asked.work(app).await?;
    let listing = work.source.list(&asked.requested, true).await.map_err(of_source)?;
    let names: Vec<String> = listing.zones.iter().map(called).collect();
    walk(&work, holder, listing.zones, whole, along).await?;
    missing(&work, holder, &names).await
}

/// The lease of one import: whoever looks at its source holds it.
pub(super) fn lease(import: OperationId) -> Lease {
    Lease::new(format!("import:{import}"))
}

fn holder(lease: &Lease) -> Holder {
    let (name, owner) = lease.holder();
    Holder { lease: name.to_owned(), owner }
}

/// Works while a lease is kept, and while `may` says so.
async fn while_held<T>(
    app: &App,
    lease: &mut Lease,
    work: impl Future<Output = Result<T, RebuildError>>,
    import: OperationId,
    is_last: bool,
) -> Result<T, RebuildError> {
    let mut work = std::pin::pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = app.stop.cancelled() => return Err(RebuildError::Stopped),
            () = tokio::time::sleep(KEEP_INTERVAL) => {}
        }
        if !lease.keep(&app.pool).await? {
            return Err(RebuildError::Stopped);
        }
        let query = sqlx::query_scalar::<_, bool>(sql::MAY_LOOK).bind(import.as_uuid());
        if !is_last && !query.fetch_one(&app.pool).await? {
            return Err(RebuildError::Stopped);
        }
    }
}

/// One look while it is followed, under a lease that is held.
pub(super) async fn follow(app: &App, asked: &Asked, lease: &mut Lease) -> Result<(), RebuildError> {
    let holder = holder(lease);
    let mut along = OfFollow;
    let look = look(app, asked, &holder, false, &mut along);
    // Boxed: it is large, and lives in a loop.
    while_held(app, lease, Box::pin(look), asked.import, false).await
}

/// The last look, and no more from there on.
///
/// # Errors
/// Why it did not come to its end; the source is followed on then.
pub(crate) async fn cut_over(
    app: &App,
    cutover: &AskedCutover,
    watch: Watch<'_>,
    run: &impl Keep,
) -> Result<Vec<Difference>, RebuildError> {
    let asked = &cutover.asked;
    let import = asked.import.as_uuid();
    let over: bool = sqlx::query_scalar(sql::IS_CUT_OVER).bind(import).fetch_one(&app.pool).await?;
    if over {
        return Ok(Vec::new());
    }
    let query = sqlx::query(sql::CUT).bind(import).bind(cutover.operation.as_uuid());
    if query.execute(&app.pool).await?.rows_affected() == 0 {
        return Err(RebuildError::Source("the import does not follow its source".to_owned()));
    }
    let mut lease = lease(asked.import);
    // Whoever looks at the source now sees that it is to end, and lets go.
    while !lease.keep(&app.pool).await? {
        watch(Progress { phase: Phase::Import, done: 0, total: 0 });
        tokio::time::sleep(LEASE_PAUSE).await;
    }
    let holder = holder(&lease);
    if !cutover.without_last_look {
        let mut along = OfRun { watch, keep: run };
        let last = look(app, asked, &holder, true, &mut along);
        while_held(app, &mut lease, Box::pin(last), asked.import, true).await?;
    }
    fail::fail_point!("import.before_cutover");
    let query = sqlx::query(sql::CUT_OVER).bind(&holder.lease).bind(holder.owner).bind(import);
    let done = query.execute(&app.pool).await?.rows_affected();
    fail::fail_point!("import.after_cutover");
    lease.end(&app.pool).await;
    if done == 0 { Err(RebuildError::Stopped) } else { Ok(Vec::new()) }
}
