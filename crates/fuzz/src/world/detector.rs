//! Users that go, and what managers are told of them.

use holdall_core::{Addr, Call, Gone, Home, Life, ManagerId, Party, UserId};

use super::{Client, Report, Step, User, World, overlap};
use crate::plan::Detector;
use crate::roles::Input;

impl World {
    /// Some client leaves, and says so.
    pub(super) fn leave(&mut self) -> Step {
        let id = self.lanes[self.random.below(self.lanes.len())];
        // The dishonest one goes on talking, which those who have left do not.
        if self.is_honest(Addr::User(id)) { self.call_to_leave(id) } else { Ok(()) }
    }

    /// Some user stops without a word, be it one that was leaving.
    pub(super) fn stop(&mut self) -> Step {
        let Some(id) = self.anybody() else { return Ok(()) };
        self.note(|| format!("{id:?} stops"));
        self.end_client(id);
        self.remove(id);
        self.succeed(id);
        let departed = Gone::Departed(Party::User(id));
        match self.plan.detector {
            Detector::Departed => self.tell(&[departed]),
            Detector::Reclaim => self.tell(&[Gone::Suspected(id), Gone::Reclaimed(id)]),
            Detector::All => self.tell(&[Gone::Suspected(id), Gone::Reclaimed(id), departed]),
        }
        Ok(())
    }

    /// Some cell loses its memory: all its users are gone, and its lanes begin a new life.
    pub(super) fn reboot(&mut self) -> Step {
        let home = self.lanes[self.random.below(self.lanes.len())].home();
        let life = Life(self.random.below(1 << 30) as u64);
        if life == home.life {
            return Ok(());
        }
        self.note(|| format!("{home:?} reboots"));
        let there: Vec<UserId> =
            self.users.keys().copied().filter(|id| id.home() == home).collect();
        for id in there {
            self.end_client(id);
            self.remove(id);
        }
        self.tell(&[Gone::Departed(Party::Home(home))]);
        for lane in 0..self.lanes.len() {
            if self.lanes[lane].home() == home {
                self.enter(lane, UserId::first_at(Home { life, ..home }, lane as u32));
            }
        }
        Ok(())
    }

    /// Somebody is taken for dead.
    pub(super) fn suspect(&mut self) -> Step {
        let Some(id) = self.anybody() else { return Ok(()) };
        self.mark_suspected(id);
        self.tell(&[Gone::Suspected(id)]);
        Ok(())
    }

    /// The lease of some living user runs out: its client stops using what it holds, the user is
    /// called to leave, then managers are told to reclaim.
    pub(super) fn lapse(&mut self) -> Step {
        let Some(id) = self.anybody() else { return Ok(()) };
        self.mark_suspected(id);
        self.call_to_leave(id)?;
        self.tell(&[Gone::Reclaimed(id)]);
        Ok(())
    }

    /// Tells some manager what it is to be told next.
    pub(super) fn report(&mut self) -> Step {
        let first = self.random.below(self.reports.len());
        let mut turned = (first..self.reports.len()).chain(0..first);
        let Some(at) = turned.find(|at| self.may_be_told(*at)) else { return Ok(()) };
        let Report { to, gone, .. } = self.reports.remove(at);
        self.step(Addr::Manager(to), Input::Gone(gone))
    }

    /// Whether a report is due: earlier ones on the same user have been told, and if it says that
    /// somebody departed, nothing of the departed is under way.
    fn may_be_told(&self, at: usize) -> bool {
        let Report { to, gone, ready } = self.reports[at];
        let earlier = &self.reports[..at];
        (ready <= self.now || self.healing)
            && earlier.iter().all(|other| other.to != to || !overlap(other.gone, gone))
            && match gone {
                Gone::Departed(party) => {
                    let of = |from| matches!(from, Addr::User(user) if party.includes(user));
                    !self.network.has_any(of, Addr::Manager(to))
                }
                Gone::Reclaimed(_) | Gone::Suspected(_) => true,
            }
    }

    /// All managers will be told this, in this order, each at its own time.
    fn tell(&mut self, reports: &[Gone]) {
        for manager in 0..self.roles.managers() as u64 {
            for gone in reports {
                let ready = self.now + self.random.below(self.plan.lag) as u64;
                self.reports.push(Report { to: ManagerId(manager), gone: *gone, ready });
            }
        }
    }

    fn call_to_leave(&mut self, id: UserId) -> Step {
        match self.users.get(&id) {
            Some(user) if user.client != Client::Left => {
                self.end_client(id);
                self.succeed(id);
                self.step(Addr::User(id), Input::Call(Call::Leave))
            }
            _ => Ok(()),
        }
    }

    /// The next user of a lane begins, if this one was the present.
    pub(super) fn succeed(&mut self, old: UserId) {
        let lane = old.lane().index();
        if self.lanes[lane] == old
            && let Some(next) = old.next_generation()
        {
            self.enter(lane, next);
        }
    }

    fn enter(&mut self, lane: usize, id: UserId) {
        self.summary.replaced += 1;
        self.lanes[lane] = id;
        self.users.insert(id, User::new());
        self.roles.add_user(id);
    }

    /// Forgets a user that has left and is idle.
    pub(super) fn forget_if_over(&mut self, id: UserId) {
        let left = self.users.get(&id).is_some_and(|user| user.client == Client::Left);
        if left && self.roles.is_idle(Addr::User(id)) {
            self.remove(id);
            if self.plan.tell_of_left {
                self.tell(&[Gone::Departed(Party::User(id))]);
            }
        }
    }

    fn remove(&mut self, id: UserId) {
        self.users.remove(&id);
        self.roles.remove_user(id);
        self.user_timers.retain(|armed| armed.who != id);
    }

    fn mark_suspected(&mut self, id: UserId) {
        if let Some(user) = self.users.get_mut(&id) {
            user.suspected = true;
        }
    }

    fn anybody(&mut self) -> Option<UserId> {
        let at = self.random.below(self.users.len());
        self.users.keys().nth(at).copied()
    }
}
