-- Where proxied names are answered: public addresses of edges, the endpoints that DNS gives out for them, and names on
-- their way in (edges first, then DNS) and out (DNS first, then edges).

-- Tables of desired, also read by the rebuild, which puts another schema in the place of desired.

alter table desired.edges add column addresses text[] not null default '{}';

alter table desired.platform
    -- What DNS answers for proxied names: zone, TTL, and by pool the edges with their addresses. null: nothing yet.
    add column endpoints       jsonb,
    -- The generation from which on its zone and TTL hold.
    add column zone_generation bigint not null default 0;

alter table desired.hostnames
    -- The revision and the time at which it was added: DNS waits a while for cells to have that.
    add column added    bigint      not null default 0,
    add column added_at timestamptz not null default '-infinity',
    -- The revision that took it out of DNS; edges serve it until it is withdrawn.
    add column leaving  bigint;
create index hostnames_added on desired.hostnames (added_at);
create index hostnames_leaving on desired.hostnames (domain_id) where leaving is not null;
create index hostnames_apex on desired.hostnames (domain_id) where owner_key = '';

-- Beside the log, not derived from it.

-- Names that were proxied before.
update desired.hostnames h set added = e.revision, added_at = e.at
  from desired.hostnames n cross join lateral (
      select e.revision, e.at from events e
       where e.stream_id = n.domain_id
         and (e.type = 'domain.restored'
              or e.type = 'hostname.replaced'
                 and convert_from(e.data, 'UTF8')::jsonb->>'name' = n.owner
                 and convert_from(e.data, 'UTF8')::jsonb->'before' = 'null')
       order by e.revision desc, e.seq desc limit 1) e
 where h.domain_id = n.domain_id and h.owner_key = n.owner_key;

-- Since when no DNS cluster in service answers with a name that is leaving: seen, not decided, so not an event.
create table edge.drains (
    domain_id uuid        not null,
    owner_key text        not null collate "C",
    leaving   bigint      not null,
    clear_at  timestamptz not null default now(),
    primary key (domain_id, owner_key)
);

-- Whether DNS has to wait with a domain, whose revision _active is deployed, because it has a proxied name that a cell
-- in service does not serve yet. Nothing waits longer than 30 s for edges, counted from the first such name.
create function edge.waits(_domain uuid, _active bigint) returns boolean language sql stable cost 10000 as $$
    select exists (
        select from (select max(h.added) as added, min(h.added_at) as since from desired.hostnames h
                      where h.domain_id = _domain and h.added > _active and h.leaving is null) n
          left join edge.domains e on e.domain_id = _domain
         where n.added is not null
           and n.since between now() - interval '30 seconds' and now() + interval '30 seconds'
           and exists (select from edge.cells(_domain) c
                        where c.in_service and (e.revision is null or e.revision < n.added or c.acked < e.sequence)))
$$;

-- Everything below is also read by the rebuild, which puts another schema in the place of desired.

-- As before, with names on their way out and with what DNS answers for names.
create or replace procedure desired_apply_sites(_c jsonb) language plpgsql as $$
declare
    _id uuid := (_c->>'id')::uuid;
