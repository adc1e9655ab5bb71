//! The statements of placement. A test prepares each against the migrated schema.

/// One sight of everything.
pub(super) const SNAPSHOT: &str = "begin isolation level repeatable read read only";

/// What is published, and how many ready cells an edge must have.
pub(super) const PUBLISHED: &str = "select p.endpoints, \
     coalesce((select o.minimum_ready_cells from desired.pools o where o.name = 'shared'), 1::smallint) from desired.platform p";

/// $1 seconds: every edge with its cells. A cell is current when it lacks no change that is older than this.
pub(super) const EDGES: &str = "select e.id, e.name, e.addresses, e.enabled, e.drained, \
     coalesce(e.identity_serial is not null and e.identity_not_after > now(), false), e.cloned is not null, \
     coalesce(h.fresh_until > now(), false), \
     (select coalesce(jsonb_agg(jsonb_build_object('cell', c.number, 'drained', c.drained, \
         'answers', coalesce((r.report->>'http_ready')::boolean and (r.report->>'https_ready')::boolean, false), \
         'acked', coalesce(a.epoch = m.edge_epoch, false), \
         'current', coalesce(a.epoch = m.edge_epoch and a.sequence >= w.sequence, false)) order by c.number), '[]') \
      from desired.cells c left join edge.acks a on a.edge_id = c.edge_id and a.cell = c.number \
      left join lateral (select said as report from jsonb_array_elements(h.body->'cells') said \
          where said->>'cell' = c.number::text limit 1) r on true where c.edge_id = e.id) \
     from desired.edges e cross join log_meta m \
     cross join (select coalesce((select d.sequence from edge.domains d join events v on v.position = d.sequence \
         where v.at < now() - make_interval(secs => $1) order by d.sequence desc limit 1), 0) as sequence) w \
     left join edge.heartbeats h on h.edge_id = e.id order by e.id";

/// $1 name: who holds it and how it stands, the platform's own tenant, and whether it has a DNS identity.
pub(super) const ZONE: &str = "select d.tenant_id, d.status, p.tenant_id, p.identity is not null from desired.platform p \
     left join desired.domains d on d.name = $1 and d.current";

/// A DNS cluster in service: enabled, and reached within a minute.
macro_rules! in_service {
    () => {
        "desired.clusters k join cluster_health g on g.cluster_id = k.id \
         where k.enabled and g.reached_at > now() - interval '60 seconds'"
    };
}

/// Notes the names on their way out that every DNS cluster in service has verified to be gone, and since when.
pub(super) const CLEARED: &str = concat!(
    "insert into edge.drains as t (domain_id, owner_key, leaving) \
     select h.domain_id, h.owner_key, h.leaving from desired.hostnames h \
     where h.leaving is not null and exists (select from ",
    in_service!(),
    ") and not exists (select from ",
    in_service!(),
    " and not exists (select from operations.verified v where v.domain_id = h.domain_id and v.cluster_id = k.id \
         and v.revision >= h.leaving)) \
     on conflict (domain_id, owner_key) do update set leaving = excluded.leaving, clear_at = excluded.clear_at \
     where t.leaving <> excluded.leaving"
);

/// Forgets what is not on its way out any more.
pub(super) const FORGET: &str = "delete from edge.drains t where not exists (select from desired.hostnames h \
     where h.domain_id = t.domain_id and h.owner_key = t.owner_key and h.leaving = t.leaving)";

/// $1 seconds, $2 how many: names that resolvers have forgotten by now, with the revision and the position of their
/// deletion.
pub(super) const LEFT: &str = "select d.name, h.owner, h.leaving, \
     (select max(v.position) from events v where v.stream_id = h.domain_id and v.revision = h.leaving) \
     from edge.drains t join desired.hostnames h on h.domain_id = t.domain_id and h.owner_key = t.owner_key \
     and h.leaving = t.leaving join desired.domains d on d.id = h.domain_id and d.current and d.status = 'active' \
     where t.clear_at <= now() - make_interval(secs => $1) order by t.clear_at limit $2";

/// Every statement.
pub const ALL: &[&str] = &[PUBLISHED, EDGES, ZONE, CLEARED, FORGET, LEFT];
