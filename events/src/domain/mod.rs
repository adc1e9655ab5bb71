//! The domain aggregate: what a caller may ask of it (`command`), what a
//! decision reads of it (`state`), and the decision itself (`decide`).

mod cache;
mod certificate;
mod command;
mod create;
mod cuts;
mod decide;
pub mod destination;
mod hostname;
mod import;
mod lifecycle;
mod merge;
mod origin;
mod permit;
mod retention;
mod rollback;
mod rrsets;
mod state;
mod sums;
mod undo;

pub use cache::{CachePatch, CachePolicy, PurgeRequested, PurgeScope, UNSUPPORTED_FIELDS};
pub use certificate::{
    CertificateBody, CertificateDeleted, CertificateReplaced, CertificateSource, NewCertificate,
    SealedPrivateKey, StoredCertificate, covers, uncovered,
};
pub use command::{
    CreateDomain, DomainCommand, DomainPatch, LabelsPatch, Precondition, RrsetChange, SiteNeeds,
};
pub use create::{create, permitted as create_permitted, tag_faults};
pub use decide::{Context, Decided, Decision, Limits, decide, diff, entity_tag, sides};
pub use hostname::{
    Backup, BackupInput, Health, HealthInput, HostnameBody, HostnameDeleted, HostnameInput, HostnameReplaced,
    HostnameWithdrawn,
};
pub use import::{Comparison, ImportMode, ZoneImport};
pub use lifecycle::{
    DelegationLost, DelegationRestored, DisabledBy, DomainActivated, DomainDisabled, DomainExpired,
    DomainStatus, PENDING_MAX, Proof, challenge,
};
pub use origin::{Origin, OriginInput, Scheme};
pub use permit::permitted;
pub use retention::{Milestone, NEUTRAL_TYPES, Retention, RevisionFacts, Standing, standings};
pub use rollback::{
    DomainRolledBack, MOVED_ON, NotRestored, Past, ROLLBACK_MAX_CHANGES, Rollback, not_restored,
};
pub use state::{
    DomainState, DomainView, NameView, RrsetId, SiteState, StoredHostname, StoredRrset, name_key, soa_serial,
};
pub use undo::{DomainUndone, Undo, UndoConflict, Undoing};

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
/// RRsets that one zone text changes in one revision, at most.
pub const IMPORT_MAX_CHANGES: usize = 50_000;
/// RRsets from which on deleting more than half of them is guarded.
pub const MASS_DELETE_FLOOR_RRSETS: i64 = 20;
/// Purges of one domain that have not ended, at most.
pub const PURGES_MAX_OUTSTANDING: i64 = 100;
