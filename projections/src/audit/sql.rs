//! Statements of `audit`.

/// $1 … $11 the columns, one array each. A position that is there already is an error: it would be counted twice.
pub(super) const INSERT: &str = "insert into audit.entries \
     (position, at, domain, domain_id, tenant_id, stream_id, actor_id, token_id, type, operation_id, text) \
     select * from unnest($1::bigint[], $2::timestamptz[], $3::text[], $4::uuid[], $5::uuid[], $6::uuid[], \
     $7::uuid[], $8::uuid[], $9::text[], $10::uuid[], $11::text[])";

/// Every statement, for the test that prepares them.
pub const ALL: &[&str] = &[INSERT];
