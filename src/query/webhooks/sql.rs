//! The statements of the reads of webhooks. A test prepares each against the migrated schema.

/// $1 id, $2 after, $3 how many, $4 tenants (none: all, and the platform's own), $5 this tenant alone. One that is not due
/// has had everything up to the scan.
pub(super) const WEBHOOKS: &str = "select w.id, w.tenant_id, w.name, w.url, w.types, w.domains, w.labels, w.description, \
     w.enabled, w.disabled_reason, w.disabled_detail, w.secret_version, w.previous_until, w.revision, w.created_at, \
     case when w.enabled and not c.due then s.position else c.position end, c.attempts, \
     case when c.trying is not null then c.next_at end, c.trying, c.failing_since, c.last_error, c.delivered_at, \
     c.failed_in_row \
     from desired.webhooks w cross join webhook_scan s left join webhook_cursors c on c.webhook_id = w.id \
     where ($1::uuid is null or w.id = $1) and ($2::uuid is null or w.id > $2) \
     and ($4::uuid[] is null or w.tenant_id = any($4)) and ($5::uuid is null or w.tenant_id = $5) \
     order by w.id limit $3";

/// $1 webhook, $2 before, $3 how many: newest first. One that is tried no longer, because the webhook went on from
/// elsewhere, was given up by that.
pub(super) const DELIVERIES: &str = "select d.id, d.position, d.event_id, d.type, d.domain, \
     case when d.state = 'retrying' and c.delivery_id is distinct from d.id then 'abandoned' else d.state end, \
     d.attempts, d.status, d.ms, d.error, d.response, d.first_at, d.last_at, \
     case when c.delivery_id = d.id then d.next_at end \
     from webhook_deliveries d left join webhook_cursors c on c.webhook_id = d.webhook_id \
     where d.webhook_id = $1 and ($2::bigint is null or d.id < $2) order by d.id desc limit $3";

/// $1 seconds, $2 how many: those that have failed for longer, the longest first.
pub(super) const FAILING: &str = "select w.id, w.tenant_id, w.name, c.attempts, c.failing_since, c.next_at, c.last_error \
     from webhook_cursors c join desired.webhooks w on w.id = c.webhook_id and w.enabled \
     where c.failing_since < now() - make_interval(secs => $1) order by c.failing_since limit $2";

/// How many events have not been looked at for webhooks yet; none while there is no webhook.
pub(super) const SCAN_LAG: &str = "select case when exists (select from desired.webhooks) \
     then greatest((select coalesce(max(position), 0) from events) - s.position, 0) else 0 end from webhook_scan s";

/// Every statement.
pub(super) const ALL: &[&str] = &[WEBHOOKS, DELIVERIES, FAILING, SCAN_LAG];
