//! What a batch must know of the sites it touches: proxied names at, below and behind what a command names, the
//! cache's policy and its epoch, the certificate. A domain that proxies nothing costs nothing here, unless its site is what is changed.

use super::load::Loaded;
use super::sql;
use crate::command::{Command, Request};
use headwater_events::dns::{DomainName, OwnerName};
use headwater_events::domain::{
    CachePolicy, CertificateBody, HostnameBody, SiteState, StoredCertificate, StoredHostname,
};
use headwater_events::ids::{DomainId, Revision};
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::types::Json;
use std::collections::{BTreeSet, HashMap};
use uuid::Uuid;

fn odd(column: &str) -> sqlx::Error {
    sqlx::Error::ColumnDecode {
        index: column.to_owned(),
        source: "a value that this program never writes".into(),
    }
}

/// What is asked for, as pairs of arrays.
#[derive(Default)]
struct Wanted {
    at: (Vec<Uuid>, Vec<String>),
    below: (Vec<Uuid>, Vec<String>),
    fetched_from: (Vec<Uuid>, Vec<String>),
    every: Vec<Uuid>,
    sites: BTreeSet<Uuid>,
    certificates: BTreeSet<Uuid>,
}

/// Reads what the requests need of sites. `proxied` are the domains that proxy anything.
pub(super) async fn load(
    connection: &mut PgConnection,
    requests: &[&Request],
    proxied: &BTreeSet<DomainId>,
    loaded: &mut Loaded,
) -> Result<(), sqlx::Error> {
    let mut names: HashMap<DomainId, DomainName> = HashMap::new();
    let mut wanted = Wanted::default();
    for request in requests {
        let Command::Domain { name, command } = &request.command else { continue };
        let Some(view) = loaded.domains.get(name) else { continue };
        let (id, needs) = (view.state.id, command.site_needs(name));
        names.insert(id, name.clone());
        if needs.cache {
            wanted.sites.insert(id.as_uuid());
        }
        if needs.certificate {
            wanted.certificates.insert(id.as_uuid());
        }
        if !proxied.contains(&id) {
            continue;
        }
        let ask = |(ids, texts): &mut (Vec<Uuid>, Vec<String>), text: &str| {
            ids.push(id.as_uuid());
            texts.push(text.to_owned());
        };
        if needs.every {
            wanted.every.push(id.as_uuid());
        }
        needs.at.iter().for_each(|key| ask(&mut wanted.at, key.as_str()));
        needs.below.iter().for_each(|key| ask(&mut wanted.below, key.as_str()));
        needs.fetched_from.iter().for_each(|host| ask(&mut wanted.fetched_from, host));
    }
    let Wanted { at, below, fetched_from, every, sites, certificates } = wanted;
    if !(at.0.is_empty() && below.0.is_empty() && fetched_from.0.is_empty() && every.is_empty()) {
        let query = sqlx::query(sql::HOSTNAMES).bind(at.0).bind(at.1).bind(below.0).bind(below.1);
        let query = query.bind(fetched_from.0).bind(fetched_from.1).bind(every);
        for row in query.fetch_all(&mut *connection).await? {
            let (id, stored) = hostname(&row)?;
            let Some(view) = names.get(&id).and_then(|name| loaded.domains.get_mut(name)) else { continue };
            match row.try_get::<Option<i64>, _>(4)? {
                Some(leaving) => drop(view.leaving.insert(stored.owner.key(), Revision::new(leaving))),
                None => drop(view.hostnames.insert(stored.owner.key(), stored)),
            }
        }
    }
    if !sites.is_empty() {
        let sites: Vec<Uuid> = sites.into_iter().collect();
        for row in sqlx::query(sql::SITES).bind(sites).fetch_all(&mut *connection).await? {
            let id = DomainId::from_uuid(row.try_get(0)?);
            if let Some(view) = names.get(&id).and_then(|name| loaded.domains.get_mut(name)) {
                view.site = site(&row)?;
            }
        }
    }
    if !certificates.is_empty() {
        let certificates: Vec<Uuid> = certificates.into_iter().collect();
        for row in sqlx::query(sql::CERTIFICATES).bind(certificates).fetch_all(connection).await? {
            let id = DomainId::from_uuid(row.try_get(0)?);
            if let Some(view) = names.get(&id).and_then(|name| loaded.domains.get_mut(name)) {
                let Json(body): Json<CertificateBody> = row.try_get(1)?;
                let changed = Revision::new(row.try_get(2)?);
                view.site.certificate = Some(StoredCertificate { body, changed });
            }
        }
    }
    Ok(())
}

fn hostname(row: &PgRow) -> Result<(DomainId, StoredHostname), sqlx::Error> {
    let owner = OwnerName::from_canonical(row.try_get(1)?).map_err(|_| odd("owner"))?;
    let Json(body): Json<HostnameBody> = row.try_get(2)?;
    let stored = StoredHostname { owner, body, changed: Revision::new(row.try_get(3)?) };
    Ok((DomainId::from_uuid(row.try_get(0)?), stored))
}

fn site(row: &PgRow) -> Result<SiteState, sqlx::Error> {
    let cache: Option<Json<CachePolicy>> = row.try_get(1)?;
    Ok(SiteState {
        cache: cache.map_or_else(CachePolicy::default, |Json(cache)| cache),
        cache_changed: Revision::new(row.try_get(2)?),
        cache_epoch: u64::try_from(row.try_get::<i64, _>(3)?).map_err(|_| odd("cache_epoch"))?,
        purges_outstanding: row.try_get(4)?,
        certificate: None,
    })
}
