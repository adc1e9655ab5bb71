//! Tools side by side: the law that nothing of a tool is changed by others who do not say that they take it over, whatever
//! they do; and whose an RRset is after each kind of change, as a table.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use headwater_events::dns::RrSetBody;
use headwater_events::domain::destination::Destinations;
use headwater_events::domain::*;
use headwater_events::event::Event;
use headwater_events::ids::Revision;
use headwater_events::manager::{Managing, View};
use headwater_events::reject::{Guard, Reject};
use proptest::collection::vec;
use proptest::prelude::*;

use crate::given::*;

const NAMES: [&str; 3] = ["www", "a", "b.a"];
/// Two tools, and a person.
const WRITERS: [Option<&str>; 3] = [Some("octodns"), Some("external-dns"), None];

fn managing(manager: Option<&str>) -> Managing {
    Managing { manager: manager.map(|name| name.parse().unwrap()), view: View::All }
}

/// A domain with everything that happened to it.
struct History {
    view: DomainView,
    with: With,
    events: Vec<(Revision, Event)>,
}

type Held = BTreeMap<String, RrSetBody>;

impl History {
    fn new() -> Self {
        let mut view = holding(&[]);
        view.state.revision = Revision::new(1);
        let with = With { allow: Guard::ALL.into(), ..With::default() };
        Self { view, with, events: Vec::new() }
    }

