//! Decisions about DNS clusters and what was observed on them.

use super::decide::{free, name_faults, plain, refuse};
use super::operation::begun;
use super::{
    AdminCommand, AdminView, CLUSTERS_MAX_COUNT, ClusterPatch, NAME_MAX_BYTES, NAMESERVERS_COUNT, Observation,
};
use crate::domain::Decided;
use crate::event::{Change, ClusterCreated, ClusterDeleted, ClusterSettings, Event, Nothing};
use crate::ids::{ClusterId, OperationId, Revision};
use crate::reject::{Fault, Reject};

/// Every fault of how a cluster is to be reached, as far as it is said.
pub fn reach_faults(database_url_file: Option<&str>, dns: Option<&str>, front: Option<&str>) -> Vec<Fault> {
    let mut faults = Vec::new();
    if database_url_file.is_some_and(|path| !path.starts_with('/')) {
        let detail = "the absolute path of a file that holds the database's URL";
        faults.push(Fault::at("/database_url_file", "invalid_path", detail));
    }
    for (pointer, address) in [("/dns", dns), ("/front", front)] {
        if address.is_some_and(|text| text.parse::<std::net::SocketAddr>().is_err()) {
            faults.push(Fault::at(pointer, "invalid_address", "an address and port, as 192.0.2.1:53"));
        }
    }
    faults
}

fn faults_of(cluster: &ClusterSettings) -> Vec<Fault> {
    let (path, dns) = (Some(cluster.database_url_file.as_str()), Some(cluster.dns.as_str()));
    let mut faults = reach_faults(path, dns, cluster.front.as_deref());
    if cluster.nameservers.len() > *NAMESERVERS_COUNT.end() {
        faults.push(Fault::at("/nameservers", "nameserver_count", "at most 8 nameservers"));
    }
    faults
}

/// Decides a command on a DNS cluster.
///
/// # Errors
/// Why not, with every fault of the input.
pub(super) fn decide(view: &AdminView, command: &AdminCommand, own: OperationId) -> Result<Decided, Reject> {
    match command {
        AdminCommand::CreateCluster { cluster, .. } => create(view, command, cluster),
        AdminCommand::UpdateCluster { cluster, patch } => update(view, command, *cluster, patch),
        AdminCommand::SetClusterEnabled { cluster, enabled } => {
            enable(view, command, *cluster, *enabled, own)
        }
        AdminCommand::RequestRemoval { operation, requested } => {
            removable(view, requested.cluster)?;
            begun(view, command, *operation, Event::ClusterRemovalRequested(requested.clone()))
        }
        AdminCommand::DeleteCluster { cluster, retained, zones } => {
            delete(view, command, *cluster, *retained, *zones)
        }
        AdminCommand::RecordDeployments { observed, .. } => record(view, command, observed),
        _ => Ok(Decided::Unchanged { revision: view.revision }),
    }
}

fn create(view: &AdminView, command: &AdminCommand, cluster: &ClusterCreated) -> Result<Decided, Reject> {
    let mut faults = faults_of(&ClusterSettings {
        database_url_file: cluster.database_url_file.clone(),
        dns: cluster.dns.clone(),
        front: cluster.front.clone(),
        nameservers: cluster.nameservers.clone(),
    });
    faults.extend(name_faults(&cluster.name, NAME_MAX_BYTES));
    if view.clusters >= CLUSTERS_MAX_COUNT {
        let detail = format!("at most {CLUSTERS_MAX_COUNT} DNS clusters");
        faults.push(Fault::at("", "too_many_clusters", detail));
    }
    refuse(faults)?;
    free(view, "DNS cluster", &cluster.name)?;
    plain(view, command, vec![Event::ClusterCreated(cluster.clone())])
}

fn update(
    view: &AdminView,
    command: &AdminCommand,
    id: ClusterId,
    patch: &ClusterPatch,
) -> Result<Decided, Reject> {
    let Some(before) = view.cluster.clone() else {
        return Err(Reject::NotFound(format!("DNS cluster {id}")));
    };
    let patch = patch.clone();
    let after = ClusterSettings {
        database_url_file: patch.database_url_file.unwrap_or_else(|| before.database_url_file.clone()),
        dns: patch.dns.unwrap_or_else(|| before.dns.clone()),
        front: patch.front.unwrap_or_else(|| before.front.clone()),
        nameservers: patch.nameservers.unwrap_or_else(|| before.nameservers.clone()),
    };
    refuse(faults_of(&after))?;
    if before == after {
        return Ok(Decided::Unchanged { revision: view.revision });
    }
    plain(view, command, vec![Event::ClusterUpdated(Change { before, after })])
}

fn enable(
    view: &AdminView,
    command: &AdminCommand,
    cluster: ClusterId,
    enabled: bool,
    operation: OperationId,
) -> Result<Decided, Reject> {
    if view.revision == Revision::ZERO || !view.scope_exists {
        return Err(Reject::NotFound(format!("DNS cluster {cluster}")));
    }
    if view.enabled == enabled {
        return Ok(Decided::Unchanged { revision: view.revision });
    }
    if view.leaving {
        let detail = "the DNS cluster is being deleted: it is enabled never again; wait until it is gone, and register \
                      it anew"
            .to_owned();
        return Err(Reject::Conflict { code: "conflict", detail });
    }
    let event = if enabled { Event::ClusterEnabled(Nothing {}) } else { Event::ClusterDisabled(Nothing {}) };
    let mut decided = plain(view, command, vec![event]);
    if let (true, Ok(Decided::Changed(decision))) = (enabled, &mut decided) {
        decision.operation = Some(operation);
        decision.events.iter_mut().for_each(|event| event.operation = Some(operation));
    }
    decided
}

/// Whether a cluster may go.
fn removable(view: &AdminView, cluster: ClusterId) -> Result<(), Reject> {
    if !view.scope_exists {
        return Err(Reject::NotFound(format!("DNS cluster {cluster}")));
    }
    if view.enabled {
        let detail =
            "the DNS cluster is enabled: disable it first, so that nothing is deployed to it".to_owned();
        return Err(Reject::Conflict { code: "conflict", detail });
    }
    Ok(())
}

fn delete(
    view: &AdminView,
    command: &AdminCommand,
    cluster: ClusterId,
    retained: bool,
    zones: u64,
) -> Result<Decided, Reject> {
    removable(view, cluster)?;
    let name = view.cluster_name.clone();
    plain(view, command, vec![Event::ClusterDeleted(ClusterDeleted { name, retained, zones })])
}

fn record(view: &AdminView, command: &AdminCommand, observed: &[Observation]) -> Result<Decided, Reject> {
    if observed.is_empty() {
        return Ok(Decided::Unchanged { revision: view.revision });
    }
    let events = observed.iter().map(|seen| seen.outcome.clone().into_event()).collect();
    let mut decided = plain(view, command, events);
    if let Ok(Decided::Changed(decision)) = &mut decided {
        for (event, seen) in decision.events.iter_mut().zip(observed) {
            event.domain = Some((seen.domain, seen.name.clone()));
            event.tenant = Some(seen.tenant);
        }
    }
    decided
}
