//! Undoing revisions by themselves: what they changed is put back as if they had never been, and what others changed
//! later is kept. Each thing that they touched is a thread: its events since, the undone ones left out, are applied
//! again, each as the change that it was. Where that cannot be done without deciding between two people, it is a
//! conflict that names the thing and the revision, and the thing stays as it is. The end state is judged like any other.

use super::cache::CachePolicy;
use super::decide::{Context, Decided, check};
use super::destination::Destinations;
use super::hostname::HostnameBody;
use super::merge::Merge;
use super::retention::Standing;
use super::rollback::{self, MOVED_ON, NotRestored, Past};
use super::state::DomainView;
use crate::dns::{OwnerKey, OwnerName, RrSetBody, RrType};
use crate::event::{DomainSettings, Event};
use crate::ids::{DomainId, Revision};
use crate::reject::{Fault, Reject};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The code of each conflict of an undo.
const CHANGED_SINCE: &str = "changed_since";

/// Revisions of a domain were undone. What that changed stands beside it, in the same revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DomainUndone {
    /// Which ones.
    pub revisions: Vec<Revision>,
    /// Whether edges have to do with it: a proxied name or the cache's policy changed.
    pub edges: bool,
    /// What of them stays, because others changed it later.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub kept: Vec<String>,
}

/// Undo revisions of a domain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undo {
    /// What they changed, and what came of that.
    pub undoing: Arc<Undoing>,
    /// What it makes of the domain.
    pub wanted: Arc<Past>,
    /// Where edges may connect to now.
    pub destinations: Destinations,
    /// Whether what others changed later may stay as it is; else nothing is undone.
    pub partial: bool,
}

impl Undo {
    /// An undo of what was read.
    pub fn new(undoing: Arc<Undoing>, destinations: Destinations, partial: bool) -> Self {
        let wanted = Arc::new(undoing.wanted());
        Self { undoing, wanted, destinations, partial }
    }
}

/// Something that others changed later.
#[derive(Debug, Clone, PartialEq)]
pub struct UndoConflict {
    /// What, as a diff names it.
    pub path: String,
    /// The revision that changed it.
    pub revision: Revision,
    /// What it is, and stays.
    pub present: Value,
    /// What it was before.
    pub before: Value,
}

impl UndoConflict {
    fn fault(&self) -> Fault {
        let detail = format!("{} was changed again by revision {}", self.path, self.revision);
        Fault::at(self.path.clone(), CHANGED_SINCE, detail)
    }
}

/// One thing that an undone revision touched.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Thread<T> {
    /// What it would be without the undone revisions.
    wanted: Option<T>,
    /// What it is.
    present: Option<T>,
    /// The first revision of others that cannot be applied to what it would be.
    overlap: Option<Revision>,
    /// Whether an undone revision changed it after that: then nothing that follows can settle it.
    unsettled: bool,
}

impl<T: Merge + Clone> Thread<T> {
    fn begun(before: Option<&T>) -> Self {
        Self { wanted: before.cloned(), present: before.cloned(), overlap: None, unsettled: false }
    }

    /// A change of others.
    fn apply(&mut self, before: Option<&T>, after: Option<&T>, revision: Revision) {
        if self.overlap.is_some() {
            // Others made it themselves what it would be.
            if !self.unsettled && same(self.wanted.as_ref(), after) {
                self.overlap = None;
            }
        } else {
            let wanted = self.wanted.as_ref();
            if same(wanted, before) {
                self.wanted = after.cloned();
            } else if !same(wanted, after) {
                let merged = before.zip(after).and_then(|(before, after)| T::merge(before, after, wanted));
                match merged {
                    Some(merged) => self.wanted = Some(merged),
                    None => self.overlap = Some(revision),
                }
            }
        }
        self.present = after.cloned();
    }

    fn is_done(&self) -> bool {
        same(self.wanted.as_ref(), self.present.as_ref())
    }
}

fn same<T: Merge>(one: Option<&T>, other: Option<&T>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.same(other),
        (None, None) => true,
        _ => false,
    }
}

/// What undone revisions changed, and what came of it since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undoing {
    /// Of which domain.
    pub domain: DomainId,
    /// Which revisions are undone.
    pub revisions: BTreeSet<Revision>,
    /// How far the log was read.
    pub through: Revision,
    rrsets: BTreeMap<(OwnerKey, RrType), (OwnerName, Thread<RrSetBody>)>,
    hostnames: BTreeMap<OwnerKey, (OwnerName, Thread<HostnameBody>)>,
    cache: Option<Thread<CachePolicy>>,
    settings: Option<Thread<DomainSettings>>,
    left: BTreeMap<&'static str, &'static str>,
}

