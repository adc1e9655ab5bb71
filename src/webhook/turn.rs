//! One webhook's turn: a few events, one after the other, until one fails, there is no more, or it is others' turn.
//!
//! What must hold: before each attempt the webhook is read as it is now, so that nothing is sent to one that was disabled
//! or deleted; an event is passed only in the statement that records what became of it.

use bytes::Bytes;
use chrono::{DateTime, Utc};
use headwater_edge_wire::secret::SecretBytes;
use headwater_events::actor::{ActorKind, Caller, Owned};
use headwater_events::admin::AdminCommand;
use headwater_events::ids::{Position, TenantId, WebhookId};
use headwater_events::time::Timestamp;
use headwater_events::webhook::{DisableReason, WebhookCommand, WebhookDisabled};
use sqlx::Row;
use sqlx::postgres::PgRow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::send::{Attempt, Message, Sender, Verdict};
use super::{Believed, FAILED_IN_ROW_MAX, Holder, hooks, sign, sql};
use crate::app::App;
use crate::command::{Command, Meta, SubmitError};
use crate::history::frames::{self, Extras};
use crate::history::reader::Filter;
use crate::history::rights::Seen;
use crate::store::raw::{RawEvent, RawView, Selection};
use crate::store::read::ReadError;
use crate::vault::{Vault, VaultError};

/// Events that are read together, at most.
const PAGE_MAX_EVENTS: i64 = 8;
/// Attempts and windows of the log in one turn, at most.
const TURN_MAX_STEPS: usize = 50;
/// How long a turn lasts; what has begun is ended.
const TURN_MAX: Duration = Duration::from_secs(5);
/// How long a webhook waits whose turn broke off.
const POSTPONED_SECONDS: f64 = 10.0;
/// By how much of itself a pause is longer at most, so that those that failed together do not come back together.
const JITTER_MAX: f64 = 0.2;

/// Why a turn broke off.
#[derive(Debug, thiserror::Error)]
pub(super) enum TurnError {
    #[error("the control database did not answer: {0}")]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Vault(#[from] VaultError),
    #[error("the webhook cannot be disabled: {0}")]
    Submit(#[from] SubmitError),
}

/// A turn.
pub(super) struct Turn {
    pub(super) app: App,
    pub(super) webhook: WebhookId,
    pub(super) holder: Holder,
    pub(super) believed: Believed,
    pub(super) sender: Arc<Sender>,
    pub(super) retries: Arc<[Duration]>,
}

/// The webhook as it is now, and how far it has got.
struct State {
    owner: Option<TenantId>,
    position: Position,
    generation: i64,
    trying: Option<Position>,
    delivery: Option<i64>,
    attempts: i32,
    failed_in_row: i32,
    /// How far the log was looked through for all webhooks.
    scanned: Position,
    url: String,
    filter: Filter,
    secret_version: i32,
    previous_until: Option<Timestamp>,
}

impl State {
    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        let owner: Option<uuid::Uuid> = row.try_get(0)?;
        let until: Option<DateTime<Utc>> = row.try_get(12)?;
        Ok(Self {
            owner: owner.map(TenantId::from_uuid),
            position: Position::new(row.try_get(1)?),
            generation: row.try_get(2)?,
            trying: row.try_get::<Option<i64>, _>(3)?.map(Position::new),
            delivery: row.try_get(4)?,
            attempts: row.try_get(5)?,
            failed_in_row: row.try_get(6)?,
            scanned: Position::new(row.try_get(7)?),
            url: row.try_get(8)?,
            filter: hooks::filter(row.try_get(9)?, row.try_get(10)?),
            secret_version: row.try_get(11)?,
            previous_until: until.map(Timestamp::from),
        })
    }

    fn selection(&self) -> Selection {
        let owned = |tenant| (Owned { tenants: vec![tenant], domains: Vec::new() }, None);
        let Filter { domains, types } = self.filter.clone();
        Selection { readable: self.owner.map(owned), named: None, domains, types }
    }

    /// Whether an event is for this webhook.
    fn wants(&self, view: &RawView<'_>) -> bool {
        hooks::owns(self.owner, view.tenant) && self.filter.passes(&Seen::from(view))
    }
}

/// What is written of an attempt.
struct Record<'a> {
    view: &'a RawView<'a>,
    attempt: &'a Attempt,
    state: &'static str,
    attempts: i32,
    next: Option<Duration>,
    failed_in_row: i32,
}

