-- Imperative operations: work that was asked for and has a stream of its own.
-- Its row is made in the append like any other; the lane goes by the kind.

alter table operations.operations add column result jsonb;
create index operations_imperative on operations.operations (created_at)
    where lane = 'bulk_maintenance' and state in ('pending', 'running');

create function operations_bulk_lane() returns trigger language plpgsql as $$
begin
    new.lane := 'bulk_maintenance';
    return new;
end $$;
create trigger operations_bulk_lane before insert on operations.operations
    for each row when (new.kind like 'projection.%') execute function operations_bulk_lane();

-- How a run of imperative work comes along: seen, not decided, so not an event.
-- Written only by whoever holds the lane's lease. The log knows nothing of it,
-- so that a rebuild of `operations` leaves it as it is.
create table operation_runs (
    id              uuid        primary key,
    -- Tries that were begun.
    attempts        integer     not null default 0,
    next_attempt_at timestamptz not null default '-infinity',
    phase           text,
    done            bigint      not null default 0,
    total           bigint      not null default 0,
    -- By cluster: the last zone that is done, and how many are.
    checkpoint      jsonb       not null default '{}',
    -- How many were found, told or not.
    differences     bigint      not null default 0,
    error           text,
    updated_at      timestamptz not null default now()
) with (fillfactor = 70);

-- The first differences that a run found, one by one.
create table operation_differences (
    operation  uuid    not null references operation_runs on delete cascade,
    number     integer not null,
    difference jsonb   not null,
    primary key (operation, number)
);
