//! Names on their way out: edges serve them until every DNS cluster in service has verified that it answers with them no
//! longer, and resolvers have had the time to forget them.

use futures_util::future::join_all;
use headwater_events::actor::Caller;
use headwater_events::dns::{DomainName, OwnerName};
use headwater_events::domain::DomainCommand;
use headwater_events::ids::{Position, Revision};

use super::{PlacementError, sql};
use crate::app::App;
use crate::command::{Command, Meta};

/// Names that one look withdraws, at most.
const LEFT_MAX_NAMES: i64 = 200;

/// One look.
pub(super) async fn turn(app: &App) -> Result<(), PlacementError> {
    sqlx::query(sql::FORGET).execute(&app.pool).await?;
    sqlx::query(sql::CLEARED).execute(&app.pool).await?;
    let seconds = app.config.sites.drain.as_secs_f64();
    let query = sqlx::query_as::<_, (String, String, i64, Option<i64>)>(sql::LEFT);
    let left = query.bind(seconds).bind(LEFT_MAX_NAMES).fetch_all(&app.pool).await?;
    let submitted = left.iter().filter_map(|(name, owner, leaving, position)| {
        let (name, owner) = (DomainName::parse(name).ok()?, OwnerName::from_canonical(owner).ok()?);
        let command = DomainCommand::WithdrawHostname { owner, leaving: Revision::new(*leaving) };
        let meta = Meta { cause: position.map(Position::new), ..Meta::internal() };
        Some(app.commit.submit(Caller::system(), Command::Domain { name, command }, meta))
    });
    for outcome in join_all(submitted).await {
        if let Err(error) = outcome {
            tracing::warn!(%error, "a name could not be withdrawn from the edges; trying again");
        }
    }
    Ok(())
}
