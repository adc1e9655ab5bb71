//! Decisions about the platform itself: its DNS identity, and what is paused.

use super::decide::{one, plain, refuse};
use super::{AdminCommand, AdminView, NAMESERVERS_COUNT, REASON_MAX_BYTES};
use crate::domain::Decided;
use crate::edge::{Endpoints, EndpointsChanged};
use crate::event::{
    DeploymentsPaused, DeploymentsResumed, DnsIdentity, DnsIdentityChanged, Event, PauseScope,
};
use crate::reject::{Fault, Reject};

pub(super) fn identity(
    view: &AdminView,
    command: &AdminCommand,
    after: &DnsIdentity,
) -> Result<Decided, Reject> {
    let before = view.identity.clone();
    if before.as_ref() == Some(after) {
        return Ok(Decided::Unchanged { revision: view.revision });
    }
    let mut faults = Vec::new();
    if !NAMESERVERS_COUNT.contains(&after.nameservers.len()) {
        faults.push(Fault::at("/nameservers", "nameserver_count", "2 to 8 nameservers"));
    }
    let mut bound = |pointer: &str, value: u32, range: std::ops::RangeInclusive<u32>| {
        if !range.contains(&value) {
            let detail = format!("{} to {} seconds", range.start(), range.end());
            faults.push(Fault::at(pointer, "out_of_range", detail));
        }
    };
    bound("/refresh", after.refresh, 300..=86_400);
    bound("/retry", after.retry, 60..=86_400);
    bound("/expire", after.expire, 86_400..=2_419_200);
    bound("/minimum", after.minimum, 30..=86_400);
    if after.expire <= after.refresh.saturating_add(after.retry) {
        faults.push(Fault::at("/expire", "out_of_range", "expire is longer than refresh and retry together"));
    }
    refuse(faults)?;
    let generation = view.identity.as_ref().map_or(0, |_| view.generation.wrapping_add(1));
    let changed = DnsIdentityChanged { before, after: after.clone(), generation };
    plain(view, command, vec![Event::DnsIdentityChanged(changed)])
}

/// Decides what DNS answers for proxied names.
pub(super) fn endpoints(
    view: &AdminView,
    command: &AdminCommand,
    after: &Endpoints,
    why: &[String],
) -> Result<Decided, Reject> {
    if view.endpoints.as_ref() == Some(after) {
        return Ok(Decided::Unchanged { revision: view.revision });
    }
    // Before there is an identity no zone is served, and its generation begins anew.
    if view.identity.is_none() {
        let detail = "the platform is not initialized: run `headwater init`".to_owned();
        return Err(Reject::Conflict { code: "not_initialized", detail });
    }
    let changed = EndpointsChanged {
        before: view.endpoints.clone(),
        after: after.clone(),
        generation: view.generation.wrapping_add(1),
        why: why.to_vec(),
    };
    plain(view, command, vec![Event::EndpointsChanged(Box::new(changed))])
}

/// Every fault of why deployments are paused.
pub fn reason_faults(reason: &str) -> Vec<Fault> {
    if reason.len() > REASON_MAX_BYTES || reason.chars().any(char::is_control) {
        let detail = format!("at most {REASON_MAX_BYTES} octets, one line");
        return vec![Fault::at("/reason", "invalid_reason", detail)];
    }
    Vec::new()
}

pub(super) fn pause(
    view: &AdminView,
    command: &AdminCommand,
    scope: &PauseScope,
    reason: &str,
) -> Result<Decided, Reject> {
    refuse(reason_faults(reason))?;
    if !view.scope_exists {
        return Err(one("/id", "not_found", "there is no such target or domain"));
    }
    let stop = matches!(command, AdminCommand::Pause { .. });
    if stop == view.paused {
        return Ok(Decided::Unchanged { revision: view.revision });
    }
    let (scope, reason) = (scope.clone(), reason.to_owned());
    let event = if stop {
        Event::DeploymentsPaused(DeploymentsPaused { scope, reason })
    } else {
        Event::DeploymentsResumed(DeploymentsResumed { scope, reason })
    };
    plain(view, command, vec![event])
}
