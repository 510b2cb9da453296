//! Where a user stands in its script: the part of a state that belongs to the client.

use holdall_core::{RequestId, UserId};
use serde::{Deserialize, Serialize};

use crate::check::scope::UnitMask;

/// The client's side of one user.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Client {
    /// The request under way, or the last one; number 0 before the first.
    pub(crate) request: RequestId,
    /// Which request of the script is under way or comes next.
    pub(crate) at: u8,
    pub(crate) stage: Stage,
    /// The units of listed pools that it uses.
    pub(crate) units: UnitMask,
    pub(crate) overtaken: Overtaken,
    /// Whether it was wrongly suspected before.
    pub(crate) suspected: bool,
    /// The user before it in its lane, while anything of that one is left.
    pub(crate) predecessor: Option<UserId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Stage {
    /// No request is under way.
    Idle,
    Waiting,
    Using,
    /// Done, but the user role has not said yet that it may be called again.
    Releasing,
    /// Departed with notice; the role stays until it is idle.
    Left,
    /// Taken for dead although alive, and told so; it may return.
    Lost,
    /// Stopped silently; the role takes part no more.
    Crashed,
}

impl Stage {
    /// Whether a request is under way.
    pub(crate) fn is_busy(self) -> bool {
        matches!(self, Self::Waiting | Self::Using | Self::Releasing)
    }

    /// For people. Whoever crashes in the middle of asking was idle at the beginning of that step.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Idle => "idle or asking",
            Self::Waiting => "waiting",
            Self::Using => "using",
            Self::Releasing => "releasing",
            Self::Left => "left",
            Self::Lost => "lost",
            Self::Crashed => "crashed",
        }
    }
}

/// Who overtook a waiting request. Kept only where a protocol promises a bound; otherwise it stays
/// as it is and makes no difference between states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Overtaken {
    /// Since it was asked for, there was a moment when nothing from, to or about its user was
    /// under way: it stands in whatever queue it must.
    pub(crate) settled: bool,
    /// The users who asked after that for something that conflicts with it.
    pub(crate) later: u32,
    /// How many of them were served first, up to one more than the bound.
    pub(crate) times: u32,
}

impl Client {
    pub(crate) fn fresh(user: UserId) -> Self {
        Self {
            request: RequestId { user, seq: 0 },
            at: 0,
            stage: Stage::Idle,
            units: 0,
            overtaken: Overtaken::default(),
            suspected: false,
            predecessor: None,
        }
    }

    pub(crate) fn user(&self) -> UserId {
        self.request.user
    }

    /// Whether a request was asked for and not yet granted.
    pub(crate) fn is_waiting(&self) -> bool {
        self.stage == Stage::Waiting
    }

    /// Whether a request of this user is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.stage.is_busy()
    }
}
