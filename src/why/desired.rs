//! What is desired for one name and type, as a name server would look for it (RFC 1034, 4.3.2; RFC 4592): through the cuts
//! above it, at the name itself, then at the wildcard below the closest name that exists. Pure but for the reading.

use headwater_events::dns::{DomainName, OwnerKey, OwnerName, RrType};
use headwater_events::ids::Revision;
use sqlx::Row;
use sqlx::postgres::PgPool;
use std::collections::{BTreeMap, BTreeSet};

use super::sql;
use crate::query::domains::{Platform, StoredDomain};
use crate::query::rrsets;

/// An RRset as far as it matters here: its records, and the revision that put it; none where the platform derives it.
pub(super) type Data = (Vec<String>, Option<Revision>);

/// Everything that the answer for a name depends on, by owner keys.
#[derive(Debug, Default)]
pub(super) struct Sight {
    pub(super) nodes: BTreeMap<String, BTreeMap<RrType, Data>>,
    /// Names below which something is, with the first of that.
    pub(super) below: BTreeMap<String, Option<(String, RrType, Revision)>>,
    /// Proxied names.
    pub(super) proxied: BTreeSet<String>,
}

/// What a name server that has what is desired answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Answer {
    /// These records of the type.
    Records(Vec<String>),
    /// The name is another's alias.
    Alias(Vec<String>),
    /// Others are to be asked.
    Referral(Vec<String>),
    /// The name is there, the type is not.
    NoData,
    /// The name is not there.
    NoName,
}

/// Why a name has the answer that it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Why {
    /// An RRset, at this owner key; a wildcard's where that is another.
    At(String, Option<Revision>),
    /// A cut at this owner key, the name itself or above it.
    Cut(String, Option<Revision>),
    /// The name has other types, or is empty because something is below it.
    OtherTypes(Vec<RrType>),
    /// A wildcard that has it does not cover the name: this closer name exists, because of that.
    Hidden { wildcard: String, by: String, because: Option<(String, RrType, Revision)> },
    /// It is proxied, and no cell is ready.
    NoCell,
    /// There is no such name.
    Nothing,
}

fn parents(key: &str) -> Vec<String> {
    let labels: Vec<&str> = key.split(' ').filter(|label| !label.is_empty()).collect();
    (0..labels.len()).filter_map(|count| Some(labels.get(..count)?.join(" "))).collect()
}

fn wildcard(parent: &str) -> String {
    if parent.is_empty() { "*".to_owned() } else { format!("{parent} *") }
}

impl Sight {
    fn exists(&self, key: &str) -> bool {
        key.is_empty()
            || self.nodes.get(key).is_some_and(|rrsets| !rrsets.is_empty())
            || self.below.contains_key(key)
            || self.proxied.contains(key)
    }

    fn at(&self, key: &str, rrtype: RrType) -> Option<(Answer, Why)> {
        let rrsets = self.nodes.get(key)?;
        if let Some((records, changed)) = rrsets.get(&rrtype) {
            return Some((Answer::Records(records.clone()), Why::At(key.to_owned(), *changed)));
        }
        let (records, changed) = rrsets.get(&RrType::CNAME)?;
        Some((Answer::Alias(records.clone()), Why::At(key.to_owned(), *changed)))
    }

    fn types(&self, key: &str) -> Vec<RrType> {
        self.nodes.get(key).map(|rrsets| rrsets.keys().copied().collect()).unwrap_or_default()
    }

    /// The nearest wildcard above the name that would have answered, had nothing closer been there.
    fn hidden(&self, parents: &[String], closest: &str, rrtype: RrType) -> Option<Why> {
        let higher = parents.iter().rev().filter(|parent| parent.len() < closest.len());
        let found = higher.map(|parent| wildcard(parent)).find(|wild| self.at(wild, rrtype).is_some())?;
        let because = match self.types(closest).first() {
            Some(first) => {
                let changed = self.nodes.get(closest).and_then(|all| all.get(first)?.1);
                changed.map(|changed| (closest.to_owned(), *first, changed))
            }
            None => self.below.get(closest).cloned().flatten(),
        };
        Some(Why::Hidden { wildcard: found, by: closest.to_owned(), because })
    }

    /// The answer for a name and type, and why it is that.
    pub(super) fn answer(&self, key: &str, rrtype: RrType) -> (Answer, Why) {
        let parents = parents(key);
        let cuts = parents.iter().map(String::as_str).chain([key]).filter(|at| !at.is_empty());
        for cut in cuts {
            if let Some((records, changed)) = self.nodes.get(cut).and_then(|all| all.get(&RrType::NS)) {
                return (Answer::Referral(records.clone()), Why::Cut(cut.to_owned(), *changed));
            }
        }
        if self.exists(key) {
            if let Some(found) = self.at(key, rrtype) {
                return found;
            }
            let is_address = [RrType::A, RrType::AAAA].contains(&rrtype);
            if is_address && self.proxied.contains(key) && self.types(key).is_empty() {
                return (Answer::NoData, Why::NoCell);
            }
            let hidden = self.hidden(&parents, key, rrtype);
            return (Answer::NoData, hidden.unwrap_or_else(|| Why::OtherTypes(self.types(key))));
        }
        let closest = parents.iter().rev().find(|parent| self.exists(parent)).cloned().unwrap_or_default();
        let wild = wildcard(&closest);
        if let Some(found) = self.at(&wild, rrtype) {
            return found;
        }
        if self.exists(&wild) {
            return (Answer::NoData, Why::OtherTypes(self.types(&wild)));
        }
        (Answer::NoName, self.hidden(&parents, &closest, rrtype).unwrap_or(Why::Nothing))
    }
}

