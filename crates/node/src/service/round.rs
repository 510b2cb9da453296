//! What was done for all who were ready is written and told together: one write for many grants, and
//! one for all that a client is told. A round ends when nothing else is ready, or when it is long
//! enough.

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use super::Service;
use super::host::Leaving;
use super::outbox::Outbox;

/// After how many replies a round ends, so that clients go on while others are served.
const REPLIES: usize = 64;
/// After what time it is tried again to write what the disk did not take.
const TRY_AGAIN: Duration = Duration::from_millis(100);

/// What is to be told at the end of a round.
#[derive(Default)]
pub(super) struct Round {
    told: Vec<Rc<Outbox>>,
    /// Room for what may leave.
    due: Vec<Leaving>,
    has_begun: bool,
    begun: Rc<Notify>,
    /// Something could not leave yet.
    held_back: Rc<Notify>,
}

impl Round {
    /// Something happened that is told or written in the end.
    pub(super) fn begin(&mut self) {
        if !self.has_begun {
            self.has_begun = true;
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
}

/// Ends rounds, as long as there is a service.
pub(crate) async fn end_rounds(service: Weak<RefCell<Service>>) {
    let Some(begun) = service.upgrade().map(|service| service.borrow().round.begun.clone()) else {
        return;
    };
    loop {
        begun.notified().await;
        let Some(service) = service.upgrade() else { return };
        service.borrow_mut().end_round();
    }
}

/// Lets leave what had to wait for the disk, as long as there is a service.
pub(crate) async fn let_leave(service: Weak<RefCell<Service>>) {
    let Some((held_back, mut watch)) = service.upgrade().map(|service| {
        let service = service.borrow();
        (service.round.held_back.clone(), service.host.watch())
    }) else {
        return;
    };
    loop {
        held_back.notified().await;
        loop {
            // What the disk did not take is not tried again by anybody else.
            let moved = tokio::time::timeout(TRY_AGAIN, watch.changed()).await;
            let Some(service) = service.upgrade() else { return };
            let mut service = service.borrow_mut();
            service.end_round();
            if matches!(moved, Ok(Err(_))) || service.host.is_idle() {
                break;
            }
        }
    }
}

impl Service {
    /// Ends a round that is long enough.
    pub(super) fn end_long_round(&mut self) {
        if self.host.held() + self.round.told.len() >= REPLIES {
            self.end_round();
        }
    }

    /// Writes what has happened, and lets leave what may.
    pub(crate) fn end_round(&mut self) {
        let mut due = std::mem::take(&mut self.round.due);
        loop {
            match self.host.flush() {
                Err(error) if !error.passes() => return self.give_up(error.to_string()),
                _ => {}
            }
            self.host.due(&mut due);
            if due.is_empty() {
                break;
            }
            // What leaves may lead to more.
            due.drain(..).for_each(|leaving| self.leave(leaving));
        }
        self.round.due = due;
        self.send();
        self.hand_over_history();
        self.round.has_begun = false;
        if let Some(error) = self.host.ended() {
            return self.give_up(error.to_string());
        }
        if !self.host.is_idle() {
            self.round.held_back.notify_one();
        }
        self.snapshot_if_due();
        self.tell_pools();
        self.look_ahead();
    }

    /// Sends what there is to be told.
    pub(super) fn send(&mut self) {
        for outbox in self.round.told.drain(..) {
            let sent = outbox.end_round();
            self.traffic.give(outbox.uid(), sent);
        }
    }
}
