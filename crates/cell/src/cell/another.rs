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

#[cfg(test)]
mod tests {
    use holdall_core::CellId;
    use holdall_wire::{Drained, Kind};

    use super::*;
    use crate::facts::Fact;
    use crate::greeting::Presence;

    /// What it has heard of others, under an id that they have never met, would halt them.
    #[test]
    fn it_has_the_pools_and_knows_nobody() {
        let name = |text: &str| text.parse::<holdall_wire::Name>().expect("a name");
        let mut cell = Cell::new().expect("an engine");
        let add = |pool, units| Change::Add { name: name(pool), kind: Kind::Numbered(units) };
        let drained = Drained { reason: "moves".into(), by: "root".into(), until: None };
        for (change, configured) in [
            (add("maya", 3), false),
            (add("board", 2), true),
            (Change::Drain { name: name("maya"), drained }, false),
        ] {
            cell.change_pool(change, configured, None).expect("sound").expect("done");
        }
        cell.note_drained().expect("sound");
        let (other, presence) = (CellId(7), Presence { life: 5, nonce: 6, ..Presence::default() });
        for fact in [
            Fact::Peer { cell: other, life: Some(5) },
            Fact::Met { cell: other, presence },
            Fact::Agreed { cell: other, upto: 0 },
            Fact::CameTo { cell: other, length: 69 },
        ] {
            cell.note(fact).expect("sound");
        }
        assert_eq!(cell.books.ties().known_of(other).length, 69);
        let another = cell.with_pools_alone().expect("an engine");
        let pools: Vec<_> = another.books.pools().map(|(name, _)| name.clone()).collect();
        assert_eq!((pools, another.books.drained().len()), (vec![name("maya")], 1));
        assert_eq!(another.engine.kind(&name("maya")), Some(Kind::Numbered(3)));
        assert_eq!(another.books.ties(), &Default::default());
        assert!(another.snapshot().is_ok());
    }
}
