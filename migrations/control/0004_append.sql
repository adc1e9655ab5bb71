-- The append: one CALL that begins, checks, writes and commits on the server.
-- What cannot be done is told as data in _result, after a rollback:
--   {"outcome": "committed", "first": N}   the events stand at N, N+1, …
--   {"outcome": "again"}                   a stream moved on, or a name or key was taken, since it was read

create procedure append_batch(
    _batch uuid,
    -- streams: the revision that was read, the revision and chain end after the batch
    _s_id uuid[], _s_kind smallint[], _s_read bigint[], _s_revision bigint[], _s_hash bytea[],
    -- claims: the holder that was read, the holder from now on
    _c_ns smallint[], _c_name text[], _c_read uuid[], _c_holder uuid[],
    -- receipts
    _k_caller uuid[], _k_key uuid[], _k_request bytea[], _k_outcome text[],
    -- clients
    _n_digest bytea[], _n_salt bytea[], _n_ip text[], _n_agent text[],
    -- rrsets: one entry for each that changed; records joined by line feeds, null: deleted
    _r_domain uuid[], _r_key text[], _r_type integer[], _r_owner text[], _r_ttl bigint[],
    _r_records text[], _r_comment text[], _r_changed bigint[],
    -- domains: one entry for each that has a new revision
    _d_id uuid[], _d_revision bigint[], _d_at timestamptz[], _d_rrsets bigint[], _d_records bigint[],
    -- everything else of desired
    _changes jsonb,
    -- operations
    _o_id uuid[], _o_kind text[], _o_domain_id uuid[], _o_domain text[], _o_tenant uuid[], _o_revision bigint[],
    _o_actor uuid[], _o_at timestamptz[],
    -- events
    _e_id uuid[], _e_stream_kind smallint[], _e_stream uuid[], _e_revision bigint[], _e_seq integer[], _e_type text[],
    _e_schema smallint[], _e_at timestamptz[], _e_domain_id uuid[], _e_domain text[], _e_tenant uuid[],
    _e_actor_kind smallint[], _e_actor uuid[], _e_token uuid[], _e_behalf uuid[], _e_client bytea[], _e_request uuid[],
    _e_operation uuid[], _e_note text[], _e_change uuid[], _e_cause bigint[], _e_hash bytea[], _e_data bytea[],
    inout _result jsonb
) language plpgsql as $$
declare
    _n    bigint;
    _head bigint;
begin
    if current_setting('transaction_isolation') <> 'read committed' then
        raise exception 'append_batch needs READ COMMITTED';
    end if;
    -- The same batch may still be on its way in a connection that its caller has
    -- given up: it ends first, then its row below tells what became of it.
    perform pg_advisory_xact_lock(7004, hashtext(_batch::text));
    perform pg_advisory_xact_lock_shared(7000);

    -- A batch whose answer was lost is answered, not repeated.
    select first_position into _head from batches where id = _batch;
    if found then
        _result := jsonb_build_object('outcome', 'committed', 'first', _head);
        rollback;
        perform pg_advisory_unlock_all();
        return;
    end if;

    -- Streams in the order of their ids, so that two batches cannot deadlock.
    perform 1 from streams where id = any(_s_id) order by id for update;
    select count(*) into _n
      from unnest(_s_id, _s_read) as s(id, read) left join streams t on t.id = s.id
     where coalesce(t.revision, 0) <> s.read;
    if _n > 0 then
        _result := jsonb_build_object('outcome', 'again');
        rollback;
        perform pg_advisory_unlock_all();
        return;
    end if;
    insert into streams as t (id, kind, revision, last_hash)
    select * from unnest(_s_id, _s_kind, _s_revision, _s_hash) as s(id, kind, revision, hash) order by s.id
        on conflict (id) do update set revision = excluded.revision, last_hash = excluded.last_hash;

    if cardinality(_c_ns) > 0 then
        with c as (select * from unnest(_c_ns, _c_name, _c_read, _c_holder) as c(ns, name, read, holder)),
        w as (
            insert into claims as t (ns, name, holder) select ns, name, holder from c order by ns, name
            on conflict (ns, name) do update set holder = excluded.holder
                where t.holder = (select read from c where c.ns = t.ns and c.name = t.name)
            returning 1)
        select count(*) into _n from w;
        if _n < cardinality(_c_ns) then
            _result := jsonb_build_object('outcome', 'again');
            rollback;
            perform pg_advisory_unlock_all();
            return;
        end if;
    end if;

    if cardinality(_k_caller) > 0 then
        with w as (
            insert into receipts as t (caller, key, request, outcome)
            select k.caller, k.key, k.request, k.outcome::jsonb
              from unnest(_k_caller, _k_key, _k_request, _k_outcome) as k(caller, key, request, outcome)
             order by 1, 2
            on conflict (caller, key) do update
                set request = excluded.request, outcome = excluded.outcome, at = excluded.at
                where t.at < now() - interval '24 hours'
            returning 1)
        select count(*) into _n from w;
        if _n < cardinality(_k_caller) then
            _result := jsonb_build_object('outcome', 'again');
            rollback;
            perform pg_advisory_unlock_all();
            return;
        end if;
    end if;

    if cardinality(_n_digest) > 0 then
        insert into clients (digest, salt, ip, agent)
        select * from unnest(_n_digest, _n_salt, _n_ip, _n_agent) order by 1 on conflict do nothing;
    end if;

    call desired_write(_r_domain, _r_key, _r_type, _r_owner, _r_ttl, _r_records, _r_comment, _r_changed,
                       _d_id, _d_revision, _d_at, _d_rrsets, _d_records, _changes);

    if cardinality(_o_id) > 0 then
        insert into operations.operations (id, kind, lane, domain_id, domain, tenant_id, revision, actor_id, created_at)
        select o.id, o.kind, 'runtime', o.domain_id, o.domain, o.tenant_id, o.revision, o.actor, o.at
          from unnest(_o_id, _o_kind, _o_domain_id, _o_domain, _o_tenant, _o_revision, _o_actor, _o_at)
               as o(id, kind, domain_id, domain, tenant_id, revision, actor, at)
            on conflict do nothing;
    end if;

    -- Last: the tail of the log. max() stands in a statement of its own, after
    -- the lock, so that its snapshot sees every earlier commit.
    perform pg_advisory_xact_lock(7001);
    select coalesce(max(position), 0) into _head from events;
    insert into events (position, id, stream_kind, stream_id, revision, seq, type, schema, at, domain_id, domain,
                        tenant_id, actor_kind, actor_id, token_id, on_behalf_of, client, request_id, operation_id,
                        note, change_id, cause, hash, data)
    select _head + e.n, e.id, e.stream_kind, e.stream_id, e.revision, e.seq, e.type, e.schema, e.at, e.domain_id,
           e.domain, e.tenant_id, e.actor_kind, e.actor_id, e.token_id, e.behalf, e.client, e.request_id,
           e.operation_id, e.note, e.change_id, e.cause, e.hash, e.data
      from unnest(_e_id, _e_stream_kind, _e_stream, _e_revision, _e_seq, _e_type, _e_schema, _e_at, _e_domain_id,
                  _e_domain, _e_tenant, _e_actor_kind, _e_actor, _e_token, _e_behalf, _e_client, _e_request,
                  _e_operation, _e_note, _e_change, _e_cause, _e_hash, _e_data) with ordinality
           as e(id, stream_kind, stream_id, revision, seq, type, schema, at, domain_id, domain, tenant_id, actor_kind,
                actor_id, token_id, behalf, client, request_id, operation_id, note, change_id, cause, hash, data, n);
    insert into batches (id, first_position, events) values (_batch, _head + 1, cardinality(_e_id));
    if cardinality(_e_id) > 0 then
        perform pg_notify('headwater_log', (_head + cardinality(_e_id))::text);
    end if;
    _result := jsonb_build_object('outcome', 'committed', 'first', _head + 1);
    commit;
    perform pg_advisory_unlock_all();
