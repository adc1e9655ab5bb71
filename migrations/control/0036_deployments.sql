-- How deployments are found.
--
-- An index over nothing but the cluster offers itself for finding one deployment: a plan made while the table was
-- small read all of its cluster's for it, for as long as the connection lived. So each index says what it is for.

drop index desired.deployments_check;
create index deployments_rolling on desired.deployments (cluster_id, checked_at) where wanted;
create index deployments_changed on desired.deployments (cluster_id, verified_at)
    where wanted and state = 'current' and verified_at > checked_at;

-- The owner of the domain, so that tenants can take turns by an index.
alter table desired.deployments add column tenant_id uuid;
update desired.deployments p set tenant_id = (select d.tenant_id from desired.domains d where d.id = p.domain_id);

-- Of the schema that its table stands in, also once a rebuilt one has taken the place of the live one.
create function desired.deployment_of_tenant() returns trigger language plpgsql as $$
begin
    execute format('select tenant_id from %I.domains where id = $1', tg_table_schema)
       into new.tenant_id using new.domain_id;
    return new;
end $$;
create trigger deployments_tenant before insert on desired.deployments
    for each row execute function desired.deployment_of_tenant();

drop index desired.deployments_due;
create index deployments_turns on desired.deployments (cluster_id, tenant_id, next_attempt_at, desired_at)
    where desired_revision <> active_revision or desired_generation <> active_generation or state in ('activating', 'failed');
