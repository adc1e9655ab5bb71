//! The statements about credentials, sessions and what is seen of callers. A test prepares each against the schema.

/// $1 mail address.
pub(super) const VERIFIER: &str = "select c.holder, v.verifier from claims c \
     left join desired.users u on u.id = c.holder and u.enabled \
     left join credentials v on v.user_id = u.id and v.kind = 'password' where c.ns = 2 and c.name = $1";

/// $1 user.
pub(super) const VERIFIER_OF: &str =
    "select verifier from credentials where user_id = $1 and kind = 'password'";

/// $1 id, $2 user, $3 verifier, $4 what is stored of the secret, $5 now, $6 when it ends; $7 digest, $8 address,
/// $9 agent, $10 route of the line in the access log. The rows are locked, so that a disable or a change of the password
/// either comes first or finds the session.
pub(super) const BEGIN: &str = "with who as ( \
         select u.id from desired.users u join credentials c on c.user_id = u.id and c.kind = 'password' \
         where u.id = $2::uuid and u.enabled and c.verifier = $3::text for share), \
     seen as ( \
         insert into access_log as t (minute, digest, kind, user_id, ip, agent, route, times, first_at, last_at) \
         select date_trunc('minute', $5::timestamptz), $7::bytea, 'login', who.id, $8::text, $9::text, $10::text, 1, \
         $5::timestamptz, $5::timestamptz from who \
         on conflict (minute, digest) do update set times = t.times + 1, last_at = excluded.last_at) \
     insert into sessions (id, user_id, hash, created_at, used_at, ends_at) \
         select $1::uuid, who.id, $4::bytea, $5::timestamptz, $5::timestamptz, $6::timestamptz from who";

/// $1 user, $2 how many.
pub(super) const KEEP_NEWEST: &str = "delete from sessions where user_id = $1 and id not in \
     (select id from sessions where user_id = $1 order by created_at desc, id desc limit $2)";

/// $1 id.
pub(super) const END: &str = "delete from sessions where id = $1";

/// $1 everything that may be stored of its secret.
pub(super) const END_STORED: &str = "delete from sessions where hash = any($1)";

/// $1 id.
pub(super) const IS_OPEN: &str = "select exists (select from sessions s join desired.users u on u.id = s.user_id \
     where s.id = $1 and u.enabled)";

/// $1 key, $2 quota of a minute. What is left, and one less than that, below zero, where nothing could be taken.
pub(super) const TAKE_LOGIN: &str = "insert into login_rates as t (key, tokens, at) values ($1::bytea, $2::double precision - 1, clock_timestamp()) \
     on conflict (key) do update set at = clock_timestamp(), \
         tokens = least($2::double precision, t.tokens + case when t.tokens < 0 then 1 else 0 end \
             + extract(epoch from clock_timestamp() - t.at)::double precision * $2::double precision / 60) - 1 \
     returning tokens";

/// $1 tokens, $2 times, pairwise. Not more often than once in most of a minute, whoever saw it.
pub(super) const USE_TOKENS: &str = "insert into token_uses as t (token_id, used_at) \
     select * from unnest($1::uuid[], $2::timestamptz[]) as u(id, at) order by 1 \
     on conflict (token_id) do update set used_at = excluded.used_at \
     where t.used_at < excluded.used_at - interval '50 seconds'";

/// $1 sessions, $2 times, pairwise.
pub(super) const USE_SESSIONS: &str = "update sessions s set used_at = u.at \
     from unnest($1::uuid[], $2::timestamptz[]) as u(id, at) \
     where s.id = u.id and s.used_at < u.at - interval '50 seconds'";

