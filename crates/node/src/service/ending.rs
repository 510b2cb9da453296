//! How grants end: given back, left behind by a client that is gone, taken away, or run out.
//!
//! A grant that a command uses ends only when everything that was started under it is gone. If
//! the client ended in order, that is waited for; if it did not, it is killed first.

use std::rc::Rc;
use std::time::Duration;

use holdall_holders::Holder;
use holdall_wire::{Change, Leftovers, Refusal, Reply, RequestNo};
use rustix::process::Signal;
use tracing::{error, info, warn};

use super::{ConnNo, Service};
use crate::audit::Line;
use crate::engine::Input;

/// How long a client may take to stop using what is taken away from it.
const TAKEN_AWAY: Duration = Duration::from_secs(10);
/// How long what a command left behind may take to end when it is asked to.
const GRACE: Duration = Duration::from_secs(5);

impl Service {
    /// A connection is over. Waiting requests lose their place at once.
    pub(super) fn close(&mut self, conn: ConnNo) {
        let Some(peer) = self.peers.remove(&conn) else { return };
        self.give_back(&peer);
        let mut requests: Vec<_> = peer.requests.into_iter().collect();
        requests.sort_unstable(); // As they were asked.
        for (_, request) in requests {
            if let Some(known) = self.known.get_mut(&request) {
                known.asked = None;
                let waiting = !self.engine.is_held(request);
                if waiting || !known.reserved {
                    self.left(request);
                }
            }
        }
        if let Some(lock) = peer.lock {
            self.drop_lock(lock);
        }
        self.touch(false);
    }

    /// A client has withdrawn a request or given back its grant, and is told the outcome. What
    /// its command has left behind is waited for, ended or let go, as the client has asked for.
    pub(super) fn given_back(&mut self, request: RequestNo, tell: Option<(ConnNo, u64)>) {
        let Some(holder) = self.still_there(request, "released") else {
            return self.tell(tell, Reply::Done);
        };
        let pids = holder.pids();
        let leftovers = self.known.get(&request).and_then(|known| known.leftovers);
        match leftovers.unwrap_or_default() {
            Leftovers::Wait => {
                info!(%request, ?pids, "its command has left processes behind: waiting for them");
                self.tell(tell, Reply::Leftovers(pids));
                self.end_with(request, holder, "released");
            }
            Leftovers::Warn => {
                warn!(%request, ?pids, "its command has left processes behind, which it forgoes");
                self.tell(tell, Reply::Leftovers(pids));
                self.end(request, "released");
                // There may be a cgroup to remove.
                tokio::task::spawn_local(async move { holder.until_ended().await });
            }
            Leftovers::Kill => {
                info!(%request, ?pids, "its command has left processes behind: ending them");
                let me = self.me.clone();
                tokio::task::spawn_local(async move {
                    holder.end(GRACE).await;
                    if let Some(service) = me.upgrade() {
                        service.borrow_mut().end(request, "released");
                        service.borrow_mut().tell(tell, Reply::Done);
                    }
                });
            }
        }
    }

    /// The client of a request has ended without a word. Its command goes with it.
    fn left(&mut self, request: RequestNo) {
        if let Some(holder) = self.still_there(request, "left") {
            warn!(%request, pids = ?holder.pids(), "its client is gone: killing its processes");
            let killed = holder.clone();
            tokio::task::spawn_local(async move { killed.kill().await });
            self.end_with(request, holder, "killed");
        }
    }

    /// The holder of a grant whose client has ended. If there is none any more, so is the grant.
    fn still_there(&mut self, request: RequestNo, how: &'static str) -> Option<Rc<Holder>> {
        let known = self.known.get_mut(&request).filter(|known| !known.ending)?;
        match known.holder.clone().filter(|holder| !holder.ended()) {
            Some(holder) => {
                known.ending = true;
                Some(holder)
            }
            None => {
                self.end(request, how);
                None
            }
        }
    }

    /// Ends a grant, at the latest when nothing uses it any more.
    pub(super) fn end_unless_used(&mut self, request: RequestNo, how: &'static str) {
        if let Some(holder) = self.still_there(request, how) {
            self.end_with(request, holder, how);
        }
    }

    /// Ends a grant when its holder has ended.
    pub(super) fn end_with(&mut self, request: RequestNo, holder: Rc<Holder>, how: &'static str) {
        let me = self.me.clone();
        tokio::task::spawn_local(async move {
            holder.until_ended().await;
            if let Some(service) = me.upgrade() {
                service.borrow_mut().end(request, how);
            }
        });
    }

    fn tell(&mut self, whom: Option<(ConnNo, u64)>, reply: Reply) {
        if let Some((conn, call)) = whom {
            self.answer(conn, call, reply);
        }
    }

    fn end(&mut self, request: RequestNo, how: &'static str) {
        if !self.known.contains_key(&request) {
            return; // It has ended in another way meanwhile.
        }
        match self.engine.taken(request).cloned() {
            Some(taken) => self.log(how, request, Some(&taken), None),
            None => self.log("withdrawn", request, None, None),
        }
        self.input(Input::End(request));
        self.end_parts(request, false);
    }

