//! What may stand in a zone: tables of given, when, then.

use headwater_events::domain::{DomainCommand, Precondition, RrsetChange, decide};
use headwater_events::ids::Revision;
use headwater_events::reject::Guard;

use crate::given::*;

fn put(name: &str, ty: &str, records: &[&str]) -> RrsetChange {
    RrsetChange::Put(set(name, ty, records))
}

fn del(name: &str, ty: &str) -> RrsetChange {
    RrsetChange::Delete { owner: owner(name), rrtype: rrtype(ty) }
}

fn add(name: &str, ty: &str, records: &[&str]) -> RrsetChange {
    RrsetChange::Add { owner: owner(name), rrtype: rrtype(ty), ttl: None, records: values(ty, records) }
}

fn remove(name: &str, ty: &str, records: &[&str]) -> RrsetChange {
    RrsetChange::Remove { owner: owner(name), rrtype: rrtype(ty), records: values(ty, records) }
}

fn zone_with_www() -> headwater_events::domain::DomainView {
    holding(&[
        set("www", "A", &["192.0.2.1", "192.0.2.2"]),
        set("alias", "CNAME", &["www.example.net."]),
        set("keep", "TXT", &["\"x\""]),
    ])
}

/// What takes what is there into account says nothing of what is not.
#[test]
fn changes_that_suit_what_is_there() {
    let refill = |name, ty, records: &[&str]| RrsetChange::Refill(set(name, ty, records));
    let clear = |name, ty| RrsetChange::Clear { owner: owner(name), rrtype: rrtype(ty) };
    let comment = |name, ty, text: Option<&str>| RrsetChange::Comment {
        owner: owner(name),
        rrtype: rrtype(ty),
        comment: text.map(str::to_owned),
    };
    let rows: Vec<(Vec<RrsetChange>, &str)> = vec![
        (vec![clear("none", "A")], "unchanged at 10"),
        (vec![clear("www", "A")], "11: -www A"),
        (vec![clear("www", "A"), clear("www", "A")], "11: -www A"),
        (vec![clear("@", "NS")], "invalid: /changes/0 apex_ns"),
        (vec![refill("@", "NS", &["ns.example.net."])], "invalid: /changes/0 apex_ns"),
        (vec![refill("www", "CNAME", &["x.example.net."])], "invalid: /changes/0 cname_conflict"),
        (
            vec![clear("www", "A"), refill("www", "CNAME", &["x.example.net."])],
            "11: -www A, +www CNAME [x.example.net.]",
        ),
        (vec![refill("www", "A", &["192.0.2.2", "192.0.2.1"])], "unchanged at 10"),
        (vec![refill("www", "A", &["192.0.2.9"])], "11: +www A [192.0.2.9]"),
        (vec![comment("none", "A", Some("x"))], "invalid: /changes/0 not_found"),
        (vec![comment("www", "A", Some("a\nb"))], "invalid: /changes/0 invalid_comment"),
        (vec![comment("www", "A", None)], "unchanged at 10"),
        (vec![comment("www", "A", Some("x"))], "11: +www A [192.0.2.1 192.0.2.2]"),
    ];
    for (changes, then) in rows {
        let with = With::default();
        let decided =
            decide(&zone_with_www(), &DomainCommand::ChangeRrsets(changes.clone()), &with.context());
        assert_eq!(told(&decided), then, "{changes:?}");
    }
    // A comment stays where nothing is said of it.
    let with = With::default();
    let mut zone = zone_with_www();
    let stored = zone.rrsets.get_mut(&owner("www").key()).unwrap().get_mut(&rrtype("A")).unwrap();
    stored.body.comment = Some("why".to_owned());
    for (change, left) in [
        (refill("www", "A", &["192.0.2.9"]), Some("why")),
        (put("www", "A", &["192.0.2.9"]), None),
        (comment("www", "A", Some("because")), Some("because")),
        (comment("www", "A", None), None),
    ] {
        let decided = decide(&zone, &DomainCommand::ChangeRrsets(vec![change]), &with.context()).unwrap();
        let headwater_events::domain::Decided::Changed(decision) = decided else { panic!("{decided:?}") };
        let [one] = decision.events.as_slice() else { panic!("{decision:?}") };
        let headwater_events::event::Event::RrsetReplaced(put) = &one.event else { panic!("{one:?}") };
        assert_eq!(put.after.comment.as_deref(), left);
    }
}

