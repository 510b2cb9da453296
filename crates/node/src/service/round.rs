//! What was done for all who were ready is written and told together: one write for many grants.
//!
//! Nobody is told of a grant before it is noted (`journal`), nor of anything by a system call of its own
//! if several things are to be told. A round ends when nothing else is ready, or when it is long enough.

use std::rc::{Rc, Weak};

use holdall_wire::{Fault, Reply, RequestNo};
use tokio::sync::Notify;
use tracing::error;

use super::outbox::Outbox;
use super::{Service, Shared};
use crate::engine::Input;

/// After how many replies a round ends, so that clients go on while others are served.
const REPLIES: usize = 16;

/// What is to be told at the end of a round.
#[derive(Default)]
pub(super) struct Round {
    grants: Vec<(RequestNo, Reply)>,
    told: Vec<Rc<Outbox>>,
    replies: usize,
    begun: Rc<Notify>,
}

impl Round {
    /// Something happened that is told or written in the end.
    pub(super) fn begin(&mut self) {
        self.replies += 1;
        if self.replies == 1 {
            // Whoever ends it comes after everybody who is ready now.
            self.begun.notify_one();
        }
    }

    /// Something is in an outbox.
    pub(super) fn add(&mut self, outbox: &Rc<Outbox>) {
        self.begin();
        if outbox.join_round() {
            self.told.push(outbox.clone());
        }
    }

    /// A grant was noted, and is told when that is written.
    pub(super) fn add_grant(&mut self, request: RequestNo, reply: Reply) {
        self.begin();
        self.grants.push((request, reply));
    }
}

/// Ends rounds, as long as there is a service.
pub(crate) async fn end_rounds(service: Shared) {
    let begun = service.borrow().round.begun.clone();
    let service: Weak<_> = Rc::downgrade(&service);
    loop {
        begun.notified().await;
        let Some(service) = service.upgrade() else { return };
        service.borrow_mut().end_round();
    }
}

impl Service {
    /// Ends a round that is long enough.
    pub(super) fn end_long_round(&mut self) {
        if self.round.replies >= REPLIES {
            self.end_round();
        }
    }

    pub(crate) fn end_round(&mut self) {
        self.tell_grants();
        self.round.replies = 0;
        self.send();
        self.audit.hand_over();
    }

    /// Sends what there is to be told.
    pub(super) fn send(&mut self) {
        for outbox in std::mem::take(&mut self.round.told) {
            let sent = outbox.end_round();
            self.traffic.give(outbox.uid(), sent);
        }
    }

    /// Writes what was noted, and tells those who were granted something. Those who cannot be noted
    /// are not granted it after all.
    pub(super) fn tell_grants(&mut self) {
        let Some(journal) = &mut self.journal else { return };
        if self.round.grants.is_empty() && journal.is_written() {
            return;
        }
        let written = journal.write();
        if let Err(error) = &written {
            error!("who holds what is not on disk: {error:#}");
        }
        for (request, reply) in std::mem::take(&mut self.round.grants) {
            match &written {
                Ok(()) => self.reply(request, reply),
                Err(error) => {
                    self.reply(request, Reply::Failed(Fault::Failed(format!("{error:#}"))));
                    self.input(Input::End(request));
                }
            }
        }
    }
}
