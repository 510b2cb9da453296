//! Which members an operator has given up, as far as this one has heard of it and done it.
//!
//! That a member is forgotten is told again at each start of the links. It counts once: a forgotten member may come back, in
//! another life, and is one like any other then. In the life in which it was forgotten it is not let in: it may hold what others
//! have been given since.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use holdall_links::CellId;
use serde::{Deserialize, Serialize};

const FILE: &str = "forgotten.json";

/// A member that was given up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct One {
    /// What was said with it, which tells it from the next time.
    word: Vec<u8>,
    /// The life in which it was last heard of, in hexadecimal digits.
    life: Option<String>,
    /// Whether it has not come back since.
    away: bool,
}

/// All of them.
#[derive(Clone, Debug)]
pub(crate) struct Forgotten {
    path: PathBuf,
    all: BTreeMap<String, One>,
}

impl Forgotten {
    /// Reads what is kept in the directory of a member.
    ///
    /// # Errors
    /// If it is damaged.
    pub(crate) fn read(dir: &Path) -> anyhow::Result<Self> {
        let path = dir.join(FILE);
        let all = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map_err(|error| anyhow::anyhow!("{} is damaged: {error}", path.display()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => anyhow::bail!("{}: {error}", path.display()),
        };
        Ok(Self { path, all })
    }

    /// Whether a member was given up, and has not come back.
    pub(crate) fn is_away(&self, cell: CellId) -> bool {
        self.all.get(&cell.to_string()).is_some_and(|one| one.away)
    }

    /// Whether this was heard before.
    pub(crate) fn is_known(&self, cell: CellId, word: &[u8]) -> bool {
        self.all.get(&cell.to_string()).is_some_and(|one| one.word == word)
    }

    /// A member is given up in this life, and is away since, unless it has come back in another.
    ///
    /// # Errors
    /// If that cannot be kept.
    pub(crate) fn add(
        &mut self,
        cell: CellId,
        word: &[u8],
        life: Option<u128>,
        away: bool,
    ) -> io::Result<()> {
        let life = life.map(|life| format!("{life:032x}"));
        self.all.insert(cell.to_string(), One { word: word.to_vec(), life, away });
        self.save()
    }

    /// Whether a member in this life is let in.
    pub(crate) fn lets_in(&self, cell: CellId, life: u128) -> bool {
        let life = format!("{life:032x}");
        self.all.get(&cell.to_string()).is_none_or(|one| one.life.as_ref() != Some(&life))
    }

    /// A member has come back. Says whether it was away.
    ///
    /// # Errors
    /// If that cannot be kept.
    pub(crate) fn comes_back(&mut self, cell: CellId) -> io::Result<bool> {
        match self.all.get_mut(&cell.to_string()) {
            Some(one) if one.away => one.away = false,
            _ => return Ok(false),
        }
        match self.save() {
            Ok(()) => Ok(true),
            Err(error) => {
                self.all.get_mut(&cell.to_string()).into_iter().for_each(|one| one.away = true);
                Err(error)
            }
        }
    }

    fn save(&self) -> io::Result<()> {
        use std::io::Write as _;
        let beside = self.path.with_extension("new");
        let mut file = std::fs::File::create(&beside)?;
        file.write_all(&serde_json::to_vec(&self.all)?)?;
        file.sync_all()?;
        std::fs::rename(&beside, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_counts_once_and_only_in_that_life() {
        let dir = tempfile::tempdir().expect("a directory");
        let read = || Forgotten::read(dir.path()).expect("whole");
        let (cell, mut kept) = (CellId(7), read());
        assert!(!kept.is_away(cell) && kept.lets_in(cell, 1) && !kept.is_known(cell, b"a"));
        kept.add(cell, b"a", Some(1), true).expect("kept");
        let mut kept = read();
        assert!(kept.is_away(cell) && !kept.lets_in(cell, 1) && kept.is_known(cell, b"a"));
        assert!(kept.lets_in(cell, 2), "in another life");
        assert!(kept.comes_back(cell).expect("kept"));
        let mut kept = read();
        assert!(!kept.comes_back(cell).expect("nothing to keep"));
        assert!(!kept.is_away(cell) && kept.is_known(cell, b"a") && !kept.is_known(cell, b"b"));
        std::fs::write(dir.path().join(FILE), "x").expect("ours");
        assert!(Forgotten::read(dir.path()).is_err());
    }
}
