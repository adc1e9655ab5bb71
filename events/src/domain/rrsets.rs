//! Changing RRsets: applied one after another over a copy of the touched
//! owners, judged once at the end state, all or nothing. A rollback comes with
//! the end state and is judged by the same rules.

use super::command::RrsetChange;
use super::decide::{Context, Decided, change_fault, decided};
use super::hostname::{answers_for_proxy, excluded_by_proxy};
use super::state::DomainView;
use super::sums::Sums;
use super::{BATCH_MAX_CHANGES, cuts};
use crate::dns::{DnsFault, DomainName, OwnerKey, OwnerName, Rdata, RrSet, RrSetBody, RrType, Ttl};
use crate::event::{Event, RrsetDeleted, RrsetReplaced};
use crate::reject::{Fault, Guard, Reject};
use std::collections::BTreeMap;

/// Where the changes come from: a single RRset's route, a batch, a zone text, or a rollback.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    One,
    Batch,
    Import,
    Rollback,
}

/// The RRsets that a command touches, as they will be, each with the index of
/// the last change that touched it.
pub(super) type Touched = BTreeMap<(OwnerKey, RrType), (OwnerName, Option<RrSetBody>, usize)>;

/// A digest of the keys of a zone below.
const DS: RrType = RrType::from_code(43);
/// TTL of an RRset that `add` makes without naming one.
const DEFAULT_TTL_SECONDS: i64 = 3_600;

/// Decides changes of RRsets.
pub(super) fn change(
    view: &DomainView,
    changes: &[RrsetChange],
    origin: Origin,
    context: &Context<'_>,
) -> Result<Decided, Reject> {
    if changes.len() > BATCH_MAX_CHANGES {
        return Err(Reject::Invalid(vec![Fault::at(
            "/changes",
            "too_many_changes",
            format!("a batch holds at most {BATCH_MAX_CHANGES} changes"),
        )]));
    }
    change_with(view, changes, origin, None, context)
}

/// The same of any size, with what else changes in the same revision.
pub(super) fn change_with(
    view: &DomainView,
    changes: &[RrsetChange],
    origin: Origin,
    also: Option<Event>,
    context: &Context<'_>,
) -> Result<Decided, Reject> {
    let mut faults = Vec::new();
    let touched = apply(view, changes, origin, context, &mut faults);
    rules(view, &touched, origin, &mut faults);
    a_labels(changes, origin, &mut faults);
    let Settled { mut events, guards, warnings } = settle(view, touched, origin, faults, context)?;
    events.extend(also);
    if events.is_empty() {
        return Ok(Decided::Unchanged { revision: view.state.revision });
    }
    let mut decision = decided(view, events, view.state.status.is_served(), context);
    decision.guards = guards;
    decision.warnings = warnings;
    Ok(Decided::Changed(decision))
}

/// Every rule about what may stand beside what.
pub(super) fn rules(view: &DomainView, touched: &Touched, origin: Origin, faults: &mut Vec<Fault>) {
    owner_rules(view, touched, origin, faults);
    redirect_rules(view, touched, origin, faults);
    proxy_rules(view, touched, origin, faults);
}

/// What changes of RRsets come to when no rule forbids them.
pub(super) struct Settled {
    pub(super) events: Vec<Event>,
    pub(super) guards: Vec<Guard>,
    pub(super) warnings: Vec<String>,
}