    /// A grant has been ended, and parts of it are still in use: they are stopped, now or, if they may outlast
    /// it and it was not taken away, after some time; and the grant lasts until they have ended.
    pub(super) fn end_parts(&mut self, grant: RequestNo, forced: bool) {
        if !self.engine.is_held(grant) {
            return;
        }
        if let Some(known) = self.known.get_mut(&grant) {
            known.ending = true;
        }
        let minutes = self.config.limits.overtime_minutes;
        for part in self.engine.parts(grant).collect::<Vec<_>>() {
            let known = self.known.get(&part);
            let part_of = known.and_then(|known| known.part);
            let outlasts = !forced && part_of.is_some_and(|part| part.outlasts);
            info!(%grant, %part, outlasts, "a part of a grant that has ended is in use");
            if !outlasts {
                self.take_away(part);
                continue;
            }
            let me = self.me.clone();
            tokio::task::spawn_local(async move {
                tokio::time::sleep(Duration::from_secs(minutes.saturating_mul(60))).await;
                if let Some(service) = me.upgrade() {
                    service.borrow_mut().take_away(part);
                }
            });
        }
    }

    /// Takes a grant away from a living client: it is told, and its processes are killed if it
    /// does not stop them.
    pub(super) fn take_away(&mut self, request: RequestNo) {
        self.tell_grants();
        self.reply(request, Reply::Lost(request));
        let Some(known) = self.known.get(&request) else { return };
        match known.holder.clone() {
            None => return self.end(request, "lost"), // Fences tell the protected things.
            Some(holder) if matches!(*holder, Holder::Unknown(..) | Holder::Client(..)) => {
                return self.end(request, "lost"); // Somebody knows better than we do.
            }
            Some(holder) if known.ending => return self.kill_left(request, holder),
            Some(_) => {}
        }
        let me = self.me.clone();
        tokio::task::spawn_local(async move {
            tokio::time::sleep(TAKEN_AWAY).await;
            if let Some(service) = me.upgrade() {
                service.borrow_mut().left(request);
            }
        });
    }

    /// Kills what a command has left behind: nobody is left who could stop it in order. What may be
    /// somebody else's is left alone, and nothing is held for it any more.
    fn kill_left(&self, request: RequestNo, holder: Rc<Holder>) {
        let me = self.me.clone();
        tokio::task::spawn_local(async move {
            let Holder::Family(family) = &*holder else { return holder.kill().await };
            family.signal(Signal::KILL);
            family.until_own_ended().await;
            if let Some(service) = me.upgrade()
                && !family.unsure().is_empty()
            {
                service.borrow_mut().end(request, "lost");
            }
        });
    }

    /// Notes when the next unit is no longer drained.
    pub(super) fn note_drained(&mut self) {
        let until = |change: &Change| match change {
            Change::Drain { drained, .. } => drained.until,
            _ => None,
        };
        self.undrained = self.engine.drained().iter().filter_map(until).min();
    }

    /// Gives out again what was drained until now.
    fn undrain(&mut self, now: u64) {
        for change in self.engine.drained() {
            let Change::Drain { name, drained } = change else { continue };
            if drained.until.is_some_and(|until| until <= now) {
                info!(%name, "it is no longer drained");
                let change = Change::Undrain { name };
                let line = Line::new(self.clock.wall(), "pool");
                self.audit.add(line.detail(serde_json::to_string(&change).ok()));
                self.input(Input::Change(change));
            }
        }
        self.note_drained();
        if let Err(error) = self.keep() {
            error!("what is drained no longer is still on disk: {error:#}");
        }
    }

    /// Ends the reservations whose time is over, gives out again what was drained until now, and says when to
    /// look again.
    pub(crate) fn expire(&mut self) -> Option<Duration> {
        self.tell_grants();
        let now = self.clock.now();
        if self.undrained.is_some_and(|until| until <= now) {
            self.undrain(now);
        }
        let all = self.engine.reservations();
        for over in all.iter().filter(|r| r.until.is_some_and(|until| until <= now)) {
            if self.known.get(&over.request).is_some_and(|known| known.ending) {
                continue; // Parts of it are still in use.
            }
            info!(request = %over.request, "a reservation has run out");
            self.end(over.request, "expired");
        }
        let next = all.iter().filter_map(|r| r.until).filter(|until| *until > now);
        let next = next.chain(self.undrained).min();
        self.deadline = next;
        next.map(|until| Duration::from_millis(until.saturating_sub(now)))
    }

    /// No more requests. Whoever waits is told; with `at_once`, nobody is waited for.
    pub(crate) fn stop(&mut self, at_once: bool) {
        self.stopping = true;
        self.stop_at_once |= at_once;
        let why = || Refusal::Closed("the agent is stopping".into());
        for request in self.engine.waiting().into_iter().rev() {
            if self.engine.is_held(request) {
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
