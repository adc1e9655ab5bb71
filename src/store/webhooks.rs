//! What a decision on a webhook reads.

use super::sql;
use headwater_events::admin::AdminView;
use headwater_events::dns::DomainName;
use headwater_events::ids::{Position, TenantId, WebhookId};
use headwater_events::scope::Domains;
use headwater_events::webhook::{
    REPLAY_MAX_EVENTS, WebhookCommand, WebhookSettings, WebhookState, WebhookView,
};
use sqlx::Row;
use sqlx::postgres::PgConnection;
use sqlx::types::Json;

/// Adds the webhook as it is, and what else this command asks about.
pub(super) async fn view(
    connection: &mut PgConnection,
    webhook: WebhookId,
    owner: Option<TenantId>,
    command: &WebhookCommand,
    view: &mut AdminView,
) -> Result<(), sqlx::Error> {
    let mut found = WebhookView { webhook: state(connection, webhook).await?, ..WebhookView::default() };
    let owner = owner.map(TenantId::as_uuid);
    match command {
        WebhookCommand::Create(_) => {
            let row = sqlx::query(sql::WEBHOOK_OWNER).bind(owner).fetch_one(connection).await?;
            (found.owner_exists, found.count) = (row.try_get(0)?, row.try_get(1)?);
        }
        WebhookCommand::Replay { after } => {
            let query = sqlx::query(sql::WEBHOOK_REPLAY).bind(owner).bind(after.get());
            let row = query.bind(REPLAY_MAX_EVENTS + 1).fetch_one(connection).await?;
            found.floor = Position::new(row.try_get(0)?);
            found.head = Position::new(row.try_get(1)?);
            found.behind = row.try_get(2)?;
        }
        _ => {}
    }
    view.webhook = found;
    Ok(())
}

async fn state(
    connection: &mut PgConnection,
    webhook: WebhookId,
) -> Result<Option<WebhookState>, sqlx::Error> {
    let query = sqlx::query(sql::WEBHOOK).bind(webhook.as_uuid());
    let Some(row) = query.fetch_optional(connection).await? else { return Ok(None) };
    let owner: Option<uuid::Uuid> = row.try_get(0)?;
    let names: Option<Vec<String>> = row.try_get(4)?;
    let Json(labels) = row.try_get(5)?;
    let domains = names.map_or(Domains::All, |names| {
        Domains::Named(names.iter().filter_map(|name| DomainName::parse(name).ok()).collect())
    });
    let settings = WebhookSettings {
        name: row.try_get(1)?,
        url: row.try_get(2)?,
        types: row.try_get(3)?,
        domains,
        labels,
        description: row.try_get(6)?,
    };
    Ok(Some(WebhookState {
        owner: owner.map(TenantId::from_uuid),
        settings,
        enabled: row.try_get(7)?,
        secret_version: u32::try_from(row.try_get::<i32, _>(8)?).unwrap_or(0),
    }))
}
