//! The traits: a role is one side of a protocol, a protocol is two roles and their configuration.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::fmt::Debug;
use core::hash::Hash;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::about::{About, Options, Topology, Unsupported};
use crate::ids::{Addr, ManagerId, NodeId, Party, PoolId, UserId};
use crate::length::Length;
use crate::needs::{Request, Unit};
use crate::outbox::Outbox;

/// What states and messages are made of: values that can be compared, hashed, shown and sent.
pub trait Data:
    Clone + Debug + Eq + Hash + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

impl<T> Data for T where
    T: Clone + Debug + Eq + Hash + Serialize + DeserializeOwned + Send + Sync + 'static
{
}

/// One side of a protocol. Its value is its whole state.
pub trait Role: Data {
    /// The protocol this is a side of.
    type P: Protocol;
    /// What the application may tell it: [`Call`] for users; [`Resize`] for managers whose pools
    /// may change, and [`Never`] for others.
    type Call: Data;
    /// What it may receive.
    type Msg: Data;
    /// The timers it may arm; each tag is armed once or not at all.
    type Timer: Data;

    /// Takes one event and pushes what follows from it to `out`.
    ///
    /// Never panics, whatever the event: a message that no honest peer would send is reported
    /// with [`Outbox::misbehaved`] and otherwise ignored.
    fn step(&mut self, cfg: &Self::P, event: Event<Self>, out: &mut Outbox<Self::P, Self::Timer>);

    /// The local invariants. Every world calls this after every step, so it must be cheap.
    ///
    /// # Errors
    /// Names the invariant that is broken.
    fn check(&self, cfg: &Self::P) -> Result<(), Broken>;

    /// Whether this message would change nothing, now and at any later time. A protocol may say so
    /// to spare the checker the orders in which such messages arrive; the checker looks that the
    /// message changes nothing now, and trusts that it will not later.
    fn is_stale(&self, cfg: &Self::P, from: Addr, msg: &Self::Msg) -> bool {
        let _ = (cfg, from, msg);
        false
    }

    /// Whether this message may as well be received at once: no client is told anything by it, and
    /// whatever else happens to this role before it arrives comes to the same, for everybody, as if it
    /// happened after. `alone`: nothing else is under way to this role from the same sender.
    ///
    /// A protocol may say so of answers that a role gathers, to spare the checker the orders in which they
    /// arrive (`docs/checking.md`). The checker looks that no client is told anything, and trusts the rest.
    fn is_prompt(&self, cfg: &Self::P, from: Addr, msg: &Self::Msg, alone: bool) -> bool {
        let _ = (cfg, from, msg, alone);
        false
    }

    /// Reads some of what its next step will read elsewhere in memory, and returns something made of it.
    /// Nothing depends on that: a world with very many roles calls it of those whose turn comes next, so
    /// that the processor waits for the memory of all of them at once.
    fn touch(&self) -> u64 {
        0
    }

    /// Where the request in it stands, in a word of the protocol's own; empty if it has none. For
    /// people only: it tells in which stage of a request a fault does which harm.
    fn stage(&self) -> &'static str {
        ""
    }

    /// Whether no request is left in it. Clocks, tokens and forks may stay.
    fn is_idle(&self) -> bool;
}

/// What may happen to a role.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Event<R: Role> {
    /// The application asks for something.
    Call(R::Call),
    /// The detector tells of somebody who will not be heard of again, or perhaps will not. Only managers
    /// are told; what a report means is part of the [contract](crate::contract).
    Gone(Gone),
    /// A message arrives.
    Message {
        /// Its sender, vouched for by the world.
        from: Addr,
        /// Its content.
        msg: R::Msg,
    },
    /// A timer that this role armed rings.
    Timer(R::Timer),
}

/// What cannot be: the calls of a role that takes none, the timers of a role that arms none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Never {}

/// What a client may tell its user role.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Call {
    /// Ask for something. Only while no request of this user is under way: at the start, or
    /// after [`Effect::Released`](crate::Effect::Released). Who knows how long the use will probably
    /// take says so, and a protocol may use it.
    Ask(Request, Option<Length>),
    /// The use of what was granted has ended.
    Done,
    /// The client departs, or its lease has run out, at whatever stage: waiting requests are
    /// withdrawn, grants released. The world keeps the role until it is idle, and calls it no more.
    Leave,
}

/// What a manager may be told of one of its pools: it appears, grows, shrinks, or (with no units)
/// disappears. Units in use stay in use; a pool shrinks as they come back.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Resize {
    /// The pool.
    pub pool: PoolId,
    /// What it has from now on.
    pub capacity: Capacity,
}