/// Judges the end state as a whole: its size, the faults that were found, the guards.
pub(super) fn settle(
    view: &DomainView,
    touched: Touched,
    origin: Origin,
    mut faults: Vec<Fault>,
    context: &Context<'_>,
) -> Result<Settled, Reject> {
    let sums = Sums::of(view, &touched);
    if sums.records_after > context.limits.records_per_domain && sums.records_after > view.state.records {
        faults.push(Fault::at(
            if origin == Origin::Rollback { "/revision" } else { "" },
            "too_many_records",
            format!(
                "the domain would hold {} records, more than its limit of {}",
                sums.records_after, context.limits.records_per_domain
            ),
        ));
    }
    if !faults.is_empty() {
        return Err(Reject::Invalid(faults));
    }
    let conflicts = if context.take_over { Vec::new() } else { of_others(view, &touched, origin, context) };
    if !conflicts.is_empty() {
        return Err(Reject::ManagedByOther { conflicts });
    }
    let guards = if origin == Origin::One { Vec::new() } else { sums.guards(view) };
    if guards.iter().any(|guard| !context.allow.contains(guard)) {
        let names: Vec<&str> = guards.iter().map(|guard| guard.name()).collect();
        return Err(Reject::Guarded {
            detail: format!(
                "the change would delete {} of {} RRsets: repeat it with ?allow={} if it is meant",
                sums.deleted,
                view.state.rrsets,
                names.join(",")
            ),
            guards,
        });
    }
    let warnings = cuts::warnings(view, &touched);
    let events = events(view, touched, &guards);
    Ok(Settled { events, guards, warnings })
}

/// Whether the caller may give an RRset this TTL.
pub(super) fn ttl_permitted(ttl: Ttl, context: &Context<'_>) -> Result<(), Vec<(&'static str, String)>> {
    let floor = if context.caller.admin { 0 } else { context.limits.ttl_floor_seconds };
    if ttl.seconds() < floor {
        return Err(vec![("ttl_too_low", format!("the lowest TTL here is {floor} s"))]);
    }
    Ok(())
}

/// Applies the changes in order; what cannot be applied is a fault at its index.
fn apply(
    view: &DomainView,
    changes: &[RrsetChange],
    origin: Origin,
    context: &Context<'_>,
    faults: &mut Vec<Fault>,
) -> Touched {
    let mut touched = Touched::new();
    for (index, change) in changes.iter().enumerate() {
        if removes_apex_ns(change) {
            faults.push(change_fault(origin, index, "apex_ns", APEX_NS.into()));
            continue;
        }
        let key = (change.owner().key(), change.rrtype());
        let now = match touched.get(&key) {
            Some((_, body, _)) => body.clone(),
            None => view.get(&key.0, key.1).map(|stored| stored.body.clone()),
        };
        match next(now.clone(), change, &view.state.name, context) {
            Ok(body) => {
                let body = body.map(|body| owned(now.as_ref(), body, change, context));
                touched.insert(key, (change.owner().clone(), body, index));
            }
            Err(found) => faults
                .extend(found.into_iter().map(|(code, detail)| change_fault(origin, index, code, detail))),
        }
    }
    touched
}

/// An RRset after one change, with whose it is then: the writer's. What says the same as before is nobody's doing, but for
/// a `put` by a tool of what nobody owns, or of what is taken over.
fn owned(now: Option<&RrSetBody>, next: RrSetBody, change: &RrsetChange, context: &Context<'_>) -> RrSetBody {
    let stays = now.filter(|now| {
        let is_put = matches!(change, RrsetChange::Put(_) | RrsetChange::Refill(_));
        let is_other = context.caller.shown.managing.is_other(now.managed_by.as_ref());
        now.says_the_same(&next) && (!is_put || (is_other && !context.take_over))
    });
    let managed_by = stays.map_or_else(|| context.caller.manager().cloned(), |now| now.managed_by.clone());
    RrSetBody { managed_by, ..next }
}

/// What tools of others own and would be changed.
fn of_others(view: &DomainView, touched: &Touched, origin: Origin, context: &Context<'_>) -> Vec<Fault> {
    let managing = &context.caller.shown.managing;
    let mut conflicts = Vec::new();
    for ((key, rrtype), (owner, after, index)) in touched {
        let Some(before) = view.get(key, *rrtype).map(|stored| &stored.body) else { continue };
        if after.as_ref() != Some(before) && managing.is_other(before.managed_by.as_ref()) {
            let detail = told_of_other(owner, *rrtype, before, context);
            conflicts.push(match origin {
                Origin::Rollback => Fault::at(format!("/rrsets/{owner}/{rrtype}"), MANAGED_BY_OTHER, detail),
                _ => change_fault(origin, *index, MANAGED_BY_OTHER, detail),
            });
        }
    }
    conflicts
}

/// The code of each RRset that belongs to the tool of somebody else.
pub(super) const MANAGED_BY_OTHER: &str = "managed_by_other";

