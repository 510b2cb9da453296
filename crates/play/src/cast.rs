//! The roles of a protocol, with its type forgotten: bytes in, bytes out. What is here is compiled
//! once for each protocol, and nothing else is.

use std::collections::HashMap;

use holdall_core::{
    About, Addr, Call, Effect, Event, Gone, ManagerId, NodeId, Options, Outbox, Protocol, Request,
    RequestId, Role, Rung, Topology, Unsupported, UserId,
};
use holdall_protocols::{Unknown, Visitor, variant_of};
use holdall_sim::Contender;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A protocol to be played. Whoever makes one chooses where the protocol comes from: [`Cast::of`]
/// takes any, [`Cast::named`] one that `holdall-protocols` lists.
#[derive(Clone, Debug)]
pub struct Cast {
    name: String,
    about: About,
    options: Options,
    contender: Contender,
    assemble: fn(&Topology, &Options) -> Assembled,
}

type Assembled = Result<Box<dyn Roles>, Unsupported>;

/// There is no such cast.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoCast {
    /// There is no such protocol.
    #[error(transparent)]
    Unknown(#[from] Unknown),
    /// The protocol has no such variant.
    #[error(transparent)]
    Variant(#[from] Unsupported),
    /// The protocol cannot be simulated.
    #[error(transparent)]
    Simulated(#[from] holdall_sim::Error),
    /// The protocol has no such rule.
    #[error("{protocol} has no rule '{rule}' to do without; its rules: {}", rules.join(", "))]
    Rule {
        /// Its name.
        protocol: String,
        /// What was to be taken away.
        rule: String,
        /// What can be.
        rules: Vec<&'static str>,
    },
}

impl Cast {
    /// Any protocol, under its full name, without some of its rules.
    ///
    /// # Errors
    /// If there is no such variant of it, or no such rule.
    pub fn of<P: Protocol>(name: &str, without: &[String]) -> Result<Self, NoCast> {
        let options =
            Options { variant: variant_of::<P>(name).map(Into::into), without: without.to_vec() };
        let contender = Contender::of::<P>(name, options)?;
        Self::beside::<P>(name, without, contender)
    }

    /// The protocol that `holdall-protocols` lists under this name, without some of its rules.
    ///
    /// # Errors
    /// If there is no such protocol, no such variant, or no such rule.
    pub fn named(name: &str, without: &[String]) -> Result<Self, NoCast> {
        holdall_protocols::with(name, Named { name, without })?
    }

    /// Any protocol, under its full name, without some of its rules, to be compared with what the simulator
    /// says of this contender.
    ///
    /// # Errors
    /// If there is no such variant of it, or no such rule.
    pub fn beside<P: Protocol>(
        name: &str,
        without: &[String],
        contender: Contender,
    ) -> Result<Self, NoCast> {
        let variant = variant_of::<P>(name);
        let about = P::about(variant)?;
        let is_rule = |name: &&String| about.rules.iter().any(|rule| rule.name == **name);
        if let Some(rule) = without.iter().find(|name| !is_rule(name)) {
            let rules = about.rules.iter().map(|rule| rule.name).collect();
            return Err(NoCast::Rule { protocol: name.into(), rule: rule.clone(), rules });
        }
        let options = Options { variant: variant.map(Into::into), without: without.to_vec() };
        Ok(Self { name: name.into(), about, options, contender, assemble: assemble::<P> })
    }

    /// What it is called in the report.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it says of itself.
    pub fn about(&self) -> &About {
        &self.about
    }

    pub(crate) fn contender(&self) -> &Contender {
        &self.contender
    }

    /// The protocol in a system, with no role in it yet.
    pub(crate) fn assemble(&self, topology: &Topology) -> Assembled {
        (self.assemble)(topology, &self.options)
    }
}

struct Named<'a> {
    name: &'a str,
    without: &'a [String],
}

impl Visitor for Named<'_> {
    type Out = Result<Cast, NoCast>;

    fn visit<P: Protocol>(self) -> Self::Out {
        // The simulator has its own copy of every listed protocol; another would only take time to compile.
        let contender = Contender::named(self.name)?.without(self.without);
        Cast::beside::<P>(self.name, self.without, contender)
    }
}

fn assemble<P: Protocol>(topology: &Topology, options: &Options) -> Assembled {
    let cfg = P::new(topology, options)?;
    Ok(Box::new(RolesOf { cfg, users: HashMap::new(), managers: HashMap::new() }))
}

/// What happens to a role.
#[derive(Debug)]
pub(crate) enum Happening {
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
    fn step(&mut self, who: Addr, happening: Happening, acts: &mut Vec<Act>) -> Result<(), Wrong>;
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

    fn step(&mut self, who: Addr, happening: Happening, acts: &mut Vec<Act>) -> Result<(), Wrong> {
        match who {
            Addr::Manager(id) => {
                let role = self.managers.get_mut(&id).ok_or(Wrong::Senseless)?;
                step(&self.cfg, role, event(happening)?, acts)
            }
            Addr::User(id) => {
                let role = self.users.get_mut(&id).ok_or(Wrong::Senseless)?;
                let event = match happening {
                    Happening::Call(call) => Event::Call(call),
                    other => event(other)?,
                };
                step(&self.cfg, role, event, acts)
            }
        }
    }
}

/// What happens, if it is no call.
fn event<R: Role>(happening: Happening) -> Result<Event<R>, Wrong> {
    match happening {
        Happening::Call(_) => Err(Wrong::Senseless),
        Happening::Gone(gone) => Ok(Event::Gone(gone)),
        Happening::Message { from, body } => {
            let msg = decode(&body).map_err(|error| Wrong::Undecodable(from, error))?;
            Ok(Event::Message { from, msg })
        }
        Happening::Timer(tag) => decode(&tag).map(Event::Timer).map_err(|_| Wrong::Senseless),
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