end $$;

-- Everything below is also read by the rebuild, which puts another schema in the place of desired.

-- Writes what a run of events changes in desired. The result is the same however
-- the log is cut into runs: what makes and ends rows goes first, then the new
-- revisions, then what was seen on the targets, which is judged by them.
create procedure desired_write(
    _r_domain uuid[], _r_key text[], _r_type integer[], _r_owner text[], _r_ttl bigint[],
    _r_records text[], _r_comment text[], _r_changed bigint[],
    _d_id uuid[], _d_revision bigint[], _d_at timestamptz[], _d_rrsets bigint[], _d_records bigint[],
    _changes jsonb
) language plpgsql as $$
declare
    _outcomes jsonb;
begin
    _outcomes := coalesce(jsonb_path_query_array(_changes, '$[*] ? (@.do == "outcome")'), '[]');
    -- Rows that several streams write are locked in the order of their keys, so that two batches cannot deadlock.
    perform 1 from desired.deployments
      where domain_id = any(_d_id || array(select (c->>'id')::uuid from jsonb_array_elements(_outcomes) c))
      order by domain_id, cluster_id for update;
    if _changes is not null then
        perform 1 from desired.tenants
          where id in (select (c->>'tenant')::uuid from jsonb_array_elements(_changes) c)
          order by id for update;
        call desired_apply(jsonb_path_query_array(_changes, '$[*] ? (@.do != "outcome")'));
    end if;

    if cardinality(_r_domain) > 0 then
        delete from desired.rrsets t
         using unnest(_r_domain, _r_key, _r_type, _r_records) as r(domain_id, owner_key, type, records)
         where r.records is null and t.domain_id = r.domain_id and t.owner_key = r.owner_key and t.type = r.type;
        insert into desired.rrsets as t (domain_id, owner_key, type, owner, ttl, records, comment, changed)
        select r.domain_id, r.owner_key, r.type, r.owner, r.ttl, string_to_array(r.records, e'\n'), r.comment, r.changed
          from unnest(_r_domain, _r_key, _r_type, _r_owner, _r_ttl, _r_records, _r_comment, _r_changed)
               as r(domain_id, owner_key, type, owner, ttl, records, comment, changed)
         where r.records is not null
            on conflict (domain_id, owner_key, type) do update
               set ttl = excluded.ttl, records = excluded.records, comment = excluded.comment, changed = excluded.changed;
    end if;

    if cardinality(_d_id) > 0 then
        update desired.domains t
           set revision = d.revision, updated_at = d.at, rrsets = t.rrsets + d.rrsets, records = t.records + d.records
          from unnest(_d_id, _d_revision, _d_at, _d_rrsets, _d_records) as d(id, revision, at, rrsets, records)
         where t.id = d.id;
        update desired.deployments t
           set desired_revision = d.revision, desired_at = greatest(t.desired_at, d.at), next_attempt_at = '-infinity',
               attempts = 0, state = case when t.state in ('ahead', 'activating') then t.state else 'pending' end
          from unnest(_d_id, _d_revision, _d_at) as d(id, revision, at)
         where t.domain_id = d.id;
    end if;

    call desired_apply(_outcomes);
end $$;

-- Applies the rarer changes of desired, in order. Each is {"do": name, …}.
create procedure desired_apply(_changes jsonb) language plpgsql as $$
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
            raise exception 'unknown change %', _c->>'do';
        end case;
    end loop;
end $$;