/// The units of a pool. A pool that has once been counted, or listed, stays so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Capacity {
    /// So many, of which nobody tells one from another; none of them, also of a listed pool.
    Counted(u32),
    /// These, known by their numbers.
    Listed {
        /// All of them.
        units: BTreeSet<Unit>,
        /// Those that are not given to anybody for now: whoever needs them waits.
        away: BTreeSet<Unit>,
    },
}

impl From<u32> for Capacity {
    fn from(units: u32) -> Self {
        Self::Counted(units)
    }
}

/// What the detector knows of somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Gone {
    /// It has certainly stopped, and every message it sent to this role has arrived, or never will.
    Departed(Party),
    /// It uses nothing any more, whether it lives or not, and will ask for nothing; messages of it
    /// may still arrive. What it held may be given to others.
    Reclaimed(UserId),
    /// It may have stopped, or be slow. What it holds it may be using.
    Suspected(UserId),
}

impl Gone {
    /// Of whom.
    pub const fn who(self) -> Party {
        match self {
            Self::Departed(party) => party,
            Self::Reclaimed(user) | Self::Suspected(user) => Party::User(user),
        }
    }
}

/// A protocol: two kinds of roles. The value is the configuration they share, which never
/// changes and is no part of any role's state.
pub trait Protocol: Debug + Send + Sync + Sized + 'static {
    /// The name up to the colon, if there is one.
    const FAMILY: &'static str;
    /// The names to list: the family alone, or with each variant worth trying.
    const NAMES: &'static [&'static str];
    /// Whether its stamps may grow without end even where nobody asks for ever: requests may start
    /// again and again. The checker then looks at every scope up to a shift of stamps.
    const STARTS_AGAIN: bool = false;
    /// Whether clocks run apart without bound where users ask for ever for different pools. The
    /// checker's suites leave such scopes out, since no search of them ends.
    const DRIFTS: bool = false;
    /// How many stages a request goes through, roughly, each with messages of its own. The more
    /// there are, the faster states grow with users; the checker's suites make allowance for it.
    const STAGES: u32 = 1;

    /// What users receive.
    type ToUser: Data;
    /// What managers receive.
    type ToManager: Data;
    /// The role that acts for a client.
    type User: Role<P = Self, Call = Call, Msg = Self::ToUser>;
    /// The role that guards pools.
    type Manager: Role<P = Self, Msg = Self::ToManager>;

    /// What the protocol assumes and promises, for a variant (the name after the colon).
    ///
    /// # Errors
    /// If there is no such variant.
    fn about(variant: Option<&str>) -> Result<About, Unsupported>;

    /// The configuration for a system.
    ///
    /// # Errors
    /// If there is no such variant, or the protocol cannot serve such a system.
    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported>;

    /// The managers there are, numbered from 0 without gaps, each with the node it lives on.
    fn managers(&self) -> Vec<NodeId>;

    /// A fresh user.
    fn user(&self, id: UserId) -> Self::User;

    /// A fresh manager.
    fn manager(&self, id: ManagerId) -> Self::Manager;

    /// The invariants that no role can see alone. Worlds that have all of a system before their eyes,
    /// the checker and the fuzzer, call this in every state.
    ///
    /// # Errors
    /// Names the invariant that is broken.
    fn check_system(&self, system: &impl System<Self>) -> Result<(), Broken> {
        let _ = system;
        Ok(())
    }
}

/// A whole system at one moment.
pub trait System<P: Protocol> {
    /// The users that take part.
    fn users(&self) -> impl Iterator<Item = &P::User>;

    /// The managers, in the order of their ids.
    fn managers(&self) -> impl Iterator<Item = &P::Manager>;

    /// What is under way to managers.
    fn to_managers(&self) -> impl Iterator<Item = &P::ToManager>;

    /// What is under way to users, each with its sender, as far as that is known.
    fn to_users(&self) -> impl Iterator<Item = (Addr, &P::ToUser)> {
        core::iter::empty()
    }
}

/// An invariant does not hold: its statement. Every role has invariants of its own, and all anybody can do
/// about a broken one is to tell people, so there is no list of them; the world that finds it says whose
/// it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Broken(pub &'static str);

impl Broken {
    /// `Ok` if the invariant holds, else an error with its statement.
    ///
    /// # Errors
    /// If `holds` is false.
    pub const fn unless(holds: bool, statement: &'static str) -> Result<(), Self> {
        if holds { Ok(()) } else { Err(Self(statement)) }
    }
}
