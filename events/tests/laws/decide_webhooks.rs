//! Decisions about webhooks: tables of given, when, then.

use headwater_events::actor::Caller;
use headwater_events::admin::{AdminCommand, AdminView, decide};
use headwater_events::ids::{Position, Revision, TenantId, WebhookId};
use headwater_events::scope::Domains;
use headwater_events::webhook::*;
use uuid::Uuid;

use crate::given::{NOW, OPERATION, TENANT, told, user};

const WEBHOOK: WebhookId = WebhookId::from_uuid(Uuid::from_u128(30));
const OTHER: TenantId = TenantId::from_uuid(Uuid::from_u128(31));

fn settings() -> WebhookSettings {
    WebhookSettings {
        name: "inventory".into(),
        url: "https://hooks.example.net/".into(),
        types: vec!["rrset.".into()],
        domains: Domains::All,
        labels: [].into(),
        description: None,
    }
}

fn create(change: impl FnOnce(&mut WebhookSettings)) -> WebhookCommand {
    let mut settings = settings();
    change(&mut settings);
    WebhookCommand::Create(WebhookCreated { settings, enabled: true })
}

fn given(enabled: Option<bool>, change: impl FnOnce(&mut WebhookView)) -> AdminView {
    let webhook = enabled.map(|enabled| WebhookState {
        owner: Some(TENANT),
        settings: settings(),
        enabled,
        secret_version: 1,
    });
    let revision = Revision::new(if webhook.is_some() { 3 } else { 0 });
    let mut webhook = WebhookView {
        webhook,
        owner_exists: true,
        head: Position::new(90),
        floor: Position::new(10),
        ..WebhookView::default()
    };
    change(&mut webhook);
    AdminView { revision, webhook, ..AdminView::default() }
}

fn patch(change: impl FnOnce(&mut WebhookPatch)) -> WebhookCommand {
    let mut patch = WebhookPatch::default();
    change(&mut patch);
    WebhookCommand::Update(patch)
}

fn replay(after: i64) -> WebhookCommand {
    WebhookCommand::Replay { after: Position::new(after) }
}

fn rows() -> Vec<(AdminView, WebhookCommand, &'static str)> {
    let new = || given(None, |_| {});
    let there = || given(Some(true), |_| {});
    let off = || given(Some(false), |_| {});
    let gone = || WebhookDisabled { reason: DisableReason::Gone, position: None, detail: None };
    let rotate = |version| WebhookCommand::RotateSecret { version, until: NOW };
    vec![
        (new(), create(|_| {}), "1: webhook.created"),
        (given(None, |view| view.owner_exists = false), create(|_| {}), "not found"),
        (given(None, |view| view.count = WEBHOOKS_MAX_COUNT - 1), create(|_| {}), "1: webhook.created"),
        (given(None, |view| view.count = WEBHOOKS_MAX_COUNT), create(|_| {}), "conflict: too_many_webhooks"),
        (
            new(),
            create(|new| {
                new.name.clear();
                new.types = vec!["rrset.*".into(), String::new()];
                new.domains = Domains::Named([].into());
                new.description = Some("\u{7}".into());
            }),
            "invalid: /name invalid_name, /types/0 invalid_type_filter, /types/1 invalid_type_filter, \
             /domains out_of_range, /description invalid_description",
        ),
        (new(), create(|new| new.types = vec!["a".into(); 101]), "invalid: /types too_many"),
        (new(), create(|new| new.url = "x".repeat(2_049)), "invalid: /url too_long"),
        (new(), WebhookCommand::Delete, "not found"),
        (there(), patch(|_| {}), "unchanged at 3"),
        (there(), patch(|patch| patch.name = Some("inventory".into())), "unchanged at 3"),
        (there(), patch(|patch| patch.name = Some("x".into())), "4: webhook.updated"),
        (there(), patch(|patch| patch.name = Some(String::new())), "invalid: /name invalid_name"),
        (there(), patch(|patch| patch.enabled = Some(true)), "unchanged at 3"),
        (there(), patch(|patch| patch.enabled = Some(false)), "4: webhook.disabled"),
        (
            off(),
            patch(|patch| {
                patch.enabled = Some(true);
                patch.types = Some(Vec::new());
            }),
            "4: webhook.updated, webhook.enabled",
        ),
        (there(), WebhookCommand::Disable(gone()), "4: webhook.disabled"),
        (off(), WebhookCommand::Disable(gone()), "unchanged at 3"),
        (there(), rotate(2), "4: webhook.secret_rotated"),
        (there(), rotate(1), "conflict: secret_moved"),
        (there(), rotate(3), "conflict: secret_moved"),
        (there(), replay(10), "4: webhook.replayed"),
        (there(), replay(90), "4: webhook.replayed"),
        (there(), replay(9), "invalid: /after out_of_range"),
        (there(), replay(91), "invalid: /after out_of_range"),
        (off(), replay(50), "conflict: webhook_disabled"),
        (
            given(Some(true), |view| view.behind = REPLAY_MAX_EVENTS + 1),
            replay(50),
            "invalid: /after too_far",
        ),
        (given(Some(true), |view| view.behind = REPLAY_MAX_EVENTS), replay(50), "4: webhook.replayed"),
        (there(), WebhookCommand::Delete, "4: webhook.deleted"),
    ]
}

fn decided(view: &AdminView, owner: Option<TenantId>, command: WebhookCommand, caller: &Caller) -> String {
    let command = AdminCommand::Webhook { webhook: WEBHOOK, owner, command };
    told(&decide(view, &command, caller, OPERATION))
}

#[test]
fn a_table_of_decisions() {
    for (view, command, expected) in rows() {
        let shown = format!("{command:?}");
        assert_eq!(decided(&view, Some(TENANT), command, &user(TENANT)), expected, "{shown}");
    }
}

#[test]
fn nobody_reaches_the_webhook_of_another() {
    let there = given(Some(true), |_| {});
    for (owner, caller, expected) in [
        // One may say that it is one's own: it is not.
        (Some(OTHER), user(OTHER), "not found"),
        (Some(TENANT), user(OTHER), "not found"),
        (None, user(TENANT), "forbidden"),
        (None, Caller::system(), "not found"),
        (Some(TENANT), Caller::system(), "4: webhook.deleted"),
    ] {
        assert_eq!(decided(&there, owner, WebhookCommand::Delete, &caller), expected, "{owner:?}");
    }
    let platform = decided(&given(None, |_| {}), None, create(|_| {}), &user(TENANT));
    assert_eq!(platform, "forbidden");
}
