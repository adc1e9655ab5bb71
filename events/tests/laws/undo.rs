//! Undoing revisions: the law that it is as if they had never been, or names what others decided since; and what is
//! refused, as a table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headwater_events::dns::{OwnerKey, OwnerName, RrSetBody};
use headwater_events::domain::destination::Destinations;
use headwater_events::domain::*;
use headwater_events::event::Event;
use headwater_events::ids::{PurgeId, Revision};
use headwater_events::reject::{Guard, Reject};
use proptest::collection::vec;
use proptest::prelude::*;
use uuid::Uuid;

use crate::given::*;

/// What somebody meant.
#[derive(Debug, Clone, PartialEq)]
enum Meant {
    Put(BTreeSet<String>),
    Add(BTreeSet<String>),
    Remove(String),
    Delete,
}

const NAMES: [&str; 3] = ["www", "a", "b.a"];

/// A domain with everything that happened to it.
struct History {
    view: DomainView,
    with: With,
    events: Vec<(Revision, Event)>,
    meant: Vec<(Revision, &'static str, Meant, bool)>,
    next: u8,
}

impl History {
    fn new() -> Self {
        let mut view = holding(&[]);
        view.state.revision = Revision::new(1);
        let with = With { allow: Guard::ALL.into(), ..With::default() };
        let mut with = with;
        with.limits.records_per_domain = 10_000;
        Self { view, with, events: Vec::new(), meant: Vec::new(), next: 0 }
    }

    fn apply(&mut self, command: &DomainCommand) -> Result<Decided, Reject> {
        let decided = decide(&self.view, command, &self.with.context())?;
        if let Decided::Changed(decision) = &decided {
            for new in &decision.events {
                self.view.evolve(&new.event, decision.revision, NOW);
                self.events.push((decision.revision, new.event.clone()));
            }
        }
        Ok(decided)
    }

    fn values(&self, name: &str) -> Option<BTreeSet<String>> {
        let stored = self.view.get(&owner(name).key(), rrtype("A"))?;
        Some(stored.body.records.iter().cloned().collect())
    }

    fn fresh(&mut self, count: u8) -> BTreeSet<String> {
        let first = self.next;
        self.next += count;
        (first..self.next).map(|n| format!("192.0.2.{n}")).collect()
    }

    /// Somebody does something with values that nobody had before.
    fn act(&mut self, kind: u8, name: &'static str, count: u8) {
        let now = self.values(name);
        let meant = match kind {
            0 => Meant::Put(self.fresh(count)),
            1 => Meant::Add(self.fresh(count)),
            2 => match now.iter().flatten().next() {
                Some(value) => Meant::Remove(value.clone()),
                None => return,
            },
            _ => Meant::Delete,
        };
        let texts = |values: &BTreeSet<String>| values.iter().cloned().collect::<Vec<_>>();
        let rdata = |all: &[String]| {
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            values("A", &all)
        };
        let (owner, rrtype) = (owner(name), rrtype("A"));
        let change = match &meant {
            Meant::Put(values) => {
                let texts = texts(values);
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                RrsetChange::Put(set(name, "A", &texts))
            }
            Meant::Add(values) => {
                RrsetChange::Add { owner, rrtype, ttl: None, records: rdata(&texts(values)) }
            }
            Meant::Remove(value) => {
                RrsetChange::Remove { owner, rrtype, records: rdata(std::slice::from_ref(value)) }
            }
            Meant::Delete => RrsetChange::Delete { owner, rrtype },
        };
        if let Ok(Decided::Changed(done)) = self.apply(&DomainCommand::ChangeRrsets(vec![change])) {
            self.meant.push((done.revision, name, meant, now.is_some()));
        }
    }

    fn undoing(&self, revisions: &BTreeSet<Revision>) -> Undoing {
        let mut undoing = Undoing::new(DOMAIN, revisions.clone());
        let first = revisions.first().copied().unwrap_or(Revision::ZERO);
        let since = self.events.iter().filter(|(revision, _)| *revision >= first);
        since.for_each(|(revision, event)| undoing.take(*revision, event));
        undoing.through = self.view.state.revision;
        undoing
    }

    fn undo(&mut self, revisions: &[i64], partial: bool) -> Result<Decided, Reject> {
        let revisions = revisions.iter().copied().map(Revision::new).collect();
        self.undo_all(&revisions, partial)
    }

