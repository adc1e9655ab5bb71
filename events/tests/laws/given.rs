//! Given this domain, when this is asked, then that: what the tables of decisions share.

use std::collections::BTreeSet;
use std::time::Duration;

use headwater_events::actor::{Actor, ActorKind, Caller, Role};
use headwater_events::dns::{DomainName, OwnerName, Rdata, RrSet, RrSetInput, RrType};
use headwater_events::domain::*;
use headwater_events::event::{DomainStatus, Event};
use headwater_events::ids::{DomainId, OperationId, Revision, TenantId};
use headwater_events::reject::{Guard, Reject};
use headwater_events::time::Timestamp;
use uuid::Uuid;

pub const NOW: Timestamp = Timestamp::from_millis(1_700_000_000_000);
pub const OPERATION: OperationId = OperationId::from_uuid(Uuid::from_u128(42));
pub const TENANT: TenantId = TenantId::from_uuid(Uuid::from_u128(1));
pub const DOMAIN: DomainId = DomainId::from_uuid(Uuid::from_u128(2));

pub fn zone() -> DomainName {
    DomainName::parse("example.com").unwrap()
}

pub fn owner(text: &str) -> OwnerName {
    OwnerName::parse(text, &zone()).unwrap()
}

pub fn rrtype(text: &str) -> RrType {
    RrType::parse(text).unwrap()
}

pub fn set(owner_name: &str, ty: &str, records: &[&str]) -> RrSet {
    let records = records.iter().map(|&record| record.to_owned()).collect();
    let input = RrSetInput { ttl: 300, records, comment: None };
    RrSet::new(owner(owner_name), rrtype(ty), &input, &zone()).unwrap()
}

pub fn values(ty: &str, records: &[&str]) -> Vec<Rdata> {
    records.iter().map(|text| Rdata::parse(rrtype(ty), text, &zone()).unwrap()).collect()
}

pub fn user(tenant: TenantId) -> Caller {
    let actor = Actor { kind: ActorKind::User, id: Uuid::from_u128(9), token: None, on_behalf_of: None };
    Caller { tenants: [(tenant, Role::Owner)].into(), ..Caller::new(actor, false) }
}

/// What a decision is given besides the state.
#[derive(Clone)]
pub struct With {
    pub caller: Caller,
    pub limits: Limits,
    pub precondition: Precondition,
    pub allow: BTreeSet<Guard>,
    pub take_over: bool,
    pub generation: u32,
    pub now: Timestamp,
}

impl Default for With {
    fn default() -> Self {
        Self {
            caller: user(TENANT),
            limits: Limits {
                domains_per_tenant: 3,
                records_per_domain: 30,
                ttl_floor_seconds: 60,
                hold: Duration::from_secs(60),
            },
            precondition: Precondition::default(),
            allow: BTreeSet::new(),
            take_over: false,
            generation: 0,
            now: NOW,
        }
    }
}

impl With {
    pub fn context(&self) -> Context<'_> {
        Context {
            caller: &self.caller,
            now: self.now,
            operation: OPERATION,
            limits: &self.limits,
            precondition: &self.precondition,
            allow: &self.allow,
            take_over: self.take_over,
            generation: self.generation,
        }
    }
}

/// A domain at revision 10 that holds these RRsets, each last changed at revision 5.
pub fn holding(rrsets: &[RrSet]) -> DomainView {
    let records: usize = rrsets.iter().map(|set| set.records().len()).sum();
    let mut view = DomainView::bare(DomainState {
        id: DOMAIN,
        name: zone(),
        tenant: TENANT,
        status: DomainStatus::Active,
        status_before_delete: None,
        disabled_by: None,
        delegation_lost_at: None,
        revision: Revision::new(10),
        labels: [("a".to_owned(), "1".to_owned())].into(),
        external_id: None,
        serial_base: 100,
        hold_until: None,
        rrsets: i64::try_from(rrsets.len()).unwrap(),
        records: i64::try_from(records).unwrap(),
        created_at: NOW,
        updated_at: NOW,
    });
    for set in rrsets {
        let stored = StoredRrset { body: set.body(), changed: Revision::new(5) };
        view.rrsets.entry(set.owner().key()).or_default().insert(set.rr_type(), stored);
    }
    view
}

/// One line that says what was decided: the events, or why not.
pub fn told(decided: &Result<Decided, Reject>) -> String {
    match decided {
        Ok(Decided::Unchanged { revision }) => format!("unchanged at {revision}"),
        Ok(Decided::Changed(decision)) => {
            let events: Vec<String> = decision.events.iter().map(|new| event(&new.event)).collect();
            format!("{}: {}", decision.revision, events.join(", "))
        }
        Err(Reject::Invalid(faults)) => {
            let faults: Vec<String> =
                faults.iter().map(|fault| format!("{} {}", fault.pointer, fault.code)).collect();
            format!("invalid: {}", faults.iter().map(|fault| fault.trim()).collect::<Vec<_>>().join(", "))
        }
        Err(Reject::Guarded { guards, .. }) => {
            format!("guarded: {}", guards.iter().map(|guard| guard.name()).collect::<Vec<_>>().join(", "))
        }
        Err(Reject::RevisionMismatch { current }) => {
            format!("mismatch at {}", current.map_or("nothing".to_owned(), |current| current.to_string()))
        }
        Err(Reject::NotFound(_)) => "not found".into(),
        Err(Reject::NameTaken(_)) => "name taken".into(),
        Err(Reject::Forbidden(_)) => "forbidden".into(),
        Err(Reject::Conflict { code, .. }) => format!("conflict: {code}"),
        Err(Reject::NotRestorable { code, nearest, .. }) => {
            let nearest: Vec<String> = nearest.iter().map(ToString::to_string).collect();
            format!("{code}, near {}", nearest.join(", "))
        }
        Err(Reject::UndoConflict { conflicts }) => {
            let named: Vec<&str> = conflicts.iter().map(|fault| fault.pointer.as_str()).collect();
            format!("undo conflict: {}", named.join(", "))
        }
        Err(Reject::ManagedByOther { conflicts }) => {
            let named: Vec<&str> = conflicts.iter().map(|fault| fault.pointer.as_str()).collect();
            format!("of others: {}", named.join(", "))
        }
    }
}

fn event(event: &Event) -> String {
    match event {
        Event::RrsetReplaced(put) => {
            format!("+{} {} [{}]", put.name, put.rrtype, put.after.records.join(" "))
        }
        Event::RrsetDeleted(gone) => format!("-{} {}", gone.name, gone.rrtype),
        Event::DomainUpdated(change) => {
            let labels: Vec<String> = change.after.labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
            let external_id = change.after.external_id.as_deref().unwrap_or("-");
            format!("settings {} {external_id} {}", labels.join(","), change.after.serial_base)
        }
        Event::HostnameReplaced(put) => format!("+host {} {}", put.name, put.after.origin.host),
        Event::HostnameDeleted(gone) => format!("-host {}", gone.name),
        Event::DomainRolledBack(back) => {
            format!("back to {}{}", back.to, if back.edges { " (edges)" } else { "" })
        }
        Event::DomainUndone(undone) => {
            let revisions: Vec<String> = undone.revisions.iter().map(ToString::to_string).collect();
            format!("undone {}{}", revisions.join(" "), if undone.edges { " (edges)" } else { "" })
        }
        Event::PurgeRequested(purge) => format!("purge {}->{}", purge.before, purge.after),
        other => other.type_name().to_owned(),
    }
}
