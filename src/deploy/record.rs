//! What was observed → events, many domains in one append; and when to try again. A retry is no event: a failure is
//! recorded when it begins and when its reason changes.

use super::claim::Claim;
use super::fault::DeployError;
use super::sql;
use crate::app::App;
use crate::command::{Command, Meta};
use crate::pace;
use headwater_events::actor::Caller;
use headwater_events::admin::{AdminCommand, Observation, Outcome};
use headwater_events::event::{DeploymentFact, Stages};
use headwater_events::ids::{ClusterId, Revision};
use headwater_projections::powerdns::SetHash;
use std::time::Duration;

/// The first pause after a failure.
pub const BACKOFF_MIN: Duration = Duration::from_secs(1);
/// The longest pause between two tries.
pub const BACKOFF_MAX: Duration = Duration::from_secs(300);
/// How long a stage may last before it is an event of its own.
const STAGE_SHOWN_MILLISECONDS: i64 = 1_000;
/// Octets of an error that are recorded.
const ERROR_MAX_BYTES: usize = 500;
/// How long what needs a decision waits before it is looked at again.
const UNDECIDED_PAUSE: Duration = Duration::from_secs(60);

/// How a deployment ended this time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    /// The listeners answer with it (or no longer with it, when it was removed).
    Verified,
    /// It is active, but the listeners do not show it.
    Unverified(String),
    /// It will never be applied.
    Rejected(String),
    /// It was not applied this time.
    Failed(String),
    /// Something newer is there.
    Superseded,
    /// Something is there that this log does not know.
    Ahead(String),
}

/// What is known of a deployment at its end.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub(super) claim: Claim,
    pub(super) ending: Ending,
    pub(super) stages: Stages,
    pub(super) checksum: Option<SetHash>,
}

/// When to look at a domain again.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Retry {
    attempts: u32,
    pause: Duration,
}

/// The pause before a try, twice as long each time, with jitter so that what failed together does not come back
/// together. `draw` lies in 0 … 1.
pub(super) fn backoff(attempts: u32, draw: f64) -> Duration {
    let doubled = pace::doubled(BACKOFF_MIN, BACKOFF_MAX, attempts.saturating_sub(1));
    doubled.mul_f64(0.75 + 0.25 * draw.clamp(0.0, 1.0))
}

