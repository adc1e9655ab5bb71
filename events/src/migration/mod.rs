//! Zones that come from elsewhere: what was asked for (`facts`), and what a zone of another server is here (`zone`).
//! Pure: where the zones are read from is nobody's business here.

mod content;
mod difference;
mod facts;
#[cfg(test)]
mod tests;
mod zone;

pub use difference::{Base, Digest, Merged, merge};
pub use facts::{
    COMPARE_KIND, CUTOVER_KIND, IMPORT_KIND, IMPORT_ZONES_MAX_COUNT, ImportCompareRequested,
    ImportCutoverRequested, ImportMode as Mode, ImportRequested, ImportSource, OnExisting, Tenants,
    TsigAlgorithm, TsigReference, ZonePattern,
};
pub use zone::{
    Carried, Data, NOTES_MAX_COUNT, NotCarried, Refused, SourceComment, SourceFault, SourceRecord,
    SourceZone, carry, carry_text,
};
