//! A zone text taken into a domain: what differs from what is stored, as one revision.
//!
//! The comparison with the whole zone is made before the command is queued, and holds for one revision of the domain:
//! where that has moved on, the command is told so and prepared anew. So what is read under the stream's lock, and the
//! events, are those of the difference.

use super::IMPORT_MAX_CHANGES;
use super::command::RrsetChange;
use super::decide::{Context, Decided, check, raised};
use super::rollback::MOVED_ON;
use super::rrsets::{self, Origin};
use super::state::DomainView;
use crate::actor::{self, DomainRef, Resource, Verb};
use crate::dns::{OwnerKey, OwnerName, RrSetBody, RrType};
use crate::event::{Change, DomainSettings, Event};
use crate::ids::{DomainId, Revision};
use crate::reject::{Fault, Reject};
use crate::zonetext::TextRrset;
use std::collections::HashMap;
use std::sync::Arc;

/// What becomes of RRsets that the text does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportMode {
    /// They go: the zone is what the text says.
    Replace,
    /// They stay; each RRset of the text takes the place of the one with its name and type.
    Merge,
}

/// A zone text, compared with what was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneImport {
    /// The domain that it was compared with.
    pub domain: DomainId,
    /// At this revision.
    pub through: Revision,
    /// What differs.
    pub changes: Arc<Vec<RrsetChange>>,
    /// The serial of its SOA: the domain's goes on from the higher one.
    pub serial: Option<u32>,
    /// What was not taken as it stands.
    pub warnings: Vec<String>,
}

/// Compares a text with what is stored, one RRset after the other.
#[derive(Debug)]
pub struct Comparison<'t> {
    text: HashMap<(OwnerKey, RrType), &'t TextRrset>,
    mode: ImportMode,
    comments: bool,
    changes: Vec<(usize, RrsetChange)>,
}

impl<'t> Comparison<'t> {
    /// Begins with a text.
    pub fn new(text: &'t [TextRrset], mode: ImportMode) -> Self {
        let keyed = text.iter().map(|one| ((one.rrset.owner().key(), one.rrset.rr_type()), one));
        Self { text: keyed.collect(), mode, comments: false, changes: Vec::new() }
    }

    /// The same of a source that says of every RRset whether it has a comment.
    pub fn with_comments(self, comments: bool) -> Self {
        Self { comments, ..self }
    }

    /// Takes in an RRset that is stored.
    pub fn stored(&mut self, owner: OwnerName, rrtype: RrType, body: &RrSetBody) {
        match self.text.remove(&(owner.key(), rrtype)) {
            Some(TextRrset { rrset, line }) => {
                let same = (!self.comments || rrset.comment() == body.comment.as_deref())
                    && rrset.ttl() == body.ttl
                    && rrset.records().len() == body.records.len()
                    && rrset.records().iter().zip(&body.records).all(|(one, other)| one.as_text() == other);
                if !same {
                    // A text has no place for comments, so what is there stays.
                    let put = match self.comments {
                        true => rrset.clone(),
                        false => rrset.clone().with_comment(body.comment.clone()),
                    };
                    self.changes.push((*line, RrsetChange::Put(put)));
                }
            }
            None if self.mode == ImportMode::Replace => {
                self.changes.push((0, RrsetChange::Delete { owner, rrtype }));
            }
            None => {}
        }
    }

    /// What differs, with the line of each change; 0 where the text has none for it.
    pub fn finish(mut self) -> (Vec<usize>, Vec<RrsetChange>) {
        let new = self.text.into_values().map(|one| (one.line, RrsetChange::Put(one.rrset.clone())));
        self.changes.extend(new);
        self.changes.sort_by_key(|(line, _)| *line);
        self.changes.into_iter().unzip()
    }
}

/// Decides an import.
pub(super) fn decide(
    view: &DomainView,
    asked: &ZoneImport,
    context: &Context<'_>,
) -> Result<Decided, Reject> {
    let domain = &view.state;
    check(context.precondition, Some(domain.revision))?;
    if asked.domain != domain.id || asked.through != domain.revision {
        let detail =
            format!("{} keeps changing while the text is compared with it: repeat the request", domain.name);
        return Err(Reject::Conflict { code: MOVED_ON, detail });
    }
    if asked.changes.len() > IMPORT_MAX_CHANGES {
        let detail = format!(
            "the text would change {} RRsets, and one revision changes at most {IMPORT_MAX_CHANGES}: take it in by parts \
             with mode=merge, the whole with mode=replace last",
            asked.changes.len()
        );
        return Err(Reject::Invalid(vec![Fault::at("", "too_many_changes", detail)]));
    }
    let (settings, serial) = serial(view, asked, context);
    let mut decided = rrsets::change_with(view, &asked.changes, Origin::Import, settings, context)?;
    if let Decided::Changed(decision) = &mut decided {
        decision.warnings.splice(0..0, asked.warnings.iter().cloned());
        decision.warnings.extend(serial);
    }
    Ok(decided)
}

/// The settings with a higher base of the serial, where the text has a higher serial; or why that is not so.
fn serial(view: &DomainView, asked: &ZoneImport, context: &Context<'_>) -> (Option<Event>, Option<String>) {
    let domain = &view.state;
    let Some(serial) = asked.serial else { return (None, None) };
    let raise = match raised(view, serial, context) {
        Ok(0) => return (None, None),
        Ok(raise) => raise,
        Err(Reject::Invalid(faults)) => {
            return (None, faults.into_iter().next().map(|fault| fault.detail));
        }
        Err(other) => return (None, Some(other.to_string())),
    };
    let reference = DomainRef { id: domain.id, tenant: domain.tenant, name: domain.name.as_str() };
    if !actor::decide(context.caller, Verb::Write, Resource::Contents(reference)).is_granted() {
        let detail = format!(
            "the serial {serial} of the text was not taken over: this caller may write some records alone"
        );
        return (None, Some(detail));
    }
    let before = DomainSettings {
        labels: domain.labels.clone(),
        external_id: domain.external_id.clone(),
        serial_base: domain.serial_base,
    };
    let after = DomainSettings { serial_base: domain.serial_base.wrapping_add(raise), ..before.clone() };
    (Some(Event::DomainUpdated(Change { before, after })), None)
}
