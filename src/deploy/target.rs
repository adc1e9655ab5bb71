//! Candidates → a target's database: one transaction for many zones, fenced zone by zone under the locks of the
//! ledger, so that rows and what is said of them change together or not at all.

use super::claim::{self, Snapshot, unsigned};
use super::cluster::Target;
use super::fault::DeployError;
use super::fence::{How, Intent, Judgement, Ledger, judge};
use super::load::{Candidate, Work, chain_ends};
use super::permit::{Order, Permit};
use super::sample::{self, Sample};
use super::zone::{Overlay, ZoneReader};
use headwater_events::ids::{ClusterId, DomainId, LogId, Revision};
use headwater_projections::powerdns::{Row, SetHash, StoredRow, plan, sql};
use sqlx::Row as _;
use sqlx::postgres::{PgConnection, PgPool, PgRow, PgTransaction};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

/// Rows of one insert.
const INSERT_MAX_ROWS: usize = 10_000;
/// How long one transaction of many zones may take.
const APPLY_LIMIT: Duration = Duration::from_secs(60);
/// How long the transaction of one very large zone may take.
const STREAM_LIMIT: Duration = Duration::from_secs(900);

/// What became of a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Applied {
    /// It is active now, or was already: these are its rows' checksum and, of a streamed zone, its samples.
    Active(SetHash, Vec<Sample>),
    /// The zone is not there, or no longer.
    Removed,
    /// Nothing was written.
    Not(Judgement),
}

/// Applies candidates of different zones, all or none.
///
/// # Errors
/// When the target or the control database fails; nothing was written then, or it is not known.
pub async fn apply(
    target: &Target,
    control: &PgPool,
    log: LogId,
    candidates: &[&Candidate],
    order: Order,
) -> Result<Vec<Applied>, DeployError> {
    let applying = async {
        let mut transaction = target.pool.begin().await.map_err(DeployError::target)?;
        let written = write(&mut transaction, control, log, candidates, None).await?;
        commit(transaction, control, target.cluster.id, order).await?;
        fail::fail_point!("deploy.after_commit", |_| Err(DeployError::Failed("failpoint".into())));
        Ok(written)
    };
    tokio::time::timeout(APPLY_LIMIT, applying).await.unwrap_or_else(|_| Err(late(APPLY_LIMIT)))
}

/// Applies one zone of any size, reading its rows from the snapshot while they are written.
///
/// # Errors
/// As [`apply`].
pub(super) async fn apply_streamed(
    target: &Target,
    control: &PgPool,
    log: LogId,
    candidate: &Candidate,
    snapshot: &mut Snapshot,
    order: Order,
) -> Result<Applied, DeployError> {
    let applying = async {
        let mut transaction = target.pool.begin().await.map_err(DeployError::target)?;
        let written = write(&mut transaction, control, log, &[candidate], Some(snapshot)).await?;
        commit(transaction, control, target.cluster.id, order).await?;
        Ok(written.into_iter().next().unwrap_or(Applied::Not(Judgement::Stale)))
    };
    tokio::time::timeout(STREAM_LIMIT, applying).await.unwrap_or_else(|_| Err(late(STREAM_LIMIT)))
}

/// Commits, unless the cluster may not be written any more.
pub(super) async fn commit(
    transaction: PgTransaction<'static>,
    control: &PgPool,
    cluster: ClusterId,
    order: Order,
) -> Result<(), DeployError> {
    fail::fail_point!("deploy.before_commit", |_| Err(DeployError::Failed("failpoint".into())));
    let permit = Permit::take(control, cluster, order).await?;
    fail::fail_point!("deploy.permitted", |_| Err(DeployError::Failed("failpoint".into())));
    transaction.commit().await.map_err(DeployError::target)?;
    permit.end().await;
    Ok(())
}

fn late(limit: Duration) -> DeployError {
    DeployError::Unreachable(format!("a transaction did not end within {} s", limit.as_secs()))
}