begin
    case _c->>'do'
    when 'hostname_put' then
        insert into desired.hostnames as t (domain_id, owner_key, owner, body, changed, added, added_at)
        values (_id, _c->>'key', _c->>'owner', _c->'body', (_c->>'revision')::bigint, (_c->>'revision')::bigint,
                (_c->>'at')::timestamptz)
            on conflict (domain_id, owner_key) do update
               set body = excluded.body, changed = excluded.changed, leaving = null,
                   added = case when t.leaving is null then t.added else excluded.added end,
                   added_at = case when t.leaving is null then t.added_at else excluded.added_at end;
        -- What is answered for it is that of the newest generation.
        update desired.deployments t set desired_generation = p.generation
          from desired.platform p where t.domain_id = _id and t.desired_generation <> p.generation;
    when 'hostname_delete' then
        -- Edges serve it for as long as resolvers may know it; where DNS never answered with it, no longer.
        update desired.hostnames h set leaving = (_c->>'revision')::bigint, changed = (_c->>'revision')::bigint
          from desired.platform p, desired.domains d
         where h.domain_id = _id and h.owner_key = _c->>'key'
           and d.id = _id and d.status = 'active' and p.endpoints is not null;
        if not found then
            delete from desired.hostnames where domain_id = _id and owner_key = _c->>'key';
        end if;
    when 'hostname_withdrawn' then
        delete from desired.hostnames where domain_id = _id and owner_key = _c->>'key' and leaving is not null;
    when 'cache_put' then
        insert into desired.sites as t (domain_id, cache, cache_changed, edge_revision)
        values (_id, _c->'cache', (_c->>'revision')::bigint, (_c->>'revision')::bigint)
            on conflict (domain_id) do update set cache = excluded.cache, cache_changed = excluded.cache_changed;
    when 'purge_put' then
        insert into desired.purges (domain_id, epoch, id, scope, revision, operation_id, requested_at)
        values (_id, (_c->>'epoch')::bigint, (_c->>'purge')::uuid, _c->>'scope',
                (_c->>'revision')::bigint, (_c->>'operation')::uuid, (_c->>'at')::timestamptz);
        delete from desired.purges where domain_id = _id and epoch <= (_c->>'epoch')::bigint - 1000;
        insert into desired.sites as t (domain_id, cache_epoch, edge_revision)
        values (_id, (_c->>'epoch')::bigint, (_c->>'revision')::bigint)
            on conflict (domain_id) do update set cache_epoch = excluded.cache_epoch;
    -- The domain went or came back: only a domain that edges know of has anything to be told.
    when 'site_touch' then
        update desired.sites set edge_revision = (_c->>'revision')::bigint where domain_id = _id;
        if (_c->>'restored')::boolean then
            update desired.hostnames set added = (_c->>'revision')::bigint, added_at = (_c->>'at')::timestamptz
             where domain_id = _id;
        end if;
        return;
    -- What is rendered of the domain is that of the newest generation.
    when 'regenerate' then
        update desired.deployments t set desired_generation = p.generation
          from desired.platform p where t.domain_id = _id and t.desired_generation <> p.generation;
        return;
    -- A domain is at the same generation on every cluster, so that its serial is.
    when 'cluster_generations' then
        update desired.deployments t set desired_generation = o.generation
          from (select domain_id, max(desired_generation) as generation from desired.deployments
                 where cluster_id <> _id group by domain_id) o
         where t.cluster_id = _id and o.domain_id = t.domain_id and t.desired_generation <> o.generation;
        return;
    when 'edge_addresses' then
        update desired.edges set addresses = array(select jsonb_array_elements_text(_c->'addresses')) where id = _id;
        return;
    -- Only an apex holds the addresses itself; other names lead to the pool's, in the zone that is the platform's own.
    when 'endpoints' then
        perform 1 from desired.deployments t
          where t.wanted and t.domain_id in (
              select h.domain_id from desired.hostnames h where h.owner_key = '' and h.leaving is null
              union all select h.domain_id from desired.hostnames h
                         where (_c->>'all')::boolean and h.leaving is null
              union all select d.id from desired.domains d
                         where d.current and d.name in (_c->'endpoints'->>'zone', _c->>'before'))
          order by t.domain_id, t.cluster_id for update;
        update desired.deployments t
           set desired_generation = (_c->>'generation')::bigint, next_attempt_at = '-infinity'
         where t.wanted and t.domain_id in (
              select h.domain_id from desired.hostnames h where h.owner_key = '' and h.leaving is null
              union all select h.domain_id from desired.hostnames h
                         where (_c->>'all')::boolean and h.leaving is null
              union all select d.id from desired.domains d
                         where d.current and d.name in (_c->'endpoints'->>'zone', _c->>'before'));
        update desired.platform
           set endpoints = _c->'endpoints', generation = (_c->>'generation')::bigint,
               zone_generation = case when (_c->>'all')::boolean then (_c->>'generation')::bigint
                                      else zone_generation end,
               revision = (_c->>'revision')::bigint;
        return;
    else
        call desired_apply_edges(_c);
        return;
    end case;
    insert into desired.sites as t (domain_id, edge_revision)
    values (_id, (_c->>'revision')::bigint)
        on conflict (domain_id) do update set edge_revision = excluded.edge_revision;
end $$;