fn shorten(text: &str) -> String {
    let end = (0..=ERROR_MAX_BYTES.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    text[..end].to_owned()
}

/// Pure: what is said of it in the log, and when it is tried again.
fn conclude(ended: &Ended, draw: f64) -> (Vec<Outcome>, Option<Retry>) {
    let claim = &ended.claim;
    let attempts = claim.attempts.saturating_add(1);
    let before = claim.active.unwrap_or(Revision::ZERO);
    let stays = |error: &str| DeploymentFact {
        revision: claim.desired,
        active: before,
        checksum: None,
        generation: None,
        serial: None,
        attempts,
        stages: ended.stages,
        error: Some(shorten(error)),
        removed: false,
    };
    let active = |error: Option<&str>| DeploymentFact {
        active: claim.desired,
        checksum: ended.checksum.map(|sum| sum.to_string()),
        generation: Some(claim.generation),
        serial: claim.wanted.then(|| claim.serial()),
        error: error.map(shorten),
        removed: !claim.wanted,
        ..stays("")
    };
    let is_new = |state: &str, error: &str| {
        claim.state != state || claim.last_error.as_deref() != Some(shorten(error).as_str())
    };
    let once = |is_new: bool, outcome: Outcome| if is_new { vec![outcome] } else { Vec::new() };
    let retry = |pause| Some(Retry { attempts, pause });
    match &ended.ending {
        Ending::Verified => {
            let mut said = Vec::new();
            if claim.state == "failed" {
                said.push(Outcome::Recovered(active(None)));
            }
            if let (Some(rendered), Some(activated)) = (ended.stages.rendered, ended.stages.activated)
                && activated.millis_since(rendered) > STAGE_SHOWN_MILLISECONDS
            {
                let stages = Stages { rendered: Some(rendered), activated: None, verified: None };
                said.push(Outcome::Rendered(DeploymentFact { stages, error: None, ..stays("") }));
            }
            said.push(Outcome::Acknowledged(active(None)));
            (said, None)
        }
        Ending::Unverified(error) => {
            let said = once(is_new("activating", error), Outcome::Activated(active(Some(error))));
            (said, retry(backoff(attempts, draw)))
        }
        Ending::Failed(error) => {
            let said = once(is_new("failed", error), Outcome::Failed(stays(error)));
            (said, retry(backoff(attempts, draw)))
        }
        Ending::Rejected(error) => {
            (once(is_new("rejected", error), Outcome::Rejected(stays(error))), retry(BACKOFF_MAX))
        }
        Ending::Ahead(error) => {
            (once(is_new("ahead", error), Outcome::Ahead(stays(error))), retry(UNDECIDED_PAUSE))
        }
        Ending::Superseded => {
            let fact = DeploymentFact { error: None, ..stays("") };
            (vec![Outcome::Superseded(fact)], retry(BACKOFF_MIN))
        }
    }
}

/// One thing said of a claim.
pub(super) fn observation(claim: &Claim, outcome: Outcome) -> Observation {
    Observation { domain: claim.domain, name: claim.name.clone(), tenant: claim.tenant, outcome }
}

/// Appends observations of one cluster, together.
pub(super) async fn append(
    app: &App,
    cluster: ClusterId,
    observed: Vec<Observation>,
) -> Result<(), DeployError> {
    if observed.is_empty() {
        return Ok(());
    }
    let command = Command::admin(AdminCommand::RecordDeployments { cluster, observed });
    app.commit.submit(Caller::system(), command, Meta::internal()).await.map_err(DeployError::control)?;
    Ok(())
}

/// Seconds from the commit until the listeners answered with it; none for what was there already (a repair, a look at
/// what has not changed).
fn propagation(ended: &Ended) -> Option<f64> {
    let claim = &ended.claim;
    let is_new = claim.active != Some(claim.desired) || claim.state == "activating";
    let verified = ended.stages.verified.filter(|_| is_new && ended.ending == Ending::Verified)?;
    u32::try_from(verified.millis_since(claim.desired_at)).ok().map(|millis| f64::from(millis) / 1_000.0)
}

/// Records how deployments ended, and sets when those that did not succeed are tried again.
pub(super) async fn record(app: &App, cluster: ClusterId, ended: &[Ended]) -> Result<(), DeployError> {
    let mut observed = Vec::new();
    let (mut ids, mut revisions, mut attempts, mut pauses) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for ended in ended {
        let (said, retry) = conclude(ended, rand::random());
        observed.extend(said.into_iter().map(|outcome| observation(&ended.claim, outcome)));
        if let Some(retry) = retry {
            ids.push(ended.claim.domain.as_uuid());
            revisions.push(ended.claim.desired.get());
            attempts.push(i32::try_from(retry.attempts).unwrap_or(i32::MAX));
            pauses.push(retry.pause.as_secs_f64());
        }
    }
    append(app, cluster, observed).await?;
    for seconds in ended.iter().filter_map(propagation) {
        metrics::histogram!("cdn_deploy_propagation_seconds", "target" => cluster.to_string())
            .record(seconds);
    }
    if ids.is_empty() {
        return Ok(());
    }
    let later = sqlx::query(sql::RETRY_LATER).bind(cluster.as_uuid()).bind(ids).bind(revisions);
    later.bind(attempts).bind(pauses).execute(&app.pool).await.map_err(DeployError::control)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use headwater_events::dns::DomainName;
    use headwater_events::ids::{DomainId, TenantId};
    use headwater_events::time::Timestamp;
    use uuid::Uuid;

    fn ended(state: &str, last_error: Option<&str>, ending: Ending) -> Ended {
        let claim = Claim {
            domain: DomainId::from_uuid(Uuid::from_u128(1)),
            name: DomainName::parse("example.com").unwrap(),
            name_key: "com example".into(),
            tenant: TenantId::from_uuid(Uuid::from_u128(2)),
            serial_base: 10,
            records: 1,
            wanted: true,
            desired: Revision::new(5),
            generation: 2,
            active: Some(Revision::new(3)),
            active_generation: Some(2),
            state: state.into(),
            attempts: 4,
            last_error: last_error.map(str::to_owned),
            checksum: None,
            desired_at: Timestamp::from_millis(-480),
        };
        let at = |millis| Some(Timestamp::from_millis(millis));
        let stages = Stages { rendered: at(0), activated: at(10), verified: at(20) };
        Ended { claim, ending, stages, checksum: Some(SetHash::EMPTY) }
    }

    fn names(ended: &Ended) -> Vec<&'static str> {
        let name = |outcome: &Outcome| match outcome {
            Outcome::Rendered(_) => "rendered",
            Outcome::Rejected(_) => "rejected",
            Outcome::Activated(_) => "activated",
            Outcome::Acknowledged(_) => "acknowledged",
            Outcome::Failed(_) => "failed",
            Outcome::Superseded(_) => "superseded",
            Outcome::Recovered(_) => "recovered",
            Outcome::Ahead(_) => "ahead",
            Outcome::Mended(_) => "mended",
        };
        conclude(ended, 1.0).0.iter().map(name).collect()
    }

    #[test]
    fn one_event_in_the_normal_case_and_none_for_a_retry() {
        let text = || "no route".to_owned();
        for (state, last, ending, said) in [
            ("pending", None, Ending::Verified, vec!["acknowledged"]),
            ("failed", Some("no route"), Ending::Verified, vec!["recovered", "acknowledged"]),
            ("pending", None, Ending::Failed(text()), vec!["failed"]),
            ("failed", Some("no route"), Ending::Failed(text()), vec![]),
            ("failed", Some("another"), Ending::Failed(text()), vec!["failed"]),
            ("pending", None, Ending::Unverified(text()), vec!["activated"]),
            ("activating", Some("no route"), Ending::Unverified(text()), vec![]),
            ("pending", None, Ending::Rejected(text()), vec!["rejected"]),
            ("rejected", Some("no route"), Ending::Rejected(text()), vec![]),
            ("pending", None, Ending::Ahead(text()), vec!["ahead"]),
            ("ahead", Some("no route"), Ending::Ahead(text()), vec![]),
            ("pending", None, Ending::Superseded, vec!["superseded"]),
        ] {
            assert_eq!(names(&ended(state, last, ending.clone())), said, "{state} {ending:?}");
        }
        let mut slow = ended("pending", None, Ending::Verified);
        slow.stages.activated = Some(Timestamp::from_millis(1_500));
        assert_eq!(names(&slow), ["rendered", "acknowledged"]);
    }

    #[test]
    fn propagation_is_of_what_was_not_there_before() {
        let mut new = ended("current", None, Ending::Verified);
        assert_eq!(propagation(&new), Some(0.5));
        new.claim.active = Some(new.claim.desired);
        assert_eq!(propagation(&new), None);
        assert_eq!(propagation(&ended("pending", None, Ending::Superseded)), None);
    }

    #[test]
    fn a_fact_tells_what_is_active() {
        let (said, retry) = conclude(&ended("pending", None, Ending::Verified), 1.0);
        let [Outcome::Acknowledged(fact)] = said.as_slice() else { panic!("{said:?}") };
        assert_eq!(
            (fact.active.get(), fact.serial, fact.generation, fact.attempts),
            (5, Some(17), Some(2), 5)
        );
        assert!(retry.is_none());
        let (said, retry) = conclude(&ended("pending", None, Ending::Failed("x".into())), 1.0);
        let [Outcome::Failed(fact)] = said.as_slice() else { panic!("{said:?}") };
        assert_eq!((fact.active.get(), fact.serial), (3, None));
        assert_eq!(retry.unwrap(), Retry { attempts: 5, pause: Duration::from_secs(16) });
    }

    #[test]
    fn pauses_grow_to_their_bound() {
        for (attempts, draw, seconds) in
            [(1, 1.0, 1.0), (2, 1.0, 2.0), (9, 1.0, 256.0), (10, 1.0, 300.0), (99, 0.0, 225.0)]
        {
            assert!((backoff(attempts, draw).as_secs_f64() - seconds).abs() < 1e-6, "{attempts}");
        }
        assert_eq!(shorten(&"é".repeat(400)).len(), 500);
    }
}
