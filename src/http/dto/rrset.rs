//! Bodies of RRsets.

use headwater_events::dns::{
    DnsFault, DomainName, FaultPlace, OwnerName, Rdata, RrSet, RrSetInput, RrType, Ttl,
};
use headwater_events::domain::{BATCH_MAX_CHANGES, RrsetChange};
use headwater_events::manager::PLATFORM;
use headwater_events::reject::Fault;
use headwater_events::time::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::{Actor, dns_faults};
use crate::http::Problem;
use crate::http::body::{self, Fields, FromBody};
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
    records: Option<Vec<Option<String>>>,
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
    /// 422 with every fault of the path and of the body.
    pub fn parse(self, at: &RrsetPath) -> Result<RrSet, Problem> {
        let (owner, rrtype) = at.parts();
        let owner = owner.and_then(|owner| owner.check_a_labels().map(|()| owner)).map_err(|f| fault("", f));
        let rrtype = rrtype.map_err(|f| fault("", f));
        let sent = Sent { ttl: self.ttl, records: self.records, comment: self.comment };
        let mut faults = self.faults;
        let read = sent.read("", rrtype.as_ref().ok().copied(), &at.domain, &mut faults);
        match (owner, rrtype, read) {
            (Ok(owner), Ok(rrtype), Some(input)) if faults.is_empty() => {
                let rrset = RrSet::new(owner, rrtype, &input, &at.domain);
                rrset.map_err(|faults| body::refused(dns_faults("", faults)))
            }
            (owner, rrtype, _) => {
                Err(body::refused(owner.err().into_iter().chain(rrtype.err()).chain(faults).collect()))
            }
        }
    }
}

/// The parts of an RRset that could be read; what could not was told.
struct Sent {
    ttl: Option<i64>,
    records: Option<Vec<Option<String>>>,
    comment: Option<String>,
}

impl Sent {
    /// Notes what the DNS says of each part although others are wrong, and gives the whole if there is one.
    fn read(
        self,
        base: &str,
        rrtype: Option<RrType>,
        zone: &DomainName,
        faults: &mut Vec<Fault>,
    ) -> Option<RrSetInput> {
        let Self { ttl, records, comment } = self;
        let is_read: Option<Vec<bool>> =
            records.as_ref().map(|all| all.iter().map(Option::is_some).collect());
        let is_whole = is_read.as_ref().is_some_and(|read| read.iter().all(|one| *one));
        let records = records.unwrap_or_default().into_iter().map(Option::unwrap_or_default).collect();
        let input = RrSetInput { ttl: ttl.unwrap_or_default(), records, comment };
        // What was not read is not judged a second time; of no type, or of one that is refused, no value is right.
        let writable = rrtype.filter(|rrtype| rrtype.writable().is_ok());
        let is_judged = |place: FaultPlace| match place {
            FaultPlace::Record(index) => {
                writable.is_some() && is_read.as_ref().and_then(|read| read.get(index)) == Some(&true)
            }
            FaultPlace::Records => writable.is_some() && is_whole,
            FaultPlace::Ttl => ttl.is_some(),
            FaultPlace::Whole | FaultPlace::Comment => true,
        };
        let judged = RrSet::new(OwnerName::apex(), writable.unwrap_or(RrType::TXT), &input, zone);
        let mut found = judged.err().unwrap_or_default();
        found.retain(|fault| is_judged(fault.place));
        faults.extend(dns_faults(base, found));
        (ttl.is_some() && is_whole).then_some(input)
    }
}

fn fault(pointer: &str, fault: DnsFault) -> Fault {
    Fault::at(pointer, fault.code.as_str(), fault.detail)
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

/// One change of a batch.
#[derive(Debug, ToSchema)]
#[allow(dead_code)] // the schema; what is read is `ReadChange`
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

/// The parts of a change that could be read.
#[derive(Debug)]
struct ReadChange {
    op: Option<ChangeOp>,
    name: Option<String>,
    rrtype: Option<String>,
    ttl: Option<i64>,
    records: Option<Vec<Option<String>>>,
    comment: Option<String>,
    faults: Vec<Fault>,
}

/// Changes that happen together or not at all.
#[derive(Debug, ToSchema)]
#[schema(example = json!({"changes": [
    {"op": "put", "name": "www", "type": "A", "ttl": 300, "records": ["192.0.2.1"]},
    {"op": "delete", "name": "old", "type": "A"}]}))]
pub struct Batch {
    /// In order; judged at the end state.
    #[schema(value_type = Vec<BatchChange>)]
    changes: Vec<ReadChange>,
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
            let detail = format!("a batch holds at most {BATCH_MAX_CHANGES} changes");
            fields.fault("changes", "too_many_changes", detail);
            return None;
        }
        let read = |(index, item)| ReadChange::read(Fields::new(item, format!("/changes/{index}")));
        let changes = items.into_iter().enumerate().map(read).collect();
        Some(Self { changes, faults: fields.drain() })
    }
}

/// Takes a field that the op does not, and says so.
fn refuse<T>(fields: &mut Fields, key: &str, detail: &str) -> Option<T> {
    if fields.take(key).is_some() {
        fields.fault(key, "unknown_field", detail);
    }
    None
}