/// Given the zone above, when this batch is asked for, then that.
#[test]
fn batches_are_judged_at_their_end() {
    let rows: Vec<(Vec<RrsetChange>, &str)> = vec![
        (vec![], "unchanged at 10"),
        (vec![put("www", "A", &["192.0.2.2", "192.0.2.1"])], "unchanged at 10"),
        (vec![put("www", "A", &["192.0.2.9"])], "11: +www A [192.0.2.9]"),
        (vec![put("new", "A", &["192.0.2.9"]), del("new", "A")], "unchanged at 10"),
        (vec![del("www", "A"), put("www", "A", &["192.0.2.1", "192.0.2.2"])], "unchanged at 10"),
        (vec![put("www", "A", &["192.0.2.3"]), put("www", "A", &["192.0.2.4"])], "11: +www A [192.0.2.4]"),
        // A CNAME stands alone, whichever comes first, judged at the end.
        (vec![put("www", "CNAME", &["x.example.net."])], "invalid: /changes/0 cname_conflict"),
        (vec![put("alias", "A", &["192.0.2.1"])], "invalid: /changes/0 cname_conflict"),
        (
            vec![put("new", "A", &["192.0.2.1"]), put("new", "CNAME", &["x.example.net."])],
            "invalid: /changes/1 cname_conflict",
        ),
        (
            vec![put("www", "CNAME", &["x.example.net."]), del("www", "A")],
            "11: -www A, +www CNAME [x.example.net.]",
        ),
        (
            vec![put("alias", "A", &["192.0.2.1"]), del("alias", "CNAME")],
            "11: +alias A [192.0.2.1], -alias CNAME",
        ),
        // The apex and wildcards.
        (vec![put("@", "CNAME", &["x.example.net."])], "invalid: /changes/0 cname_at_apex"),
        (vec![put("@", "NS", &["ns.example.net."])], "invalid: /changes/0 apex_ns"),
        (
            vec![del("@", "NS"), remove("@", "NS", &["ns.example.net."])],
            "invalid: /changes/0 apex_ns, /changes/1 apex_ns",
        ),
        (vec![put("@", "MX", &["10 mx.example.net."])], "11: +@ MX [10 mx.example.net.]"),
        (vec![put("*", "NS", &["ns.example.net."])], "invalid: /changes/0 ns_at_wildcard"),
        (vec![put("*.sub", "NS", &["ns.example.net."])], "invalid: /changes/0 ns_at_wildcard"),
        (vec![put("sub", "NS", &["ns.example.net."])], "11: +sub NS [ns.example.net.]"),
        (vec![put("*", "CNAME", &["x.example.net."])], "11: +* CNAME [x.example.net.]"),
        // What is absent cannot be deleted; every fault is named at its place.
        (vec![del("none", "A")], "invalid: /changes/0 not_found"),
        (vec![del("www", "A"), del("www", "A")], "invalid: /changes/1 not_found"),
        (
            vec![del("none", "A"), put("@", "NS", &["ns.example.net."])],
            "invalid: /changes/0 not_found, /changes/1 apex_ns",
        ),
        // Single values come and go without regard to whether they are there.
        (vec![add("www", "A", &["192.0.2.1"])], "unchanged at 10"),
        (vec![add("www", "A", &["192.0.2.3", "192.0.2.1"])], "11: +www A [192.0.2.1 192.0.2.2 192.0.2.3]"),
        (vec![add("new", "A", &["192.0.2.3"])], "11: +new A [192.0.2.3]"),
        (vec![remove("www", "A", &["192.0.2.9"])], "unchanged at 10"),
        (vec![remove("none", "A", &["192.0.2.9"])], "unchanged at 10"),
        (vec![remove("www", "A", &["192.0.2.1"])], "11: +www A [192.0.2.2]"),
        (vec![remove("www", "A", &["192.0.2.1", "192.0.2.2"])], "11: -www A"),
        (vec![add("www", "A", &["192.0.2.3"]), remove("www", "A", &["192.0.2.3"])], "unchanged at 10"),
        (vec![add("alias", "A", &["192.0.2.1"])], "invalid: /changes/0 cname_conflict"),
    ];
    let with = With::default();
    for (changes, then) in rows {
        let decided =
            decide(&zone_with_www(), &DomainCommand::ChangeRrsets(changes.clone()), &with.context());
        assert_eq!(told(&decided), then, "{changes:?}");
    }
}

