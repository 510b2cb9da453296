//! Steps of roles, taken once and remembered.

use std::sync::Arc;

use holdall_core::{Addr, Broken, Data, Effect, Event, Outbox, Protocol, Request, RequestId, Role};
use rustc_hash::FxHashMap;

use super::World;
use super::parts::{Interner, Item, ItemOf};

/// What a step of a role leads to, remembered.
pub(crate) struct Outcome {
    pub(crate) role: u32,
    pub(crate) effects: Vec<StepEffect>,
    pub(crate) broken: Option<String>,
}

pub(crate) enum StepEffect {
    Arm(u32),
    Disarm(u32),
    Granted(Request),
    Lost(RequestId),
    Released(RequestId),
    Send(u32),
}

type Memo = FxHashMap<(u32, u32), Arc<Outcome>>;

/// More remembered steps than this are forgotten and started anew.
const MEMO_MAX: usize = 1 << 22;

/// What one thread remembers.
#[derive(Default)]
pub(crate) struct Steps {
    of_users: Memo,
    of_managers: Memo,
}

impl Steps {
    pub(crate) fn of_user<P: Protocol>(
        &mut self,
        world: &World<'_, P>,
        role: u32,
        input: u32,
    ) -> Arc<Outcome> {
        remember(&mut self.of_users, (role, input), || {
            let item = world.parts.items.value(input).clone();
            let event = match item {
                Item::Call { call, .. } => Event::Call(call),
                Item::ToUser { from, msg, .. } => Event::Message { from, msg },
                Item::UserTimer { timer, .. } => Event::Timer(timer),
                _ => unreachable!("what is for a manager goes to a manager"),
            };
            let at = world.parts.items.value(input).to();
            let Addr::User(id) = at else { unreachable!("a user's address") };
            step(world, &world.parts.users, role, event, at, |timer| Item::UserTimer {
                at: id,
                timer,
            })
        })
    }

    pub(crate) fn of_manager<P: Protocol>(
        &mut self,
        world: &World<'_, P>,
        role: u32,
        input: u32,
    ) -> Arc<Outcome> {
        remember(&mut self.of_managers, (role, input), || {
            let item = world.parts.items.value(input).clone();
            let event = match item {
                Item::Gone { gone, .. } => Event::Gone(gone),
                Item::ToManager { from, msg, .. } => Event::Message { from, msg },
                Item::ManagerTimer { timer, .. } => Event::Timer(timer),
                _ => unreachable!("what is for a user goes to a user"),
            };
            let at = world.parts.items.value(input).to();
            let Addr::Manager(id) = at else { unreachable!("a manager's address") };
            let timer = |timer| Item::ManagerTimer { at: id, timer };
            step(world, &world.parts.managers, role, event, at, timer)
        })
    }
}

fn remember(memo: &mut Memo, key: (u32, u32), step: impl FnOnce() -> Outcome) -> Arc<Outcome> {
    if memo.len() >= MEMO_MAX {
        memo.clear();
    }
    Arc::clone(memo.entry(key).or_insert_with(|| Arc::new(step())))
}

/// Takes one step of a role, for the first time.
fn step<P: Protocol, R: Role<P = P>>(
    world: &World<'_, P>,
    roles: &Interner<R>,
    role: u32,
    event: Event<R>,
    from: Addr,
    timer: impl Fn(R::Timer) -> ItemOf<P>,
) -> Outcome {
    let mut role = roles.value(role).clone();
    let mut out = Outbox::default();
    role.step(&world.cfg, event, &mut out);
    let sound =
        role.check(&world.cfg).map_err(|Broken(what)| what.into()).and_then(|()| comes_back(&role));
    let mut broken = sound.err().map(|what| format!("{from:?}: {what}"));
    let items = &world.parts.items;
    let mut effects = Vec::new();
    for effect in out.drain() {
        effects.push(match effect {
            Effect::Arm(t, _) => StepEffect::Arm(items.number(timer(t))),
            Effect::Disarm(t) => StepEffect::Disarm(items.number(timer(t))),
            Effect::Granted(request) => StepEffect::Granted(request),
            Effect::Lost(request) => StepEffect::Lost(request),
            Effect::Misbehaved(who, what) => {
                broken = Some(format!("{from:?} says that {who:?} misbehaved: {what}"));
                continue;
            }
            Effect::Released(request) => StepEffect::Released(request),
            Effect::Tally(..) => continue,
            Effect::ToManager(to, msg) => {
                StepEffect::Send(items.number(Item::ToManager { from, to, msg, copy: false }))
            }
            Effect::ToUser(to, msg) => {
                StepEffect::Send(items.number(Item::ToUser { from, to, msg, copy: false }))
            }
        });
    }
    Outcome { role: roles.number(role), effects, broken }
}

/// A role that crashes and comes back from what it wrote down is the same. All it then does is to be
/// slow, which the search explores anyway.
fn comes_back<R: Data>(role: &R) -> Result<(), String> {
    let written = postcard::to_stdvec(role).map_err(|why| format!("cannot be written: {why}"))?;
    match postcard::from_bytes::<R>(&written) {
        Ok(back) if back == *role => Ok(()),
        Ok(back) => Err(format!("comes back from what it wrote down as {back:?}")),
        Err(why) => Err(format!("cannot be read back: {why}")),
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    struct Forgetful {
        queue: Vec<u32>,
        #[serde(skip)]
        waiting: bool,
    }

    #[test]
    fn what_is_not_written_down_is_missed() {
        let role = |waiting| Forgetful { queue: vec![1, 2], waiting };
        assert_eq!(comes_back(&role(false)), Ok(()));
        let lost = comes_back(&role(true)).expect_err("it forgets");
        assert!(lost.starts_with("comes back from what it wrote down as Forgetful"), "{lost}");
    }
}
