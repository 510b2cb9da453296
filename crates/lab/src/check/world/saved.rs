//! What the numbers in states stand for, written down and read back.

use std::io;

use holdall_registry::roles::{Item, NOBODY, Rows, Table};

use super::World;
use super::client::Client;
use crate::check::checkpoint::{RecordReader, RecordWriter, Unread};

impl World<'_> {
    /// What an item says is there before the item is: so the items are counted first and written last.
    pub(super) fn write(&self, to: &mut RecordWriter) -> io::Result<()> {
        let rows: &dyn Rows = self.roles.tables();
        let items = self.parts.items.count();
        for table in Table::ALL {
            let row = |row| rows.write(table, row).map_err(io::Error::other);
            let written: Vec<Vec<u8>> =
                (0..rows.count(table)).map(row).collect::<Result<_, _>>()?;
            to.put_list(written.into_iter())?;
        }
        to.put_list((0..self.client_table.count()).map(|id| self.client_table.value(id)))?;
        to.put_list((0..items).map(|id| self.parts.items.value(id)))
    }

    pub(super) fn read(&self, from: &mut RecordReader) -> Result<(), Unread> {
        let rows: &dyn Rows = self.roles.tables();
        for table in Table::ALL {
            let mut numbers = 0..;
            from.get_each(|row: Vec<u8>| {
                same(Some(rows.read(&self.parts, table, &row)?), numbers.next())
            })?;
        }
        let mut numbers = 0..;
        from.get_each(|client: Client| {
            same(Some(self.client_table.number(client)), numbers.next())
        })?;
        let mut numbers = 0..;
        from.get_each(|item: Item| same(rows.read_item(&self.parts, item), numbers.next()))
    }

    /// Whether a list of numbers has the form of a state, and all of them were given.
    pub(super) fn is_of_parts(&self, state: &[u32]) -> bool {
        let rows: &dyn Rows = self.roles.tables();
        let lanes = self.scope.users.len();
        let roles = |from: usize, to: usize, table: Table| {
            state[from..to].iter().all(|id| *id < rows.count(table) || *id == NOBODY)
        };
        let (managers, items) = (self.manager_at(0), self.items_at());
        state.len() >= items
            && state[..lanes].iter().all(|id| *id < self.client_table.count())
            && roles(lanes, managers, Table::Users)
            && roles(managers, items, Table::Managers)
            && state[items..].iter().all(|id| *id < self.parts.items.count())
    }
}

/// Whoever is entered in the order of the numbers is given the number it had.
fn same(given: Option<u32>, had: Option<u32>) -> Result<(), Unread> {
    (given.is_some() && given == had).then_some(()).ok_or(Unread::Damaged)
}
