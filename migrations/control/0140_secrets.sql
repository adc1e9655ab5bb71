-- Secrets: the keys that seal them, and personal data that is erased.

-- One key for the secrets of each tenant, and one for the platform's own, each sealed under a key of the secret key
-- file. Without its row nothing that it sealed can be opened again, in no copy of the database that is made later.
create table data_keys (
    id           uuid        primary key,
    -- Whose secrets it seals; null: the platform's.
    tenant_id    uuid,
    -- A byte that says the form, eight octets that name the key of the file, the nonce, the sealed key.
    wrapped      bytea       not null,
    created_at   timestamptz not null default now(),
    wrapped_at   timestamptz not null default now(),
    constraint data_keys_owner unique nulls not distinct (tenant_id)
);

-- Addresses and programs of clients are kept for a time of their own, and go with the person.
create index clients_at on clients (at);

-- Users that were deleted, and through which position of the log the addresses of what they did are erased.
create table erasures (
    user_id  uuid        primary key,
    through  bigint      not null default 0,
    asked_at timestamptz not null default now(),
    done_at  timestamptz
);
create index erasures_open on erasures (asked_at) where done_at is null;