/// What a candidate intends, as the fence reads it.
fn intent(made: &Candidate) -> Intent {
    let how = match &made.work {
        Work::Remove => How::Remove,
        Work::Owners { base, .. } => How::Since(*base),
        Work::Whole(_) | Work::Streamed if made.rebuild => How::Rebuild,
        Work::Whole(_) | Work::Streamed => How::Whole,
    };
    Intent {
        domain: made.claim.domain,
        name: made.claim.name.clone(),
        revision: made.claim.desired,
        generation: made.claim.generation,
        serial: made.claim.serial(),
        how,
    }
}

/// Reads a row of the ledger.
pub(super) fn ledger(row: &PgRow) -> Result<Ledger, sqlx::Error> {
    let checksum: &[u8] = row.try_get(6)?;
    Ok(Ledger {
        name: row.try_get(0)?,
        domain: DomainId::from_uuid(row.try_get(1)?),
        log: LogId::from_uuid(row.try_get(2)?),
        revision: Revision::new(row.try_get(3)?),
        generation: unsigned(row.try_get(4)?),
        serial: unsigned(row.try_get(5)?),
        checksum: SetHash::from_bytes(checksum),
        chain: row.try_get(7)?,
        present: row.try_get(8)?,
        released: row.try_get(9)?,
        zone_id: row.try_get(10)?,
    })
}

/// Locks the ledger's rows of these zones, made where there are none.
pub(super) async fn lock(
    connection: &mut PgConnection,
    log: LogId,
    zones: &[(String, DomainId)],
) -> Result<HashMap<String, Ledger>, DeployError> {
    let names: Vec<&str> = zones.iter().map(|(name, _)| name.as_str()).collect();
    let ids: Vec<_> = zones.iter().map(|(_, id)| id.as_uuid()).collect();
    let begin = sqlx::query(sql::LEDGER_BEGIN).bind(&names).bind(ids).bind(log.as_uuid());
    begin.execute(&mut *connection).await.map_err(DeployError::target)?;
    let rows =
        sqlx::query(sql::LEDGER_LOCK).bind(names).fetch_all(connection).await.map_err(DeployError::target)?;
    let entry = |row: &PgRow| ledger(row).map(|ledger| (ledger.name.clone(), ledger));
    rows.iter().map(|row| entry(row).map_err(DeployError::target)).collect()
}

/// Which of these states the control database's log knows.
pub(super) async fn known(
    control: &PgPool,
    ledgers: &HashMap<String, Ledger>,
    candidates: &[&Candidate],
) -> Result<BTreeSet<String>, DeployError> {
    let mut known = BTreeSet::new();
    let mut asked = BTreeSet::new();
    for ledger in ledgers.values().filter(|ledger| ledger.revision > Revision::ZERO) {
        let loaded = candidates.iter().find(|made| made.claim.domain == ledger.domain);
        match loaded.and_then(|made| made.chains.get(&ledger.revision)) {
            Some(end) if *end == ledger.chain => {
                known.insert(ledger.name.clone());
            }
            Some(_) => {}
            None => {
                asked.insert((ledger.domain, ledger.revision));
            }
        }
    }
    if !asked.is_empty() {
        // Not in the candidates' snapshot: a state may be known that is newer than it.
        let mut connection = control.acquire().await.map_err(DeployError::control)?;
        let found = chain_ends(&mut connection, &asked).await?;
        for ledger in ledgers.values() {
            if found.get(&(ledger.domain, ledger.revision)) == Some(&ledger.chain) {
                known.insert(ledger.name.clone());
            }
        }
    }
    Ok(known)
}

/// Candidates under their locks, and what may be done with each.
struct Judged<'c> {
    candidates: &'c [&'c Candidate],
    ledgers: HashMap<String, Ledger>,
    verdicts: Vec<Judgement>,
}

