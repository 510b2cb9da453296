//! The roles of a protocol with its types forgotten: all of the fuzzer that is compiled for each
//! protocol.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use holdall_core::{
    Addr, Broken, Call, Data, Effect, Event, Gone, ManagerId, Options, Outbox, Protocol, Request,
    RequestId, Role, Rung, System, Topology, Unsupported, UserId,
};
use serde_json::Value;

use crate::Problem;

/// What the world needs of a protocol.
pub(crate) trait Roles {
    fn managers(&self) -> usize;

    /// A fresh user begins.
    fn add_user(&mut self, id: UserId);

    fn remove_user(&mut self, id: UserId);

    fn is_idle(&self, who: Addr) -> bool;

    /// Lets a role handle an event, and looks at its invariants.
    ///
    /// # Errors
    /// If one is broken, or the role panics.
    fn step(&mut self, who: Addr, input: Input, out: &mut Vec<Output>) -> Result<(), Problem>;

    /// [`Protocol::check_system`], with these messages under way to managers, and these to users, with
    /// their senders.
    fn check_system(
        &self,
        to_managers: &[&Message],
        to_users: &[(Addr, &Message)],
    ) -> Result<(), Broken>;

    /// The message to a user, or to a manager, that was written down like this.
    fn read(&self, to: Addr, value: Value) -> Option<Message>;
}

/// What may happen to a role: an [`Event`] without types.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    Call(Call),
    Gone(Gone),
    Message { from: Addr, msg: Message },
    Timer(Timer),
}

/// What a role wants done: an [`Effect`] without types.
#[derive(Debug)]
pub(crate) enum Output {
    Arm(Timer, Rung),
    Disarm(Timer),
    Granted(Request),
    Lost(RequestId),
    Misbehaved(Addr, &'static str),
    Released(RequestId),
    Send(Addr, Message),
}

/// A message.
#[derive(Clone)]
pub(crate) struct Message(Rc<dyn Content>);

/// A timer: a number that stands for its tag, and what it looks like.
#[derive(Clone)]
pub(crate) struct Timer {
    tag: usize,
    shown: Rc<dyn fmt::Debug>,
}

trait Content: fmt::Debug {
    fn any(&self) -> &dyn Any;

    fn written(&self) -> serde_json::Result<Value>;
}

impl<M: Data> Content for M {
    fn any(&self) -> &dyn Any {
        self
    }

    fn written(&self) -> serde_json::Result<Value> {
        serde_json::to_value(self)
    }
}

impl Message {
    pub(crate) fn written(&self) -> serde_json::Result<Value> {
        self.0.written()
    }

    /// What it says, to a role that may be sent such.
    fn read<M: Data>(&self) -> &M {
        self.0.any().downcast_ref().expect("users and managers are sent what is for them")
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shown.fmt(f)
    }
}

impl PartialEq for Timer {
    fn eq(&self, other: &Self) -> bool {
        self.tag == other.tag
    }
}

/// Makes the roles of a protocol for a system.
pub(crate) type MakeRoles = fn(&Topology, &Options) -> Result<Box<dyn Roles>, Unsupported>;

pub(crate) fn roles_of<P: Protocol>(
    topology: &Topology,
    options: &Options,
) -> Result<Box<dyn Roles>, Unsupported> {
    let cfg = P::new(topology, options)?;
    let managers = 0..cfg.managers().len() as u64;
    Ok(Box::new(RolesOf::<P> {
        managers: managers.map(|id| cfg.manager(ManagerId(id))).collect(),
        users: BTreeMap::new(),
        user_timers: Tags::default(),
        manager_timers: Tags::default(),
        cfg,
    }))
}

struct RolesOf<P: Protocol> {
    cfg: P,
    managers: Vec<P::Manager>,
    users: BTreeMap<UserId, P::User>,
    user_timers: Tags<<P::User as Role>::Timer>,
    manager_timers: Tags<<P::Manager as Role>::Timer>,
}

impl<P: Protocol> Roles for RolesOf<P> {
    fn managers(&self) -> usize {
        self.managers.len()
    }

    fn add_user(&mut self, id: UserId) {
        self.users.insert(id, self.cfg.user(id));
    }

    fn remove_user(&mut self, id: UserId) {
        self.users.remove(&id);
    }

    fn is_idle(&self, who: Addr) -> bool {
        match who {
            Addr::Manager(id) => self.managers[id.index()].is_idle(),
            Addr::User(id) => self.users.get(&id).is_none_or(Role::is_idle),
        }
    }

