//! Rolling back: the law that the state is what it was, for every history; and what is refused, as a table.

use std::collections::BTreeMap;
use std::sync::Arc;

use headwater_events::actor::{Caller, Role};
use headwater_events::dns::{OwnerKey, OwnerName, RrSetBody, RrType};
use headwater_events::domain::destination::Destinations;
use headwater_events::domain::*;
use headwater_events::event::{DomainStatus, Event};
use headwater_events::ids::{PurgeId, Revision};
use headwater_events::reject::{Guard, Reject};
use headwater_events::scope::{Domains, Grant, NamePattern, Scope};
use proptest::collection::vec;
use proptest::prelude::*;
use uuid::Uuid;

use crate::given::*;

/// What a rollback gives back.
#[derive(Debug, Clone, PartialEq)]
struct Desired {
    rrsets: BTreeMap<(OwnerKey, RrType), RrSetBody>,
    hostnames: BTreeMap<OwnerKey, HostnameBody>,
    cache: CachePolicy,
    labels: BTreeMap<String, String>,
    external_id: Option<String>,
}

fn desired(view: &DomainView) -> Desired {
    let rrsets = view.rrsets.iter().flat_map(|(key, types)| {
        types.iter().map(|(rrtype, stored)| ((key.clone(), *rrtype), stored.body.clone()))
    });
    let hostnames = view.hostnames.iter().map(|(key, stored)| (key.clone(), stored.body.clone()));
    Desired {
        rrsets: rrsets.collect(),
        hostnames: hostnames.collect(),
        cache: view.site.cache.clone(),
        labels: view.state.labels.clone(),
        external_id: view.state.external_id.clone(),
    }
}

/// A domain with everything that happened to it.
struct History {
    view: DomainView,
    with: With,
    events: Vec<(Revision, Event)>,
    states: BTreeMap<Revision, Desired>,
}

impl History {
    fn new() -> Self {
        let mut view = holding(&[]);
        view.state.revision = Revision::new(1);
        let states = [(view.state.revision, desired(&view))].into();
        let with = With { allow: Guard::ALL.into(), ..With::default() };
        Self { view, with, events: Vec::new(), states }
    }

    fn apply(&mut self, command: &DomainCommand) -> Result<Decided, Reject> {
        let decided = decide(&self.view, command, &self.with.context())?;
        if let Decided::Changed(decision) = &decided {
            for new in &decision.events {
                self.view.evolve(&new.event, decision.revision, NOW);
                self.events.push((decision.revision, new.event.clone()));
            }
            self.states.insert(decision.revision, desired(&self.view));
        }
        Ok(decided)
    }

    fn past(&self, to: Revision) -> Past {
        let standing = Standing { retained: true, validated: true, nearest: Vec::new() };
        let mut past = Past::new(self.view.state.id, to, standing);
        self.events.iter().filter(|(revision, _)| *revision > to).for_each(|(_, event)| past.take(event));
        past.through = self.view.state.revision;
        past
    }

    fn rollback(&mut self, to: Revision) -> Result<Decided, Reject> {
        self.rollback_of(self.past(to))
    }

    fn rollback_of(&mut self, past: Past) -> Result<Decided, Reject> {
        let past = Arc::new(past);
        self.view.past = Some(past.clone());
        let command =
            DomainCommand::Rollback(Box::new(Rollback { past, destinations: Destinations::default() }));
        // What the command says it needs is enough: the decision is the same as with the whole domain in view.
        let by_part = told(&decide(&part(&self.view, &command), &command, &self.with.context()));
        let decided = self.apply(&command);
        assert_eq!(by_part, told(&decided));
        decided
    }
}

/// The part of a view that the command says it needs.
fn part(view: &DomainView, command: &DomainCommand) -> DomainView {
    let zone = zone();
    let mut part = DomainView { hostnames: BTreeMap::new(), rrsets: BTreeMap::new(), ..view.clone() };
    let mut keys: Vec<OwnerKey> = command.owners().into_iter().map(OwnerName::key).collect();
    keys.extend(command.above().map(|owner| owner.key()));
    keys.extend(command.other_owners(&zone));
    for key in keys {
        if let Some(types) = view.rrsets.get(&key) {
            part.rrsets.insert(key, types.clone());
        }
    }
    let needs = command.site_needs(&zone);
    for (key, stored) in &view.hostnames {
        let below = needs.below.iter().any(|above| key == above || key.is_below(above));
        if below || needs.at.contains(key) || needs.fetched_from.contains(&stored.body.origin.host) {
            part.hostnames.insert(key.clone(), stored.clone());
        }
    }
    part
}

