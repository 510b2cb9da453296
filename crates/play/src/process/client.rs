//! What a client does: thinks, asks, uses what it is granted, gives it back; leaves, or stops.

use std::iter::Skip;

use holdall_core::{Addr, Call, Property, Request, RequestId, UserId};
use holdall_sim::{Course, FaultKind, Round, Stage};
use rustix::process::{Signal, getpid, kill_process};

use super::locks::{self, Overlap, Used};
use super::{Alarm, DELAYS_OF_A_TIMER, Failed, Process, Step};
use crate::clock::{MICROSECOND, Nanos, SECOND, now};
use crate::roles::RoleEvent;
use crate::settings::Settings;
use crate::words::FromProcess;

/// What a client does at some time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Action {
    Ask,
    Done,
    Fail(FaultKind, Stage),
}

/// The client of a lane, and its users one after another.
#[derive(Debug)]
pub(super) struct Client<'a> {
    course: Skip<Course<'a>>,
    user: UserId,
    /// Number of the present request, or of the next while it thinks.
    seq: u64,
    /// Rounds begun in this lane.
    rounds: u64,
    round: Option<Round>,
    state: State,
    since: Nanos,
    /// Users that were called to leave and are not idle yet.
    leaving: Vec<UserId>,
}

#[derive(Debug)]
enum State {
    Thinking,
    Waiting,
    Using(#[expect(dead_code, reason = "the use ends when it is dropped")] Used),
    /// The use is over, the request not yet.
    Ending,
}

impl<'a> Client<'a> {
    pub(super) fn new(settings: &'a Settings, lane: u32, user: UserId, rounds: u64) -> Self {
        let course = Course::new(&settings.workload, lane).skip(rounds as usize);
        let (round, state, leaving) = (None, State::Thinking, Vec::new());
        Self { course, user, seq: 0, rounds, round, state, since: now(), leaving }
    }

    fn request(&self) -> RequestId {
        RequestId { user: self.user, seq: self.seq }
    }

    /// How long the present use is to take.
    fn service(&self) -> Nanos {
        self.round.as_ref().map_or(0, |round| round.service * MICROSECOND)
    }

    /// Goes on to the next state, and returns for how long it was in the last one.
    fn begin(&mut self, state: State) -> Nanos {
        self.state = state;
        let now = now();
        now.saturating_sub(std::mem::replace(&mut self.since, now))
    }
}

impl Process<'_> {
    /// The present user of the client is there from now on, if there is a client here. Messages may come for
    /// it before it thinks for the first time: not everybody begins at the same moment.
    pub(super) fn add_user(&mut self) -> Step {
        let Some(client) = &mut self.client else { return Ok(()) };
        let (user, rounds) = (client.user, client.rounds);
        client.seq = 0;
        self.tell(&FromProcess::Born(user, rounds))?;
        self.roles.add(Addr::User(user));
        self.links.born(user).map_err(|error| self.trouble(&error))
    }

    /// Since when the client waits, if it does.
    pub(super) fn waiting_since(&self) -> Option<Nanos> {
        let client = self.client.as_ref()?;
        matches!(client.state, State::Waiting).then_some(client.since)
    }

    /// How many rounds the client of this lane has begun, if there is one here.
    pub(super) fn rounds_begun(&self) -> u64 {
        self.client.as_ref().map_or(0, |client| client.rounds)
    }

    /// Begins the next round, if there is a client here.
    pub(super) fn think(&mut self) {
        let Some(client) = &mut self.client else { return };
        client.round = client.course.next();
        client.rounds += 1;
        client.seq += 1;
        client.begin(State::Thinking);
        let think = client.round.as_ref().map_or(0, |round| round.think * MICROSECOND);
        self.alarms.set(client.since + think, Alarm::Client(client.rounds, Action::Ask));
    }

    /// Does what is due in a round, unless that is over.
    pub(super) fn act(&mut self, round: u64, action: Action) -> Step {
        let Some(client) = self.client.as_ref().filter(|client| client.rounds == round) else {
            return Ok(());
        };
        match (action, &client.state) {
            (Action::Ask, State::Thinking) => self.ask(),
            (Action::Done, State::Using(_)) => self.done(),
            (Action::Fail(kind, Stage::Asking | Stage::Waiting), State::Waiting)
            | (Action::Fail(kind, Stage::Asking | Stage::Using), State::Using(_)) => match kind {
                FaultKind::Leave => self.leave(),
                FaultKind::Stop => self.stop(),
            },
            _ => Ok(()), // It was too quick to fail.
        }
    }

    fn ask(&mut self) -> Step {
        let waiting_stage = DELAYS_OF_A_TIMER * self.mean_delay();
        let Some(client) = &mut self.client else { return Ok(()) };
        let Some(round) = client.round.clone() else { return Ok(()) };
        let thought = client.begin(State::Waiting);
        self.seen.think.add(round.think * MICROSECOND, thought);
        let (request, user, since) = (client.request(), client.user, client.since);
        let fail_at = round.fault.and_then(|fault| match fault.stage() {
            Stage::Asking => Some(since),
            Stage::Waiting => Some(since + fault.after(waiting_stage)),
            Stage::Using => None,
        });
        if let (Some(at), Some(fault)) = (fail_at, round.fault) {
            let fail = Action::Fail(fault.kind(), fault.stage());
            self.alarms.set(at, Alarm::Client(client.rounds, fail));
        }
        let ask = Call::Ask(Request { id: request, needs: round.needs }, None);
        self.step(Addr::User(user), RoleEvent::Call(ask))
    }

