//! The statements of webhooks. What is written is written only while the lease (name, owner) is held. A test prepares
//! each against the migrated schema.

/// Whether the lease is held still: its name is $1 and its owner $2 in every statement that asks.
macro_rules! held {
    () => {
        "exists (select from leases l where l.name = $1 and l.owner = $2 and l.until > clock_timestamp())"
    };
}

/// How far the log was read, in which log; the log there is, and its head; whether there is a webhook, or anything left of
/// one.
pub(super) const SCAN: &str = "select s.log_id, s.position, m.log_id, \
     (select coalesce(max(position), 0) from events), \
     exists (select from desired.webhooks) or exists (select from webhook_cursors) \
     or exists (select from sealed_secrets where kind = 'webhook_secret') \
     from webhook_scan s cross join log_meta m";

/// The webhooks that the scan knows, as they are.
pub(super) const HOOKS: &str = "select c.webhook_id, c.tenant_id, w.types, w.domains, coalesce(w.enabled, false) \
     from webhook_cursors c left join desired.webhooks w on w.id = c.webhook_id";

/// $1 after, $2 how many: what is looked at of each event. The data is read of webhooks alone.
pub(super) const EVENTS: &str = "select e.position, e.type, e.schema, e.stream_kind, e.stream_id, e.domain_id, e.domain, \
     e.tenant_id, e.actor_kind, case when e.stream_kind = 9 or e.type = 'tenant.deleted' then e.data end \
     from events e where e.position > $1 order by e.position limit $2";

/// $3 from: takes the scan to be moved, while the lease is held.
pub(super) const TAKE_SCAN: &str =
    concat!("select s.position from webhook_scan s where s.position = $3 and ", held!(), " for update");

/// $1 position, $2 log.
pub(super) const MOVE_SCAN: &str = "update webhook_scan set position = $1, log_id = $2";

/// $1 webhooks, $2 positions, pairwise: what stands after the position is due. Who is due already stays where it is.
pub(super) const MARK: &str = "update webhook_cursors c set due = true, position = n.position, next_at = now() \
     from unnest($1::uuid[], $2::bigint[]) n(id, position) where c.webhook_id = n.id and not c.due";

/// $1 webhook, $2 tenant, $3 position: it gets what stands after.
pub(super) const BEGIN: &str = "insert into webhook_cursors (webhook_id, tenant_id, position) values ($1, $2, $3) \
     on conflict (webhook_id) do nothing";

/// $1 webhook, $2 position, $3 whether something may stand after it: it goes on from there, as if nothing had been tried.
pub(super) const RESTART: &str = "update webhook_cursors set position = $2, due = $3, generation = generation + 1, \
     trying = null, delivery_id = null, attempts = 0, next_at = now(), failed_in_row = 0, failing_since = null, \
     last_error = null where webhook_id = $1";

/// $1 webhook: nothing is sent any more; what it was at is kept for people. What is under way is still recorded.
pub(super) const HALT: &str = "update webhook_cursors set due = false, trying = null, delivery_id = null, attempts = 0, \
     failing_since = null where webhook_id = $1";

/// $1 webhook: it is tried at once, as it is now.
pub(super) const RETRY: &str = "update webhook_cursors set next_at = now() where webhook_id = $1";

/// $1 webhook or null, $2 tenant or null: removes the cursors of one, or of all of a tenant.
pub(super) const FORGET: &str =
    "delete from webhook_cursors where webhook_id = $1 or tenant_id = $2 returning webhook_id";

/// $1 webhooks.
pub(super) const FORGET_DELIVERIES: &str = "delete from webhook_deliveries where webhook_id = any($1)";

/// $1 webhooks.
pub(super) const FORGET_SECRETS: &str =
    "delete from sealed_secrets where kind = 'webhook_secret' and id = any($1::uuid[]::text[])";

/// $1 head: cursors beyond it, of a log that was cut, come back to it.
pub(super) const CLAMP: &str = "update webhook_cursors set position = $1, generation = generation + 1, trying = null, \
     delivery_id = null where position > $1";

/// $1 webhooks in hand, $2 owners (the nil UUID for the platform) that have enough in hand, $3 of each owner at most,
/// $4 how many: those that are due, the longest without a turn first.
pub(super) const DUE: &str = "select n.webhook_id, n.tenant_id from (select c.webhook_id, c.tenant_id, c.turn_at, \
         row_number() over (partition by c.tenant_id order by c.turn_at, c.webhook_id) as place \
         from webhook_cursors c where c.due and c.next_at <= now() and not c.webhook_id = any($1) \
         and not coalesce(c.tenant_id, '00000000-0000-0000-0000-000000000000') = any($2)) n \
     where n.place <= $3 order by n.turn_at limit $4";

/// A commit that a crash of the database may lose: what it says is found again.
pub(super) const RELAXED: &str = "set local synchronous_commit = off";

/// $1 webhook: it goes behind the others.
pub(super) const TURN: &str = "update webhook_cursors set turn_at = clock_timestamp() where webhook_id = $1";

/// $1 webhook, $2 seconds, $3 why: it waits, and nothing of it was tried.
pub(super) const POSTPONE: &str = "update webhook_cursors set next_at = clock_timestamp() + make_interval(secs => $2), \
     last_error = $3 where webhook_id = $1";

/// $1 webhook: all that its next attempt needs.
pub(super) const HOOK: &str = "select c.tenant_id, c.position, c.generation, c.trying, c.delivery_id, c.attempts, \
     c.failed_in_row, s.position, w.url, w.types, w.domains, w.secret_version, \
     w.previous_until from webhook_cursors c cross join webhook_scan s \
     join desired.webhooks w on w.id = c.webhook_id and w.enabled \
     where c.webhook_id = $1 and c.due and c.next_at <= now()";

