//! All journals together: who has which item.
//!
//! An item has one owner at a time. It is first owned by the worker to which the windows assigned
//! it; a worker gives some of its own away to one that has nothing to do; and what a retired
//! worker leaves goes to its heirs. Giver and heir write their own journals only: the giver that
//! it gave, the taker that it received. So whoever reads the journals finds the same.
//!
//! A retired worker's journal and registers stay as they are. Everybody can see in them what it
//! leaves: items it never started, gifts it never received, and items of windows it entered that
//! turn out to be its own once somebody has left those windows behind. Its heir is the first one
//! in the list of its heirs who is not retired, where a retired one stands for its own heirs. That
//! changes only when that one retires, so no two can take themselves for the heir of one item; and
//! if two workers retire at once and each names the other, it is still whoever else they name.
//!
//! An item that two journals say to be theirs from the beginning is an alarm: reads were old, or
//! two processes worked under one number.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Context;
use holdall_assign::Worker;
use holdall_assign::registers::{Memory, Observer};

use super::desk::{Delays, delays};
use super::journal::{self, Known, Line};
use super::outcome::alarm;
use super::ranges::Ranges;
use super::store::{Store, tell};

/// The journals of a store, as of the last look.
pub(super) struct Journals {
    path: PathBuf,
    known: BTreeMap<usize, Known>,
    /// How much of each was read.
    read: BTreeMap<usize, u64>,
    /// All that is somebody's from the beginning.
    taken: Ranges,
    /// An item that is so twice, and one who says so.
    twice: Option<(u64, usize)>,
}

