//! `headwater events`: the history of everything, and what happens now.
//!
//! What must hold for `tail`: no event is missed or shown twice, whatever happens to the connection in between. Only
//! the id of the last complete block counts, and the server resumes exactly behind it.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::Console;
use super::error::ClientError;
use super::http::{Call, Stream};
use super::list::{self, ListArgs};
use super::output::{cell, data, safe, talk};
use crate::cli::sse::{EVENT_MAX_BYTES, SseEvent, SseParser};

/// The first pause before a reconnect, unless the server says another one; it doubles from there.
const RECONNECT_PAUSE_MILLISECONDS: u64 = 500;
/// The longest pause before a reconnect.
const RECONNECT_PAUSE_MAX_SECONDS: u64 = 15;
/// How often in a row a reconnect may fail: about a quarter of an hour.
const RECONNECTS_MAX: u32 = 60;
/// How often the first connection may fail: whoever starts a command wants to know.
const FIRST_CONNECTS_MAX: u32 = 4;

/// What can be done with events.
#[derive(Subcommand)]
pub enum EventsCommand {
    /// Follows events as they happen until it is interrupted, and comes back after a lost connection without a gap
    #[command(after_help = "Examples:
  headwater events tail
  headwater events tail --after 0 --domain example.com
  headwater events tail --type rrset. --json | jq -r .domain
  headwater events tail --after 0a1b2c3d.1042 --limit 10")]
    Tail(TailArgs),
    /// Lists events, the oldest first
    #[command(after_help = "Examples:
  headwater events list --domain example.com
  headwater events list --after 1042 --limit 100 --json")]
    List {
        /// Which ones.
        #[command(flatten)]
        filter: Filter,
        /// Only those behind this position
        #[arg(long, value_name = "POSITION", default_value_t = 0)]
        after: u64,
        /// How much of it.
        #[command(flatten)]
        list: ListArgs,
    },
}

/// Which events.
#[derive(Args)]
pub struct Filter {
    /// Only those of this domain; may be repeated
    #[arg(long, value_name = "DOMAIN")]
    domain: Vec<String>,
    /// Only those whose type begins so; may be repeated
    #[arg(long = "type", value_name = "PREFIX")]
    types: Vec<String>,
}

impl Filter {
    fn apply(&self, call: Call) -> Call {
        call.each("domain", &self.domain).each("type", &self.types)
    }
}

/// What to follow.
#[derive(Args)]
pub struct TailArgs {
    #[command(flatten)]
    filter: Filter,
    /// Begins behind this position or id; 0 is the whole history [default: what happens from now on]
    #[arg(long, value_name = "POSITION")]
    after: Option<String>,
    /// Ends after so many events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
}

/// Runs it.
pub async fn run(console: &Console, command: EventsCommand) -> Result<()> {
    match command {
        EventsCommand::Tail(args) => tail(console, &args).await,
        EventsCommand::List { filter, after, list } => {
            let call = filter.apply(Call::get(&["events"])?).query("after", after);
            let lines = |rows: &[Value]| rows.iter().map(event_line).collect::<Vec<_>>().join("\n");
            list::show_with(console, call, &list.of_history(), lines).await
        }
    }
}

/// One event for people.
pub(super) fn event_line(event: &Value) -> String {
    let text = |pointer: &str| cell(event.pointer(pointer));
    let subject = match text("/domain") {
        domain if domain.is_empty() => format!("{} {}", text("/stream/kind"), text("/stream/id")),
        domain => domain,
    };
    let mut line = format!(
        "{:>8}  {}  {:<24} {subject}  {}  {}",
        text("/position"),
        text("/at"),
        text("/type"),
        revision(event),
        text("/actor/kind"),
    );
    let name = match text("/actor/name") {
        name if name.is_empty() => text("/actor/id"),
        name => name,
    };
    if !name.is_empty() {
        line.push_str(&format!(" {name}"));
    }
    let note = text("/note");
    if !note.is_empty() {
        line.push_str(&format!("  ({note})"));
    }
    line
}