/// Reads what the answer for a name depends on.
pub(super) async fn sight(
    pool: &PgPool,
    stored: &StoredDomain,
    platform: &Platform,
    key: &OwnerKey,
) -> Result<Sight, sqlx::Error> {
    let odd = || sqlx::Error::Protocol("a type that this program never writes".to_owned());
    let rrtype = |code: i32| u16::try_from(code).map(RrType::from_code).map_err(|_| odd());
    let (domain, mut sight) = (stored.state.id.as_uuid(), Sight::default());
    let mut keys: Vec<String> = parents(key.as_str());
    keys.extend(keys.clone().iter().map(|parent| wildcard(parent)));
    keys.push(key.as_str().to_owned());
    let rows = sqlx::query(sql::NODES).bind(domain).bind(&keys).fetch_all(pool).await?;
    for row in rows {
        let data = (row.try_get(2)?, Some(Revision::new(row.try_get(3)?)));
        sight.nodes.entry(row.try_get(0)?).or_default().insert(rrtype(row.try_get(1)?)?, data);
    }
    let below: Vec<&String> = keys.iter().filter(|key| !key.is_empty()).collect();
    for row in sqlx::query(sql::BELOW).bind(domain).bind(&below).fetch_all(pool).await? {
        let first = (row.try_get(1)?, rrtype(row.try_get(2)?)?, Revision::new(row.try_get(3)?));
        sight.below.insert(row.try_get(0)?, Some(first));
    }
    for row in sqlx::query(sql::PROXIED).bind(domain).bind(&keys).fetch_all(pool).await? {
        let at: String = row.try_get(0)?;
        if row.try_get::<bool, _>(2)? && !at.is_empty() {
            sight.below.entry(at.clone()).or_insert(None);
        }
        if row.try_get(1)? {
            sight.proxied.insert(at);
        }
    }
    let mut derived = rrsets::derived(stored, platform);
    derived.extend(rrsets::answers(pool, &stored.state, platform).await?);
    for one in derived {
        let at = one.owner.key().as_str().to_owned();
        if keys.contains(&at) {
            sight.nodes.entry(at).or_default().insert(one.rrtype, (one.body.records, None));
        }
    }
    Ok(sight)
}

/// The absolute name of an owner key.
pub(super) fn absolute(key: &str, zone: &DomainName) -> String {
    OwnerName::from_key(key).map_or_else(|_| format!("{key} in {zone}"), |owner| owner.absolute(zone))
}

/// The relative name of an owner key.
pub(super) fn relative(key: &str) -> String {
    OwnerName::from_key(key).map_or_else(|_| key.to_owned(), |owner| owner.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sight(rows: &[(&str, RrType)]) -> Sight {
        let mut sight = Sight::default();
        for (owner, rrtype) in rows {
            let key = OwnerName::relative(owner).unwrap().key().as_str().to_owned();
            let first = (key.clone(), *rrtype, Revision::new(1));
            for parent in parents(&key).into_iter().filter(|parent| !parent.is_empty()) {
                sight.below.entry(parent).or_insert(Some(first.clone()));
            }
            let data = (vec![format!("{owner} {rrtype}")], Some(Revision::new(1)));
            sight.nodes.entry(key).or_default().insert(*rrtype, data);
        }
        sight
    }

    #[test]
    fn names_are_looked_for_as_a_name_server_does() {
        let (a, txt, ns, cname) = (RrType::A, RrType::TXT, RrType::NS, RrType::CNAME);
        let all = sight(&[
            ("www", a),
            ("alias", cname),
            ("*", txt),
            ("*.wild", a),
            ("deep.ent.wild", txt),
            ("cut", ns),
            ("under.cut", a),
        ]);
        let key = |owner: &str| OwnerName::relative(owner).unwrap().key().as_str().to_owned();
        let of = |owner: &str, rrtype| all.answer(&key(owner), rrtype);
        assert!(matches!(of("www", a), (Answer::Records(_), Why::At(..))));
        assert!(matches!(of("alias", a), (Answer::Alias(_), Why::At(..))));
        assert!(matches!(of("any", txt), (Answer::Records(_), Why::At(at, _)) if at == "*"));
        assert_eq!(of("any", a), (Answer::NoData, Why::OtherTypes(vec![txt])));
        assert!(matches!(of("x.wild", a), (Answer::Records(_), Why::At(at, _)) if at == "wild *"));
        // The name that has something below it exists, and so no wildcard covers it or what is beside.
        let hidden = |answer: (Answer, Why), by: &str| match answer {
            (what, Why::Hidden { by: at, because, .. }) => {
                assert_eq!(at, key(by));
                assert_eq!(because.map(|one| one.0), Some(key("deep.ent.wild")));
                what
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(hidden(of("ent.wild", a), "ent.wild"), Answer::NoData);
        assert_eq!(hidden(of("x.ent.wild", a), "ent.wild"), Answer::NoName);
        assert!(matches!(of("www", txt), (Answer::NoData, Why::Hidden { .. })));
        for below in ["cut", "under.cut", "a.b.cut"] {
            assert!(matches!(of(below, a), (Answer::Referral(_), Why::Cut(at, _)) if at == "cut"), "{below}");
        }
        let bare = sight(&[("www", a)]);
        assert_eq!(bare.answer("other", a), (Answer::NoName, Why::Nothing));
        assert_eq!(bare.answer("www", txt), (Answer::NoData, Why::OtherTypes(vec![a])));
    }
}