impl Turn {
    /// Until one fails, there is no more, or it is others' turn.
    pub(super) async fn run(&self) -> Result<(), TurnError> {
        let begun = Instant::now();
        let done = self.steps(begun).await;
        if let Err(error) = &done {
            // Else it would have its turn again at once.
            let query = sqlx::query(sql::POSTPONE).bind(self.webhook.as_uuid()).bind(POSTPONED_SECONDS);
            query.bind(error.to_string()).execute(&self.app.pool).await?;
        }
        sqlx::query(sql::TURN).bind(self.webhook.as_uuid()).execute(&self.app.pool).await?;
        done
    }

    async fn steps(&self, begun: Instant) -> Result<(), TurnError> {
        let mut ahead: Vec<RawEvent> = Vec::new();
        let mut known: Option<(i64, Filter)> = None;
        for _ in 0..TURN_MAX_STEPS {
            if begun.elapsed() > TURN_MAX || !self.believed.holds() || self.app.stop.is_cancelled() {
                return Ok(());
            }
            let row =
                sqlx::query(sql::HOOK).bind(self.webhook.as_uuid()).fetch_optional(&self.app.pool).await?;
            // Gone, disabled, or not its time any more.
            let Some(row) = row else { return Ok(()) };
            let state = State::read(&row)?;
            // What was read ahead is of no use to another state of the webhook.
            let as_known = (state.generation, state.filter.clone());
            if known.as_ref() != Some(&as_known) {
                ahead.clear();
                known = Some(as_known);
            }
            if ahead.is_empty() {
                let selection = state.selection();
                let page =
                    self.app.log.select(&selection, state.position, state.scanned, PAGE_MAX_EVENTS).await?;
                self.app.hub.learn_clients(&self.app.log, &page.events).await?;
                ahead = page.events;
                ahead.reverse();
                if ahead.is_empty() {
                    if self.pass(&state, page.end).await? {
                        continue;
                    }
                    return Ok(());
                }
            }
            let Some(event) = ahead.pop() else { continue };
            let view = event.view()?;
            if view.position <= state.position || !state.wants(&view) {
                continue;
            }
            if !self.deliver(&state, &view).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Up to here there is nothing for it; true when there may be something behind.
    async fn pass(&self, state: &State, end: Position) -> Result<bool, TurnError> {
        let settles = end >= state.scanned;
        let text = if settles { sql::SETTLE } else { sql::PASS };
        let query = sqlx::query(text).bind(&self.holder.name).bind(self.holder.owner);
        let query = query.bind(self.webhook.as_uuid()).bind(state.generation).bind(end.get());
        let done = query.execute(&self.app.pool).await?.rows_affected() > 0;
        // Where the scan has moved meanwhile, it is looked again.
        Ok(settles != done)
    }

    /// Sends an event once and records what came of it; true when the next may follow.
    async fn deliver(&self, state: &State, view: &RawView<'_>) -> Result<bool, TurnError> {
        let secrets = self.secrets(state).await?;
        let shows = state.owner.is_none() || view.actor_kind == ActorKind::User;
        let client = self.app.hub.shown_client(view, shows);
        let mut body = Vec::with_capacity(view.data.len() + 1_024);
        frames::envelope(&mut body, view, Extras { client: client.as_deref(), ..Extras::default() });
        let message = Message {
            webhook: self.webhook,
            event: view.id,
            body: Bytes::from(body),
            secrets: &secrets,
            at: self.app.clock.now(),
        };
        fail::fail_point!("webhooks.before_send");
        let attempt = self.sender.send(&state.url, &message).await;
        fail::fail_point!("webhooks.after_send");
        metrics::histogram!("cdn_webhook_attempt_seconds").record(f64::from(attempt.ms) / 1_000.0);
        let again = state.trying == Some(view.position);
        let attempts = if again { state.attempts.saturating_add(1) } else { 1 };
        let pause = usize::try_from(attempts - 1).ok().and_then(|index| self.retries.get(index));
        let (name, next, failed_in_row) = match (attempt.verdict, pause) {
            (Verdict::Delivered, _) => ("delivered", None, 0),
            (Verdict::Failed, Some(pause)) => {
                let pause = jittered(*pause).max(attempt.wait.unwrap_or_default());
                ("retrying", Some(pause), state.failed_in_row)
            }
            _ => ("failed", None, state.failed_in_row.saturating_add(1)),
        };
        metrics::counter!("cdn_webhook_attempts_total", "outcome" => name).increment(1);
        // First the log: a process that dies before it is recorded sends the event again, and is told the same.
        if attempt.verdict == Verdict::Gone {
            self.disable(state, view, DisableReason::Gone, &attempt).await?;
        } else if name == "failed" && failed_in_row >= FAILED_IN_ROW_MAX {
            self.disable(state, view, DisableReason::Failing, &attempt).await?;
        }
        let record = Record { view, attempt: &attempt, state: name, attempts, next, failed_in_row };
        let recorded = self.record(state, &record, state.delivery.filter(|_| again)).await?;
        fail::fail_point!("webhooks.after_record");
        let goes_on = attempt.verdict != Verdict::Gone && failed_in_row < FAILED_IN_ROW_MAX;
        Ok(recorded && next.is_none() && goes_on)
    }

    /// The secrets that count: the newest one, and the one before while that is so.
    async fn secrets(&self, state: &State) -> Result<Vec<SecretBytes>, TurnError> {
        let vault = Vault::open(&self.app.config)?;
        let previous = state.previous_until.is_some_and(|until| self.app.clock.now() < until);
        let mut secrets = Vec::new();
        let query = sqlx::query(sql::SECRETS).bind(self.webhook.to_string());
        for row in query.fetch_all(&self.app.pool).await? {
            let version: i32 = row.try_get(0)?;
            if version == state.secret_version || (previous && version == state.secret_version - 1) {
                let number = u32::try_from(version).unwrap_or(0);
                secrets
                    .push(sign::open(&self.app.pool, &vault, self.webhook, number, row.try_get(1)?).await?);
            }
        }
        if secrets.is_empty() {
            // A message without a signature would teach receivers to do without.
            return Err(VaultError::Broken(sign::SECRET_KIND.to_owned()).into());
        }
        Ok(secrets)
    }

    async fn record(
        &self,
        state: &State,
        record: &Record<'_>,
        delivery: Option<i64>,
    ) -> Result<bool, sqlx::Error> {
        let Record { view, attempt, .. } = record;
        // Where the row of the attempts before is gone, this one gets a row of its own.
        for delivery in delivery.map(Some).into_iter().chain([None]) {
            let text = if delivery.is_some() { sql::RECORD_AGAIN } else { sql::RECORD };
            let mut query = sqlx::query(text)
                .bind(&self.holder.name)
                .bind(self.holder.owner)
                .bind(self.webhook.as_uuid())
                .bind(state.generation)
                .bind(view.position.get())
                .bind(view.id.as_uuid())
                .bind(view.event_type)
                .bind(view.domain.map(|domain| domain.1))
                .bind(record.state)
                .bind(record.attempts)
                .bind(attempt.status.map(i32::from))
                .bind(attempt.ms)
                .bind(&attempt.error)
                .bind(&attempt.response)
                .bind(record.next.map(|pause| pause.as_secs_f64()))
                .bind(record.failed_in_row);
            if let Some(delivery) = delivery {
                query = query.bind(delivery);
            }
            if query.execute(&self.app.pool).await?.rows_affected() > 0 {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn disable(
        &self,
        state: &State,
        view: &RawView<'_>,
        reason: DisableReason,
        attempt: &Attempt,
    ) -> Result<(), TurnError> {
        let why = attempt.error.clone().unwrap_or_default();
        let detail = match reason {
            DisableReason::Failing => {
                format!("{FAILED_IN_ROW_MAX} events in a row could not be delivered; the last one: {why}")
            }
            _ => why,
        };
        let disabled = WebhookDisabled { reason, position: Some(view.position), detail: Some(detail) };
        let command = AdminCommand::Webhook {
            webhook: self.webhook,
            owner: state.owner,
            command: WebhookCommand::Disable(disabled),
        };
        let submitted =
            self.app.commit.submit(Caller::system(), Command::admin(command), Meta::internal()).await;
        match submitted {
            // Whoever deleted it was faster.
            Err(SubmitError::Rejected(headwater_events::reject::Reject::NotFound(_))) => Ok(()),
            other => Ok(other.map(|_| ())?),
        }
    }
}

fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(1.0 + rand::random::<f64>() * JITTER_MAX)
}