    /// The client is told that it may use everything, and sees to it that nobody else does.
    pub(super) fn granted(&mut self, who: Addr, request: &Request) -> Step {
        let failed = |what: String| Failed { who: format!("{who:?}"), what };
        let promised = self.about.promises.contains(&Property::Exclusion);
        let name = &self.about.name;
        let unasked = || failed(format!("granted {request:?}, which nobody waits for"));
        let capacity = self.settings.workload.units;
        let client = self.client.as_mut().ok_or_else(unasked)?;
        let asked = client.round.as_ref().is_some_and(|round| round.needs == request.needs);
        let awaited = matches!(client.state, State::Waiting) && request.id == client.request();
        if !awaited || !asked {
            return Err(unasked());
        }
        let since = now().saturating_sub(self.began) as f64 / SECOND as f64;
        let used = locks::take(&self.locks, capacity, request.id, &request.needs, since);
        let used = used.map_err(|overlap| match overlap {
            Overlap::InUse { .. } if !promised => {
                failed(format!("{overlap}; {name} does not promise exclusion in such a world"))
            }
            _ => failed(overlap.to_string()),
        })?;
        let asked_at = client.since;
        let waited = client.begin(State::Using(used));
        self.seen.grants.push((asked_at, waited));
        let service = client.service();
        let fault = client.round.as_ref().and_then(|round| round.fault);
        if let Some(fault) = fault.filter(|fault| fault.stage() == Stage::Using) {
            let fail = Action::Fail(fault.kind(), fault.stage());
            self.alarms
                .set(client.since + fault.after(service), Alarm::Client(client.rounds, fail));
        }
        self.alarms.set(client.since + service, Alarm::Client(client.rounds, Action::Done));
        Ok(())
    }

    fn done(&mut self) -> Step {
        let Some(client) = &mut self.client else { return Ok(()) };
        let used = client.begin(State::Ending);
        self.seen.service.add(client.service(), used);
        let user = client.user;
        self.step(Addr::User(user), RoleEvent::Call(Call::Done))
    }

    /// The role is done with a request; unless it was called to leave, its client thinks next.
    pub(super) fn released(&mut self, who: Addr, request: RequestId) -> Step {
        let Some(client) = &self.client else { return Ok(()) };
        if client.user != request.user && client.leaving.contains(&request.user) {
            return Ok(());
        }
        if !matches!(client.state, State::Ending) || request != client.request() {
            let what = format!("released {request:?}, whose use has not ended");
            return Err(Failed { who: format!("{who:?}"), what });
        }
        self.think();
        Ok(())
    }

    /// The request is over although the client lives: it counts as having left.
    pub(super) fn lost(&mut self, who: Addr, request: RequestId) -> Step {
        match &self.client {
            Some(client) if client.request() == request => {
                self.hand_over()?;
                self.add_user()?;
                self.think();
                Ok(())
            }
            Some(client) if client.leaving.contains(&request.user) => Ok(()),
            _ => {
                let what = format!("lost {request:?}, which there is not");
                Err(Failed { who: format!("{who:?}"), what })
            }
        }
    }

    /// The client departs, and says so; another takes its place.
    fn leave(&mut self) -> Step {
        self.seen.left += 1;
        let old = self.hand_over()?;
        self.step(Addr::User(old), RoleEvent::Call(Call::Leave))?;
        self.add_user()?;
        self.think();
        Ok(())
    }

    /// The present user uses nothing any more and is called to nothing but to leave; the next is in its
    /// place, and has yet to begin. Returns the one that was there.
    fn hand_over(&mut self) -> Step<UserId> {
        let handed = self.client.as_mut().and_then(|client| {
            client.begin(State::Ending);
            let next = client.user.next_generation()?;
            client.leaving.push(client.user);
            Some(std::mem::replace(&mut client.user, next))
        });
        handed.ok_or_else(|| Failed {
            who: self.place.to_string(),
            what: "has had all the users that a lane can have".into(),
        })
    }

    /// Whether this is a user that was here, or in the process before this one.
    pub(super) fn is_past(&self, who: Addr) -> bool {
        let Some(client) = &self.client else { return false };
        matches!(who, Addr::User(user) if user.lane() == client.user.lane() && user < client.user)
    }

    /// Forgets a user that left and is idle.
    pub(super) fn retire_if_over(&mut self, user: UserId) -> Step {
        let Some(client) = &mut self.client else { return Ok(()) };
        let Some(at) = client.leaving.iter().position(|left| *left == user) else { return Ok(()) };
        if !self.roles.is_idle(user) {
            return Ok(());
        }
        client.leaving.swap_remove(at);
        self.roles.remove(user);
        let armed: Vec<_> =
            self.armed.keys().filter(|(who, _)| *who == Addr::User(user)).cloned().collect();
        for (who, tag) in armed {
            self.disarm(who, &tag);
        }
        self.links.over(user).map_err(|error| self.trouble(&error))
    }

    /// Dies without a word to the other roles; what it sent before is on its way.
    fn stop(&mut self) -> Step {
        self.flush()?;
        let seen = std::mem::take(&mut self.seen);
        let rounds = self.rounds_begun();
        self.tell(&FromProcess::Dying(seen, rounds))?;
        let killed = kill_process(getpid(), Signal::KILL);
        Err(self.trouble(
            &killed
                .err()
                .map_or_else(|| std::io::Error::other("outlived SIGKILL"), std::io::Error::from),
        ))
    }
}
