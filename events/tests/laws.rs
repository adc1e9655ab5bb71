//! The laws of the pure core: tables of real cases and properties that hold for every input.

// A test that cannot go on stops here, in its helpers too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "laws/decide_admin.rs"]
mod decide_admin;
#[path = "laws/decide_certificates.rs"]
mod decide_certificates;
#[path = "laws/decide_cuts.rs"]
mod decide_cuts;
#[path = "laws/decide_domain.rs"]
mod decide_domain;
#[path = "laws/decide_edges.rs"]
mod decide_edges;
#[path = "laws/decide_life.rs"]
mod decide_life;
#[path = "laws/decide_people.rs"]
mod decide_people;
#[path = "laws/decide_placement.rs"]
mod decide_placement;
#[path = "laws/decide_rrsets.rs"]
mod decide_rrsets;
#[path = "laws/decide_sites.rs"]
mod decide_sites;
#[path = "laws/decide_webhooks.rs"]
mod decide_webhooks;
#[path = "laws/destinations.rs"]
mod destinations;
#[path = "laws/dns_oracle.rs"]
mod dns_oracle;
#[path = "laws/dns_props.rs"]
mod dns_props;
#[path = "laws/dns_values.rs"]
mod dns_values;
#[path = "laws/given.rs"]
mod given;
#[path = "laws/golden.rs"]
mod golden;
#[path = "laws/golden_imports.rs"]
mod golden_imports;
#[path = "laws/golden_webhooks.rs"]
mod golden_webhooks;
#[path = "laws/managers.rs"]
mod managers;
#[path = "laws/retention.rs"]
mod retention;
#[path = "laws/rollback.rs"]
mod rollback;
#[path = "laws/sha256.rs"]
mod sha256;
#[path = "laws/undo.rs"]
mod undo;
#[path = "laws/zone_text.rs"]
mod zone_text;
