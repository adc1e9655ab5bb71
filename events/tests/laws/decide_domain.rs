//! The life of a domain: who may hold a name, its settings and serials, its deletion and return.

use std::time::Duration;

use headwater_events::actor::Caller;
use headwater_events::domain::*;
use headwater_events::event::DomainStatus;
use headwater_events::ids::{DomainId, Revision, TenantId};
use proptest::prelude::*;
use uuid::Uuid;

use crate::given::*;

const OTHER: TenantId = TenantId::from_uuid(Uuid::from_u128(7));

fn creation(name: &str) -> CreateDomain {
    CreateDomain {
        id: DomainId::from_uuid(Uuid::from_u128(3)),
        name: headwater_events::dns::DomainName::parse(name).unwrap(),
        tenant: TENANT,
        force_active: false,
        labels: [].into(),
        external_id: None,
        rrsets: Vec::new(),
        serial_floor: None,
    }
}

fn free() -> NameView {
    NameView { tenant_exists: true, ..NameView::default() }
}

fn held(tenant: TenantId, status: DomainStatus, hold_until: Option<i64>) -> NameView {
    let mut state = holding(&[]).state;
    (state.tenant, state.status) = (tenant, status);
    state.hold_until = hold_until.map(headwater_events::time::Timestamp::from_millis);
    NameView { holder: Some(state), ..free() }
}

/// What it holds from the beginning is one revision with it, or nothing is.
#[test]
fn a_domain_begins_with_what_it_holds() {
    let rows = [
        (vec![], "1: domain.created"),
        (
            vec![set("www", "A", &["192.0.2.1"]), set("@", "MX", &["10 mail.example.com."])],
            "1: domain.created, +@ MX [10 mail.example.com.], +www A [192.0.2.1]",
        ),
        (vec![set("@", "NS", &["ns.example.net."])], "invalid: /changes/0 apex_ns"),
        (
            vec![set("a", "A", &["192.0.2.1"]), set("a", "CNAME", &["b.example.net."])],
            "invalid: /changes/1 cname_conflict",
        ),
    ];
    for (rrsets, then) in rows {
        let create_it = CreateDomain { rrsets, ..creation("example.com") };
        let with = With { caller: user(TENANT), ..With::default() };
        assert_eq!(told(&create(&free(), &create_it, &with.context())), then);
    }
}

/// Above what was served here and above what is served elsewhere, whichever is later (RFC 1982).
#[test]
fn serials_of_a_zone_that_moves_here_go_on() {
    let base = |last_serial: Option<u32>, serial_floor: Option<u32>| {
        let view = NameView { last_serial, ..free() };
        let create_it = CreateDomain { serial_floor, ..creation("example.com") };
        let with = With { caller: user(TENANT), ..With::default() };
        match create(&view, &create_it, &with.context()) {
            Ok(Decided::Changed(decision)) => match &decision.events[0].event {
                headwater_events::event::Event::DomainCreated(created) => created.serial_base,
                other => panic!("{other:?}"),
            },
            other => panic!("{other:?}"),
        }
    };
    for (here, there, then) in [
        (None, None, 1),
        (None, Some(2_026_013_101), 2_026_013_102),
        (None, Some(u32::MAX), 0),
        (Some(7), None, 8),
        (Some(7), Some(6), 8),
        (Some(7), Some(9), 10),
        (Some(u32::MAX), Some(3), 4),
        (Some(3), Some(u32::MAX), 4),
    ] {
        assert_eq!(base(here, there), then, "{here:?} {there:?}");
    }
}

