//! Bodies of RRsets.

use headwater_events::dns::{DomainName, FaultPlace, OwnerName, Rdata, RrSet, RrSetInput, RrType, Ttl};
use headwater_events::domain::{BATCH_MAX_CHANGES, RrsetChange};
use headwater_events::reject::Fault;
use headwater_events::time::Timestamp;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{Actor, dns_faults};
use crate::http::Problem;
use crate::http::body::{Fields, FromBody};
use crate::http::path::RrsetPath;
use crate::query::rrsets::{Changed, ShownRrset};

/// Octets of a batch, at most.
pub const BATCH_MAX_BYTES: usize = 8 << 20;

/// An RRset to put, as it was sent.
#[derive(Debug, ToSchema)]
pub struct PutRrset {
    /// Seconds to live.
    #[schema(value_type = i64, minimum = 0, maximum = 2_147_483_647, example = 300)]
    ttl: Option<i64>,
    /// Record values in presentation format.
    #[schema(value_type = Vec<String>, example = json!(["192.0.2.1"]))]
    records: Option<Vec<String>>,
    /// A comment for people.
    comment: Option<String>,
    /// What is wrong already; told with what the DNS says of the rest.
    #[schema(ignore)]
    faults: Vec<Fault>,
}

impl FromBody for PutRrset {
    fn read(fields: &mut Fields) -> Option<Self> {
        for key in ["ttl", "records"] {
            if !fields.has(key) {
                fields.missing(key);
            }
        }
        let (ttl, records) = (fields.integer("ttl"), fields.texts("records"));
        let comment = fields.text("comment");
        Some(Self { ttl, records, comment, faults: fields.drain() })
    }
}

impl PutRrset {
    /// The whole RRset.
    ///
    /// # Errors
    /// 422 with every fault of the path, or of the body.
    pub fn parse(self, at: &RrsetPath) -> Result<RrSet, Problem> {
        let (owner, rrtype) = at.read().map_err(|faults| {
            Problem::invalid(faults.into_iter().chain(self.faults.iter().cloned()).collect())
        })?;
        let input = Sent { ttl: self.ttl, records: self.records, comment: self.comment };
        input.parse("", self.faults, owner, rrtype, &at.domain).map_err(Problem::invalid)
    }
}

/// The parts of an RRset that could be read.
struct Sent {
    ttl: Option<i64>,
    records: Option<Vec<String>>,
    comment: Option<String>,
}

impl Sent {
    /// Reads the rest although something is wrong already, so that every fault is told at once.
    fn parse(
        self,
        base: &str,
        mut faults: Vec<Fault>,
        owner: OwnerName,
        rrtype: RrType,
        zone: &DomainName,
    ) -> Result<RrSet, Vec<Fault>> {
        // What was not read is not judged a second time.
        let told = faults.iter().any(|fault| fault.pointer.starts_with(&format!("{base}/records")));
        let input = RrSetInput {
            ttl: self.ttl.unwrap_or_default(),
            records: self.records.unwrap_or_default(),
            comment: self.comment,
        };
        match RrSet::new(owner, rrtype, &input, zone) {
            Ok(rrset) if faults.is_empty() => Ok(rrset),
            Ok(_) => Err(faults),
            Err(found) => {
                let is_new = |place: FaultPlace| {
                    !(told && matches!(place, FaultPlace::Record(_) | FaultPlace::Records))
                };
                let found = found.into_iter().filter(|fault| is_new(fault.place)).collect();
                faults.extend(dns_faults(base, found));
                Err(faults)
            }
        }
    }
}

/// What a change of a batch does.
#[derive(Debug, Clone, Copy, ToSchema)]
#[schema(rename_all = "snake_case")]
pub enum ChangeOp {
    /// Put the RRset, whole.
    Put,
    /// Delete the RRset, whole.
    Delete,
    /// Add single values.
    Add,
    /// Remove single values.
    Remove,
}

