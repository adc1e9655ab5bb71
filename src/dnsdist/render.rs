//! The configuration of a dnsdist in front of the DNS clusters. Pure. What must hold: nothing that people write but the
//! names of clusters, which are quoted, gets into the text; and the same clusters and settings give the same octets.
//!
//! One listener answers from the first cluster that is up: the preferred one, then by name, then those that are disabled,
//! since what they have is old, and still better than nothing. Beside it each cluster has a listener of its own whose
//! questions go to that cluster alone, so that a deployment is verified on the way that clients take, whatever the state
//! of the others.
//!
//! Health needs no zone, and no cache can answer for it: each check asks for another name that nobody hosts. A node that
//! lives refuses it; one whose database is gone says SERVFAIL, which dnsdist takes for a failure whatever else it is told
//! to accept.

use std::fmt::Write as _;
use std::net::SocketAddr;

use super::{Backend, DnsdistSettings};

/// How often a backend is checked.
const CHECK_INTERVAL_SECONDS: u32 = 1;
/// How long one check may take.
const CHECK_TIMEOUT_MILLISECONDS: u32 = 500;
/// How long a client of a TCP connection may take for its next question.
const TCP_RECEIVE_SECONDS: u32 = 5;
/// How long a TCP connection may last.
const TCP_CONNECTION_SECONDS: u32 = 60;
/// Addresses of IPv6 that count as one client.
const CLIENT_PREFIX_BITS: u8 = 64;

/// A text of Lua. Only names of clusters and keys are quoted, and neither has more than letters, digits and signs; what
/// has would be escaped.
pub(super) fn quoted(text: &str) -> String {
    let mut lua = String::from("'");
    for octet in text.bytes() {
        match octet {
            b'\'' | b'\\' | 0..=31 | 127..=255 => lua.push_str(&format!("\\{octet:03}")),
            plain => lua.push(char::from(plain)),
        }
    }
    lua.push('\'');
    lua
}

/// The servers in the order in which they are asked.
pub(super) fn ordered(backends: &[Backend], prefer: Option<&str>) -> Vec<Backend> {
    let mut backends = backends.to_vec();
    backends.sort_by(|one, other| {
        let rank = |backend: &Backend| (!backend.enabled, prefer != Some(backend.name.as_str()));
        rank(one).cmp(&rank(other)).then_with(|| one.name.cmp(&other.name))
    });
    backends
}

/// How dnsdist is told of a server, at a place in the order.
pub(super) fn server(backend: &Backend, order: usize) -> String {
    let name = quoted(&backend.name);
    format!(
        "newServer({{address='{}', name={name}, order={order}, pool={{'', {name}}}, \
         checkFunction=headwater_check, mustResolve=false, checkInterval={CHECK_INTERVAL_SECONDS}, \
         checkTimeout={CHECK_TIMEOUT_MILLISECONDS}, maxCheckFailures=1, rise=1}})",
        backend.address
    )
}

/// Who may ask.
pub(super) fn acl(settings: &DnsdistSettings) -> String {
    let networks: Vec<String> = match settings.allow_networks.as_slice() {
        [] => vec!["'0.0.0.0/0'".to_owned(), "'::/0'".to_owned()],
        networks => networks.iter().map(|network| format!("'{network}'")).collect(),
    };
    format!("setACL({{{}}})", networks.join(", "))
}

/// The listeners that lead to one cluster alone.
fn fronts<'b>(
    settings: &'b DnsdistSettings,
    backends: &'b [Backend],
) -> impl Iterator<Item = (SocketAddr, &'b str)> {
    let own = backends.iter().filter(|_| !settings.without_fronts);
    own.filter_map(|backend| backend.front.map(|front| (front, backend.name.as_str())))
}

