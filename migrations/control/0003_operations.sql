-- Operations: the durable receipts of accepted work. The row is made in the
-- append (a writer can ask for it at once), its end follows the log by cursor.

create schema operations;

create table operations.operations (
    id            uuid        primary key,
    kind          text        not null,
    lane          text        not null,
    state         text        not null default 'pending',
    domain_id     uuid,
    domain        text,
    tenant_id     uuid,
    revision      bigint      not null,
    actor_id      uuid        not null,
    served        boolean     not null default false,
    superseded_by uuid,
    partial       jsonb       not null default '[]',
    error         jsonb,
    created_at    timestamptz not null,
    finished_at   timestamptz
) with (fillfactor = 80);
create index operations_open on operations.operations (domain_id, revision) where state in ('pending', 'running');
create index operations_due on operations.operations (created_at) where state in ('pending', 'running');
create index operations_tenant on operations.operations (tenant_id, id);
create index operations_actor on operations.operations (actor_id, id);

-- The newest revision of a domain that each target has verified, as the log tells it.
create table operations.verified (
    domain_id  uuid   not null,
    cluster_id uuid   not null,
    revision   bigint not null,
    primary key (domain_id, cluster_id)
);

-- The targets, as the log tells them up to the projection's cursor.
create table operations.targets (
    cluster_id uuid    primary key,
    name       text    not null,
    enabled    boolean not null
);
