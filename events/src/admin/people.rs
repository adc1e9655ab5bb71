//! Decisions about users and tenants that are there: who may come in, what is said of them, and when they go. The
//! platform always keeps an administrator who may come in.

use super::decide::{free, plain, refuse};
use super::{AdminCommand, AdminView, NAME_MAX_BYTES, name_faults};
use crate::domain::{Decided, LabelsPatch, tag_faults};
use crate::event::{Change, Event, Nothing};
use crate::manager::{Managing, View};
use crate::people::{
    ProfileChanged, TOKEN_NETWORKS_MAX_COUNT, TenantSettings, TokenLimits, UNUSED_MAX_DAYS, UserSettings,
};
use crate::reject::{Fault, Reject};

/// What is to change of a user; what is none stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UserPatch {
    /// Administrator of the platform.
    pub admin: Option<bool>,
    /// Whether another mail address travels beside the command.
    pub email: bool,
}

impl UserPatch {
    /// Whether users may say it of themselves: a name. A mail address says who somebody is.
    pub fn is_own(&self) -> bool {
        self.admin.is_none() && !self.email
    }
}

/// What is to change of a tenant; what is none stays.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TenantPatch {
    /// Its name.
    pub name: Option<String>,
    /// Its labels.
    pub labels: Option<LabelsPatch>,
    /// `Some(None)`: it has none.
    pub external_id: Option<Option<String>>,
}

/// A user as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserFacts {
    /// Administrator of the platform.
    pub admin: bool,
    /// Whether it may come in.
    pub enabled: bool,
}

/// What decisions about people read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PeopleView {
    /// The user; none when it is gone or never was.
    pub user: Option<UserFacts>,
    /// Administrators besides this user who may come in.
    pub other_administrators: i64,
    /// What of the profile beside the command is another than what is known.
    pub differs: Vec<&'static str>,
    /// The tenant; none when it is gone or never was.
    pub tenant: Option<TenantSettings>,
    /// It is the platform's own.
    pub is_platform: bool,
    /// Domains that it owns, or that are held for it.
    pub domains: i64,
}

/// Every fault of what limits a token.
pub(super) fn limit_faults(limits: &TokenLimits, managing: &Managing) -> Vec<Fault> {
    let mut faults = Vec::new();
    if limits.max_unused_days.is_some_and(|days| days == 0 || days > UNUSED_MAX_DAYS) {
        let detail = format!("this must be a whole number from 1 to {UNUSED_MAX_DAYS}");
        faults.push(Fault::at("/max_unused_days", "out_of_range", detail));
    }
    if limits.networks.len() > TOKEN_NETWORKS_MAX_COUNT {
        let detail = format!("a token is limited to at most {TOKEN_NETWORKS_MAX_COUNT} networks");
        faults.push(Fault::at("/networks", "too_many", detail));
    }
    if managing.view == View::Own && managing.manager.is_none() {
        let detail = "what is its own is what its manager owns: name a manager";
        faults.push(Fault::at("/view", "needs_manager", detail));
    }
    faults
}

pub(super) fn decide(view: &AdminView, command: &AdminCommand) -> Result<Decided, Reject> {
    let events = match command {
        AdminCommand::UpdateTenant { patch, .. } => update_tenant(view, patch)?,
        AdminCommand::DeleteTenant { .. } => delete_tenant(view)?,
        _ => user(view, command)?,
    };
    if events.is_empty() {
        return Ok(Decided::Unchanged { revision: view.revision });
    }
    plain(view, command, events)
}

fn user(view: &AdminView, command: &AdminCommand) -> Result<Vec<Event>, Reject> {
    let user = view.people.user.ok_or_else(|| Reject::NotFound("the user".into()))?;
    let mut events = Vec::new();
    match command {
        AdminCommand::UpdateUser { patch, .. } => {
            if patch.email {
                free(view, "user", "with this mail address")?;
            }
            if let Some(admin) = patch.admin.filter(|admin| *admin != user.admin) {
                if !admin {
                    one_stays(view, user)?;
                }
                let (before, after) = (UserSettings { admin: user.admin }, UserSettings { admin });
                events.push(Event::UserUpdated(Change { before, after }));
            }
            if !view.people.differs.is_empty() {
                let fields = view.people.differs.iter().map(|field| (*field).to_owned()).collect();
                events.push(Event::ProfileChanged(ProfileChanged { fields }));
            }
        }
        AdminCommand::SetUserEnabled { enabled: true, .. } if !user.enabled => {
            events.push(Event::UserEnabled(Nothing {}));
        }
        AdminCommand::SetUserEnabled { enabled: false, .. } if user.enabled => {
            one_stays(view, user)?;
            events.push(Event::UserDisabled(Nothing {}));
        }
        AdminCommand::DeleteUser { .. } => {
            one_stays(view, user)?;
            events.push(Event::UserDeleted(Nothing {}));
        }
        AdminCommand::SetPassword { .. } => events.push(Event::PasswordChanged(Nothing {})),
        _ => {}
    }
    Ok(events)
}

/// Somebody must be able to let others in.
fn one_stays(view: &AdminView, user: UserFacts) -> Result<(), Reject> {
    if user.admin && user.enabled && view.people.other_administrators == 0 {
        let detail = "this is the last administrator who may come in: make another one first".to_owned();
        return Err(Reject::Conflict { code: "last_administrator", detail });
    }
    Ok(())
}

fn update_tenant(view: &AdminView, patch: &TenantPatch) -> Result<Vec<Event>, Reject> {
    let before = view.people.tenant.clone().ok_or_else(|| Reject::NotFound("the tenant".into()))?;
    let mut after = before.clone();
    if let Some(name) = &patch.name {
        after.name.clone_from(name);
    }
    if let Some(external_id) = &patch.external_id {
        after.external_id.clone_from(external_id);
    }
    if let Some(labels) = &patch.labels {
        labels.apply(&mut after.labels);
    }
    let mut faults = tag_faults(&after.labels, after.external_id.as_deref());
    faults.extend(name_faults(&after.name, NAME_MAX_BYTES));
    refuse(faults)?;
    free(view, "tenant", &after.name)?;
    if before == after {
        return Ok(Vec::new());
    }
    Ok(vec![Event::TenantUpdated(Change { before, after })])
}

fn delete_tenant(view: &AdminView) -> Result<Vec<Event>, Reject> {
    if view.people.tenant.is_none() {
        return Err(Reject::NotFound("the tenant".into()));
    }
    let conflict = |code, detail| Err(Reject::Conflict { code, detail });
    if view.people.is_platform {
        return conflict("platform_tenant", "this is the platform's own tenant: it stays".to_owned());
    }
    match view.people.domains {
        0 => Ok(vec![Event::TenantDeleted(Nothing {})]),
        owned => conflict(
            "owns_domains",
            format!("{owned} domains are owned by this tenant or held for it: delete or transfer them first"),
        ),
    }
}
