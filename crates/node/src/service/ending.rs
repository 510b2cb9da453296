//! How grants end: given back, left behind by a client that is gone, taken away, or run out.
//!
//! A grant that a process group uses ends only when that group is gone. If the client ended in
//! order, the rest of the group is waited for; if it did not, the group is killed first.

use std::time::Duration;

use holdall_wire::{Refusal, Reply, RequestNo};
use tracing::{info, warn};

use super::{ConnNo, Early, Service};
use crate::engine::Input;

/// How long a client may take to stop using what is taken away from it.
const TAKEN_AWAY: Duration = Duration::from_secs(10);

impl Service {
    /// A connection is over. Waiting requests lose their place at once.
    pub(super) fn close(&mut self, conn: ConnNo) {
        self.forget_early(conn, None);
        let Some(peer) = self.peers.remove(&conn) else { return };
        self.give_back(&peer);
        for request in peer.requests.into_values().flatten() {
            if let Some(known) = self.known.get_mut(&request) {
                known.asked = None;
                let waiting = self.engine.grant(request).is_none();
                if waiting || !known.reserved {
                    self.client_ended(request, false);
                }
            }
        }
        self.touch(false);
    }

    /// The client of a request has ended its use, in order or by its own end.
    pub(super) fn client_ended(&mut self, request: RequestNo, in_order: bool) {
        let Some(known) = self.known.get_mut(&request) else { return };
        if known.ending {
            return;
        }
        let Some(group) = known.group.as_ref().filter(|group| group.alive()) else {
            return self.end(request, if in_order { "released" } else { "left" });
        };
        if !in_order {
            warn!(%request, group = group.number(), "its client is gone: killing its processes");
            group.kill();
        }
        let gone = group.gone();
        known.ending = true;
        let me = self.me.clone();
        tokio::task::spawn_local(async move {
            gone.await;
            if let Some(service) = me.upgrade() {
                service.borrow_mut().end(request, if in_order { "released" } else { "killed" });
            }
        });
    }

    fn end(&mut self, request: RequestNo, how: &'static str) {
        match self.engine.grant(request) {
            Some(grant) => self.log(how, request, &grant.taken, None),
            None => self.log("withdrawn", request, &[], None),
        }
        self.input(Input::End(request));
    }

    /// Takes a grant away from a living client: it is told, and its processes are killed if it
    /// does not stop them.
    pub(super) fn take_away(&mut self, request: RequestNo) {
        self.reply(request, Reply::Lost(request));
        let used = self.known.get(&request).is_some_and(|known| known.group.is_some());
        if !used {
            // Nothing we could wait for. Fences tell the protected things.
            return self.end(request, "lost");
        }
        let me = self.me.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(TAKEN_AWAY).await;
            if let Some(service) = me.upgrade() {
                let mut service = service.borrow_mut();
                if let Some(group) = service.known.get(&request).and_then(|k| k.group.as_ref()) {
                    group.kill();
                }
                service.client_ended(request, false);
            }
        });
    }

    /// Ends the reservations whose time is over, and says when to look again.
    pub(crate) fn expire(&mut self) -> Option<Duration> {
        let now = self.clock.now();
        let all = self.engine.reservations();
        for over in all.iter().filter(|reservation| reservation.until <= now) {
            info!(request = %over.request, "a reservation has run out");
            self.end(over.request, "expired");
        }
        let next = all.iter().map(|r| r.until).filter(|until| *until > now).min();
        self.deadline = next;
        next.map(|until| Duration::from_millis(until - now))
    }

    /// No more requests. Whoever waits is told; with `at_once`, nobody is waited for.
    pub(crate) fn stop(&mut self, at_once: bool) {
        self.stopping = true;
        self.stop_at_once |= at_once;
        let why = || Refusal::Closed("the agent is stopping".into());
        for Early { conn, call, size, .. } in
            self.early.as_mut().map(std::mem::take).unwrap_or_default()
        {
            if let Some(peer) = self.peers.get_mut(&conn) {
                peer.requests.remove(&call);
                self.requests.give(peer.who.uid, size);
            }
            self.answer(conn, call, Reply::Refused(why()));
        }
        for request in self.engine.waiting().into_iter().rev() {
            if self.engine.grant(request).is_some() {
                continue; // It got the place of one that was just turned away.
            }
            self.reply(request, Reply::Refused(why()));
            if let Some(known) = self.known.get_mut(&request) {
                known.asked = None;
            }
            self.end(request, "withdrawn");
        }
        self.touch(true);
    }
}
