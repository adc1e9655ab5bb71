-- The projection edge: what is published to every edge, rendered from desired as
-- the log goes on. The sequence of a domain is the position of its newest event
-- that changes what edges serve, so a rebuild gives the same rows.

create schema edge;

create table edge.domains (
    domain_id uuid    primary key,
    name      text    not null collate "C",
    sequence  bigint  not null,
    revision  bigint  not null,
    -- What is published; null once it is removed.
    checksum  bytea,
    size      integer not null default 0,
    -- Who signed the checksum; null until somebody has.
    key_id    bytea,
    signature bytea,
    removed   boolean not null,
    -- Why the newest revision could not be rendered; what is published is the last one that could.
    fault     text
) with (fillfactor = 80);
create index domains_sequence on edge.domains (sequence);
create index domains_unsigned on edge.domains (domain_id) where checksum is not null and signature is null;

create table edge.artifacts (
    checksum     bytea primary key,
    bytes        bytea not null,
    -- Since when nothing publishes it; an edge may still be fetching it.
    unused_since timestamptz
);
create index artifacts_unused on edge.artifacts (unused_since) where unused_since is not null;

-- How far each cell has come, told by its agent: seen, not decided, so not an event.
create table edge.acks (
    edge_id  uuid        not null,
    cell     integer     not null,
    epoch    bigint      not null,
    sequence bigint      not null,
    at       timestamptz not null default now(),
    primary key (edge_id, cell)
);

-- The cells that a domain is placed on, and what each says of it. A cell is in
-- service while its edge's heartbeat is fresh, and it is neither disabled nor
-- drained. acked: the highest position of this epoch that it has taken in. The
-- registry of edges, which comes later, replaces this.
create function edge.cells(_domain uuid)
    returns table (edge_id uuid, cell integer, name text, in_service boolean, acked bigint,
                   refused_revision bigint, refused_why text)
    language sql stable as $$
    select null::uuid, null::integer, null::text, null::boolean, null::bigint, null::bigint, null::text where false
$$;

-- How an operation ended where edges were concerned.
alter table operations.operations add column cells jsonb not null default '[]';
alter table operations.operations add column warnings jsonb not null default '[]';
create index operations_purges on operations.operations (domain_id)
    where kind = 'domain.purge' and state in ('pending', 'running');