/// $1 digests, $2 kinds, $3 users, $4 tokens, $5 addresses, $6 agents, $7 routes, $8 times, $9 first, $10 last.
pub(super) const LOG_ACCESS: &str = "insert into access_log as t \
         (minute, digest, kind, user_id, token_id, ip, agent, route, times, first_at, last_at) \
     select date_trunc('minute', e.first_at), e.digest, e.kind, e.user_id, e.token_id, e.ip, e.agent, e.route, e.times, \
         e.first_at, e.last_at \
     from unnest($1::bytea[], $2::text[], $3::uuid[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::bigint[], \
         $9::timestamptz[], $10::timestamptz[]) \
         as e(digest, kind, user_id, token_id, ip, agent, route, times, first_at, last_at) order by 1, 2 \
     on conflict (minute, digest) do update \
         set times = t.times + excluded.times, last_at = greatest(t.last_at, excluded.last_at)";

/// $1 before, $2 how many.
pub(super) const FORGET_ACCESS: &str = "delete from access_log where id in \
     (select id from access_log where last_at < $1 order by id limit $2 for update skip locked)";

/// $1 before, $2 how many: where requests came from.
pub(super) const FORGET_CLIENTS: &str = "delete from clients where digest in \
     (select digest from clients where at < $1 order by at limit $2 for update skip locked)";

/// Whoever was deleted. The audit trail follows the log in order: what such a user did stands in it before.
pub(super) const ASK_ERASURES: &str = "insert into erasures (user_id) \
     select stream_id from audit.entries where type = 'user.deleted' on conflict do nothing";

pub(super) const OPEN_ERASURES: &str = "select user_id from erasures where done_at is null order by asked_at";

/// $1 user, $2 how many events: erases where they came from, and notes it. Gives how many events and rows.
pub(super) const ERASE_CLIENTS: &str = "with batch as (select a.position from erasures x \
         join audit.entries a on a.actor_id = x.user_id and a.position > x.through \
         where x.user_id = $1 order by a.position limit $2), \
     gone as (delete from clients c using batch b join events e on e.position = b.position \
         where c.digest = e.client returning c.digest), \
     noted as (update erasures set through = greatest(through, (select max(position) from batch)) where user_id = $1) \
     select (select count(*) from batch), (select count(*) from gone)";

/// $1 user.
pub(super) const END_ERASURE: &str = "update erasures set done_at = now() where user_id = $1";

/// $1 now, $2 how many.
pub(super) const FORGET_SESSIONS: &str = "delete from sessions where id in \
     (select id from sessions where ends_at < $1 limit $2 for update skip locked)";

/// $1 how many. A bucket that nobody took from for so long is full.
pub(super) const FORGET_RATES: &str = "delete from login_rates where key in \
     (select key from login_rates where at < now() - interval '2 minutes' limit $1 for update skip locked)";

/// $1 name, $2 owner, $3 seconds.
pub(crate) const REPLICA: &str = "insert into leases as l (name, owner, until) \
     values ($1, $2, clock_timestamp() + make_interval(secs => $3)) \
     on conflict (name) do update set until = excluded.until";

/// How many processes answer requests.
pub(crate) const REPLICAS: &str =
    "select count(*) from leases where starts_with(name, 'api ') and until > clock_timestamp()";

/// $1 name.
pub(crate) const REPLICA_END: &str = "delete from leases where name = $1";

/// Rows of processes that are long gone.
pub(crate) const REPLICAS_FORGET: &str = "delete from leases where starts_with(name, 'api ') \
     and until < clock_timestamp() - interval '1 hour'";

/// Every statement, for the test that prepares them.
pub const ALL: &[&str] = &[
    VERIFIER,
    VERIFIER_OF,
    BEGIN,
    KEEP_NEWEST,
    END,
    END_STORED,
    IS_OPEN,
    TAKE_LOGIN,
    USE_TOKENS,
    USE_SESSIONS,
    LOG_ACCESS,
    FORGET_ACCESS,
    FORGET_CLIENTS,
    ASK_ERASURES,
    OPEN_ERASURES,
    ERASE_CLIENTS,
    END_ERASURE,
    FORGET_SESSIONS,
    FORGET_RATES,
    REPLICA,
    REPLICAS,
    REPLICA_END,
    REPLICAS_FORGET,
];
