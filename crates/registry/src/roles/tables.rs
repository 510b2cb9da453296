//! What the numbers of roles, messages and timers stand for, written down and read back: in the order
//! of the numbers, so that whoever reads it back gives them the same.

use holdall_core::{Data, Protocol};

use super::parts::{Content, Interner, Item, Parts};
use super::{RolesOf, number_role};

/// One of the tables that only the protocol can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each is named after what is in it")]
pub enum Table {
    ManagerTimers,
    Managers,
    ToManagers,
    ToUsers,
    UserTimers,
    Users,
}

impl Table {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::ManagerTimers,
        Self::Managers,
        Self::ToManagers,
        Self::ToUsers,
        Self::UserTimers,
        Self::Users,
    ];
}

/// The rows of the tables.
pub trait Rows {
    /// How many rows a table has.
    fn count(&self, table: Table) -> u32;

    /// Writes a row down.
    ///
    /// # Errors
    /// If its protocol cannot write it.
    fn write(&self, table: Table, row: u32) -> postcard::Result<Vec<u8>>;

    /// Enters what was written down, and returns the number it has.
    ///
    /// # Errors
    /// If no such thing was written.
    fn read(&self, parts: &Parts, table: Table, row: &[u8]) -> postcard::Result<u32>;

    /// Enters an item whose content has been entered, and returns the number it has; `None` if its
    /// content is not there.
    fn read_item(&self, parts: &Parts, item: Item) -> Option<u32>;
}

impl<P: Protocol> Rows for RolesOf<P> {
    fn count(&self, table: Table) -> u32 {
        match table {
            Table::ManagerTimers => self.manager_timers.count(),
            Table::Managers => self.managers.count(),
            Table::ToManagers => self.to_managers.count(),
            Table::ToUsers => self.to_users.count(),
            Table::UserTimers => self.user_timers.count(),
            Table::Users => self.users.count(),
        }
    }

    fn write(&self, table: Table, row: u32) -> postcard::Result<Vec<u8>> {
        match table {
            Table::ManagerTimers => postcard::to_stdvec(self.manager_timers.value(row)),
            Table::Managers => postcard::to_stdvec(self.managers.value(row)),
            Table::ToManagers => postcard::to_stdvec(self.to_managers.value(row)),
            Table::ToUsers => postcard::to_stdvec(self.to_users.value(row)),
            Table::UserTimers => postcard::to_stdvec(self.user_timers.value(row)),
            Table::Users => postcard::to_stdvec(self.users.value(row)),
        }
    }

    fn read(&self, parts: &Parts, table: Table, row: &[u8]) -> postcard::Result<u32> {
        use postcard::from_bytes;
        Ok(match table {
            Table::ManagerTimers => self.manager_timers.number(from_bytes(row)?),
            Table::Managers => number_role(&self.managers, &parts.managers, from_bytes(row)?),
            Table::ToManagers => self.to_managers.number(from_bytes(row)?),
            Table::ToUsers => self.to_users.number(from_bytes(row)?),
            Table::UserTimers => self.user_timers.number(from_bytes(row)?),
            Table::Users => number_role(&self.users, &parts.users, from_bytes(row)?),
        })
    }

    fn read_item(&self, parts: &Parts, item: Item) -> Option<u32> {
        match item {
            Item::Call { .. } | Item::Gone { .. } | Item::LossToken | Item::Lapse { .. } => {
                Some(parts.items.number(item))
            }
            Item::ToManager { msg, .. } => number_item(parts, &self.to_managers, msg, item),
            Item::ToUser { msg, .. } => number_item(parts, &self.to_users, msg, item),
            Item::ManagerTimer { timer, .. } => {
                number_item(parts, &self.manager_timers, timer, item)
            }
            Item::UserTimer { timer, .. } => number_item(parts, &self.user_timers, timer, item),
        }
    }
}

fn number_item<T: Data>(
    parts: &Parts,
    contents: &Interner<T>,
    content: Content,
    item: Item,
) -> Option<u32> {
    let known = content.0 < contents.count();
    known.then(|| parts.number_saying(item, contents.value(content.0)))
}