/// One change of a batch, as it was sent.
#[derive(Debug, ToSchema)]
pub struct BatchChange {
    /// What to do.
    op: ChangeOp,
    /// The owner.
    #[schema(example = "www")]
    name: String,
    /// The type.
    #[schema(example = "A")]
    r#type: String,
    /// Seconds to live; needed by `put`.
    ttl: Option<i64>,
    /// Record values; needed by all but `delete`.
    records: Option<Vec<String>>,
    /// A comment for people; only with `put`.
    comment: Option<String>,
}

/// Changes that happen together or not at all.
#[derive(Debug, ToSchema)]
pub struct Batch {
    /// In order; judged at the end state.
    #[schema(value_type = Vec<BatchChange>)]
    changes: Vec<Option<BatchChange>>,
    /// What is wrong already; told with what the DNS says of the rest.
    #[schema(ignore)]
    faults: Vec<Fault>,
}

impl FromBody for Batch {
    const MAX_BYTES: usize = BATCH_MAX_BYTES;

    fn read(fields: &mut Fields) -> Option<Self> {
        if !fields.has("changes") {
            fields.missing("changes");
        }
        let items = fields.list("changes")?;
        if items.len() > BATCH_MAX_CHANGES {
            fields.fault(
                "changes",
                "too_many_changes",
                format!("a batch holds at most {BATCH_MAX_CHANGES} changes"),
            );
            return None;
        }
        let mut changes = Vec::with_capacity(items.len());
        let mut faults = fields.drain();
        for (index, item) in items.into_iter().enumerate() {
            let mut one = Fields::new(item, format!("/changes/{index}"));
            let read = BatchChange::read(&mut one);
            let found = one.finish();
            // A change that could not be read whole is not judged by the rules of the DNS.
            changes.push(read.filter(|_| found.is_empty()));
            faults.extend(found);
        }
        Some(Self { changes, faults })
    }
}

