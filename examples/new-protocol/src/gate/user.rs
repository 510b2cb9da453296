//! The user: goes from stop to stop, first the gate, then its pools.

use holdall_core::{Addr, Broken, Call, Event, ManagerId, Never, Outbox, Request, Role, UserId};
use serde::{Deserialize, Serialize};

use super::{Gate, Held, ToManager};

type Out = Outbox<Gate, Never>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User {
    id: UserId,
    tour: Option<Tour>,
}

/// A request under way. The stops before `at` are behind it, and it waits at that one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Tour {
    request: Request,
    at: usize,
}

const GATE: usize = 0;
const FIRST_POOL: usize = 1;

impl Tour {
    /// Who guards a stop, and how many units are needed there.
    fn stop(&self, cfg: &Gate, at: usize) -> Option<(ManagerId, u32)> {
        match at {
            GATE => Some((cfg.gate(), 1)),
            _ => {
                let need = self.request.needs.get(at - FIRST_POOL)?;
                Some((Gate::manager_of(need.pool), need.units))
            }
        }
    }

    fn acquire(&self, cfg: &Gate, out: &mut Out) {
        if let Some((manager, units)) = self.stop(cfg, self.at) {
            out.to_manager(manager, ToManager::Acquire { request: self.request.id, units });
        }
    }

    fn release(&self, cfg: &Gate, at: usize, out: &mut Out) {
        if let Some((manager, _)) = self.stop(cfg, at) {
            out.to_manager(manager, ToManager::Release(self.request.id));
        }
    }

    fn is_over(&self) -> bool {
        self.at == FIRST_POOL + self.request.needs.len()
    }

    /// The first stop whose units it has or waits for.
    fn first_kept(&self, cfg: &Gate) -> usize {
        if self.is_over() || !cfg.rules.gate { FIRST_POOL } else { GATE }
    }
}

impl User {
    pub(super) fn new(id: UserId) -> Self {
        Self { id, tour: None }
    }

    pub(super) fn is_in_the_room(&self) -> bool {
        self.tour.as_ref().is_some_and(|tour| tour.at >= FIRST_POOL && !tour.is_over())
    }

    pub(super) fn has_all(&self) -> bool {
        self.tour.as_ref().is_some_and(Tour::is_over)
    }

    fn ask(&mut self, cfg: &Gate, request: Request, out: &mut Out) {
        let tour = Tour { request, at: if cfg.rules.gate { GATE } else { FIRST_POOL } };
        tour.acquire(cfg, out);
        self.tour = Some(tour);
    }

    fn on_held(&mut self, cfg: &Gate, from: Addr, Held(id): Held, out: &mut Out) {
        let Some(tour) = self.tour.as_mut().filter(|tour| tour.request.id == id) else {
            return; // It crossed our departure.
        };
        if tour.stop(cfg, tour.at).map(|(manager, _)| Addr::Manager(manager)) != Some(from) {
            return out.misbehaved(from, "held: not the stop it waits at");
        }
        tour.at += 1;
        tour.acquire(cfg, out);
        if tour.is_over() {
            if cfg.rules.gate {
                tour.release(cfg, GATE, out);
            }
            out.granted(tour.request.clone());
        }
    }

    /// Gives back what it has, and leaves the queue where it waits.
    fn end(&mut self, cfg: &Gate, out: &mut Out) {
        let Some(tour) = self.tour.take() else { return };
        (tour.first_kept(cfg)..=tour.at).for_each(|at| tour.release(cfg, at, out));
        out.released(tour.request.id);
    }
}

impl Role for User {
    type P = Gate;
    type Call = Call;
    type Msg = Held;
    type Timer = Never;

    fn step(&mut self, cfg: &Gate, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Call(Call::Ask(request, _)) => self.ask(cfg, request, out),
            Event::Call(Call::Done | Call::Leave) => self.end(cfg, out),
            Event::Message { from, msg } => self.on_held(cfg, from, msg, out),
            Event::Gone(_) => {}
            Event::Timer(never) => match never {},
        }
    }

    fn check(&self, _: &Gate) -> Result<(), Broken> {
        let Some(tour) = &self.tour else { return Ok(()) };
        Broken::unless(tour.request.id.user == self.id, "a user asks for itself")
    }

    fn stage(&self) -> &'static str {
        match &self.tour {
            None => "",
            Some(tour) if tour.at == GATE => "at the gate",
            Some(tour) if tour.is_over() => "has all",
            Some(_) => "in the room",
        }
    }

    fn is_idle(&self) -> bool {
        self.tour.is_none()
    }
}
