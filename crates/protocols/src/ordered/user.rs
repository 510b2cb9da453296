//! The user: climbs its ladder of needs, one rung at a time.

use alloc::collections::BTreeSet;

use holdall_core::{
    Addr, Broken, Call, Event, Need, Needs, Never, Outbox, Picked, Request, RequestId, Role, Unit,
    UserId,
};
use serde::{Deserialize, Serialize};

use super::{Ordered, ToManager, ToUser};
use crate::stock::may_be_picked;

type Out = Outbox<Ordered, Never>;

/// Acts for one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User {
    id: UserId,
    pub(super) climb: Option<Climb>,
}

/// A request under way: `ladder[..held]` is held; `ladder[held]`, if any, is waited for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Climb {
    pub(super) request: Request,
    pub(super) ladder: Needs,
    pub(super) held: usize,
    /// The units that are held of listed pools.
    pub(super) units: Picked,
}

impl Climb {
    /// The rungs that were asked for: those held and the one waited for.
    fn asked(&self) -> &[Need] {
        &self.ladder[..self.ladder.len().min(self.held + 1)]
    }
}

impl User {
    pub(super) fn new(id: UserId) -> Self {
        Self { id, climb: None }
    }

    fn ask(&mut self, cfg: &Ordered, request: Request, out: &mut Out) {
        let ladder = if cfg.rules.sorted {
            request.needs.sorted_by_key(|need| cfg.rank(need.pool))
        } else {
            request.needs.clone()
        };
        let climb = Climb { request, ladder, held: 0, units: Picked::new() };
        acquire_next(&climb, out);
        self.climb = Some(climb);
    }

    /// One rung up, or at the top.
    fn on_held(
        &mut self,
        cfg: &Ordered,
        from: Addr,
        id: RequestId,
        units: BTreeSet<Unit>,
        out: &mut Out,
    ) {
        let Some(climb) = self.climb.as_mut().filter(|climb| climb.request.id == id) else {
            return; // It crossed our departure.
        };
        let guards = |need: &&Need| Addr::Manager(Ordered::manager_of(need.pool)) == from;
        let Some(rung) = climb.ladder.get(climb.held).filter(guards) else {
            return out.misbehaved(from, "held: not the rung waited for");
        };
        if !units.is_empty() {
            climb.units.insert(rung.pool, units);
        }
        if !may_be_picked(rung, &climb.units, cfg.is_listed(rung.pool)) {
            return out.misbehaved(from, "held: other units than asked for");
        }
        climb.held += 1;
        if climb.held == climb.ladder.len() {
            out.granted(Request { id, needs: climb.request.needs.with(&climb.units) });
        } else {
            acquire_next(climb, out);
        }
    }

    /// Gives back what is held and leaves the queue of what is not.
    fn end(&mut self, out: &mut Out) {
        let Some(climb) = self.climb.take() else { return };
        for need in climb.asked() {
            out.to_manager(Ordered::manager_of(need.pool), ToManager::Release(climb.request.id));
        }
        out.released(climb.request.id);
    }
}

fn acquire_next(climb: &Climb, out: &mut Out) {
    let Some(need) = climb.ladder.get(climb.held) else { return };
    let acquire = ToManager::Acquire { request: climb.request.id, need: need.clone() };
    out.to_manager(Ordered::manager_of(need.pool), acquire);
}

impl Role for User {
    type P = Ordered;
    type Call = Call;
    type Msg = ToUser;
    type Timer = Never;

    fn step(&mut self, cfg: &Ordered, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Call(Call::Ask(request, _)) => self.ask(cfg, request, out),
            Event::Call(Call::Done | Call::Leave) => self.end(out),
            Event::Message { from, msg: ToUser::Held { request, units } } => {
                self.on_held(cfg, from, request, units, out);
            }
            Event::Gone(_) => {}
            Event::Timer(never) => match never {},
        }
    }

    fn check(&self, cfg: &Ordered) -> Result<(), Broken> {
        let Some(climb) = &self.climb else { return Ok(()) };
        Broken::unless(climb.request.id.user == self.id, "a user climbs for itself")?;
        Broken::unless(climb.held <= climb.ladder.len(), "no more is held than asked for")?;
        Broken::unless(
            !cfg.rules.sorted || climb.ladder.is_sorted_by_key(|need| cfg.rank(need.pool)),
            "O2: waits only above all it holds",
        )
    }

    fn touch(&self) -> u64 {
        let Some(climb) = &self.climb else { return 0 };
        climb.ladder.first().map_or(0, |need| need.pool.0)
            + climb.ladder.last().map_or(0, |need| u64::from(need.units))
    }

    fn is_idle(&self) -> bool {
        self.climb.is_none()
    }
}