    fn step(&mut self, who: Addr, input: Input, out: &mut Vec<Output>) -> Result<(), Problem> {
        match who {
            Addr::Manager(id) => {
                let event = match input {
                    Input::Call(_) => unreachable!("managers are not called"),
                    Input::Gone(gone) => Event::Gone(gone),
                    Input::Message { from, msg } => {
                        Event::Message { from, msg: msg.read::<P::ToManager>().clone() }
                    }
                    Input::Timer(timer) => Event::Timer(self.manager_timers.tag(&timer)),
                };
                let role = &mut self.managers[id.index()];
                step(&self.cfg, role, who, event, &mut self.manager_timers, out)
            }
            Addr::User(id) => {
                let event = match input {
                    Input::Call(call) => Event::Call(call),
                    Input::Gone(gone) => Event::Gone(gone),
                    Input::Message { from, msg } => {
                        Event::Message { from, msg: msg.read::<P::ToUser>().clone() }
                    }
                    Input::Timer(timer) => Event::Timer(self.user_timers.tag(&timer)),
                };
                let Some(role) = self.users.get_mut(&id) else { return Ok(()) };
                step(&self.cfg, role, who, event, &mut self.user_timers, out)
            }
        }
    }

    fn check_system(
        &self,
        to_managers: &[&Message],
        to_users: &[(Addr, &Message)],
    ) -> Result<(), Broken> {
        self.cfg.check_system(&SystemView { roles: self, to_managers, to_users })
    }

    fn read(&self, to: Addr, value: Value) -> Option<Message> {
        let read: serde_json::Result<Rc<dyn Content>> = match to {
            Addr::Manager(_) => {
                serde_json::from_value::<P::ToManager>(value).map(|msg| Rc::new(msg) as _)
            }
            Addr::User(_) => {
                serde_json::from_value::<P::ToUser>(value).map(|msg| Rc::new(msg) as _)
            }
        };
        read.ok().map(Message)
    }
}

/// The timers that roles of one kind have armed so far, by number.
struct Tags<T> {
    numbers: HashMap<T, usize>,
    tags: Vec<T>,
}

impl<T> Default for Tags<T> {
    fn default() -> Self {
        Self { numbers: HashMap::new(), tags: Vec::new() }
    }
}

impl<T: Data> Tags<T> {
    fn timer(&mut self, tag: T) -> Timer {
        let next = self.tags.len();
        let number = *self.numbers.entry(tag.clone()).or_insert(next);
        if number == next {
            self.tags.push(tag.clone());
        }
        Timer { tag: number, shown: Rc::new(tag) }
    }

    fn tag(&self, timer: &Timer) -> T {
        self.tags[timer.tag].clone()
    }
}

fn step<R: Role>(
    cfg: &R::P,
    role: &mut R,
    who: Addr,
    event: Event<R>,
    timers: &mut Tags<R::Timer>,
    output: &mut Vec<Output>,
) -> Result<(), Problem> {
    let mut out = Outbox::default();
    let handled = catch_unwind(AssertUnwindSafe(|| {
        role.step(cfg, event, &mut out);
        role.check(cfg)
    }));
    for effect in out.drain() {
        output.push(match effect {
            Effect::Arm(tag, rung) => Output::Arm(timers.timer(tag), rung),
            Effect::Disarm(tag) => Output::Disarm(timers.timer(tag)),
            Effect::Granted(request) => Output::Granted(request),
            Effect::Lost(request) => Output::Lost(request),
            Effect::Misbehaved(party, what) => Output::Misbehaved(party, what),
            Effect::Released(request) => Output::Released(request),
            Effect::Tally(..) => continue,
            Effect::ToManager(to, msg) => Output::Send(Addr::Manager(to), Message(Rc::new(msg))),
            Effect::ToUser(to, msg) => Output::Send(Addr::User(to), Message(Rc::new(msg))),
        });
    }
    match handled {
        Ok(Ok(())) => Ok(()),
        Ok(Err(Broken(statement))) => Err(Problem::Invariant { who, statement }),
        Err(panic) => Err(Problem::Panic { who, what: text_of(&*panic) }),
    }
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("of its own kind").into()
}

/// A system as the protocol may see it.
struct SystemView<'s, P: Protocol> {
    roles: &'s RolesOf<P>,
    to_managers: &'s [&'s Message],
    to_users: &'s [(Addr, &'s Message)],
}

impl<P: Protocol> System<P> for SystemView<'_, P> {
    fn users(&self) -> impl Iterator<Item = &P::User> {
        self.roles.users.values()
    }

    fn managers(&self) -> impl Iterator<Item = &P::Manager> {
        self.roles.managers.iter()
    }

    fn to_managers(&self) -> impl Iterator<Item = &P::ToManager> {
        self.to_managers.iter().map(|msg| msg.read())
    }

    fn to_users(&self) -> impl Iterator<Item = (Addr, &P::ToUser)> {
        self.to_users.iter().map(|(from, msg)| (*from, msg.read()))
    }
}
