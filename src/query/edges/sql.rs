//! The statements of the reads of edges, cells and pools. A test prepares each against the migrated schema.

/// $1 id, $2 after, $3 how many, $4 external id, $5 labels.
pub(super) const EDGES: &str = "select e.id, e.name, e.country, e.continent, e.cells, e.labels, e.external_id, e.enabled, \
     e.drained, e.identity_serial, e.identity_key, e.identity_not_after, e.cloned, e.cloned_at, e.revision, e.created_at, \
     h.at, h.source, h.body->'agent'->>'version', \
     e.enabled and coalesce(h.fresh_until > now(), false), \
     coalesce(t.expires_at > now() and t.void_at is null and e.identity_serial is null, false), \
     (select case when count(a.*) = count(*) then min(case when a.epoch = m.edge_epoch then a.sequence else 0 end) end \
         from desired.cells c left join edge.acks a on a.edge_id = c.edge_id and a.cell = c.number \
         where c.edge_id = e.id and not c.drained), n.newest, e.addresses \
     from desired.edges e cross join log_meta m cross join (select coalesce(max(sequence), 0) as newest from edge.domains) n \
     left join edge.heartbeats h on h.edge_id = e.id left join edge_tokens t on t.edge_id = e.id \
     where ($1::uuid is null or e.id = $1) and ($2::uuid is null or e.id > $2) \
     and ($4::text is null or e.external_id = $4) and ($5::jsonb is null or e.labels @> $5) order by e.id limit $3";

/// $1 edge or null, $2 after edge, $3 after number, $4 how many.
pub(super) const CELLS: &str = "select c.edge_id, e.name, c.number, c.drained, a.epoch, a.sequence, a.at, r.report, \
     e.enabled and coalesce(h.fresh_until > now(), false), m.edge_epoch, n.newest, \
     (select count(*) from edge.domains d where d.sequence > \
         case when a.epoch = m.edge_epoch then a.sequence else 0 end) \
     from desired.cells c join desired.edges e on e.id = c.edge_id cross join log_meta m \
     cross join (select coalesce(max(sequence), 0) as newest from edge.domains) n \
     left join edge.acks a on a.edge_id = c.edge_id and a.cell = c.number \
     left join edge.heartbeats h on h.edge_id = c.edge_id \
     left join lateral (select said as report from jsonb_array_elements(h.body->'cells') said \
         where said->>'cell' = c.number::text limit 1) r on true \
     where ($1::uuid is null or c.edge_id = $1) and ($2::uuid is null or (c.edge_id, c.number) > ($2, $3)) \
     order by c.edge_id, c.number limit $4";

/// $1 sequence: the changes after it.
pub(super) const LAG: &str = "select count(*) from edge.domains where sequence > $1";

/// $1 edge, $2 how many: those that are still about what is desired.
pub(super) const REFUSALS: &str = "select d.name, f.revision, f.code, f.detail, f.at from edge.refusals f \
     join edge.domains d on d.domain_id = f.domain_id and d.revision = f.revision \
     where f.edge_id = $1 order by f.at desc limit $2";

/// $1 edges, $2 how many: the same of several edges, with the cells that domains of each stand on.
pub(super) const CELL_REFUSALS: &str = "select d.name, f.revision, f.code, f.detail, f.at, f.edge_id, f.domain_id, \
     array(select c.number from desired.cells c where c.edge_id = f.edge_id and not c.drained order by c.number) \
     from edge.refusals f join edge.domains d on d.domain_id = f.domain_id and d.revision = f.revision \
     where f.edge_id = any($1) order by f.at desc limit $2";

/// $1 id, $2 after, $3 how many.
pub(super) const POOLS: &str = "select p.id, p.name, p.kind, p.routing, p.replicas_per_edge, p.domains_per_cell, \
     p.minimum_ready_cells, p.revision, p.created_at, \
     (select count(*) from desired.cells), (select count(*) from desired.edges) \
     from desired.pools p where ($1::uuid is null or p.id = $1) and ($2::uuid is null or p.id > $2) \
     order by p.id limit $3";

/// $1 how many: edges that somebody should look at.
pub(super) const STALE: &str = "select e.id, e.name, h.at, \
     e.identity_serial is not null and not coalesce(h.fresh_until > now(), false), \
     e.identity_not_after < now() + interval '1 day', e.cloned \
     from desired.edges e left join edge.heartbeats h on h.edge_id = e.id where e.enabled and ( \
         e.identity_serial is not null and not coalesce(h.fresh_until > now(), false) \
         or e.identity_not_after < now() + interval '1 day' or e.cloned is not null or e.id = any($2)) \
     order by e.name limit $1";

/// $1 edges or null, $2 how many: what their last heartbeats say does not hold on their disks, with the cells that
/// domains stand on.
pub(super) const DAMAGES: &str = "select h.edge_id, d->>'file', d->>'domain', (d->>'revision')::bigint, \
     coalesce((d->>'mended')::boolean, false), (d->>'since')::timestamptz, p.domain_id, \
     array(select c.number from desired.cells c where c.edge_id = h.edge_id and not c.drained order by c.number) \
     from edge.heartbeats h join desired.edges e on e.id = h.edge_id and e.enabled \
     cross join lateral jsonb_array_elements(h.body->'damaged') d \
     left join edge.domains p on p.name = d->>'domain' and not p.removed \
     where $1::uuid[] is null or h.edge_id = any($1) order by h.edge_id, d->>'since', d->>'file' limit $2";

/// $1 edges or null, $2 how many: those that hold changes which the log does not know.
pub(super) const AHEAD: &str = "select h.edge_id, s.epoch, s.sequence, m.edge_epoch, l.head, h.at, \
     array(select c.number from desired.cells c where c.edge_id = h.edge_id and not c.drained order by c.number) \
     from edge.heartbeats h join desired.edges e on e.id = h.edge_id and e.enabled cross join log_meta m \
     cross join (select coalesce(max(position), 0) as head from events) l \
     cross join lateral (select (h.body#>>'{holds,epoch}')::bigint as epoch, \
         (h.body#>>'{holds,sequence}')::bigint as sequence) s \
     where ($1::uuid[] is null or h.edge_id = any($1)) and (s.epoch, s.sequence) > (m.edge_epoch, l.head) \
     order by h.edge_id limit $2";

/// Every statement.
pub const ALL: &[&str] = &[EDGES, CELLS, LAG, REFUSALS, CELL_REFUSALS, POOLS, STALE, DAMAGES, AHEAD];
