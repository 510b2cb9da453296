//! The roles of one process, behind a trait that names no type of their protocol: bytes in, bytes out. What
//! is here is compiled once for each protocol, and nothing else is.

use std::collections::HashMap;

use holdall_core::{
    Addr, Call, Effect, Event, Gone, ManagerId, NodeId, Options, Outbox, Protocol, Request,
    RequestId, Role, Rung, Topology, Unsupported, UserId,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A protocol in a system, or why it cannot serve such a one.
pub(crate) type Assembled = Result<Box<dyn Roles>, Unsupported>;

/// A protocol in a system, with no role in it yet.
pub(crate) fn assemble<P: Protocol>(topology: &Topology, options: &Options) -> Assembled {
    let cfg = P::new(topology, options)?;
    Ok(Box::new(RolesOf { cfg, users: HashMap::new(), managers: HashMap::new() }))
}

/// What happens to a role.
#[derive(Debug)]
pub(crate) enum RoleEvent {
    Call(Call),
    Gone(Gone),
    Message { from: Addr, body: Vec<u8> },
    Timer(Vec<u8>),
}

/// What a role wants done.
#[derive(Debug)]
pub(crate) enum Act {
    Arm(Vec<u8>, Rung),
    Disarm(Vec<u8>),
    Granted(Request),
    Lost(RequestId),
    Released(RequestId),
    Send(Addr, Vec<u8>),
}

/// How a role went wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Wrong {
    #[error("an invariant is broken: {0}")]
    Broken(String),
    #[error("says that {0:?} misbehaved: {1}")]
    Misbehaved(Addr, &'static str),
    #[error("cannot read a message of {0:?}: {1}")]
    Undecodable(Addr, postcard::Error),
    #[error("cannot write what it sends: {0}")]
    Unencodable(postcard::Error),
    #[error("is told what no such role can be told")]
    Senseless,
}

/// The roles of one process, all of one protocol.
pub(crate) trait Roles {
    /// The managers there are in the whole system, with their nodes.
    fn managers(&self) -> Vec<NodeId>;

    /// Lets a fresh role take part.
    fn add(&mut self, who: Addr);

    /// Takes a user out.
    fn remove(&mut self, user: UserId);

    /// Whether there is such a role here.
    fn has(&self, who: Addr) -> bool;

    /// Whether no request is left in a user, or there is no such user.
    fn is_idle(&self, user: UserId) -> bool;

    /// Lets a role that is here handle something; what follows is added to `acts`.
    fn step(&mut self, who: Addr, input: RoleEvent, acts: &mut Vec<Act>) -> Result<(), Wrong>;
}

struct RolesOf<P: Protocol> {
    cfg: P,
    users: HashMap<UserId, P::User>,
    managers: HashMap<ManagerId, P::Manager>,
}

impl<P: Protocol> Roles for RolesOf<P> {
    fn managers(&self) -> Vec<NodeId> {
        self.cfg.managers()
    }

    fn add(&mut self, who: Addr) {
        match who {
            Addr::Manager(id) => drop(self.managers.insert(id, self.cfg.manager(id))),
            Addr::User(id) => drop(self.users.insert(id, self.cfg.user(id))),
        }
    }

    fn remove(&mut self, user: UserId) {
        self.users.remove(&user);
    }

    fn has(&self, who: Addr) -> bool {
        match who {
            Addr::Manager(id) => self.managers.contains_key(&id),
            Addr::User(id) => self.users.contains_key(&id),
        }
    }

    fn is_idle(&self, user: UserId) -> bool {
        self.users.get(&user).is_none_or(Role::is_idle)
    }

    fn step(&mut self, who: Addr, input: RoleEvent, acts: &mut Vec<Act>) -> Result<(), Wrong> {
        match who {
            Addr::Manager(id) => {
                let role = self.managers.get_mut(&id).ok_or(Wrong::Senseless)?;
                step(&self.cfg, role, event(input)?, acts)
            }
            Addr::User(id) => {
                let role = self.users.get_mut(&id).ok_or(Wrong::Senseless)?;
                let event = match input {
                    RoleEvent::Call(call) => Event::Call(call),
                    other => event(other)?,
                };
                step(&self.cfg, role, event, acts)
            }
        }
    }
}

/// What happens, if it is no call.
fn event<R: Role>(input: RoleEvent) -> Result<Event<R>, Wrong> {
    match input {
        RoleEvent::Call(_) => Err(Wrong::Senseless),
        RoleEvent::Gone(gone) => Ok(Event::Gone(gone)),
        RoleEvent::Message { from, body } => {
            let msg = decode(&body).map_err(|error| Wrong::Undecodable(from, error))?;
            Ok(Event::Message { from, msg })
        }
        RoleEvent::Timer(tag) => decode(&tag).map(Event::Timer).map_err(|_| Wrong::Senseless),
    }
}

fn step<P: Protocol, R: Role<P = P>>(
    cfg: &P,
    role: &mut R,
    event: Event<R>,
    acts: &mut Vec<Act>,
) -> Result<(), Wrong> {
    let mut out = Outbox::default();
    role.step(cfg, event, &mut out);
    role.check(cfg).map_err(|broken| Wrong::Broken(broken.to_string()))?;
    for effect in out.drain() {
        acts.push(match effect {
            Effect::Arm(timer, rung) => Act::Arm(encode(&timer)?, rung),
            Effect::Disarm(timer) => Act::Disarm(encode(&timer)?),
            Effect::Granted(request) => Act::Granted(request),
            Effect::Lost(request) => Act::Lost(request),
            Effect::Misbehaved(who, what) => return Err(Wrong::Misbehaved(who, what)),
            Effect::Released(request) => Act::Released(request),
            Effect::Tally(..) => continue,
            Effect::ToManager(to, msg) => Act::Send(Addr::Manager(to), encode(&msg)?),
            Effect::ToUser(to, msg) => Act::Send(Addr::User(to), encode(&msg)?),
        });
    }
    Ok(())
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>, Wrong> {
    postcard::to_stdvec(value).map_err(Wrong::Unencodable)
}

/// A value that is all of the bytes.
fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, postcard::Error> {
    match postcard::take_from_bytes(bytes)? {
        (value, []) => Ok(value),
        _ => Err(postcard::Error::DeserializeBadEncoding),
    }
}
