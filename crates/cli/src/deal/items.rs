//! What is dealt: lines of a file, which may grow at its end, or numbers.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

use crate::usage;

/// The items, by number.
pub(super) enum Items {
    List(List),
    Numbers(u64),
}

/// A file of items, as far as it was read.
pub(super) struct List {
    path: PathBuf,
    /// What ends an item.
    end: u8,
    /// Whether more may be appended: then what has no end yet is not complete.
    follow: bool,
    read: u64,
    items: Vec<Vec<u8>>,
    /// What was read and has no end yet.
    rest: Vec<u8>,
}

/// How many items there are, and what tells them from others: workers that deal different ones
/// must not share a store, but one may know of more items than another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) count: u64,
    pub(super) fingerprint: u64,
}

/// FNV-1a.
const START: u64 = 0xcbf2_9ce4_8422_2325;

fn mix(sum: u64, byte: u8) -> u64 {
    (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
}

impl Items {
    /// The lines of a file, or what is between its NULs.
    pub(super) fn list(path: PathBuf, nul: bool, follow: bool) -> anyhow::Result<Self> {
        let end = if nul { 0 } else { b'\n' };
        let (items, rest) = (Vec::new(), Vec::new());
        let mut list = List { path, end, follow, read: 0, items, rest };
        list.grow()?;
        Ok(Self::List(list))
    }

    /// Reads what was appended.
    pub(super) fn grow(&mut self) -> anyhow::Result<()> {
        match self {
            Self::List(list) => list.grow(),
            Self::Numbers(_) => Ok(()),
        }
    }

    /// Others know of so many.
    pub(super) fn others_have(&mut self, others: u64) {
        if let Self::Numbers(count) = self {
            *count = others.max(*count);
        }
    }

    pub(super) fn count(&self) -> u64 {
        match self {
            Self::List(list) => list.items.len() as u64,
            Self::Numbers(count) => *count,
        }
    }

    /// The item itself.
    pub(super) fn name(&self, item: u64) -> Vec<u8> {
        match self {
            Self::List(list) => list.items.get(item as usize).cloned().unwrap_or_default(),
            Self::Numbers(_) => item.to_string().into_bytes(),
        }
    }

    pub(super) fn extent(&self) -> Extent {
        let count = self.count();
        Extent { count, fingerprint: self.fingerprint(count) }
    }

    /// Whether these items begin with those.
    pub(super) fn begin_with(&self, extent: Extent) -> bool {
        extent.count <= self.count() && self.fingerprint(extent.count) == extent.fingerprint
    }

    /// Of the first `count` items.
    fn fingerprint(&self, count: u64) -> u64 {
        match self {
            Self::List(list) => {
                let items = list.items.iter().take(count as usize);
                items.flat_map(|item| item.iter().copied().chain([list.end])).fold(START, mix)
            }
            Self::Numbers(_) => START,
        }
    }
}

impl List {
    fn grow(&mut self) -> anyhow::Result<()> {
        let mut new = std::mem::take(&mut self.rest);
        let kept = new.len() as u64;
        let read = File::open(&self.path).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.read))?;
            file.read_to_end(&mut new)
        });
        let read = read.map_err(|error| usage(format!("--items {}: {error}", self.path.display())));
        self.read += read? as u64;
        debug_assert!(new.len() as u64 >= kept);
        let mut parts: Vec<_> = new.split(|byte| *byte == self.end).collect();
        // What follows the last end is empty, or an item whose end is not there (yet).
        let last = parts.pop().unwrap_or_default();
        if self.follow {
            self.rest = last.to_vec();
        } else {
            parts.push(last);
        }
        self.items.extend(parts.into_iter().filter(|item| !item.is_empty()).map(<[u8]>::to_vec));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions};
    use std::io::Write;

    use super::*;

    #[test]
    fn any_bytes_and_more_later() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("list");
        fs::write(&path, b"a b\n\xff\xfe\n\nunfini").expect("written");
        let mut items = Items::list(path.clone(), false, true).expect("there");
        assert_eq!((items.count(), items.name(1)), (2, b"\xff\xfe".to_vec()));
        let before = items.extent();
        let mut file = OpenOptions::new().append(true).open(&path).expect("there");
        file.write_all(b"shed\nmore\n").expect("written");
        items.grow().expect("there");
        assert_eq!((items.count(), items.name(2)), (4, b"unfinished".to_vec()));
        assert!(items.begin_with(before) && items.extent() != before);
        assert!(!items.begin_with(Extent { fingerprint: 1, ..before }));
        let all = Items::list(path.clone(), false, false).expect("there");
        assert_eq!(all.extent(), items.extent());
        assert!(!all.begin_with(Extent { count: 5, ..all.extent() }));
        fs::write(&path, b"line\none\0two").expect("written");
        let nul = Items::list(path, true, false).expect("there");
        assert_eq!((nul.count(), nul.name(0)), (2, b"line\none".to_vec()));
    }
}
