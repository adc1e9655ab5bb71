-- Webhooks: receivers of events, how far each has got, and what became of what was sent.

-- Tables of desired, also read by the rebuild, which puts another schema in the place of desired.

create table desired.webhooks (
    id              uuid        primary key,
    -- Whose; null: the platform's own, which gets everything.
    tenant_id       uuid,
    name            text        not null,
    url             text        not null,
    -- Beginnings of types; none: all types.
    types           text[]      not null,
    -- Names; null: all domains, and what concerns none.
    domains         text[],
    labels          jsonb       not null,
    description     text,
    enabled         boolean     not null,
    -- Why it is not, if it is not by itself.
    disabled_reason text,
    disabled_detail text,
    -- The secret that counts, and until when the one before counts beside it.
    secret_version  integer     not null default 1,
    previous_until  timestamptz,
    revision        bigint      not null,
    created_at      timestamptz not null
);
create index webhooks_tenant on desired.webhooks (tenant_id, id);

-- What follows is not desired.

-- How far one process at a time (a lease) has read the log for all webhooks: whoever is not due has everything up to here.
create table webhook_scan (
    one      boolean primary key default true check (one),
    log_id   uuid    not null,
    position bigint  not null
);
insert into webhook_scan (log_id, position)
    select m.log_id, (select coalesce(max(position), 0) from events) from log_meta m;

-- How far each webhook has got. Made and removed by whoever reads the log, at the events that say so.
create table webhook_cursors (
    webhook_id    uuid        primary key,
    tenant_id     uuid,
    -- Everything up to here was dealt with.
    position      bigint      not null,
    -- Something may stand between position and the scan. Where not, everything up to the scan was dealt with.
    due           boolean     not null default false,
    -- What is recorded for another one is too late.
    generation    bigint      not null default 1,
    -- The event that is being tried again, the row of its delivery, how often it was tried.
    trying        bigint,
    delivery_id   bigint,
    attempts      integer     not null default 0,
    next_at       timestamptz not null default now(),
    -- Events in a row that were given up.
    failed_in_row integer     not null default 0,
    failing_since timestamptz,
    last_error    text,
    delivered_at  timestamptz,
    -- When it last had its turn.
    turn_at       timestamptz not null default now()
) with (fillfactor = 80);
create index webhook_cursors_due on webhook_cursors (next_at) where due;
create index webhook_cursors_tenant on webhook_cursors (tenant_id);

-- What became of each event that was sent, for some time.
create table webhook_deliveries (
    id         bigint      generated always as identity primary key,
    webhook_id uuid        not null,
    position   bigint      not null,
    event_id   uuid        not null,
    type       text        not null,
    domain     text,
    -- 'retrying', 'delivered' or 'failed'.
    state      text        not null,
    attempts   integer     not null,
    -- Of the last attempt: what was answered, how long it took, why it failed, and the beginning of the answer.
    status     integer,
    ms         integer     not null,
    error      text,
    response   text,
    first_at   timestamptz not null,
    last_at    timestamptz not null,
    next_at    timestamptz
) with (fillfactor = 90);
create index webhook_deliveries_webhook on webhook_deliveries (webhook_id, id);
create index webhook_deliveries_last on webhook_deliveries (last_at);

-- Everything below is also read by the rebuild, which puts another schema in the place of desired.

alter procedure desired_apply_people(jsonb) rename to desired_apply_before_webhooks;

-- Applies one change of webhooks.
create procedure desired_apply_webhooks(_c jsonb) language plpgsql as $$
declare
    _id uuid := (_c->>'id')::uuid;
    _domains text[] := case when _c->'domains' ? '*' then null
                            else array(select jsonb_array_elements_text(_c->'domains')) end;
begin
    case _c->>'do'
    when 'webhook_put' then
        insert into desired.webhooks (id, tenant_id, name, url, types, domains, labels, description, enabled, revision,
                                      created_at)
        values (_id, (_c->>'tenant')::uuid, _c->>'name', _c->>'url',
                array(select jsonb_array_elements_text(_c->'types')), _domains, _c->'labels', _c->>'description',
                (_c->>'enabled')::boolean, (_c->>'revision')::bigint, (_c->>'at')::timestamptz);
    when 'webhook_update' then
        update desired.webhooks
           set name = _c->>'name', url = _c->>'url', types = array(select jsonb_array_elements_text(_c->'types')),
               domains = _domains, labels = _c->'labels', description = _c->>'description',
               revision = (_c->>'revision')::bigint
         where id = _id;
    when 'webhook_enabled' then
        update desired.webhooks
           set enabled = (_c->>'enabled')::boolean, disabled_reason = _c->>'reason', disabled_detail = _c->>'detail',
               revision = (_c->>'revision')::bigint
         where id = _id;
    when 'webhook_secret_version' then
        update desired.webhooks
           set secret_version = (_c->>'version')::integer, previous_until = (_c->>'until')::timestamptz,
               revision = (_c->>'revision')::bigint
         where id = _id;
    when 'webhook_touch' then
        update desired.webhooks set revision = (_c->>'revision')::bigint where id = _id;
    when 'webhook_delete' then
        delete from desired.webhooks where id = _id;
    when 'webhook_tenant_gone' then
        delete from desired.webhooks where tenant_id = _id;
    -- What stands beside the log. It goes with its event; the decision keeps a version from being taken twice. Of the
    -- earlier ones the last alone still counts.
    when 'webhook_secret' then
        insert into sealed_secrets as s (kind, id, version, public, sealed)
        values ('webhook_secret', _c->>'id', (_c->>'version')::integer, ''::bytea, decode(_c->>'sealed', 'hex'))
            on conflict (kind, id, version) do update set public = excluded.public, sealed = excluded.sealed;
        delete from sealed_secrets s
         where s.kind = 'webhook_secret' and s.id = _c->>'id' and s.version < (_c->>'version')::integer - 1;
    else
        raise exception 'unknown change %', _c->>'do';
    end case;
end $$;

-- As before; what is about webhooks is told on.
create procedure desired_apply_people(_c jsonb) language plpgsql as $$
begin
    if starts_with(_c->>'do', 'webhook_') then
        call desired_apply_webhooks(_c);
    else
        call desired_apply_before_webhooks(_c);
    end if;
end $$;
