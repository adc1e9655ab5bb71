//! The webhooks as the scan knows them, folded from the log: whom an event concerns is one look by its tenant, so the cost
//! of an event is that of its owner's webhooks and the platform's own, however many others there are.

use headwater_events::event::Event;
use headwater_events::ids::{Position, TenantId, WebhookId};
use headwater_events::scope::Domains;
use headwater_events::webhook::WebhookSettings;
use std::collections::{BTreeMap, HashMap};

use crate::history::reader::Filter;
use crate::history::rights::Seen;

/// What is looked at of one.
#[derive(Debug, Clone)]
pub(super) struct Hook {
    pub(super) owner: Option<TenantId>,
    pub(super) filter: Filter,
    pub(super) enabled: bool,
}

/// All of them.
#[derive(Debug, Default)]
pub(super) struct Hooks {
    by_id: HashMap<WebhookId, Hook>,
    by_owner: HashMap<Option<TenantId>, Vec<WebhookId>>,
}

/// What an event changes of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    /// It gets what stands after this event.
    Begin(WebhookId, Option<TenantId>, Position),
    /// It gets what stands after this event, again.
    Resume(WebhookId, Position),
    /// It gets what stands after an earlier position.
    Replay(WebhookId, Position),
    /// It is another one from now on.
    Changed(WebhookId),
    /// It gets nothing any more.
    Halt(WebhookId),
    /// It is gone.
    Gone(WebhookId),
    /// All webhooks of a tenant are gone.
    TenantGone(TenantId),
}

/// The filter of beginnings of types and of names, where none of the one and no list of the other lets everything through.
pub(super) fn filter(types: Vec<String>, domains: Option<Vec<String>>) -> Filter {
    Filter { types: (!types.is_empty()).then_some(types), domains }
}

fn filter_of(settings: &WebhookSettings) -> Filter {
    let domains = match &settings.domains {
        Domains::All => None,
        Domains::Named(names) => Some(names.iter().map(ToString::to_string).collect()),
    };
    filter(settings.types.clone(), domains)
}

/// Whether an event may be sent to a webhook of this owner: the platform's own gets everything, a tenant's what concerned
/// that tenant when it happened. So what is handed over is seen from then on, and nothing of an earlier owner of a name.
pub(super) fn owns(owner: Option<TenantId>, event: Option<TenantId>) -> bool {
    owner.is_none() || owner == event
}

impl Hooks {
    pub(super) fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    pub(super) fn insert(&mut self, id: WebhookId, hook: Hook) {
        self.remove(id);
        self.by_owner.entry(hook.owner).or_default().push(id);
        self.by_id.insert(id, hook);
    }

    fn remove(&mut self, id: WebhookId) {
        let Some(gone) = self.by_id.remove(&id) else { return };
        if let Some(ids) = self.by_owner.get_mut(&gone.owner) {
            ids.retain(|one| *one != id);
            if ids.is_empty() {
                self.by_owner.remove(&gone.owner);
            }
        }
    }

    /// The webhooks that an event is for, each with the position before it: into `marks`, where none has one yet.
    pub(super) fn mark(&self, seen: &Seen<'_>, at: Position, marks: &mut BTreeMap<WebhookId, Position>) {
        let owners = if seen.tenant.is_some() { vec![None, seen.tenant] } else { vec![None] };
        for id in owners.iter().filter_map(|owner| self.by_owner.get(owner)).flatten() {
            let Some(hook) = self.by_id.get(id) else { continue };
            if hook.enabled
                && !marks.contains_key(id)
                && owns(hook.owner, seen.tenant)
                && hook.filter.passes(seen)
            {
                marks.insert(*id, Position::new(at.get() - 1));
            }
        }
    }

    /// Follows an event of a webhook, or the end of a tenant.
    pub(super) fn follow(&mut self, seen: &Seen<'_>, at: Position, event: &Event) -> Option<Effect> {
        let id = WebhookId::from_uuid(seen.stream.id);
        match event {
            Event::WebhookCreated(created) => {
                let filter = filter_of(&created.settings);
                self.insert(id, Hook { owner: seen.tenant, filter, enabled: created.enabled });
                Some(Effect::Begin(id, seen.tenant, at))
            }
            Event::WebhookUpdated(change) => {
                let hook = self.by_id.get_mut(&id)?;
                hook.filter = filter_of(&change.after);
                Some(Effect::Changed(id))
            }
            Event::WebhookEnabled(_) => {
                self.by_id.get_mut(&id)?.enabled = true;
                Some(Effect::Resume(id, at))
            }
            Event::WebhookDisabled(_) => {
                self.by_id.get_mut(&id)?.enabled = false;
                Some(Effect::Halt(id))
            }
            Event::WebhookReplayed(replayed) => Some(Effect::Replay(id, replayed.after)),
            Event::WebhookSecretRotated(_) => Some(Effect::Changed(id)),
            Event::WebhookDeleted(_) => {
                self.remove(id);
                Some(Effect::Gone(id))
            }
            Event::TenantDeleted(_) => {
                let tenant = TenantId::from_uuid(seen.stream.id);
                for id in self.by_owner.get(&Some(tenant)).cloned().unwrap_or_default() {
                    self.remove(id);
                }
                Some(Effect::TenantGone(tenant))
            }
            _ => None,
        }
    }
}
