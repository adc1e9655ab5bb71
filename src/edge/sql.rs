//! The statements of edge control. A test prepares each against the migrated schema.

/// $1 kind, $2 id.
pub(super) const SECRETS: &str =
    "select version, public, sealed from sealed_secrets where kind = $1 and id = $2 order by version";

/// $1 kind, $2 id: what everybody may know of each.
pub(super) const PUBLIC_KEYS: &str =
    "select version, public from sealed_secrets where kind = $1 and id = $2 order by version";

/// $1 id of a key: the edges that are answered and have not said that they pin it.
pub(super) const WITHOUT_KEY: &str = "select e.name from desired.edges e left join edge.heartbeats h on h.edge_id = e.id \
     where e.enabled and e.identity_serial is not null and not coalesce(h.body->'keys' ? $1, false) order by e.name";

/// $1 kind, $2 ids, $3 versions, pairwise.
pub(super) const SOME_SECRETS: &str = "select s.id, s.version, s.sealed from unnest($2::text[], $3::integer[]) as n(id, version) \
     join sealed_secrets s on s.kind = $1 and s.id = n.id and s.version = n.version";

/// $1 kind: the keys of certificates that nothing refers to any more: neither what is desired nor what is published,
/// and every cell in service of the domain has taken in what is published since.
pub(super) const FORGET_KEYS: &str = "delete from sealed_secrets s using (select k.id, k.version, \
         (convert_from(k.public, 'UTF8')::jsonb->>'domain')::uuid as domain_id from sealed_secrets k where k.kind = $1) n \
     where s.kind = $1 and s.id = n.id and s.version = n.version \
     and not exists (select from desired.certificates c \
         where c.domain_id = n.domain_id and c.id::text = n.id and c.version = n.version) \
     and not exists (select from edge.domains d where d.domain_id = n.domain_id and not d.removed \
         and d.keys @> jsonb_build_array(jsonb_build_object('id', n.id, 'version', n.version))) \
     and not exists (select from edge.domains d cross join lateral edge.cells(d.domain_id) c \
         where d.domain_id = n.domain_id and c.in_service and coalesce(c.acked, 0) < d.sequence)";

/// $1 kind, $2 id.
pub(super) const NEWEST_SECRET: &str = "select max(version) from sealed_secrets where kind = $1 and id = $2";

/// $1 kind, $2 id, $3 version, $4 what everybody may know, $5 sealed. Whoever comes second changes nothing.
pub(super) const PUT_SECRET: &str = "insert into sealed_secrets (kind, id, version, public, sealed) \
     values ($1, $2, $3, $4, $5) on conflict do nothing";

/// $1 serial: the identity, and the edge as it is now.
pub(super) const IDENTITY: &str = "select i.edge_id, i.revoked_at is not null, i.not_after > now(), i.sealing_key, \
     e.enabled, e.cells, e.cloned is not null, \
     array(select c.number from desired.cells c where c.edge_id = i.edge_id and not c.drained order by 1) \
     from edge_identities i left join desired.edges e on e.id = i.edge_id where i.serial = $1";

/// $1 edge: the lock under which identities are given and taken, and the token.
pub(super) const LOCK_TOKEN: &str = "select hash, expires_at > now(), taken_by, void_at is not null \
     from edge_tokens where edge_id = $1 for update";

/// $1 edge.
pub(super) const EDGE: &str = "select enabled, cells from desired.edges where id = $1";

/// $1 edge, $2 what it was taken by.
pub(super) const TAKE_TOKEN: &str =
    "update edge_tokens set taken_by = $2, taken_at = coalesce(taken_at, now()) where edge_id = $1";

/// $1 edge, $2 digest of the token: what was given for it.
pub(super) const GIVEN: &str = "select serial, key, certificate, not_after, recorded from edge_identities \
     where edge_id = $1 and token = $2 and revoked_at is null order by issued_at limit 1";

/// $1 serial: whether an identity still counts.
pub(super) const IS_LIVE: &str = "select exists (select from edge_identities \
     where serial = $1 and revoked_at is null and not_after > now())";

/// $1 serial, $2 edge, $3 digest of the key, $4 sealing key, $5 digest of the token, $6 certificate, $7 its end.
pub(super) const PUT_IDENTITY: &str = "insert into edge_identities \
     (serial, edge_id, key, sealing_key, token, certificate, not_after) values ($1, $2, $3, $4, $5, $6, $7)";

/// $1 edge: what is remembered between heartbeats, and how many damaged files the last one told of.
pub(super) const LOCK_HEARTBEAT: &str = "select watch, coalesce((body->>'damaged_count')::bigint, 0) \
     from edge.heartbeats where edge_id = $1 for update";

