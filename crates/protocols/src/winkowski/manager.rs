//! The manager of one pool: takes stances, keeps the book, sends views.

use alloc::vec::Vec;

use holdall_core::{Addr, Broken, Event, Gone, ManagerId, Never, Origin, RequestId, Role};
use serde::{Deserialize, Serialize};

use super::book::{Book, Entry};
use super::{Level, Out, Stance, ToUser, Turn, Version, View, Winkowski};
use crate::lanes::{Lanes, State};

/// Guards one pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manager<const COMPLETE: bool> {
    id: ManagerId,
    book: Book,
    lanes: Lanes,
}

impl<const COMPLETE: bool> Manager<COMPLETE> {
    pub(super) fn new(id: ManagerId, capacity: u32, origin: Origin) -> Self {
        Self { id, book: Book::new(capacity, origin), lanes: Lanes::default() }
    }

    /// Whether a task has come as far as this here.
    pub(super) fn has_confirmed(&self, request: RequestId, level: Level) -> bool {
        self.book.entries.get(&request).is_some_and(|entry| entry.level >= level)
    }

    /// The tasks that take part in the game here: that compete, or use.
    pub(super) fn rivals(&self) -> impl Iterator<Item = RequestId> {
        let plays = |(id, entry): (&RequestId, &Entry)| (entry.level > Level::Reg).then_some(*id);
        self.book.entries.iter().filter_map(plays)
    }

    /// The stance that a task was answered last, and the latest view it was sent since, if it is here.
    pub(super) fn last_sent(&self, request: RequestId) -> Option<(Turn, Option<Version>)> {
        self.book.entries.get(&request).map(|entry| (entry.n, Some(entry.version)))
    }

    /// Whether its user was taken for dead.
    pub(super) fn has_evicted(&self, request: RequestId) -> bool {
        self.lanes.state(request) == State::Gone
    }

    fn on_stance(
        &mut self,
        cfg: &Winkowski<COMPLETE>,
        from: Addr,
        stance: &Stance,
        out: &mut Out<COMPLETE, Never>,
    ) {
        let request = stance.request;
        if from != Addr::User(request.user) {
            return out.misbehaved(from, "a task of another user");
        }
        let state = self.state(cfg, request);
        match state {
            State::Current | State::New => {}
            State::Over if self.lanes.is_overtaken(request) => {
                return self.confirm_out(stance, out);
            }
            State::Over => return,
            State::Gone => return out.to_user(request.user, ToUser::Over(request)),
        }
        if self.book.entries.get(&request).is_some_and(|entry| stance.n <= entry.n) {
            return;
        }
        if !(self.book.accepts(cfg.settings, COMPLETE, stance)
            && stance.n.is_between(request.user, self.id))
        {
            return out.misbehaved(from, "a stance that makes no sense here");
        }
        if self.book.was_led_astray(stance) {
            self.lanes.end(request);
            self.book.remove(request);
            out.to_user(request.user, ToUser::Over(request));
            return self.tell(cfg, None, out);
        }
        if let Some(before) = self.lanes.begin(request).filter(|_| state == State::New) {
            self.book.remove(before);
        }
        self.book.follow(&cfg.rules, COMPLETE, self.id, stance);
        if stance.level == Level::Out {
            self.lanes.end(request);
            self.confirm_out(stance, out);
        }
        self.tell(cfg, Some(request), out);
    }

    /// Tells a task that leaves that it is out. It waits for that also if a later task of its lane was
    /// here first.
    fn confirm_out(&self, stance: &Stance, out: &mut Out<COMPLETE, Never>) {
        if stance.level == Level::Out {
            let Stance { request, n, .. } = *stance;
            let (view, top) = (View::default(), None);
            let version = Version::first(request.user, self.id);
            out.to_user(request.user, ToUser::View { request, n, version, view, top });
        }
    }

    /// How a task stands with this manager.
    fn state(&self, cfg: &Winkowski<COMPLETE>, request: RequestId) -> State {
        if cfg.rules.ended { self.lanes.state(request) } else { State::Current }
    }

    /// Whoever is reported gone leaves the game; but whoever is only suspected keeps what it uses.
    fn on_gone(&mut self, cfg: &Winkowski<COMPLETE>, gone: Gone, out: &mut Out<COMPLETE, Never>) {
        if !cfg.rules.purge {
            return;
        }
        let known = self.book.of(gone.who());
        let uses = match gone {
            Gone::Suspected(user) if cfg.rules.lease => {
                known.iter().any(|id| id.user == user && self.book.suspect(*id))
            }
            _ => false,
        };
        if !uses && self.lanes.end_all_of(gone.who()) {
            for id in known {
                self.book.remove(id);
                if !matches!(gone, Gone::Departed(_)) {
                    out.to_user(id.user, ToUser::Over(id));
                }
            }
        }
        self.tell(cfg, None, out);
    }

    /// Answers a task, and tells all others who see something new.
    fn tell(
        &mut self,
        cfg: &Winkowski<COMPLETE>,
        answer: Option<RequestId>,
        out: &mut Out<COMPLETE, Never>,
    ) {
        let ids: Vec<RequestId> = self.book.entries.keys().copied().collect();
        for request in ids {
            let view = self.book.view(&cfg.rules, cfg.settings, request);
            let top = (view.level == Level::Reg).then(|| self.book.top());
            let Some(entry) = self.book.entries.get_mut(&request) else { continue };
            let news = entry.told.map(View::news) != Some(view.news());
            if news || answer == Some(request) || !cfg.settings.filter {
                entry.told = Some(view);
                entry.version = entry.version.next();
                let (n, version) = (entry.n, entry.version);
                out.to_user(request.user, ToUser::View { request, n, version, view, top });
            }
        }
    }
}

impl<const COMPLETE: bool> Role for Manager<COMPLETE> {
    type P = Winkowski<COMPLETE>;
    type Call = Never;
    type Msg = Stance;
    type Timer = Never;

    fn step(&mut self, cfg: &Self::P, event: Event<Self>, out: &mut Out<COMPLETE, Never>) {
        match event {
            Event::Message { from, msg } => self.on_stance(cfg, from, &msg, out),
            Event::Gone(gone) => self.on_gone(cfg, gone, out),
            Event::Call(never) | Event::Timer(never) => match never {},
        }
    }

    fn check(&self, _: &Self::P) -> Result<(), Broken> {
        self.book.check()
    }

    fn is_stale(&self, cfg: &Self::P, from: Addr, msg: &Stance) -> bool {
        if from != Addr::User(msg.request.user) {
            return false;
        }
        match self.state(cfg, msg.request) {
            State::Over => msg.level != Level::Out || !self.lanes.is_overtaken(msg.request),
            State::Gone => false,
            State::New | State::Current => {
                self.book.entries.get(&msg.request).is_some_and(|entry| msg.n <= entry.n)
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.book.entries.is_empty()
    }
}