#[test]
fn guards_stand_before_what_is_hardly_meant() {
    let names: Vec<String> = (0..20).map(|n| format!("r{n}")).collect();
    let of = |count: usize| {
        holding(&names[..count].iter().map(|n| set(n, "A", &["192.0.2.1"])).collect::<Vec<_>>())
    };
    let gone =
        |count: usize| DomainCommand::ChangeRrsets(names[..count].iter().map(|n| del(n, "A")).collect());
    let refused = With::default();
    for (holds, deletes, then) in [
        (3, 3, "guarded: empties_zone"),
        (19, 18, ""),
        (20, 10, ""),
        (20, 11, "guarded: mass_delete"),
        (20, 20, "guarded: empties_zone, mass_delete"),
    ] {
        let decided = decide(&of(holds), &gone(deletes), &refused.context());
        assert_eq!(told(&decided).starts_with("11: "), then.is_empty(), "{holds} {deletes}");
        assert!(then.is_empty() || told(&decided) == then, "{holds} {deletes}: {}", told(&decided));
    }
    let allowed = With { allow: [Guard::MassDelete].into(), ..With::default() };
    assert_eq!(told(&decide(&of(20), &gone(20), &allowed.context())), "guarded: empties_zone, mass_delete");
    let Ok(headwater_events::domain::Decided::Changed(decision)) =
        decide(&of(20), &gone(11), &allowed.context())
    else {
        panic!("it is allowed")
    };
    let written = decision.events[0].event.to_json().unwrap();
    assert!(
        written.contains("\"allowed\":[\"mass_delete\"]"),
        "the allowance stands in the event: {written}"
    );
    // One RRset by its name is its own intent; a domain that is not served has nothing to lose.
    let one = DomainCommand::DeleteRrset { owner: owner("r0"), rrtype: rrtype("A") };
    assert_eq!(told(&decide(&of(1), &one, &refused.context())), "11: -r0 A");
    let mut pending = of(3);
    pending.state.status = headwater_events::event::DomainStatus::PendingVerification;
    assert!(told(&decide(&pending, &gone(3), &refused.context())).starts_with("11: "));
}

#[test]
fn preconditions_go_by_the_resource() {
    let at = |revisions: &[i64]| Precondition {
        if_match: Some(revisions.iter().map(|n| Revision::new(*n)).collect()),
        if_absent: false,
    };
    let absent = Precondition { if_match: None, if_absent: true };
    let put_www = || DomainCommand::PutRrset(set("www", "A", &["192.0.2.9"]));
    let put_new = || DomainCommand::PutRrset(set("new", "A", &["192.0.2.9"]));
    let delete = |name| DomainCommand::DeleteRrset { owner: owner(name), rrtype: rrtype("A") };
    let batch = || DomainCommand::ChangeRrsets(vec![del("www", "A")]);
    let rows = [
        (put_www(), at(&[5]), "11: +www A [192.0.2.9]"),
        (put_www(), at(&[4, 5]), "11: +www A [192.0.2.9]"),
        (put_www(), at(&[]), "11: +www A [192.0.2.9]"),
        (put_www(), at(&[10]), "mismatch at 5"),
        (put_www(), absent.clone(), "mismatch at 5"),
        (put_new(), absent, "11: +new A [192.0.2.9]"),
        (put_new(), at(&[]), "mismatch at nothing"),
        (delete("www"), at(&[5]), "11: -www A"),
        (delete("www"), at(&[6]), "mismatch at 5"),
        (delete("new"), at(&[6]), "not found"),
        (batch(), at(&[10]), "11: -www A"),
        (batch(), at(&[5]), "mismatch at 10"),
        (DomainCommand::Delete, at(&[9]), "mismatch at 10"),
    ];
    for (command, precondition, then) in rows {
        let with = With { precondition: precondition.clone(), ..With::default() };
        assert_eq!(
            told(&decide(&zone_with_www(), &command, &with.context())),
            then,
            "{command:?} {precondition:?}"
        );
    }
}

#[test]
fn bounds_are_kept() {
    let with = With::default();
    let many = |count: usize| (0..count).map(|n| put(&format!("n{n}"), "A", &["192.0.2.1"])).collect();
    let batch =
        |changes| told(&decide(&zone_with_www(), &DomainCommand::ChangeRrsets(changes), &with.context()));
    assert!(batch(many(26)).starts_with("11: "), "4 and 26 records are 30");
    assert_eq!(batch(many(27)), "invalid: too_many_records");
    assert_eq!(batch(many(5_001)), "invalid: /changes too_many_changes");
    // A domain that is beyond its bound already may still shrink.
    let tight = With {
        limits: headwater_events::domain::Limits { records_per_domain: 2, ..with.limits },
        ..with.clone()
    };
    let shrink = DomainCommand::ChangeRrsets(vec![remove("www", "A", &["192.0.2.1"])]);
    assert_eq!(told(&decide(&zone_with_www(), &shrink, &tight.context())), "11: +www A [192.0.2.2]");
    // The floor of TTLs is for tenants.
    let low = With {
        limits: headwater_events::domain::Limits { ttl_floor_seconds: 301, ..with.limits },
        ..with.clone()
    };
    let command = DomainCommand::PutRrset(set("new", "A", &["192.0.2.1"]));
    assert_eq!(told(&decide(&zone_with_www(), &command, &low.context())), "invalid: ttl_too_low");
    let system = With { caller: headwater_events::actor::Caller::system(), ..low };
    assert_eq!(told(&decide(&zone_with_www(), &command, &system.context())), "11: +new A [192.0.2.1]");
}
