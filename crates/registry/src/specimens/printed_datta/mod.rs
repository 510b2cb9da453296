//! `printed-datta`: Algorithms 1 to 3 of Datta, Devismes, Kawala, Larmore, Potop-Butucaru,
//! "Multi-resource Allocation with Unknown Participants", line by line, with one repair for each
//! known defect (`docs/errata.md` numbers them). The repairs are the least that each defect takes
//! within the printed text; the protocol `datta` does away with most of that text instead.
//!
//! One message is taken in each pass through the printed loop, which is one of the schedules that
//! the loop allows. What the text leaves undefined (the head of an empty queue, a message to
//! nobody) is reported as a broken invariant, with its line.

mod loops;
mod manager;
mod user;

use holdall_core::{
    About, Assumes, Broken, ManagerId, NodeId, Options, Property, Protocol, RequestId, System,
    Topology, Unsupported, UserId, rules,
};
use holdall_protocols::datta::Claim;
use serde::{Deserialize, Serialize};

pub use self::loops::Seek;
pub use self::manager::Manager;
pub use self::user::User;

/// What a client receives.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToUser {
    /// `resAllowed`.
    Allowed,
    /// `endACK`.
    End,
}

/// What a resource receives. The claims are the repairs' part of the messages.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToManager {
    /// `NewRequest`: for whom, `RequestNo`, `NextResId`.
    NewRequest(RequestId, u8, Option<ManagerId>),
    /// `Done`.
    Done,
    /// `Token`.
    Token,
    /// `NewStrong`.
    NewStrong(Claim),
    /// `newStrongACK`.
    NewStrongAck(Claim),
    /// `seekLoop`.
    SeekLoop(Seek),
    /// `NoLoop`.
    NoLoop(Claim),
    /// `Res1Ready`, or `StrongReady`.
    Ready(Claim),
    /// `RemoteKillLoop`.
    RemoteKill(Claim),
    /// `KillLoop`.
    Kill(Claim),
    /// `KillACK1`, or `KillLoopACK1`; whether there was anything to kill.
    KillAck1(Claim, bool),
    /// `KillACK2`, or `KillLoopACK2`.
    KillAck2,
}

rules! {
    /// The rules in force.
    pub(super) struct Repairs {
        d1 "d1": "messages are received under the names they are sent by",
        d2 "d2": "a weak request's strong resource is looked up before the pop",
        d3 "d3": "what leaves Qtoken is the request that ended, if it is there",
        d4 "d4": "only the holder sends the token",
        d5 "d5": "a holder whose Qtoken is empty sends the token on",
        d6 "d6": "the minimum of a search travels with it, and in nothing else",
        d7 "d7": "a search that met only holders of the token breaks its own claim",
        d8 "d8": "a search goes on only where the request it follows is in Qstrong",
        d9 "d9": "whoever finds a loop and is not its victim, or is spared, reports ready",
        d10 "d10": "acknowledgements count for the request they are about",
        d11 "d11": "StrongReady is kept for each request",
        d12 "d12": "a request that was killed is no longer ready",
        d13 "d13": "a search that comes twice to a place it did not start from ends",
        d14 "d14": "kills name the request, and spare all others",
        d15 "d15": "KillLoop spares the head of Qstrong",
        d17 "d17": "there is no Lock",
        d18 "d18": "KillLoop sees to the new head if it removed the old one",
        d19 "d19": "requests and attempts of one client are told apart",
    }
}

/// The configuration.
#[derive(Debug)]
pub struct PrintedDatta {
    nodes: Vec<NodeId>,
    repairs: Repairs,
}

impl PrintedDatta {
    /// The function `Next` of the ring.
    fn next(&self, id: ManagerId) -> ManagerId {
        ManagerId((id.0 + 1) % self.nodes.len() as u64)
    }

    /// Whether two claims are the same as far as the text can tell.
    fn same(&self, one: Claim, other: Claim) -> bool {
        if self.repairs.d19 { one == other } else { one.request.user == other.request.user }
    }
}

impl Protocol for PrintedDatta {
    const FAMILY: &'static str = "printed-datta";
    const NAMES: &'static [&'static str] = &["printed-datta"];
    const STARTS_AGAIN: bool = true;
    type ToUser = ToUser;
    type ToManager = ToManager;
    type User = User;
    type Manager = Manager;

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        if let Some(variant) = variant {
            return Err(Unsupported::NoVariants { family: Self::FAMILY, variant: variant.into() });
        }
        let mut promises = Property::sound_and(&[Property::NoStarvation]);
        // The token goes round for ever, also when nobody asks.
        promises.retain(|property| *property != Property::NoLivelock);
        Ok(About {
            name: Self::FAMILY.into(),
            summary: "specimen: two resources with unknown participants, as printed",
            source: "Datta, Devismes, Kawala, Larmore, Potop-Butucaru, Algorithms 1 to 3",
            assumes: Assumes {
                needs_max: Some(2),
                units: false,
                departures: false,
                order_asked: true,
                ..Assumes::RELIABLE
            },
            promises,
            with_patience: Vec::new(),
            rules: Repairs::ALL.to_vec(),
        })
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        let repairs = Repairs::new(options);
        Ok(Self { nodes: topology.pools.iter().map(|pool| pool.node).collect(), repairs })
    }

    fn managers(&self) -> Vec<NodeId> {
        self.nodes.clone()
    }

    fn user(&self, _: UserId) -> User {
        User::default()
    }

    fn manager(&self, id: ManagerId) -> Manager {
        Manager::new(id)
    }

    fn check_system(&self, system: &impl System<Self>) -> Result<(), Broken> {
        let held = system.managers().filter(|manager| manager.holds_token()).count();
        let sent = system.to_managers().filter(|msg| matches!(msg, ToManager::Token)).count();
        Broken::unless(held + sent == 1, "there is exactly one token (Definition 3.2)")
    }
}
