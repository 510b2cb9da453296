//! What has become of requests. What they cost follows from the facts of the cell, at once; the audit
//! log, the history, metrics, and whoever asks later how one has ended, are told of its events when these are in the
//! log.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use holdall_cell::Over;
use holdall_cell::events;
use holdall_cell::facts::{Fact, Imported};
use holdall_cell::session::{CallNo, SessionId};
use holdall_core::Length;
use holdall_log::Index;
use holdall_wire::event::{Ending, What};
use holdall_wire::{Ask, ClusterCall, Fault, HostCell, Lasting, Refusal, RequestNo, Who};
use tracing::{debug, info, warn};

use super::admission::{files_for, size};
use super::{Known, Service};
use crate::audit::Line;
use crate::history::History;
use crate::metrics;

/// Of so many requests it is remembered how they have ended.
const REMEMBERED: usize = 4096;

/// How a request has ended, and when by the wall.
pub(super) struct Ended {
    request: RequestNo,
    how: &'static str,
    at: u64,
}

impl Service {
    /// Something is so from now on.
    pub(super) fn note(&mut self, fact: Fact, ended: &[Over]) {
        match fact {
            Fact::Asked { request, session, who, ask, .. } => {
                debug!(%request, user = &*who.user, pid = who.pid, "asked");
                self.know(request, Some(session), &who, &ask);
            }
            Fact::Imported(imported) => {
                let Imported { request, who, ask, .. } = *imported;
                self.know(request, None, &who, &ask);
            }
            Fact::Left { request, .. } => {
                if let Some(known) = self.known.get_mut(&request) {
                    known.left = true;
                }
            }
            Fact::Ended { request, .. } => {
                self.no_lease(request);
                if let Some(ended) = ended.iter().find(|ended| ended.request == request) {
                    self.forget(ended);
                }
            }
            Fact::Pool { .. } => {
                if let Some(cells) = &mut self.cells {
                    cells.pools_changed = true;
                }
            }
            // What leaves later finds the session that has this number then.
            Fact::Session { session, uid, means, .. } => self.know_session(session, uid, means),
            Fact::SessionOver(session) => self.forget_session(session),
            _ => {}
        }
    }

    /// A request is known from now on, and costs what it costs.
    pub(super) fn know(
        &mut self,
        request: RequestNo,
        session: Option<SessionId>,
        who: &Who,
        ask: &Ask,
    ) {
        let uid = who.uid;
        let (size, files) = match self.admitted.take() {
            Some(admitted) => (admitted.size, admitted.files),
            None => {
                let (size, files) = (size(who, &ask.from, &ask.needs), files_for(ask.lasting));
                self.requests.take_anyway(uid, size);
                self.files.take_anyway(uid, files);
                (size, files)
            }
        };
        if let Some(session) = session.and_then(|session| self.sessions.get_mut(&session)) {
            session.open += 1;
        }
        let reserved = matches!(ask.lasting, Lasting::Reservation(_));
        let (size, files) = (size as u32, files as u8);
        self.known.insert(request, Known { size, files, reserved, left: false });
    }

    /// A request is over.
    fn forget(&mut self, &Over { request, uid, asked }: &Over) {
        self.holders.remove(&request);
        let Some(known) = self.known.remove(&request) else { return };
        debug!(%request, "over");
        self.requests.give(uid, known.size as usize);
        self.files.give(uid, known.files.into());
        if let Some((session, call)) = asked {
            self.request_over(session, call);
        }
        self.touch(known.reserved);
    }

