-- What edges are to hold: a fold of the log, by cursor. Everything in these tables can be dropped and rebuilt.

create schema if not exists edge;

create table edge.domains (
    domain_id uuid    primary key,
    name      text    not null,
    -- The position of the newest event that changed what edges hold of it.
    sequence  bigint  not null,
    revision  bigint  not null,
    checksum  bytea,
    size      integer,
    key_id    bytea,
    signature bytea,
    removed   boolean not null default false,
    fault     text
);
create index domains_sequence on edge.domains (sequence);

create table edge.artifacts (
    checksum bytea primary key,
    bytes    bytea not null
);
