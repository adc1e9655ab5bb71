//! The sites of a page: read from `desired` before the fold, written after it.

use super::change::{Known, Touch, Write, write};
use super::render::{Rendered, Site};
use super::{Edge, sql};
use headwater_edge_wire::checksum::Checksum;
use headwater_edge_wire::sign::Signature;
use headwater_events::dns::{DomainName, OwnerName};
use headwater_events::domain::{CachePolicy, CertificateBody, HostnameBody};
use headwater_events::event::DomainStatus;
use headwater_events::ids::{DomainId, Revision};
use sqlx::Row;
use sqlx::postgres::PgConnection;
use sqlx::types::Json;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

fn odd(column: &str) -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: "a value that this program never writes".into(),
    }
}

/// Reads some of the domains; those that edges never had to do with are absent. With each, what is published of it.
pub(super) async fn load(
    transaction: &mut PgConnection,
    ids: &[DomainId],
) -> Result<BTreeMap<DomainId, (Known, Option<Vec<u8>>)>, sqlx::Error> {
    let ids: Vec<Uuid> = ids.iter().map(|id| id.as_uuid()).collect();
    let mut known = BTreeMap::new();
    for row in sqlx::query(sql::SITES).bind(&ids).fetch_all(&mut *transaction).await? {
        let id = DomainId::from_uuid(row.try_get(0)?);
        let name: &str = row.try_get(1)?;
        let status: &str = row.try_get(2)?;
        let cache: Option<Json<CachePolicy>> = row.try_get(4)?;
        let certificate: Option<Json<CertificateBody>> = row.try_get(8)?;
        let site = Site {
            id,
            name: DomainName::parse(name).map_err(|_| odd("name"))?,
            revision: Revision::new(row.try_get(3)?),
            hostnames: Vec::new(),
            cache: cache.map_or_else(CachePolicy::default, |Json(cache)| cache),
            epoch: u64::try_from(row.try_get::<i64, _>(5)?).map_err(|_| odd("cache_epoch"))?,
            certificate: certificate.map(|Json(body)| body),
        };
        let served = DomainStatus::from_name(status).ok_or_else(|| odd("status"))?.is_served();
        known.insert(id, (Known { site, served, told: row.try_get(6)? }, row.try_get(7)?));
    }
    for row in sqlx::query(sql::HOSTNAMES).bind(&ids).fetch_all(&mut *transaction).await? {
        let owner = OwnerName::from_canonical(row.try_get(1)?).map_err(|_| odd("owner"))?;
        let Json(body): Json<HostnameBody> = row.try_get(2)?;
        if let Some((known, _)) = known.get_mut(&DomainId::from_uuid(row.try_get(0)?)) {
            known.site.hostnames.push((owner, body));
        }
    }
    Ok(known)
}

/// A domain, and what is published of it from now on; none: nothing is.
type Put = (Head, Option<(Rendered, Option<Signature>)>);

/// Rows that are written together.
#[derive(Default)]
struct Rows {
    puts: Vec<Put>,
    faults: Vec<(Head, String)>,
    marks: Vec<Head>,
    retired: BTreeSet<Vec<u8>>,
}

struct Head {
    id: Uuid,
    name: String,
    sequence: i64,
    revision: i64,
}

/// Writes some of the domains of a page.
pub(super) async fn save(
    transaction: &mut PgConnection,
    projection: &Edge,
    touched: &[(DomainId, Touch)],
) -> Result<(), sqlx::Error> {
    let ids: Vec<DomainId> = touched.iter().map(|(id, _)| *id).collect();
    let known = load(transaction, &ids).await?;
    let mut rows = Rows::default();
    for (id, touch) in touched {
        let Some((known, published)) = known.get(id) else { continue };
        if known.site.revision < touch.revision {
            return Err(sqlx::Error::Decode("desired is behind the log: rebuild it first".into()));
        }
        let head = Head {
            id: id.as_uuid(),
            name: known.site.name.as_str().to_owned(),
            sequence: touch.position.get(),
            revision: touch.revision.get(),
        };
        let was = published.clone().into_iter();
        match write(known, *touch, projection.budget) {
            Write::Put(rendered) => {
                let checksum = rendered.checksum.as_bytes();
                rows.retired.extend(was.filter(|old| old.as_slice() != checksum.as_slice()));
                let signature = projection.signer.sign(&rendered.checksum)?;
                rows.puts.push((head, Some((rendered, signature))));
            }
            Write::Remove => {
                rows.retired.extend(was);
                rows.puts.push((head, None));
            }
            Write::Fault(fault) => rows.faults.push((head, fault.to_string())),
            Write::Mark => rows.marks.push(head),
            Write::Nothing => {}
        }
    }
    put(transaction, &rows.puts).await?;
    put_faults(transaction, &rows.faults).await?;
    put_marks(transaction, &rows.marks).await?;
    if !rows.retired.is_empty() {
        let retired: Vec<Vec<u8>> = rows.retired.into_iter().collect();
        let ids: Vec<Uuid> = ids.iter().map(|id| id.as_uuid()).collect();
        sqlx::query(sql::RETIRE).bind(retired).bind(ids).execute(transaction).await?;
    }
    Ok(())
}

