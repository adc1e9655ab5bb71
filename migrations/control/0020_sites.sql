-- What edges are told of a domain: proxied names, how answers are kept, purges.
-- A fold of the log, kept in the append like the rest of desired.

create table desired.hostnames (
    domain_id uuid   not null,
    -- Labels of the owner reversed, joined by a space; '' at the apex.
    owner_key text   not null collate "C",
    owner     text   not null,
    body      jsonb  not null,
    -- The revision that last changed it.
    changed   bigint not null,
    primary key (domain_id, owner_key)
) with (fillfactor = 90);
create index hostnames_origin on desired.hostnames (domain_id, (body->'origin'->>'host'));
create index hostnames_backup on desired.hostnames (domain_id, (body->'backup'->'origin'->>'host'))
    where body ? 'backup';

-- One row for each domain that was ever told to the edges.
create table desired.sites (
    domain_id     uuid   primary key,
    -- null: the defaults.
    cache         jsonb,
    cache_changed bigint not null default 1,
    cache_epoch   bigint not null default 0,
    -- The newest revision that changes what edges serve.
    edge_revision bigint not null
) with (fillfactor = 80);

-- The newest 1,000 purges of a domain.
create table desired.purges (
    domain_id    uuid        not null,
    -- The epoch that it began.
    epoch        bigint      not null,
    id           uuid        not null,
    scope        text        not null,
    revision     bigint      not null,
    operation_id uuid,
    requested_at timestamptz not null,
    primary key (domain_id, epoch)
);

-- Everything below is also read by the rebuild, which puts another schema in the place of desired.

-- What edges themselves are is told by a later migration, which replaces this.
create procedure desired_apply_edges(_c jsonb) language plpgsql as $$
begin
    raise exception 'unknown change %', _c->>'do';
end $$;

-- Applies one change of what edges are told of a domain.
create procedure desired_apply_sites(_c jsonb) language plpgsql as $$
begin
    case _c->>'do'
    when 'hostname_put' then
        insert into desired.hostnames as t (domain_id, owner_key, owner, body, changed)
        values ((_c->>'id')::uuid, _c->>'key', _c->>'owner', _c->'body', (_c->>'revision')::bigint)
            on conflict (domain_id, owner_key) do update set body = excluded.body, changed = excluded.changed;
    when 'hostname_delete' then
        delete from desired.hostnames where domain_id = (_c->>'id')::uuid and owner_key = _c->>'key';
    when 'cache_put' then
        insert into desired.sites as t (domain_id, cache, cache_changed, edge_revision)
        values ((_c->>'id')::uuid, _c->'cache', (_c->>'revision')::bigint, (_c->>'revision')::bigint)
            on conflict (domain_id) do update set cache = excluded.cache, cache_changed = excluded.cache_changed;
    when 'purge_put' then
        insert into desired.purges (domain_id, epoch, id, scope, revision, operation_id, requested_at)
        values ((_c->>'id')::uuid, (_c->>'epoch')::bigint, (_c->>'purge')::uuid, _c->>'scope',
                (_c->>'revision')::bigint, (_c->>'operation')::uuid, (_c->>'at')::timestamptz);
        delete from desired.purges
         where domain_id = (_c->>'id')::uuid and epoch <= (_c->>'epoch')::bigint - 1000;
        insert into desired.sites as t (domain_id, cache_epoch, edge_revision)
        values ((_c->>'id')::uuid, (_c->>'epoch')::bigint, (_c->>'revision')::bigint)
            on conflict (domain_id) do update set cache_epoch = excluded.cache_epoch;
    -- The domain went or came back: only a domain that edges know of has anything to be told.
    when 'site_touch' then
        update desired.sites set edge_revision = (_c->>'revision')::bigint where domain_id = (_c->>'id')::uuid;
        return;
    else
        call desired_apply_edges(_c);
        return;
    end case;
    insert into desired.sites as t (domain_id, edge_revision)
    values ((_c->>'id')::uuid, (_c->>'revision')::bigint)
        on conflict (domain_id) do update set edge_revision = excluded.edge_revision;
end $$;

-- As before; what it does not know is told on.
create or replace procedure desired_apply(_changes jsonb) language plpgsql as $$
declare
    _c jsonb;
