//! What a batch locks beside the streams of its domains. What must hold: nothing is waited for while anything is held,
//! so that two replicas never wait for each other.

use super::people::tenant_key;
use super::sql;
use headwater_events::admin::AdminCommand;
use headwater_events::dns::DomainName;
use headwater_events::domain::CreateDomain;
use sqlx::postgres::PgConnection;

/// The lock under which what is judged by other streams than its own is decided: of two that would each leave the last
/// one, the second sees the first.
pub(super) const ADMINISTRATION: &str = "administration";

/// Whether a command's own stream does not show all that it is judged by. Such commands are rare.
pub(super) fn judges_others(command: &AdminCommand) -> bool {
    !matches!(
        command,
        AdminCommand::RecordDeployments { .. }
            | AdminCommand::FinishOperation { .. }
            | AdminCommand::RecordDelegation { .. }
    )
}

/// Takes a lock if it is free; it is held until the batch is appended or given up.
pub(super) async fn try_lock(connection: &mut PgConnection, key: &str) -> Result<bool, sqlx::Error> {
    sqlx::query_scalar(sql::LOCK_ONE).bind(key).fetch_one(connection).await
}

/// Takes the names above and below a new domain's, together with others what keeps its tenant from going.
pub(super) async fn try_name(
    connection: &mut PgConnection,
    create: &CreateDomain,
) -> Result<bool, sqlx::Error> {
    let query = sqlx::query_scalar(sql::LOCK_NAME).bind(relatives_key(&create.name));
    query.bind(tenant_key(create.tenant.as_uuid())).fetch_one(connection).await
}

/// What is waited for when it was missed twice.
#[derive(Debug, Clone)]
pub(super) enum LockName {
    /// What administrators do.
    Administration,
    /// The stream of the domain that holds this name.
    Domain(DomainName),
    /// The names above and below this one.
    Relatives(DomainName),
}

/// Waits for one lock; nothing else may be held meanwhile.
pub(super) async fn lock_name(connection: &mut PgConnection, name: &LockName) -> Result<(), sqlx::Error> {
    let key = match name {
        LockName::Administration => Some(ADMINISTRATION.to_owned()),
        LockName::Relatives(name) => Some(relatives_key(name)),
        LockName::Domain(name) => {
            sqlx::query_scalar(sql::DOMAIN_ID).bind(name.as_str()).fetch_optional(&mut *connection).await?
        }
    };
    if let Some(key) = key {
        sqlx::query(sql::LOCK_STREAM).bind(key).execute(&mut *connection).await?;
    }
    Ok(())
}

/// A name and the names above and below it share their last label.
fn relatives_key(name: &DomainName) -> String {
    format!("name {}", name.labels().next_back().unwrap_or_default())
}
