-- Certificates that owners of domains bring. What everybody may know of them is derived from the log; their private keys
-- stand sealed beside it, under (certificate_key, id, version) of sealed_secrets.

-- Tables of desired, also read by the rebuild, which puts another schema in the place of desired.

create table desired.certificates (
    domain_id uuid    primary key,
    id        uuid    not null,
    version   integer not null,
    body      jsonb   not null,
    -- The revision that last changed it.
    changed   bigint  not null
);

-- What follows is not desired.

-- The certificates whose keys go with what is published: [{"id", "version"}].
alter table edge.domains add column keys jsonb not null default '[]';

-- Everything below is also read by the rebuild, which puts another schema in the place of desired.

-- Applies one change of certificates.
create procedure desired_apply_certificates(_c jsonb) language plpgsql as $$
declare
    _id uuid := (_c->>'id')::uuid;
begin
    case _c->>'do'
    when 'certificate_put' then
        insert into desired.certificates as t (domain_id, id, version, body, changed)
        values (_id, (_c->>'certificate')::uuid, (_c->>'version')::integer, _c->'body', (_c->>'revision')::bigint)
            on conflict (domain_id) do update set id = excluded.id, version = excluded.version, body = excluded.body,
                                                  changed = excluded.changed;
    when 'certificate_delete' then
        delete from desired.certificates where domain_id = _id;
    -- What stands beside the log. It goes with its event; the stream's lock keeps its version from being taken twice.
    when 'certificate_key' then
        insert into sealed_secrets as s (kind, id, version, public, sealed)
        values ('certificate_key', _c->>'certificate', (_c->>'version')::integer,
                convert_to(jsonb_build_object('domain', _id, 'fingerprint', _c->>'fingerprint')::text, 'UTF8'),
                decode(_c->>'sealed', 'hex'))
            on conflict (kind, id, version) do update set public = excluded.public, sealed = excluded.sealed;
        return;
    else
        raise exception 'unknown change %', _c->>'do';
    end case;
    insert into desired.sites as t (domain_id, edge_revision)
    values (_id, (_c->>'revision')::bigint)
        on conflict (domain_id) do update set edge_revision = excluded.edge_revision;
end $$;

-- As before; what it does not know is told on.
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
        call desired_apply_certificates(_c);
    end case;
end $$;