    fn request_over(&mut self, session: SessionId, call: CallNo) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.open = session.open.saturating_sub(1);
        }
        let conn = self.books().sessions().connection(session);
        if let Some(peer) = conn.and_then(|conn| self.peers.get_mut(&conn)) {
            peer.calls.over(call);
        }
    }

    /// Something has happened, and is in the log.
    pub(super) fn tell_of(&mut self, record: Index, at: u64, what: What) {
        self.happened.fetch_add(1, Ordering::Relaxed);
        if let Some(history) = &mut self.history {
            history.add(record.0, at, &what);
        }
        let line = match what {
            What::Asked { request, who, ask } => {
                metrics::requested();
                let reason = who.from.reason.clone();
                line(at, "asked", request, who).asks(&ask).detail(reason)
            }
            What::Granted { request, who, taken, asked, overtook, .. } => {
                metrics::granted(at.saturating_sub(asked), overtook);
                line(at, "granted", request, who).taken(&taken)
            }
            What::Renewed { request, who, taken, .. } => {
                line(at, "renewed", request, who).taken(&taken)
            }
            What::Restored { request, who, taken, .. } => {
                line(at, "restored", request, who).taken(&taken)
            }
            What::TakenAway { request, who, taken, how: Ending::Overrun } => {
                info!(%request, "its time limit is over");
                self.remember(request, "overrun", at);
                line(at, "overrun", request, who).taken(&taken)
            }
            What::Forced { request, who, taken, by } => {
                let reason = by.from.reason.as_ref().map(|reason| format!(": {reason}"));
                let reason = reason.unwrap_or_default();
                let by = format!("forced by {} (uid {}, pid {}){reason}", by.user, by.uid, by.pid);
                warn!(%request, "{by}");
                self.remember(request, "forced", at);
                line(at, "forced", request, who).taken(&taken).detail(Some(by))
            }
            What::Ended { request, who, taken, how, .. } => {
                metrics::ended();
                // What is told first is why; the rest follows from it.
                let told = self.recently(request);
                let word = if told == Some(how.word()) { "lost" } else { how.word() };
                self.remember(request, word, at);
                let unfit = "it no longer fits the pools";
                let detail = (how == Ending::Unrestored).then(|| unfit.to_owned());
                line(at, word, request, who).taken(&taken).detail(detail)
            }
            What::Refused { request, who, why, .. } => {
                metrics::refused();
                let withdrawn = why == Refusal::Withdrawn;
                let word = if withdrawn { "withdrawn" } else { "refused" };
                self.remember(request, word, at);
                let detail = (!withdrawn).then(|| why.to_string());
                line(at, word, request, who).detail(detail)
            }
            What::Changed { by, change } => {
                Line::new(at, "pool").of(by).detail(serde_json::to_string(&change).ok())
            }
            _ => return,
        };
        self.audit.add(line);
    }

    /// Somebody does something about the cluster. Secrets are not for the audit log.
    pub(super) fn note_cluster(&mut self, by: Arc<Who>, call: &ClusterCall) {
        let told = match call {
            ClusterCall::Members | ClusterCall::Tokens | ClusterCall::Hosted => return,
            ClusterCall::Host(what) => {
                let what = HostCell { token: "-".into(), ..(**what).clone() };
                serde_json::to_string(&ClusterCall::Host(Box::new(what)))
            }
            _ => serde_json::to_string(call),
        };
        self.audit.add(Line::new(self.clock.wall(), "cluster").of(Some(by)).detail(told.ok()));
    }

    /// A cell is not hosted here any more, since it was removed from the cluster: who has said so, is written down where that was.
    pub(super) fn note_unhosted(&mut self, cell: &str) {
        let told = serde_json::json!({ "unhosted": cell }).to_string();
        self.audit.add(Line::new(self.clock.wall(), "cluster").detail(Some(told)));
    }

    /// What was said of a request of late.
    fn recently(&self, request: RequestNo) -> Option<&'static str> {
        let last = self.ended.iter().rev().take(8).find(|one| one.request == request);
        last.map(|one| one.how)
    }

    fn remember(&mut self, request: RequestNo, how: &'static str, at: u64) {
        if self.recently(request).is_some() {
            return;
        }
        if self.ended.len() == REMEMBERED {
            self.ended.pop_front();
        }
        self.ended.push_back(Ended { request, how, at });
    }

    /// How long the use will probably take of what somebody asks for of several cells, by the history: whatever is of one
    /// cell is waited for nearly as long with or without it.
    pub(super) fn length(&self, who: &Who, ask: &Ask) -> Option<Length> {
        self.engine().peers().next()?;
        self.history.as_ref()?.length(who, ask)
    }

    /// Hands over what is to be written down.
    pub(super) fn hand_over_history(&mut self) {
        self.audit.hand_over();
        if self.history.as_ref().is_some_and(History::has_lost_track) {
            self.tell_how_it_stands();
        }
        if let Some(history) = &mut self.history {
            history.hand_over();
        }
    }

    /// Tells the history how it stands. That may be ahead of what has been told of, which does no harm.
    fn tell_how_it_stands(&mut self) {
        let (now, standing) = (self.clock.wall(), events::standing(self.books()));
        if let Some(history) = &mut self.history {
            history.stands(now, standing);
        }
    }

    /// Waits until everything that is in the log is in the audit log and in the history.
    pub(crate) fn flush_history(&mut self) {
        self.audit.flush();
        let upto = self.host.told_upto();
        if let Some(history) = &mut self.history {
            history.flush(upto);
        }
    }

    /// A request is not there: how it has ended, if that is remembered.
    pub(super) fn unknown(&self, request: RequestNo) -> Fault {
        let ended = self.ended.iter().rev().find(|one| one.request == request);
        match ended {
            Some(Ended { how, at, .. }) => {
                let ago = self.clock.wall().saturating_sub(*at) / 1000;
                Fault::Conflict(format!("{request} has ended, {ago} seconds ago: {how}"))
            }
            None => Fault::unknown(format_args!("{request}; `holdall status` shows what there is")),
        }
    }
}

fn line(at: u64, what: &'static str, request: RequestNo, who: Arc<Who>) -> Line {
    Line::new(at, what).about(request).of(Some(who))
}