#[test]
fn a_name_has_one_holder() {
    use DomainStatus::{Active, Deprovisioning};
    let (before, after) = (NOW.as_millis() - 1, NOW.as_millis() + 1);
    let below = |tenant| {
        let name = headwater_events::dns::DomainName::parse("sub.example.com").unwrap();
        NameView { relatives: vec![(name, tenant, None)], ..free() }
    };
    let (user, system) = (user(TENANT), Caller::system());
    let rows = [
        (free(), &user, "1: domain.created"),
        (NameView::default(), &user, "invalid: /tenant unknown_tenant"),
        (held(TENANT, Active, None), &user, "name taken"),
        (held(OTHER, Active, None), &system, "name taken"),
        (held(TENANT, Deprovisioning, Some(after)), &user, "1: domain.created"),
        (held(OTHER, Deprovisioning, Some(after)), &user, "name taken"),
        (held(OTHER, Deprovisioning, Some(before)), &user, "1: domain.created"),
        (below(TENANT), &user, "1: domain.created"),
        (below(OTHER), &user, "name taken"),
        (below(OTHER), &system, "1: domain.created"),
        (NameView { tenant_domains: 3, ..free() }, &user, "invalid: /tenant too_many_domains"),
    ];
    for (view, caller, then) in rows {
        let with = With { caller: caller.clone(), ..With::default() };
        assert_eq!(told(&create(&view, &creation("example.com"), &with.context())), then, "{view:?}");
    }
    let with = With::default();
    let forced = CreateDomain { force_active: true, ..creation("example.com") };
    assert_eq!(told(&create(&free(), &forced, &with.context())), "forbidden");
    let foreign = CreateDomain { tenant: OTHER, ..creation("example.com") };
    assert_eq!(told(&create(&free(), &foreign, &with.context())), "invalid: /tenant unknown_tenant");
    let suffix = told(&create(&free(), &creation("co.uk"), &with.context()));
    assert!(suffix.starts_with("invalid: /name"), "{suffix}");
    let mut labelled = creation("example.com");
    labelled.labels = [("a=b".to_owned(), "x".to_owned()), ("k".to_owned(), "v".repeat(256))].into();
    labelled.external_id = Some(String::new());
    let then =
        "invalid: /labels/a=b invalid_label, /labels/k invalid_label, /external_id invalid_external_id";
    assert_eq!(told(&create(&free(), &labelled, &with.context())), then);
}

#[test]
fn settings_are_merged() {
    let merge = |entries: &[(&str, Option<&str>)]| {
        let entries = entries.iter().map(|(k, v)| ((*k).to_owned(), v.map(str::to_owned)));
        DomainPatch { labels: Some(LabelsPatch::Merge(entries.collect())), ..DomainPatch::default() }
    };
    let external =
        |id: Option<&str>| DomainPatch { external_id: Some(id.map(str::to_owned)), ..DomainPatch::default() };
    let floor = |n| DomainPatch { serial_floor: Some(n), ..DomainPatch::default() };
    // The domain has the label a=1, serial base 100 and revision 10: its next serial is 111.
    let rows = [
        (DomainPatch::default(), "unchanged at 10"),
        (merge(&[("a", Some("1"))]), "unchanged at 10"),
        (merge(&[("none", None)]), "unchanged at 10"),
        (merge(&[("a", None), ("b", Some("2"))]), "11: settings b=2 - 100"),
        (DomainPatch { labels: Some(LabelsPatch::Clear), ..DomainPatch::default() }, "11: settings  - 100"),
        (external(Some("7")), "11: settings a=1 7 100"),
        (external(None), "unchanged at 10"),
        (merge(&[("", Some("x"))]), "invalid: /labels/ invalid_label"),
        (floor(111), "unchanged at 10"),
        (floor(5), "unchanged at 10"),
        (floor(112), "11: settings a=1 - 101"),
        (floor(2_000_000_000), "11: settings a=1 - 1999999989"),
        // RFC 1982: a serial moves by less than 2^31 from the one that is served, 110.
        (floor(110 + (1 << 31)), "invalid: /serial_floor serial_floor_too_high"),
        (floor(u32::MAX), "invalid: /serial_floor serial_floor_too_high"),
        (floor(109 + (1 << 31)), "11: settings a=1 - 2147483746"),
    ];
    let with = With::default();
    for (patch, then) in rows {
        let decided = decide(&holding(&[]), &DomainCommand::Patch(patch.clone()), &with.context());
        assert_eq!(told(&decided), then, "{patch:?}");
    }
    let too_many: Vec<(String, Option<String>)> =
        (0..32).map(|n| (format!("l{n}"), Some(String::new()))).collect();
    let patch = DomainPatch {
        labels: Some(LabelsPatch::Merge(too_many.into_iter().collect())),
        ..DomainPatch::default()
    };
    let decided = decide(&holding(&[]), &DomainCommand::Patch(patch), &with.context());
    assert_eq!(told(&decided), "invalid: /labels too_many_labels");
}

