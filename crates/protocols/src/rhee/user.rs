//! The user (Figure 4): through S to a position, and from there with the queues.

use holdall_core::{
    Addr, Broken, Call, Event, Need, Needs, Note, Outbox, Protocol, Request, RequestId, Role,
    UserId,
};
use serde::{Deserialize, Serialize};

use super::{Rhee, ToManager, ToUser};
use crate::positions::{Move, News, Place, Turn};

/// Acts for one client; `U` is the user of S.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User<U> {
    id: UserId,
    inner: U,
    /// S has a request of this user, or is not done with one.
    inner_busy: bool,
    state: State,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum State {
    Idle,
    /// Lines 01 to 03. `asked` is whether S was asked, which may still be busy with the last one.
    Entering {
        request: Request,
        asked: bool,
    },
    /// Lines 04 to 15. While the place is being selected, S is held.
    Queued(Place),
    Using {
        request: Request,
    },
}

impl State {
    fn request(&self) -> Option<&Request> {
        match self {
            Self::Idle => None,
            Self::Entering { request, .. } | Self::Using { request } => Some(request),
            Self::Queued(place) => Some(place.request()),
        }
    }
}

type Out<U> = Outbox<Rhee<<U as Role>::P>, <U as Role>::Timer>;

impl<U> User<U>
where
    U: Role<Call = Call>,
    U::P: Protocol<User = U, ToUser = U::Msg>,
{
    pub(super) fn new(id: UserId, inner: U) -> Self {
        Self { id, inner, inner_busy: false, state: State::Idle }
    }

    /// The request under way, once S was granted for it.
    pub(super) fn queued(&self) -> Option<&Request> {
        match &self.state {
            State::Queued(place) => Some(place.request()),
            State::Using { request } => Some(request),
            State::Idle | State::Entering { .. } => None,
        }
    }

    /// Whether it is selecting a position.
    pub(super) fn is_selecting(&self) -> bool {
        matches!(&self.state, State::Queued(place) if place.is_selecting())
    }

    /// Enters S, unless it is still busy with the last request.
    fn enter(&mut self, cfg: &Rhee<U::P>, request: &Request, out: &mut Out<U>) {
        let asked = !self.inner_busy;
        self.state = State::Entering { request: request.clone(), asked };
        if asked {
            self.inner_busy = true;
            let needs = single(&request.needs);
            let ask = Call::Ask(Request { id: request.id, needs }, None);
            self.step_inner(cfg, Event::Call(ask), out);
        }
    }

    fn step_inner(&mut self, cfg: &Rhee<U::P>, event: Event<U>, out: &mut Out<U>) {
        let mut inner = Outbox::default();
        self.inner.step(&cfg.inner, event, &mut inner);
        for note in out.lift(inner, ToUser::Inner, ToManager::Inner, |timer| timer) {
            match note {
                Note::Granted(granted) => self.report(cfg, granted.id, out),
                Note::Released(_) => {
                    self.inner_busy = false;
                    if let State::Entering { request, asked: false } = self.state.clone() {
                        self.enter(cfg, &request, out);
                    }
                }
                Note::Lost(lost) => {
                    self.inner_busy = false;
                    if self.leave_queues(cfg, out).is_some_and(|request| request.id == lost) {
                        out.lost(lost);
                    }
                }
            }
        }
    }

    /// Lines 04 to 06.
    fn report(&mut self, cfg: &Rhee<U::P>, granted: RequestId, out: &mut Out<U>) {
        let State::Entering { request, .. } = &self.state else { return };
        if request.id != granted {
            return;
        }
        for need in request.needs.iter() {
            let report = ToManager::Report { request: request.id, units: need.units };
            out.to_manager(cfg.manager_of(need.pool), report);
        }
        self.state = State::Queued(Place::selecting(request.clone()));
    }

    /// Lines 07 to 15.
    fn on_news(&mut self, cfg: &Rhee<U::P>, from: Addr, news: &News, out: &mut Out<U>) {
        if self.is_over(news) {
            return; // It crossed our departure.
        }
        let State::Queued(place) = &mut self.state else {
            return out.misbehaved(from, "news of a queue before or after its time");
        };
        let manager_of = |pool| cfg.manager_of(pool);
        match place.on_news(from, manager_of, news, cfg.queues, !cfg.plus) {
            Err(what) => out.misbehaved(from, what),
            Ok(turn) => {
                let request = place.request().clone();
                self.take(cfg, turn, request, out);
            }
        }
    }

    fn take(&mut self, cfg: &Rhee<U::P>, turn: Turn, request: Request, out: &mut Out<U>) {
        if let Some(step) = turn.tell {
            tell_all(cfg, &request, &step, out);
            if let Move::Select { position, .. } = step {
                out.tally("position", u64::from(position));
                self.step_inner(cfg, Event::Call(Call::Done), out);
            }
        }
        if turn.enter {
            out.granted(request.clone());
            self.state = State::Using { request };
        }
    }

    /// Lines 16 to 18, at whatever stage.
    fn end(&mut self, cfg: &Rhee<U::P>, out: &mut Out<U>) {
        if self.has_inner() {
            self.step_inner(cfg, Event::Call(Call::Leave), out);
        }
        if let Some(request) = self.leave_queues(cfg, out) {
            out.released(request.id);
        }
    }

    /// Gives up the request, and its place in the queues if it has one.
    fn leave_queues(&mut self, cfg: &Rhee<U::P>, out: &mut Out<U>) -> Option<Request> {
        let state = core::mem::replace(&mut self.state, State::Idle);
        let request = state.request().cloned()?;
        if !matches!(state, State::Entering { .. }) {
            tell_all(cfg, &request, &Move::Release(request.id), out);
        }
        Some(request)
    }

    /// Whether news are of a request that is over.
    fn is_over(&self, news: &News) -> bool {
        self.state.request().is_none_or(|request| request.id != news.request())
    }

    /// R1: whether S is waited for or held for the request under way.
    fn has_inner(&self) -> bool {
        match &self.state {
            State::Entering { asked, .. } => *asked,
            State::Queued(place) => place.is_selecting(),
            State::Idle | State::Using { .. } => false,
        }
    }
}

