-- The life of a domain: proven, disabled, enabled, given up, delegated elsewhere.

-- Columns of desired, also made by the rebuild, which puts another schema in the place of desired.

alter table desired.domains
    -- 'owner' or 'operator'; stays while the domain is deleted.
    add column disabled_by        text,
    -- Since when its parent does not delegate it to the platform any more.
    add column delegation_lost_at timestamptz;
create index domains_pending on desired.domains (created_at) where status = 'pending_verification' and current;
create index domains_was on desired.domains (name) where not current;
create index domains_delegation on desired.domains (delegation_lost_at) where delegation_lost_at is not null;

-- What follows is not desired.

-- As before, with the new events that are about the status of a domain. No event of theirs can have been written before
-- this, so what stands in the index is what this gives.
create or replace function history_key(_type text, _data bytea) returns bytea language sql immutable parallel safe as $$
    select case
        when _type in ('rrset.replaced', 'rrset.deleted', 'hostname.replaced', 'hostname.deleted')
            then substring(_data from 1 for greatest(position('\x2c226265666f726522'::bytea in _data) - 1, 0))
        when _type = 'domain.created' then '\x00'::bytea
        when _type = 'domain.updated' then '\x01'::bytea
        when _type in ('domain.deleted', 'domain.restored', 'domain.activated', 'domain.disabled', 'domain.enabled',
                       'domain.expired') then '\x02'::bytea
        when _type = 'cache.changed' then '\x03'::bytea
        when _type = 'purge.requested' then '\x04'::bytea
        when _type in ('certificate.replaced', 'certificate.deleted') then '\x05'::bytea
    end
$$;

-- What was seen of a domain's delegation, and when it is looked at next: not decided, so not an event. It can be dropped;
-- then everything is looked at anew.
create table domain_checks (
    domain_id  uuid        primary key,
    next_at    timestamptz not null,
    -- Looks in a row that came to nothing, while ownership is to be proven.
    attempts   integer     not null default 0,
    checked_at timestamptz,
    -- 'ok', 'not_proven', 'elsewhere' or 'unknown'; what it is said to be since `since`.
    result     text,
    detail     text,
    since      timestamptz,
    -- Whether it was ever seen to be delegated to the platform.
    seen_ok    boolean     not null default false,
    -- When somebody last asked for a look.
    asked_at   timestamptz
) with (fillfactor = 80);
create index domain_checks_due on domain_checks (next_at);

-- Everything below is also read by the rebuild, which puts another schema in the place of desired.

alter procedure desired_apply_people(jsonb) rename to desired_apply_before_life;

-- Applies one change of the life of a domain.
create procedure desired_apply_life(_c jsonb) language plpgsql as $$
declare
    _id uuid := (_c->>'id')::uuid;
begin
    case _c->>'do'
    when 'life_status' then
        update desired.domains set status = _c->>'status', disabled_by = _c->>'by' where id = _id;
        if _c->>'status' <> 'active' then
            update desired.deployments set wanted = false where domain_id = _id;
        end if;
    when 'life_delegation' then
        update desired.domains set delegation_lost_at = (_c->>'lost_at')::timestamptz where id = _id;
    else
        raise exception 'unknown change %', _c->>'do';
    end case;
end $$;

-- As before; what is about the life of domains is told on.
create procedure desired_apply_people(_c jsonb) language plpgsql as $$
begin
    if starts_with(_c->>'do', 'life_') then
        call desired_apply_life(_c);
    else
        call desired_apply_before_life(_c);
    end if;
end $$;