async fn put(transaction: &mut PgConnection, puts: &[Put]) -> Result<(), sqlx::Error> {
    if puts.is_empty() {
        return Ok(());
    }
    let rendered: Vec<&Rendered> = puts.iter().filter_map(|row| row.1.as_ref().map(|(one, _)| one)).collect();
    sqlx::query(sql::PUT_ARTIFACTS)
        .bind(rendered.iter().map(|one| one.checksum.as_bytes().to_vec()).collect::<Vec<_>>())
        .bind(rendered.iter().map(|one| one.bytes.as_slice()).collect::<Vec<_>>())
        .execute(&mut *transaction)
        .await?;
    let published = |row: &Put| row.1.as_ref().map(|(one, _)| one.checksum.as_bytes().to_vec());
    let signature = |row: &Put| row.1.as_ref().and_then(|(_, signature)| *signature);
    let keys = |row: &Put| Json(row.1.as_ref().map(|(one, _)| one.keys.clone()).unwrap_or_default());
    let size =
        |row: &Put| row.1.as_ref().map_or(0, |(one, _)| i32::try_from(one.bytes.len()).unwrap_or(i32::MAX));
    sqlx::query(sql::PUT_DOMAINS)
        .bind(puts.iter().map(|row| row.0.id).collect::<Vec<_>>())
        .bind(puts.iter().map(|row| row.0.name.clone()).collect::<Vec<_>>())
        .bind(puts.iter().map(|row| row.0.sequence).collect::<Vec<_>>())
        .bind(puts.iter().map(|row| row.0.revision).collect::<Vec<_>>())
        .bind(puts.iter().map(published).collect::<Vec<_>>())
        .bind(puts.iter().map(size).collect::<Vec<_>>())
        .bind(puts.iter().map(|row| signature(row).map(|s| s.key.as_bytes().to_vec())).collect::<Vec<_>>())
        .bind(puts.iter().map(|row| signature(row).map(|s| s.value.as_bytes().to_vec())).collect::<Vec<_>>())
        .bind(puts.iter().map(|row| row.1.is_none()).collect::<Vec<_>>())
        .bind(puts.iter().map(keys).collect::<Vec<_>>())
        .execute(transaction)
        .await
        .map(|_| ())
}

async fn put_faults(transaction: &mut PgConnection, faults: &[(Head, String)]) -> Result<(), sqlx::Error> {
    if faults.is_empty() {
        return Ok(());
    }
    sqlx::query(sql::PUT_FAULTS)
        .bind(faults.iter().map(|row| row.0.id).collect::<Vec<_>>())
        .bind(faults.iter().map(|row| row.0.name.clone()).collect::<Vec<_>>())
        .bind(faults.iter().map(|row| row.0.sequence).collect::<Vec<_>>())
        .bind(faults.iter().map(|row| row.0.revision).collect::<Vec<_>>())
        .bind(faults.iter().map(|row| format!("revision {}: {}", row.0.revision, row.1)).collect::<Vec<_>>())
        .execute(transaction)
        .await
        .map(|_| ())
}

async fn put_marks(transaction: &mut PgConnection, marks: &[Head]) -> Result<(), sqlx::Error> {
    if marks.is_empty() {
        return Ok(());
    }
    sqlx::query(sql::PUT_MARKS)
        .bind(marks.iter().map(|head| head.id).collect::<Vec<_>>())
        .bind(marks.iter().map(|head| head.name.clone()).collect::<Vec<_>>())
        .bind(marks.iter().map(|head| head.sequence).collect::<Vec<_>>())
        .bind(marks.iter().map(|head| head.revision).collect::<Vec<_>>())
        .execute(transaction)
        .await
        .map(|_| ())
}

/// Removes artifacts that nothing has published for a while.
pub(super) async fn prune(
    transaction: &mut PgConnection,
    seconds: f64,
    most: i64,
) -> Result<(), sqlx::Error> {
    sqlx::query(sql::PRUNE).bind(seconds).bind(most).execute(transaction).await.map(|_| ())
}

/// Signs what is published without a signature; gives how many were signed.
pub(super) async fn sign(
    transaction: &mut PgConnection,
    projection: &Edge,
    most: i64,
) -> Result<usize, sqlx::Error> {
    let (mut ids, mut checksums, mut keys, mut values) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for row in sqlx::query(sql::UNSIGNED).bind(most).fetch_all(&mut *transaction).await? {
        let bytes: Vec<u8> = row.try_get(1)?;
        let checksum = <[u8; 32]>::try_from(bytes.as_slice()).map_err(|_| odd("checksum"))?;
        let Some(signature) = projection.signer.sign(&Checksum::from_bytes(checksum))? else { break };
        ids.push(row.try_get::<Uuid, _>(0)?);
        checksums.push(bytes);
        keys.push(signature.key.as_bytes().to_vec());
        values.push(signature.value.as_bytes().to_vec());
    }
    if ids.is_empty() {
        return Ok(0);
    }
    let signed = ids.len();
    sqlx::query(sql::SIGN).bind(ids).bind(checksums).bind(keys).bind(values).execute(transaction).await?;
    Ok(signed)
}
