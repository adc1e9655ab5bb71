//! One batch of domains on its way to a cluster: claimed and rendered in one snapshot, written in one transaction,
//! read back, recorded in one append. A zone that the target refuses is found by halves, and delays nobody else.

use super::claim::{self, Claim, Platform, Which};
use super::cluster::Target;
use super::fault::DeployError;
use super::fence::Judgement;
use super::hold::Hold;
use super::load::{self, Candidate, Loaded, Work};
use super::permit::Order;
use super::record::{self, Ended, Ending};
use super::target::{self, Applied};
use super::verify::{self, Check};
use crate::app::App;
use futures_util::StreamExt;
use headwater_events::event::Stages;
use headwater_events::ids::DomainId;
use headwater_projections::powerdns::SetHash;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

/// Outcomes of one append.
const RECORD_MAX_DOMAINS: usize = 1_000;

/// What a batch works with.
#[derive(Clone)]
pub(super) struct Context {
    pub(super) app: App,
    pub(super) target: Target,
    pub(super) order: Order,
}

/// What a batch leaves behind.
#[derive(Debug, Default)]
pub(super) struct Left {
    /// To be claimed again, whole.
    pub(super) whole: Vec<DomainId>,
    /// What of the cluster was reached; none when nothing was tried.
    pub(super) reached: Option<Reach>,
    /// How many deployments ended.
    pub(super) ended: usize,
}

/// What of a cluster was reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reach {
    /// Its database and its listeners.
    All,
    /// Its database alone: it can be written, but nothing can be verified.
    Database(String),
    /// Not even its database.
    Nothing(String),
}

/// How a batch is worked on.
#[derive(Debug, Clone, Default)]
pub(super) struct Manner {
    /// Written whole whatever is known to be there.
    pub(super) whole: BTreeSet<DomainId>,
    /// Written even where it is current, due or not.
    pub(super) rebuild: bool,
}

/// Deploys domains; lets go of each when its outcome is recorded.
pub(super) async fn deploy(
    context: &Context,
    domains: &[DomainId],
    manner: &Manner,
    hold: &Hold,
) -> Result<Left, DeployError> {
    let cluster = context.target.cluster.id;
    let mut snapshot = claim::snapshot(&context.app.pool).await?;
    let platform = claim::platform(&mut snapshot).await?;
    let which = if manner.rebuild { Which::Any } else { Which::Due };
    let claims = one_per_name(claim::claims(&mut snapshot, cluster, domains, which).await?);
    fail::fail_point!("deploy.after_claim", |_| Err(DeployError::Failed("failpoint".into())));
    if claims.is_empty() {
        return Ok(Left::default());
    }
    let mut loaded = load::load(&mut snapshot, &platform, claims, &manner.whole).await?;
    for made in &mut loaded.candidates {
        made.rebuild = manner.rebuild;
    }
    let rendered = context.app.clock.now();
    let (streamed, together): (Vec<_>, Vec<_>) =
        std::mem::take(&mut loaded.candidates).into_iter().partition(|made| made.work == Work::Streamed);
    let mut results = Vec::new();
    for made in &streamed {
        let (target, control) = (&context.target, &context.app.pool);
        let applied =
            target::apply_streamed(target, control, platform.log, made, &mut snapshot, context.order);
        results.push(applied.await);
    }
    // The snapshot ends before the next step waits for others.
    snapshot.rollback().await.map_err(DeployError::control)?;
    fail::fail_point!("deploy.before_write", |_| Err(DeployError::Failed("failpoint".into())));
    results.extend(apply_by_halves(context, &platform, &together).await);
    hold.written();
    let candidates: Vec<Candidate> = streamed.into_iter().chain(together).collect();
    let stages =
        Stages { rendered: Some(rendered), activated: Some(context.app.clock.now()), verified: None };
    finish(context, candidates, results, loaded, stages, hold).await
}

