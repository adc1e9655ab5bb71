//! The pull of one reader: a cursor, its rights and its filters. Each pull gives
//! the next piece of bytes, from the ring while the cursor is in it and from the
//! log below, always by the same cursor. Nothing is queued for a reader, so a slow
//! one costs one piece.

use super::frames;
use super::hub::{Frame, Hub, Look};
use super::rights::{Ended, Rights, Seen};
use crate::app::App;
use crate::http::auth::Authenticated;
use crate::store::raw::{RawPage, Selection};
use crate::store::read::{PAGE_MAX_EVENTS, ReadError};
use bytes::Bytes;
use headwater_events::ids::{LogId, Position};
use std::sync::Arc;
use tokio_util::task::AbortOnDropHandle;

/// Octets of one piece from the ring, about.
const PIECE_BYTES: usize = 65_536;
/// Octets that one page of the log should have: the page's number of events follows it.
const PAGE_TARGET_BYTES: usize = 1_048_576;
/// Events of a reader's first page; it grows while the reader keeps up.
const FIRST_PAGE_EVENTS: i64 = 64;

/// Filters of a reader; none lets everything through.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Names of domains.
    pub domains: Option<Vec<String>>,
    /// Beginnings of types.
    pub types: Option<Vec<String>>,
}

impl Filter {
    /// Whether an event passes.
    pub fn passes(&self, seen: &Seen<'_>) -> bool {
        let domain = || seen.domain.map(|(_, name)| name);
        self.domains.as_ref().is_none_or(|wanted| wanted.iter().any(|name| domain() == Some(name)))
            && self.types.as_ref().is_none_or(|wanted| wanted.iter().any(|t| seen.event_type.starts_with(t)))
    }
}

/// What a pull gave.
#[derive(Debug)]
pub enum Pulled {
    /// Bytes to send; empty when the filters let nothing through but the cursor moved.
    Piece(Bytes),
    /// Nothing more for now.
    AtTail,
    /// The reader has to go.
    Ended(Ended),
    /// The log is another one now.
    OtherLog,
}

/// A page that is being read ahead.
#[derive(Debug)]
struct Ahead {
    after: Position,
    rights_version: u64,
    page: AbortOnDropHandle<Result<RawPage, ReadError>>,
}

/// One reader.
#[derive(Debug)]
pub struct Reader {
    app: App,
    who: Authenticated,
    log: LogId,
    short: Arc<str>,
    cursor: Position,
    rights: Rights,
    filter: Filter,
    page_events: i64,
    ahead: Option<Ahead>,
}

impl Reader {
    /// A reader of a log after a position.
    pub fn new(
        app: App,
        who: Authenticated,
        log: (LogId, Arc<str>),
        cursor: Position,
        rights: Rights,
        filter: Filter,
    ) -> Self {
        let (log, short) = log;
        Self { app, who, log, short, cursor, rights, filter, page_events: FIRST_PAGE_EVENTS, ahead: None }
    }

    /// Everything up to here was given.
    pub fn cursor(&self) -> Position {
        self.cursor
    }

    /// The short name of the log.
    pub fn short(&self) -> &str {
        &self.short
    }

    /// The rights as of the last pull.
    pub fn rights(&self) -> &Rights {
        &self.rights
    }

    /// Goes to another log, at its head.
    pub fn move_to(&mut self, log: (LogId, Arc<str>), head: Position) {
        (self.log, self.short) = log;
        self.cursor = head;
        self.ahead = None;
    }