fn hostname(owner_name: &str, host: &str) -> DomainCommand {
    let origin = OriginInput {
        scheme: Some("http".into()),
        host: Some(host.into()),
        host_header: Some("www.example.com".into()),
        ..OriginInput::default()
    };
    let input = HostnameInput { origin, ..HostnameInput::default() };
    let body = HostnameBody::parse(&input, &owner(owner_name), &zone(), &Destinations::default()).unwrap();
    DomainCommand::PutHostname { owner: owner(owner_name), body }
}

fn names() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec!["@", "www", "a", "b.a", "*", "c.b.a"])
}

fn sets() -> impl Strategy<Value = (&'static str, &'static str, u8)> {
    (names(), prop::sample::select(vec!["A", "TXT", "CNAME", "NS", "MX"]), 1..4_u8)
}

fn rrset_of((name, ty, n): (&str, &str, u8)) -> headwater_events::dns::RrSet {
    let record = match ty {
        "A" => format!("192.0.2.{n}"),
        "TXT" => format!("\"{n}\""),
        "MX" => format!("{n} mail.example.net."),
        _ => format!("n{n}.example.net."),
    };
    set(name, ty, &[&record])
}

fn patch(n: u8) -> DomainCommand {
    let label = ("a".to_owned(), (n > 0).then(|| n.to_string()));
    DomainCommand::Patch(DomainPatch {
        labels: Some(LabelsPatch::Merge([label].into())),
        external_id: Some((n > 1).then(|| n.to_string())),
        serial_floor: (n > 2).then_some(200),
    })
}

fn commands() -> impl Strategy<Value = DomainCommand> {
    let put = || sets().prop_map(|set| RrsetChange::Put(rrset_of(set)));
    let delete =
        || sets().prop_map(|(name, ty, _)| RrsetChange::Delete { owner: owner(name), rrtype: rrtype(ty) });
    prop_oneof![
        6 => sets().prop_map(|set| DomainCommand::PutRrset(rrset_of(set))),
        3 => sets().prop_map(|(name, ty, _)| DomainCommand::DeleteRrset { owner: owner(name), rrtype: rrtype(ty) }),
        3 => vec(prop_oneof![put(), delete()], 1..4).prop_map(DomainCommand::ChangeRrsets),
        4 => (names(), 1..4_u8).prop_map(|(name, n)| hostname(name, &format!("o{n}.example.org"))),
        1 => names().prop_map(|name| hostname(name, if name == "b.a" { "a.example.com" } else { "b.a.example.com" })),
        3 => names().prop_map(|name| DomainCommand::DeleteHostname { owner: owner(name) }),
        2 => (0..3_i64).prop_map(|n| DomainCommand::PatchCache(CachePatch {
            edge_ttl_seconds: Some(Some(n)), ..CachePatch::default()
        })),
        2 => (0..4_u8).prop_map(patch),
        1 => Just(DomainCommand::Purge { id: PurgeId::from_uuid(Uuid::from_u128(7)) }),
        1 => Just(DomainCommand::Delete),
        2 => Just(DomainCommand::Restore),
    ]
}