/// A name can be due for the domain that holds it and for one that held it: first comes the one that is wanted.
fn one_per_name(mut claims: Vec<Claim>) -> Vec<Claim> {
    claims.sort_by(|a, b| (&a.name, b.wanted).cmp(&(&b.name, a.wanted)));
    claims.dedup_by(|next, kept| next.name == kept.name);
    claims
}

async fn apply_by_halves(
    context: &Context,
    platform: &Platform,
    candidates: &[Candidate],
) -> Vec<Result<Applied, DeployError>> {
    let all: Vec<&Candidate> = candidates.iter().collect();
    let mut results: Vec<Option<Result<Applied, DeployError>>> = vec![None; all.len()];
    let mut open: Vec<Range<usize>> = Vec::from_iter((!all.is_empty()).then_some(0..all.len()));
    while let Some(range) = open.pop() {
        let part = &all[range.clone()];
        match target::apply(&context.target, &context.app.pool, platform.log, part, context.order).await {
            Ok(applied) => {
                for (result, applied) in results[range].iter_mut().zip(applied) {
                    *result = Some(Ok(applied));
                }
            }
            Err(error) if error.concerns_all() => {
                let rest = results.iter_mut().filter(|result| result.is_none());
                rest.for_each(|result| *result = Some(Err(error.clone())));
                break;
            }
            Err(error) if part.len() == 1 => results[range.start] = Some(Err(error)),
            Err(_) => {
                let middle = range.start + range.len() / 2;
                open.push(middle..range.end);
                open.push(range.start..middle);
            }
        }
    }
    let unknown = || Err(DeployError::Failed("the batch ended early".into()));
    results.into_iter().map(|result| result.unwrap_or_else(unknown)).collect()
}

/// Verifies what is active and records how everything ended.
async fn finish(
    context: &Context,
    candidates: Vec<Candidate>,
    results: Vec<Result<Applied, DeployError>>,
    loaded: Loaded,
    stages: Stages,
    hold: &Hold,
) -> Result<Left, DeployError> {
    fail::fail_point!("deploy.before_verify", |_| Err(DeployError::Failed("failpoint".into())));
    let mut left = Left { whole: loaded.too_large, reached: None, ended: 0 };
    let rejected = |(claim, fault): (Claim, _)| Ended {
        claim,
        ending: Ending::Rejected(format!("{fault}")),
        stages: Stages::default(),
        checksum: None,
    };
    let mut ended: Vec<Ended> = loaded.rejected.into_iter().map(rejected).collect();
    let (mut checks, mut active) = (Vec::new(), Vec::new());
    for (made, result) in candidates.into_iter().zip(results) {
        match sort(context, made, result, stages, &mut left).await? {
            Sorted::Active(check, claim, sum) => {
                hold.asks(claim.domain, claim.desired);
                checks.push(check);
                active.push(Some((claim, sum)));
            }
            Sorted::Ended(end) => ended.push(end),
            Sorted::Again => {}
        }
    }
    let asked: Vec<DomainId> = active.iter().flatten().map(|(claim, _)| claim.domain).collect();
    // What has been seen is recorded while the rest is still asked for.
    let (seen, outcomes) = mpsc::unbounded_channel();
    let ask = async {
        let domains: Arc<[DomainId]> = asked.into();
        let asking = hold.asking();
        let needed = move |at: usize| domains.get(at).is_some_and(|domain| asking(*domain));
        let mut answers = verify::verify(&context.target, checks, needed);
        let mut any = false;
        while let Some((at, answer)) = answers.next().await {
            let Some((claim, checksum)) = active.get_mut(at).and_then(Option::take) else { continue };
            // Overtaken by what is newer before its turn came.
            let Some(answer) = answer else { continue };
            any |= answer.is_ok();
            if !hold.settle(claim.domain, answer.is_ok()).await {
                continue;
            }
            let (ending, stages) = match answer {
                Ok(()) => (Ending::Verified, Stages { verified: Some(context.app.clock.now()), ..stages }),
                Err(why) => (Ending::Unverified(why), stages),
            };
            // The other end is there until this one is dropped.
            let _ = seen.send(Ended { claim, ending, stages, checksum });
        }
        drop(seen);
        any
    };
    let (any, recorded) = tokio::join!(ask, record_all(context, ended, outcomes, hold));
    left.ended = recorded?;
    // One zone that is answered shows that the cluster is reached; one that is not may be its own fault.
    if left.reached.is_none() && any {
        left.reached = Some(Reach::All);
    }
    Ok(left)
}