    fn undo_all(&mut self, revisions: &BTreeSet<Revision>, partial: bool) -> Result<Decided, Reject> {
        let undoing = Arc::new(self.undoing(revisions));
        let undo = Undo::new(Arc::clone(&undoing), Destinations::default(), partial);
        let command = DomainCommand::Undo(Box::new(undo));
        self.view.undoing = Some(undoing);
        // What the command says it needs is enough.
        let mut part = DomainView { rrsets: BTreeMap::new(), ..self.view.clone() };
        let mut keys: Vec<OwnerKey> = command.owners().into_iter().map(OwnerName::key).collect();
        keys.extend(command.above().map(|owner| owner.key()));
        keys.extend(command.other_owners(&zone()));
        for key in keys {
            if let Some(types) = self.view.rrsets.get(&key) {
                part.rrsets.insert(key, types.clone());
            }
        }
        let by_part = told(&decide(&part, &command, &self.with.context()));
        let decided = self.apply(&command);
        assert_eq!(by_part, told(&decided));
        decided
    }

    /// What the name would hold if some revisions had never been.
    fn without(&self, name: &str, undone: &BTreeSet<Revision>) -> Option<BTreeSet<String>> {
        let mut held: Option<BTreeSet<String>> = None;
        for (_, _, meant, _) in self.meant.iter().filter(|one| one.1 == name && !undone.contains(&one.0)) {
            held = match (meant, held) {
                (Meant::Put(values), _) => Some(values.clone()),
                (Meant::Add(values), held) => Some(held.unwrap_or_default().union(values).cloned().collect()),
                (Meant::Remove(value), held) => held
                    .map(|held| held.into_iter().filter(|one| one != value).collect())
                    .filter(|held: &BTreeSet<String>| !held.is_empty()),
                (Meant::Delete, _) => None,
            };
        }
        held
    }

