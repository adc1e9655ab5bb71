-- Zones that are taken in from other servers: imperative work, and what it keeps beside the log.

drop trigger operations_bulk_lane on operations.operations;
create trigger operations_bulk_lane before insert on operations.operations
    for each row when (new.kind like 'projection.%' or new.kind in ('history.undo', 'import', 'import.cutover'))
    execute function operations_bulk_lane();

-- How an import stands, by its operation. The log says what was asked for and how it ended; this is what was seen.
create table imports (
    id           uuid        primary key,
    -- What the source keeps that belongs to no zone and is not carried.
    notes        jsonb       not null default '[]',
    -- Whether the source is looked at again and again.
    following    boolean     not null default false,
    -- The operation that ends that.
    cutting      uuid,
    cut_over_at  timestamptz,
    passes       bigint      not null default 0,
    looked_at    timestamptz,
    next_look_at timestamptz not null default '-infinity',
    -- Looks that failed since the last one that did not.
    failures     integer     not null default 0,
    error        text,
    updated_at   timestamptz not null default now()
);
create index imports_following on imports (next_look_at) where following;

-- What came of each zone, and what the source said of it last.
create table import_zones (
    import      uuid        not null references imports on delete cascade,
    zone        text        collate "C" not null,
    domain_id   uuid,
    outcome     text        not null,
    records     bigint      not null,
    -- warnings, not_carried, faults, conflicts.
    told        jsonb       not null,
    -- Something that changes when the zone does.
    marker      text,
    -- A digest of each RRset, where the source is followed.
    base        bytea,
    at          timestamptz not null default now(),
    primary key (import, zone)
);
