//! Zone cuts and names of nothing: what is warned of, what is refused, and what stays possible.

use headwater_events::domain::{Decided, DomainCommand, DomainView, RrsetChange, decide};

use crate::given::*;

fn put(name: &str, ty: &str, records: &[&str]) -> RrsetChange {
    RrsetChange::Put(set(name, ty, records))
}

fn del(name: &str, ty: &str) -> RrsetChange {
    RrsetChange::Delete { owner: owner(name), rrtype: rrtype(ty) }
}

/// A delegated name with glue, a name with names below it, and what a load reads for a change.
fn zone_with_cut(changes: &[RrsetChange]) -> DomainView {
    let mut view = holding(&[
        set("sub", "NS", &["ns.sub.example.com.", "ns.example.net."]),
        set("ns.sub", "A", &["192.0.2.53"]),
        set("team", "TXT", &["\"x\""]),
        set("a.team", "A", &["192.0.2.1"]),
        set("b.a.team", "A", &["192.0.2.2"]),
        set("ns.lone", "A", &["192.0.2.54"]),
        set("teamwork", "A", &["192.0.2.3"]),
    ]);
    let command = DomainCommand::ChangeRrsets(changes.to_vec());
    for cut in command.cuts() {
        let stored = view.rrsets.iter().filter(|(key, _)| key.is_below(&cut.key()));
        let below = stored.flat_map(|(key, types)| types.keys().map(|ty| (key.clone(), *ty))).collect();
        view.below.insert(cut.key(), below);
    }
    view
}

fn warned(changes: Vec<RrsetChange>) -> Vec<String> {
    let mut with = With::default();
    with.limits.records_per_domain = 100;
    let view = zone_with_cut(&changes);
    match decide(&view, &DomainCommand::ChangeRrsets(changes), &with.context()).unwrap() {
        Decided::Changed(decision) => decision.warnings,
        Decided::Unchanged { .. } => Vec::new(),
    }
}

/// Given the zone above, when this batch is asked for, then these warnings, by how they begin.
#[test]
fn what_a_cut_hides_is_warned_of() {
    let ns = ["ns.sub.example.com.", "ns.example.net."];
    let rows: Vec<(Vec<RrsetChange>, &[&str])> = vec![
        (vec![put("www", "A", &["192.0.2.9"])], &[]),
        (vec![put("www.sub", "A", &["192.0.2.9"])], &["www.sub A lies below the zone cut at sub"]),
        (vec![put("a.b.c.sub", "TXT", &["\"x\""])], &["a.b.c.sub TXT lies below the zone cut at sub"]),
        (vec![put("*.sub", "A", &["192.0.2.9"])], &["*.sub A lies below the zone cut at sub"]),
        (vec![put("sub", "TXT", &["\"x\""])], &["sub TXT stands at the zone cut at sub"]),
        // Names that only look alike.
        (vec![put("www-sub", "A", &["192.0.2.9"]), put("mysub", "A", &["192.0.2.9"])], &[]),
        // Addresses of the servers are handed out with the referral; nothing else of theirs is.
        (vec![put("ns.sub", "A", &["192.0.2.99"]), put("ns.sub", "AAAA", &["2001:db8::1"])], &[]),
        (vec![put("ns.sub", "TXT", &["\"x\""])], &["ns.sub TXT lies below the zone cut at sub"]),
        (vec![put("ns2.sub", "A", &["192.0.2.99"])], &["ns2.sub A lies below the zone cut at sub"]),
        (
            vec![put("ns2.sub", "A", &["192.0.2.99"]), put("sub", "NS", &["ns2.sub.example.com."])],
            &["sub NS makes a zone cut at sub that hides what is there, such as ns.sub A"],
        ),
        // Judged at the end state, in whichever order.
        (vec![del("sub", "NS"), put("www.sub", "A", &["192.0.2.9"])], &[]),
        (vec![put("www.sub", "A", &["192.0.2.9"]), del("sub", "NS")], &[]),
        (
            vec![put("x.new", "A", &["192.0.2.9"]), put("new", "NS", &["ns.example.net."])],
            &["x.new A lies below the zone cut at new"],
        ),
        (
            vec![
                put("x.new", "A", &["192.0.2.9"]),
                del("x.new", "A"),
                put("new", "NS", &["ns.example.net."]),
            ],
            &[],
        ),
        // A new cut hides what is below it and beside it, and names the first of it.
        (
            vec![put("a.team", "NS", &["ns.example.net."])],
            &["a.team NS makes a zone cut at a.team that hides what is there, such as a.team A"],
        ),
        (
            vec![put("team", "NS", &["ns.example.net."])],
            &["team NS makes a zone cut at team that hides what is there, such as team TXT"],
        ),
        (
            vec![put("team", "NS", &["ns.example.net."]), del("team", "TXT")],
            &["team NS makes a zone cut at team that hides what is there, such as a.team A"],
        ),
        (
            vec![
                put("team", "NS", &["ns.example.net."]),
                del("team", "TXT"),
                del("a.team", "A"),
                del("b.a.team", "A"),
            ],
            &[],
        ),
        (vec![put("lone", "NS", &["ns.lone.example.com."])], &[]),
        (vec![put("fresh", "NS", &["ns.example.net."])], &[]),
        // The highest cut counts: what is below it is not asked for either.
        (vec![put("deep.sub", "NS", &["ns.example.net."])], &["deep.sub NS lies below the zone cut at sub"]),
        // Nothing changes, nothing is said; what goes away is not hidden.
        (vec![put("sub", "NS", &ns)], &[]),
        (vec![del("ns.sub", "A")], &[]),
    ];
    for (changes, expected) in rows {
        let shown = format!("{changes:?}");
        let warnings = warned(changes);
        let same = warnings.len() == expected.len()
            && warnings.iter().zip(expected).all(|(told, begin)| told.starts_with(begin));
        assert!(same, "{shown}\n  wanted {expected:?}\n  got {warnings:?}");
    }
}

