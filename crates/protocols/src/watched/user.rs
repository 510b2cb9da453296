//! The user: that of P, which shows that it is there.

use alloc::collections::BTreeMap;

use holdall_core::{Addr, Broken, Call, Effect, Event, ManagerId, Outbox, Protocol, Role, UserId};
use serde::{Deserialize, Serialize};

use super::{Number, ToManager, UserTimer, Watched};

/// Acts for one client; `R` is the user of P.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User<R> {
    id: UserId,
    inner: R,
    /// What was last sent to each manager that was spoken to, and whether it watches.
    last: BTreeMap<ManagerId, (Number, bool)>,
}

type Out<R> = Outbox<Watched<<R as Role>::P>, UserTimer<<R as Role>::Timer>>;

impl<R> User<R>
where
    R: Role<Call = Call>,
    R::P: Protocol<User = R, ToUser = R::Msg>,
{
    pub(super) fn new(id: UserId, inner: R) -> Self {
        Self { id, inner, last: BTreeMap::new() }
    }

    /// The next number for a manager, which watches from then on or no more.
    fn next(&mut self, to: ManagerId, watches: bool) -> Number {
        let fresh = || (Number::first(self.id, to), false);
        let last = self.last.entry(to).or_insert_with(fresh);
        *last = (last.0.next(), watches);
        last.0
    }

    fn is_watched(&self) -> bool {
        self.last.values().any(|(_, watches)| *watches)
    }

    fn step_inner(&mut self, cfg: &Watched<R::P>, event: Event<R>, out: &mut Out<R>) {
        let mut inner = Outbox::default();
        self.inner.step(&cfg.inner, event, &mut inner);
        for effect in inner.drain() {
            match effect {
                Effect::Arm(timer, rung) => out.arm(UserTimer::Inner(timer), rung),
                Effect::Disarm(timer) => out.disarm(UserTimer::Inner(timer)),
                Effect::Granted(request) => out.granted(request),
                Effect::Lost(request) => out.lost(request),
                Effect::Misbehaved(who, what) => out.misbehaved(who, what),
                Effect::Released(request) => out.released(request),
                Effect::Tally(what, size) => out.tally(what, size),
                Effect::ToManager(to, msg) => {
                    let n = self.next(to, true);
                    out.to_manager(to, ToManager::ByUser(n, msg));
                }
                Effect::ToUser(to, msg) => out.to_user(to, msg),
            }
        }
    }

    /// Says something to all managers that watch.
    fn tell(
        &mut self,
        say: fn(Number) -> ToManager<<R::P as Protocol>::ToManager>,
        on: bool,
        out: &mut Out<R>,
    ) {
        let watching = self.last.iter().filter(|(_, (_, watches))| *watches);
        let watching: alloc::vec::Vec<ManagerId> = watching.map(|(manager, _)| *manager).collect();
        for manager in watching {
            let n = self.next(manager, on);
            out.to_manager(manager, say(n));
        }
    }
}

impl<R> Role for User<R>
where
    R: Role<Call = Call>,
    R::P: Protocol<User = R, ToUser = R::Msg>,
{
    type P = Watched<R::P>;
    type Call = Call;
    type Msg = R::Msg;
    type Timer = UserTimer<R::Timer>;

    fn step(&mut self, cfg: &Self::P, event: Event<Self>, out: &mut Out<R>) {
        let mut armed = self.is_watched();
        match event {
            Event::Call(call) => self.step_inner(cfg, Event::Call(call), out),
            Event::Gone(gone) => self.step_inner(cfg, Event::Gone(gone), out),
            Event::Message { from, msg } => {
                self.step_inner(cfg, Event::Message { from, msg }, out);
            }
            Event::Timer(UserTimer::Inner(timer)) => {
                self.step_inner(cfg, Event::Timer(timer), out);
            }
            Event::Timer(UserTimer::Beat) => {
                armed = false;
                self.tell(ToManager::Beat, true, out);
            }
        }
        if self.inner.is_idle() {
            self.tell(ToManager::Rest, false, out);
        }
        match (armed, self.is_watched()) {
            (false, true) => out.arm(UserTimer::Beat, 0),
            (true, false) => out.disarm(UserTimer::Beat),
            _ => {}
        }
    }

    fn check(&self, cfg: &Self::P) -> Result<(), Broken> {
        self.inner.check(&cfg.inner)
    }

    fn is_stale(&self, cfg: &Self::P, from: Addr, msg: &Self::Msg) -> bool {
        self.inner.is_stale(&cfg.inner, from, msg)
    }

    fn stage(&self) -> &'static str {
        self.inner.stage()
    }

    fn is_idle(&self) -> bool {
        self.inner.is_idle()
    }
}