/// What is said of an RRset of another; whoever is shown its own alone is not told whose it is.
pub(super) fn told_of_other(
    owner: &OwnerName,
    rrtype: RrType,
    body: &RrSetBody,
    context: &Context<'_>,
) -> String {
    match &body.managed_by {
        Some(other) if !context.caller.sees_own_alone() => format!("{owner} {rrtype} is managed by {other}"),
        _ => format!("{owner} {rrtype} is managed by another"),
    }
}

/// What an RRset is with another comment.
fn commented(
    owner: &OwnerName,
    rrtype: RrType,
    body: RrSetBody,
    comment: Option<String>,
    zone: &DomainName,
) -> Result<Option<RrSetBody>, Vec<(&'static str, String)>> {
    let body = RrSetBody { comment, ..body };
    let rrset = RrSet::from_body(owner.clone(), rrtype, &body, zone);
    let told = |found: Vec<DnsFault>| found.into_iter().map(|f| (f.code.as_str(), f.detail)).collect();
    rrset.map(|rrset| Some(rrset.body())).map_err(told)
}

/// What an RRset is after one change.
fn next(
    now: Option<RrSetBody>,
    change: &RrsetChange,
    zone: &DomainName,
    context: &Context<'_>,
) -> Result<Option<RrSetBody>, Vec<(&'static str, String)>> {
    match change {
        RrsetChange::Put(rrset) => {
            ttl_permitted(rrset.ttl(), context)?;
            Ok(Some(rrset.body()))
        }
        RrsetChange::Refill(rrset) => {
            ttl_permitted(rrset.ttl(), context)?;
            Ok(Some(RrSetBody { comment: now.and_then(|body| body.comment), ..rrset.body() }))
        }
        RrsetChange::Comment { owner, rrtype, comment } => match now {
            Some(body) => commented(owner, *rrtype, body, comment.clone(), zone),
            None => Err(vec![("not_found", format!("there is no RRset {owner} {rrtype} to comment on"))]),
        },
        RrsetChange::Clear { .. } => Ok(None),
        RrsetChange::Delete { owner, rrtype } => match now {
            Some(_) => Ok(None),
            None => Err(vec![("not_found", format!("there is no RRset {owner} {rrtype} to delete"))]),
        },
        RrsetChange::Add { owner, rrtype, ttl, records } => {
            let told = |found: Vec<DnsFault>| {
                found.into_iter().map(|f| (f.code.as_str(), f.detail)).collect::<Vec<_>>()
            };
            let mut all = records.clone();
            for text in now.iter().flat_map(|body| &body.records) {
                all.push(Rdata::parse(*rrtype, text, zone).map_err(|fault| told(vec![fault]))?);
            }
            let kept = match &now {
                Some(body) => body.ttl,
                None => Ttl::new(DEFAULT_TTL_SECONDS).map_err(|fault| told(vec![fault]))?,
            };
            let comment = now.and_then(|body| body.comment);
            let rrset =
                RrSet::from_rdata(owner.clone(), *rrtype, ttl.unwrap_or(kept), all, comment).map_err(told)?;
            ttl_permitted(rrset.ttl(), context)?;
            Ok(Some(rrset.body()))
        }
        RrsetChange::Remove { records, .. } => {
            let Some(mut body) = now else { return Ok(None) };
            body.records.retain(|text| !records.iter().any(|rdata| rdata.as_text() == text));
            Ok((!body.records.is_empty()).then_some(body))
        }
    }
}

/// What is said of the apex NS set, whatever is to be done with it.
pub(super) const APEX_NS: &str =
    "the apex NS set comes from the platform's nameservers: it is not yours to set or to remove";

/// Whether this would take the apex NS set away, which is derived and stays.
pub(super) fn removes_apex_ns(change: &RrsetChange) -> bool {
    let is_removal =
        matches!(change, RrsetChange::Delete { .. } | RrsetChange::Clear { .. } | RrsetChange::Remove { .. });
    is_removal && change.owner().is_apex() && change.rrtype() == RrType::NS
}

