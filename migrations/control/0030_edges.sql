-- Edges, their cells and pools, and what stands beside the log for them: tokens, identities, sealed keys, heartbeats.

-- Tables of desired, also read by the rebuild, which puts another schema in the place of desired.

create table desired.edges (
    id                 uuid        primary key,
    name               text        not null collate "C",
    country            text        not null,
    continent          text        not null,
    cells              smallint    not null,
    labels             jsonb       not null,
    external_id        text,
    enabled            boolean     not null,
    drained            boolean     not null,
    -- The revision that last changed on which of its cells domains stand; 0: none did.
    placed_revision    bigint      not null default 0,
    identity_serial    text,
    identity_key       text,
    identity_not_after timestamptz,
    -- What told that its identity is used twice, and when.
    cloned             text,
    cloned_at          timestamptz,
    revision           bigint      not null,
    created_at         timestamptz not null
);

create table desired.cells (
    edge_id uuid     not null,
    number  smallint not null,
    drained boolean  not null default false,
    primary key (edge_id, number)
);

create table desired.pools (
    id                  uuid        primary key,
    name                text        not null collate "C",
    kind                text        not null,
    routing             text        not null,
    replicas_per_edge   smallint    not null,
    domains_per_cell    integer     not null,
    minimum_ready_cells smallint    not null,
    revision            bigint      not null,
    created_at          timestamptz not null
);

-- Beside the log, not derived from it.

-- The incarnation of the numbering of what edges hold; a restored log gets the next one.
alter table log_meta add column edge_epoch bigint not null default 1;

-- The one token of each edge, as a digest. Its row is also the lock under which identities are given and taken.
create table edge_tokens (
    edge_id    uuid        primary key,
    hash       bytea       not null,
    expires_at timestamptz not null,
    -- Digest of the keys that it was used with.
    taken_by   bytea,
    taken_at   timestamptz,
    -- The first heartbeat after it was used.
    void_at    timestamptz
);

-- Every identity certificate that was given. What counts at a request is its row, not the certificate alone.
create table edge_identities (
    serial      bytea       primary key,
    edge_id     uuid        not null,
    -- SHA-256 of the public key.
    key         bytea       not null,
    sealing_key text        not null,
    -- Digest of the token that it was given for; null: a renewal.
    token       bytea,
    certificate text        not null,
    not_after   timestamptz not null,
    issued_at   timestamptz not null default now(),
    -- The first heartbeat with it.
    used_at     timestamptz,
    revoked_at  timestamptz,
    -- Whether the log tells of it.
    recorded    boolean     not null default false
);
create index edge_identities_edge on edge_identities (edge_id, issued_at);

-- Keys of the platform and of edges, sealed under the key ring of the secret key file.
create table sealed_secrets (
    kind       text        not null,
    id         text        not null,
    version    integer     not null,
    -- What everybody may know of it: a certificate, a public key.
    public     bytea       not null,
    sealed     bytea       not null,
    created_at timestamptz not null default now(),
    primary key (kind, id, version)
);

-- What the agents say. A heartbeat is no event.
create table edge.heartbeats (
    edge_id     uuid        primary key,
    at          timestamptz not null,
    -- Until when its cells count as in service.
    fresh_until timestamptz not null,
    serial      bytea       not null,
    sequence    bigint      not null,
    source      text        not null,
    body        jsonb       not null,
    -- What tells a clone from a restart.
    watch       jsonb       not null
);
create table edge.refusals (
    edge_id   uuid        not null,
    domain_id uuid        not null,
    revision  bigint      not null,
    code      text        not null,
    detail    text        not null,
    at        timestamptz not null default now(),
    primary key (edge_id, domain_id)
);
create index refusals_newest on edge.refusals (edge_id, at);

-- The cells whose word counts for a domain. Every cell says how far it has come with all changes, those included that
-- stand on other cells of its edge.
create or replace function edge.cells(_domain uuid)
    returns table (edge_id uuid, cell integer, name text, in_service boolean, acked bigint,
                   refused_revision bigint, refused_why text)
    language sql stable as $$
    select c.edge_id, c.number::integer, e.name, coalesce(h.fresh_until > now(), false),
           case when a.epoch = m.edge_epoch then a.sequence else 0 end, r.revision, r.code || ': ' || r.detail
      from desired.cells c join desired.edges e on e.id = c.edge_id cross join log_meta m
      left join edge.heartbeats h on h.edge_id = c.edge_id
      left join edge.acks a on a.edge_id = c.edge_id and a.cell = c.number
      left join edge.refusals r on r.edge_id = c.edge_id and r.domain_id = _domain
     where e.enabled and e.identity_serial is not null and not c.drained