impl ReadChange {
    fn read(mut fields: Fields) -> Self {
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
        if matches!(op, Some(ChangeOp::Put)) && !fields.has("ttl") {
            fields.missing("ttl");
        }
        if matches!(op, Some(ChangeOp::Put | ChangeOp::Add | ChangeOp::Remove)) && !fields.has("records") {
            fields.missing("records");
        }
        // Every op may come with a TTL; values that are not looked at must not seem to be. An op that is unknown takes
        // anything.
        let ttl = fields.integer("ttl");
        let records = if matches!(op, Some(ChangeOp::Delete)) {
            let detail =
                "delete takes the whole RRset away: leave records out, or use remove for single values";
            refuse(&mut fields, "records", detail)
        } else {
            fields.texts("records")
        };
        let comment = if matches!(op, None | Some(ChangeOp::Put)) {
            fields.text("comment")
        } else {
            refuse(&mut fields, "comment", "only put sets a comment: leave it out")
        };
        Self { op, name, rrtype, ttl, records, comment, faults: fields.finish() }
    }

    /// The change, or every fault of it: of each part that was read, whatever the others are.
    fn parse(self, index: usize, zone: &DomainName) -> Result<RrsetChange, Vec<Fault>> {
        let base = format!("/changes/{index}");
        let mut faults = self.faults;
        // What is there already can be deleted whatever its name is.
        let is_new = matches!(self.op, Some(ChangeOp::Put | ChangeOp::Add));
        let owner = self.name.map(|name| {
            let owner = OwnerName::parse(&name, zone)?;
            if is_new { owner.check_a_labels().map(|()| owner) } else { Ok(owner) }
        });
        let rrtype = self
            .rrtype
            .map(|text| RrType::parse(&text).and_then(|rrtype| rrtype.writable().map(|()| rrtype)));
        let mut told = |place: &str, found: DnsFault| faults.push(fault(&format!("{base}/{place}"), found));
        let owner = owner.and_then(|owner| owner.map_err(|found| told("name", found)).ok());
        let rrtype = rrtype.and_then(|rrtype| rrtype.map_err(|found| told("type", found)).ok());
        let change = match self.op {
            Some(ChangeOp::Delete) => {
                if let Some(Err(found)) = self.ttl.map(Ttl::new) {
                    told_of(&base, found, &mut faults);
                }
                owner.zip(rrtype).map(|(owner, rrtype)| RrsetChange::Delete { owner, rrtype })
            }
            Some(ChangeOp::Put) | None => {
                let sent = Sent { ttl: self.ttl, records: self.records, comment: self.comment };
                let input = sent.read(&base, rrtype, zone, &mut faults);
                match (owner, rrtype, input) {
                    (Some(owner), Some(rrtype), Some(input)) if faults.is_empty() => {
                        let rrset = RrSet::new(owner, rrtype, &input, zone);
                        Some(RrsetChange::Put(rrset.map_err(|found| dns_faults(&base, found))?))
                    }
                    _ => None,
                }
            }
            Some(op @ (ChangeOp::Add | ChangeOp::Remove)) => {
                let ttl = self.ttl.map(Ttl::new).transpose();
                let ttl = ttl.map_err(|found| told_of(&base, found, &mut faults)).ok().flatten();
                let values = values(&base, rrtype, self.records.unwrap_or_default(), zone, &mut faults);
                owner.zip(rrtype).map(|(owner, rrtype)| match op {
                    ChangeOp::Add => RrsetChange::Add { owner, rrtype, ttl, records: values },
                    _ => RrsetChange::Remove { owner, rrtype, records: values },
                })
            }
        };
        match change {
            Some(change) if faults.is_empty() => Ok(change),
            _ => Err(faults),
        }
    }
}

fn told_of(base: &str, found: DnsFault, faults: &mut Vec<Fault>) {
    faults.extend(dns_faults(base, vec![found]));
}

/// Single values, each by itself: they need not make an RRset.
fn values(
    base: &str,
    rrtype: Option<RrType>,
    texts: Vec<Option<String>>,
    zone: &DomainName,
    faults: &mut Vec<Fault>,
) -> Vec<Rdata> {
    let Some(rrtype) = rrtype else { return Vec::new() };
    let mut values = Vec::new();
    for (index, text) in texts.iter().enumerate().filter_map(|(index, text)| Some((index, text.as_ref()?))) {
        match Rdata::parse(rrtype, text, zone) {
            Ok(rdata) => values.push(rdata),
            Err(found) => told_of(base, found.at(FaultPlace::Record(index)), faults),
        }
    }
    values
}

impl TryFrom<(&DomainName, Batch)> for BatchChanges {
    type Error = Problem;

    fn try_from((zone, batch): (&DomainName, Batch)) -> Result<Self, Problem> {
        let (mut changes, mut faults) = (Vec::new(), batch.faults);
        for (index, change) in batch.changes.into_iter().enumerate() {
            match change.parse(index, zone) {
                Ok(change) => changes.push(change),
                Err(found) => faults.extend(found),
            }
        }
        if faults.is_empty() { Ok(Self(changes)) } else { Err(body::refused(faults)) }
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
        let managed_by = if derived { json!(PLATFORM) } else { json!(shown.body.managed_by) };
        Self { derived, managed_by, ..shown.into() }
    }
}

impl From<ShownRrset> for Rrset {
    fn from(shown: ShownRrset) -> Self {
        let managed_by = json!(shown.managed_by());
        let changed = shown.changed.map(ChangedBody::from);
        Self {
            managed_by,
            name: shown.owner,
            r#type: shown.rrtype,
            ttl: shown.body.ttl.seconds(),
            records: shown.body.records,
            comment: shown.body.comment,
            derived: changed.is_none(),
            changed,
        }
    }
}