    /// Whether somebody decided anew about the name after the first of these revisions that touched it.
    fn decided_anew(&self, name: &str, undone: &BTreeSet<Revision>) -> bool {
        let own = self.meant.iter().filter(|one| one.1 == name);
        let since = own.skip_while(|one| !undone.contains(&one.0));
        let mut others = since.filter(|one| !undone.contains(&one.0));
        others.any(|(_, _, meant, was_there)| !(matches!(meant, Meant::Add(_)) && *was_there))
    }
}

proptest! {
    /// undo(S) is a replay without S, or it lists exactly the conflicts and leaves those as they are. Undone twice, it
    /// changes nothing; and an undo can be undone.
    #[test]
    fn it_is_as_if_they_had_never_been(
        acts in vec((0..4_u8, prop::sample::select(NAMES.to_vec()), 1..4_u8), 1..25), picks in vec(any::<bool>(), 25),
    ) {
        let mut history = History::new();
        for (kind, name, count) in &acts {
            history.act(*kind, name, *count);
        }
        let all = history.meant.iter().zip(&picks);
        let undone: BTreeSet<Revision> = all.filter(|(_, pick)| **pick).map(|(one, _)| one.0).collect();
        prop_assume!(!undone.is_empty());
        let before: BTreeMap<&str, _> = NAMES.iter().map(|name| (*name, history.values(name))).collect();
        let conflicts: BTreeSet<String> =
            history.undoing(&undone).conflicts().into_iter().map(|conflict| conflict.path).collect();
        let whole = history.undo_all(&undone, false);
        match &whole {
            Err(Reject::UndoConflict { conflicts: named }) => {
                let named: BTreeSet<String> = named.iter().map(|fault| fault.pointer.clone()).collect();
                prop_assert_eq!(&named, &conflicts);
                for name in NAMES {
                    prop_assert_eq!(history.values(name), before[name].clone(), "nothing was undone");
                }
                prop_assert!(history.undo_all(&undone, true).is_ok());
            }
            decided => {
                prop_assert!(decided.is_ok(), "{:?}", decided);
                prop_assert!(conflicts.is_empty());
            }
        }
        for name in NAMES {
            let path = format!("/rrsets/{name}/A");
            if conflicts.contains(&path) {
                prop_assert!(history.decided_anew(name, &undone), "{} is no conflict", name);
                prop_assert_eq!(history.values(name), before[name].clone(), "{} stays", name);
            } else {
                prop_assert_eq!(history.values(name), history.without(name, &undone), "{}", name);
            }
        }
        let head = history.view.state.revision;
        prop_assert!(matches!(history.undo_all(&undone, true), Ok(Decided::Unchanged { .. })), "twice is once");
        let of_undo = history.events.last().map(|last| last.0).unwrap();
        if history.events.iter().any(|(revision, event)| {
            *revision == of_undo && matches!(event, Event::DomainUndone(_))
        }) {
            prop_assert_eq!(of_undo, head);
            prop_assert!(history.undo_all(&[head].into(), false).is_ok(), "an undo can be undone");
            for name in NAMES {
                prop_assert_eq!(history.values(name), before[name].clone());
            }
        }
    }
}

fn a(name: &str, records: &[&str]) -> DomainCommand {
    DomainCommand::PutRrset(set(name, "A", records))
}

#[test]
fn a_table_of_undoing() {
    let mut history = History::new();
    history.apply(&a("www", &["192.0.2.1"])).unwrap();
    history.apply(&a("www", &["192.0.2.2"])).unwrap();
    for bad in [-1, 0, 4] {
        assert_eq!(told(&history.undo(&[bad], false)), "invalid: /revision unknown_revision");
    }
    assert_eq!(told(&history.undo(&[1], false)), "invalid: /revision not_undoable");
    // It alone: what came before stays, and the undo is one more revision.
    assert_eq!(told(&history.undo(&[3], false)), "4: undone 3, +www A [192.0.2.1]");
    assert_eq!(history.values("www"), Some(["192.0.2.1".to_owned()].into()));
    assert_eq!(told(&history.undo(&[3], false)), "unchanged at 4");
    assert_eq!(told(&history.undo(&[4], false)), "5: undone 4, +www A [192.0.2.2]");
    history.apply(&a("www", &["192.0.2.9"])).unwrap();
    let Err(Reject::UndoConflict { conflicts }) = history.undo(&[5], false) else { panic!("others decided") };
    assert_eq!((conflicts[0].pointer.as_str(), conflicts[0].code), ("/rrsets/www/A", "changed_since"));
    assert!(conflicts[0].detail.contains("revision 6"), "{conflicts:?}");
    assert_eq!(told(&history.undo(&[5], true)), "unchanged at 6", "what others decided stays");
    // Read too little: somebody was faster.
    let mut short = history.undoing(&[Revision::new(6)].into());
    short.through = Revision::new(5);
    let undo = Undo::new(Arc::new(short.clone()), Destinations::default(), false);
    history.view.undoing = Some(Arc::new(short));
    assert_eq!(told(&history.apply(&DomainCommand::Undo(Box::new(undo)))), "conflict: moved_on");
    history.with.precondition.if_match = Some(vec![Revision::new(5)]);
    assert_eq!(told(&history.undo(&[6], false)), "mismatch at 6");
}

/// What was added later is kept, with its TTL; labels and the members of the cache's policy go one by one.
#[test]
fn others_keep_what_they_added() {
    let mut history = History::new();
    let label = |key: &str, value: Option<&str>| {
        let entry = (key.to_owned(), value.map(str::to_owned));
        DomainCommand::Patch(DomainPatch {
            labels: Some(LabelsPatch::Merge([entry].into())),
            ..DomainPatch::default()
        })
    };
    let cache = |edge: Option<i64>, browser: Option<i64>| {
        DomainCommand::PatchCache(CachePatch {
            edge_ttl_seconds: edge.map(Some),
            browser_ttl_seconds: browser.map(Some),
            ..CachePatch::default()
        })
    };
    history.apply(&a("www", &["192.0.2.1"])).unwrap();
    history.apply(&a("www", &["192.0.2.66"])).unwrap(); // 3
    let add = RrsetChange::Add {
        owner: owner("www"),
        rrtype: rrtype("A"),
        ttl: None,
        records: values("A", &["192.0.2.3"]),
    };
    history.apply(&DomainCommand::ChangeRrsets(vec![add])).unwrap();
    history.apply(&label("a", Some("evil"))).unwrap(); // 5
    history.apply(&label("b", Some("ours"))).unwrap();
    history.apply(&cache(Some(1), None)).unwrap(); // 7
    history.apply(&cache(None, Some(2))).unwrap();
    history.apply(&DomainCommand::Purge { id: PurgeId::from_uuid(Uuid::from_u128(7)) }).unwrap(); // 9
    let done = history.undo(&[3, 5, 7, 9], false).unwrap();
    assert!(matches!(done, Decided::Changed(_)));
    let www: &RrSetBody = &history.view.get(&owner("www").key(), rrtype("A")).unwrap().body;
    assert_eq!(
        (www.records.as_slice(), www.ttl.seconds()),
        (["192.0.2.1", "192.0.2.3"].map(String::from).as_slice(), 300)
    );
    let labels = &history.view.state.labels;
    assert_eq!((labels["a"].as_str(), labels["b"].as_str()), ("1", "ours"));
    let kept = &history.view.site.cache;
    assert_eq!((kept.edge_ttl_seconds, kept.browser_ttl_seconds), (3_600, 2));
    let left: Vec<String> = not_restored(&history.view).into_iter().map(|one| one.what).collect();
    assert_eq!(left, ["cache_epoch"]);
    history.apply(&label("b", Some("theirs"))).unwrap(); // 11
    history.apply(&label("b", Some("ours again"))).unwrap();
    let Err(Reject::UndoConflict { conflicts }) = history.undo(&[11], false) else {
        panic!("the same label")
    };
    assert_eq!(conflicts[0].pointer, "/");
}
