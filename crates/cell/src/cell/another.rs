//! A cell that takes the place of one that was removed, under its name.
//!
//! For others it is another one: of what the first had given to anybody, or had heard of others and they of it, nothing holds. A log that
//! told so, under an id that nobody has met, would be taken for a copy by all whom it tells what it knows of theirs.

use holdall_wire::Change;

use super::{Cell, Defect};

impl Cell {
    /// A cell with the pools of this one that no configuration has declared, drained as they are, and with nothing else.
    ///
    /// # Errors
    /// If there is no engine, or a pool that is here cannot be there.
    pub fn with_pools_alone(&self) -> Result<Self, Defect> {
        let mut other = Self::new()?;
        other.now = self.now;
        let pools = self.books.pools().filter(|(_, pool)| !pool.configured);
        let added =
            pools.map(|(name, pool)| Change::Add { name: name.clone(), kind: pool.kind.clone() });
        let drained = self.books.drained().iter().cloned();
        let drained = drained.map(|(name, drained)| Change::Drain { name, drained });
        for change in added.chain(drained.filter(|one| self.declares(super::calls::name_of(one)))) {
            if let Err(why) = other.change_pool(change, false, None)? {
                return Err(Defect::NoEngine(why.to_string()));
            }
        }
        other.note_drained()?;
        Ok(other)
    }

    fn declares(&self, name: &holdall_wire::Name) -> bool {
        self.books.pool(name).is_some_and(|pool| !pool.configured)
    }
}
