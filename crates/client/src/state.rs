//! What is to be said to the agent, and whether it may be said now.

use std::sync::Arc;

use holdall_wire::frame;
use holdall_wire::{Body, Fault, Reply};

use crate::calls::Calls;
use crate::link::Link;

/// The first version with sessions.
const SESSIONS: u32 = 6;

/// How it stands between this session and the agent at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The agent knows no sessions; it is of this version. It is only looked at, and told to end.
    Without(u32),
    /// The agent does not know of it.
    Unknown,
    /// The agent was told of it, in the call of this number, for the first time. Calls may follow.
    Coming(u64),
    /// The same, perhaps not for the first time. The agent says first which calls it has.
    Returning(u64),
    /// The agent knows it.
    Attached,
}

#[derive(Debug)]
pub(crate) struct State {
    pub(crate) calls: Calls,
    pub(crate) link: Option<Arc<Link>>,
    pub(crate) stage: Stage,
    /// The calls up to this number were sent over this connection, or need not be.
    pub(crate) sent: u64,
    /// Nobody uses the session any more.
    pub(crate) is_left: bool,
    /// Nobody serves the session any more: its runtime has ended.
    pub(crate) is_over: bool,
}

impl Stage {
    /// How it stands at first with an agent of a version.
    pub(crate) fn of(version: u32) -> Self {
        if version < SESSIONS { Self::Without(version) } else { Self::Unknown }
    }

    /// Whether the agent has yet to say whether it knows the session.
    pub(crate) fn is_open(self) -> bool {
        matches!(self, Self::Coming(_) | Self::Returning(_))
    }
}

impl State {
    pub(crate) fn new(calls: Calls) -> Self {
        let stage = Stage::Unknown;
        Self { calls, link: None, stage, sent: 0, is_left: false, is_over: false }
    }

    /// All calls that have been made, to be said in the same breath as the greeting.
    pub(crate) fn begin(&mut self, lease: Option<u64>) -> Vec<(u64, Body)> {
        let mut all = self.calls.new_queries();
        if self.calls.any_made() {
            let attach = self.calls.attach(lease);
            self.stage = Stage::Coming(attach.0);
            all.push(attach);
            all.extend(self.calls.after(self.sent).map(|(number, body)| (number, body.clone())));
            self.sent = self.calls.sent();
        }
        all
    }

    /// It was said to an agent of a version. Returns whether that knows sessions: otherwise it was told none of the
    /// numbered calls.
    pub(crate) fn meet(&mut self, link: Arc<Link>, version: u32) -> bool {
        self.link = Some(link);
        if let without @ Stage::Without(_) = Stage::of(version) {
            self.calls.begin_anew();
            self.stage = without;
        }
        !matches!(self.stage, Stage::Without(_))
    }

    /// Sends all calls that may be sent now and have not been.
    pub(crate) fn send(&mut self, lease: Option<u64>) -> Option<Arc<Link>> {
        let link = self.link.clone()?;
        for (id, body) in self.calls.new_queries() {
            self.push(&link, id, &body);
        }
        if self.stage == Stage::Unknown && self.calls.any_made() {
            let (id, attach) = self.calls.attach(lease);
            self.push(&link, id, &attach);
            self.stage = Stage::Coming(id);
        }
        if matches!(self.stage, Stage::Coming(_) | Stage::Attached) {
            if let Some((id, heard)) = self.calls.news() {
                self.push(&link, id, &heard);
            }
            let new = self.calls.after(self.sent);
            let refused: Vec<_> = new
                .filter_map(|(number, body)| Some((number, link.push(number, body).err()?)))
                .collect();
            for (number, bad) in refused {
                self.calls.answer(number, unsendable(&bad));
            }
            self.sent = self.calls.sent();
        }
        Some(link)
    }

    /// The lease is over, and the session with it.
    pub(crate) fn lapse(&mut self) {
        self.calls.begin_anew();
        // What is still to be read is about the session before.
        self.stage = Stage::Unknown;
        self.close();
    }

    /// Whether calls wait that may be sent now.
    pub(crate) fn has_more(&self) -> bool {
        self.stage == Stage::Attached && self.calls.has_after(self.sent)
    }

    /// Ends the connection. Whoever reads from it notices.
    pub(crate) fn close(&self) {
        if let Some(link) = &self.link {
            link.close();
        }
    }

    fn push(&mut self, link: &Link, id: u64, body: &Body) {
        if let Err(bad) = link.push(id, body) {
            self.calls.answer(id, unsendable(&bad));
        }
    }
}

fn unsendable(bad: &frame::Bad) -> Reply {
    Reply::Failed(Fault::Wrong(format!("the call cannot be sent: {bad}")))
}
