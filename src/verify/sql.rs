//! The statements of verification. A test prepares each against the migrated schema.

/// $1 now, $2 seconds: a row for every domain that has none; those that are served are spread over the time.
pub(super) const SOW: &str = "insert into domain_checks (domain_id, next_at) \
     select d.id, case when d.status = 'active' then $1::timestamptz + random() * make_interval(secs => $2) else $1 end \
     from desired.domains d where d.current and d.status in ('pending_verification', 'active') \
     and not exists (select from domain_checks c where c.domain_id = d.id) on conflict do nothing";

/// $1 now, $2 after position, $3 up to: the same of domains that came to be, or to be served, in between.
pub(super) const SOW_SINCE: &str = "insert into domain_checks (domain_id, next_at) \
     select d.id, $1 from (select distinct e.stream_id from events e where e.position > $2 and e.position <= $3 \
         and e.type in ('domain.created', 'domain.restored', 'domain.activated', 'domain.enabled')) n \
     join desired.domains d on d.id = n.stream_id and d.current and d.status in ('pending_verification', 'active') \
     on conflict do nothing";

/// $1 now, $2 how many: lets go of what is due first and is not to be looked at any more.
pub(super) const FORGET: &str = "delete from domain_checks t using ( \
     select c.domain_id, c.next_at from domain_checks c where c.next_at <= $1 order by c.next_at limit $2) c \
     where t.domain_id = c.domain_id and not exists (select from desired.domains d \
         where d.id = c.domain_id and d.current and d.status in ('pending_verification', 'active'))";

/// $1 now, $2 how many: what is due, the longest first.
pub(super) const DUE: &str = "select d.id, d.name, d.tenant_id, d.status, d.delegation_lost_at is not null, c.attempts, c.seen_ok \
     from domain_checks c join desired.domains d on d.id = c.domain_id and d.current \
         and d.status in ('pending_verification', 'active') where c.next_at <= $1 order by c.next_at limit $2";

/// $1 created before, $2 how many: domains that waited too long.
pub(super) const EXPIRED: &str = "select d.name from desired.domains d \
     where d.status = 'pending_verification' and d.current and d.created_at <= $1 order by d.created_at limit $2";

/// $1 domain, $2 now, $3 next look, $4 result, $5 detail, $6 when the look began: whoever asked since then gets another.
pub(super) const NOTE: &str = "update domain_checks set checked_at = $2, result = $4, detail = $5, \
     next_at = case when asked_at > $6 then asked_at else $3 end, \
     attempts = case when $4 = 'ok' then 0 else attempts + 1 end, seen_ok = seen_ok or $4 = 'ok', \
     since = case when result is distinct from $4 then $2 else since end where domain_id = $1";

/// $1 keys of names: the nearest of them that is hosted, whose it is, and whether it is active.
pub(super) const ABOVE: &str = "select d.name, d.tenant_id, d.status = 'active' from desired.domains d \
     where d.current and d.status <> 'deprovisioning' and d.name_key = any($1) order by length(d.name_key) desc limit 1";

/// $1 name, $2 domain, $3 tenant: whether whoever it was that the name was served for last is another tenant.
pub(super) const SERVED_BEFORE: &str = "select coalesce((select o.tenant_id <> $3 from desired.domains o \
     where o.name = $1 and not o.current and o.id <> $2 and o.status_before_delete in ('active', 'disabled') \
     order by o.created_at desc limit 1), false)";

/// $1 domain, $2 now, $3 the newest time at which it may have been asked: when it was asked, which is now unless that was
/// a moment ago.
pub(super) const ASK: &str = "insert into domain_checks as c (domain_id, next_at, asked_at) values ($1, $2, $2) \
     on conflict (domain_id) do update set asked_at = case when c.asked_at > $3 then c.asked_at else $2 end, \
         next_at = case when c.asked_at > $3 then c.next_at else $2 end, \
         attempts = case when c.asked_at > $3 then c.attempts else 0 end returning c.asked_at";

/// What the platform's own servers are reached at.
pub(super) const OWN_SERVERS: &str = "select c.dns, c.front, c.nameservers from desired.clusters c";

/// Every statement.
pub const ALL: &[&str] =
    &[SOW, SOW_SINCE, FORGET, DUE, EXPIRED, NOTE, ABOVE, SERVED_BEFORE, ASK, OWN_SERVERS];
