//! The platform's own zone: an ordinary domain of the platform's tenant, in which the names of pools are answered. It is
//! made when it is missing.

use headwater_events::actor::Caller;
use headwater_events::dns::DomainName;
use headwater_events::domain::CreateDomain;
use headwater_events::event::{DomainStatus, Labels};
use headwater_events::ids::{DomainId, TenantId};
use uuid::Uuid;

use super::{PlacementError, sql};
use crate::app::App;
use crate::command::{Command, Meta};

/// Whether the zone is there and served, so that names may lead to it.
pub(super) async fn ensure(app: &App, name: &DomainName) -> Result<bool, PlacementError> {
    let query = sqlx::query_as::<_, (Option<Uuid>, Option<String>, Option<Uuid>, bool)>(sql::ZONE);
    let (holder, status, platform, has_identity) = query.bind(name.as_str()).fetch_one(&app.pool).await?;
    let Some(platform) = platform.filter(|_| has_identity) else { return Ok(false) };
    let status = status.as_deref().and_then(DomainStatus::from_name);
    match (holder, status) {
        (Some(holder), Some(status)) if status.is_served() => {
            if holder != platform {
                tracing::warn!(zone = %name, "the platform's zone belongs to a tenant: nothing is published in it");
            }
            Ok(holder == platform)
        }
        (Some(_), Some(status)) if !status.is_deleted() => {
            tracing::warn!(zone = %name, "the platform's zone is not active: nothing is published in it");
            Ok(false)
        }
        _ => {
            let create = CreateDomain {
                id: DomainId::from_uuid(Uuid::now_v7()),
                name: name.clone(),
                tenant: TenantId::from_uuid(platform),
                force_active: true,
                labels: Labels::new(),
                external_id: None,
                rrsets: Vec::new(),
                serial_floor: None,
            };
            app.commit.submit(Caller::system(), Command::CreateDomain(create), Meta::internal()).await?;
            tracing::info!(zone = %name, "the platform's zone was made");
            Ok(true)
        }
    }
}
