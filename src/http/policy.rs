//! What each route asks of its caller. A route that is not here is refused to everybody, so that none can be forgotten.
//!
//! This is the outer wall: what a route asks whatever it is about. Whoever comes through is still judged by the resource
//! itself, where that is read or decided about.

use axum::extract::MatchedPath;
use axum::http::Method;
use headwater_events::actor::{self, Access, Caller, Resource, Verb};
use headwater_events::admin::needed;
use headwater_events::scope::Grant;

use super::Problem;

/// What a route is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    /// The platform.
    Platform,
    /// That there is a domain, and how it stands.
    Domain,
    /// A domain with everything in it.
    Contents,
    /// Records of a domain, each by owner and type.
    Records,
    /// A domain that is to be made.
    NewDomain,
    /// A tenant.
    Tenant,
    /// The caller itself.
    Caller,
    /// A user, who may be another one.
    User,
    /// Whatever the caller may see: lists, the event stream, operations.
    Seen,
}

/// One route and what it asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rule {
    /// The method.
    pub method: &'static str,
    /// The path, with its parameters.
    pub path: &'static str,
    /// What is done.
    pub verb: Verb,
    /// With what.
    pub about: About,
}

const fn rule(method: &'static str, path: &'static str, verb: Verb, about: About) -> Rule {
    Rule { method, path, verb, about }
}

const fn read(path: &'static str, about: About) -> Rule {
    rule("GET", path, Verb::Read, about)
}

