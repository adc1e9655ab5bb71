//! Statements of comparisons.

/// $1 import, $2 the last zone had, $3 how many: zones that it took in and that are still here, with their domains.
pub(super) const ZONES: &str = "select z.zone, d.id from import_zones z \
     join desired.domains d on d.name = z.zone and d.current \
     where z.import = $1 and z.outcome in ('imported', 'unchanged', 'conflict', 'missing') and z.zone > $2 \
     and d.status = 'active' order by z.zone limit $3";

/// $1 import: how many there are.
pub(super) const COUNT: &str = "select count(*) from import_zones z \
     join desired.domains d on d.name = z.zone and d.current \
     where z.import = $1 and z.outcome in ('imported', 'unchanged', 'conflict', 'missing') and d.status = 'active'";

/// $1 domain: its names with their types.
pub(super) const NAMES: &str =
    "select owner_key, owner, type from desired.rrsets where domain_id = $1 order by owner_key, type";

/// Every statement, for the test that prepares them.
pub const ALL: &[&str] = &[ZONES, COUNT, NAMES];
