//! Pure: owners and their RRsets → rows of PowerDNS.
//!
//! What must hold for each owner name of the zone:
//!   * the apex has the SOA and the NS set of the platform beside its own RRsets;
//!   * a name without RRsets that has names below it is an empty non-terminal: one row with type NULL;
//!   * at a zone cut (NS below the apex) the NS rows have `auth` false and keep their sort key, a DS is as anywhere else,
//!     everything else there and everything below has `auth` false and no sort key;
//!   * the same owners give the same rows in the same order, whether rendered alone or with their whole zone.

use super::row::Row;
use super::spelling::spelled;
use headwater_events::dns::{DomainName, OwnerKey, RrType};
use headwater_events::event::DnsIdentity;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// TTL and values of an RRset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RrsetData {
    /// Seconds to live.
    pub ttl: u32,
    /// Canonical RDATA texts, in canonical order.
    pub records: Vec<String>,
}

/// What rendering reads of one owner.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owner {
    /// Its RRsets, all of them.
    pub rrsets: BTreeMap<RrType, RrsetData>,
    /// Whether any owner below it has an RRset. Read only where it has none itself.
    pub has_below: bool,
}

/// A digest of the keys of a zone below.
const DS: RrType = RrType::from_code(43);

/// Owners by key. With an owner stand all its ancestors: they tell whether it lies below a cut.
pub type Owners = BTreeMap<OwnerKey, Owner>;

/// Why a zone cannot be rendered. Such a candidate is never applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderFault {
    /// Nobody said yet what SOA and NS set the zones have.
    #[error("the zone would have no SOA: run `headwater init` to say which nameservers the platform has")]
    NoIdentity,
    /// The platform's NS set is empty.
    #[error("the zone would have no NS: name the platform's nameservers in [dns] and run `headwater init`")]
    NoNameservers,
}

/// What a zone's own rows are made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    name: DomainName,
    serial: u32,
    identity: DnsIdentity,
}

impl Zone {
    /// A zone at a serial.
    ///
    /// # Errors
    /// When it would have no SOA or no NS.
    pub fn new(name: DomainName, serial: u32, identity: Option<&DnsIdentity>) -> Result<Self, RenderFault> {
        let identity = identity.ok_or(RenderFault::NoIdentity)?;
        if identity.nameservers.is_empty() {
            return Err(RenderFault::NoNameservers);
        }
        Ok(Self { name, serial, identity: identity.clone() })
    }

    /// Its name.
    pub fn name(&self) -> &DomainName {
        &self.name
    }

    /// The serial in its SOA.
    pub fn serial(&self) -> u32 {
        self.serial
    }

    /// The SOA and NS RRsets of the platform.
    fn derived(&self) -> [(RrType, RrsetData); 2] {
        let id = &self.identity;
        let servers = id.nameservers.iter().map(|name| format!("{name}.")).collect::<Vec<_>>();
        let soa = format!(
            "{} {}. {} {} {} {} {}",
            servers.first().map_or("", String::as_str),
            id.hostmaster,
            self.serial,
            id.refresh,
            id.retry,
            id.expire,
            id.minimum
        );
        [
            (RrType::SOA, RrsetData { ttl: id.soa_ttl, records: vec![soa] }),
            (RrType::NS, RrsetData { ttl: id.ns_ttl, records: servers }),
        ]
    }
}

/// The name of an owner as PowerDNS spells it, from its key.
pub fn powerdns_name(key: &OwnerKey, zone: &DomainName) -> String {
    spell(key.as_str(), zone)
}

/// Renders some owners of a zone. An owner that has neither RRsets nor names below it has no rows.
pub fn render(zone: &Zone, owners: &Owners) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut path: Vec<(&str, bool)> = Vec::new();
    for (key, owner) in owners {
        let key = key.as_str();
        while path.last().is_some_and(|(above, _)| !is_below(key, above)) {
            path.pop();
        }
        let covered = path.last().is_some_and(|(_, covered)| *covered);
        if !owner.rrsets.is_empty() || key.is_empty() {
            push_owner(zone, key, &owner.rrsets, covered, &mut rows);
        } else if owner.has_below {
            rows.push(empty_non_terminal(zone, key, covered));
        }
        path.push((key, covered || (!key.is_empty() && owner.rrsets.contains_key(&RrType::NS))));
    }
    rows
}

/// The owners whose rows a change of these can alter, as far as no NS set below the apex is among the changes:
/// themselves, the names above them (empty non-terminals come and go) and the apex (its SOA has the serial).
pub fn affected<'k>(touched: impl IntoIterator<Item = &'k OwnerKey>) -> BTreeSet<OwnerKey> {
    let mut all: BTreeSet<OwnerKey> = OwnerKey::parse("").into_iter().collect();
    for key in touched {
        if all.insert(key.clone()) {
            all.extend(ancestors(key.as_str()).filter_map(|above| OwnerKey::parse(above).ok()));
        }
    }
    all
}

