//! What decisions about DNS clusters read.

use super::sql;
use headwater_events::admin::AdminView;
use headwater_events::dns::DomainName;
use headwater_events::event::ClusterSettings;
use headwater_events::ids::ClusterId;
use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};
use uuid::Uuid;

/// Whether there is such a cluster.
pub(super) async fn exists(connection: &mut PgConnection, cluster: Uuid) -> Result<bool, sqlx::Error> {
    let query = sqlx::query(sql::CLUSTER).bind(cluster);
    Ok(query.fetch_optional(connection).await?.is_some())
}

/// What there is of a cluster, and how many there are.
pub(super) async fn view(
    connection: &mut PgConnection,
    cluster: ClusterId,
    view: &mut AdminView,
) -> Result<(), sqlx::Error> {
    let row = sqlx::query(sql::CLUSTERS).bind(cluster.as_uuid()).fetch_one(&mut *connection).await?;
    (view.clusters, view.enabled, view.leaving) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
    let name: Option<String> = row.try_get(3)?;
    view.scope_exists = name.is_some();
    view.cluster_name = name.unwrap_or_default();
    let query = sqlx::query(sql::CLUSTER).bind(cluster.as_uuid());
    view.cluster = query.fetch_optional(connection).await?.as_ref().map(settings).transpose()?;
    Ok(())
}

fn settings(row: &PgRow) -> Result<ClusterSettings, sqlx::Error> {
    let names: Vec<String> = row.try_get(3)?;
    Ok(ClusterSettings {
        database_url_file: row.try_get(0)?,
        dns: row.try_get(1)?,
        front: row.try_get(2)?,
        nameservers: names.iter().filter_map(|name| DomainName::parse(name).ok()).collect(),
    })
}
