-- Rights are compared by the user whose they are, no longer by the streams that they are folded from: what else happens in
-- those (tokens that are made, labels, other members) makes nobody's command wait.

-- How often what a user may do has changed; no row: never since there is this table. Written under the lock of the log's
-- tail, by the batch that changes it.
create table rights (
    user_id uuid primary key,
    number  bigint not null
);

-- As before, but for the last arguments but one; _result may say, as before:
--   {"outcome": "stale"}                   the rights of a user have changed since they were read
drop procedure append_batch;
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
    _r_records text[], _r_comment text[], _r_changed bigint[], _r_managed text[],
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
    -- rights: users with whose rights it was decided, and the number at which each was read
    _a_user uuid[], _a_read bigint[],
    -- users whose rights this batch changes
    _g_user uuid[],
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

    call desired_write(_r_domain, _r_key, _r_type, _r_owner, _r_ttl, _r_records, _r_comment, _r_changed, _r_managed,
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
    -- The same holds of rights: whatever changed them before this batch is seen here, and what this batch changes counts
    -- for those that come after it.
    if cardinality(_a_user) > 0 and exists (
        select from unnest(_a_user, _a_read) as a(id, read) left join rights r on r.user_id = a.id
         where coalesce(r.number, 0) <> a.read)
    then
        _result := jsonb_build_object('outcome', 'stale');
        rollback;
        perform pg_advisory_unlock_all();
        return;
    end if;
    if cardinality(_g_user) > 0 then
        insert into rights as t (user_id, number) select g.id, 1 from unnest(_g_user) as g(id) order by 1
            on conflict (user_id) do update set number = t.number + 1;
    end if;
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
