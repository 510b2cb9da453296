//! The epoch: the upper part of all numbers, which only grows.
//!
//! It is kept in the directory of the log and in a twin outside, because whoever deletes a
//! directory under a cell shall not bring its numbers back. A cell starts above both. If both are
//! gone and there is no log, it is a new cell.
//!
//! # Invariants
//! - An epoch is synced in both places before it is used: first outside, then inside.
//! - What cannot be read is not passed over.

use std::path::PathBuf;
use std::sync::Arc;

use crate::disk::{self, Disk};
use crate::{Identity, OpenError};

/// The name of the file in the directory of a log.
pub const NAME: &str = "epoch";

/// What is kept in one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The highest epoch that may have been used.
    pub epoch: u32,
    /// Whose it is; none in a file of an agent without a log.
    pub identity: Option<Identity>,
}

/// A file that holds an epoch.
#[derive(Clone)]
pub struct Place {
    disk: Arc<dyn Disk>,
    name: String,
}

impl Place {
    /// A file in some directory.
    pub fn new(disk: Arc<dyn Disk>, name: &str) -> Self {
        Self { disk, name: name.into() }
    }

    fn path(&self) -> PathBuf {
        self.disk.path().join(&self.name)
    }

    /// What is there.
    ///
    /// # Errors
    /// If it cannot be read or understood.
    pub fn read(&self) -> Result<Option<Kept>, OpenError> {
        let read = self.disk.open(&self.name).and_then(|file| file.read());
        match read {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(OpenError::Io { path: self.path(), error }),
            Ok(bytes) => {
                let kept = std::str::from_utf8(&bytes).ok().and_then(parse);
                kept.map(Some).ok_or_else(|| OpenError::Epoch(self.path()))
            }
        }
    }

    fn write(&self, kept: Kept) -> std::io::Result<()> {
        disk::replace(&*self.disk, &self.name, print(kept).as_bytes())
    }
}

/// `epoch 7 cell 0123…`, or only the first part; or only the number, as agents without a log wrote
/// it. Those do not understand what is written now, and leave the directory alone.
fn parse(text: &str) -> Option<Kept> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (epoch, identity) = match words[..] {
        [epoch] | ["epoch", epoch] => (epoch, None),
        ["epoch", epoch, "cell", identity] => {
            (epoch, Some(Identity(u128::from_str_radix(identity, 16).ok()?)))
        }
        _ => return None,
    };
    Some(Kept { epoch: epoch.parse().ok()?, identity })
}

fn print(kept: Kept) -> String {
    let identity = kept.identity.map(|identity| format!(" cell {identity}")).unwrap_or_default();
    format!("epoch {}{identity}\n", kept.epoch)
}

/// Both places of an epoch.
#[derive(Clone)]
pub struct Epochs {
    own: Place,
    twin: Option<Place>,
}

impl Epochs {
    /// In the directory of a log, and perhaps outside.
    pub fn new(disk: Arc<dyn Disk>, twin: Option<Place>) -> Self {
        Self { own: Place::new(disk, NAME), twin }
    }

    /// The highest epoch that may have been used, and whose it is; the directory's own word on that
    /// counts more.
    ///
    /// # Errors
    /// If one of them cannot be read or understood.
    pub fn read(&self) -> Result<Option<Kept>, OpenError> {
        let own = self.own.read()?;
        let twin = self.twin.as_ref().map(Place::read).transpose()?.flatten();
        Ok(highest(own, twin))
    }

    /// Raises both to an epoch, for good.
    ///
    /// # Errors
    /// If a disk does not take it; the epoch must not be used then.
    pub fn raise(&self, epoch: u32, identity: Identity) -> Result<(), (PathBuf, std::io::Error)> {
        let kept = Kept { epoch, identity: Some(identity) };
        for place in self.twin.iter().chain([&self.own]) {
            place.write(kept).map_err(|error| (place.path(), error))?;
        }
        Ok(())
    }