proptest! {
    /// Whatever happened, a rollback to any revision gives the domain back what it was; so does a rollback of it, and
    /// one to a revision between.
    #[test]
    fn the_state_is_what_it_was(
        commands in vec(commands(), 1..30), picks in vec(any::<prop::sample::Index>(), 3),
    ) {
        let mut history = History::new();
        for command in &commands {
            // What is refused did not happen.
            let _ = history.apply(command);
        }
        let _ = history.apply(&DomainCommand::Restore);
        for pick in picks {
            let (head, serial) = (history.view.state.revision, history.view.state.serial_base);
            let to = Revision::new(i64::try_from(pick.index(usize::try_from(head.get()).unwrap())).unwrap() + 1);
            let decided = history.rollback(to);
            if told(&decided).replace("/revision origin_loop", "").trim_matches([' ', ',']) == "invalid:" {
                // It was a circle then, made by what went from beside it: what was good once is not good now.
                continue;
            }
            prop_assert!(decided.is_ok(), "to {to}: {decided:?}");
            prop_assert_eq!(&desired(&history.view), &history.states[&to], "to {}", to);
            let revisions = history.view.state.revision.get() - head.get();
            let changed = matches!(decided, Ok(Decided::Changed(_)));
            prop_assert_eq!(revisions, i64::from(changed), "one revision, or none where nothing changed");
            prop_assert_eq!(changed, history.states[&head] != history.states[&to]);
            prop_assert!(history.view.state.serial_base == serial, "a serial never goes back");
            let (mut rrsets, mut records) = (0, 0);
            for body in desired(&history.view).rrsets.values() {
                rrsets += 1;
                records += i64::try_from(body.records.len()).unwrap();
            }
            prop_assert_eq!((history.view.state.rrsets, history.view.state.records), (rrsets, records));
        }
    }

    /// The log may be read in parts, and a part twice.
    #[test]
    fn the_past_does_not_depend_on_how_it_was_read(
        commands in vec(commands(), 1..30), cut in any::<prop::sample::Index>(),
    ) {
        let mut history = History::new();
        for command in &commands {
            let _ = history.apply(command);
        }
        let whole = history.past(Revision::new(1));
        let cut = cut.index(history.events.len() + 1);
        let mut parts = Past::new(history.view.state.id, Revision::new(1), whole.standing.clone());
        for (_, event) in history.events[..cut].iter().chain(&history.events) {
            parts.take(event);
        }
        parts.through = whole.through;
        prop_assert_eq!(parts, whole);
    }
}

fn asked(history: &mut History, to: i64, standing: Standing) -> String {
    let mut past = history.past(Revision::new(to));
    past.standing = standing;
    told(&history.rollback_of(past))
}

#[test]
fn what_is_refused_and_what_changes_nothing() {
    let good = || Standing { retained: true, validated: true, nearest: Vec::new() };
    let mut history = History::new();
    history.with.allow.clear();
    for n in 0..22 {
        history.apply(&DomainCommand::PutRrset(set(&format!("n{n}"), "A", &["192.0.2.1"]))).unwrap();
    }
    assert_eq!(history.view.state.revision, Revision::new(23));
    for bad in [-1, 0, 24] {
        assert_eq!(asked(&mut history, bad, good()), "invalid: /revision unknown_revision");
    }
    assert_eq!(asked(&mut history, 23, Standing::default()), "unchanged at 23", "the newest is what it is");
    let nearest = vec![Revision::new(4), Revision::new(9)];
    let old = Standing { validated: true, nearest: nearest.clone(), ..Standing::default() };
    assert_eq!(asked(&mut history, 5, old), "not_retained, near 4, 9");
    let unseen = Standing { retained: true, nearest, ..Standing::default() };
    assert_eq!(asked(&mut history, 5, unseen), "not_validated, near 4, 9");
    assert_eq!(asked(&mut history, 1, good()), "guarded: empties_zone, mass_delete");
    assert_eq!(asked(&mut history, 11, good()), "guarded: mass_delete");
    assert_eq!(asked(&mut history, 22, good()), "24: back to 22, -n21 A");
    // Read too little: somebody was faster.
    let mut short = history.past(Revision::new(22));
    short.through = Revision::new(23);
    assert_eq!(told(&history.rollback_of(short)), "conflict: moved_on");
    history.with.precondition.if_match = Some(vec![Revision::new(23)]);
    assert_eq!(asked(&mut history, 22, good()), "mismatch at 24");
    history.with.precondition = Precondition::default();
    history.apply(&DomainCommand::Delete).unwrap();
    assert_eq!(asked(&mut history, 22, good()), "not found", "a deleted domain is restored first");
}

