//! Whether the state directory holds, for people: the same proofs as at a start, and nothing is changed but what a
//! start would clear away.

use std::sync::Arc;

use headwater_edge_wire::artifact::ArtifactBudget;
use headwater_edge_wire::ids::CellNumber;
use serde::Serialize;

use crate::cell::Cell;
use crate::disk::Pace;
use crate::identity::{Identity, RegistrationFile};
use crate::index::Index;
use crate::layout::Layout;
use crate::pins::PinsFile;
use crate::settings::Settings;
use crate::store::Store;

/// How many lost artifacts are named; all are counted.
const ARTIFACTS_NAMED_MAX: usize = 100;

/// What was found.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Whether everything holds.
    pub holds: bool,
    /// How many domains were looked at.
    pub domains: usize,
    /// How many artifacts are missing or damaged.
    pub artifacts_lost: usize,
    /// What does not hold.
    pub damage: Vec<String>,
}

/// Looks at everything.
///
/// # Errors
/// When there is no identity or a directory cannot be read.
pub fn verify(settings: &Settings) -> Result<Report, Box<dyn std::error::Error + Send + Sync>> {
    let layout = Layout::new(&settings.state_dir);
    let identity = Identity::load(&layout)?;
    let key = Arc::clone(&identity.state_key);
    let mut copies = identity.damage.clone();
    copies.extend(PinsFile::new(&layout).bad_copies(&key));
    copies.extend(RegistrationFile::new(&layout).read(&key).1);
    let mut damage: Vec<String> =
        copies.iter().map(|path| format!("{} does not hold", layout.name(path))).collect();
    let (index, found) = Index::open(&layout.index(), identity.edge, Arc::clone(&key))?;
    damage.extend(found.damage);
    let store = Store::open(&layout.artifacts(), ArtifactBudget::default())?;
    let mut artifacts_lost = 0;
    for entry in index.domains().values() {
        let put = index.put(entry);
        if store.get(&entry.checksum).is_none() {
            artifacts_lost += 1;
            if artifacts_lost <= ARTIFACTS_NAMED_MAX {
                let whose = put.as_ref().map_or("a domain", |put| put.descriptor.domain.as_str());
                let name = layout.name(&store.path(&entry.checksum));
                damage.push(format!("{name} does not hold: {whose} revision {}", entry.revision));
            }
        }
        if let Err(error) = put {
            damage.push(error.to_string());
        }
    }
    for number in CellNumber::first(u8::try_from(settings.cells.len()).unwrap_or(u8::MAX)) {
        let dir = layout.cell(number);
        let (cell, bad) = Cell::inspect(&dir, number, Arc::clone(&key), Pace::FREE)?;
        damage.extend(bad);
        for name in cell.bad_keys()? {
            let whose = index.key_owner(&name);
            let whose = whose.map(|(domain, revision)| format!(": {domain} revision {revision}"));
            let name = layout.name(&dir.join(name));
            damage.push(format!("{name} does not hold{}", whose.unwrap_or_default()));
        }
    }
    Ok(Report { holds: damage.is_empty(), domains: index.domains().len(), artifacts_lost, damage })
}
