//! What a decision on a user or a tenant reads. That an administrator stays, and that a tenant owns nothing, is true of
//! more than one stream: what administrators do is decided one after the other (`lock`), and whoever ends a tenant waits
//! for those who make something in it.

use super::sql;
use crate::command::Aside;
use headwater_events::admin::{AdminCommand, AdminView, UserFacts};
use headwater_events::event::Labels;
use headwater_events::ids::UserId;
use headwater_events::people::TenantSettings;
use sqlx::Row;
use sqlx::postgres::PgConnection;
use sqlx::types::Json;
use uuid::Uuid;

/// The lock that keeps a tenant from going while something is made in it.
pub(super) fn tenant_key(tenant: Uuid) -> String {
    format!("tenant {tenant}")
}

/// Such commands stand alone in their batch, and who makes a domain waits for nobody while it holds this.
async fn alone(connection: &mut PgConnection, key: &str) -> Result<(), sqlx::Error> {
    sqlx::query(sql::LOCK_STREAM).bind(key).execute(connection).await.map(|_| ())
}

/// Adds what a command on a user or a tenant asks about.
pub(super) async fn view(
    connection: &mut PgConnection,
    command: &AdminCommand,
    aside: &Aside,
    lock: bool,
    view: &mut AdminView,
) -> Result<(), sqlx::Error> {
    match command {
        AdminCommand::UpdateTenant { tenant, .. } => settings(connection, tenant.as_uuid(), view).await,
        AdminCommand::DeleteTenant { tenant } => {
            if lock {
                alone(connection, &tenant_key(tenant.as_uuid())).await?;
            }
            settings(connection, tenant.as_uuid(), view).await
        }
        AdminCommand::UpdateUser { user, .. } => {
            facts(connection, *user, view).await?;
            differs(connection, *user, aside, view).await
        }
        AdminCommand::SetUserEnabled { user, .. } | AdminCommand::DeleteUser { user } => {
            facts(connection, *user, view).await
        }
        AdminCommand::CreateToken { user, .. } | AdminCommand::SetPassword { user } => {
            facts(connection, *user, view).await
        }
        _ => Ok(()),
    }
}

async fn facts(connection: &mut PgConnection, user: UserId, view: &mut AdminView) -> Result<(), sqlx::Error> {
    let Some(row) = sqlx::query(sql::USER).bind(user.as_uuid()).fetch_optional(connection).await? else {
        return Ok(());
    };
    view.user_exists = true;
    view.people.user = Some(UserFacts { admin: row.try_get(0)?, enabled: row.try_get(1)? });
    view.people.other_administrators = row.try_get(2)?;
    Ok(())
}

/// What of the profile beside the command is another than what is known.
async fn differs(
    connection: &mut PgConnection,
    user: UserId,
    aside: &Aside,
    view: &mut AdminView,
) -> Result<(), sqlx::Error> {
    let Aside::Profile { email, name, .. } = aside else { return Ok(()) };
    let known: Option<(String, Option<String>)> =
        sqlx::query_as(sql::PERSON).bind(user.as_uuid()).fetch_optional(connection).await?;
    let (known_email, known_name) = known.unwrap_or_default();
    if email.as_ref().is_some_and(|email| *email != known_email) {
        view.people.differs.push("email");
    }
    if name.as_ref().is_some_and(|name| *name != known_name) {
        view.people.differs.push("name");
    }
    Ok(())
}

async fn settings(
    connection: &mut PgConnection,
    tenant: Uuid,
    view: &mut AdminView,
) -> Result<(), sqlx::Error> {
    let Some(row) = sqlx::query(sql::TENANT_FACTS).bind(tenant).fetch_optional(connection).await? else {
        return Ok(());
    };
    let Json(labels): Json<Labels> = row.try_get(1)?;
    view.people.tenant = Some(TenantSettings { name: row.try_get(0)?, labels, external_id: row.try_get(2)? });
    view.people.is_platform = row.try_get(3)?;
    view.people.domains = row.try_get(4)?;
    Ok(())
}
