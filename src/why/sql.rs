//! The statements of `why`.

/// $1 domain, $2 owner keys.
pub(super) const NODES: &str = "select r.owner_key, r.type, r.records, r.changed from desired.rrsets r \
     where r.domain_id = $1 and r.owner_key = any($2)";

/// $1 domain, $2 owner keys: those below which something is, with the first of that.
pub(super) const BELOW: &str = "select n.key, f.owner_key, f.type, f.changed from unnest($2::text[]) n(key) \
     cross join lateral (select r.owner_key, r.type, r.changed from desired.rrsets r where r.domain_id = $1 \
         and r.owner_key > n.key || ' ' and r.owner_key < n.key || '!' order by r.owner_key limit 1) f";

/// $1 domain, $2 owner keys: proxied names at them, and those below which one is.
pub(super) const PROXIED: &str = "select n.key, exists (select from desired.hostnames h where h.domain_id = $1 \
         and h.leaving is null and h.owner_key = n.key), \
       exists (select from desired.hostnames h where h.domain_id = $1 and h.leaving is null \
         and h.owner_key > n.key || ' ' and h.owner_key < n.key || '!') from unnest($2::text[]) n(key)";

/// $1 stream, $2 revision: who made it.
pub(super) const MADE: &str = "select e.revision, e.type, e.at, e.actor_kind, e.actor_id, e.token_id, e.on_behalf_of, e.note \
     from events e where e.stream_id = $1 and e.revision = $2 order by e.seq limit 1";

/// $1 domain: what last changed its status, as its deletion.
pub(super) const DELETED: &str = "select e.revision, e.type, e.at, e.actor_kind, e.actor_id, e.token_id, e.on_behalf_of, e.note \
     from events e where e.stream_kind = 1 and e.stream_id = $1 and history_key(e.type, e.data) = '\\x02'::bytea \
     order by e.revision desc limit 1";

/// $1 the platform's stream, $2 when: the pause of then.
pub(super) const PAUSED: &str = "select e.revision, e.type, e.at, e.actor_kind, e.actor_id, e.token_id, e.on_behalf_of, e.note \
     from events e where e.stream_id = $1 and e.type = 'deployments.paused' and e.at = $2 order by e.revision desc limit 1";

/// The name of an edge that an administrator has disabled or drained, if there is one.
pub(super) const EDGE_OUT: &str = "select e.name, e.enabled from desired.edges e \
     where not e.enabled or e.drained order by e.name limit 1";

/// Every statement, for the test that prepares them.
pub const ALL: &[&str] = &[NODES, BELOW, PROXIED, MADE, DELETED, PAUSED, EDGE_OUT];