    fn by(&mut self, manager: Option<&str>, take_over: bool) -> &mut Self {
        self.with.caller.shown.managing = managing(manager);
        self.with.take_over = take_over;
        self
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

    /// The RRsets by their paths.
    fn held(&self) -> Held {
        let body = |name: &str| Some(self.view.get(&owner(name).key(), rrtype("A"))?.body.clone());
        NAMES.iter().filter_map(|name| Some((format!("/rrsets/{name}/A"), body(name)?))).collect()
    }

    fn owner(&self, name: &str) -> Option<String> {
        let stored = self.view.get(&owner(name).key(), rrtype("A")).unwrap();
        stored.body.managed_by.as_ref().map(ToString::to_string)
    }

    fn rollback(&mut self, to: Revision) -> DomainCommand {
        let standing = Standing { retained: true, validated: true, nearest: Vec::new() };
        let mut past = Past::new(DOMAIN, to, standing);
        self.events.iter().filter(|(revision, _)| *revision > to).for_each(|(_, event)| past.take(event));
        past.through = self.view.state.revision;
        let past = Arc::new(past);
        self.view.past = Some(Arc::clone(&past));
        DomainCommand::Rollback(Box::new(Rollback { past, destinations: Destinations::default() }))
    }

    fn undo(&mut self, revision: Revision, partial: bool) -> DomainCommand {
        let mut undoing = Undoing::new(DOMAIN, [revision].into());
        let since = self.events.iter().filter(|(at, _)| *at >= revision);
        since.for_each(|(at, event)| undoing.take(*at, event));
        undoing.through = self.view.state.revision;
        let undoing = Arc::new(undoing);
        self.view.undoing = Some(Arc::clone(&undoing));
        DomainCommand::Undo(Box::new(Undo::new(undoing, Destinations::default(), partial)))
    }

    /// One of the things that can be done.
    fn command(&mut self, kind: u8, names: &[usize], n: u8) -> DomainCommand {
        let value = format!("192.0.2.{n}");
        let first = NAMES[names[0]];
        let change = |name: &str, op: u8| {
            let (owner, rrtype) = (owner(name), rrtype("A"));
            match op % 4 {
                0 => RrsetChange::Put(set(name, "A", &[&value])),
                1 => RrsetChange::Delete { owner, rrtype },
                2 => RrsetChange::Add { owner, rrtype, ttl: None, records: values("A", &[&value]) },
                _ => RrsetChange::Remove { owner, rrtype, records: values("A", &[&value]) },
            }
        };
        let newest = self.view.state.revision.get();
        let some = Revision::new(1 + i64::from(n) % newest);
        match kind {
            0 => DomainCommand::PutRrset(set(first, "A", &[&value])),
            1 => DomainCommand::DeleteRrset { owner: owner(first), rrtype: rrtype("A") },
            2 => self.rollback(some),
            3 => self.undo(some, n.is_multiple_of(2)),
            _ => {
                let ops = names.iter().zip(n..);
                DomainCommand::ChangeRrsets(ops.map(|(name, op)| change(NAMES[*name], op)).collect())
            }
        }
    }
}

/// What of others differs.
fn of_others(before: &Held, after: &Held, writer: &Managing) -> BTreeSet<String> {
    let is_other = |body: &RrSetBody| writer.is_other(body.managed_by.as_ref());
    let changed = before.iter().filter(|(path, body)| is_other(body) && after.get(*path) != Some(*body));
    changed.map(|(path, _)| path.clone()).collect()
}

proptest! {
    /// Without taking over nothing of others changes, and whoever is refused is told exactly what would have.
    #[test]
    fn nothing_of_another_changes_by_accident(
        acts in vec(
            (0..3_usize, 0..6_u8, vec(0..3_usize, 1..4), 0..12_u8, prop::bool::weighted(0.15)), 1..40,
        ),
    ) {
        let mut history = History::new();
        for (writer, kind, names, n, take_over) in acts {
            let manager = WRITERS[writer];
            let command = history.by(manager, take_over).command(kind, &names, n);
            let before = history.held();
            let with_leave = {
                let (view, events) = (history.view.clone(), history.events.clone());
                let mut copy = History { view, with: history.with.clone(), events };
                copy.with.take_over = true;
                copy.apply(&command).map(|_| copy.held())
            };
            let decided = history.apply(&command);
            let after = history.held();
            let touched = of_others(&before, &after, &managing(manager));
            prop_assert!(take_over || touched.is_empty(), "{manager:?} {command:?}: {touched:?}");
            if let Err(Reject::ManagedByOther { conflicts }) = &decided {
                prop_assert!(!take_over);
                prop_assert_eq!(&before, &after);
                // A `put` of what is there already would only take it.
                let with_leave = with_leave.unwrap();
                let taken = of_others(&before, &with_leave, &managing(manager));
                let says_else = |path: &&String| {
                    !with_leave.get(*path).is_some_and(|after| after.says_the_same(&before[*path]))
                };
                let at_least = taken.iter().filter(says_else).count().max(1);
                prop_assert!((at_least..=taken.len()).contains(&conflicts.len()), "{conflicts:?} {taken:?}");
                prop_assert!(conflicts.iter().all(|fault| fault.code == "managed_by_other"));
            }
            // What was written is the writer's; what is given back is whose it was.
            let gives_back = matches!(command, DomainCommand::Rollback(_) | DomainCommand::Undo(_));
            for (path, body) in after.iter().filter(|(path, body)| before.get(*path) != Some(*body)) {
                let owned_by = body.managed_by.as_ref().map(|manager| manager.as_str());
                prop_assert!(gives_back || owned_by == manager, "{path} {body:?}");
            }
        }
    }
}

fn a(name: &str, records: &[&str]) -> DomainCommand {
    DomainCommand::PutRrset(set(name, "A", records))
}

fn add(name: &str, value: &str) -> DomainCommand {
    let (owner, rrtype) = (owner(name), rrtype("A"));
    DomainCommand::ChangeRrsets(vec![RrsetChange::Add {
        owner,
        rrtype,
        ttl: None,
        records: values("A", &[value]),
    }])
}

fn conflicts(decided: Result<Decided, Reject>) -> Vec<(String, String)> {
    let Err(Reject::ManagedByOther { conflicts }) = decided else { panic!("{decided:?}") };
    conflicts.into_iter().map(|fault| (fault.pointer, fault.detail)).collect()
}

#[test]
fn a_table_of_owners() {
    let (octo, ext) = (Some("octodns"), Some("external-dns"));
    let mut history = History::new();
    let h = &mut history;
    let put = |name| a(name, &["192.0.2.1"]);
    // What nobody owns becomes whose tool writes it, the same content too; what a person writes is nobody's.
    h.by(None, false).apply(&put("www")).unwrap();
    assert_eq!(h.owner("www"), None);
    // To add a value that is there says nothing of the others.
    assert!(matches!(h.by(octo, false).apply(&add("www", "192.0.2.1")), Ok(Decided::Unchanged { .. })));
    assert_eq!(h.owner("www"), None);
    assert!(matches!(h.by(octo, false).apply(&put("www")), Ok(Decided::Changed(_))));
    assert_eq!(h.owner("www").as_deref(), octo);
    assert!(matches!(h.apply(&put("www")), Ok(Decided::Unchanged { .. })));
    // What changes nothing is nobody's doing: it is not refused, and it takes nothing.
    for other in [ext, None] {
        assert!(matches!(h.by(other, false).apply(&put("www")), Ok(Decided::Unchanged { .. })));
        assert!(matches!(h.apply(&add("www", "192.0.2.1")), Ok(Decided::Unchanged { .. })));
        assert_eq!(h.owner("www").as_deref(), octo);
        let refused = h.apply(&a("www", &["192.0.2.2"]));
        assert_eq!(conflicts(refused), [(String::new(), "www A is managed by octodns".to_owned())]);
        let gone = DomainCommand::DeleteRrset { owner: owner("www"), rrtype: rrtype("A") };
        assert_eq!(conflicts(h.apply(&gone)).len(), 1);
        let batch = DomainCommand::ChangeRrsets(vec![
            RrsetChange::Put(set("a", "A", &["192.0.2.9"])),
            RrsetChange::Remove {
                owner: owner("www"),
                rrtype: rrtype("A"),
                records: values("A", &["192.0.2.1"]),
            },
        ]);
        assert_eq!(conflicts(h.apply(&batch))[0].0, "/changes/1");
    }
    // Taken over, it is the new writer's, with nothing else changed too.
    assert!(matches!(h.by(ext, true).apply(&put("www")), Ok(Decided::Changed(_))));
    assert_eq!(h.owner("www").as_deref(), ext);
    let taken = h.view.state.revision;
    h.by(None, true).apply(&a("www", &["192.0.2.3"])).unwrap();
    assert_eq!(h.owner("www"), None);
    // Whoever goes back gives it to whose it was; what is of another by now must be taken over.
    let back = h.by(None, false).rollback(taken);
    h.apply(&back).unwrap();
    assert_eq!(h.owner("www").as_deref(), ext);
    let back = h.by(octo, false).rollback(Revision::new(2));
    assert_eq!(conflicts(h.apply(&back))[0].0, "/rrsets/www/A");
    h.by(octo, true).apply(&back).unwrap();
    assert_eq!(h.owner("www"), None);
    // An undo likewise.
    h.by(ext, false).apply(&add("www", "192.0.2.7")).unwrap();
    assert_eq!(h.owner("www").as_deref(), ext);
    let newest = h.view.state.revision;
    let undo = h.by(None, false).undo(newest, false);
    assert_eq!(conflicts(h.apply(&undo))[0].0, "/rrsets/www/A");
    h.by(None, true).apply(&undo).unwrap();
    assert_eq!(h.owner("www"), None);
    // Whoever is shown its own alone is not told whose the others are.
    h.by(ext, false).apply(&put("www")).unwrap();
    h.by(octo, false).with.caller.shown.managing.view = View::Own;
    assert_eq!(conflicts(h.apply(&a("www", &["192.0.2.4"])))[0].1, "www A is managed by another");
}

#[test]
fn a_tool_deletes_no_domain_with_what_others_own() {
    let mut history = History::new();
    history.by(Some("octodns"), false).apply(&a("www", &["192.0.2.1"])).unwrap();
    let of_octodns = history.view.get(&owner("www").key(), rrtype("A")).unwrap().body.clone();
    history.view.of_others = vec![(owner("www"), rrtype("A"), of_octodns)];
    let refused = history.by(Some("external-dns"), false).apply(&DomainCommand::Delete);
    assert_eq!(conflicts(refused)[0].0, "/rrsets/www/A");
    assert!(history.by(Some("external-dns"), true).apply(&DomainCommand::Delete).is_ok());
}