/// What a running dnsdist cannot be told: its listeners, its limits, how it keeps answers.
pub(super) fn fixed(settings: &DnsdistSettings, backends: &[Backend]) -> String {
    let mut text = String::new();
    for (number, listener) in settings.listen.iter().enumerate() {
        let call = if number == 0 { "setLocal" } else { "addLocal" };
        line(&mut text, format_args!("{call}('{listener}', {{reusePort=true}})"));
    }
    line(&mut text, format_args!("setSecurityPollSuffix('')"));
    line(&mut text, format_args!("setServerPolicy(firstAvailable)"));
    line(&mut text, format_args!("-- A client is told at once that nobody can answer."));
    line(&mut text, format_args!("setServFailWhenNoServer(true)"));
    // dnsdist 1.7 can be driven out of stack by very many on one connection (CVE-2025-30193).
    line(&mut text, format_args!("setMaxTCPQueriesPerConnection({})", settings.tcp_queries_per_connection));
    line(&mut text, format_args!("setMaxTCPConnectionsPerClient({})", settings.tcp_connections_per_client));
    line(&mut text, format_args!("setMaxTCPConnectionDuration({TCP_CONNECTION_SECONDS})"));
    line(&mut text, format_args!("setTCPRecvTimeout({TCP_RECEIVE_SECONDS})"));
    let refuse = "RCodeAction(DNSRCode.REFUSED)";
    for rule in [
        "OrRule({OpcodeRule(DNSOpcode.Notify), OpcodeRule(DNSOpcode.Update)})",
        "OrRule({QTypeRule(DNSQType.AXFR), QTypeRule(DNSQType.IXFR)})",
        "NotRule(QClassRule(DNSClass.IN))",
    ] {
        line(&mut text, format_args!("addAction({rule}, {refuse})"));
    }
    if settings.queries_per_second_per_client > 0 {
        let most = settings.queries_per_second_per_client;
        let rule = format!("AndRule({{TCPRule(false), MaxQPSIPRule({most}, 32, {CLIENT_PREFIX_BITS})}})");
        // Over TCP a client proves its address.
        line(&mut text, format_args!("addAction({rule}, TCAction())"));
    }
    if !settings.serve_stale.is_zero() {
        let (entries, seconds) = (settings.cache_entries, settings.serve_stale.as_secs());
        // A SERVFAIL is never kept: it would take the place of the good answer.
        line(
            &mut text,
            format_args!(
                "getPool(''):setCache(newPacketCache({entries}, {{maxTTL=1, maxNegativeTTL=1, temporaryFailureTTL=0, \
                 staleTTL=5, keepStaleData=true, parseECS=true}}))"
            ),
        );
        line(&mut text, format_args!("setStaleCacheEntriesTTL({seconds})"));
    }
    for (front, name) in fronts(settings, backends) {
        line(&mut text, format_args!("addLocal('{front}', {{reusePort=true}})"));
        let is_there = format!("DSTPortRule({})", front.port());
        line(&mut text, format_args!("addAction({is_there}, PoolAction({}))", quoted(name)));
    }
    text
}

/// The whole configuration. `key` is the console's, in base64; without one there is no console.
pub(super) fn configuration(settings: &DnsdistSettings, backends: &[Backend], key: Option<&str>) -> String {
    let fixed = fixed(settings, backends);
    let mut text = String::from("-- Made by Headwater from its DNS clusters; made anew when they change.\n");
    if let Some(key) = key {
        line(&mut text, format_args!("setKey({})", quoted(key)));
        line(&mut text, format_args!("controlSocket('{}')", settings.console));
    }
    line(&mut text, format_args!("headwater_fixed = '{}'", digest(&fixed)));
    text.push_str(concat!(
        "local headwater_checks = 0\n",
        "function headwater_check(qname, qtype, qclass, dh)\n",
        "  headwater_checks = headwater_checks + 1\n",
        "  return newDNSName('check-' .. os.time() .. '-' .. headwater_checks .. '.headwater.invalid.'), ",
        "DNSQType.A, DNSClass.IN\n",
        "end\n",
    ));
    text.push_str(&fixed);
    line(&mut text, format_args!("{}", acl(settings)));
    for (order, backend) in ordered(backends, settings.prefer.as_deref()).iter().enumerate() {
        line(&mut text, format_args!("{}", server(backend, order)));
    }
    text
}

/// By what a running dnsdist is known to have the same fixed part.
pub(super) fn digest(fixed: &str) -> String {
    blake3::hash(fixed.as_bytes()).to_hex().to_string()
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // A String takes everything.
    let _ = writeln!(text, "{line}");
}

/// Every fault of what is to be rendered, as a sentence.
pub(super) fn faults(settings: &DnsdistSettings, backends: &[Backend]) -> Vec<String> {
    let mut faults = Vec::new();
    let mut ports: Vec<(u16, &str)> =
        fronts(settings, backends).map(|(front, name)| (front.port(), name)).collect();
    ports.extend(settings.listen.iter().map(|listener| (listener.port(), "clients")));
    ports.sort_unstable();
    ports.dedup();
    for pair in ports.windows(2) {
        if let [(port, one), (other, second)] = pair
            && port == other
        {
            faults.push(format!(
                "{one} and {second} would be asked at the same port {port}: give each front a port of its own, or set \
                 without_fronts in [dnsdist]"
            ));
        }
    }
    if let Some(prefer) = &settings.prefer
        && !backends.iter().any(|backend| backend.name == *prefer)
    {
        faults.push(format!("prefer in [dnsdist] names {prefer}, and there is no such DNS cluster"));
    }
    faults
}
