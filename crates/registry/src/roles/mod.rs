//! The roles of a protocol, behind numbers: all of the checker that is compiled for each protocol.

mod fingerprint;
mod parts;
mod tables;

use holdall_core::{
    Addr, Broken, Data, Effect, Event, ManagerId, Options, Outbox, Protocol, Request, RequestId,
    Role, System, Topology, Unsupported, UserId,
};
use serde_json::Value;

pub use self::fingerprint::{Fingerprint, StateFingerprint, gap, mix};
pub use self::parts::{Content, Interner, Item, Parts, RoleFacts};
pub use self::tables::{Rows, Table};
use crate::questions::{Kind, Question, Snapshot};
use crate::view::View;

/// In the place of a role that takes part no more.
pub const NOBODY: u32 = u32::MAX;

/// What the world needs of a protocol. Roles and what messages and timers say are known to the
/// world by number.
pub trait Roles: Send + Sync {
    /// How many managers there are.
    fn managers(&self) -> usize;

    /// [`Protocol::STARTS_AGAIN`].
    fn starts_again(&self) -> bool;

    /// A fresh user.
    fn user(&self, parts: &Parts, id: UserId) -> u32;

    /// A fresh manager.
    fn manager(&self, parts: &Parts, id: ManagerId) -> u32;

    /// Takes one step of the role that the input is for.
    fn step(&self, parts: &Parts, role: u32, input: &Item) -> Outcome;

    /// [`Role::is_stale`], of the role that the message is for.
    fn is_stale(&self, role: u32, message: &Item) -> bool;

    /// [`Role::is_prompt`], of the role that the message is for.
    fn is_prompt(&self, role: u32, message: &Item, alone: bool) -> bool;

