//! The life of a domain after it was made, as a table: status and who disabled it, who asks for what, and what is told.

use headwater_events::actor::Caller;
use headwater_events::dns::DomainName;
use headwater_events::domain::*;
use headwater_events::event::{DisabledBy, DomainStatus, Proof};
use headwater_events::ids::{DomainId, Revision, TenantId};
use uuid::Uuid;

use crate::given::*;

#[test]
fn each_step_leads_where_it_may() {
    use DisabledBy::{Operator, Owner};
    use DomainStatus::{Active, Disabled, PendingVerification};
    let activate = || DomainCommand::Activate(Proof::Forced);
    let rows = [
        (PendingVerification, None, true, activate(), "11: domain.activated"),
        (PendingVerification, None, false, activate(), "forbidden"),
        (Active, None, true, activate(), "unchanged at 10"),
        (Disabled, Some(Owner), true, activate(), "conflict: disabled"),
        (PendingVerification, None, true, DomainCommand::Disable, "conflict: not_verified"),
        (Active, None, false, DomainCommand::Disable, "11: domain.disabled"),
        (Disabled, Some(Owner), false, DomainCommand::Disable, "unchanged at 10"),
        (Disabled, Some(Owner), true, DomainCommand::Disable, "11: domain.disabled"),
        (Disabled, Some(Operator), false, DomainCommand::Disable, "unchanged at 10"),
        (Disabled, Some(Operator), true, DomainCommand::Disable, "unchanged at 10"),
        (PendingVerification, None, false, DomainCommand::Enable, "conflict: not_verified"),
        (Active, None, false, DomainCommand::Enable, "unchanged at 10"),
        (Disabled, Some(Owner), false, DomainCommand::Enable, "11: domain.enabled"),
        (Disabled, Some(Owner), true, DomainCommand::Enable, "11: domain.enabled"),
        (Disabled, Some(Operator), false, DomainCommand::Enable, "forbidden"),
        (Disabled, Some(Operator), true, DomainCommand::Enable, "11: domain.enabled"),
    ];
    for (status, by, admin, command, then) in rows {
        let mut view = holding(&[]);
        (view.state.status, view.state.disabled_by) = (status, by);
        let caller = if admin { Caller::system() } else { user(TENANT) };
        let with = With { caller, ..With::default() };
        let decided = decide(&view, &command, &with.context());
        assert_eq!(told(&decided), then, "{status:?} by {by:?}, administrator {admin}: {command:?}");
        let Ok(Decided::Changed(decision)) = decided else { continue };
        for new in &decision.events {
            view.evolve(&new.event, decision.revision, NOW);
        }
        // Served or not is for the clusters to follow; a word that only stands above another is not.
        let moves = status.is_served() != view.state.status.is_served();
        assert_eq!(decision.operation.is_some(), moves, "{command:?} of {status:?}");
        assert_eq!(view.state.disabled_by.is_some(), view.state.status == Disabled);
    }
}

#[test]
fn what_waited_too_long_is_given_up_and_nothing_else() {
    use DomainStatus::{Active, Disabled, PendingVerification};
    for (status, waited, then) in [
        (PendingVerification, PENDING_MAX, "11: domain.expired"),
        (PendingVerification, PENDING_MAX / 2, "unchanged at 10"),
        (Active, PENDING_MAX * 2, "unchanged at 10"),
        (Disabled, PENDING_MAX * 2, "unchanged at 10"),
    ] {
        let mut view = holding(&[]);
        view.state.status = status;
        let with = With { caller: Caller::system(), now: NOW.plus(waited), ..With::default() };
        let decided = decide(&view, &DomainCommand::Expire, &with.context());
        assert_eq!(told(&decided), then, "{status:?}");
        let Ok(Decided::Changed(decision)) = decided else { continue };
        view.evolve(&decision.events[0].event, Revision::new(11), with.now);
        assert_eq!(told(&decide(&view, &DomainCommand::Restore, &with.context())), "conflict: hold_expired");
    }
}

/// Deletion and restore keep what an administrator said.
#[test]
fn a_restore_gives_back_who_disabled_it() {
    let mut view = holding(&[]);
    (view.state.status, view.state.disabled_by) = (DomainStatus::Disabled, Some(DisabledBy::Operator));
    for command in [DomainCommand::Delete, DomainCommand::Restore] {
        let with = With::default();
        let Ok(Decided::Changed(decision)) = decide(&view, &command, &with.context()) else { panic!() };
        assert_eq!(decision.operation, None);
        view.evolve(&decision.events[0].event, decision.revision, NOW);
    }
    let is = (view.state.status, view.state.disabled_by);
    assert_eq!(is, (DomainStatus::Disabled, Some(DisabledBy::Operator)));
}

/// The same claim has the same challenge for ever; another claim, or another owner, has another.
#[test]
fn a_challenge_belongs_to_one_claim() {
    let id = |n| DomainId::from_uuid(Uuid::from_u128(n));
    let tenant = |n| TenantId::from_uuid(Uuid::from_u128(n));
    let name = DomainName::parse("example.com").unwrap();
    let of = |domain, owner| challenge(id(domain), tenant(owner), &name);
    let expected = "headwater-verification=a3609a19e59df855aeee98d387cd6bbe52fe8980";
    assert_eq!(of(1, 2), ("_headwater-challenge.example.com".to_owned(), expected.to_owned()));
    assert!(of(1, 2) != of(2, 2) && of(1, 2) != of(1, 3) && of(1, 2) != of(2, 1));
}