fn tell_all<P: Protocol, T>(
    cfg: &Rhee<P>,
    request: &Request,
    step: &Move,
    out: &mut Outbox<Rhee<P>, T>,
) {
    for need in request.needs.iter() {
        out.to_manager(cfg.manager_of(need.pool), ToManager::Move(step.clone()));
    }
}

/// The same pools, one unit of each.
fn single(needs: &Needs) -> Needs {
    let one = |need: &Need| Need::any(need.pool, 1);
    Needs::new(needs.iter().map(one).collect()).unwrap_or_else(|_| needs.clone())
}

impl<U> Role for User<U>
where
    U: Role<Call = Call>,
    U::P: Protocol<User = U, ToUser = U::Msg>,
{
    type P = Rhee<U::P>;
    type Call = Call;
    type Msg = ToUser<U::Msg>;
    type Timer = U::Timer;

    fn step(&mut self, cfg: &Self::P, event: Event<Self>, out: &mut Out<U>) {
        match event {
            Event::Call(Call::Ask(request, _)) => self.enter(cfg, &request, out),
            Event::Call(Call::Done | Call::Leave) => self.end(cfg, out),
            Event::Gone(gone) => self.step_inner(cfg, Event::Gone(gone), out),
            Event::Message { from, msg: ToUser::Inner(msg) } => {
                self.step_inner(cfg, Event::Message { from, msg }, out);
            }
            Event::Message { from, msg: ToUser::News(news) } => {
                self.on_news(cfg, from, &news, out);
            }
            Event::Timer(timer) => self.step_inner(cfg, Event::Timer(timer), out),
        }
    }

    fn check(&self, cfg: &Self::P) -> Result<(), Broken> {
        let own = self.state.request().is_none_or(|request| request.id.user == self.id);
        Broken::unless(own, "a user asks for itself")?;
        Broken::unless(self.inner_busy || !self.has_inner(), "whoever selects has asked S")?;
        self.inner.check(&cfg.inner)
    }

    fn is_stale(&self, cfg: &Self::P, from: Addr, msg: &Self::Msg) -> bool {
        match msg {
            ToUser::Inner(msg) => self.inner.is_stale(&cfg.inner, from, msg),
            ToUser::News(news) => self.is_over(news),
        }
    }

    /// It gathers the news of its queues; and what its user of S gathers is nothing to them.
    fn is_prompt(&self, cfg: &Self::P, from: Addr, msg: &Self::Msg, alone: bool) -> bool {
        match (msg, &self.state) {
            (ToUser::Inner(msg), _) => self.inner.is_prompt(&cfg.inner, from, msg, alone),
            (ToUser::News(news), State::Queued(place)) => {
                !self.is_over(news) && place.gathers(news, cfg.queues)
            }
            (ToUser::News(_), _) => false,
        }
    }

    fn is_idle(&self) -> bool {
        self.state == State::Idle && self.inner.is_idle()
    }
}
