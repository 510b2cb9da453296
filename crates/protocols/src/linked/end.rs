//! What users and managers have in common: a role of P, and its links.

use holdall_core::{Addr, ChannelStamp, Data, Event, Gone, Outbox, Party, Protocol, Role};
use serde::{Deserialize, Serialize};

use super::links::Links;
use super::{Content, Linked, Out, Packet, Timer};

/// A role `R` of P at the end of its links.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct End<R, U, M> {
    pub(super) inner: R,
    pub(super) links: Links<U, M>,
}

impl<R, U, M> End<R, U, M>
where
    R: Role,
    R::P: Protocol<ToUser = U, ToManager = M>,
    U: Data,
    M: Data,
{
    pub(super) fn new(me: Addr, inner: R) -> Self {
        Self { inner, links: Links::new(me) }
    }

    /// Whether the timer is armed after this event has come, and before it is handled.
    pub(super) fn is_armed<X>(&self, cfg: &Linked<R::P>, event: &Event<X>) -> bool
    where
        X: Role<Timer = Timer<R::Timer>>,
    {
        let rings = matches!(event, Event::Timer(Timer::Resend));
        cfg.rules.resend && self.links.waits() && !rings
    }

    /// Handles an event; whether the role of P has lost its request.
    pub(super) fn handle<X>(
        &mut self,
        cfg: &Linked<R::P>,
        event: Event<X>,
        out: &mut Out<R>,
    ) -> bool
    where
        X: Role<Call = R::Call, Msg = Packet<R::Msg>, Timer = Timer<R::Timer>>,
    {
        let event = match event {
            Event::Call(call) => Event::Call(call),
            Event::Gone(gone) => {
                if let Gone::Departed(who) = gone {
                    self.links.close(&cfg.rules, who);
                }
                Event::Gone(gone)
            }
            Event::Message { from, msg: Packet::Ack(n) } => {
                if let Err(what) = self.links.on_ack(from, n) {
                    out.misbehaved(from, what);
                }
                return false;
            }
            Event::Message { from, msg: Packet::Frame { n, content } } => {
                match self.open(cfg, from, n, content, out) {
                    Some(msg) => Event::Message { from, msg },
                    None => return false,
                }
            }
            Event::Timer(Timer::Inner(timer)) => Event::Timer(timer),
            Event::Timer(Timer::Resend) => {
                self.links.send_again(out);
                return false;
            }
        };
        let mut inner = Outbox::default();
        self.inner.step(&cfg.inner, event, &mut inner);
        self.links.pass_on::<R>(inner, out)
    }

    /// The message in a frame, if there is one and it has not come before.
    fn open(
        &mut self,
        cfg: &Linked<R::P>,
        from: Addr,
        n: ChannelStamp,
        content: Content<R::Msg>,
        out: &mut Out<R>,
    ) -> Option<R::Msg> {
        match (self.links.on_frame(&cfg.rules, from, n, out), content) {
            (Err(what), _) => out.misbehaved(from, what),
            (Ok(false), _) => {}
            (Ok(true), Content::Message(msg)) => return Some(msg),
            (Ok(true), Content::Close) => match from {
                Addr::Manager(_) => out.misbehaved(from, "a manager does not leave"),
                Addr::User(user) => self.links.close(&cfg.rules, Party::User(user)),
            },
        }
        None
    }
}
