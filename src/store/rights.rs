//! Rights are read before a command is queued, and may be another's by the time that it is appended: a member goes, a
//! token is revoked, maybe in another process. So the rights of each user have a number, which the append of whatever
//! changes them raises, and every append compares it with the one that was read: what was decided with rights that are no
//! more is decided anew. What changes the rights of others makes nobody wait.

use super::sql;
use headwater_events::actor::Caller;
use headwater_events::dns::{DomainName, OwnerName};
use headwater_events::domain::DomainCommand;
use headwater_events::ids::{RightsNumber, TokenId};
use headwater_events::manager::Manager;
use sqlx::Row;
use sqlx::postgres::PgConnection;
use sqlx::types::Json;

use super::load::{Loaded, stored_rrset};
use super::row::odd;
use crate::command::{Command, Request};

/// RRsets of others that a refused deletion names, at most.
const TOLD_MAX_RRSETS: i64 = 100;

/// Rights that are read anew for a batch: of each caller once.
#[derive(Debug, Default)]
pub(super) struct Renewal(Vec<(Caller, Option<Caller>)>);

impl Renewal {
    /// The caller with the rights of now; none where it may not come in any more.
    pub(super) async fn of(
        &mut self,
        connection: &mut PgConnection,
        caller: &Caller,
    ) -> Result<Option<Caller>, sqlx::Error> {
        if let Some((_, fresh)) = self.0.iter().find(|(known, _)| known == caller) {
            return Ok(fresh.clone());
        }
        let fresh = renewed(connection, caller).await?;
        self.0.push((caller.clone(), fresh.clone()));
        Ok(fresh)
    }
}

async fn renewed(connection: &mut PgConnection, caller: &Caller) -> Result<Option<Caller>, sqlx::Error> {
    let Some(user) = caller.user().filter(|_| caller.shown.rights.is_some()) else {
        return Ok(Some(caller.clone()));
    };
    let query = sqlx::query(sql::RIGHTS).bind(user.as_uuid());
    let query = query.bind(caller.actor.token.map(TokenId::as_uuid)).bind(caller.shown.session);
    let Some(row) = query.fetch_optional(connection).await? else { return Ok(None) };
    if !row.try_get::<bool, _>(1)? {
        return Ok(None);
    }
    let mut fresh = caller.clone();
    fresh.admin = row.try_get(0)?;
    fresh.tenants = row.try_get::<Json<_>, _>(2)?.0;
    fresh.domains = row.try_get::<Json<_>, _>(3)?.0;
    fresh.shown.rights = Some(RightsNumber::new(row.try_get(4)?));
    Ok(Some(fresh))
}

/// Reads what tools of others own in a domain that a tool is to delete.
pub(super) async fn of_others(
    connection: &mut PgConnection,
    requests: &[&Request],
    loaded: &mut Loaded,
) -> Result<(), sqlx::Error> {
    for request in requests {
        let Some((name, manager)) = deletion(request) else { continue };
        let Some(view) = loaded.domains.get_mut(name) else { continue };
        let query = sqlx::query(sql::OF_OTHERS).bind(view.state.id.as_uuid()).bind(manager.as_str());
        for row in query.bind(TOLD_MAX_RRSETS).fetch_all(&mut *connection).await? {
            let (_, rrtype, stored) = stored_rrset(&row)?;
            let owner = OwnerName::from_canonical(row.try_get(8)?).map_err(|_| odd("owner"))?;
            view.of_others.push((owner, rrtype, stored.body));
        }
    }
    Ok(())
}

/// The domain that a tool is to delete, and which tool that is.
pub(super) fn deletion(request: &Request) -> Option<(&DomainName, &Manager)> {
    match &request.command {
        Command::Domain { name, command: DomainCommand::Delete } => Some((name, request.caller.manager()?)),
        _ => None,
    }
}
