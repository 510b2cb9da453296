//! The manager: that of P, which watches those who have spoken to it.

use alloc::collections::BTreeMap;

use holdall_core::{Addr, Broken, Event, Gone, ManagerId, Outbox, Protocol, Role, UserId};
use serde::{Deserialize, Serialize};

use super::{ManagerTimer, Number, TIMEOUT, ToManager, Watched};

/// Guards what `R` guards, the manager of P.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manager<R> {
    id: ManagerId,
    inner: R,
    /// The latest that was heard of each user.
    heard: BTreeMap<UserId, Number>,
}

type Out<R> = Outbox<Watched<<R as Role>::P>, ManagerTimer<<R as Role>::Timer>>;

impl<R> Manager<R>
where
    R: Role,
    R::P: Protocol<Manager = R, ToManager = R::Msg>,
{
    pub(super) fn new(id: ManagerId, inner: R) -> Self {
        Self { id, inner, heard: BTreeMap::new() }
    }

    /// Something is heard of a user; whether it is the latest, and it is to be watched.
    fn hear(&mut self, user: UserId, n: Number, watch: bool, out: &mut Out<R>) {
        if self.heard.get(&user).is_some_and(|latest| n <= *latest) {
            return;
        }
        self.heard.insert(user, n);
        match watch {
            true => out.arm(ManagerTimer::Silent(user), TIMEOUT),
            false => out.disarm(ManagerTimer::Silent(user)),
        }
    }

    /// What the role of P is to hear of an event, if anything.
    fn open(&mut self, event: Event<Self>, out: &mut Out<R>) -> Option<Event<R>> {
        Some(match event {
            Event::Call(call) => Event::Call(call),
            Event::Gone(gone) => {
                if let Gone::Departed(who) = gone {
                    self.heard.retain(|user, _| !who.includes(*user));
                }
                Event::Gone(gone)
            }
            Event::Message { from, msg: ToManager::ByManager(msg) } => {
                if let Addr::User(_) = from {
                    out.misbehaved(from, "a message that is a manager's to send");
                    return None;
                }
                Event::Message { from, msg }
            }
            Event::Message { from, msg } => {
                let (ToManager::Beat(n) | ToManager::Rest(n) | ToManager::ByUser(n, _)) = msg
                else {
                    return None;
                };
                let Addr::User(user) = from else {
                    out.misbehaved(from, "a message that is a user's to send");
                    return None;
                };
                if !n.is_between(user, self.id) {
                    out.misbehaved(from, "a number of another link");
                    return None;
                }
                self.hear(user, n, !matches!(msg, ToManager::Rest(_)), out);
                match msg {
                    ToManager::ByUser(_, msg) => Event::Message { from, msg },
                    _ => return None,
                }
            }
            Event::Timer(ManagerTimer::Inner(timer)) => Event::Timer(timer),
            Event::Timer(ManagerTimer::Silent(user)) => {
                out.tally("reported", 1);
                Event::Gone(Gone::Reclaimed(user))
            }
        })
    }
}

impl<R> Role for Manager<R>
where
    R: Role,
    R::P: Protocol<Manager = R, ToManager = R::Msg>,
{
    type P = Watched<R::P>;
    type Call = R::Call;
    type Msg = ToManager<R::Msg>;
    type Timer = ManagerTimer<R::Timer>;

    fn step(&mut self, cfg: &Self::P, event: Event<Self>, out: &mut Out<R>) {
        let Some(event) = self.open(event, out) else { return };
        let mut inner = Outbox::default();
        self.inner.step(&cfg.inner, event, &mut inner);
        out.lift(inner, |msg| msg, ToManager::ByManager, ManagerTimer::Inner);
    }

    fn check(&self, cfg: &Self::P) -> Result<(), Broken> {
        self.inner.check(&cfg.inner)
    }

    fn is_idle(&self) -> bool {
        self.inner.is_idle()
    }
}