/// The keys strictly between the apex and this one, the shortest first.
fn ancestors(key: &str) -> impl Iterator<Item = &str> {
    key.match_indices(' ').map(|(at, _)| &key[..at])
}

fn push_owner(
    zone: &Zone,
    key: &str,
    rrsets: &BTreeMap<RrType, RrsetData>,
    covered: bool,
    rows: &mut Vec<Row>,
) {
    let name = spell(key, &zone.name);
    if key.is_empty() {
        let mut all = rrsets.clone();
        all.extend(zone.derived());
        for (rrtype, data) in &all {
            push_rrset(zone, &name, *rrtype, data, true, Some(key), rows);
        }
        return;
    }
    let cut = rrsets.contains_key(&RrType::NS);
    for (rrtype, data) in rrsets {
        // A DS is the only thing at a cut that this side of it answers (RFC 4035, 2.4).
        let ours = !covered && (!cut || *rrtype == DS);
        let ordered = ours || (!covered && *rrtype == RrType::NS);
        push_rrset(zone, &name, *rrtype, data, ours, ordered.then_some(key), rows);
    }
}

fn push_rrset(
    zone: &Zone,
    name: &str,
    rrtype: RrType,
    data: &RrsetData,
    auth: bool,
    ordername: Option<&str>,
    rows: &mut Vec<Row>,
) {
    for content in &data.records {
        let (rrtype, content) = spelled(rrtype, content, &zone.name);
        rows.push(Row {
            name: name.to_owned(),
            rrtype: Some(rrtype),
            content: Some(content.into_owned()),
            // A TTL has 31 bits (RFC 2181, 8).
            ttl: Some(i32::try_from(data.ttl).unwrap_or(i32::MAX)),
            auth,
            ordername: ordername.map(str::to_owned),
            prio: None,
            disabled: false,
        });
    }
}

fn empty_non_terminal(zone: &Zone, key: &str, covered: bool) -> Row {
    Row {
        name: spell(key, &zone.name),
        rrtype: None::<Cow<'static, str>>,
        content: None,
        ttl: None,
        auth: !covered,
        ordername: None,
        prio: None,
        disabled: false,
    }
}

/// A key's labels in the order of a name: both escape a label in the same way.
fn spell(key: &str, zone: &DomainName) -> String {
    let mut name = String::with_capacity(key.len() + zone.as_str().len() + 1);
    if !key.is_empty() {
        for label in key.rsplit(' ') {
            name.push_str(label);
            name.push('.');
        }
    }
    name.push_str(zone.as_str());
    name
}

/// Renders a whole zone, owner after owner in the order of their keys, in memory of one path of names.
#[derive(Debug)]
pub struct ZoneRenderer<'z> {
    zone: &'z Zone,
    /// The names above the next one, from the apex down, and whether what lies below them is covered by a cut.
    path: Vec<(String, bool)>,
}

impl<'z> ZoneRenderer<'z> {
    /// Begins a zone.
    pub fn new(zone: &'z Zone) -> Self {
        Self { zone, path: Vec::new() }
    }

    /// Renders the next owner, and the empty non-terminals that it makes. The order of keys puts every name before
    /// those below it, so an ancestor that has not come yet has no RRsets.
    pub fn owner(&mut self, key: &OwnerKey, rrsets: &BTreeMap<RrType, RrsetData>, rows: &mut Vec<Row>) {
        let key = key.as_str();
        if self.path.is_empty() {
            let none = BTreeMap::new();
            push_owner(self.zone, "", if key.is_empty() { rrsets } else { &none }, false, rows);
            self.path.push((String::new(), false));
        }
        if key.is_empty() {
            return;
        }
        while self.path.last().is_some_and(|(above, _)| !is_below(key, above)) {
            self.path.pop();
        }
        let known = self.path.last().map_or(0, |(above, _)| above.len());
        let mut covered = self.path.last().is_some_and(|(_, covered)| *covered);
        for above in ancestors(key).filter(|above| above.len() > known) {
            rows.push(empty_non_terminal(self.zone, above, covered));
            self.path.push((above.to_owned(), covered));
        }
        push_owner(self.zone, key, rrsets, covered, rows);
        covered |= rrsets.contains_key(&RrType::NS);
        self.path.push((key.to_owned(), covered));
    }

    /// Ends the zone: one without any RRset of its owner's still has its apex.
    pub fn finish(mut self, rows: &mut Vec<Row>) {
        if self.path.is_empty()
            && let Ok(apex) = OwnerKey::parse("")
        {
            self.owner(&apex, &BTreeMap::new(), rows);
        }
    }
}

fn is_below(key: &str, above: &str) -> bool {
    above.is_empty() || key.strip_prefix(above).is_some_and(|rest| rest.starts_with(' '))
}