    /// Reads the rights anew.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn reload_rights(&mut self) -> Result<(), sqlx::Error> {
        let fresh = Rights::load(&self.app.pool, &self.who).await?;
        self.rights.replace(fresh);
        Ok(())
    }

    /// The next piece.
    ///
    /// # Errors
    /// When the database does not answer.
    pub async fn pull(&mut self) -> Result<Pulled, ReadError> {
        loop {
            let hub = self.app.hub.clone();
            let look = hub.look(self.log, self.cursor, PIECE_BYTES, &mut self.rights);
            // Only now are the rights those of the tail, or later.
            if let Some(ended) = self.rights.ended(self.app.clock.now()) {
                return Ok(Pulled::Ended(ended));
            }
            match look {
                Look::OtherLog => return Ok(Pulled::OtherLog),
                Look::RightsBehind => self.reload_rights().await?,
                Look::AtTail => return Ok(Pulled::AtTail),
                Look::Frames(frames) => return Ok(Pulled::Piece(self.take_frames(&frames))),
                Look::Below(tail) => {
                    let page = self.page(tail).await?;
                    // While it was read, rights may have changed: look again, up to the tail or later.
                    match hub.look(self.log, self.cursor, 0, &mut self.rights) {
                        Look::OtherLog => return Ok(Pulled::OtherLog),
                        Look::RightsBehind => self.reload_rights().await?,
                        _ => {}
                    }
                    if let Some(ended) = self.rights.ended(self.app.clock.now()) {
                        return Ok(Pulled::Ended(ended));
                    }
                    if let Some(page) = page.filter(|(version, _)| *version == self.rights.version()) {
                        return Ok(Pulled::Piece(self.take_page(&page.1, &hub)?));
                    }
                }
            }
        }
    }

    fn take_frames(&mut self, frames: &[Arc<Frame>]) -> Bytes {
        let mut out = Vec::with_capacity(if self.filter.types.is_some() {
            0
        } else {
            PIECE_BYTES.min(frames.len() * 1_024)
        });
        for frame in frames {
            let seen = frame.seen();
            if self.filter.passes(&seen) && self.rights.shows(&seen) {
                frame.write(&mut out, self.rights.shows_client(&seen));
            }
            self.cursor = frame.position;
        }
        Bytes::from(out)
    }

    fn take_page(&mut self, page: &RawPage, hub: &Hub) -> Result<Bytes, ReadError> {
        let mut out = Vec::with_capacity(page.events.len() * 1_024);
        for event in &page.events {
            let view = event.view()?;
            let seen = Seen::from(&view);
            if self.filter.passes(&seen) && self.rights.shows(&seen) {
                let client = hub.shown_client(&view, self.rights.shows_client(&seen));
                frames::frame(&mut out, &self.short, &view, client.as_deref());
            }
        }
        self.cursor = page.end;
        let mean = out.len() / page.events.len().max(1);
        let fitting = i64::try_from(PAGE_TARGET_BYTES / mean.max(1)).unwrap_or(PAGE_MAX_EVENTS);
        self.page_events = (self.page_events * 2).min(fitting).clamp(1, PAGE_MAX_EVENTS);
        Ok(Bytes::from(out))
    }

    /// A page of the log with the version of the rights that chose it; none when it is of no use any more.
    async fn page(&mut self, tail: Position) -> Result<Option<(u64, RawPage)>, ReadError> {
        let version = self.rights.version();
        let ahead = self.ahead.take().filter(|a| a.after == self.cursor && a.rights_version == version);
        let page = match ahead {
            Some(ahead) => match ahead.page.await {
                Ok(page) => page?,
                // Its task ended with the process.
                Err(_) => return Ok(None),
            },
            None => self.read(self.cursor, tail).await?,
        };
        // A reader that keeps up gets the next page read while this one is on its way.
        if self.page_events >= PAGE_MAX_EVENTS && page.end < tail {
            let (app, selection, after, most) =
                (self.app.clone(), self.selection(), page.end, self.page_events);
            let task = tokio::spawn(async move { read(&app, &selection, after, tail, most).await });
            self.ahead = Some(Ahead { after, rights_version: version, page: AbortOnDropHandle::new(task) });
        }
        Ok(Some((version, page)))
    }

    async fn read(&self, after: Position, tail: Position) -> Result<RawPage, ReadError> {
        read(&self.app, &self.selection(), after, tail, self.page_events).await
    }

    fn selection(&self) -> Selection {
        let Filter { domains, types } = self.filter.clone();
        Selection { domains, types, ..self.rights.selection() }
    }
}

/// Reads one page with its clients, a bounded number of them at a time in this process.
async fn read(
    app: &App,
    selection: &Selection,
    after: Position,
    tail: Position,
    most: i64,
) -> Result<RawPage, ReadError> {
    let _permit = app.hub.replay_permit().await;
    let page = app.log.select(selection, after, tail, most).await?;
    app.hub.learn_clients(&app.log, &page.events).await?;
    Ok(page)
}
