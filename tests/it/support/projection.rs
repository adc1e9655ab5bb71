//! Projections compared or built anew, whole, by no operation: whatever differed is given back.

use headwater::app::App;
use headwater::rebuild::{self, Difference, Intent, Keep, RebuildError};
use headwater_events::dns::DomainName;
use headwater_events::event::Projection;
use headwater_events::ids::ClusterId;
use std::sync::Mutex;

/// Keeps no place, so that every walk is whole; only what differed.
struct Whole(Mutex<Vec<Difference>>);

impl Keep for Whole {
    async fn before(&self, _: ClusterId) -> Option<(DomainName, i64)> {
        None
    }

    async fn done(&self, _: ClusterId, _: &DomainName, found: Vec<Difference>) -> Result<(), RebuildError> {
        self.0.lock().unwrap().extend(found);
        Ok(())
    }
}

/// What differed.
pub async fn run(app: &App, projection: Projection, intent: Intent) -> Vec<Difference> {
    let whole = Whole(Mutex::default());
    let mut found = rebuild::run(app, projection, intent, (None, None), &mut |_| {}, &whole).await.unwrap();
    found.extend(whole.0.into_inner().unwrap());
    found
}