#[test]
fn a_deleted_domain_waits_for_its_owner() {
    let with = With { generation: 4, ..With::default() };
    let mut view = holding(&[set("www", "A", &["192.0.2.1"])]);
    let Ok(Decided::Changed(deletion)) = decide(&view, &DomainCommand::Delete, &with.context()) else {
        panic!("refused")
    };
    let headwater_events::event::Event::DomainDeleted(event) = &deletion.events[0].event else {
        panic!("another event")
    };
    // 100 + revision 10 + generation 4: the deletion itself is not served.
    assert_eq!((event.last_serial, event.hold_until), (114, NOW.plus(Duration::from_secs(60))));
    view.evolve(&deletion.events[0].event, deletion.revision, NOW);
    assert_eq!(view.state.status, DomainStatus::Deprovisioning);
    for command in [
        DomainCommand::Delete,
        DomainCommand::Patch(DomainPatch::default()),
        DomainCommand::PutRrset(set("a", "A", &["192.0.2.1"])),
    ] {
        assert_eq!(told(&decide(&view, &command, &with.context())), "not found");
    }
    let late = With { now: NOW.plus(Duration::from_secs(60)), ..with.clone() };
    assert_eq!(told(&decide(&view, &DomainCommand::Restore, &late.context())), "conflict: hold_expired");
    let Ok(Decided::Changed(back)) = decide(&view, &DomainCommand::Restore, &with.context()) else {
        panic!("refused")
    };
    assert_eq!(back.operation, Some(OPERATION), "it is served again");
    view.evolve(&back.events[0].event, back.revision, NOW);
    assert_eq!((view.state.status, view.state.revision), (DomainStatus::Active, Revision::new(12)));
    assert_eq!(told(&decide(&view, &DomainCommand::Restore, &with.context())), "unchanged at 12");
}

/// A domain that was made over a deleted one of the same owner: that one is gone, and a restore says so.
#[test]
fn what_was_made_anew_hides_what_was_deleted() {
    let with = With::default();
    let mut view = holding(&[]);
    view.replaced = Some(NOW.plus(Duration::from_secs(1)));
    assert_eq!(told(&decide(&view, &DomainCommand::Restore, &with.context())), "conflict: replaced");
    // Nothing could be restored any more anyhow.
    view.replaced = Some(NOW);
    assert_eq!(told(&decide(&view, &DomainCommand::Restore, &with.context())), "unchanged at 10");
}

#[test]
fn a_foreign_domain_does_not_exist() {
    let with = With { caller: user(OTHER), ..With::default() };
    for command in [DomainCommand::Delete, DomainCommand::Restore, DomainCommand::ChangeRrsets(Vec::new())] {
        assert_eq!(told(&decide(&holding(&[]), &command, &with.context())), "not found");
    }
}

#[test]
fn what_is_not_served_needs_no_operation() {
    let mut view = holding(&[]);
    view.state.status = DomainStatus::PendingVerification;
    let with = With::default();
    let command = DomainCommand::PutRrset(set("a", "A", &["192.0.2.1"]));
    let Ok(Decided::Changed(decision)) = decide(&view, &command, &with.context()) else { panic!("refused") };
    assert_eq!((decision.operation, decision.events[0].operation), (None, None));
}

proptest! {
    /// A name that is taken over never has its serial lowered, in the arithmetic of RFC 1982.
    #[test]
    fn a_floor_never_lowers_a_serial(base: u32, floor: u32, generation in 0..100_u32) {
        let mut view = holding(&[]);
        view.state.serial_base = base;
        let next = view.state.serial(Revision::new(11), generation);
        let with = With { generation, ..With::default() };
        let patch = DomainPatch { serial_floor: Some(floor), ..DomainPatch::default() };
        if let Ok(Decided::Changed(decision)) = decide(&view, &DomainCommand::Patch(patch), &with.context()) {
            view.evolve(&decision.events[0].event, decision.revision, NOW);
            let serial = view.state.serial(view.state.revision, generation);
            prop_assert_eq!(serial, floor);
            prop_assert!(serial.wrapping_sub(next) < 1 << 31, "{} after {}", serial, next);
        }
    }
}