/// Every route that needs a caller.
pub const RULES: &[Rule] = &[
    read("/api/domains", About::Seen),
    rule("POST", "/api/domains", Verb::Manage, About::NewDomain),
    read("/api/domains/{d}", About::Domain),
    rule("PATCH", "/api/domains/{d}", Verb::Write, About::Contents),
    rule("DELETE", "/api/domains/{d}", Verb::Manage, About::Contents),
    rule("POST", "/api/domains/{d}/restore", Verb::Manage, About::Contents),
    rule("POST", "/api/domains/{d}/verify", Verb::Write, About::Contents),
    rule("POST", "/api/domains/{d}/activate", Verb::Write, About::Platform),
    rule("POST", "/api/domains/{d}/disable", Verb::Manage, About::Contents),
    rule("POST", "/api/domains/{d}/enable", Verb::Manage, About::Contents),
    read("/api/domains/{d}/status", About::Domain),
    read("/api/domains/{d}/members", About::Contents),
    read("/api/domains/{d}/members/{user}", About::Contents),
    rule("PUT", "/api/domains/{d}/members/{user}", Verb::Manage, About::Contents),
    rule("DELETE", "/api/domains/{d}/members/{user}", Verb::Manage, About::Contents),
    read("/api/domains/{d}/rrsets", About::Records),
    read("/api/domains/{d}/rrsets/{name}/{type}", About::Records),
    rule("PUT", "/api/domains/{d}/rrsets/{name}/{type}", Verb::Write, About::Records),
    rule("DELETE", "/api/domains/{d}/rrsets/{name}/{type}", Verb::Write, About::Records),
    rule("POST", "/api/domains/{d}/rrsets/batch", Verb::Write, About::Records),
    // Of each RRset it is asked whether the caller may.
    read("/api/rrsets", About::Seen),
    read("/api/explain", About::Seen),
    read("/api/domains/{d}/zone", About::Records),
    rule("POST", "/api/domains/{d}/zone", Verb::Write, About::Records),
    read("/api/domains/{d}/hostnames", About::Contents),
    read("/api/domains/{d}/hostnames/{name}", About::Contents),
    rule("PUT", "/api/domains/{d}/hostnames/{name}", Verb::Write, About::Contents),
    rule("DELETE", "/api/domains/{d}/hostnames/{name}", Verb::Write, About::Contents),
    read("/api/domains/{d}/cache", About::Contents),
    rule("PATCH", "/api/domains/{d}/cache", Verb::Write, About::Contents),
    read("/api/domains/{d}/purges", About::Contents),
    rule("POST", "/api/domains/{d}/purges", Verb::Write, About::Contents),
    read("/api/domains/{d}/purges/{id}", About::Contents),
    read("/api/domains/{d}/tls", About::Contents),
    rule("PUT", "/api/domains/{d}/tls/custom-certificate", Verb::Write, About::Contents),
    rule("DELETE", "/api/domains/{d}/tls/custom-certificate", Verb::Write, About::Contents),
    read("/api/domains/{d}/revisions", About::Contents),
    read("/api/domains/{d}/revisions/{n}", About::Contents),
    // What it changes is judged one by one.
    rule("POST", "/api/domains/{d}/rollback", Verb::Write, About::Records),
    rule("POST", "/api/domains/{d}/undo", Verb::Write, About::Contents),
    read("/api/domains/{d}/diff", About::Contents),
    // Of each domain it is asked whether the caller may.
    rule("POST", "/api/undo", Verb::Write, About::Seen),
    read("/api/domains/{d}/deployments", About::Contents),
    read("/api/domains/{d}/placement", About::Platform),
    read("/api/deployments", About::Seen),
    rule("POST", "/api/deployments/pause", Verb::Write, About::Platform),
    rule("POST", "/api/deployments/resume", Verb::Write, About::Platform),
    rule("POST", "/api/deployments/{id}/adopt", Verb::Write, About::Platform),
    rule("POST", "/api/deployments/{id}/discard", Verb::Write, About::Platform),
    read("/api/tenants", About::Platform),
    rule("POST", "/api/tenants", Verb::Write, About::Platform),
    read("/api/tenants/{id}", About::Tenant),
    rule("PATCH", "/api/tenants/{id}", Verb::Write, About::Tenant),
    rule("DELETE", "/api/tenants/{id}", Verb::Write, About::Tenant),
    read("/api/tenants/{id}/members", About::Tenant),
    read("/api/tenants/{id}/members/{user}", About::Tenant),
    rule("PUT", "/api/tenants/{id}/members/{user}", Verb::Manage, About::Tenant),
    rule("DELETE", "/api/tenants/{id}/members/{user}", Verb::Manage, About::Tenant),
    read("/api/me", About::Caller),
    rule("PATCH", "/api/me", Verb::Write, About::Caller),
    rule("PUT", "/api/me/password", Verb::Write, About::Caller),
    rule("POST", "/api/auth/logout", Verb::Write, About::Caller),
    read("/api/me/tokens", About::Caller),
    rule("POST", "/api/me/tokens", Verb::Write, About::Caller),
    rule("DELETE", "/api/me/tokens/{id}", Verb::Write, About::Caller),
    read("/api/users", About::Platform),
    rule("POST", "/api/users", Verb::Write, About::Platform),
    read("/api/users/{id}", About::User),
    rule("PATCH", "/api/users/{id}", Verb::Write, About::User),
    rule("DELETE", "/api/users/{id}", Verb::Write, About::User),
    rule("POST", "/api/users/{id}/enable", Verb::Write, About::User),
    rule("POST", "/api/users/{id}/disable", Verb::Write, About::User),
    read("/api/tokens", About::Platform),
    rule("DELETE", "/api/tokens/{id}", Verb::Write, About::User),
    // Of the tenants that the caller is a member of; the platform's own are for administrators.
    read("/api/webhooks", About::Seen),
    rule("POST", "/api/webhooks", Verb::Manage, About::Tenant),
    read("/api/webhooks/{id}", About::Tenant),
    rule("PATCH", "/api/webhooks/{id}", Verb::Manage, About::Tenant),
    rule("DELETE", "/api/webhooks/{id}", Verb::Manage, About::Tenant),
    read("/api/webhooks/{id}/deliveries", About::Tenant),
    rule("POST", "/api/webhooks/{id}/replay", Verb::Manage, About::Tenant),
    read("/api/dns-clusters", About::Platform),
    rule("POST", "/api/dns-clusters", Verb::Write, About::Platform),
    read("/api/dns-clusters/{id}", About::Platform),
    rule("PATCH", "/api/dns-clusters/{id}", Verb::Write, About::Platform),
    rule("DELETE", "/api/dns-clusters/{id}", Verb::Write, About::Platform),
    rule("POST", "/api/dns-clusters/{id}/enable", Verb::Write, About::Platform),
    rule("POST", "/api/dns-clusters/{id}/disable", Verb::Write, About::Platform),
    rule("POST", "/api/dns-clusters/{id}/test", Verb::Write, About::Platform),
    rule("POST", "/api/dns-clusters/{id}/reconcile", Verb::Write, About::Platform),
    read("/api/edges", About::Platform),
    rule("POST", "/api/edges", Verb::Write, About::Platform),
    read("/api/edges/{id}", About::Platform),
    rule("PATCH", "/api/edges/{id}", Verb::Write, About::Platform),
    rule("DELETE", "/api/edges/{id}", Verb::Write, About::Platform),
    rule("POST", "/api/edges/{id}/rotate-identity", Verb::Write, About::Platform),
    rule("POST", "/api/edges/{id}/enable", Verb::Write, About::Platform),
    rule("POST", "/api/edges/{id}/disable", Verb::Write, About::Platform),
    rule("POST", "/api/edges/{id}/drain", Verb::Write, About::Platform),
    rule("POST", "/api/edges/{id}/undrain", Verb::Write, About::Platform),
    read("/api/cells", About::Platform),
    rule("POST", "/api/cells/{id}/drain", Verb::Write, About::Platform),
    rule("POST", "/api/cells/{id}/undrain", Verb::Write, About::Platform),
    read("/api/pools", About::Platform),
    read("/api/pools/{id}", About::Platform),
    read("/api/status", About::Platform),
    read("/api/projections", About::Platform),
    rule("POST", "/api/projections/{name}/rebuild", Verb::Write, About::Platform),
    rule("POST", "/api/projections/{name}/verify", Verb::Write, About::Platform),
    read("/api/imports", About::Platform),
    rule("POST", "/api/imports", Verb::Write, About::Platform),
    read("/api/imports/{id}", About::Platform),
    read("/api/imports/{id}/report", About::Platform),
    rule("POST", "/api/imports/{id}/cutover", Verb::Write, About::Platform),
    rule("POST", "/api/imports/{id}/compare", Verb::Write, About::Platform),
    read("/api/events", About::Seen),
    read("/api/events/stream", About::Seen),
    read("/events/stream", About::Seen),
    read("/api/audit", About::Seen),
    read("/api/audit/heads", About::Platform),
    // Administrators read all of it.
    read("/api/access-log", About::Caller),
    read("/api/operations", About::Seen),
    read("/api/operations/{id}", About::Seen),
    read("/api/operations/{id}/timeline", About::Seen),
    read("/api/operations/{id}/differences", About::Seen),
    rule("POST", "/api/operations/{id}/retry", Verb::Write, About::Seen),
    rule("POST", "/api/operations/{id}/cancel", Verb::Write, About::Seen),
    // The API of PowerDNS: what it says of itself is the same for everybody.
    read("/api", About::Seen),
    read("/api/v1", About::Seen),
    read("/api/v1/servers", About::Seen),
    read("/api/v1/servers/localhost", About::Seen),
    read("/api/v1/servers/localhost/config", About::Seen),
    read("/api/v1/servers/localhost/statistics", About::Seen),
    read("/api/v1/servers/localhost/search-data", About::Seen),
    rule("PUT", "/api/v1/servers/localhost/cache/flush", Verb::Read, About::Seen),
    read("/api/v1/servers/localhost/zones", About::Seen),
    rule("POST", "/api/v1/servers/localhost/zones", Verb::Manage, About::NewDomain),
    read("/api/v1/servers/localhost/zones/{zone}", About::Records),
    rule("PATCH", "/api/v1/servers/localhost/zones/{zone}", Verb::Write, About::Records),
    rule("PUT", "/api/v1/servers/localhost/zones/{zone}", Verb::Write, About::Contents),
    rule("DELETE", "/api/v1/servers/localhost/zones/{zone}", Verb::Manage, About::Contents),
    read("/api/v1/servers/localhost/zones/{zone}/export", About::Records),
    // They change nothing.
    rule("PUT", "/api/v1/servers/localhost/zones/{zone}/notify", Verb::Read, About::Domain),
    rule("PUT", "/api/v1/servers/localhost/zones/{zone}/rectify", Verb::Read, About::Domain),
    rule("PUT", "/api/v1/servers/localhost/zones/{zone}/axfr-retrieve", Verb::Read, About::Domain),
    read("/api/v1/servers/localhost/zones/{zone}/metadata", About::Domain),
    read("/api/v1/servers/localhost/zones/{zone}/metadata/{kind}", About::Domain),
    read("/api/v1/servers/localhost/zones/{zone}/cryptokeys", About::Domain),
];

