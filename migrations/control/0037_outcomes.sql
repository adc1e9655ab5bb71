-- What was seen on targets is written by statements that take many of them, not by one for each.
--
-- The unique index of each leaf of events finds a stream's events: the same index over all leaves is written for nothing.

drop index events_stream;

-- Everything below is also read by the rebuild, which puts another schema in the place of desired.

-- Applies what was seen on targets, in order. Of one deployment mostly one thing is said in a run, so one statement does
-- it; what is said after that takes one more each.
create procedure desired_apply_outcomes(_outcomes jsonb) language plpgsql as $$
declare
    _rounds bigint;
begin
    select max(n) into _rounds
      from (select count(*) as n from jsonb_array_elements(_outcomes) c group by c->>'id', c->>'cluster') of_each;
    for _round in 1 .. coalesce(_rounds, 0) loop
        update desired.deployments t
           -- What is said of an older revision than the one asked for by now leaves it pending.
           set state = case when o.state in ('ahead', 'activating') or t.desired_revision = o.revision
                            then o.state else 'pending' end,
               active_revision = coalesce(o.active, t.active_revision),
               active_generation = coalesce(o.generation, t.active_generation),
               checksum = coalesce(decode(o.checksum, 'hex'), t.checksum),
               serial = coalesce(o.serial, t.serial),
               last_error = o.error,
               verified_at = coalesce(o.verified_at, t.verified_at)
          from (select (c->>'id')::uuid as domain_id, (c->>'cluster')::uuid as cluster_id, c->>'state' as state,
                       (c->>'revision')::bigint as revision, (c->>'active')::bigint as active,
                       (c->>'generation')::bigint as generation, c->>'checksum' as checksum,
                       (c->>'serial')::bigint as serial, c->>'error' as error,
                       (c->>'verified_at')::timestamptz as verified_at,
                       row_number() over (partition by c->>'id', c->>'cluster' order by n) as round
                  from jsonb_array_elements(_outcomes) with ordinality as c(c, n)) o
         where o.round = _round and t.domain_id = o.domain_id and t.cluster_id = o.cluster_id;
    end loop;
end $$;

-- As before, but for what was seen on targets.
create or replace procedure desired_write(
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

    call desired_apply_outcomes(_outcomes);
end $$;