impl BatchChange {
    fn read(fields: &mut Fields) -> Option<Self> {
        if !fields.has("op") {
            fields.missing("op");
        }
        let op = fields.parsed("op", |text| match text {
            "put" => Ok(ChangeOp::Put),
            "delete" => Ok(ChangeOp::Delete),
            "add" => Ok(ChangeOp::Add),
            "remove" => Ok(ChangeOp::Remove),
            _ => Err(("invalid_op", "op is put, delete, add or remove".to_owned())),
        });
        let (name, rrtype) = (fields.required_text("name"), fields.required_text("type"));
        let Some(op) = op else {
            // Of which they would be is unknown, so they are no faults.
            let _ignored = ["ttl", "records", "comment"].map(|key| fields.take(key));
            return None;
        };
        let missing = |key: &str, fields: &mut Fields| {
            if !fields.has(key) {
                fields.missing(key);
            }
        };
        if matches!(op, ChangeOp::Put) {
            missing("ttl", fields);
        }
        if !matches!(op, ChangeOp::Delete) {
            missing("records", fields);
        }
        // What an op does not take is left over, and so refused by name.
        let ttl = if matches!(op, ChangeOp::Put | ChangeOp::Add) { fields.integer("ttl") } else { None };
        let records = if matches!(op, ChangeOp::Delete) { None } else { fields.texts("records") };
        let comment = if matches!(op, ChangeOp::Put) { fields.text("comment") } else { None };
        Some(Self { op, name: name?, r#type: rrtype?, ttl, records, comment })
    }

    fn parse(self, index: usize, zone: &DomainName) -> Result<RrsetChange, Vec<Fault>> {
        let base = format!("/changes/{index}");
        let owner = OwnerName::parse(&self.name, zone)
            .map_err(|f| Fault::at(format!("{base}/name"), f.code.as_str(), f.detail));
        let rrtype = RrType::parse(&self.r#type)
            .and_then(|rrtype| rrtype.writable().map(|()| rrtype))
            .map_err(|f| Fault::at(format!("{base}/type"), f.code.as_str(), f.detail));
        let (owner, rrtype) = match (owner, rrtype) {
            (Ok(owner), Ok(rrtype)) => (owner, rrtype),
            (owner, rrtype) => return Err(owner.err().into_iter().chain(rrtype.err()).collect()),
        };
        let records = self.records.unwrap_or_default();
        match self.op {
            ChangeOp::Delete => Ok(RrsetChange::Delete { owner, rrtype }),
            ChangeOp::Put => {
                let input = RrSetInput { ttl: self.ttl.unwrap_or_default(), records, comment: self.comment };
                let rrset = RrSet::new(owner, rrtype, &input, zone);
                rrset.map(RrsetChange::Put).map_err(|faults| dns_faults(&base, faults))
            }
            ChangeOp::Add | ChangeOp::Remove => {
                let (mut values, mut faults) = (Vec::new(), Vec::new());
                for (at, text) in records.iter().enumerate() {
                    match Rdata::parse(rrtype, text, zone) {
                        Ok(rdata) => values.push(rdata),
                        Err(f) => {
                            faults.push(Fault::at(format!("{base}/records/{at}"), f.code.as_str(), f.detail))
                        }
                    }
                }
                let ttl = self.ttl.map(Ttl::new).transpose().map_err(|f| dns_faults(&base, vec![f]));
                match ttl {
                    Ok(ttl) if faults.is_empty() && matches!(self.op, ChangeOp::Add) => {
                        Ok(RrsetChange::Add { owner, rrtype, ttl, records: values })
                    }
                    Ok(_) if faults.is_empty() => Ok(RrsetChange::Remove { owner, rrtype, records: values }),
                    ttl => Err(faults.into_iter().chain(ttl.err().into_iter().flatten()).collect()),
                }
            }
        }
    }
}

impl TryFrom<(&DomainName, Batch)> for BatchChanges {
    type Error = Problem;

    fn try_from((zone, batch): (&DomainName, Batch)) -> Result<Self, Problem> {
        let (mut changes, mut faults) = (Vec::new(), batch.faults);
        let read = batch.changes.into_iter().enumerate();
        for (index, change) in read.filter_map(|(index, change)| Some((index, change?))) {
            match change.parse(index, zone) {
                Ok(change) => changes.push(change),
                Err(found) => faults.extend(found),
            }
        }
        if faults.is_empty() { Ok(Self(changes)) } else { Err(Problem::invalid(faults)) }
    }
}

/// The changes of a batch, each of them right by itself.
pub struct BatchChanges(pub Vec<RrsetChange>);

/// What last changed an RRset.
#[derive(Debug, Serialize, ToSchema)]
pub struct ChangedBody {
    /// The revision it made.
    revision: i64,
    /// When.
    #[schema(value_type = Option<String>, format = DateTime)]
    at: Option<Timestamp>,
    /// Who.
    actor: Option<Actor>,
    /// Why.
    note: Option<String>,
}

impl From<Changed> for ChangedBody {
    fn from(changed: Changed) -> Self {
        let (at, actor, note) = match changed.by {
            Some((at, actor, note)) => (Some(at), Some(actor.into()), note),
            None => (None, None, None),
        };
        Self { revision: changed.revision.get(), at, actor, note }
    }
}

/// An RRset.
#[derive(Debug, Serialize, ToSchema)]
pub struct Rrset {
    /// Its owner, relative to the domain.
    #[schema(value_type = String, example = "www")]
    name: OwnerName,
    /// Its type.
    #[schema(value_type = String, example = "A")]
    r#type: RrType,
    /// Seconds to live.
    ttl: u32,
    /// Record values, canonical.
    records: Vec<String>,
    /// A comment for people.
    comment: Option<String>,
    /// Who manages it, if a tool does.
    #[schema(value_type = Option<String>)]
    managed_by: Value,
    /// Whether it comes from the platform.
    derived: bool,
    /// What last changed it; null where it is derived.
    changed: Option<ChangedBody>,
}

impl Rrset {
    /// As it stands in an export, which says nothing of who changed it.
    pub fn of_zone(shown: ShownRrset, derived: bool) -> Self {
        Self { derived, ..shown.into() }
    }
}

impl From<ShownRrset> for Rrset {
    fn from(shown: ShownRrset) -> Self {
        let changed = shown.changed.map(ChangedBody::from);
        Self {
            name: shown.owner,
            r#type: shown.rrtype,
            ttl: shown.body.ttl.seconds(),
            records: shown.body.records,
            comment: shown.body.comment,
            managed_by: Value::Null,
            derived: changed.is_none(),
            changed,
        }
    }
}
