//! The user: sends its message on the way, and moves up, or waits for its agent.

use holdall_core::{Addr, Broken, Call, Event, Never, Outbox, Request, RequestId, Role, UserId};
use serde::{Deserialize, Serialize};

use super::{ToManager, ToUser, Walk, Walking};
use crate::positions::{Move, News, Place, Turn};

type Out = Outbox<Walking, Never>;

/// Acts for one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User {
    id: UserId,
    state: State,
}

/// `asked` is the request as its client named it; elsewhere its needs are in the order of the way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum State {
    Idle,
    /// Its message is on the way, or its agent acts.
    Walking {
        asked: Request,
        request: Request,
    },
    Queued {
        asked: Request,
        place: Place,
    },
    Using {
        request: Request,
    },
}

impl State {
    fn id(&self) -> Option<RequestId> {
        match self {
            Self::Idle => None,
            Self::Walking { request, .. } | Self::Using { request } => Some(request.id),
            Self::Queued { place, .. } => Some(place.request().id),
        }
    }
}

impl User {
    pub(super) fn new(id: UserId) -> Self {
        Self { id, state: State::Idle }
    }

    fn ask(&mut self, cfg: &Walking, asked: Request, out: &mut Out) {
        let needs = if cfg.rules.ascend { asked.needs.sorted() } else { asked.needs.clone() };
        let request = Request { id: asked.id, needs };
        if let Some(first) = Walking::way(&request).next() {
            let walk = Walk { request: request.clone(), marked: alloc::vec::Vec::new() };
            out.to_manager(first, ToManager::Walk(walk));
        }
        self.state = State::Walking { asked, request };
    }

    fn on_news(&mut self, cfg: &Walking, from: Addr, news: News, out: &mut Out) {
        if self.state.id() != Some(news.request()) {
            return; // It crossed our departure.
        }
        if let State::Walking { request, .. } = &self.state
            && Walking::last(request).map(Addr::Manager) != Some(from)
        {
            return out.misbehaved(from, "news from one who is not last on the way");
        }
        match (&mut self.state, news) {
            (State::Walking { asked, request }, News::Grant(_)) if cfg.agent => {
                out.granted(asked.clone());
                self.state = State::Using { request: request.clone() };
            }
            (State::Walking { asked, request }, News::Marked { positions, .. }) if !cfg.agent => {
                let mut place = Place::selecting(request.clone());
                let turn = place.on_all_marks(positions, cfg.queues);
                self.state = State::Queued { asked: asked.clone(), place };
                self.take(turn, out);
            }
            (State::Queued { place, .. }, news) => {
                match place.on_news(from, Walking::manager_of, &news, cfg.queues, false) {
                    Ok(turn) => self.take(turn, out),
                    Err(what) => out.misbehaved(from, what),
                }
            }
            _ => out.misbehaved(from, "news of a queue before or after its time"),
        }
    }

    fn take(&mut self, turn: Turn, out: &mut Out) {
        let State::Queued { asked, place } = &self.state else { return };
        let request = place.request().clone();
        if let Some(step) = turn.tell {
            if let Move::Select { position, .. } = step {
                out.tally("position", u64::from(position));
            }
            tell_all(&request, &step, out);
        }
        if turn.enter {
            out.granted(asked.clone());
            self.state = State::Using { request };
        }
    }

    fn end(&mut self, cfg: &Walking, out: &mut Out) {
        let state = core::mem::replace(&mut self.state, State::Idle);
        let Some(id) = state.id() else { return };
        let release = Move::Release(id);
        match &state {
            State::Idle => {}
            State::Walking { request, .. } => {
                if let Some(first) = Walking::way(request).next() {
                    out.to_manager(first, ToManager::Recall(id));
                }
            }
            State::Queued { place, .. } => tell_all(place.request(), &release, out),
            State::Using { request } if cfg.agent => {
                if let Some(agent) = Walking::last(request) {
                    out.to_manager(agent, ToManager::Move(release));
                }
            }
            State::Using { request } => tell_all(request, &release, out),
        }
        out.released(id);
    }
}

fn tell_all(request: &Request, step: &Move, out: &mut Out) {
    for manager in Walking::way(request) {
        out.to_manager(manager, ToManager::Move(step.clone()));
    }
}

impl Role for User {
    type P = Walking;
    type Call = Call;
    type Msg = ToUser;
    type Timer = Never;

    fn step(&mut self, cfg: &Walking, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Call(Call::Ask(request, _)) => self.ask(cfg, request, out),
            Event::Call(Call::Done | Call::Leave) => self.end(cfg, out),
            Event::Message { from, msg: ToUser::News(news) } => self.on_news(cfg, from, news, out),
            Event::Gone(_) => {}
            Event::Timer(never) => match never {},
        }
    }

    fn check(&self, _: &Walking) -> Result<(), Broken> {
        let own = self.state.id().is_none_or(|request| request.user == self.id);
        Broken::unless(own, "a user asks for itself")
    }

    fn is_stale(&self, _: &Walking, _: Addr, ToUser::News(news): &ToUser) -> bool {
        self.state.id() != Some(news.request())
    }

    /// Once it is queued it gathers the news of its queues.
    fn is_prompt(&self, cfg: &Walking, _: Addr, ToUser::News(news): &ToUser, _: bool) -> bool {
        let current = self.state.id() == Some(news.request());
        let gathers = |place: &Place| place.gathers(news, cfg.queues);
        current && matches!(&self.state, State::Queued { place, .. } if gathers(place))
    }

    fn is_idle(&self) -> bool {
        self.state == State::Idle
    }
}
