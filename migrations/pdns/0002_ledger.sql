-- What Headwater knows of each zone it has written here: the fence. Every write of a zone locks its row first and
-- changes it in the same transaction, so the rows of a zone and what is said of them cannot part.
--
-- A write is let through only over a state that the writer's log knows: the chain is the hash of the last event of
-- the domain's revision, and a hash chain has one history. A zone that is taken off keeps its row, so that a late
-- writer cannot bring it back. Names in `records` are unique enough: the index on them serves deletes as well.

create table hw_zones (
    name       text        primary key collate "C",
    domain_id  uuid        not null,
    -- The log that wrote it last.
    log_id     uuid        not null,
    revision   bigint      not null default 0,
    generation bigint      not null default 0,
    serial     bigint      not null default 0,
    -- Set hash over the rendered RRsets.
    checksum   bytea       not null default '',
    chain      bytea       not null default '',
    -- False before the first write and after a removal.
    present    boolean     not null default false,
    -- An operator let go of what is there: the next deployment writes over it, whatever it is.
    released   boolean     not null default false,
    written_at timestamptz not null default now()
) with (fillfactor = 70);
