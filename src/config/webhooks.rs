//! `[webhooks]`: where events may be sent to.

use std::path::{Path, PathBuf};

use headwater_events::domain::destination::Network;

use super::networks;
use super::reader::Section;

/// `[webhooks]`.
#[derive(Clone)]
pub struct Webhooks {
    /// `allow_networks`: special-purpose networks, such as private ones, in which receivers may be.
    pub allow_networks: Vec<Network>,
    /// `allow_http`: whether receivers may be reached in the clear.
    pub allow_http: bool,
    /// `ca_file`: authorities that are believed besides those of the system.
    pub ca_file: Option<PathBuf>,
}

pub(super) fn webhooks(section: &mut Section<'_>, base: &Path) -> Webhooks {
    Webhooks {
        allow_networks: networks(section, "allow_networks"),
        allow_http: section.flag("allow_http"),
        ca_file: section.path("ca_file", base),
    }
}