/// Rules and bounds of today are for what was good once too.
#[test]
fn what_was_is_judged_like_any_change() {
    let mut history = History::new();
    history.apply(&DomainCommand::PutRrset(set("a", "A", &["192.0.2.1", "192.0.2.2"]))).unwrap();
    history.apply(&hostname("www", "1.1.1.1")).unwrap();
    history.apply(&DomainCommand::DeleteRrset { owner: owner("a"), rrtype: rrtype("A") }).unwrap();
    history.apply(&DomainCommand::DeleteHostname { owner: owner("www") }).unwrap();
    let before = history.view.state.revision;
    history.with.limits.records_per_domain = 1;
    history.with.limits.ttl_floor_seconds = 301;
    let found = told(&history.rollback(Revision::new(3)));
    assert_eq!(found, "invalid: /revision ttl_too_low", "{found}");
    history.with.limits.ttl_floor_seconds = 0;
    assert_eq!(told(&history.rollback(Revision::new(3))), "invalid: /revision too_many_records");
    history.with.limits.records_per_domain = 30;
    let past = Arc::new(history.past(Revision::new(3)));
    history.view.past = Some(past.clone());
    let platform = vec!["1.1.1.0/24".parse().unwrap()];
    let destinations = Destinations { platform, ..Destinations::default() };
    let command = DomainCommand::Rollback(Box::new(Rollback { past, destinations }));
    let Err(Reject::Invalid(faults)) = decide(&history.view, &command, &history.with.context()) else {
        panic!("an address of the platform is no destination");
    };
    assert_eq!((faults[0].code, faults.len()), ("forbidden_destination", 1));
    assert!(faults[0].detail.starts_with("hostname www/origin/host: 1.1.1.1 is "), "{faults:?}");
    assert_eq!(history.view.state.revision, before);
    let done = told(&history.rollback(Revision::new(3)));
    assert_eq!(done, "6: back to 3 (edges), +a A [192.0.2.1 192.0.2.2], +host www 1.1.1.1");
}

#[test]
fn what_is_not_restored_is_told() {
    let mut history = History::new();
    history.apply(&DomainCommand::PutRrset(set("a", "A", &["192.0.2.1"]))).unwrap();
    history.apply(&DomainCommand::Purge { id: PurgeId::from_uuid(Uuid::from_u128(7)) }).unwrap();
    history.apply(&patch(3)).unwrap();
    history.apply(&DomainCommand::Delete).unwrap();
    history.apply(&DomainCommand::Restore).unwrap();
    let told_of = |history: &mut History, to| {
        history.rollback(Revision::new(to)).unwrap();
        not_restored(&history.view).into_iter().map(|one| one.what).collect::<Vec<_>>()
    };
    assert_eq!(told_of(&mut history, 5), ["status"], "it was deleted then");
    assert_eq!(told_of(&mut history, 4), [] as [&str; 0]);
    assert_eq!(told_of(&mut history, 3), ["serial_base"]);
    assert_eq!(told_of(&mut history, 2), ["cache_epoch", "serial_base"]);
    assert_eq!(history.view.state.status, DomainStatus::Active);
    assert_eq!(history.view.site.cache_epoch, 1);
}

/// A token that is limited to some records goes back where nothing else would change.
#[test]
fn a_limited_token_rolls_back_no_more_than_it_may_write() {
    let mut history = History::new();
    let put = |name: &str, address: &str| DomainCommand::PutRrset(set(name, "A", &[address]));
    for (name, address) in [("a", "192.0.2.1"), ("www", "192.0.2.1"), ("a", "192.0.2.2")] {
        history.apply(&put(name, address)).unwrap();
    }
    let newest = history.view.state.revision;
    let scope = |names: &[&str]| Scope {
        verbs: [Grant::Read, Grant::Write].into(),
        domains: Domains::All,
        names: Some(names.iter().map(|name| NamePattern::parse(name).unwrap()).collect()),
        types: None,
    };
    let owner = history.with.caller.clone();
    history.with.caller = Caller { scopes: Some(vec![scope(&["a"])]), ..owner.clone() };
    // Before `www` there was none: going back there would take it away.
    assert_eq!(told(&history.rollback(Revision::new(2))), "forbidden");
    assert_eq!(history.view.state.revision, newest);
    assert_eq!(told(&history.rollback(Revision::new(3))), "5: back to 3, +a A [192.0.2.1]");
    history.with.caller = Caller { scopes: Some(vec![scope(&["a", "www"])]), ..owner.clone() };
    assert_eq!(told(&history.rollback(Revision::new(2))), "6: back to 2, -www A");
    // One that only reads goes nowhere, and neither does a viewer.
    let reads = Scope { verbs: [Grant::Read].into(), ..scope(&["a", "www"]) };
    history.with.caller = Caller { scopes: Some(vec![reads]), ..owner.clone() };
    assert_eq!(told(&history.rollback(Revision::new(3))), "forbidden");
    history.with.caller = Caller { tenants: [(TENANT, Role::Viewer)].into(), ..owner };
    assert_eq!(told(&history.rollback(Revision::new(3))), "forbidden");
}
