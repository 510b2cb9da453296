//! Allocation in the order asked, with loops broken as they form: a request takes its resources
//! one after another in the order its client names them, holds what it has while it waits, and
//! loops of waiting are found by probes and broken at the expense of the worst placed.
//!
//! Source: Datta, Devismes, Kawala, Larmore, Potop-Butucaru, "Multi-resource Allocation with
//! Unknown Participants", Algorithms 1 to 3, for one or two resources (`datta`); and the
//! generalization to any number that its section V calls difficult (`datta-k`). The algorithm as
//! printed does not work; `docs/errata.md` lists what was repaired, and the specimen
//! `printed-datta` shows it.
//!
//! A request goes from the last resource named to the first, its *home*, and stands aside in the
//! *weak* queue of all but that. At home it joins the *strong* queue. When it heads that, the
//! resource is its own, and it is called into the strong queue of the next one. Once it heads
//! that of the last one, it is granted everything. The victim of a loop stands aside again
//! everywhere and goes to the end of the queue of its home; to be a victim no more it wants the
//! token, which protects all that are at home where it is.
//!
//! When a request has left all its queues its client is told, and may ask again. That is not
//! needed, since requests are told apart by their numbers: the variant `brief` does without.
//!
//! # Invariants
//! - **Q1, the way.** Past its home, a claim is in a strong queue only while it heads that of the
//!   resource before.
//! - **Q2, no victim holds.** Whatever is in use is in use by the head of its strong queue: a
//!   request that was granted is never the victim.
//! - **R1, one token** (see [`crate::ring::token`]).
//!
//! All three are looked at in every state (`Protocol::check_system`). Exclusion follows from Q2.
//!
//! Assumes that every message arrives once, in any order.

mod entry;
mod loops;
mod manager;
mod queues;
#[cfg(test)]
mod tests;
mod user;

use alloc::format;
use alloc::vec::Vec;

use holdall_core::{
    About, Assumes, Broken, ManagerId, Need, NodeId, Options, Property, Protocol, RequestId,
    System, Topology, Unsupported, UserId, rules,
};
use serde::{Deserialize, Serialize};

pub use self::entry::{Claim, Level};
pub use self::loops::{Probe, Victim, Way};
pub use self::manager::Manager;
pub use self::user::User;
use crate::ring::{FromClient, Ring, RingMessage, Spot, ToUser, manager_of, token};

/// What a manager may receive. After each, its name in the paper.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToManager {
    /// A client's word.
    Client(FromClient),
    /// Queue this, on its way to its home (`NewRequest`).
    Ask(Spot),
    /// The resource before is its own: it may queue here (`NewStrong`).
    Promote {
        /// Whose.
        claim: Claim,
        /// Whether the token was at its home.
        shielded: bool,
    },
    /// Looks for a loop (`seekLoop`).
    Probe(Probe),
    /// This one is to give way (`KillLoop`).
    Kill(Claim),
    /// It gives up what it has (`KillACK1`).
    Rollback(Claim),
    /// Its use is over (`Done`).
    Done(RequestId),
    /// Its client is gone.
    Leave(RequestId),
    /// What goes round the ring (`Token`).
    Ring(RingMessage),
}

impl From<FromClient> for ToManager {
    fn from(message: FromClient) -> Self {
        Self::Client(message)
    }
}

rules! {
    /// The rules in force. The first makes a difference only beyond two resources.
    struct Rules {
        home "home": "victims are ranked by their homes, not by the places of the loop",
        aside "aside": "a request queues past its home only when called in",
        early "early": "a departure that overtakes its request is remembered",
        head "head": "a kill spares whoever has come to head the queue",
        late "late": "what comes of a client that was reclaimed is ignored",
        order "order": "the worst placed is the victim; without it, who found the loop",
        probe "probe": "whoever has to wait looks for a loop",
        purge "purge": "whoever is reported gone loses its place",
        relay "relay": "who is gone is removed by who heard it, and from there on",
        rollback "rollback": "a victim gives up what it has",
        token "token": "the token comes to the homes of victims and protects them",
    }
}

