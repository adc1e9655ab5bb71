//! Pure: how operations begin, run and end, event by event in the order of the
//! log, so that the size of a page never changes the result. An operation on a
//! domain succeeds when every enabled target has verified its revision or a later
//! one, and names the disabled ones that have not (one that edges carry out too waits for its
//! cells as well, which only the deadline sees); what facts alone do not tell arrives as `operation.finished`. The first
//! end in the log is final.

use crate::desired::{EDGE_KINDS, Folded, OperationRow, operation_row};
use headwater_events::envelope::Recorded;
use headwater_events::event::{
    CellRef, DeploymentFact, Event, OperationError, OperationFinished, OperationResult,
};
use headwater_events::ids::{ClusterId, DomainId, OperationId, Revision, StreamKind};
use headwater_events::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Where an operation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Accepted; nothing is known of it yet.
    Pending,
    /// A target works on it.
    Running,
    /// Done.
    Succeeded,
    /// Given up.
    Failed,
    /// Called off.
    Cancelled,
}

impl State {
    const ALL: [(Self, &'static str); 5] = [
        (Self::Pending, "pending"),
        (Self::Running, "running"),
        (Self::Succeeded, "succeeded"),
        (Self::Failed, "failed"),
        (Self::Cancelled, "cancelled"),
    ];

    /// The name in the API and in the database.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|row| row.0 == self).map_or("", |row| row.1)
    }

    /// The state with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    /// Whether it is final.
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Pending | Self::Running)
    }
}

/// A target, as the log tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its name.
    pub name: String,
    /// Whether it is deployed to.
    pub enabled: bool,
}

/// How an operation ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ending {
    /// Targets that were out of service.
    pub partial: Vec<ClusterId>,
    /// Cells that were out of service.
    pub cells: Vec<CellRef>,
    /// What whoever asked may want to know.
    pub warnings: Vec<String>,
    /// Why it failed.
    pub error: Option<OperationError>,
    /// What imperative work came to.
    pub result: Option<OperationResult>,
    /// The operation of the newer revision with which it ended.
    pub superseded_by: Option<OperationId>,
    /// When.
    pub at: Option<Timestamp>,
}

/// One operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Operation {
    /// The domain it is about.
    pub domain: Option<DomainId>,
    /// The cluster it is about, where it is not about a domain.
    pub cluster: Option<ClusterId>,
    /// Whether it waits for cells too, whose words are no facts of the log: then only `operation.finished` or a
    /// rejection ends it.
    pub awaits_edges: bool,
    /// The revision it carries out.
    pub revision: Revision,
    /// Where it stands.
    pub state: State,
    /// Whether exactly its own revision was verified on some target.
    pub served: bool,
    /// How it ended.
    pub ending: Ending,
}

/// The part of the projection that a page touches.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Board {
    /// Every target.
    pub targets: BTreeMap<ClusterId, Target>,
    /// The newest revision that each target has verified of a domain.
    pub verified: BTreeMap<(DomainId, ClusterId), Revision>,
    /// Operations that are open, or that the page names.
    pub operations: BTreeMap<OperationId, Operation>,
    /// The open ones of each domain, oldest revision first.
    pub open: BTreeMap<DomainId, BTreeSet<(Revision, OperationId)>>,
    /// Rows of operations that begin in the page.
    pub begun: BTreeMap<OperationId, OperationRow>,
    /// What changed.
    pub touched: Touched,
}

/// What is to be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Touched {
    /// Operations.
    pub operations: BTreeSet<OperationId>,
    /// Rows of verified revisions.
    pub verified: BTreeSet<(DomainId, ClusterId)>,
    /// Targets; those that are not there any more have gone.
    pub targets: BTreeSet<ClusterId>,
}

impl Board {
    /// Adds an operation that was there before the page.
    pub fn insert(&mut self, id: OperationId, operation: Operation) {
        if let (Some(domain), false) = (operation.domain, operation.state.is_terminal()) {
            self.open.entry(domain).or_default().insert((operation.revision, id));
        }
        self.operations.insert(id, operation);
    }

