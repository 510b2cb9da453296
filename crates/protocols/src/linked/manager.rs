//! The manager: that of P, with its links.

use holdall_core::{Addr, Broken, Data, Event, ManagerId, Protocol, Role};
use serde::{Deserialize, Serialize};

use super::end::End;
use super::{Linked, Out, Packet, Timer};

/// Guards what `R` guards, the manager of P.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manager<R, U, M>(pub(super) End<R, U, M>);

impl<R, U, M> Manager<R, U, M>
where
    R: Role<Msg = M>,
    R::P: Protocol<Manager = R, ToUser = U, ToManager = M>,
    U: Data,
    M: Data,
{
    pub(super) fn new(id: ManagerId, inner: R) -> Self {
        Self(End::new(Addr::Manager(id), inner))
    }
}

impl<R, U, M> Role for Manager<R, U, M>
where
    R: Role<Msg = M>,
    R::P: Protocol<Manager = R, ToUser = U, ToManager = M>,
    U: Data,
    M: Data,
{
    type P = Linked<R::P>;
    type Call = R::Call;
    type Msg = Packet<M>;
    type Timer = Timer<R::Timer>;

    fn step(&mut self, cfg: &Self::P, event: Event<Self>, out: &mut Out<R>) {
        let armed = self.0.is_armed(cfg, &event);
        self.0.handle(cfg, event, out);
        self.0.links.watch(&cfg.rules, armed, out);
    }

    fn check(&self, cfg: &Self::P) -> Result<(), Broken> {
        self.0.links.check()?;
        self.0.inner.check(&cfg.inner)
    }

    fn is_stale(&self, _: &Self::P, from: Addr, packet: &Packet<M>) -> bool {
        matches!(packet, Packet::Ack(n) if self.0.links.is_known(from, *n))
    }

    fn is_idle(&self) -> bool {
        self.0.inner.is_idle() && !self.0.links.waits()
    }
}