/// $1 edge, $2 serial, $3 sequence, $4 source, $5 body, $6 watch, $7 seconds for which it counts.
pub(super) const PUT_HEARTBEAT: &str = "insert into edge.heartbeats as h (edge_id, at, fresh_until, serial, sequence, source, body, watch) \
     values ($1, now(), now() + make_interval(secs => $7), $2, $3, $4, $5, $6) on conflict (edge_id) do update \
     set at = excluded.at, fresh_until = excluded.fresh_until, serial = excluded.serial, \
     sequence = excluded.sequence, source = excluded.source, body = excluded.body, watch = excluded.watch";

/// $1 serial: its first heartbeat.
pub(super) const USE_IDENTITY: &str =
    "update edge_identities set used_at = now() where serial = $1 and used_at is null";

/// $1 edge: its token has done its work.
pub(super) const VOID_TOKEN: &str =
    "update edge_tokens set void_at = now() where edge_id = $1 and taken_by is not null and void_at is null";

/// $1 serial, $2 seconds: whether a newer key has been in use beside this one for longer than a change of keys takes.
pub(super) const IS_OLD_KEY: &str = "select exists (select from edge_identities o join edge_identities n \
     on n.edge_id = o.edge_id and n.issued_at > o.issued_at and n.key <> o.key and n.revoked_at is null \
     where o.serial = $1 and n.used_at < now() - make_interval(secs => $2))";

/// The epoch, and how far `edge` has followed the log.
pub(super) const STANDING: &str = "select m.edge_epoch, \
     coalesce((select position from projection_cursors where name = 'edge'), 0) from log_meta m";

/// The newest change, and how far `edge` has followed the log.
pub(super) const NEWEST: &str = "select coalesce(max(d.sequence), 0), \
     coalesce((select position from projection_cursors where name = 'edge'), 0) from edge.domains d";

/// $1 edge: the position of the last change of which cells domains stand on.
pub(super) const PLACED: &str = "select coalesce(max(e.position), 0) from desired.edges d \
     join events e on e.stream_id = d.id and e.revision = d.placed_revision where d.id = $1";

/// $1 after, $2 through, $3 whether those that are gone are told too, $4 how many.
pub(super) const CHANGES: &str = "select domain_id, name, sequence, revision, checksum, size, key_id, signature, removed, keys \
     from edge.domains where sequence > $1 and sequence <= $2 and (removed and $3 or not removed and signature is not null) \
     order by sequence limit $4";

/// $1 after: the first change after it that nobody has signed yet; 0: none.
pub(super) const UNSIGNED: &str = "select coalesce(min(sequence), 0) from edge.domains \
     where checksum is not null and signature is null and not removed and sequence > $1";

/// One snapshot for what follows.
pub(super) const SNAPSHOT: &str = "begin isolation level repeatable read read only";

/// $1 checksums.
pub(super) const ARTIFACTS: &str = "select checksum, bytes from edge.artifacts where checksum = any($1)";

/// $1 edge, $2 cell, $3 epoch, $4 sequence. It never goes back.
pub(super) const PUT_ACK: &str = "insert into edge.acks as a (edge_id, cell, epoch, sequence) values ($1, $2, $3, $4) \
     on conflict (edge_id, cell) do update set epoch = excluded.epoch, sequence = excluded.sequence, at = now() \
     where (a.epoch, a.sequence) < (excluded.epoch, excluded.sequence)";

/// Whether DNS may be waiting for cells to serve a name.
pub(super) const PROXIED_LATELY: &str =
    "select exists (select from desired.hostnames where added_at > now() - interval '30 seconds')";

/// $1 edge, $2 names, $3 revisions, $4 codes, $5 details.
pub(super) const PUT_REFUSALS: &str = "insert into edge.refusals as f (edge_id, domain_id, revision, code, detail) \
     select distinct on (d.domain_id) $1, d.domain_id, r.revision, r.code, r.detail \
     from unnest($2::text[], $3::bigint[], $4::text[], $5::text[]) as r(name, revision, code, detail) \
     join edge.domains d on d.name = r.name and not d.removed order by d.domain_id, r.revision desc \
     on conflict (edge_id, domain_id) do update set revision = excluded.revision, code = excluded.code, \
     detail = excluded.detail, at = now() where f.revision <= excluded.revision";

/// Every statement.
pub const ALL: &[&str] = &[
    SECRETS,
    PUBLIC_KEYS,
    WITHOUT_KEY,
    SOME_SECRETS,
    FORGET_KEYS,
    NEWEST_SECRET,
    PUT_SECRET,
    IDENTITY,
    LOCK_TOKEN,
    EDGE,
    TAKE_TOKEN,
    GIVEN,
    IS_LIVE,
    PUT_IDENTITY,
    LOCK_HEARTBEAT,
    PUT_HEARTBEAT,
    USE_IDENTITY,
    VOID_TOKEN,
    IS_OLD_KEY,
    STANDING,
    NEWEST,
    PLACED,
    CHANGES,
    UNSIGNED,
    ARTIFACTS,
    PUT_ACK,
    PROXIED_LATELY,
    PUT_REFUSALS,
];
