//! The domain aggregate: what a caller may ask of it (`command`), what a
//! decision reads of it (`state`), and the decision itself (`decide`).

mod command;
mod create;
mod cuts;
mod decide;
mod rrsets;
mod state;

pub use command::{CreateDomain, DomainCommand, DomainPatch, LabelsPatch, Precondition, RrsetChange};
pub use create::{create, tag_faults};
pub use decide::{Context, Decided, Decision, Limits, decide, diff};
pub use state::{DomainState, DomainView, NameView, RrsetId, StoredRrset, name_key, soa_serial};

/// Labels of one resource, at most.
pub const LABELS_MAX_COUNT: usize = 32;
/// Octets of a label's key, at most.
pub const LABEL_KEY_MAX_BYTES: usize = 63;
/// Octets of a label's value, at most.
pub const LABEL_VALUE_MAX_BYTES: usize = 255;
/// Octets of an external id, at most.
pub const EXTERNAL_ID_MAX_BYTES: usize = 255;
/// Changes of one batch, at most.
pub const BATCH_MAX_CHANGES: usize = 5_000;
/// RRsets from which on deleting more than half of them is guarded.
pub const MASS_DELETE_FLOOR_RRSETS: i64 = 20;
