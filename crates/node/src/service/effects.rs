//! What follows from an input: some of it is prepared at once, and all that anybody notices leaves when
//! it is in the log.

use std::time::Duration;

use holdall_cell::session::{CallNo, ConnNo, Turned};
use holdall_cell::{Effect, Input};
use holdall_core::Rung;
use holdall_wire::{Fault, Refusal, Reply, Right};
use tracing::warn;

use super::Service;
use super::host::Leaving;
use super::sessions::Calls;

impl Service {
    /// Takes up what follows from an input.
    pub(super) fn take_up(&mut self, effect: Effect, sync: bool) {
        let leaving = match effect {
            // Nobody notices these, and what they lead to is logged in its turn.
            Effect::Prepare(request) => return self.prepare(request),
            Effect::Arm(timer, rung, since) => return self.arm(timer, rung, since),
            Effect::Disarm(timer) => {
                if let Some(task) = self.timers.remove(&timer) {
                    task.abort();
                }
                return;
            }
            Effect::Unfit(name, why) => {
                return warn!("pool '{name}' is not as the configuration wants it: {why}");
            }
            Effect::LeftOut(request, what) => {
                return warn!(%request, "of an agent without a log, not taken over: {what}");
            }
            // The call may be forgotten by the time that its reply leaves.
            Effect::Reply { conn, call, reply } => {
                let Some(reply) = self.tellable(conn, call, reply) else { return };
                let Some(id) = self.id_of(conn, call, &reply) else { return };
                if let Reply::Queued(request) = reply {
                    self.waits(request);
                }
                Leaving::answer(conn, id, self.as_told(conn, reply))
            }
            Effect::NotTaken(conn, call, why) => {
                let fault = Reply::Failed(Fault::Conflict(why.to_string()));
                let Some(id) = self.id_of(conn, call, &fault) else { return };
                Leaving::answer(conn, id, fault)
            }
            Effect::Welcome { conn, life, last, answers } => {
                let Some(id) = self.attached(conn) else {
                    return self.tell_missed(conn, answers);
                };
                // What is leased is told by itself, with the time until which it may be used.
                let (leased, answers): (Vec<_>, Vec<_>) =
                    answers.into_iter().partition(|(_, reply)| {
                        reply.as_ref().is_some_and(|reply| self.is_leased(reply))
                    });
                let told = |(call, reply): (CallNo, Option<Reply>)| {
                    (call.0, reply.map(|reply| self.as_told(conn, reply)))
                };
                let later = leased.iter().map(|(call, _)| (call.0, None));
                let answers = answers.into_iter().map(told).chain(later).collect();
                let attached = Reply::Attached { life, last: last.0, answers };
                self.hold(Leaving::answer(conn, id, attached), sync);
                for (call, reply) in leased {
                    reply.into_iter().for_each(|reply| self.tell_later(conn, call, reply));
                }
                return self.tell_who_waits_for_a_lease();
            }
            Effect::TurnedAway(conn, why) => {
                let Some(id) = self.comes_with(conn) else { return };
                self.hold(Leaving::answer(conn, id, Reply::Failed(fault(why))), sync);
                Leaving::Effect(Box::new(Effect::Close(conn)))
            }
            Effect::Send(..) => match self.for_cell(effect) {
                Some(leaving) => leaving,
                None => return,
            },
            effect => Leaving::Effect(Box::new(effect)),
        };
        self.hold(leaving, sync);
    }