$$;

-- Everything below is also read by the rebuild, which puts another schema in the place of desired.

create or replace procedure desired_apply_edges(_c jsonb) language plpgsql as $$
declare
    _id uuid := (_c->>'id')::uuid;
begin
    case _c->>'do'
    when 'edge_put' then
        insert into desired.edges (id, name, country, continent, cells, labels, external_id, enabled, drained, revision, created_at)
        values (_id, _c->>'name', _c->>'country', _c->>'continent', (_c->>'cells')::smallint, _c->'labels',
                _c->>'external_id', true, false, (_c->>'revision')::bigint, (_c->>'at')::timestamptz);
        insert into desired.cells (edge_id, number) select _id, n from generate_series(0, (_c->>'cells')::smallint - 1) n;
    when 'edge_update' then
        update desired.edges
           set country = _c->>'country', continent = _c->>'continent', labels = _c->'labels',
               external_id = _c->>'external_id', revision = (_c->>'revision')::bigint
         where id = _id;
    when 'edge_enabled' then
        update desired.edges set enabled = (_c->>'enabled')::boolean, revision = (_c->>'revision')::bigint where id = _id;
    when 'edge_drained' then
        update desired.edges set drained = (_c->>'drained')::boolean, revision = (_c->>'revision')::bigint where id = _id;
    when 'cell_drained' then
        update desired.cells set drained = (_c->>'drained')::boolean
         where edge_id = _id and number = (_c->>'cell')::smallint;
        update desired.edges
           set placed_revision = (_c->>'revision')::bigint, revision = (_c->>'revision')::bigint where id = _id;
    when 'edge_identity' then
        update desired.edges
           set identity_serial = _c->>'serial', identity_key = _c->>'key',
               identity_not_after = (_c->>'not_after')::timestamptz, revision = (_c->>'revision')::bigint
         where id = _id;
    when 'edge_revoked' then
        update desired.edges
           set identity_serial = null, identity_key = null, identity_not_after = null, cloned = null, cloned_at = null,
               revision = (_c->>'revision')::bigint
         where id = _id;
    when 'edge_cloned' then
        update desired.edges
           set cloned = _c->>'sign', cloned_at = (_c->>'at')::timestamptz, revision = (_c->>'revision')::bigint
         where id = _id;
    when 'edge_gone' then
        delete from desired.cells where edge_id = _id;
        delete from desired.edges where id = _id;
    when 'pool_put' then
        insert into desired.pools (id, name, kind, routing, replicas_per_edge, domains_per_cell, minimum_ready_cells,
                                   revision, created_at)
        values (_id, _c->>'name', _c->>'kind', _c->>'routing', (_c->>'replicas_per_edge')::smallint,
                (_c->>'domains_per_cell')::integer, (_c->>'minimum_ready_cells')::smallint,
                (_c->>'revision')::bigint, (_c->>'at')::timestamptz);
    -- What stands beside the log. The token's row comes first: it is the lock of a registration that is under way,
    -- whose identity the statement after it then sees.
    when 'edge_token' then
        insert into edge_tokens as t (edge_id, hash, expires_at)
        values (_id, decode(_c->>'hash', 'hex'), now() + make_interval(secs => (_c->>'seconds')::integer))
            on conflict (edge_id) do update
               set hash = excluded.hash, expires_at = excluded.expires_at, taken_by = null, taken_at = null, void_at = null;
        update edge_identities set revoked_at = now() where edge_id = _id and revoked_at is null;
        delete from edge.heartbeats where edge_id = _id;
    when 'edge_identity_recorded' then
        update edge_identities set recorded = true where serial = decode(_c->>'serial', 'hex');
    when 'edge_forgotten' then
        delete from edge_tokens where edge_id = _id;
        delete from edge_identities where edge_id = _id;
        delete from sealed_secrets where kind = 'edge_content_key' and id = _c->>'id';
        delete from edge.heartbeats where edge_id = _id;
        delete from edge.acks where edge_id = _id;
        delete from edge.refusals where edge_id = _id;
    else
        raise exception 'unknown change %', _c->>'do';
    end case;
end $$;