impl Undoing {
    /// Of which nothing has been read yet.
    pub fn new(domain: DomainId, revisions: BTreeSet<Revision>) -> Self {
        Self {
            domain,
            revisions,
            through: Revision::ZERO,
            rrsets: BTreeMap::new(),
            hostnames: BTreeMap::new(),
            cache: None,
            settings: None,
            left: BTreeMap::new(),
        }
    }

    /// Takes in the next event of the domain, from its first undone revision on. Those about things that no undone
    /// revision touched may be missing.
    pub fn take(&mut self, revision: Revision, event: &Event) {
        let mine = self.revisions.contains(&revision);
        let is_next = |thread: bool| mine || thread;
        match event {
            Event::RrsetReplaced(e) => {
                self.rrset(&e.name, e.rrtype, (e.before.as_ref(), Some(&e.after)), revision)
            }
            Event::RrsetDeleted(e) => self.rrset(&e.name, e.rrtype, (Some(&e.before), None), revision),
            Event::HostnameReplaced(e) => {
                self.hostname(&e.name, (e.before.as_ref(), Some(&e.after)), revision)
            }
            Event::HostnameDeleted(e) => self.hostname(&e.name, (Some(&e.before), None), revision),
            Event::CacheChanged(e) if is_next(self.cache.is_some()) => {
                let thread = self.cache.get_or_insert_with(|| Thread::begun(Some(&e.before)));
                step(thread, (Some(&e.before), Some(&e.after)), revision, mine);
            }
            Event::DomainUpdated(e) if is_next(self.settings.is_some()) => {
                // A serial never goes back, so it is nobody's to undo.
                let bare = |settings: &DomainSettings| DomainSettings { serial_base: 0, ..settings.clone() };
                let (before, after) = (bare(&e.before), bare(&e.after));
                if mine && e.before.serial_base != e.after.serial_base {
                    self.left.insert("serial_base", "an SOA serial never goes back");
                }
                let thread = self.settings.get_or_insert_with(|| Thread::begun(Some(&before)));
                step(thread, (Some(&before), Some(&after)), revision, mine);
            }
            other if mine => self.leave(other),
            _ => {}
        }
    }

    fn leave(&mut self, event: &Event) {
        let (what, why) = match event {
            Event::DomainCreated(_) => ("creation", "that the domain was made is not undone: delete it"),
            Event::DomainDeleted(_) | Event::DomainRestored(_) => {
                ("status", "deletion and restore stay as they are: delete or restore the domain by itself")
            }
            Event::DomainActivated(_)
            | Event::DomainDisabled(_)
            | Event::DomainEnabled(_)
            | Event::DomainExpired(_) => {
                ("status", "whether the domain is served stays as it is: disable or enable it by itself")
            }
            Event::PurgeRequested(_) => ("cache_epoch", "what was purged stays purged"),
            Event::CertificateReplaced(_) | Event::CertificateDeleted(_) => (
                "certificate",
                "the certificate stays as it is: a key that was replaced is gone, so bring certificate and key again",
            ),
            _ => return,
        };
        self.left.insert(what, why);
    }

    fn rrset(
        &mut self,
        owner: &OwnerName,
        rrtype: RrType,
        sides: (Option<&RrSetBody>, Option<&RrSetBody>),
        revision: Revision,
    ) {
        let (key, mine) = ((owner.key(), rrtype), self.revisions.contains(&revision));
        if mine {
            self.rrsets.entry(key.clone()).or_insert_with(|| (owner.clone(), Thread::begun(sides.0)));
        }
        if let Some((_, thread)) = self.rrsets.get_mut(&key) {
            step(thread, sides, revision, mine);
        }
    }

    fn hostname(
        &mut self,
        owner: &OwnerName,
        sides: (Option<&HostnameBody>, Option<&HostnameBody>),
        revision: Revision,
    ) {
        let (key, mine) = (owner.key(), self.revisions.contains(&revision));
        if mine {
            self.hostnames.entry(key.clone()).or_insert_with(|| (owner.clone(), Thread::begun(sides.0)));
        }
        if let Some((_, thread)) = self.hostnames.get_mut(&key) {
            step(thread, sides, revision, mine);
        }
    }

    /// Whether the revisions changed anything that can be undone.
    fn has_threads(&self) -> bool {
        !self.rrsets.is_empty()
            || !self.hostnames.is_empty()
            || self.cache.is_some()
            || self.settings.is_some()
    }

