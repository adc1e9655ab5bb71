-- What the API reads: a fold of the log, kept in the append, so that a writer
-- reads its own writes. Everything in this schema can be dropped and rebuilt.

create schema desired;

create table desired.tenants (
    id          uuid        primary key,
    name        text        not null,
    labels      jsonb       not null,
    external_id text,
    revision    bigint      not null,
    domains     bigint      not null default 0,
    created_at  timestamptz not null
);

create table desired.users (
    id         uuid        primary key,
    admin      boolean     not null,
    revision   bigint      not null,
    created_at timestamptz not null
);

create table desired.members (
    user_id   uuid not null,
    tenant_id uuid not null,
    primary key (user_id, tenant_id)
);
create index members_tenant on desired.members (tenant_id);

create table desired.tokens (
    id         uuid        primary key,
    user_id    uuid        not null,
    name       text        not null,
    expires_at timestamptz,
    revoked_at timestamptz,
    created_at timestamptz not null
);
create index tokens_user on desired.tokens (user_id);

create table desired.domains (
    id                   uuid        primary key,
    name                 text        not null collate "C",
    -- Labels reversed, joined by a space: the names below it are exactly those that begin with it and a space.
    name_key             text        not null collate "C",
    tenant_id            uuid        not null,
    status               text        not null,
    status_before_delete text,
    revision             bigint      not null,
    labels               jsonb       not null,
    external_id          text,
    serial_base          bigint      not null,
    hold_until           timestamptz,
    rrsets               bigint      not null default 0,
    records              bigint      not null default 0,
    created_at           timestamptz not null,
    updated_at           timestamptz not null,
    -- Holds the name. A deleted domain loses it when another takes the name over.
    current              boolean     not null default true
) with (fillfactor = 80);
create unique index domains_name on desired.domains (name) where current;
create index domains_name_key on desired.domains (name_key) where current;
create index domains_tenant on desired.domains (tenant_id, name);
create index domains_external on desired.domains (external_id) where external_id is not null;
create index domains_labels on desired.domains using gin (labels);

create table desired.rrsets (
    domain_id uuid    not null,
    -- Labels of the owner reversed, joined by a space; '' at the apex.
    owner_key text    not null collate "C",
    type      integer not null,
    owner     text    not null,
    ttl       bigint  not null,
    records   text[]  not null,
    comment   text,
    -- The revision that last changed it.
    changed   bigint  not null,
    primary key (domain_id, owner_key, type)
) with (fillfactor = 90);

-- The highest SOA serial that was served under a name by a domain that is gone.
create table desired.serials (
    name   text   primary key collate "C",
    serial bigint not null
);

create table desired.clusters (
    id                uuid        primary key,
    name              text        not null,
    database_url_file text        not null,
    dns               text        not null,
    front             text,
    nameservers       text[]      not null,
    enabled           boolean     not null,
    revision          bigint      not null,
    created_at        timestamptz not null
);

-- One domain on one DNS cluster. desired_* follows the log in the append, the
-- rest follows the recorded facts; attempts and next_attempt_at are working
-- state of the reconciler.
create table desired.deployments (
    cluster_id         uuid        not null,
    domain_id          uuid        not null,
    -- Whether the zone is meant to be there at all.
    wanted             boolean     not null,
    desired_revision   bigint      not null,
    desired_generation bigint      not null,
    active_revision    bigint      not null default 0,
    active_generation  bigint      not null default -1,
    state              text        not null default 'pending',
    checksum           bytea,
    serial             bigint,
    attempts           integer     not null default 0,
    next_attempt_at    timestamptz not null default '-infinity',
    last_error         text,
    desired_at         timestamptz not null,
    verified_at        timestamptz,
    checked_at         timestamptz not null default '-infinity',
    primary key (domain_id, cluster_id)
) with (fillfactor = 70);
create index deployments_due on desired.deployments (cluster_id, next_attempt_at)
    where desired_revision <> active_revision or desired_generation <> active_generation or state in ('activating', 'failed');
create index deployments_check on desired.deployments (cluster_id, checked_at);

-- What every zone says of the platform, and what is paused.
create table desired.platform (
    one        boolean primary key default true check (one),
    tenant_id  uuid,
    generation bigint  not null default 0,
    identity   jsonb,
    revision   bigint  not null default 0
);
insert into desired.platform default values;

create table desired.pauses (
    scope  text        not null,
    -- '' for all, the id of a target, the name of a domain.
    id     text        not null,
    reason text        not null,
    since  timestamptz not null,
    primary key (scope, id)
);

-- When each cluster was last reached: seen, not decided, so not an event.
create table cluster_health (
    cluster_id uuid        primary key,
    reached_at timestamptz,
    failed_at  timestamptz,
    last_error text
);
