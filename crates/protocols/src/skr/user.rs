//! The user: agrees on a time, selects a position when its turn comes, and moves up.

use holdall_core::{
    Addr, Broken, Call, Clock, Event, Never, Outbox, Request, RequestId, Role, UserId,
};
use serde::{Deserialize, Serialize};

use super::{Skr, ToManager, ToUser};
use crate::line::Joining;
use crate::positions::{Move, News, Place};

type Out = Outbox<Skr, Never>;

/// Acts for one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User {
    id: UserId,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum State {
    Idle,
    /// The time of the selection is yet to be agreed.
    Joining(Joining),
    /// The marks are waited for, or the front.
    Queued(Place),
    Using {
        request: Request,
    },
}

impl State {
    fn request(&self) -> Option<&Request> {
        match self {
            Self::Idle => None,
            Self::Joining(joining) => Some(joining.request()),
            Self::Using { request } => Some(request),
            Self::Queued(place) => Some(place.request()),
        }
    }
}

impl User {
    pub(super) fn new(id: UserId) -> Self {
        Self { id, state: State::Idle }
    }

    fn ask(&mut self, request: Request, out: &mut Out) {
        for need in request.needs.iter() {
            let join = ToManager::Join { request: request.id, units: need.units };
            out.to_manager(Skr::manager_of(need.pool), join);
        }
        self.state = State::Joining(Joining::new(request));
    }

    /// With the last proposal the time is known.
    fn on_proposed(&mut self, cfg: &Skr, from: Addr, id: RequestId, time: Clock, out: &mut Out) {
        if self.is_over(id) {
            return;
        }
        let State::Joining(joining) = &mut self.state else {
            return out.misbehaved(from, "proposed: after the time was agreed");
        };
        let times = match joining.on_proposed(cfg.line, from, Skr::manager_of, time) {
            Ok(Some(times)) => times,
            Ok(None) => return,
            Err(what) => return out.misbehaved(from, what),
        };
        for (need, time) in times {
            let agreed = ToManager::Agreed { request: id, time };
            out.to_manager(Skr::manager_of(need.pool), agreed);
        }
        self.state = State::Queued(Place::selecting(joining.request().clone()));
    }

    fn on_news(&mut self, cfg: &Skr, from: Addr, news: &News, out: &mut Out) {
        if self.is_over(news.request()) {
            return;
        }
        let State::Queued(place) = &mut self.state else {
            return out.misbehaved(from, "news of a queue before or after its time");
        };
        let turn = match place.on_news(from, Skr::manager_of, news, cfg.queues, false) {
            Ok(turn) => turn,
            Err(what) => return out.misbehaved(from, what),
        };
        let request = place.request().clone();
        if let Some(step) = turn.tell {
            if let Move::Select { position, .. } = step {
                out.tally("position", u64::from(position));
            }
            tell_all(&request, &step, out);
        }
        if turn.enter {
            out.granted(request.clone());
            self.state = State::Using { request };
        }
    }

    fn end(&mut self, out: &mut Out) {
        if let Some(request) = self.state.request() {
            tell_all(request, &Move::Release(request.id), out);
            out.released(request.id);
        }
        self.state = State::Idle;
    }

    /// Whether a message about this request crossed our departure.
    fn is_over(&self, id: RequestId) -> bool {
        self.state.request().is_none_or(|request| request.id != id)
    }
}

fn tell_all(request: &Request, step: &Move, out: &mut Out) {
    for need in request.needs.iter() {
        out.to_manager(Skr::manager_of(need.pool), ToManager::Move(step.clone()));
    }
}

impl Role for User {
    type P = Skr;
    type Call = Call;
    type Msg = ToUser;
    type Timer = Never;

    fn step(&mut self, cfg: &Skr, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Call(Call::Ask(request, _)) => self.ask(request, out),
            Event::Call(Call::Done | Call::Leave) => self.end(out),
            Event::Message { from, msg: ToUser::Proposed { request, time } } => {
                self.on_proposed(cfg, from, request, time, out);
            }
            Event::Message { from, msg: ToUser::News(news) } => {
                self.on_news(cfg, from, &news, out);
            }
            Event::Gone(_) => {}
            Event::Timer(never) => match never {},
        }
    }

    fn check(&self, _: &Skr) -> Result<(), Broken> {
        let own = self.state.request().is_none_or(|request| request.id.user == self.id);
        Broken::unless(own, "a user asks for itself")
    }

    fn is_stale(&self, _: &Skr, _: Addr, msg: &ToUser) -> bool {
        self.is_over(match msg {
            ToUser::News(news) => news.request(),
            ToUser::Proposed { request, .. } => *request,
        })
    }

    /// It gathers proposals, and then the news of its queues.
    fn is_prompt(&self, cfg: &Skr, _: Addr, msg: &ToUser, _: bool) -> bool {
        match (msg, &self.state) {
            (ToUser::Proposed { request, .. }, State::Joining(_)) => !self.is_over(*request),
            (ToUser::News(news), State::Queued(place)) => {
                !self.is_over(news.request()) && place.gathers(news, cfg.queues)
            }
            _ => false,
        }
    }

    fn is_idle(&self) -> bool {
        self.state == State::Idle
    }
}