/// The configuration, for requests of up to `MOST` resources.
#[derive(Debug)]
pub struct Datta<const MOST: u32> {
    ring: Ring,
    /// Whether clients are not told when their requests have left all queues.
    brief: bool,
    rules: Rules,
}

fn is_brief(variant: Option<&str>) -> Result<bool, Unsupported> {
    match variant {
        None => Ok(false),
        Some("brief") => Ok(true),
        Some(v) => Err(Unsupported::variant("datta", v, "none, or brief")),
    }
}

/// The paper's problem.
pub type Two = Datta<2>;
/// Its generalization.
pub type Many = Datta<{ u32::MAX }>;

impl<const MOST: u32> Datta<MOST> {
    const BOUNDED: bool = MOST < u32::MAX;
}

impl<const MOST: u32> Protocol for Datta<MOST> {
    const FAMILY: &'static str = if Self::BOUNDED { "datta" } else { "datta-k" };
    const NAMES: &'static [&'static str] =
        if Self::BOUNDED { &["datta", "datta:brief"] } else { &["datta-k", "datta-k:brief"] };
    const STARTS_AGAIN: bool = true;
    type ToUser = ToUser;
    type ToManager = ToManager;
    type User = User<MOST>;
    type Manager = Manager<MOST>;

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        let brief = is_brief(variant)?;
        Ok(About {
            name: if brief { format!("{}:brief", Self::FAMILY) } else { Self::FAMILY.into() },
            summary: if Self::BOUNDED {
                "one or two resources in the order asked; loops are found by probes and broken"
            } else {
                "any number of resources in the order asked; loops are found and broken"
            },
            source: "Datta, Devismes, Kawala, Larmore, Potop-Butucaru; repaired",
            assumes: Assumes {
                needs_max: Self::BOUNDED.then_some(MOST),
                units: false,
                order_asked: true,
                suspicions: true,
                ..Assumes::RELIABLE
            },
            promises: Property::sound_and(&[Property::NoStarvation]),
            with_patience: Vec::new(),
            rules: Rules::ALL[usize::from(Self::BOUNDED)..].to_vec(),
        })
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        let brief = is_brief(options.variant.as_deref())?;
        let rules = Rules::new(options);
        Ok(Self { ring: Ring::new(topology), brief, rules })
    }

    fn managers(&self) -> Vec<NodeId> {
        self.ring.nodes()
    }

    fn user(&self, id: UserId) -> Self::User {
        User::new(id, self.brief)
    }

    fn manager(&self, id: ManagerId) -> Self::Manager {
        Manager::new(&self.ring, id)
    }

    fn check_system(&self, system: &impl System<Self>) -> Result<(), Broken> {
        let managers: Vec<&Self::Manager> = system.managers().collect();
        for entry in managers.iter().flat_map(|manager| manager.queues.strong()) {
            let leads = |before: ManagerId| {
                managers[before.index()].queues.head().is_some_and(|h| h.onward == entry.claim)
            };
            Broken::unless(
                entry.spot.previous().is_none_or(leads),
                "Q1: past its home, a claim queues only while it heads the queue before",
            )?;
        }
        for request in system.users().filter_map(|user| user.0.uses()) {
            let has = |need: &Need| {
                let head = managers[manager_of(need.pool).index()].queues.head();
                head.is_some_and(|head| head.request() == request.id)
            };
            Broken::unless(
                request.needs.iter().all(has),
                "Q2: whatever is in use is in use by the head of its queue",
            )?;
        }
        let message = system.to_managers().filter_map(|msg| match msg {
            ToManager::Ring(message) => Some(message),
            _ => None,
        });
        token::one(managers.iter().map(|manager| &manager.token), message)
    }
}