impl<'c> Judged<'c> {
    /// Those that are written.
    fn passed(&self) -> Vec<&'c Candidate> {
        let judged = self.candidates.iter().zip(&self.verdicts);
        judged.filter(|(_, verdict)| **verdict == Judgement::Write).map(|(made, _)| *made).collect()
    }

    fn names(&self, of: impl Fn(&Work) -> bool) -> Vec<&'c str> {
        self.passed().into_iter().filter(|made| of(&made.work)).map(|made| made.claim.name.as_str()).collect()
    }

    fn ledger(&self, made: &Candidate) -> Option<&Ledger> {
        self.ledgers.get(made.claim.name.as_str())
    }
}

async fn write(
    connection: &mut PgConnection,
    control: &PgPool,
    log: LogId,
    candidates: &[&Candidate],
    snapshot: Option<&mut Snapshot>,
) -> Result<Vec<Applied>, DeployError> {
    let zones: Vec<_> =
        candidates.iter().map(|made| (made.claim.name.to_string(), made.claim.domain)).collect();
    let ledgers = lock(connection, log, &zones).await?;
    let known = known(control, &ledgers, candidates).await?;
    let verdict = |made: &&Candidate| {
        let name = made.claim.name.as_str();
        judge(ledgers.get(name), &intent(made), known.contains(name))
    };
    let verdicts = candidates.iter().map(verdict).collect();
    let judged = Judged { candidates, ledgers, verdicts };

    remove(connection, &judged.names(|work| *work == Work::Remove)).await?;
    let ids = zone_ids(connection, &judged.names(|work| *work != Work::Remove)).await?;
    let whole: Vec<i32> = judged
        .passed()
        .into_iter()
        .filter(|made| matches!(made.work, Work::Whole(_) | Work::Streamed))
        .filter(|made| judged.ledger(made).is_some_and(|ledger| ledger.zone_id.is_some()))
        .filter_map(|made| ids.get(made.claim.name.as_str()).copied())
        .collect();
    clear(connection, &whole).await?;
    let mut sums = write_rows(connection, &judged, &ids, snapshot).await?;
    let outcome = |(made, verdict): (&&Candidate, &Judgement)| match (verdict, &made.work) {
        (Judgement::Write | Judgement::Current | Judgement::NothingToRemove, Work::Remove) => {
            Applied::Removed
        }
        (Judgement::Write, _) => {
            let (sum, samples) = sums.remove(&made.claim.domain).unwrap_or_default();
            Applied::Active(sum, samples)
        }
        (Judgement::Current, _) => {
            let sum = judged.ledger(made).and_then(|ledger| ledger.checksum).unwrap_or_default();
            Applied::Active(sum, Vec::new())
        }
        (other, _) => Applied::Not(other.clone()),
    };
    let applied: Vec<Applied> = candidates.iter().zip(&judged.verdicts).map(outcome).collect();
    let all = candidates.iter().zip(&applied).zip(&judged.verdicts);
    let written = all.filter(|(_, verdict)| **verdict == Judgement::Write);
    let written: Vec<(&Candidate, &Applied)> = written.map(|((made, applied), _)| (*made, applied)).collect();
    set_ledger(connection, log, &written).await?;
    Ok(applied)
}