/// Records outcomes as they come, as many at once as there are; says how many.
async fn record_all(
    context: &Context,
    first: Vec<Ended>,
    outcomes: mpsc::UnboundedReceiver<Ended>,
    hold: &Hold,
) -> Result<usize, DeployError> {
    let first = (!first.is_empty()).then_some(first);
    let rest = UnboundedReceiverStream::new(outcomes).ready_chunks(RECORD_MAX_DOMAINS);
    let mut all = futures_util::stream::iter(first).chain(rest);
    let mut count = 0;
    while let Some(ended) = all.next().await {
        fail::fail_point!("deploy.before_record", |_| Err(DeployError::Failed("failpoint".into())));
        record::record(&context.app, context.target.cluster.id, &ended).await?;
        fail::fail_point!("deploy.after_record", |_| Err(DeployError::Failed("failpoint".into())));
        hold.release(ended.iter().map(|one| one.claim.domain));
        count += ended.len();
    }
    Ok(count)
}

/// What follows from a result.
enum Sorted {
    /// To be read back.
    Active(Check, Claim, Option<SetHash>),
    /// Over for this time.
    Ended(Ended),
    /// To be claimed again.
    Again,
}

async fn sort(
    context: &Context,
    made: Candidate,
    result: Result<Applied, DeployError>,
    stages: Stages,
    left: &mut Left,
) -> Result<Sorted, DeployError> {
    let claim = made.claim;
    let check = |serial, samples| Check { zone: claim.name.clone(), serial, samples };
    let not_active = |ending, stages| Ended { claim: claim.clone(), ending, stages, checksum: None };
    Ok(match result {
        Ok(Applied::Active(sum, samples)) => {
            let samples = if samples.is_empty() { made.samples } else { samples };
            Sorted::Active(check(Some(claim.serial()), samples), claim, Some(sum))
        }
        // A name that another domain holds by now goes on being served.
        Ok(Applied::Removed) if taken_over(context, &claim).await? => {
            Sorted::Ended(not_active(Ending::Verified, stages))
        }
        Ok(Applied::Removed) => Sorted::Active(check(None, Vec::new()), claim, None),
        Ok(Applied::Not(Judgement::NeedsWhole)) => {
            left.whole.push(claim.domain);
            Sorted::Again
        }
        Ok(Applied::Not(Judgement::Ahead(why))) => {
            Sorted::Ended(not_active(Ending::Ahead(why), Stages::default()))
        }
        Ok(Applied::Not(_)) => Sorted::Ended(not_active(Ending::Superseded, Stages::default())),
        Err(error @ (DeployError::Control(_) | DeployError::Disabled)) => return Err(error),
        Err(error) => {
            if let DeployError::Unreachable(why) = &error {
                left.reached = Some(Reach::Nothing(why.clone()));
            }
            let ending = match error {
                DeployError::Refused(why) => Ending::Rejected(why),
                other => Ending::Failed(other.to_string()),
            };
            Sorted::Ended(not_active(ending, Stages { activated: None, ..stages }))
        }
    })
}

/// Whether another domain holds the name by now and is meant to be served.
async fn taken_over(context: &Context, claim: &Claim) -> Result<bool, DeployError> {
    let held = super::ahead::domain_by_name(&context.app.pool, &claim.name).await?;
    Ok(held.is_some_and(|held| held != claim.domain))
}