begin
    for _c in select value from jsonb_array_elements(_changes) loop
        case _c->>'do'
        when 'domain_put' then
            update desired.domains set current = false
             where name = _c->>'name' and current and id <> (_c->>'id')::uuid;
            insert into desired.domains as t (id, name, name_key, tenant_id, status, revision, labels, external_id,
                                              serial_base, created_at, updated_at)
            values ((_c->>'id')::uuid, _c->>'name', _c->>'name_key', (_c->>'tenant')::uuid, _c->>'status',
                    (_c->>'revision')::bigint, _c->'labels', _c->>'external_id', (_c->>'serial_base')::bigint,
                    (_c->>'at')::timestamptz, (_c->>'at')::timestamptz);
            update desired.tenants set domains = domains + 1 where id = (_c->>'tenant')::uuid;
        when 'domain_settings' then
            update desired.domains
               set labels = _c->'labels', external_id = _c->>'external_id', serial_base = (_c->>'serial_base')::bigint
             where id = (_c->>'id')::uuid;
        when 'domain_deleted' then
            update desired.domains
               set status_before_delete = status, status = 'deprovisioning', hold_until = (_c->>'hold_until')::timestamptz
             where id = (_c->>'id')::uuid;
            update desired.tenants set domains = domains - 1 where id = (_c->>'tenant')::uuid;
            update desired.deployments set wanted = false where domain_id = (_c->>'id')::uuid;
            insert into desired.serials as t (name, serial) values (_c->>'name', (_c->>'last_serial')::bigint)
                on conflict (name) do update set serial = excluded.serial;
        when 'domain_restored' then
            update desired.domains set status = _c->>'status', status_before_delete = null, hold_until = null
             where id = (_c->>'id')::uuid;
            update desired.tenants set domains = domains + 1 where id = (_c->>'tenant')::uuid;
        when 'deploy' then
            insert into desired.deployments as t
                   (cluster_id, domain_id, wanted, desired_revision, desired_generation, desired_at)
            select c.id, (_c->>'id')::uuid, true, (_c->>'revision')::bigint, p.generation, (_c->>'at')::timestamptz
              from desired.clusters c, desired.platform p
                on conflict (domain_id, cluster_id) do update
                   set wanted = true, desired_revision = excluded.desired_revision, desired_at = excluded.desired_at;
        when 'outcome' then
            update desired.deployments
               -- What is said of an older revision than the one asked for by now leaves it pending.
               set state = case when _c->>'state' in ('ahead', 'activating')
                                  or desired_revision = (_c->>'revision')::bigint
                                then _c->>'state' else 'pending' end,
                   active_revision = coalesce((_c->>'active')::bigint, active_revision),
                   active_generation = coalesce((_c->>'generation')::bigint, active_generation),
                   checksum = coalesce(decode(_c->>'checksum', 'hex'), checksum),
                   serial = coalesce((_c->>'serial')::bigint, serial),
                   last_error = _c->>'error',
                   verified_at = coalesce((_c->>'verified_at')::timestamptz, verified_at)
             where domain_id = (_c->>'id')::uuid and cluster_id = (_c->>'cluster')::uuid;
        when 'tenant_put' then
            insert into desired.tenants (id, name, labels, external_id, revision, created_at)
            values ((_c->>'id')::uuid, _c->>'name', _c->'labels', _c->>'external_id', (_c->>'revision')::bigint,
                    (_c->>'at')::timestamptz);
        when 'member_add' then
            insert into desired.members (user_id, tenant_id) values ((_c->>'user')::uuid, (_c->>'tenant')::uuid)
                on conflict do nothing;
        when 'member_remove' then
            delete from desired.members
             where user_id = (_c->>'user')::uuid and tenant_id = (_c->>'tenant')::uuid;
        when 'user_put' then
            insert into desired.users (id, admin, revision, created_at)
            values ((_c->>'id')::uuid, (_c->>'admin')::boolean, (_c->>'revision')::bigint, (_c->>'at')::timestamptz);
        when 'token_put' then
            insert into desired.tokens (id, user_id, name, expires_at, created_at)
            values ((_c->>'id')::uuid, (_c->>'user')::uuid, _c->>'name', (_c->>'expires_at')::timestamptz,
                    (_c->>'at')::timestamptz);
        when 'token_revoke' then
            update desired.tokens set revoked_at = (_c->>'at')::timestamptz where id = (_c->>'id')::uuid;
        when 'cluster_put' then
            insert into desired.clusters (id, name, database_url_file, dns, front, nameservers, enabled, revision, created_at)
            values ((_c->>'id')::uuid, _c->>'name', _c->>'database_url_file', _c->>'dns', _c->>'front',
                    array(select jsonb_array_elements_text(_c->'nameservers')), (_c->>'enabled')::boolean,
                    (_c->>'revision')::bigint, (_c->>'at')::timestamptz);
            insert into desired.deployments
                   (cluster_id, domain_id, wanted, desired_revision, desired_generation, desired_at)
            select (_c->>'id')::uuid, d.id, true, d.revision, p.generation, (_c->>'at')::timestamptz
              from desired.domains d, desired.platform p where d.status = 'active';
        when 'cluster_update' then
            update desired.clusters
               set database_url_file = _c->>'database_url_file', dns = _c->>'dns', front = _c->>'front',
                   nameservers = array(select jsonb_array_elements_text(_c->'nameservers')),
                   revision = (_c->>'revision')::bigint
             where id = (_c->>'id')::uuid;
        when 'cluster_enabled' then
            update desired.clusters
               set enabled = (_c->>'enabled')::boolean, revision = (_c->>'revision')::bigint
             where id = (_c->>'id')::uuid;
        when 'platform' then
            update desired.platform
               set tenant_id = (_c->>'tenant')::uuid, revision = (_c->>'revision')::bigint;
        when 'identity' then
            update desired.platform
               set identity = _c->'identity', generation = (_c->>'generation')::bigint,
                   revision = (_c->>'revision')::bigint;
            update desired.deployments
               set desired_generation = (_c->>'generation')::bigint, next_attempt_at = '-infinity' where wanted;
        when 'pause' then
            insert into desired.pauses (scope, id, reason, since)
            values (_c->>'scope', _c->>'id', _c->>'reason', (_c->>'at')::timestamptz)
                on conflict (scope, id) do update set reason = excluded.reason, since = excluded.since;
        when 'resume' then
            delete from desired.pauses where scope = _c->>'scope' and id = _c->>'id';
        -- What stands beside the log, not in it.
        when 'person' then
            insert into people (user_id, email) values ((_c->>'id')::uuid, _c->>'email');
        when 'token_secret' then
            insert into token_secrets (token_id, user_id, hash)
            values ((_c->>'id')::uuid, (_c->>'user')::uuid, decode(_c->>'hash', 'hex'));
        else
            call desired_apply_sites(_c);
        end case;
    end loop;
end $$;