/// The revision of the event's subject. A fact about a domain may stand in the stream of something else, a target say:
/// then that stream is named with its own revision, behind the domain's.
fn revision(event: &Value) -> String {
    let text = |pointer: &str| cell(event.pointer(pointer));
    let own = format!("r{}.{}", text("/revision"), text("/seq"));
    let kind = text("/stream/kind");
    if text("/domain").is_empty() || matches!(kind.as_str(), "" | "domain") {
        return own;
    }
    let elsewhere = format!("in {kind} {} {own}", text("/stream/id"));
    match text("/data/revision") {
        of_domain if of_domain.is_empty() => elsewhere,
        of_domain => format!("r{of_domain}  {elsewhere}"),
    }
}

/// How one connection ended.
enum Ended {
    /// All that was asked for has been shown.
    Enough,
    /// The server ended it in order: it has lived its time, or the process stops. Another connection goes on.
    Closed,
    /// It broke.
    Lost(anyhow::Error),
}

async fn tail(console: &Console, args: &TailArgs) -> Result<()> {
    let mut follower = Follower {
        console,
        args,
        last_id: String::new(),
        left: args.limit.unwrap_or(u64::MAX),
        pause: Duration::from_millis(RECONNECT_PAUSE_MILLISECONDS),
    };
    let ended = tokio::select! {
        ended = follower.follow() => ended,
        interrupted = tokio::signal::ctrl_c() => interrupted.context("cannot listen for Ctrl-C"),
    };
    if !follower.last_id.is_empty() {
        talk(format_args!("go on from here with --after {}", safe(&follower.last_id)));
    }
    ended
}

struct Follower<'a> {
    console: &'a Console,
    args: &'a TailArgs,
    /// Behind this the next connection begins; empty before the first id.
    last_id: String,
    left: u64,
    pause: Duration,
}

impl Follower<'_> {
    async fn follow(&mut self) -> Result<()> {
        let mut failures = 0_u32;
        let mut was_connected = false;
        loop {
            let (error, wait) = match self.console.api.open_once(&self.call()?).await {
                Ok(stream) => {
                    if failures > 0 && was_connected {
                        talk("connected again");
                    }
                    was_connected = true;
                    let (before, first_left) = (self.last_id.clone(), self.left);
                    match self.read(stream).await? {
                        Ended::Enough => return Ok(()),
                        Ended::Closed => {
                            failures = 0;
                            tokio::time::sleep(self.backoff(1)).await;
                            continue;
                        }
                        Ended::Lost(error) => {
                            if self.last_id != before || self.left != first_left {
                                failures = 0;
                            }
                            (error, None)
                        }
                    }
                }
                Err(error) => {
                    let wait = passing(&error)?;
                    (error, wait)
                }
            };
            failures += 1;
            if failures >= if was_connected { RECONNECTS_MAX } else { FIRST_CONNECTS_MAX } {
                return Err(error.context(format!("gave up after {failures} failures in a row")));
            }
            let wait = wait.unwrap_or_else(|| self.backoff(failures));
            talk(format_args!("{error:#}\n  connecting again in {:.1} s", wait.as_secs_f64()));
            tokio::time::sleep(wait).await;
        }
    }

    fn call(&self) -> Result<Call> {
        let call = self.args.filter.apply(Call::get(&["events", "stream"])?).accept("text/event-stream");
        if self.last_id.is_empty() {
            return Ok(call.maybe("after", self.args.after.as_ref()));
        }
        call.header("last-event-id", &self.last_id)
    }

    /// Doubles with each failure, with a random part so that many readers do not come back at once.
    fn backoff(&self, failures: u32) -> Duration {
        let longest = Duration::from_secs(RECONNECT_PAUSE_MAX_SECONDS);
        let doubled = self.pause.saturating_mul(1 << (failures - 1).min(10)).min(longest);
        doubled.mul_f64(rand::random_range(0.5..1.0))
    }

    async fn read(&mut self, mut stream: Stream) -> Result<Ended> {
        if stream.media_type() != "text/event-stream" {
            bail!("the API answered with {} in place of a stream: check the URL", safe(stream.media_type()));
        }
        let mut parser = SseParser::default();
        let mut heard = false;
        loop {
            let chunk = match stream.chunk().await {
                Ok(Some(chunk)) => chunk,
                Ok(None) if heard => return Ok(Ended::Closed),
                Ok(None) => return Ok(Ended::Lost(anyhow::anyhow!("the API closed the stream"))),
                Err(error) => return Ok(Ended::Lost(error)),
            };
            for event in parser.feed(&chunk) {
                heard = true;
                if event.event == "bye" && is_stop(&event) {
                    return Ok(Ended::Closed);
                }
                let is_counted = self.show(&event)?;
                self.last_id.clone_from(&event.id);
                if is_counted {
                    self.left -= 1;
                    if self.left == 0 {
                        return Ok(Ended::Enough);
                    }
                }
            }
            if parser.is_oversize() {
                bail!("an event is longer than {EVENT_MAX_BYTES} bytes: this is no stream of Headwater");
            }
            // A block that fires nothing moves on too, or a filter that matches nothing would begin anew.
            if !parser.last_event_id().is_empty() {
                parser.last_event_id().clone_into(&mut self.last_id);
                heard = true;
            }
            if let Some(pause) = parser.retry() {
                self.pause = pause.max(Duration::from_millis(1));
            }
        }
    }

    /// Shows an event, and says whether it is one of the log.
    fn show(&self, event: &SseEvent) -> Result<bool> {
        match event.event.as_str() {
            "reset" => {
                let body: Value = serde_json::from_str(&event.data).unwrap_or_default();
                if self.console.json {
                    data(json!({"reset": body}))?;
                }
                talk(format_args!(
                    "the history has a gap here ({}): what was read before may be out of date; read {} again",
                    cell(body.get("reason")),
                    cell(body.get("state")),
                ));
                return Ok(false);
            }
            "bye" => {
                bail!("the API ended the stream: {}; a valid token is needed to go on", safe(&event.data))
            }
            _ => {}
        }
        if self.console.json {
            data(&event.data)?;
        } else {
            let body = serde_json::from_str(&event.data).context("an event is not JSON")?;
            data(event_line(&body))?;
        }
        Ok(true)
    }
}