#[test]
fn a_flood_of_warnings_is_summed_up() {
    let changes = (0..60).map(|n| put(&format!("h{n}.sub"), "TXT", &["\"x\""])).collect();
    let warnings = warned(changes);
    assert_eq!(warnings.len(), 51);
    assert!(warnings[50].starts_with("10 more"), "{}", warnings[50]);
}

#[test]
fn a_load_is_asked_for_what_the_change_needs() {
    let command = DomainCommand::ChangeRrsets(vec![
        put("a.b.c", "A", &["192.0.2.9"]),
        put("d.e", "NS", &["ns.example.net."]),
        del("x.y", "A"),
    ]);
    // The apex too: it may hold a DNAME, which redirects everything below.
    let above: Vec<String> = command.above().map(|owner| owner.to_string()).collect();
    assert_eq!(above, ["b.c", "c", "@", "e", "@"]);
    assert_eq!(command.cuts().map(|owner| owner.to_string()).collect::<Vec<_>>(), ["d.e"]);
    let one = DomainCommand::PutRrset(set("www", "A", &["192.0.2.9"]));
    assert_eq!(one.above().map(|owner| owner.to_string()).collect::<Vec<_>>(), ["@"]);
}

/// An owner that is the A-label of nothing gets no records, and what it has can be taken away.
#[test]
fn names_of_nothing_get_no_records() {
    let bad = "xn--a";
    let view = holding(&[set(bad, "A", &["192.0.2.1", "192.0.2.2"]), set("keep", "TXT", &["\"x\""])]);
    let one = |text: &str| values("A", &[text]);
    let (owner, rrtype) = (owner(bad), rrtype("A"));
    let add = RrsetChange::Add { owner: owner.clone(), rrtype, ttl: None, records: one("192.0.2.3") };
    let remove = RrsetChange::Remove { owner: owner.clone(), rrtype, records: one("192.0.2.1") };
    let batch =
        |change: RrsetChange| DomainCommand::ChangeRrsets(vec![put("ok", "A", &["192.0.2.1"]), change]);
    let with = With::default();
    for (command, expected) in [
        (DomainCommand::PutRrset(set(bad, "A", &["192.0.2.9"])), "invalid: invalid_name"),
        (batch(put(bad, "A", &["192.0.2.9"])), "invalid: /changes/1 invalid_name"),
        (batch(add), "invalid: /changes/1 invalid_name"),
        (batch(remove), "11: +ok A [192.0.2.1], +xn--a A [192.0.2.2]"),
        (batch(del(bad, "A")), "11: +ok A [192.0.2.1], -xn--a A"),
        (DomainCommand::DeleteRrset { owner, rrtype }, "11: -xn--a A"),
    ] {
        assert_eq!(told(&decide(&view, &command, &with.context())), expected);
    }
}
