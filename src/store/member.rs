//! What a decision about a member must know: that the user exists, and the role that it has.

use super::sql;
use headwater_events::actor::Role;
use headwater_events::admin::{AdminCommand, AdminView};
use sqlx::postgres::PgConnection;

pub(super) async fn view(
    connection: &mut PgConnection,
    command: &AdminCommand,
    view: &mut AdminView,
) -> Result<(), sqlx::Error> {
    let (statement, user, of) = match command {
        AdminCommand::AddMember { tenant, user, .. } | AdminCommand::RemoveMember { tenant, user } => {
            (sql::MEMBER, user, tenant.as_uuid())
        }
        AdminCommand::AddDomainMember { domain, user, .. }
        | AdminCommand::RemoveDomainMember { domain, user } => {
            (sql::DOMAIN_MEMBER, user, domain.id.as_uuid())
        }
        _ => return Ok(()),
    };
    let query = sqlx::query_as(statement).bind(user.as_uuid()).bind(of);
    let (exists, role): (bool, Option<String>) = query.fetch_one(connection).await?;
    view.user_exists = exists;
    view.role = role.as_deref().and_then(Role::from_name);
    Ok(())
}
