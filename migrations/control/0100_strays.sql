-- What DNS clusters hold beside what was deployed to them, as a look that walks over each cluster's zones found it. Not
-- derived from the log.

create table target_looks (
    cluster_id uuid        primary key,
    -- The last zone had, in the order of the cluster's database; empty at the beginning of a walk.
    after      text        not null default '',
    began_at   timestamptz not null default now()
);

create table target_strays (
    cluster_id uuid        not null,
    zone       text        not null,
    -- It was written by Headwater, for a domain that this log did not deploy there.
    lost       boolean     not null,
    seen_at    timestamptz not null,
    primary key (cluster_id, zone)
);
