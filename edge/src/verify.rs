//! Whether the state directory holds, for people: the same proofs as at a start, and nothing is changed but what a
//! start would clear away.

use std::sync::Arc;

use headwater_edge_wire::artifact::ArtifactBudget;
use headwater_edge_wire::ids::CellNumber;
use serde::Serialize;

use crate::identity::{Identity, RegistrationFile};
use crate::index::Index;
use crate::layout::Layout;
use crate::pins::PinsFile;
use crate::settings::Settings;
use crate::store::Store;

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
    let mut damage = identity.damage.clone();
    damage.extend(PinsFile::new(&layout).read(&key).1);
    damage.extend(RegistrationFile::new(&layout).read(&key).1);
    let (index, found) = Index::open(&layout.index(), identity.edge, Arc::clone(&key))?;
    damage.extend(found.damage);
    let store = Store::open(&layout.artifacts(), ArtifactBudget::default())?;
    let mut artifacts_lost = 0;
    for entry in index.domains().values() {
        if store.get(&entry.checksum).is_none() {
            artifacts_lost += 1;
        }
        if let Err(error) = index.put(entry) {
            damage.push(error.to_string());
        }
    }
    for number in CellNumber::first(u8::try_from(settings.cells.len()).unwrap_or(u8::MAX)) {
        let (cell, bad) = crate::cell::Cell::inspect(&layout.cell(number), number, Arc::clone(&key))?;
        damage.extend(bad);
        damage
            .extend(cell.bad_keys()?.into_iter().map(|name| format!("cell {number}: {name} does not hold")));
    }
    Ok(Report {
        holds: damage.is_empty() && artifacts_lost == 0,
        domains: index.domains().len(),
        artifacts_lost,
        damage,
    })
}
