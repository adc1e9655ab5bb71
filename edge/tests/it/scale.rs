//! What many domains cost the agent: memory that goes with their number, not with their artifacts, and no more while it
//! begins, follows changes and starts again. `HEADWATER_EDGE_DOMAINS=100000` measures the bound that is promised.

use std::time::{Duration, Instant};

use super::support::control::Control;
use super::support::edge::{Edge, host};
use super::support::until;

const DOMAINS_DEFAULT: u32 = 2_000;
/// What an agent may take with 100,000 domains.
const FULL_MAX_KIB: u64 = 128 << 10;
/// What it takes without any, at most; the rest goes with the domains.
const EMPTY_MAX_KIB: u64 = 40 << 10;
const WITHIN: Duration = Duration::from_secs(900);

/// Now and at most so far.
fn memory_kib(edge: &Edge) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{}/status", edge.agent())).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    (field("VmRSS:"), field("VmHWM:"))
}

#[test]
fn memory_goes_with_the_number_of_domains() {
    let domains = std::env::var("HEADWATER_EDGE_DOMAINS").ok().and_then(|text| text.parse().ok());
    let domains: u32 = domains.unwrap_or(DOMAINS_DEFAULT);
    let control = Control::start(1);
    let mut edge = Edge::new(&control);
    {
        let mut state = control.lock();
        for n in 0..domains {
            let mut artifact = edge.domain(n, 1);
            let mut second = artifact.hostnames[0].clone();
            second.name = format!("s{}", second.name);
            artifact.hostnames.push(second);
            state.publish(&artifact, |_, _| {});
        }
    }
    edge.start();
    let begun = Instant::now();
    until("the snapshot is applied", WITHIN, || control.is_applied());
    let (whole, first) = (begun.elapsed(), memory_kib(&edge));
    for n in 0..20 {
        control.lock().publish(&edge.domain(n, 2), |_, _| {});
        until("the change is applied", WITHIN, || control.is_applied());
    }
    let changed = memory_kib(&edge);
    edge.power_off();
    edge.start();
    let begun = Instant::now();
    until("it serves again", WITHIN, || edge.get(0, &host(1, 2)) == Some(200));
    let cold = begun.elapsed();
    control.lock().publish(&edge.domain(0, 3), |_, _| {});
    until("it follows again", WITHIN, || control.is_applied());
    let again = memory_kib(&edge);
    println!(
        "{domains} domains: snapshot applied in {whole:?}, cold start serves in {cold:?}; KiB now and at most: \
         {first:?} after the snapshot, {changed:?} after changes, {again:?} after the start"
    );
    let max = EMPTY_MAX_KIB + (FULL_MAX_KIB - EMPTY_MAX_KIB) * u64::from(domains) / 100_000;
    for (_, most) in [first, changed, again] {
        assert!(most <= max, "{most} KiB, at most {max}");
    }
}
