-- DNS clusters that go.

-- Columns of desired, also made by the rebuild, which puts another schema in the place of desired.

-- Asked to go, and enabled never again.
alter table desired.clusters add column leaving boolean not null default false;

-- What follows is not desired.

-- Taking a cluster's zones away is imperative work.
drop trigger operations_bulk_lane on operations.operations;
create trigger operations_bulk_lane before insert on operations.operations
    for each row when (new.kind like 'projection.%' or new.kind in ('history.undo', 'import', 'import.cutover',
        'import.compare', 'dns_cluster.remove'))
    execute function operations_bulk_lane();

-- Everything below is also read by the rebuild, which puts another schema in the place of desired.

alter procedure desired_apply_people(jsonb) rename to desired_apply_before_clusters;

-- Applies one change about the end of a cluster.
create procedure desired_apply_clusters(_c jsonb) language plpgsql as $$
declare
    _id uuid := (_c->>'id')::uuid;
begin
    case _c->>'do'
    when 'leaving_cluster' then
        update desired.clusters set leaving = true where id = _id;
    when 'leaving_cluster_gone' then
        delete from desired.deployments where cluster_id = _id;
        delete from desired.pauses where scope = 'target' and id = _id::text;
        delete from desired.clusters where id = _id;
    else
        raise exception 'unknown change %', _c->>'do';
    end case;
end $$;

-- As before; what is about the end of clusters is told on.
create procedure desired_apply_people(_c jsonb) language plpgsql as $$
begin
    if starts_with(_c->>'do', 'leaving_') then
        call desired_apply_clusters(_c);
    else
        call desired_apply_before_clusters(_c);
    end if;
end $$;
