//! What somebody may do.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A right that an agent gives to users and groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// To see who holds what, and who waits.
    View,
    /// To ask for things, and hold them as long as a program runs.
    Ask,
    /// To reserve things for a time.
    Reserve,
    /// To add, change, drain and remove pools.
    Pools,
    /// To release and renew what others hold.
    Force,
    /// To stop the agent. Whoever may do that may do all the rest.
    Admin,
}

impl Right {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::View, Self::Ask, Self::Reserve, Self::Pools, Self::Force, Self::Admin];
}

impl fmt::Display for Right {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::View => "view",
            Self::Ask => "ask",
            Self::Reserve => "reserve",
            Self::Pools => "pools",
            Self::Force => "force",
            Self::Admin => "admin",
        })
    }
}
