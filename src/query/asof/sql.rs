//! Statements of what a domain was. Each thing of a domain has a key (`history_key` of the migrations), and its events
//! are one range of an index; a statement that names the index's expression and `stream_kind = 1` finds them by it.

/// Columns of an event `e`, in the order that `row.rs` reads them.
macro_rules! columns {
    () => {
        "e.position, e.id, e.stream_kind, e.stream_id, e.revision, e.seq, e.type, e.schema, e.at, e.domain_id, \
         e.domain, e.tenant_id, e.actor_kind, e.actor_id, e.token_id, e.on_behalf_of, e.client, e.request_id, \
         e.operation_id, e.note, e.change_id, e.cause, e.hash, e.data"
    };
}

/// Every key of the domain $1, from index entry to index entry: the cost is that of the keys, not of the events.
macro_rules! keys {
    ($after:literal) => {
        concat!(
            "with recursive keys(k) as (\
             (select history_key(e.type, e.data) from events e where e.stream_kind = 1 and e.stream_id = $1 \
              and history_key(e.type, e.data) > ",
            $after,
            " order by history_key(e.type, e.data) limit 1) \
             union all select (select history_key(e.type, e.data) from events e where e.stream_kind = 1 \
              and e.stream_id = $1 and history_key(e.type, e.data) > keys.k \
              order by history_key(e.type, e.data) limit 1) from keys where keys.k is not null) "
        )
    };
}

/// The newest event of a key up to revision $2.
macro_rules! newest {
    () => {
        "(select * from events e where e.stream_kind = 1 and e.stream_id = $1 \
          and history_key(e.type, e.data) = keys.k and e.revision <= $2 order by e.revision desc limit 1) e"
    };
}

/// The first and the newest event of a key in ($2, $3], as type, schema and data.
macro_rules! ends {
    () => {
        " cross join lateral (select e.type, e.schema, e.data from events e where e.stream_kind = 1 \
          and e.stream_id = $1 and history_key(e.type, e.data) = keys.k and e.revision > $2 and e.revision <= $3 \
          order by e.revision limit 1) f \
          cross join lateral (select e.type, e.schema, e.data from events e where e.stream_kind = 1 \
          and e.stream_id = $1 and history_key(e.type, e.data) = keys.k and e.revision > $2 and e.revision <= $3 \
          order by e.revision desc limit 1) l"
    };
}

/// $1 domain, $2 revision: the newest event of everything that the domain has ever had.
pub(super) const WHOLE: &str = concat!(
    keys!("''::bytea"),
    "select ",
    columns!(),
    " from keys cross join lateral ",
    newest!(),
    " where keys.k is not null"
);

/// $1 domain, $2 revision: everything that changed since, and its newest event up to then, if it has one.
pub(super) const SINCE: &str = concat!(
    "with keys as materialized (select distinct history_key(e.type, e.data) as k from events e \
     where e.stream_id = $1 and e.revision > $2) select ",
    columns!(),
    ", keys.k from keys left join lateral ",
    newest!(),
    " on true where keys.k is not null"
);

/// $1 domain, $2 revision, $3 key.
pub(super) const ONE: &str =
    concat!("select ", columns!(), " from (select $3::bytea as k) keys cross join lateral ", newest!());

/// $1 domain, $2 after revision, $3 through revision, $4 how many: events in between, counted no further.
pub(super) const COUNT: &str = "select count(*) from (select from events e where e.stream_id = $1 \
     and e.revision > $2 and e.revision <= $3 limit $4) x";

/// $1 domain, $2 after revision, $3 through revision, $4 after key, $5 how many: keys that changed in between, with the
/// first and the newest of those events. By reading those events.
pub(super) const CHANGED: &str = concat!(
    "with keys as materialized (select distinct history_key(e.type, e.data) as k from events e where e.stream_id = $1 \
     and e.revision > $2 and e.revision <= $3 and history_key(e.type, e.data) > $4 order by 1 limit $5) \
     select keys.k, f.type, f.schema, f.data, l.type, l.schema, l.data from keys",
    ends!()
);

/// The same by looking at every key.
pub(super) const CHANGED_WIDE: &str = concat!(
    keys!("$4"),
    "select keys.k, f.type, f.schema, f.data, l.type, l.schema, l.data from keys",
    ends!(),
    " where keys.k is not null limit $5"
);

/// $1 domain, $2 revision: when it came to be.
pub(super) const AT: &str =
    "select e.at from events e where e.stream_id = $1 and e.revision = $2 and e.seq = 0";

/// $1 domain, $2 revisions: who made each of them, when and why.
pub(super) const MADE_BY: &str = "select e.revision, e.at, e.actor_kind, e.actor_id, e.token_id, e.on_behalf_of, e.note \
     from events e where e.stream_id = $1 and e.revision = any($2) and e.seq = 0";

/// $1 domain: all that it has now, for what has not changed since.
pub(super) const RRSETS: &str = "select r.owner, r.type, r.ttl, r.records, r.comment, r.changed, r.managed_by \
     from desired.rrsets r where r.domain_id = $1";

/// $1 domain.
pub(super) const HOSTNAMES: &str =
    "select h.owner, h.body, h.changed from desired.hostnames h where h.domain_id = $1 and h.leaving is null";

/// $1 domain: the rest, and how far the domain has come.
pub(super) const REST: &str = "select d.revision, d.status, d.labels, d.external_id, d.serial_base, d.hold_until, \
     s.cache, s.cache_epoch, s.cache_changed, c.body, c.changed, d.disabled_by from desired.domains d \
     left join desired.sites s on s.domain_id = d.id left join desired.certificates c on c.domain_id = d.id \
     where d.id = $1";

/// One snapshot for everything that follows.
pub(super) const SNAPSHOT: &str = "begin isolation level repeatable read, read only";

/// Every statement, for the test that prepares them.
pub const ALL: &[&str] =
    &[WHOLE, SINCE, ONE, COUNT, CHANGED, CHANGED_WIDE, AT, MADE_BY, RRSETS, HOSTNAMES, REST];
