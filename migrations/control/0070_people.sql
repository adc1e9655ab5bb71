-- People: whether they may come in, and what stands beside the log about them.

-- Tables of desired, also read by the rebuild, which puts another schema in the place of desired.

alter table desired.users add column enabled boolean not null default true;
alter table desired.tokens add column max_unused_days integer;
alter table desired.tokens add column networks text[] not null default '{}';

-- What follows is not desired.

alter table people add column name text;

-- How a user proves who it is, one row a way. 'password': verifier is an Argon2id hash in its text form.
create table credentials (
    user_id    uuid        not null,
    kind       text        not null,
    verifier   text        not null,
    changed_at timestamptz not null default now(),
    primary key (user_id, kind)
);

-- Who is logged in. hash = keyed BLAKE3 of what the cookie holds.
create table sessions (
    id         uuid        primary key,
    user_id    uuid        not null,
    hash       bytea       not null unique,
    created_at timestamptz not null,
    used_at    timestamptz not null,
    ends_at    timestamptz not null
);
create index sessions_user on sessions (user_id, created_at);
create index sessions_ends on sessions (ends_at);

-- When each token was last used, to the minute.
create table token_uses (
    token_id uuid        primary key,
    used_at  timestamptz not null
) with (fillfactor = 80);

-- Who came in, and who was turned away: one row a caller, kind and minute, so that a flood is a number.
create table access_log (
    id       bigint      generated always as identity primary key,
    minute   timestamptz not null,
    digest   bytea       not null,
    kind     text        not null,
    user_id  uuid,
    token_id uuid,
    ip       text,
    agent    text,
    route    text,
    times    bigint      not null,
    first_at timestamptz not null,
    last_at  timestamptz not null,
    unique (minute, digest)
);
create index access_log_user on access_log (user_id, id) where user_id is not null;

-- How often somebody tries to log in: buckets that every process shares. What they hold is worth nothing after a crash.
create unlogged table login_rates (
    key    bytea            primary key,
    tokens double precision not null,
    at     timestamptz      not null
);
create index login_rates_at on login_rates (at);

-- Everything below is also read by the rebuild, which puts another schema in the place of desired.

-- Applies one change of users and tenants.
create procedure desired_apply_people(_c jsonb) language plpgsql as $$
declare
    _id uuid := (_c->>'id')::uuid;
begin
    case _c->>'do'
    when 'user_update' then
        update desired.users set admin = (_c->>'admin')::boolean, revision = (_c->>'revision')::bigint where id = _id;
    when 'user_enabled' then
        update desired.users set enabled = (_c->>'enabled')::boolean, revision = (_c->>'revision')::bigint
         where id = _id;
    when 'user_delete' then
        delete from desired.users where id = _id;
        delete from desired.members where user_id = _id;
        delete from desired.domain_members where user_id = _id;
        update desired.tokens set revoked_at = (_c->>'at')::timestamptz where user_id = _id and revoked_at is null;
    when 'user_token_limits' then
        update desired.tokens
           set max_unused_days = (_c->>'max_unused_days')::integer,
               networks = array(select jsonb_array_elements_text(_c->'networks'))
         where id = _id;
    when 'tenant_update' then
        update desired.tenants
           set name = _c->>'name', labels = _c->'labels', external_id = _c->>'external_id',
               revision = (_c->>'revision')::bigint
         where id = _id;
    when 'tenant_delete' then
        delete from desired.tenants where id = _id;
        delete from desired.members where tenant_id = _id;
    -- What stands beside the log. A name that is given up is free for others at once.
    when 'user_profile' then
        update people
           set email = coalesce(_c->>'email', email), name = case when _c ? 'name' then _c->>'name' else name end
         where user_id = _id;
        delete from claims c where c.ns = 2 and c.holder = _id
           and c.name is distinct from (select p.email from people p where p.user_id = _id);
    when 'user_password' then
        insert into credentials as t (user_id, kind, verifier) values (_id, 'password', _c->>'verifier')
            on conflict (user_id, kind) do update set verifier = excluded.verifier, changed_at = now();
        delete from sessions where user_id = _id and id is distinct from (_c->>'keep')::uuid;
    when 'user_out' then
        delete from sessions where user_id = _id;
    when 'user_forgotten' then
        delete from sessions where user_id = _id;
        delete from credentials where user_id = _id;
        delete from token_uses u using token_secrets s where s.user_id = _id and u.token_id = s.token_id;
        delete from token_secrets where user_id = _id;
        delete from access_log where user_id = _id;
        delete from claims where ns = 2 and holder = _id;
        delete from people where user_id = _id;
    when 'tenant_renamed' then
        delete from claims where ns = 4 and holder = _id and name <> _c->>'name';
    when 'tenant_forgotten' then
        delete from claims where ns = 4 and holder = _id;
    else
        raise exception 'unknown change %', _c->>'do';
    end case;
end $$;
