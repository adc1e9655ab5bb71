//! Applying a change of somebody to what something would be without the changes of somebody else: three-way, and only
//! where nobody has to decide.

use super::cache::CachePolicy;
use super::hostname::HostnameBody;
use crate::dns::RrSetBody;
use crate::event::DomainSettings;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What changes can be applied to anew.
pub(super) trait Merge: Sized {
    /// Whether both are the same to whoever reads them.
    fn same(&self, other: &Self) -> bool;

    /// The change from `before` to `after`, applied to `other`; none where they overlap.
    fn merge(before: &Self, after: &Self, other: Option<&Self>) -> Option<Self>;
}

/// One field: whoever changed it has it; both only where they agree.
fn field<T: PartialEq + Clone>(before: &T, after: &T, other: &T) -> Option<T> {
    if other == before || other == after {
        Some(after.clone())
    } else if after == before {
        Some(other.clone())
    } else {
        None
    }
}

impl Merge for RrSetBody {
    fn same(&self, other: &Self) -> bool {
        let values = |body: &Self| body.records.iter().cloned().collect::<BTreeSet<_>>();
        let of = |body: &Self| (body.ttl, body.comment.clone(), body.managed_by.clone());
        of(self) == of(other) && values(self) == values(other)
    }

    /// Values that were added are kept. What was put in the place of others was meant as the whole.
    fn merge(before: &Self, after: &Self, other: Option<&Self>) -> Option<Self> {
        if before.records.iter().any(|value| !after.records.contains(value)) {
            return None;
        }
        let added = after.records.iter().filter(|value| !before.records.contains(value)).cloned();
        let Some(other) = other else {
            let records: Vec<String> = added.collect();
            return (!records.is_empty()).then(|| Self { records, ..after.clone() });
        };
        let mut records = other.records.clone();
        records.extend(added.filter(|value| !other.records.contains(value)));
        Some(Self {
            ttl: field(&before.ttl, &after.ttl, &other.ttl)?,
            comment: field(&before.comment, &after.comment, &other.comment)?,
            managed_by: field(&before.managed_by, &after.managed_by, &other.managed_by)?,
            records,
        })
    }
}

impl Merge for HostnameBody {
    fn same(&self, other: &Self) -> bool {
        self == other
    }

    /// What is proxied under a name is one thing.
    fn merge(_: &Self, _: &Self, _: Option<&Self>) -> Option<Self> {
        None
    }
}

impl Merge for CachePolicy {
    fn same(&self, other: &Self) -> bool {
        self == other
    }

    /// Member by member.
    fn merge(before: &Self, after: &Self, other: Option<&Self>) -> Option<Self> {
        let members = |policy: &Self| match serde_json::to_value(policy) {
            Ok(Value::Object(members)) => Some(members.into_iter().collect::<BTreeMap<_, _>>()),
            _ => None,
        };
        let merged = entries(&members(before)?, &members(after)?, &members(other?)?)?;
        serde_json::from_value(Value::Object(merged.into_iter().collect())).ok()
    }
}

impl Merge for DomainSettings {
    fn same(&self, other: &Self) -> bool {
        self == other
    }

    /// Label by label.
    fn merge(before: &Self, after: &Self, other: Option<&Self>) -> Option<Self> {
        let other = other?;
        Some(Self {
            labels: entries(&before.labels, &after.labels, &other.labels)?,
            external_id: field(&before.external_id, &after.external_id, &other.external_id)?,
            serial_base: after.serial_base,
        })
    }
}

fn entries<T: PartialEq + Clone>(
    before: &BTreeMap<String, T>,
    after: &BTreeMap<String, T>,
    other: &BTreeMap<String, T>,
) -> Option<BTreeMap<String, T>> {
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).chain(other.keys()).collect();
    let mut merged = BTreeMap::new();
    for key in keys {
        if let Some(value) = field(&before.get(key), &after.get(key), &other.get(key))? {
            merged.insert(key.clone(), value.clone());
        }
    }
    Some(merged)
}
