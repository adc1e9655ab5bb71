//! A domain on each DNS cluster: whether what is desired is there, what keeps it back, and what its listeners say.

use headwater_events::event::DomainStatus;
use headwater_events::ids::{Revision, StreamRef};
use std::net::SocketAddr;

use super::probe::{self, Question, Said};
use super::{Asked, Cause, Hop, made, sql, word};
use crate::deploy::{self, ClusterRow};
use crate::query::deployments::{self, StoredDeployment};
use crate::query::status::{self, PauseStatus};

/// How long a change may be on its way before that is wrong, in seconds.
const WAIT_MAX_SECONDS: i64 = 30;

/// A cluster as far as it matters to one domain.
pub(super) struct Deployed {
    pub(super) hop: Hop,
    /// Whether what is there is what is desired.
    pub(super) is_current: bool,
    /// The serial that was verified last; none where nothing is meant to be there.
    pub(super) serial: Option<u32>,
    cluster: ClusterRow,
    zone: String,
}

/// Every cluster, with the hop of the deployment.
pub(super) async fn hops(asked: &Asked<'_>) -> Result<Vec<Deployed>, sqlx::Error> {
    let (pool, state) = (&asked.app.pool, &asked.stored.state);
    let clusters = deploy::clusters(pool).await.map_err(|error| sqlx::Error::Protocol(error.to_string()))?;
    let deployments = deployments::of_domain(pool, state.id).await?;
    let pauses = status::pauses(pool).await?;
    let mut all = Vec::new();
    for cluster in clusters {
        let found = deployments.iter().find(|one| one.cluster == cluster.id);
        let hop = match found {
            Some(one) => deployment(asked, &cluster, one, &pauses).await?,
            None if state.status == DomainStatus::Active => {
                Hop::unknown("deployment", format!("{} is not meant for {}", state.name, cluster.name))
            }
            None => Hop::ok("deployment", "nothing is meant to be there"),
        };
        let there =
            found.filter(|one| one.wanted && one.active_revision > Revision::ZERO && one.state != "removed");
        let serial = there.and_then(|one| u32::try_from(one.serial?).ok());
        let is_current = there.is_some_and(is_current);
        let (hop, zone) = (hop.on(&cluster.name), state.name.to_string());
        all.push(Deployed { hop, is_current, serial, cluster, zone });
    }
    Ok(all)
}

fn is_current(one: &StoredDeployment) -> bool {
    one.active_revision == one.desired_revision && one.state == "current"
}

async fn deployment(
    asked: &Asked<'_>,
    cluster: &ClusterRow,
    one: &StoredDeployment,
    pauses: &[PauseStatus],
) -> Result<Hop, sqlx::Error> {
    let (desired, active) = (one.desired_revision, one.active_revision);
    if is_current(one) || (!one.wanted && one.state == "removed") {
        let off = if cluster.enabled { "" } else { "; the cluster is disabled, and gets no further change" };
        let there =
            if one.wanted { format!("revision {active} is there") } else { "it was taken off".into() };
        return Ok(Hop::ok("deployment", format!("{there}{off}")));
    }
    let late = format!("revision {desired} is desired, {active} is there");
    if one.state == "ahead" {
        let why = one.last_error.as_deref().unwrap_or("it holds what this log does not know");
        let command = format!("headwater deployment adopt {}@{}", one.name, one.cluster);
        return Ok(Hop::broken("deployment", format!("{late}: {why}")).mend(command));
    }
    if !cluster.enabled {
        let change = disabled(asked, cluster).await?;
        let command = format!("headwater cluster enable {}", word(&cluster.name));
        let detail = format!("{late}: the cluster is disabled");
        return Ok(Hop::broken("deployment", detail).by(change).mend(command));
    }
    if let Some(pause) = pauses.iter().find(|pause| holds(pause, one)) {
        let (which, command) = match pause.scope.as_str() {
            "target" => ("of this cluster", format!("--target {}", word(&cluster.name))),
            "domain" => ("of this domain", format!("--domain {}", one.name)),
            _ => ("all", "--all".to_owned()),
        };
        let detail = format!("{late}: deployments ({which}) are paused: {}", pause.reason);
        let change = paused(asked, pause).await?;
        return Ok(Hop::broken("deployment", detail)
            .by(change)
            .mend(format!("headwater deployment resume {command}")));
    }
    let now = asked.app.clock.now().as_millis();
    let seconds = (now - one.desired_at.as_millis()) / 1_000;
    Ok(match (one.state.as_str(), &one.last_error) {
        ("failed" | "rejected", why) => {
            let why = why.as_deref().unwrap_or("nothing is known of why");
            let detail = format!("{late}: it {} {} times: {why}", one.state, one.attempts);
            Hop::broken("deployment", detail).mend(format!("headwater cluster test {}", word(&cluster.name)))
        }
        (_, why) if seconds > WAIT_MAX_SECONDS => {
            let why = why.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
            let detail = format!("{late}, and has waited for {seconds} s{why}");
            Hop::broken("deployment", detail).mend(format!("headwater cluster test {}", word(&cluster.name)))
        }
        _ => Hop::unknown("deployment", format!("{late}: it is on its way, since {seconds} s")),
    })
}