/// What gets records has a name that means something; what is there already can be taken away whatever its name is.
fn a_labels(changes: &[RrsetChange], origin: Origin, faults: &mut Vec<Fault>) {
    for (index, change) in changes.iter().enumerate() {
        if let (true, Err(fault)) = (change.gives_records(), change.owner().check_a_labels()) {
            faults.push(change_fault(origin, index, fault.code.as_str(), fault.detail));
        }
    }
}

/// RFC 1034 section 3.6.2 and RFC 2181 section 10.1: a CNAME stands alone; the
/// apex holds SOA and NS, so no CNAME; the apex NS set is the platform's. RFC 4592
/// section 4.2: what NS at a wildcard would mean is left open, so there is none.
fn owner_rules(view: &DomainView, touched: &Touched, origin: Origin, faults: &mut Vec<Fault>) {
    let mut fault = |index, code, detail| faults.push(change_fault(origin, index, code, detail));
    for ((key, rrtype), (owner, body, index)) in touched {
        if body.is_none() {
            continue;
        }
        if owner.is_apex() && *rrtype == RrType::CNAME {
            fault(
                *index,
                "cname_at_apex",
                "the apex holds SOA and NS records, so it cannot be a CNAME".into(),
            );
        }
        if owner.is_apex() && *rrtype == RrType::NS {
            fault(*index, "apex_ns", APEX_NS.into());
        }
        if owner.is_apex() && *rrtype == DS {
            let detail = "a DS belongs to the zone above this one: give it to the registry".to_owned();
            fault(*index, "ds_at_apex", detail);
        }
        if owner.is_wildcard() && *rrtype == RrType::DNAME {
            let detail =
                "a DNAME needs a name of its own: at a wildcard it means nothing (RFC 4592)".to_owned();
            fault(*index, "dname_at_wildcard", detail);
        }
        if owner.is_wildcard() && *rrtype == RrType::NS {
            fault(
                *index,
                "ns_at_wildcard",
                "a delegation needs a name of its own: NS at a wildcard means nothing (RFC 4592)".into(),
            );
        }
        let exists = |other: RrType| match touched.get(&(key.clone(), other)) {
            Some((_, body, _)) => body.is_some(),
            None => view.get(key, other).is_some(),
        };
        let stored = view.rrsets.get(key).into_iter().flat_map(|types| types.keys().copied());
        let others = stored.chain(at_owner(touched, key)).filter(|other| *other != *rrtype && exists(*other));
        let others: std::collections::BTreeSet<RrType> = others.collect();
        if *rrtype == RrType::CNAME && !others.is_empty() {
            let names: Vec<String> = others.iter().map(ToString::to_string).collect();
            let detail =
                format!("{owner} holds {} already: a CNAME stands alone at its name", names.join(", "));
            fault(*index, "cname_conflict", detail);
        } else if others.contains(&RrType::CNAME) && !touched.contains_key(&(key.clone(), RrType::CNAME)) {
            fault(
                *index,
                "cname_conflict",
                format!("{owner} is a CNAME: nothing else can stand at its name"),
            );
        }
    }
}

/// RFC 6672 section 2.4: a DNAME redirects every name below its own, so nothing stands there.
fn redirect_rules(view: &DomainView, touched: &Touched, origin: Origin, faults: &mut Vec<Fault>) {
    let mut fault_at = |index, code, detail| faults.push(change_fault(origin, index, code, detail));
    let redirects = |name: &OwnerName| {
        let key = (name.key(), RrType::DNAME);
        match touched.get(&key) {
            Some((_, body, _)) => body.is_some(),
            None => view.get(&key.0, key.1).is_some(),
        }
    };
    for ((key, rrtype), (owner, body, index)) in touched {
        if body.is_none() {
            continue;
        }
        let apex = (!owner.is_apex()).then(OwnerName::apex);
        if let Some(above) = owner.ancestors().chain(apex).find(redirects) {
            let detail = format!("{above} is a DNAME: it redirects every name below it, {owner} too");
            fault_at(*index, "below_dname", detail);
        }
        if *rrtype == RrType::DNAME && owner.is_apex() && below_apex(view, touched) > 0 {
            let detail =
                "names stand below the apex, which a DNAME would redirect: delete them first".to_owned();
            fault_at(*index, "dname_hides", detail);
        }
        if *rrtype == RrType::DNAME {
            // What the change touches below is told there.
            let stays = |(other, rrtype): &&(OwnerKey, RrType)| {
                other != key && !touched.contains_key(&(other.clone(), *rrtype))
            };
            if let Some((below, rrtype)) = view.below.get(key).into_iter().flatten().find(stays) {
                let below = OwnerName::from_key(below.as_str())
                    .map_or_else(|_| below.as_str().to_owned(), String::from);
                let detail = format!(
                    "{below} {rrtype} stands below {owner}, which a DNAME would redirect: delete it first"
                );
                fault_at(*index, "dname_hides", detail);
            }
        }
    }
}