    /// Adds what one event changes.
    pub fn fold(&mut self, e: &Recorded, event: &Event) {
        self.begin(e, event);
        let cluster = ClusterId::from_uuid(e.stream.id);
        match event {
            Event::ClusterCreated(created) => {
                let target = Target { name: created.name.clone(), enabled: created.enabled };
                self.targets.insert(cluster, target);
                self.touched.targets.insert(cluster);
            }
            Event::ClusterDeleted(_) => {
                self.targets.remove(&cluster);
                self.touched.targets.insert(cluster);
            }
            Event::ClusterEnabled(_) => self.set_enabled(cluster, true, e.at),
            Event::ClusterDisabled(_) => self.set_enabled(cluster, false, e.at),
            Event::OperationFinished(finished) => self.finished(finished, e.at),
            other => {
                if let (Some((domain, _)), Some(fact)) = (&e.domain, fact(other)) {
                    self.observed(*domain, cluster, other, fact, e.at);
                }
            }
        }
    }

    fn begin(&mut self, e: &Recorded, event: &Event) {
        let folded = Folded {
            event,
            stream: e.stream,
            domain: e.domain.as_ref().map(|(id, name)| (*id, name.as_str())),
            tenant: e.tenant,
            revision: e.revision,
            at: e.at,
            actor: e.provenance.actor.id,
            operation: e.operation,
        };
        let Some(row) = operation_row(&folded) else { return };
        let id = row.id;
        let cluster = (e.stream.kind == StreamKind::DnsCluster).then(|| ClusterId::from_uuid(e.stream.id));
        self.begun.entry(id).or_insert_with(|| row.clone());
        match self.operations.get_mut(&id) {
            // The append made its row; it knows nothing of clusters.
            Some(known) => known.cluster = cluster,
            None => self.insert(
                id,
                Operation {
                    domain: row.domain,
                    cluster,
                    awaits_edges: EDGE_KINDS.contains(&row.kind),
                    revision: row.revision,
                    state: State::Pending,
                    served: false,
                    ending: Ending::default(),
                },
            ),
        }
        if cluster.is_some() {
            self.touched.operations.insert(id);
        }
    }

    fn set_enabled(&mut self, cluster: ClusterId, enabled: bool, at: Timestamp) {
        if let Some(target) = self.targets.get_mut(&cluster) {
            target.enabled = enabled;
            self.touched.targets.insert(cluster);
        }
        if enabled {
            return;
        }
        // Whoever waited for this target alone need not wait any more.
        let domains: Vec<DomainId> = self.open.keys().copied().collect();
        for domain in domains {
            self.judge(domain, at);
        }
        let waiting =
            |operation: &Operation| operation.cluster == Some(cluster) && !operation.state.is_terminal();
        let called_off: Vec<OperationId> =
            self.operations.iter().filter(|(_, o)| waiting(o)).map(|(id, _)| *id).collect();
        for id in called_off {
            self.end(id, State::Cancelled, Ending { at: Some(at), ..Ending::default() });
        }
    }

    fn finished(&mut self, finished: &OperationFinished, at: Timestamp) {
        let Some(state) = State::from_name(&finished.state) else { return };
        let ending = Ending {
            partial: finished.partial.clone(),
            cells: finished.cells.clone(),
            warnings: finished.warnings.clone(),
            error: finished.error.clone(),
            result: finished.result.clone(),
            superseded_by: None,
            at: Some(at),
        };
        self.end(finished.operation, state, ending);
    }