/// Writes the rows of what passed; gives the checksum of each zone, and samples of a streamed one.
async fn write_rows(
    connection: &mut PgConnection,
    judged: &Judged<'_>,
    ids: &HashMap<String, i32>,
    mut snapshot: Option<&mut Snapshot>,
) -> Result<HashMap<DomainId, (SetHash, Vec<Sample>)>, DeployError> {
    let mut found = found_rows(connection, &judged.passed(), ids).await?;
    let mut pending = Pending::default();
    let mut sums = HashMap::new();
    for made in judged.passed() {
        let Some(&id) = ids.get(made.claim.name.as_str()) else { continue };
        let mut sum = SetHash::EMPTY;
        let mut samples = Vec::new();
        match &made.work {
            Work::Remove => continue,
            Work::Owners { rows, .. } => {
                let found = found.remove(&id).unwrap_or_default();
                sum = judged.ledger(made).and_then(|ledger| ledger.checksum).unwrap_or_default();
                sum.subtract(SetHash::of_rows(found.iter().map(|stored| &stored.row)));
                sum.add(SetHash::of_rows(rows));
                let plan = plan(rows, found);
                pending.delete.extend(plan.delete.iter().map(|stored| stored.id));
                pending.insert.extend(plan.insert.into_iter().map(|row| (id, row)));
            }
            Work::Whole(rows) => {
                sum.add(SetHash::of_rows(rows));
                pending.insert.extend(rows.iter().map(|row| (id, row.clone())));
            }
            Work::Streamed => {
                let (Some(zone), Some(snapshot)) = (&made.zone, snapshot.as_deref_mut()) else { continue };
                let endpoints = claim::platform(snapshot).await?.endpoints;
                let mut reader = ZoneReader::new(made.claim.domain, zone, Overlay::new(), endpoints.as_ref());
                while let Some(rows) = reader.next(snapshot).await? {
                    sum.add(SetHash::of_rows(&rows));
                    samples = sample::of_rows(zone, &rows);
                    pending.insert.extend(rows.into_iter().map(|row| (id, row)));
                    pending.flush(connection).await?;
                }
            }
        }
        sums.insert(made.claim.domain, (sum, samples));
    }
    pending.flush(connection).await?;
    Ok(sums)
}

async fn remove(connection: &mut PgConnection, zones: &[&str]) -> Result<(), DeployError> {
    if !zones.is_empty() {
        let delete = sqlx::query(sql::DOMAINS_DELETE).bind(zones);
        delete.execute(connection).await.map_err(DeployError::target)?;
    }
    Ok(())
}

/// The ids of zones in PowerDNS's table, made where they are missing.
async fn zone_ids(
    connection: &mut PgConnection,
    zones: &[&str],
) -> Result<HashMap<String, i32>, DeployError> {
    if zones.is_empty() {
        return Ok(HashMap::new());
    }
    let put = sqlx::query(sql::DOMAINS_PUT).bind(zones);
    put.execute(&mut *connection).await.map_err(DeployError::target)?;
    let query = sqlx::query_as::<_, (String, i32)>(sql::DOMAINS_IDS).bind(zones);
    Ok(query.fetch_all(connection).await.map_err(DeployError::target)?.into_iter().collect())
}

/// Empties zones, with what a former zone of the name may have left.
async fn clear(connection: &mut PgConnection, zones: &[i32]) -> Result<(), DeployError> {
    if zones.is_empty() {
        return Ok(());
    }
    let records = sqlx::query(sql::RECORDS_CLEAR).bind(zones);
    records.execute(&mut *connection).await.map_err(DeployError::target)?;
    clear_extras(connection, zones).await
}

/// Takes off what hangs on zones besides their records: nothing of it is ever written by us.
pub(super) async fn clear_extras(connection: &mut PgConnection, zones: &[i32]) -> Result<(), DeployError> {
    for text in [sql::METADATA_CLEAR, sql::KEYS_CLEAR, sql::COMMENTS_CLEAR] {
        sqlx::query(text).bind(zones).execute(&mut *connection).await.map_err(DeployError::target)?;
    }
    Ok(())
}

/// The rows that are there now of the names that candidates replace, by zone.
async fn found_rows(
    connection: &mut PgConnection,
    candidates: &[&Candidate],
    ids: &HashMap<String, i32>,
) -> Result<BTreeMap<i32, Vec<StoredRow>>, DeployError> {
    let (mut zones, mut names) = (Vec::new(), Vec::new());
    for made in candidates {
        if let (Work::Owners { names: of, .. }, Some(&id)) = (&made.work, ids.get(made.claim.name.as_str())) {
            zones.extend(std::iter::repeat_n(id, of.len()));
            names.extend(of.iter().map(String::as_str));
        }
    }
    let mut found: BTreeMap<i32, Vec<StoredRow>> = BTreeMap::new();
    if zones.is_empty() {
        return Ok(found);
    }
    let query = sqlx::query(sql::RECORDS_OF_NAMES).bind(zones).bind(names);
    for row in query.fetch_all(connection).await.map_err(DeployError::target)? {
        let (zone, stored) = stored_row(&row).map_err(DeployError::target)?;
        found.entry(zone).or_default().push(stored);
    }
    Ok(found)
}

