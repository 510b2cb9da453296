//! What clients do, and what comes of it.

use holdall_core::{Addr, Call, Length, Need, Needs, Pool, Request, RequestId, Unit, UserId};

use super::{Client, Step, World};
use crate::Problem;
use crate::roles::Input;

impl World {
    /// Some client asks, or ends its use.
    pub(super) fn act(&mut self) -> Step {
        let lane = self.random.below(self.lanes.len());
        let id = self.lanes[lane];
        match self.users.get(&id).map(|user| &user.client) {
            Some(Client::Idle) => self.ask(lane),
            Some(Client::Using(_)) => self.done(id),
            _ => Ok(()),
        }
    }

    /// Some client that uses something ends its use.
    pub(super) fn end_a_use(&mut self) -> Step {
        let using = |user: &super::User| matches!(user.client, Client::Using(_));
        let all: Vec<UserId> =
            self.users.iter().filter(|(_, user)| using(user)).map(|(id, _)| *id).collect();
        self.random.pick(&all).copied().map_or(Ok(()), |id| self.done(id))
    }

    fn ask(&mut self, lane: usize) -> Step {
        let needs = self.draw_needs(lane);
        let id = self.lanes[lane];
        let Some(user) = self.users.get_mut(&id) else { return Ok(()) };
        user.seq += 1;
        let request = Request { id: RequestId { user: id, seq: user.seq }, needs };
        user.client = Client::Waiting(request.clone());
        let length = length_of(user.seq + lane as u64);
        self.step(Addr::User(id), Input::Call(Call::Ask(request, length)))
    }

    /// Some of the pools of a lane, in any order.
    fn draw_needs(&mut self, lane: usize) -> Needs {
        let mut pools = self.plan.lanes[lane].clone();
        let least = if self.plan.whole { pools.len() } else { 1 };
        let size = self.random.between(least, pools.len()).min(self.plan.needs_max);
        let mut needs = Vec::new();
        while needs.len() < size {
            let pool = pools.swap_remove(self.random.below(pools.len()));
            let Pool { capacity, listed, .. } = self.plan.topology.pools[pool.index()];
            let units = self.random.between(1, capacity as usize) as u32;
            let mut need = Need::any(pool, units);
            if listed && self.random.per_mille(self.plan.named) {
                let unit = |_| self.random.below(capacity as usize) as Unit;
                need.named = (0..units).map(unit).collect();
            }
            needs.push(need);
        }
        Needs::new(needs).expect("at least one pool, none twice, and no need for nothing")
    }

    fn done(&mut self, id: UserId) -> Step {
        let Some(user) = self.users.get_mut(&id) else { return Ok(()) };
        let Client::Using(request) = &user.client else { return Ok(()) };
        let request = request.clone();
        user.client = Client::Ending(request.id);
        self.stop_using(&request);
        self.step(Addr::User(id), Input::Call(Call::Done))
    }

    pub(super) fn granted(&mut self, id: UserId, request: Request) -> Step {
        self.note(|| format!("{request:?} is granted"));
        let Some(user) = self.users.get_mut(&id) else { return Ok(()) };
        let pools = &self.plan.topology.pools;
        let asked = matches!(&user.client, Client::Waiting(asked) if asked.id == request.id
            && asked.needs.are_met_by(&request.needs, |pool| pools[pool.index()].listed));
        if !asked {
            return Err(Problem::UnaskedGrant(request));
        }
        user.client = Client::Using(request.clone());
        self.summary.grants += 1;
        // The dishonest user may have talked a manager into anything of its own, and a dishonest
        // manager may give away its pools as it likes.
        if !self.is_honest(Addr::User(id)) {
            return Ok(());
        }
        let judged = !matches!(self.dishonest, Some(Addr::Manager(_)));
        for need in request.needs.iter() {
            let used = &mut self.used[need.pool.index()];
            *used += need.units;
            let full = *used > self.plan.topology.pools[need.pool.index()].capacity;
            let before = self.units_used.len();
            self.units_used.extend(need.named.iter().map(|unit| (need.pool, *unit)));
            let twice = self.units_used.len() < before + need.named.len();
            if judged && (full || twice) {
                return Err(Problem::Exclusion { granted: request.id, pool: need.pool });
            }
        }
        Ok(())
    }

    pub(super) fn stop_using(&mut self, request: &Request) {
        if self.is_honest(Addr::User(request.id.user)) {
            for need in request.needs.iter() {
                self.used[need.pool.index()] -= need.units;
                for unit in &need.named {
                    self.units_used.remove(&(need.pool, *unit));
                }
            }
        }
    }

    pub(super) fn released(&mut self, id: UserId, request: RequestId) -> Step {
        let Some(user) = self.users.get_mut(&id) else { return Ok(()) };
        match &user.client {
            Client::Ending(ending) if *ending == request => user.client = Client::Idle,
            Client::Left => {}
            _ => return Err(Problem::UnaskedRelease(request)),
        }
        Ok(())
    }

    /// A user says that its request is over although nobody ended it.
    pub(super) fn lost(&mut self, id: UserId, request: RequestId) -> Step {
        match self.users.get(&id) {
            Some(user) if !user.suspected && self.dishonest.is_none() => {
                Err(Problem::Lost(request))
            }
            Some(user) if user.client != Client::Left => {
                self.note(|| format!("{request:?} is lost"));
                self.end_client(id);
                self.succeed(id);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A client stops whatever it does.
    pub(super) fn end_client(&mut self, id: UserId) {
        let Some(user) = self.users.get_mut(&id) else { return };
        if let Client::Using(request) = std::mem::replace(&mut user.client, Client::Left) {
            self.stop_using(&request);
        }
    }
}

/// How long whoever asks says that its use will take: each second one says nothing. It is not drawn, so
/// that what else is drawn stays the same.
fn length_of(ask: u64) -> Option<Length> {
    let said = (ask % 2 == 1).then_some(ask / 2 % u64::from(Length::MAX) + 1)?;
    Length::try_from(u8::try_from(said).ok()?).ok()
}
