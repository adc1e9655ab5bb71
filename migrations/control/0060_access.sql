-- Who may do what: the roles of members of tenants and of single domains, and what tokens are limited to.

-- Tables of desired, also read by the rebuild, which puts another schema in the place of desired.

-- Before there were roles, every member might do everything.
alter table desired.members add column role text not null default 'owner';

-- Members of single domains. It says nothing of other domains of the same owner.
create table desired.domain_members (
    user_id   uuid not null,
    domain_id uuid not null,
    role      text not null,
    primary key (user_id, domain_id)
);
create index domain_members_domain on desired.domain_members (domain_id, user_id);

-- What a token is limited to; null: to nothing but what its user may.
alter table desired.tokens add column scopes jsonb;

-- What follows is not desired.

-- Everything below is also read by the rebuild, which puts another schema in the place of desired.

-- Applies one change of who may do what.
create procedure desired_apply_access(_c jsonb) language plpgsql as $$
declare
    _user uuid := (_c->>'user')::uuid;
begin
    case _c->>'do'
    when 'member_put' then
        insert into desired.members as t (user_id, tenant_id, role)
        values (_user, (_c->>'tenant')::uuid, _c->>'role')
            on conflict (user_id, tenant_id) do update set role = excluded.role;
    when 'domain_member_put' then
        insert into desired.domain_members as t (user_id, domain_id, role)
        values (_user, (_c->>'domain')::uuid, _c->>'role')
            on conflict (user_id, domain_id) do update set role = excluded.role;
    when 'domain_member_remove' then
        delete from desired.domain_members where user_id = _user and domain_id = (_c->>'domain')::uuid;
    when 'token_scopes' then
        update desired.tokens set scopes = _c->'scopes' where id = (_c->>'id')::uuid;
    else
        call desired_apply_people(_c);
    end case;
end $$;

-- As before; what it does not know is told on.
create or replace procedure desired_apply_certificates(_c jsonb) language plpgsql as $$
declare
    _id uuid := (_c->>'id')::uuid;
begin
    case _c->>'do'
    when 'certificate_put' then
        insert into desired.certificates as t (domain_id, id, version, body, changed)
        values (_id, (_c->>'certificate')::uuid, (_c->>'version')::integer, _c->'body', (_c->>'revision')::bigint)
            on conflict (domain_id) do update set id = excluded.id, version = excluded.version, body = excluded.body,
                                                  changed = excluded.changed;
    when 'certificate_delete' then
        delete from desired.certificates where domain_id = _id;
    -- What stands beside the log. It goes with its event; the stream's lock keeps its version from being taken twice.
    when 'certificate_key' then
        insert into sealed_secrets as s (kind, id, version, public, sealed)
        values ('certificate_key', _c->>'certificate', (_c->>'version')::integer,
                convert_to(jsonb_build_object('domain', _id, 'fingerprint', _c->>'fingerprint')::text, 'UTF8'),
                decode(_c->>'sealed', 'hex'))
            on conflict (kind, id, version) do update set public = excluded.public, sealed = excluded.sealed;
        return;
    else
        call desired_apply_access(_c);
        return;
    end case;
    insert into desired.sites as t (domain_id, edge_revision)
    values (_id, (_c->>'revision')::bigint)
        on conflict (domain_id) do update set edge_revision = excluded.edge_revision;
end $$;