/// Reads a record and the zone it is in.
pub(super) fn stored_row(row: &PgRow) -> Result<(i32, StoredRow), sqlx::Error> {
    let read = Row {
        name: row.try_get::<Option<String>, _>(2)?.unwrap_or_default(),
        rrtype: row.try_get::<Option<String>, _>(3)?.map(Into::into),
        content: row.try_get(4)?,
        ttl: row.try_get(5)?,
        auth: row.try_get::<Option<bool>, _>(6)?.unwrap_or_default(),
        ordername: row.try_get(7)?,
        prio: row.try_get(8)?,
        disabled: row.try_get::<Option<bool>, _>(9)?.unwrap_or_default(),
    };
    Ok((row.try_get(1)?, StoredRow { id: row.try_get(0)?, row: read }))
}

/// Rows to write that have not been sent yet.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// Ids of rows to delete.
    pub(super) delete: Vec<i64>,
    /// Rows to insert, with the ids of their zones.
    pub(super) insert: Vec<(i32, Row)>,
}

impl Pending {
    /// Sends them.
    pub(super) async fn flush(&mut self, connection: &mut PgConnection) -> Result<(), DeployError> {
        if !self.delete.is_empty() {
            let delete = sqlx::query(sql::RECORDS_DELETE).bind(std::mem::take(&mut self.delete));
            delete.execute(&mut *connection).await.map_err(DeployError::target)?;
        }
        for rows in self.insert.chunks(INSERT_MAX_ROWS) {
            let column = |of: fn(&Row) -> Option<&str>| -> Vec<Option<&str>> {
                rows.iter().map(|(_, row)| of(row)).collect()
            };
            let insert = sqlx::query(sql::RECORDS_INSERT)
                .bind(rows.iter().map(|(id, _)| *id).collect::<Vec<_>>())
                .bind(column(|row| Some(&row.name)))
                .bind(column(|row| row.rrtype.as_deref()))
                .bind(column(|row| row.content.as_deref()))
                .bind(rows.iter().map(|(_, row)| row.ttl).collect::<Vec<_>>())
                .bind(rows.iter().map(|(_, row)| row.auth).collect::<Vec<_>>())
                .bind(column(|row| row.ordername.as_deref()));
            insert.execute(&mut *connection).await.map_err(DeployError::target)?;
        }
        self.insert.clear();
        Ok(())
    }
}

async fn set_ledger(
    connection: &mut PgConnection,
    log: LogId,
    written: &[(&Candidate, &Applied)],
) -> Result<(), DeployError> {
    if written.is_empty() {
        return Ok(());
    }
    let sum = |applied: &Applied| match applied {
        Applied::Active(sum, _) => sum.to_bytes().to_vec(),
        _ => Vec::new(),
    };
    let end = |made: &Candidate| made.chains.get(&made.claim.desired).cloned().unwrap_or_default();
    let set = sqlx::query(sql::LEDGER_SET)
        .bind(written.iter().map(|(made, _)| made.claim.name.as_str()).collect::<Vec<_>>())
        .bind(written.iter().map(|(made, _)| made.claim.domain.as_uuid()).collect::<Vec<_>>())
        .bind(log.as_uuid())
        .bind(written.iter().map(|(made, _)| made.claim.desired.get()).collect::<Vec<_>>())
        .bind(written.iter().map(|(made, _)| i64::from(made.claim.generation)).collect::<Vec<_>>())
        .bind(written.iter().map(|(made, _)| i64::from(made.claim.serial())).collect::<Vec<_>>())
        .bind(written.iter().map(|(_, applied)| sum(applied)).collect::<Vec<_>>())
        .bind(written.iter().map(|(made, _)| end(made)).collect::<Vec<_>>())
        .bind(written.iter().map(|(_, applied)| **applied != Applied::Removed).collect::<Vec<_>>());
    set.execute(connection).await.map_err(DeployError::target)?;
    Ok(())
}