    /// The log lets something leave.
    pub(super) fn leave(&mut self, leaving: Leaving) {
        match leaving {
            Leaving::Answer(conn, answer) => {
                if let Some(peer) = self.peers.get(&conn) {
                    peer.outbox.reply_comes(&answer.reply);
                }
                self.tell(conn, &answer);
            }
            Leaving::Effect(effect) => self.carry_out(*effect),
            Leaving::Said(cell, link, frame) => self.send_to(cell, link, &frame),
            Leaving::Events(record, count) => {
                for _ in 0..count {
                    let event = self.host.next_event();
                    debug_assert!(event.is_some(), "as many events as were counted");
                    let Some((at, what)) = event else { return };
                    self.tell_of(record, at, what);
                }
            }
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Close(conn) => self.end_connection(conn),
            Effect::Forget(_, conn) => conn.into_iter().for_each(|conn| self.end_connection(conn)),
            Effect::WatchSession(session, means) => self.watch_session(session, means),
            Effect::Watch(request, record) => self.watch(request, &record),
            Effect::End(request, record) => self.end_holder(request, &record),
            Effect::Kill(request, record) => self.kill(request, &record),
            Effect::Unused(record) => self.unused(&record),
            // These are dealt with when they come up.
            Effect::Reply { .. } | Effect::Welcome { .. } => {}
            Effect::NotTaken(..) | Effect::TurnedAway(..) | Effect::Prepare(_) => {}
            Effect::Arm(..) | Effect::Disarm(_) | Effect::Unfit(..) | Effect::LeftOut(..) => {}
            Effect::Send(..) => {}
            Effect::Unlink(cell, why) => self.unlink(cell, why),
        }
    }

    /// The number that a client has given to a call which has a reply now.
    pub(super) fn id_of(&mut self, conn: ConnNo, call: CallNo, reply: &Reply) -> Option<u64> {
        self.peers.get_mut(&conn)?.calls.id_of(call, reply)
    }

    /// The call with which a client comes, if it brings a session.
    fn comes_with(&self, conn: ConnNo) -> Option<u64> {
        match self.peers.get(&conn)?.calls {
            Calls::Coming(id) => Some(id),
            _ => None,
        }
    }

    /// The same, of one that is let in: from now on what comes over its connection, and what is told there, is of its session.
    fn attached(&mut self, conn: ConnNo) -> Option<u64> {
        let id = self.comes_with(conn)?;
        let session = self.books().sessions().of(conn)?;
        self.peers.get_mut(&conn)?.calls = Calls::Theirs(session);
        Some(id)
    }

    /// A reply as its client may see it, with what the administrator wants told along.
    pub(super) fn as_told(&self, conn: ConnNo, reply: Reply) -> Reply {
        match reply {
            Reply::Granted { request, taken, place, limit, .. } => {
                let variables = self.variables(request, &taken);
                Reply::Granted { request, taken, place, variables, limit }
            }
            // Whoever may not look is not told who is in its way.
            Reply::Refused(Refusal::Busy(why)) => {
                let peer = self.peers.get(&conn);
                let blind = peer.is_some_and(|peer| !peer.rights.has(Right::View));
                let why = if blind { "others have it".into() } else { why };
                Reply::Refused(Refusal::Busy(why))
            }
            reply => reply,
        }
    }

    fn arm(&mut self, timer: holdall_cell::engine::TimerNo, rung: Rung, since: u64) {
        let me = self.me.clone();
        let passed = Duration::from_millis(self.clock.now().saturating_sub(since));
        let task = tokio::task::spawn_local(async move {
            tokio::time::sleep(delay(rung).saturating_sub(passed)).await;
            if let Some(service) = me.upgrade() {
                let mut service = service.borrow_mut();
                service.timers.remove(&timer);
                service.input(Input::Timer(timer));
            }
        });
        if let Some(other) = self.timers.insert(timer, task.abort_handle()) {
            other.abort();
        }
    }
}

/// Why a client is not let in.
fn fault(why: Turned) -> Fault {
    match why {
        Turned::Forgotten => Fault::Forgotten,
        Turned::Stranger => Fault::Denied(why.to_string()),
        why => Fault::Conflict(why.to_string()),
    }
}

/// The delays of the rungs: doubling, from a tenth of a second. Longer than some months nobody waits.
fn delay(rung: Rung) -> Duration {
    Duration::from_millis(100 << rung.min(27))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever steps aside does so with twice the patience each time, at rung 6 at first.
    #[test]
    fn patience_doubles_with_each_rung() {
        assert_eq!(delay(6), Duration::from_millis(6400));
        assert!((6..21).all(|rung| delay(rung + 1) == 2 * delay(rung)));
        assert_eq!(delay(Rung::MAX), delay(27), "but nobody waits for years");
    }
}