    fn observed(
        &mut self,
        domain: DomainId,
        cluster: ClusterId,
        event: &Event,
        fact: &DeploymentFact,
        at: Timestamp,
    ) {
        let concerned: Vec<(Revision, OperationId)> = self
            .open
            .get(&domain)
            .into_iter()
            .flatten()
            .filter(|(revision, _)| *revision <= fact.revision)
            .copied()
            .collect();
        let is_verified = matches!(event, Event::DeploymentAcknowledged(_));
        for (revision, id) in &concerned {
            let Some(operation) = self.operations.get_mut(id) else { continue };
            if operation.state == State::Pending {
                operation.state = State::Running;
                self.touched.operations.insert(*id);
            }
            if is_verified && *revision == fact.revision && !operation.served {
                operation.served = true;
                self.touched.operations.insert(*id);
            }
        }
        if is_verified {
            let known = self.verified.entry((domain, cluster)).or_insert(Revision::ZERO);
            if fact.revision > *known {
                *known = fact.revision;
                self.touched.verified.insert((domain, cluster));
            }
            self.judge(domain, at);
        } else if let Event::DeploymentRejected(_) = event {
            for (revision, id) in concerned {
                if !self.is_verified_somewhere(domain, revision) {
                    let error = OperationError {
                        code: "rejected".into(),
                        detail: fact.error.clone().unwrap_or_else(|| "the target refused it".into()),
                        target: Some(cluster),
                    };
                    let partial = self.lacking(domain, revision);
                    let ending = Ending { partial, error: Some(error), at: Some(at), ..Ending::default() };
                    self.end(id, State::Failed, ending);
                }
            }
        }
    }

    fn is_verified_somewhere(&self, domain: DomainId, revision: Revision) -> bool {
        self.enabled().any(|cluster| self.verified_by(domain, cluster) >= revision)
    }

    fn enabled(&self) -> impl Iterator<Item = ClusterId> + '_ {
        self.targets.iter().filter(|(_, target)| target.enabled).map(|(id, _)| *id)
    }

    /// The disabled targets that lack a revision of a domain: they get it before they are in service again.
    fn lacking(&self, domain: DomainId, revision: Revision) -> Vec<ClusterId> {
        let disabled = self.targets.iter().filter(|(_, target)| !target.enabled).map(|(id, _)| *id);
        disabled.filter(|cluster| self.verified_by(domain, *cluster) < revision).collect()
    }

    fn verified_by(&self, domain: DomainId, cluster: ClusterId) -> Revision {
        self.verified.get(&(domain, cluster)).copied().unwrap_or(Revision::ZERO)
    }

    /// Ends the operations of a domain that every enabled target has verified.
    fn judge(&mut self, domain: DomainId, at: Timestamp) {
        let Some(covered) = self.enabled().map(|cluster| self.verified_by(domain, cluster)).min() else {
            return;
        };
        let done: Vec<(Revision, OperationId)> = self
            .open
            .get(&domain)
            .into_iter()
            .flatten()
            .take_while(|(revision, _)| *revision <= covered)
            .copied()
            .collect();
        let Some(&(newest, newest_id)) = done.last() else { return };
        for (revision, id) in done {
            if self.operations.get(&id).is_some_and(|operation| operation.awaits_edges) {
                continue;
            }
            let superseded_by = (revision < newest).then_some(newest_id);
            let partial = self.lacking(domain, revision);
            self.end(
                id,
                State::Succeeded,
                Ending { partial, superseded_by, at: Some(at), ..Ending::default() },
            );
        }
    }

    fn end(&mut self, id: OperationId, state: State, ending: Ending) {
        let Some(operation) = self.operations.get_mut(&id) else { return };
        if operation.state.is_terminal() {
            return;
        }
        operation.state = state;
        operation.ending = ending;
        if let Some(open) = operation.domain.and_then(|domain| self.open.get_mut(&domain)) {
            open.remove(&(operation.revision, id));
        }
        self.touched.operations.insert(id);
    }
}

/// The fact of a deployment event.
fn fact(event: &Event) -> Option<&DeploymentFact> {
    match event {
        Event::DeploymentRendered(fact)
        | Event::DeploymentRejected(fact)
        | Event::DeploymentActivated(fact)
        | Event::DeploymentAcknowledged(fact)
        | Event::DeploymentFailed(fact)
        | Event::DeploymentSuperseded(fact)
        | Event::DeploymentRecovered(fact) => Some(fact),
        _ => None,
    }
}
