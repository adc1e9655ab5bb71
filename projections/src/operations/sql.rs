//! Statements of `operations`.

pub(super) const TARGETS: &str = "select cluster_id, name, enabled from operations.targets";

macro_rules! columns {
    () => {
        "select id, domain_id, cluster_id, revision, state, served, kind from operations.operations where "
    };
}

/// $1 domains, $2 operations, $3 whether every open one. Each part has an index of its own: what it reads is what is
/// open, not what ever was.
pub(super) const OPERATIONS: &str = concat!(
    columns!(),
    "state in ('pending', 'running') and domain_id = any($1) union ",
    columns!(),
    "state in ('pending', 'running') and cluster_id is not null union ",
    columns!(),
    "state in ('pending', 'running') and $3 union ",
    columns!(),
    "id = any($2)"
);

/// $1 domains, $2 whether those of every open operation.
pub(super) const VERIFIED: &str = "select domain_id, cluster_id, revision from operations.verified \
     where domain_id = any($1) \
     union select v.domain_id, v.cluster_id, v.revision from operations.verified v \
     join operations.operations o on o.domain_id = v.domain_id where $2 and o.state in ('pending', 'running')";

/// $1 … $8 the columns, one array each. The append has made most of them already.
pub(super) const BEGIN: &str = "insert into operations.operations (id, kind, lane, domain_id, domain, tenant_id, revision, actor_id, created_at) \
     select id, kind, 'runtime', domain_id, domain, tenant_id, revision, actor_id, at \
     from unnest($1::uuid[], $2::text[], $3::uuid[], $4::text[], $5::uuid[], $6::bigint[], $7::uuid[], \
     $8::timestamptz[]) as o(id, kind, domain_id, domain, tenant_id, revision, actor_id, at) \
     on conflict do nothing";

/// $1 … $11 the columns, one array each.
pub(super) const UPDATE: &str = "update operations.operations t set state = o.state, served = o.served, \
     superseded_by = o.superseded_by, partial = o.partial::jsonb, error = o.error::jsonb, \
     finished_at = o.finished_at, cluster_id = o.cluster_id, result = o.result::jsonb, cells = o.cells::jsonb, \
     warnings = o.warnings::jsonb \
     from unnest($1::uuid[], $2::text[], $3::boolean[], $4::uuid[], $5::text[], $6::text[], $7::timestamptz[], \
     $8::uuid[], $9::text[], $10::text[], $11::text[]) as o(id, state, served, superseded_by, partial, error, \
     finished_at, cluster_id, result, cells, warnings) \
     where t.id = o.id";

/// $1 domains, $2 clusters, $3 revisions, pairwise.
pub(super) const PUT_VERIFIED: &str = "insert into operations.verified as t (domain_id, cluster_id, revision) \
     select * from unnest($1::uuid[], $2::uuid[], $3::bigint[]) \
     on conflict (domain_id, cluster_id) do update set revision = excluded.revision";

/// $1 clusters, $2 names, $3 whether enabled, pairwise.
pub(super) const PUT_TARGETS: &str = "insert into operations.targets as t (cluster_id, name, enabled) \
     select * from unnest($1::uuid[], $2::text[], $3::boolean[]) \
     on conflict (cluster_id) do update set name = excluded.name, enabled = excluded.enabled";

/// $1 clusters that are no more.
pub(super) const DROP_TARGETS: &str = "delete from operations.targets where cluster_id = any($1)";

/// $1 clusters that are no more.
pub(super) const DROP_VERIFIED: &str = "delete from operations.verified where cluster_id = any($1)";

/// Every statement, for the test that prepares them.
pub const ALL: &[&str] =
    &[TARGETS, OPERATIONS, VERIFIED, BEGIN, UPDATE, PUT_VERIFIED, PUT_TARGETS, DROP_TARGETS, DROP_VERIFIED];