/// RRsets below the apex that a change leaves as they are.
fn below_apex(view: &DomainView, touched: &Touched) -> i64 {
    let count = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
    let apex = OwnerName::apex().key();
    let at_apex = view.rrsets.get(&apex).map_or(0, |types| count(types.len()));
    let touched = touched.keys().filter(|(key, rrtype)| *key != apex && view.get(key, *rrtype).is_some());
    view.state.rrsets - at_apex - count(touched.count())
}

/// The types that a change touches at an owner.
fn at_owner<'t>(touched: &'t Touched, key: &OwnerKey) -> impl Iterator<Item = RrType> + use<'t> {
    let (first, last) = (RrType::from_code(0), RrType::from_code(u16::MAX));
    touched.range((key.clone(), first)..=(key.clone(), last)).map(|((_, rrtype), _)| *rrtype)
}

/// What answers for a proxied name is derived, so nothing else may; and what is proxied lies in this zone, so no cut
/// and no DNAME may stand above it.
fn proxy_rules(view: &DomainView, touched: &Touched, origin: Origin, faults: &mut Vec<Fault>) {
    for ((key, rrtype), (owner, body, index)) in touched {
        if body.is_none() {
            continue;
        }
        // Of NS sets it is told below.
        if excluded_by_proxy(owner, *rrtype) && *rrtype != RrType::NS && view.hostnames.contains_key(key) {
            let detail = format!(
                "{owner} is proxied: its answer is derived, and nothing can stand beside it. Delete the hostname first"
            );
            faults.push(change_fault(origin, *index, "hostname_conflict", detail));
        }
        let is_cut = matches!(*rrtype, RrType::NS | RrType::DNAME) && !owner.is_apex();
        if (answers_for_proxy(*rrtype) || is_cut) && view.platform_names.contains(key) {
            let detail =
                format!("{owner} is a name of the platform: it is answered with the addresses of its edges");
            faults.push(change_fault(origin, *index, "managed_by_platform", detail));
        }
        let hides = |other: &OwnerKey| match *rrtype {
            RrType::NS => !owner.is_apex() && (other == key || other.is_below(key)),
            RrType::DNAME => other.is_below(key),
            _ => false,
        };
        let hidden = matches!(*rrtype, RrType::NS | RrType::DNAME)
            .then(|| view.hostnames.values().find(|stored| hides(&stored.owner.key())));
        if let Some(hidden) = hidden.flatten() {
            let detail =
                format!("{} is proxied and would lie at or below the cut: delete it first", hidden.owner);
            faults.push(change_fault(origin, *index, "hostname_conflict", detail));
        }
    }
}

/// One event for each RRset that really differs.
fn events(view: &DomainView, touched: Touched, guards: &[Guard]) -> Vec<Event> {
    let allowed: Vec<String> = guards.iter().map(|guard| guard.name().to_owned()).collect();
    let mut events = Vec::new();
    for ((key, rrtype), (name, after, _)) in touched {
        let before = view.get(&key, rrtype).map(|stored| stored.body.clone());
        let allowed = allowed.clone();
        match (before, after) {
            (before, Some(after)) if before.as_ref() != Some(&after) => {
                events.push(Event::RrsetReplaced(RrsetReplaced { name, rrtype, before, after, allowed }));
            }
            (Some(before), None) => {
                events.push(Event::RrsetDeleted(RrsetDeleted { name, rrtype, before, allowed }));
            }
            _ => {}
        }
    }
    events
}