    /// What others changed later, so that it stays as it is.
    pub fn conflicts(&self) -> Vec<UndoConflict> {
        let mut found = Vec::new();
        for ((_, rrtype), (owner, thread)) in &self.rrsets {
            found.extend(conflict(format!("/rrsets/{owner}/{rrtype}"), thread));
        }
        for (owner, thread) in self.hostnames.values() {
            found.extend(conflict(format!("/hostnames/{owner}"), thread));
        }
        found.extend(self.cache.as_ref().and_then(|thread| conflict("/cache".to_owned(), thread)));
        found.extend(self.settings.as_ref().and_then(|thread| conflict("/".to_owned(), thread)));
        found
    }

    /// What is undone, as what it is to be.
    pub fn wanted(&self) -> Past {
        let newest = self.revisions.last().copied().unwrap_or(Revision::ZERO);
        let mut past = Past::new(self.domain, newest, Standing::default());
        past.through = self.through;
        for (key, (owner, thread)) in &self.rrsets {
            if let Some(wanted) = open(thread) {
                past.rrsets.insert(key.clone(), (owner.clone(), wanted));
            }
        }
        for (key, (owner, thread)) in &self.hostnames {
            if let Some(wanted) = open(thread) {
                past.hostnames.insert(key.clone(), (owner.clone(), wanted));
            }
        }
        past.cache = self.cache.as_ref().and_then(open).flatten();
        past.settings = self.settings.as_ref().and_then(open).flatten();
        past
    }

    /// What stays as it is, whatever others did.
    pub fn left(&self) -> Vec<NotRestored> {
        let told =
            |(what, why): (&&str, &&str)| NotRestored { what: (*what).to_owned(), detail: (*why).to_owned() };
        self.left.iter().map(told).collect()
    }
}

fn step<T: Merge + Clone>(
    thread: &mut Thread<T>,
    (before, after): (Option<&T>, Option<&T>),
    revision: Revision,
    mine: bool,
) {
    if mine {
        thread.present = after.cloned();
        thread.unsettled |= thread.overlap.is_some();
    } else {
        thread.apply(before, after, revision);
    }
}

/// What a thread has to become; none where it is so already or stays as others left it.
fn open<T: Merge + Clone>(thread: &Thread<T>) -> Option<Option<T>> {
    (thread.overlap.is_none() && !thread.is_done()).then(|| thread.wanted.clone())
}

fn conflict<T: Merge + Clone + Serialize>(path: String, thread: &Thread<T>) -> Option<UndoConflict> {
    let revision = thread.overlap?;
    Some(UndoConflict { path, revision, present: json!(thread.present), before: json!(thread.wanted) })
}

/// Decides an undo.
pub(super) fn decide(view: &DomainView, asked: &Undo, context: &Context<'_>) -> Result<Decided, Reject> {
    let domain = &view.state;
    check(context.precondition, Some(domain.revision))?;
    let outside = |revision: &&Revision| **revision < Revision::new(1) || **revision > domain.revision;
    if let Some(unknown) = asked.undoing.revisions.iter().find(outside) {
        let detail =
            format!("{} has the revisions 1 to {}: {unknown} is none of them", domain.name, domain.revision);
        return Err(Reject::Invalid(vec![Fault::at("/revision", "unknown_revision", detail)]));
    }
    let Some(undoing) = view.undoing.as_ref().filter(|undoing| undoing.through == domain.revision) else {
        return Err(Reject::Conflict {
            code: MOVED_ON,
            detail: format!("{} keeps changing while it is undone: repeat the request", domain.name),
        });
    };
    if !undoing.has_threads() {
        let left: Vec<String> = undoing.left().into_iter().map(|one| one.detail).collect();
        let why = if left.is_empty() { "it changed nothing".to_owned() } else { left.join("; ") };
        let detail = format!("there is nothing of it that can be undone: {why}");
        return Err(Reject::Invalid(vec![Fault::at("/revision", "not_undoable", detail)]));
    }
    let conflicts = undoing.conflicts();
    if !asked.partial && !conflicts.is_empty() {
        return Err(Reject::UndoConflict { conflicts: conflicts.iter().map(UndoConflict::fault).collect() });
    }
    let revisions = undoing.revisions.iter().copied().collect();
    let kept = conflicts.into_iter().map(|conflict| conflict.path).collect();
    let fact = |edges| Event::DomainUndone(DomainUndone { revisions, edges, kept });
    rollback::restore(view, &asked.wanted, &asked.destinations, fact, context)
}
