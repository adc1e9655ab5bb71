//! What is rendered and planned, without a dnsdist.

use super::plan::{Plan, Running, may_remove, plan, running, wanted};
use super::*;

fn settings() -> DnsdistSettings {
    let text = "[dnsdist]\nlisten = [\"127.0.0.1:53\"]\n";
    crate::config::Config::parse(text, None, []).unwrap().dnsdist
}

fn backend(name: &str, port: u16, enabled: bool) -> Backend {
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    Backend { name: name.to_owned(), address: address(port), front: Some(address(port + 1_000)), enabled }
}

fn as_running(settings: &DnsdistSettings, backends: &[Backend], is_up: bool) -> Vec<Running> {
    let server = |one: plan::Wanted| Running {
        name: one.backend.name,
        address: one.backend.address.to_string(),
        order: one.order,
        is_up,
    };
    wanted(settings, backends).into_iter().map(server).collect()
}

#[test]
fn the_same_clusters_give_the_same_octets_in_any_order() {
    let (one, other) = (backend("dns-1", 5301, true), backend("dns-2", 5302, true));
    let text = configuration(&settings(), &[one.clone(), other.clone()]).unwrap();
    let servers: Vec<&str> = text.lines().filter(|line| line.starts_with("newServer")).collect();
    assert_eq!(servers.len(), 2);
    assert!(servers[0].contains("name='dns-1', order=0") && servers[1].contains("name='dns-2', order=1"));
    assert!(text.contains("addAction(DSTPortRule(6302), PoolAction('dns-2'))"));
    assert!(
        text.contains("setMaxTCPQueriesPerConnection(50)") && text.contains("setACL({'0.0.0.0/0', '::/0'})")
    );
    assert!(!text.contains("setKey") && !text.contains("newPacketCache"));
    let turned = render::ordered(&[other, one], None);
    assert_eq!(configuration(&settings(), &turned).unwrap(), text);
}

#[test]
fn the_preferred_cluster_comes_first_and_disabled_ones_last() {
    let backends = [backend("a", 1, false), backend("b", 2, true), backend("c", 3, true)];
    let names = |prefer| -> Vec<String> {
        render::ordered(&backends, prefer).into_iter().map(|backend| backend.name).collect()
    };
    assert_eq!(names(None), ["b", "c", "a"]);
    assert_eq!(names(Some("c")), ["c", "b", "a"]);
    assert_eq!(names(Some("a")), ["b", "c", "a"]);
}

#[test]
fn every_fault_is_told() {
    let mut settings = settings();
    settings.prefer = Some("gone".to_owned());
    let mut same = backend("dns-2", 5302, true);
    same.front = backend("dns-1", 5301, true).front;
    let told = configuration(&settings, &[backend("dns-1", 5301, true), same]).unwrap_err().to_string();
    assert!(told.contains("the same port 6301") && told.contains("names gone"), "{told}");
    settings.without_fronts = true;
    settings.prefer = None;
    assert!(configuration(&settings, &[backend("dns-1", 5301, true)]).is_ok());
}

#[test]
fn names_are_quoted() {
    assert_eq!(render::quoted("dns-1"), "'dns-1'");
    assert_eq!(render::quoted("a'b\\c\n"), "'a\\039b\\092c\\010'");
}

#[test]
fn what_differs_is_told_and_nothing_else() {
    let settings = settings();
    let (one, two) = (backend("dns-1", 5301, true), backend("dns-2", 5302, true));
    let there = as_running(&settings, &[one.clone(), two.clone()], true);
    let same = plan(&wanted(&settings, &[two.clone(), one.clone()]), &there);
    assert_eq!(same, Plan { add: vec![], remove: vec![] });
    let moved = Backend { address: SocketAddr::from(([127, 0, 0, 2], 5301)), ..one };
    let todo = plan(&wanted(&settings, &[moved.clone(), two]), &there);
    assert_eq!(todo.add.iter().map(|one| &one.backend).collect::<Vec<_>>(), [&moved]);
    assert_eq!(todo.remove, [there[0].clone()]);
}

#[test]
fn a_server_goes_only_when_another_is_up() {
    let settings = settings();
    let (old, new) = (backend("old", 5301, true), backend("new", 5302, true));
    let wanted = wanted(&settings, std::slice::from_ref(&new));
    let all = |old_up, new_up| {
        let mut all = as_running(&settings, std::slice::from_ref(&old), old_up);
        all.extend(as_running(&settings, std::slice::from_ref(&new), new_up));
        all
    };
    assert!(may_remove(&wanted, &all(true, true)));
    assert!(!may_remove(&wanted, &all(true, false)));
    assert!(may_remove(&wanted, &all(false, false)));
}

#[test]
fn what_dnsdist_prints_is_read_or_refused() {
    let read = running("servers\ndns-1 127.0.0.1:5301 0 true\ndns-2 [::1]:53 1 false").unwrap();
    assert_eq!((read[0].order, read[0].is_up, read[1].address.as_str()), (0, true, "[::1]:53"));
    assert_eq!(running("servers\n"), Some(vec![]));
    assert_eq!(running("servers\nnonsense"), None);
    assert_eq!(running(""), None);
}