/// $1 webhook, as text.
pub(super) const SECRETS: &str = "select version, sealed from sealed_secrets \
     where kind = 'webhook_secret' and id = $1 order by version desc limit 2";

/// $3 webhook, $4 generation, $5 position: up to here there was nothing for it.
pub(super) const PASS: &str = concat!(
    "update webhook_cursors set position = $5 where webhook_id = $3 and generation = $4 and ",
    held!()
);

/// $3 webhook, $4 generation, $5 how far the scan was when nothing was found up to it. Locks the scan, so that nothing is
/// marked meanwhile. False where the scan has moved.
pub(super) const SETTLE: &str = concat!(
    "with scan as (select position from webhook_scan for update) \
     update webhook_cursors c set due = false, position = s.position from scan s \
     where c.webhook_id = $3 and c.generation = $4 and s.position = $5 and ",
    held!()
);

/// What an attempt came to, in a row of its own: $3 webhook, $4 generation, $5 position, $6 event, $7 type, $8 domain,
/// $9 state, $10 attempts, $11 status, $12 ms, $13 error, $14 response, $15 seconds until the next or null, $16 events
/// given up in a row.
macro_rules! recorded {
    ($row:literal) => {
        concat!(
            "with made as (",
            $row,
            " returning id) update webhook_cursors set \
               position = case when $15::float8 is null then $5 else position end, \
               trying = case when $15 is null then null else $5 end, \
               delivery_id = case when $15 is null then null else (select id from made) end, \
               attempts = case when $15 is null then 0 else $10 end, \
               next_at = clock_timestamp() + make_interval(secs => coalesce($15, 0)), failed_in_row = $16, \
               failing_since = case when $9 = 'delivered' then null else coalesce(failing_since, clock_timestamp()) end, \
               last_error = $13, \
               delivered_at = case when $9 = 'delivered' then clock_timestamp() else delivered_at end \
             where webhook_id = $3 and generation = $4 and exists (select from made)"
        )
    };
}

pub(super) const RECORD: &str = recorded!(
    "insert into webhook_deliveries (webhook_id, position, event_id, type, domain, state, attempts, status, ms, error, \
         response, first_at, last_at, next_at) \
     select $3::uuid, $5::bigint, $6::uuid, $7::text, $8::text, $9::text, $10::int4, $11::int4, $12::int4, $13::text, $14::text, \
         clock_timestamp(), clock_timestamp(), clock_timestamp() + make_interval(secs => $15::float8) \
     from webhook_cursors c where c.webhook_id = $3 and c.generation = $4 \
       and exists (select from leases l where l.name = $1 and l.owner = $2 and l.until > clock_timestamp())"
);

/// The same in the row of the attempts before: $17.
pub(super) const RECORD_AGAIN: &str = recorded!(
    "update webhook_deliveries d set position = $5::bigint, event_id = $6::uuid, type = $7::text, domain = $8::text, \
         state = $9::text, attempts = $10::int4, status = $11::int4, ms = $12::int4, error = $13::text, response = $14::text, \
         last_at = clock_timestamp(), next_at = clock_timestamp() + make_interval(secs => $15::float8) \
     from webhook_cursors c where d.id = $17 and d.webhook_id = $3::uuid and c.webhook_id = $3 and c.generation = $4 \
       and exists (select from leases l where l.name = $1 and l.owner = $2 and l.until > clock_timestamp())"
);

/// $1 days, $2 how many.
pub(super) const PRUNE_OLD: &str = "delete from webhook_deliveries where id in (select id from webhook_deliveries \
     where last_at < now() - make_interval(days => $1) order by last_at limit $2)";

/// $1 deliveries that are kept of a webhook: removes the others of those that had a turn lately. Where they begin is looked
/// up once for each webhook, whatever the planner thinks of tables that it has not looked at yet.
pub(super) const PRUNE_MANY: &str = "with n as materialized (select c.webhook_id, \
         (select x.id from webhook_deliveries x where x.webhook_id = c.webhook_id order by x.id desc offset $1 limit 1) as newest \
         from webhook_cursors c where c.turn_at > now() - interval '5 minutes') \
     delete from webhook_deliveries d using n where d.webhook_id = n.webhook_id and d.id <= n.newest";

/// $1 now: secrets whose time beside the next one is over.
pub(super) const PRUNE_SECRETS: &str = "delete from sealed_secrets s using desired.webhooks w \
     where s.kind = 'webhook_secret' and s.id = w.id::text and s.version < w.secret_version and w.previous_until <= $1";

/// How many webhooks fail now, and how many events the oldest of what waits is behind.
pub(super) const GAUGES: &str = "select count(*) filter (where c.failing_since is not null), \
     coalesce((select max(position) from events), 0) - s.position \
     from webhook_scan s left join webhook_cursors c on c.due group by s.position";

/// Every statement.
pub const ALL: &[&str] = &[
    SCAN,
    HOOKS,
    EVENTS,
    TAKE_SCAN,
    MOVE_SCAN,
    MARK,
    BEGIN,
    RESTART,
    HALT,
    RETRY,
    FORGET,
    FORGET_DELIVERIES,
    FORGET_SECRETS,
    CLAMP,
    DUE,
    TURN,
    POSTPONE,
    HOOK,
    SECRETS,
    PASS,
    SETTLE,
    RECORD,
    RECORD_AGAIN,
    PRUNE_OLD,
    PRUNE_MANY,
    PRUNE_SECRETS,
    GAUGES,
];
