//! Whole zones, read in pages in the order of owners and rendered on the way, in memory of a page.

use super::claim::{Platform, Snapshot};
use super::fault::DeployError;
use super::load::owner_key;
use super::sample::{self, Sample};
use headwater_events::dns::{OwnerKey, RrType};
use headwater_events::edge::Endpoints;
use headwater_events::ids::DomainId;
use headwater_projections::powerdns::{Row, RrsetData, Zone, ZoneRenderer, expand, mark, sql};
use sqlx::Row as _;
use sqlx::postgres::{PgConnection, PgRow};
use std::collections::BTreeMap;

/// RRsets of one page.
pub const PAGE_MAX_RRSETS: i64 = 5_000;

/// What a zone was before changes, where it differs from what it is: by owner, then type; none: it was not there.
pub(super) type Overlay = BTreeMap<OwnerKey, BTreeMap<RrType, Option<RrsetData>>>;

/// Reads a type, a TTL and records from three columns.
pub(super) fn rrset(row: &PgRow, first: usize) -> Result<(RrType, RrsetData), DeployError> {
    let column = |error: sqlx::Error| DeployError::control(error);
    let code: i32 = row.try_get(first).map_err(column)?;
    let ttl: i64 = row.try_get(first + 1).map_err(column)?;
    let records = row.try_get(first + 2).map_err(column)?;
    let (Ok(code), Ok(ttl)) = (u16::try_from(code), u32::try_from(ttl)) else {
        return Err(DeployError::Control(format!("desired.rrsets holds type {code} with TTL {ttl}")));
    };
    Ok((RrType::from_code(code), RrsetData { ttl, records }))
}

/// The owners of a zone that the platform answers for, each with the type that marks it.
pub(super) async fn marks(
    connection: &mut PgConnection,
    domain: DomainId,
) -> Result<Vec<(OwnerKey, RrType)>, DeployError> {
    let query = sqlx::query_as::<_, (String, i32)>(sql::MARKS).bind(domain.as_uuid());
    let found = query.fetch_all(connection).await.map_err(DeployError::control)?;
    let read = |(key, code): (String, i32)| {
        let code = u16::try_from(code).map_err(DeployError::control)?;
        Ok((owner_key(&key)?, RrType::from_code(code)))
    };
    found.into_iter().map(read).collect()
}

/// Reads a zone owner after owner.
#[derive(Debug)]
pub(super) struct ZoneReader<'z> {
    domain: DomainId,
    zone: &'z Zone,
    endpoints: Option<&'z Endpoints>,
    /// Whether the owners that the platform answers for are in the overlay by now.
    marked: bool,
    renderer: Option<ZoneRenderer<'z>>,
    overlay: Overlay,
    last: (String, i32),
    open: Option<(OwnerKey, BTreeMap<RrType, RrsetData>)>,
}

impl<'z> ZoneReader<'z> {
    /// Begins a zone, as it is under changes that are taken back.
    pub(super) fn new(
        domain: DomainId,
        zone: &'z Zone,
        overlay: Overlay,
        endpoints: Option<&'z Endpoints>,
    ) -> Self {
        let renderer = Some(ZoneRenderer::new(zone));
        let last = (String::new(), -1);
        Self { domain, zone, endpoints, marked: false, renderer, overlay, last, open: None }
    }

    /// The next rows, every RRset whole; none at the end.
    pub(super) async fn next(
        &mut self,
        connection: &mut PgConnection,
    ) -> Result<Option<Vec<Row>>, DeployError> {
        if self.renderer.is_none() {
            return Ok(None);
        }
        if !std::mem::replace(&mut self.marked, true) {
            for (key, with) in marks(&mut *connection, self.domain).await? {
                self.overlay.entry(key).or_default().entry(with).or_insert_with(|| Some(mark()));
            }
        }
        let query = sqlx::query(sql::ZONE_PAGE).bind(self.domain.as_uuid()).bind(&self.last.0);
        let query = query.bind(self.last.1).bind(PAGE_MAX_RRSETS);
        let page = query.fetch_all(connection).await.map_err(DeployError::control)?;
        let mut rows = Vec::new();
        for row in &page {
            let text: &str = row.try_get(0).map_err(DeployError::control)?;
            let (rrtype, data) = rrset(row, 1)?;
            let key = owner_key(text)?;
            if self.open.as_ref().is_none_or(|(open, _)| *open != key) {
                self.close(Some(&key), &mut rows);
                self.open = Some((key, BTreeMap::new()));
            }
            if let Some((_, rrsets)) = &mut self.open {
                rrsets.insert(rrtype, data);
            }
            self.last = (text.to_owned(), i32::from(rrtype.code()));
        }
        if i64::try_from(page.len()).unwrap_or(i64::MAX) < PAGE_MAX_RRSETS {
            self.close(None, &mut rows);
            if let Some(renderer) = self.renderer.take() {
                renderer.finish(&mut rows);
            }
        }
        Ok(Some(rows))
    }

    /// Renders the owner that is open, and those before `next` that only the overlay has.
    fn close(&mut self, next: Option<&OwnerKey>, rows: &mut Vec<Row>) {
        let (zone, endpoints) = (self.zone.name(), self.endpoints);
        let Some(renderer) = &mut self.renderer else { return };
        let mut emit = |key: &OwnerKey, mut rrsets: BTreeMap<RrType, RrsetData>, overlay: &mut Overlay| {
            for (rrtype, before) in overlay.remove(key).unwrap_or_default() {
                match before {
                    Some(before) => drop(rrsets.insert(rrtype, before)),
                    None => drop(rrsets.remove(&rrtype)),
                }
            }
            expand(zone, key, &mut rrsets, endpoints);
            if !rrsets.is_empty() {
                renderer.owner(key, &rrsets, rows);
            }
        };
        if let Some((key, rrsets)) = self.open.take() {
            while let Some(first) = self.overlay.first_key_value().map(|(first, _)| first.clone())
                && first < key
            {
                emit(&first, BTreeMap::new(), &mut self.overlay);
            }
            emit(&key, rrsets, &mut self.overlay);
        }
        while let Some(first) = self.overlay.first_key_value().map(|(first, _)| first.clone())
            && next.is_none_or(|next| first < *next)
        {
            emit(&first, BTreeMap::new(), &mut self.overlay);
        }
    }
}

/// A whole zone that fits into memory, and samples of it.
pub(super) async fn render_whole(
    snapshot: &mut Snapshot,
    platform: &Platform,
    domain: DomainId,
    zone: &Zone,
) -> Result<(Vec<Row>, Vec<Sample>), DeployError> {
    let mut reader = ZoneReader::new(domain, zone, Overlay::new(), platform.endpoints.as_ref());
    let mut rows = Vec::new();
    while let Some(page) = reader.next(snapshot).await? {
        rows.extend(page);
    }
    let samples = sample::of_rows(zone, &rows);
    Ok((rows, samples))
}
