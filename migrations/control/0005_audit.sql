-- Audit: one row an event, so that every question an auditor asks has an index.
-- Derived: it can be dropped and read again from the log. The event itself is
-- joined at read by its position.

create schema audit;

create table audit.entries (
    position     bigint      primary key,
    at           timestamptz not null,
    domain       text collate "C",
    domain_id    uuid,
    tenant_id    uuid,
    stream_id    uuid        not null,
    actor_id     uuid        not null,
    token_id     uuid,
    type         text        not null collate "C",
    operation_id uuid,
    -- Words of the type, the domain, the note and the data, in lower case.
    text         text        not null
);
create index entries_domain on audit.entries (domain, position) where domain is not null;
create index entries_tenant on audit.entries (tenant_id, position) where tenant_id is not null;
create index entries_stream on audit.entries (stream_id, position);
create index entries_actor on audit.entries (actor_id, position);
create index entries_token on audit.entries (token_id, position) where token_id is not null;
create index entries_type on audit.entries (type, position);
create index entries_operation on audit.entries (operation_id, position) where operation_id is not null;
create index entries_at on audit.entries (at, position);
create index entries_text on audit.entries using gin (to_tsvector('simple', text));
