//! The user: that of P, with its links.

use holdall_core::{Addr, Broken, Call, Data, Event, ManagerId, Protocol, Role, UserId};
use serde::{Deserialize, Serialize};

use super::end::End;
use super::{Content, Linked, Out, Packet, Timer};

/// Acts for one client; `R` is the user of P.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User<R, U, M> {
    pub(super) end: End<R, U, M>,
    stage: Stage,
}

/// Whether it stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Stage {
    Here,
    /// Its client has left; the role of P has not finished.
    Leaving,
    /// All managers were told that it has left.
    Closed,
}

impl<R, U, M> User<R, U, M>
where
    R: Role<Call = Call, Msg = U>,
    R::P: Protocol<User = R, ToUser = U, ToManager = M>,
    U: Data,
    M: Data,
{
    pub(super) fn new(id: UserId, inner: R) -> Self {
        Self { end: End::new(Addr::User(id), inner), stage: Stage::Here }
    }

    /// Tells all managers that it has left, once the role of P has nothing to say any more.
    fn close(&mut self, cfg: &Linked<R::P>, out: &mut Out<R>) {
        if self.stage == Stage::Leaving && self.end.inner.is_idle() {
            self.stage = Stage::Closed;
            for manager in (0..cfg.managers).map(ManagerId).filter(|_| cfg.rules.close) {
                self.end.links.send_to_manager(manager, Content::Close, out);
            }
        }
    }
}

impl<R, U, M> Role for User<R, U, M>
where
    R: Role<Call = Call, Msg = U>,
    R::P: Protocol<User = R, ToUser = U, ToManager = M>,
    U: Data,
    M: Data,
{
    type P = Linked<R::P>;
    type Call = Call;
    type Msg = Packet<U>;
    type Timer = Timer<R::Timer>;

    fn step(&mut self, cfg: &Self::P, event: Event<Self>, out: &mut Out<R>) {
        let armed = self.end.is_armed(cfg, &event);
        let leaves = matches!(event, Event::Call(Call::Leave));
        let lost = self.end.handle(cfg, event, out);
        if (leaves || lost) && self.stage == Stage::Here {
            self.stage = Stage::Leaving;
        }
        self.close(cfg, out);
        self.end.links.watch(&cfg.rules, armed, out);
    }

    fn check(&self, cfg: &Self::P) -> Result<(), Broken> {
        self.end.links.check()?;
        self.end.inner.check(&cfg.inner)
    }

    fn is_stale(&self, _: &Self::P, from: Addr, packet: &Packet<U>) -> bool {
        matches!(packet, Packet::Ack(n) if self.end.links.is_known(from, *n))
    }

    fn stage(&self) -> &'static str {
        self.end.inner.stage()
    }

    fn is_idle(&self) -> bool {
        self.stage != Stage::Leaving && self.end.inner.is_idle() && !self.end.links.waits()
    }
}
