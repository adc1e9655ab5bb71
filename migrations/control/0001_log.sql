-- The log: the only truth. Positions are dense, from 1, in commit order: they
-- are given last, under advisory lock 7001, in a transaction that one CALL
-- begins and ends, so that a stalled client can hold nothing and a reader of
-- "position > cursor" can skip nothing.
--
-- Advisory locks: 7000 the gate (shared: append; exclusive: switch of a rebuilt
-- projection), 7001 the tail of the log, 7002 a rebuild (one at a time), 7003 one
-- stream (session level, taken while its state is read, so that two replicas do
-- not decide on it at once), 7004 one batch (until whoever sent it first is done).

create table log_meta (
    one        boolean primary key default true check (one),
    -- New after every restore that lost events; part of every stream id.
    log_id     uuid   not null,
    -- The highest position that is no longer kept; 0: everything is kept.
    floor_position bigint not null default 0
);
insert into log_meta (log_id) values (gen_random_uuid());

create table streams (
    id        uuid     primary key,
    kind      smallint not null,
    revision  bigint   not null,
    -- The end of the stream's hash chain.
    last_hash bytea    not null
) with (fillfactor = 80);

create table events (
    position     bigint      not null,
    id           uuid        not null,
    stream_kind  smallint    not null,
    stream_id    uuid        not null,
    revision     bigint      not null,
    seq          integer     not null,
    type         text        not null,
    schema       smallint    not null,
    at           timestamptz not null,
    domain_id    uuid,
    domain       text,
    tenant_id    uuid,
    actor_kind   smallint    not null,
    actor_id     uuid        not null,
    token_id     uuid,
    on_behalf_of uuid,
    -- Digest of the client's address and agent; both stand in clients, erasable.
    client       bytea,
    request_id   uuid        not null,
    operation_id uuid,
    note         text,
    change_id    uuid,
    cause        bigint,
    hash         bytea       not null,
    -- JSON text, exactly as it was hashed.
    data         bytea       not null,
    primary key (position)
) partition by range (position);

create index events_stream on events (stream_id, revision, seq);
create index events_domain on events (domain_id, position) where domain_id is not null;
create index events_tenant on events (tenant_id, position) where tenant_id is not null;

create function events_are_permanent() returns trigger language plpgsql as $$
begin
    raise exception 'events are permanent: % of % is refused', tg_op, tg_table_name
        using hint = 'The log is append-only; correct a mistake by a new mutation.';
end $$;

create trigger events_permanent before update or delete on events
    for each row execute function events_are_permanent();

-- A leaf holds 16,777,216 positions. Makes the leaf of a position, if it is not there yet.
create function ensure_leaf(of_position bigint) returns void language plpgsql as $$
declare
    width constant bigint := 16777216;
    low   bigint := (of_position / width) * width;
    leaf  text := 'events_' || lpad((of_position / width)::text, 6, '0');
begin
    if to_regclass(leaf) is not null then
        return;
    end if;
    execute format('create table %I partition of events for values from (%s) to (%s)', leaf, low, low + width);
    -- UNIQUE cannot span leaves: the row of streams is the authority, this is the belt.
    execute format('create unique index %I on %I (stream_id, revision, seq)', leaf || '_once', leaf);
    execute format('create trigger %I before truncate on %I execute function events_are_permanent()',
                   leaf || '_permanent', leaf);
end $$;
select ensure_leaf(1), ensure_leaf(16777216);

-- The answer of a mutation that carried an Idempotency-Key, for 24 h.
create table receipts (
    caller  uuid        not null,
    key     uuid        not null,
    -- BLAKE3 of method, path and normalized body.
    request bytea       not null,
    outcome jsonb       not null,
    at      timestamptz not null default now(),
    primary key (caller, key)
);
create index receipts_at on receipts (at);

-- One row a batch: a lost connection is resolved by calling again.
create table batches (
    id             uuid        primary key,
    first_position bigint      not null,
    events         integer     not null,
    at             timestamptz not null default now()
);
create index batches_at on batches (at);

-- Unique names. ns: 1 domain, 2 mail address, 3 DNS cluster, 4 tenant.
create table claims (
    ns     smallint not null,
    name   text     not null collate "C",
    holder uuid     not null,
    primary key (ns, name)
);

-- Where requests came from: erasable, resolved at read. digest = BLAKE3(salt, ip, agent).
create table clients (
    digest bytea       primary key,
    salt   bytea       not null,
    ip     text        not null,
    agent  text        not null,
    at     timestamptz not null default now()
);

-- Who a user is: erasable, resolved at read.
create table people (
    user_id uuid primary key,
    email   text not null
);

-- What a token's holder must show, hashed (BLAKE3 of 256 random bits).
create table token_secrets (
    token_id uuid  primary key,
    user_id  uuid  not null,
    hash     bytea not null unique
);

-- One heartbeat row a process, and leases by name, both by the database's clock.
create table leases (
    name  text        primary key,
    owner uuid        not null,
    fence bigint      not null default 1,
    until timestamptz not null
);

-- Cursors of what follows the log.
create table projection_cursors (
    name       text        primary key,
    version    integer     not null,
    position   bigint      not null default 0,
    state      text        not null default 'live',
    last_error text,
    updated_at timestamptz not null default now()
);
