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

/// Whether a unit is that of a cell.
fn is_of(unit: &str, cell: &str) -> bool {
    unit.rsplit_once('@').is_some_and(|(_, of)| of == cell)
}

/// Sees all that is used.
#[derive(Default)]
pub(crate) struct Bystander {
    /// For each unit the clients that use it, and whether they share it.
    used: BTreeMap<String, BTreeMap<usize, bool>>,
    /// The highest fences: of those from elsewhere, and of those of the cell that guards it.
    fences: BTreeMap<String, [u64; 2]>,
}

impl Bystander {
    /// A client begins to use a unit. Whoever is paused uses nothing, and will see when it wakes up that its time is over.
    pub(crate) fn begin(
        &mut self,
        at: u64,
        client: usize,
        (unit, fence, shared): (&str, u64, bool),
        is_own: bool,
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
        let fences = self.fences.entry(unit.into()).or_default();
        let last = fences[0].max(fences[1]);
        if fence < last || fence == last && !shared {
            let unit = unit.into();
            return Err(Violation::Fence { at, unit, client, fence, last });
        }
        fences[usize::from(is_own)] = fence;
        Ok(())
    }

    /// A cell was started from a copy: what its own clients had since, nobody else knows.
    pub(crate) fn forget_own(&mut self, cell: &str) {
        let of_it = self.fences.iter_mut().filter(|(unit, _)| is_of(unit, cell));
        of_it.for_each(|(_, fences)| fences[1] = 0);
    }

    /// What a client uses is used by somebody else from now on: what it has left behind.
    pub(crate) fn rename(&mut self, client: usize, other: usize) {
        for users in self.used.values_mut() {
            if let Some(shared) = users.remove(&client) {
                users.insert(other, shared);
            }
        }
    }

    /// What a client uses of other cells than its own is used by somebody else from now on; whether there is any.
    pub(crate) fn leave_elsewhere(&mut self, client: usize, other: usize, own: &str) -> bool {
        let mut any = false;
        for (_, users) in self.used.iter_mut().filter(|(unit, _)| !is_of(unit, own)) {
            if let Some(shared) = users.remove(&client) {
                users.insert(other, shared);
                any = true;
            }
        }
        any
    }

    /// A client uses nothing of a cell any more.
    pub(crate) fn end_at(&mut self, client: usize, cell: &str) {
        for (_, users) in self.used.iter_mut().filter(|(unit, _)| is_of(unit, cell)) {
            users.remove(&client);
        }
    }

    /// A client uses nothing any more.
    pub(crate) fn end(&mut self, client: usize) {
        for users in self.used.values_mut() {
            users.remove(&client);
        }
    }
}