impl Journals {
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let mut journals = Self {
            path: path.to_owned(),
            known: BTreeMap::new(),
            read: BTreeMap::new(),
            taken: Ranges::default(),
            twice: None,
        };
        journals.refresh()?;
        Ok(journals)
    }

    /// Reads what is new; says whether anything is.
    pub(super) fn refresh(&mut self) -> anyhow::Result<bool> {
        let cannot = || format!("--store {}: cannot be read", self.path.display());
        let mut owners = Vec::new();
        for entry in fs::read_dir(&self.path).with_context(cannot)? {
            let name = entry.with_context(cannot)?.file_name();
            owners.extend(name.to_str().and_then(journal::owner));
        }
        let mut news = false;
        for worker in owners {
            news |= self.refresh_one(worker).with_context(|| {
                format!("cannot read {}", journal::path(&self.path, worker).display())
            })?;
        }
        Ok(news)
    }

    fn refresh_one(&mut self, worker: usize) -> io::Result<bool> {
        let (known, read) =
            (self.known.entry(worker).or_default(), self.read.entry(worker).or_default());
        let mut file = File::open(journal::path(&self.path, worker))?;
        if file.metadata()?.len() == *read {
            return Ok(false);
        }
        let mut new = Vec::new();
        file.seek(SeekFrom::Start(*read))?;
        file.read_to_end(&mut new)?;
        // A line that is being written is read next time.
        let whole = new.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        *read += whole as u64;
        for line in String::from_utf8_lossy(&new[..whole]).lines().filter_map(Line::parse) {
            if let Line::Take(items) = &line {
                let twice = self.taken.first_in(items).map(|item| (item, worker));
                self.twice = self.twice.or(twice);
                self.taken.insert(items);
            }
            known.apply(&line);
        }
        Ok(whole > 0)
    }

    /// Every worker that has a journal.
    pub(super) fn all(&self) -> impl Iterator<Item = (usize, &Known)> {
        self.known.iter().map(|(worker, known)| (*worker, known))
    }

    pub(super) fn of(&self, worker: usize) -> Option<&Known> {
        self.known.get(&worker)
    }

    /// How many items there are, as far as anybody knows.
    pub(super) fn count(&self) -> u64 {
        let counts = self.known.values().filter_map(|known| known.items);
        counts.map(|items| items.count).max().unwrap_or(0)
    }

    /// Items that no journal has yet: nobody has taken them, or their owner does not know it.
    pub(super) fn undealt(&self) -> u64 {
        self.count() - self.taken.count_before(self.count())
    }

    pub(super) fn done(&self) -> u64 {
        self.known.values().map(|known| known.ended.len() as u64).sum()
    }

    /// Whether the journals contradict each other.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let (done, count) = (self.done(), self.count());
        if let Some((item, worker)) = self.twice {
            let takes = |known: &&Known| known.taken.contains(item);
            let mut others = self.all().filter(|(other, known)| *other != worker && takes(known));
            let others = others.next().map_or_else(
                || format!("twice in the journal of worker {worker}"),
                |(other, _)| format!("in the journals of workers {worker} and {other}"),
            );
            return Err(alarm(&format!("item {item} is {others}")));
        }
        if done > count {
            return Err(alarm(&format!("{done} items are recorded as done, of {count}")));
        }
        Ok(())
    }

    fn retired(&self, worker: usize) -> bool {
        self.of(worker).is_some_and(Known::retired)
    }

    /// Who gets an item (or whatever turns out later) that was this worker's: it, unless it is
    /// retired; then its heir. `None` if nobody is left.
    pub(super) fn heir(&self, worker: usize, item: Option<u64>) -> Option<usize> {
        let mut passed = BTreeSet::new();
        let mut search = |from| self.search(from, item, &mut passed);
        let further = self.of(worker).map_or(&[][..], |known| &known.further_heirs);
        search(worker).or_else(|| further.iter().find_map(|heir| search(*heir)))
    }

    fn search(
        &self,
        worker: usize,
        item: Option<u64>,
        passed: &mut BTreeSet<usize>,
    ) -> Option<usize> {
        let heirs = match self.of(worker) {
            Some(known) if known.retired() => &known.heirs,
            _ => return Some(worker),
        };
        if !passed.insert(worker) {
            return None;
        }
        // By the item alone: who gets it does not depend on what else there is.
        let first = item.map_or(0, |item| item as usize % heirs.len());
        let mut in_turn = heirs[first..].iter().chain(&heirs[..first]);
        in_turn.find_map(|heir| self.search(*heir, item, passed))
    }

    /// What others gave to a worker and it has not received, each with its giver.
    pub(super) fn gifts_to(&self, worker: usize) -> Vec<(Range<u64>, usize)> {
        let mut gifts = Vec::new();
        for (giver, known) in self.all() {
            let Some(given) = known.given.get(&worker) else { continue };
            let mut left = given.clone();
            if let Some(received) = self.of(worker).and_then(|known| known.received.get(&giver)) {
                received.iter().for_each(|items| left.remove(&items));
            }
            gifts.extend(left.iter().map(|items| (items, giver)));
        }
        gifts
    }

    /// What a retired worker leaves and nobody has received.
    pub(super) fn estate(&self, worker: usize) -> Ranges {
        let Some(known) = self.of(worker).filter(|known| known.retired()) else {
            return Ranges::default();
        };
        let mut estate = known.waiting.clone();
        self.gifts_to(worker).iter().for_each(|(items, _)| estate.insert(items));
        for received in self.known.values().filter_map(|known| known.received.get(&worker)) {
            received.iter().for_each(|items| estate.remove(&items));
        }
        estate
    }

    /// What this worker is to receive: gifts, and what was left to it.
    pub(super) fn left_to(&self, worker: usize) -> Vec<(Range<u64>, usize)> {
        let mut left = self.gifts_to(worker);
        for (from, _) in self.all().filter(|(from, _)| self.retired(*from)) {
            let mut mine = Ranges::default();
            for item in self.estate(from).iter().flatten() {
                if self.heir(from, Some(item)) == Some(worker) {
                    mine.insert(&(item..item + 1));
                }
            }
            left.extend(mine.iter().map(|items| (items, from)));
        }
        left
    }

    /// Retired workers that leave something to nobody.
    pub(super) fn heirless(&self) -> Vec<usize> {
        let retired = self.all().map(|(worker, _)| worker).filter(|worker| self.retired(*worker));
        retired.filter(|worker| self.heir(*worker, None).is_none()).collect()
    }

    /// Items that retired workers turn out to have had although no journal says so, and that fall
    /// to this worker; and who holds up that more is known.
    pub(super) fn found_for(
        &self,
        worker: usize,
        store: &Store,
        count: u64,
    ) -> anyhow::Result<(Ranges, Delays)> {
        let (mut found, mut held) = (Ranges::default(), Vec::new());
        let retired = (0..store.terms.workers).filter(|from| self.retired(*from));
        for from in retired.filter(|from| self.heir(*from, None) == Some(worker)) {
            let regs = Observer::new(store.dir().handle(from).map_err(tell)?, from);
            let mut ghost = Worker::<_>::resume(store.layout, from, regs).map_err(tell)?;
            let mut won = Vec::new();
            ghost.stock(&mut won);
            ghost.doubtful(&mut won);
            for items in won {
                found.insert(&(items.start..items.end.min(count).max(items.start)));
            }
            held.extend(delays(&ghost, store, count)?);
        }
        self.taken.iter().for_each(|items| found.remove(&items));
        Ok((found, held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journals(texts: &[&str]) -> (tempfile::TempDir, Journals) {
        let store = tempfile::tempdir().expect("a directory");
        for (worker, text) in texts.iter().enumerate() {
            let lines: String =
                text.split(';').map(|line| format!("{}{}\n", line, journal::WHOLE)).collect();
            fs::write(journal::path(store.path(), worker), lines).expect("written");
        }
        let journals = Journals::read(store.path()).expect("there");
        (store, journals)
    }

    #[test]
    fn heirs_of_heirs() {
        // 0 leaves 2 and 4 to 1, 1 and 3 to 2; 1 received 2 (and left it to 3) before it retired.
        let (_store, all) = journals(&[
            "take 1 5;retired 1 2",
            "receive 2 3 0;retired 3",
            "receive 3 4 0",
            "begin",
        ]);
        assert_eq!(all.left_to(2), [(1..2, 0)], "3 has been received");
        let expected = [(4..5, 0), (2..3, 1)];
        assert_eq!(all.left_to(3), expected, "4 as the heir of an heir, 2 as its heir");
        assert_eq!(all.left_to(1), []);
        assert_eq!((all.heir(0, None), all.heir(2, None)), (Some(3), Some(2)));
    }

    /// Two `retire` at the same moment: each names the other as an heir.
    #[test]
    fn two_that_leave_to_each_other_leave_to_the_third() {
        let (_store, all) = journals(&["take 0 4;retired 1 2", "take 4 8;retired 0 2", "begin"]);
        assert_eq!(all.left_to(2), [(0..4, 0), (4..8, 1)]);
        assert_eq!(all.heirless(), [0; 0]);
    }

    #[test]
    fn nobody_is_left_until_another_heir_is_named() {
        let (_store, all) = journals(&["take 0 4;retired 1", "take 4 8;retired 0", "begin"]);
        assert_eq!((all.heirless(), all.left_to(2)), (vec![0, 1], vec![]));
        let (_store, all) =
            journals(&["take 0 4;retired 1;retired 2", "take 4 8;retired 0;retired 2", "begin"]);
        assert_eq!((all.heirless(), all.left_to(2)), (vec![], vec![(0..4, 0), (4..8, 1)]));
    }

    #[test]
    fn gifts_reach_the_heirs_of_one_who_retired_before_it_received_them() {
        let (_store, all) = journals(&[
            "take 0 6;give 4 6 1;give 2 4 1",
            "receive 2 4 0;start 2;retired 2",
            "begin",
        ]);
        assert_eq!(all.gifts_to(1), [(4..6, 0)]);
        assert_eq!(all.left_to(2), [(3..6, 1)], "one was started and may be done");
        let (_store, all) = journals(&["take 0 6;give 4 6 1", "retired 2", "receive 4 6 1"]);
        assert_eq!(all.left_to(2), []);
    }

    #[test]
    fn an_item_in_two_journals_is_an_alarm() {
        let (_store, all) = journals(&["items 9 0;take 0 2;give 1 2 1", "receive 1 2 0"]);
        assert!(all.check().is_ok());
        let (_store, all) = journals(&["items 9 0;take 0 2", "take 2 4", "take 3 5"]);
        let told = all.check().expect_err("item 3").to_string();
        assert!(told.contains("item 3 is in the journals of workers 2 and 1"), "{told}");
        let (_store, all) = journals(&["items 9 0;take 0 2;take 1 3"]);
        assert!(all.check().expect_err("item 1").to_string().contains("twice in the journal"));
        let (_store, all) = journals(&["items 1 0;take 0 2;end 0 0;end 1 0"]);
        assert!(all.check().expect_err("too many").to_string().contains("2 items are recorded"));
    }

    #[test]
    fn reads_only_what_is_new() {
        let (store, mut all) = journals(&["items 4 0;take 0 4;end 0 0"]);
        assert_eq!((all.count(), all.done()), (4, 1));
        assert!(!all.refresh().expect("there"));
        let path = journal::path(store.path(), 0);
        let mut text = fs::read(&path).expect("there");
        text.extend(b"end 1 0");
        fs::write(&path, &text).expect("written");
        assert!(!all.refresh().expect("there"), "a line counts when it is whole");
        text.extend(b" .\n");
        fs::write(&path, &text).expect("written");
        assert!(all.refresh().expect("there"));
        assert_eq!(all.done(), 2);
    }
}