    /// [`Protocol::check_system`].
    fn check_system(&self, system: &Numbers<'_>) -> Result<(), Broken>;

    /// The questions that are asked of it.
    fn questions(&self) -> Vec<(&'static str, Kind)>;

    /// Those that are answered by the way a system is: what should always hold does not, or what may
    /// hold sometime does. By their numbers.
    fn answered(&self, system: &Numbers<'_>, questions: &mut Vec<usize>);

    /// What a [`View`] shows of a manager; nothing if there is none.
    fn view_manager(&self, role: u32) -> Value;

    /// The same of a user.
    fn view_user(&self, role: u32) -> Value;

    /// A manager for people.
    fn show_manager(&self, role: u32) -> String;

    /// A user for people.
    fn show_user(&self, role: u32) -> String;

    /// What a message or a timer says, for people; of anything else, nothing.
    fn show_content(&self, item: &Item) -> String;

    /// The same as it is written down.
    fn content(&self, item: &Item) -> Option<Value>;

    /// What the numbers stand for, to be written down.
    fn tables(&self) -> &dyn Rows;
}

/// A whole system, in numbers: the roles that take part, and what is under way.
#[derive(Debug)]
pub struct Numbers<'s> {
    /// What the numbers stand for.
    pub parts: &'s Parts,
    /// The users, or [`NOBODY`].
    pub users: &'s [u32],
    /// The managers, or [`NOBODY`].
    pub managers: &'s [u32],
    /// What is under way.
    pub items: &'s [u32],
}

/// What a step of a role leads to.
#[derive(Debug)]
pub struct Outcome {
    /// The role after it.
    pub role: u32,
    /// What it wants done.
    pub effects: Vec<StepEffect>,
    /// The invariant that it broke.
    pub broken: Option<String>,
}

/// One thing that a step wants done; see [`Effect`].
#[derive(Debug)]
#[allow(missing_docs, reason = "they have the names of the effects that they are")]
pub enum StepEffect {
    Arm(u32),
    Disarm(u32),
    Granted(Request),
    Lost(RequestId),
    Released(RequestId),
    Send(u32),
}

/// The roles of a protocol for a system.
pub(crate) fn roles_of<P: Protocol>(
    topology: &Topology,
    options: &Options,
    questions: &'static [Question<P>],
    view: Option<View<P>>,
) -> Result<Box<dyn Roles>, Unsupported> {
    let cfg = P::new(topology, options)?;
    Ok(Box::new(RolesOf::<P> {
        cfg,
        questions,
        view,
        managers: Interner::default(),
        users: Interner::default(),
        to_managers: Interner::default(),
        to_users: Interner::default(),
        manager_timers: Interner::default(),
        user_timers: Interner::default(),
    }))
}

struct RolesOf<P: Protocol> {
    cfg: P,
    questions: &'static [Question<P>],
    view: Option<View<P>>,
    managers: Interner<P::Manager>,
    users: Interner<P::User>,
    to_managers: Interner<P::ToManager>,
    to_users: Interner<P::ToUser>,
    manager_timers: Interner<<P::Manager as Role>::Timer>,
    user_timers: Interner<<P::User as Role>::Timer>,
}

impl<P: Protocol> Roles for RolesOf<P> {
    fn managers(&self) -> usize {
        self.cfg.managers().len()
    }

    fn starts_again(&self) -> bool {
        P::STARTS_AGAIN
    }

    fn user(&self, parts: &Parts, id: UserId) -> u32 {
        number_role(&self.users, &parts.users, self.cfg.user(id))
    }

    fn manager(&self, parts: &Parts, id: ManagerId) -> u32 {
        number_role(&self.managers, &parts.managers, self.cfg.manager(id))
    }

    fn step(&self, parts: &Parts, role: u32, input: &Item) -> Outcome {
        match input {
            Item::Call { call, .. } => {
                self.step_user(parts, role, input, Event::Call(call.clone()))
            }
            Item::ToUser { from, msg, .. } => {
                let msg = self.to_users.value(msg.0).clone();
                self.step_user(parts, role, input, Event::Message { from: *from, msg })
            }
            Item::UserTimer { timer, .. } => {
                let timer = self.user_timers.value(timer.0).clone();
                self.step_user(parts, role, input, Event::Timer(timer))
            }
            Item::Gone { gone, .. } => self.step_manager(parts, role, input, Event::Gone(*gone)),
            Item::ToManager { from, msg, .. } => {
                let msg = self.to_managers.value(msg.0).clone();
                self.step_manager(parts, role, input, Event::Message { from: *from, msg })
            }
            Item::ManagerTimer { timer, .. } => {
                let timer = self.manager_timers.value(timer.0).clone();
                self.step_manager(parts, role, input, Event::Timer(timer))
            }
            Item::LossToken | Item::Lapse { .. } => unreachable!("these are for no role"),
        }
    }

    fn is_stale(&self, role: u32, message: &Item) -> bool {
        match message {
            Item::ToManager { from, msg, .. } => {
                let role = self.managers.value(role);
                role.is_stale(&self.cfg, *from, self.to_managers.value(msg.0))
            }
            Item::ToUser { from, msg, .. } => {
                let role = self.users.value(role);
                role.is_stale(&self.cfg, *from, self.to_users.value(msg.0))
            }
            _ => false,
        }
    }

    fn is_prompt(&self, role: u32, message: &Item, alone: bool) -> bool {
        match message {
            Item::ToManager { from, msg, .. } => {
                let role = self.managers.value(role);
                role.is_prompt(&self.cfg, *from, self.to_managers.value(msg.0), alone)
            }
            Item::ToUser { from, msg, .. } => {
                let role = self.users.value(role);
                role.is_prompt(&self.cfg, *from, self.to_users.value(msg.0), alone)
            }
            _ => false,
        }
    }

    fn check_system(&self, numbers: &Numbers<'_>) -> Result<(), Broken> {
        self.cfg.check_system(&SystemView { roles: self, numbers })
    }

    fn questions(&self) -> Vec<(&'static str, Kind)> {
        self.questions.iter().map(|question| (question.name, question.kind)).collect()
    }

    fn answered(&self, numbers: &Numbers<'_>, questions: &mut Vec<usize>) {
        let system = SystemView { roles: self, numbers };
        let snapshot = Snapshot {
            users: system.users().collect(),
            managers: system.managers().collect(),
            to_users: system.to_users().map(|(_, msg)| msg).collect(),
            to_managers: system.to_managers().collect(),
        };
        let is_answered = |(_, question): &(usize, &Question<P>)| {
            (question.holds)(&self.cfg, &snapshot) == (question.kind == Kind::Sometime)
        };
        questions.extend(self.questions.iter().enumerate().filter(is_answered).map(|(at, _)| at));
    }

    fn view_manager(&self, role: u32) -> Value {
        self.view.map_or(Value::Null, |view| (view.manager)(self.managers.value(role)))
    }

    fn view_user(&self, role: u32) -> Value {
        self.view.map_or(Value::Null, |view| (view.user)(self.users.value(role)))
    }

    fn show_manager(&self, role: u32) -> String {
        format!("{:?}", self.managers.value(role))
    }

    fn show_user(&self, role: u32) -> String {
        format!("{:?}", self.users.value(role))
    }

    fn show_content(&self, item: &Item) -> String {
        match item {
            Item::ToManager { msg, .. } => format!("{:?}", self.to_managers.value(msg.0)),
            Item::ToUser { msg, .. } => format!("{:?}", self.to_users.value(msg.0)),
            Item::ManagerTimer { timer, .. } => format!("{:?}", self.manager_timers.value(timer.0)),
            Item::UserTimer { timer, .. } => format!("{:?}", self.user_timers.value(timer.0)),
            Item::Call { .. } | Item::Gone { .. } | Item::LossToken | Item::Lapse { .. } => {
                String::new()
            }
        }
    }

    fn content(&self, item: &Item) -> Option<Value> {
        Some(match item {
            Item::ToManager { msg, .. } => written(self.to_managers.value(msg.0)),
            Item::ToUser { msg, .. } => written(self.to_users.value(msg.0)),
            Item::ManagerTimer { timer, .. } => written(self.manager_timers.value(timer.0)),
            Item::UserTimer { timer, .. } => written(self.user_timers.value(timer.0)),
            Item::Gone { gone, .. } => written(gone),
            Item::Call { .. } | Item::LossToken | Item::Lapse { .. } => return None,
        })
    }

    fn tables(&self) -> &dyn Rows {
        self
    }
}

/// Where a map has keys that JSON does not know, what people are shown has to do.
fn written<T: Data>(value: &T) -> Value {
    serde_json::to_value(value).unwrap_or_else(|_| format!("{value:?}").into())
}

impl<P: Protocol> RolesOf<P> {
    fn step_user(&self, parts: &Parts, role: u32, input: &Item, event: Event<P::User>) -> Outcome {
        let Addr::User(at) = input.to() else { unreachable!("what is for a user goes to a user") };
        let mut role = self.users.value(role).clone();
        let mut out = Outbox::default();
        role.step(&self.cfg, event, &mut out);
        let mut outcome = sound(&role, &self.cfg, Addr::User(at));
        let timer = |timer: <P::User as Role>::Timer| {
            number_item(parts, &self.user_timers, timer, |timer| Item::UserTimer { at, timer })
        };
        for effect in out.drain() {
            self.enter(parts, Addr::User(at), effect, &timer, &mut outcome);
        }
        outcome.role = number_role(&self.users, &parts.users, role);
        outcome
    }

    fn step_manager(
        &self,
        parts: &Parts,
        role: u32,
        input: &Item,
        event: Event<P::Manager>,
    ) -> Outcome {
        let Addr::Manager(at) = input.to() else {
            unreachable!("what is for a manager goes to a manager")
        };
        let mut role = self.managers.value(role).clone();
        let mut out = Outbox::default();
        role.step(&self.cfg, event, &mut out);
        let mut outcome = sound(&role, &self.cfg, Addr::Manager(at));
        let timer = |timer: <P::Manager as Role>::Timer| {
            let item = |timer| Item::ManagerTimer { at, timer };
            number_item(parts, &self.manager_timers, timer, item)
        };
        for effect in out.drain() {
            self.enter(parts, Addr::Manager(at), effect, &timer, &mut outcome);
        }
        outcome.role = number_role(&self.managers, &parts.managers, role);
        outcome
    }

    /// Enters an effect of a step into its outcome.
    fn enter<T>(
        &self,
        parts: &Parts,
        from: Addr,
        effect: Effect<P, T>,
        timer: &dyn Fn(T) -> u32,
        outcome: &mut Outcome,
    ) {
        outcome.effects.push(match effect {
            Effect::Arm(t, _) => StepEffect::Arm(timer(t)),
            Effect::Disarm(t) => StepEffect::Disarm(timer(t)),
            Effect::Granted(request) => StepEffect::Granted(request),
            Effect::Lost(request) => StepEffect::Lost(request),
            Effect::Misbehaved(who, what) => {
                outcome.broken = Some(format!("{from:?} says that {who:?} misbehaved: {what}"));
                return;
            }
            Effect::Released(request) => StepEffect::Released(request),
            Effect::Tally(..) => return,
            Effect::ToManager(to, msg) => {
                let item = |msg| Item::ToManager { from, to, msg, copy: false };
                StepEffect::Send(number_item(parts, &self.to_managers, msg, item))
            }
            Effect::ToUser(to, msg) => {
                let item = |msg| Item::ToUser { from, to, msg, copy: false };
                StepEffect::Send(number_item(parts, &self.to_users, msg, item))
            }
        });
    }
}

/// The number of a role; if it is new, the world is told what there is to know of it.
fn number_role<R: Role>(table: &Interner<R>, facts: &boxcar::Vec<RoleFacts>, role: R) -> u32 {
    let fingerprint = Fingerprint::of(&role);
    let (idle, stage) = (role.is_idle(), role.stage());
    let known = RoleFacts { fingerprint: fingerprint.clone(), idle, stage };
    table.number_as(role, fingerprint, |id| {
        assert_eq!(
            facts.push(known),
            id as usize,
            "a role and what is known of it have one number"
        );
    })
}

/// The number of a message or a timer. What it says is part of its fingerprint.
fn number_item<T: Data>(
    parts: &Parts,
    contents: &Interner<T>,
    content: T,
    item: impl FnOnce(Content) -> Item,
) -> u32 {
    let number = Content(contents.number(content));
    parts.number_saying(item(number), contents.value(number.0))
}

/// The outcome of a step so far: whether the role keeps its invariants, and comes back from what it
/// wrote down.
fn sound<R: Role>(role: &R, cfg: &R::P, at: Addr) -> Outcome {
    let sound =
        role.check(cfg).map_err(|broken| broken.to_string()).and_then(|()| comes_back(role));
    let broken = sound.err().map(|what| format!("{at:?}: {what}"));
    Outcome { role: 0, effects: Vec::new(), broken }
}

/// A role that crashes and comes back from what it wrote down is the same. All it then does is to be
/// slow, which the search explores anyway.
///
/// # Errors
/// Says what is lost.
pub fn comes_back<R: Data>(role: &R) -> Result<(), String> {
    let written = postcard::to_stdvec(role).map_err(|why| format!("cannot be written: {why}"))?;
    match postcard::from_bytes::<R>(&written) {
        Ok(back) if back == *role => Ok(()),
        Ok(back) => Err(format!("comes back from what it wrote down as {back:?}")),
        Err(why) => Err(format!("cannot be read back: {why}")),
    }
}

/// A system as the protocol may see it.
struct SystemView<'s, P: Protocol> {
    roles: &'s RolesOf<P>,
    numbers: &'s Numbers<'s>,
}

impl<P: Protocol> System<P> for SystemView<'_, P> {
    fn users(&self) -> impl Iterator<Item = &P::User> {
        let present = self.numbers.users.iter().filter(|id| **id != NOBODY);
        present.map(|id| self.roles.users.value(*id))
    }

    fn managers(&self) -> impl Iterator<Item = &P::Manager> {
        let present = self.numbers.managers.iter().filter(|id| **id != NOBODY);
        present.map(|id| self.roles.managers.value(*id))
    }

    fn to_managers(&self) -> impl Iterator<Item = &P::ToManager> {
        let items = self.numbers.items.iter().map(|id| self.numbers.parts.items.value(*id));
        items.filter_map(|item| match item {
            Item::ToManager { msg, .. } => Some(self.roles.to_managers.value(msg.0)),
            _ => None,
        })
    }

    fn to_users(&self) -> impl Iterator<Item = (Addr, &P::ToUser)> {
        let items = self.numbers.items.iter().map(|id| self.numbers.parts.items.value(*id));
        items.filter_map(|item| match item {
            Item::ToUser { from, msg, .. } => Some((*from, self.roles.to_users.value(msg.0))),
            _ => None,
        })
    }
}
