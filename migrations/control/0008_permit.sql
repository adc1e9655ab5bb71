-- Leave to write to a cluster, in one call (src/deploy/permit.rs). The lock first; the look in a statement of its own
-- after it, which in a volatile function sees what was committed while the lock was waited for.
create function deploy_permit(_cluster uuid) returns boolean language plpgsql volatile as $$
begin
    perform pg_advisory_xact_lock_shared(7011, hashtext(_cluster::text));
    return coalesce((select c.enabled from desired.clusters c where c.id = _cluster), false);
end
$$;