/// Whether the server says goodbye because its process stops: another one takes over, or the same starts again.
fn is_stop(bye: &SseEvent) -> bool {
    let body: Value = serde_json::from_str(&bye.data).unwrap_or_default();
    body.get("reason").and_then(Value::as_str) == Some("stopping")
}

/// Whether to come back after this, and when the server says so; else it is the end.
fn passing(error: &anyhow::Error) -> Result<Option<Duration>> {
    match error.downcast_ref() {
        Some(ClientError::Problem(problem)) if problem.is_passing() => Ok(problem.retry_after),
        Some(ClientError::Problem(problem)) => Err(ClientError::Problem(problem.clone()).into()),
        Some(other) => bail!("{other}"),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_revision_is_that_of_what_is_named() {
        let mut event = json!({"type": "rrset.replaced", "domain": "example.com", "revision": 7, "seq": 1,
            "stream": {"kind": "domain", "id": "d"}, "data": {"revision": 3}});
        assert!(event_line(&event).contains("example.com  r7.1  "), "{}", event_line(&event));
        event["stream"] = json!({"kind": "dns_cluster", "id": "c"});
        assert!(
            event_line(&event).contains("example.com  r3  in dns_cluster c r7.1  "),
            "{}",
            event_line(&event)
        );
        event["data"] = json!({});
        assert!(
            event_line(&event).contains("example.com  in dns_cluster c r7.1  "),
            "{}",
            event_line(&event)
        );
        event["domain"] = Value::Null;
        assert!(event_line(&event).contains("dns_cluster c  r7.1  "), "{}", event_line(&event));
    }

    #[test]
    fn a_line_tells_when_what_whose_who_and_why() {
        let mut event = json!({"position": 1042, "at": "2026-01-02T03:04:05.678Z", "type": "rrset.replaced",
            "domain": "example.com", "revision": 7, "seq": 1, "stream": {"kind": "domain", "id": "d"},
            "actor": {"kind": "user", "id": "u1"}, "note": null});
        let begin = "    1042  2026-01-02T03:04:05.678Z  rrset.replaced           example.com  r7.1  user";
        assert_eq!(event_line(&event), format!("{begin} u1"));
        event["actor"]["name"] = json!("a@example.org");
        event["note"] = json!("why");
        assert_eq!(event_line(&event), format!("{begin} a@example.org  (why)"));
        event["actor"] = json!({"kind": "user"});
        event["note"] = json!("");
        assert_eq!(event_line(&event), begin);
    }
}