/// The rule of a route.
pub fn of(method: &str, path: &str) -> Option<&'static Rule> {
    // What may be read may be asked for without its body.
    let method = if method == Method::HEAD.as_str() { Method::GET.as_str() } else { method };
    RULES.iter().find(|rule| rule.method == method && rule.path == path)
}

/// Whether a route is for this caller at all.
///
/// # Errors
/// 403.
pub fn permit(caller: &Caller, method: &Method, path: Option<&MatchedPath>) -> Result<(), Problem> {
    let Some(rule) = path.and_then(|path| of(method.as_str(), path.as_str())) else {
        tracing::error!(%method, ?path, "a route without a policy is refused to everybody");
        return Err(Problem::forbidden("this route has no policy, so it is for nobody"));
    };
    let known = match (rule.about, caller.user()) {
        (About::Platform, _) => Some(Resource::Platform),
        (About::Caller, Some(user)) => Some(Resource::User(user)),
        _ => None,
    };
    if let Some(resource) = known {
        return match actor::decide(caller, rule.verb, resource) {
            Access::Granted => Ok(()),
            Access::Forbidden | Access::Hidden => Err(Problem::forbidden(needed(rule.verb, resource))),
        };
    }
    let grant = match (rule.verb, rule.about) {
        (Verb::Read, _) => Grant::Read,
        (Verb::Write, About::Caller | About::User | About::Tenant) | (Verb::Manage, _) => Grant::Admin,
        (Verb::Write, _) => Grant::Write,
    };
    match &caller.scopes {
        // An operation may be about what needs more: that is asked where it is known.
        Some(scopes) if !scopes.iter().any(|scope| scope.gives(grant)) => {
            let detail = format!("no scope of this token gives {}", grant.name());
            Err(Problem::forbidden(detail))
        }
        _ => Ok(()),
    }
}
