//! Who uses what, and whether that can be.

use std::collections::BTreeMap;

/// What must never be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// Two use the same thing.
    #[error("at {at} ms client {client} begins to use {unit}, which client {other} uses")]
    Overlap {
        /// When.
        at: u64,
        /// The unit, with its cell.
        unit: String,
        /// Who begins.
        client: usize,
        /// Who has it.
        other: usize,
    },
    /// A fence went back.
    #[error(
        "at {at} ms client {client} has {unit} with fence {fence:#x}, and {last:#x} was before"
    )]
    Fence {
        /// When.
        at: u64,
        /// The unit, with its cell.
        unit: String,
        /// Who.
        client: usize,
        /// Its fence.
        fence: u64,
        /// The highest before.
        last: u64,
    },
    /// An invariant of a cell is broken.
    #[error("at {at} ms {cell} is broken: {what}")]
    Broken {
        /// When.
        at: u64,
        /// The cell.
        cell: String,
        /// How.
        what: String,
    },
    /// Somebody waits although nothing goes wrong any more.
    #[error("client {client} of {cell} still waits: {what}")]
    Starved {
        /// Who.
        client: usize,
        /// Its cell.
        cell: String,
        /// What it does.
        what: String,
    },
    /// Something is left behind.
    #[error("{cell}: {what} is left behind")]
    Residue {
        /// Where.
        cell: String,
        /// What.
        what: String,
    },
}

/// Sees all that is used.
#[derive(Default)]
pub(crate) struct Bystander {
    /// For each unit the clients that use it, and whether they share it.
    used: BTreeMap<String, BTreeMap<usize, bool>>,
    fences: BTreeMap<String, u64>,
}

impl Bystander {
    /// A client begins to use a unit. Whoever is paused uses nothing, and will see when it wakes up that its time is over.
    pub(crate) fn begin(
        &mut self,
        at: u64,
        client: usize,
        (unit, fence, shared): (&str, u64, bool),
        is_paused: impl Fn(usize) -> bool,
    ) -> Result<(), Violation> {
        let users = self.used.entry(unit.into()).or_default();
        let other = users
            .iter()
            .find(|(other, used)| **other != client && !(shared && **used) && !is_paused(**other));
        if let Some((other, _)) = other {
            return Err(Violation::Overlap { at, unit: unit.into(), client, other: *other });
        }
        users.insert(client, shared);
        let last = self.fences.entry(unit.into()).or_default();
        if fence < *last || fence == *last && !shared {
            let (unit, last) = (unit.into(), *last);
            return Err(Violation::Fence { at, unit, client, fence, last });
        }
        *last = fence;
        Ok(())
    }

    /// What a client uses is used by somebody else from now on: what it has left behind.
    pub(crate) fn rename(&mut self, client: usize, other: usize) {
        for users in self.used.values_mut() {
            if let Some(shared) = users.remove(&client) {
                users.insert(other, shared);
            }
        }
    }

    /// A client uses nothing any more.
    pub(crate) fn end(&mut self, client: usize) {
        for users in self.used.values_mut() {
            users.remove(&client);
        }
    }
}
