-- The history of each thing that a domain desires, by an index: what it was at a revision is one look, however much
-- happened since and however much else there is.

-- Which thing of its domain an event is about: an RRset and a proxied name by the beginning of the data, which names
-- it and is the same octets in every event about it; what a domain has one of by a number. Null: nothing of the sort.
-- Never change it: it stands in an index.
create function history_key(_type text, _data bytea) returns bytea language sql immutable parallel safe as $$
    select case
        when _type in ('rrset.replaced', 'rrset.deleted', 'hostname.replaced', 'hostname.deleted')
            then substring(_data from 1 for greatest(position('\x2c226265666f726522'::bytea in _data) - 1, 0))
        when _type = 'domain.created' then '\x00'::bytea
        when _type = 'domain.updated' then '\x01'::bytea
        when _type in ('domain.deleted', 'domain.restored') then '\x02'::bytea
        when _type = 'cache.changed' then '\x03'::bytea
        when _type = 'purge.requested' then '\x04'::bytea
        when _type in ('certificate.replaced', 'certificate.deleted') then '\x05'::bytea
    end
$$;
-- 1: the streams of domains.
create index events_history on events (stream_id, history_key(type, data), revision) where stream_kind = 1;

-- Undoing what a token did is imperative work too.
drop trigger operations_bulk_lane on operations.operations;
create trigger operations_bulk_lane before insert on operations.operations
    for each row when (new.kind like 'projection.%' or new.kind = 'history.undo') execute function operations_bulk_lane();

-- Beside the log: once a day a signature over where every stream ended. It can be made again from the events up to its
-- position, so whoever keeps a copy elsewhere can tell whether the log was cut or written anew.
create table audit_heads (
    day       date        primary key,
    log_id    uuid        not null,
    position  bigint      not null,
    at        timestamptz not null,
    streams   bigint      not null,
    -- BLAKE3 over the lines of the export.
    root      bytea       not null,
    key       bytea       not null,
    signature text        not null
);