fn holds(pause: &PauseStatus, one: &StoredDeployment) -> bool {
    match pause.scope.as_str() {
        "all" => true,
        "target" => pause.id == one.cluster.as_uuid().to_string(),
        _ => pause.id == one.name.as_str(),
    }
}

async fn paused(asked: &Asked<'_>, pause: &PauseStatus) -> Result<Option<Cause>, sqlx::Error> {
    let since = chrono::DateTime::from_timestamp_millis(pause.since.as_millis());
    let query = sqlx::query(sql::PAUSED).bind(StreamRef::PLATFORM.id).bind(since);
    query.fetch_optional(&asked.app.pool).await?.as_ref().map(super::cause).transpose()
}

async fn disabled(asked: &Asked<'_>, cluster: &ClusterRow) -> Result<Option<Cause>, sqlx::Error> {
    let found = crate::query::clusters::page(&asked.app.pool, Some(cluster.id), None, 1).await?.pop();
    match found {
        Some(found) => made(&asked.app.pool, cluster.id.as_uuid(), found.revision).await,
        None => Ok(None),
    }
}

impl Deployed {
    /// What its listeners say: the PowerDNS itself, and what clients meet before it.
    pub(super) async fn ask(&self, question: Question) -> Vec<Hop> {
        let front = async {
            match self.cluster.front {
                Some(front) => Some(self.said("dnsdist", front, &question).await),
                None => None,
            }
        };
        let (behind, front) = tokio::join!(self.behind(&question), front);
        [Some(behind), front].into_iter().flatten().map(|hop| hop.on(&self.cluster.name)).collect()
    }

    /// The PowerDNS, and the database that it reads: what it has kept for a while hides that that is gone.
    async fn behind(&self, question: &Question) -> Hop {
        let database = probe::database(&self.cluster);
        let (database, hop) = tokio::join!(database, self.said("powerdns", self.cluster.dns, question));
        match database {
            Err(why) => {
                let detail = format!("the database of {} cannot be reached: {why}", self.cluster.name);
                Hop::broken("powerdns", detail).mend(RESTART_DATABASE)
            }
            Ok(()) => hop,
        }
    }

    async fn said(&self, hop: &'static str, server: SocketAddr, question: &Question) -> Hop {
        let restart = if hop == "dnsdist" { "systemctl restart dnsdist" } else { "systemctl restart pdns" };
        let again = match (self.cluster.enabled, self.is_current) {
            (true, true) => format!("headwater projection rebuild powerdns --domain {}", self.zone),
            (true, false) => format!("headwater cluster test {}", word(&self.cluster.name)),
            (false, _) => format!("headwater cluster enable {}", word(&self.cluster.name)),
        };
        match probe::ask(server, question).await {
            Said::Right(told) => Hop::ok(hop, told),
            Said::Unsure(told) | Said::Unasked(told) => Hop::unknown(hop, told),
            Said::Silent(told) => Hop::broken(hop, told).mend(restart),
            Said::Blind(told) if hop == "dnsdist" => Hop::broken(hop, told),
            Said::Blind(told) => Hop::broken(hop, told).mend(RESTART_DATABASE),
            Said::NoZone(told) | Said::Behind(told) | Said::Differs(told) => {
                Hop::broken(hop, told).mend(again)
            }
        }
    }
}

/// What brings the database of a cluster back, on its host.
const RESTART_DATABASE: &str = "systemctl restart postgresql";