    /// Where the own one is.
    pub(crate) fn path(&self) -> PathBuf {
        self.own.path()
    }
}

fn highest(own: Option<Kept>, twin: Option<Kept>) -> Option<Kept> {
    let (Some(own), Some(twin)) = (own, twin) else { return own.or(twin) };
    Some(Kept { epoch: own.epoch.max(twin.epoch), identity: own.identity.or(twin.identity) })
}

/// The epoch to begin with: above what is kept and what the log was written under; none if there is
/// none left.
pub fn next(kept: Option<Kept>, in_log: Option<u32>) -> Option<u32> {
    kept.map_or(0, |kept| kept.epoch).max(in_log.unwrap_or(0)).checked_add(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::simulated::SimulatedDisk;

    const CELL: Identity = Identity(7);

    fn kept(epoch: u32) -> Option<Kept> {
        Some(Kept { epoch, identity: Some(CELL) })
    }

    #[test]
    fn a_cell_starts_above_everything_that_is_known() {
        assert_eq!(next(None, None), Some(1));
        assert_eq!(next(highest(kept(3), kept(5)), Some(4)), Some(6));
        assert_eq!(next(highest(kept(5), kept(3)), None), Some(6));
        assert_eq!(next(highest(None, kept(3)), Some(9)), Some(10));
        assert_eq!(next(kept(u32::MAX), None), None, "it does not begin again");
    }

    #[test]
    fn what_is_written_is_read_and_anything_else_refused() {
        assert_eq!(parse(&print(Kept { epoch: 12, identity: Some(CELL) })), kept(12));
        assert_eq!(parse("12\n"), Some(Kept { epoch: 12, identity: None }));
        assert_eq!(parse("epoch 12"), Some(Kept { epoch: 12, identity: None }));
        for odd in ["", "epoch", "x", "-1", "4294967296", "epoch 1 cell", "epoch 1 cell x", "1 2"] {
            assert_eq!(parse(odd), None, "{odd:?}");
        }
        assert!(print(Kept { epoch: 12, identity: None }).trim().parse::<u32>().is_err());
    }

    #[test]
    fn either_place_is_enough_and_neither_is_passed_over() {
        let (inside, outside) = (SimulatedDisk::new(1), SimulatedDisk::new(2));
        let twin = Place::new(Arc::new(outside.clone()), "lab.epoch");
        let epochs = Epochs::new(Arc::new(inside.clone()), Some(twin));
        assert_eq!(epochs.read().expect("nothing there"), None);
        epochs.raise(4, CELL).expect("written");
        inside.remove(NAME).expect("it is there");
        assert_eq!(epochs.read().expect("the twin"), kept(4));
        epochs.raise(5, CELL).expect("written");
        outside.remove("lab.epoch").expect("it is there");
        assert_eq!(epochs.read().expect("its own"), kept(5));
        epochs.raise(6, CELL).expect("written");
        inside.tamper(NAME, |content| *content = b"epoch 2".to_vec());
        assert_eq!(epochs.read().expect("both").map(|kept| kept.epoch), Some(6), "an old copy");
        outside.tamper("lab.epoch", Vec::clear);
        assert!(
            matches!(epochs.read(), Err(OpenError::Epoch(path)) if path.ends_with("lab.epoch"))
        );
    }

    #[test]
    fn an_epoch_that_was_raised_survives_the_machine() {
        for seed in 0..50 {
            let (inside, outside) = (SimulatedDisk::new(1), SimulatedDisk::new(2));
            let twin = Place::new(Arc::new(outside.clone()), "lab.epoch");
            Epochs::new(Arc::new(inside.clone()), Some(twin)).raise(4, CELL).expect("written");
            let own = Place::new(Arc::new(inside.unplugged(seed)), NAME).read();
            let twin = Place::new(Arc::new(outside.unplugged(seed)), "lab.epoch").read();
            assert_eq!((own.expect("own"), twin.expect("twin")), (kept(4), kept(4)));
        }
    }
}
