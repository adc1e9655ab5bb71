-- Search over all domains: RRsets by a value, a name, a type or a tool, and domains by a part of their name.

create extension if not exists pg_trgm;

-- Tables of desired, also read by the rebuild, which puts another schema in the place of desired.

-- What an RRset is found by: `rrset_terms` says what that is. In the order in which RRsets are listed, so that the first
-- of a value that everything has is as near as that of one that nothing has. Beside the RRsets and not an index over
-- them, so that a changed value leaves their own indexes alone.
create table desired.terms (
    term      bigint  not null,
    domain_id uuid    not null,
    owner_key text    not null collate "C",
    type      integer not null,
    primary key (term, domain_id, owner_key, type)
);
create index rrsets_name on desired.rrsets (owner_key, domain_id, type);
create index rrsets_type on desired.rrsets (type, domain_id, owner_key);
create index rrsets_manager on desired.rrsets (managed_by, domain_id, owner_key, type) where managed_by is not null;
create index domains_text on desired.domains using gin (name gin_trgm_ops) where current;

-- What follows is not desired.

-- The terms of an RRset: each value, each word of a value (what stands between spaces and quotes, numbers left out, the
-- first 32), and of an owner of several labels its last (1) and its first one (2). Never change it: rows are made of it.
create function rrset_terms(_key text, _records text[]) returns bigint[]
language plpgsql immutable parallel safe as $$
begin
    -- As most are: one value that is one word.
    if cardinality(_records) = 1 and strpos(_key, ' ') = 0 and _records[1] !~ '[ "]' then
        return array[hashtextextended(_records[1], 0)];
    end if;
    return array(
        select distinct hashtextextended(w.word, w.kind) from (
            select v, 0::bigint from unnest(_records) as v
            union all
            select n.word, 0
              from unnest(_records) as v cross join lateral (
                  select s.word from string_to_table(translate(v, '"', ' '), ' ') as s(word)
                   where s.word <> '' and s.word <> v and s.word !~ '^[0-9]+$' limit 32) n
            union all
            select split_part(_key, ' ', 1), 1 where strpos(_key, ' ') > 0
            union all
            select split_part(_key, ' ', -1), 2 where strpos(_key, ' ') > 0
        ) as w(word, kind));
end $$;

insert into desired.terms (term, domain_id, owner_key, type)
    select w.term, r.domain_id, r.owner_key, r.type
      from desired.rrsets r cross join lateral unnest(rrset_terms(r.owner_key, r.records)) as w(term);

-- Everything below is also read by the rebuild, which puts another schema in the place of desired.

-- As before, with the terms of each RRset.
create or replace procedure desired_write(
    _r_domain uuid[], _r_key text[], _r_type integer[], _r_owner text[], _r_ttl bigint[],
    _r_records text[], _r_comment text[], _r_changed bigint[], _r_managed text[],
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
        -- First, while the values that they had are still there. Of an RRset that changes, only what differs is written.
        with changed as materialized (
            select r.domain_id, r.owner_key, r.type,
                   case when t.records is null then '{}' else rrset_terms(r.owner_key, t.records) end as before,
                   case when r.records is null then '{}'
                        else rrset_terms(r.owner_key, string_to_array(r.records, e'\n')) end as after
              from unnest(_r_domain, _r_key, _r_type, _r_records) as r(domain_id, owner_key, type, records)
              left join desired.rrsets t
                on t.domain_id = r.domain_id and t.owner_key = r.owner_key and t.type = r.type),
        gone as (
            delete from desired.terms t using changed c cross join lateral unnest(c.before) as w(term)
             where t.term = w.term and t.domain_id = c.domain_id and t.owner_key = c.owner_key and t.type = c.type
               and not w.term = any(c.after))
        insert into desired.terms (term, domain_id, owner_key, type)
        select w.term, c.domain_id, c.owner_key, c.type from changed c cross join lateral unnest(c.after) as w(term)
         where not w.term = any(c.before)
            on conflict do nothing;
        delete from desired.rrsets t
         using unnest(_r_domain, _r_key, _r_type, _r_records) as r(domain_id, owner_key, type, records)
         where r.records is null and t.domain_id = r.domain_id and t.owner_key = r.owner_key and t.type = r.type;
        insert into desired.rrsets as t (domain_id, owner_key, type, owner, ttl, records, comment, changed,
                                          managed_by)
        select r.domain_id, r.owner_key, r.type, r.owner, r.ttl, string_to_array(r.records, e'\n'), r.comment, r.changed,
               r.managed_by
          from unnest(_r_domain, _r_key, _r_type, _r_owner, _r_ttl, _r_records, _r_comment, _r_changed, _r_managed)
               as r(domain_id, owner_key, type, owner, ttl, records, comment, changed, managed_by)
         where r.records is not null
            on conflict (domain_id, owner_key, type) do update
               set ttl = excluded.ttl, records = excluded.records, comment = excluded.comment,
                   changed = excluded.changed, managed_by = excluded.managed_by;
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
