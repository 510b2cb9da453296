//! Which members an operator has given up, as far as this one has heard of it and done it.
//!
//! That a member is forgotten is told again at each start of the links. It counts once: a forgotten member may come back, in
//! another life, and is one like any other then. In the life in which it was forgotten it is not let in: it may hold what others
//! have been given since.
//!
//! What was done is in the cell's log, too: the log of a replicated cell goes from host to host, and this file does not
//! ([`Forgotten::agree`]).

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use holdall_cell::books::GivenUp;
use holdall_cell::greeting::Presence;
use holdall_links::CellId;
use holdall_links::member::Roster;
use serde::{Deserialize, Serialize};

const FILE: &str = "forgotten.json";

/// What stands before the epoch in a word, in words of versions that say it.
const EPOCH_FOLLOWS: [u8; 4] = *b"epo1";

/// What is said with it that a member is given up: eight bytes that tell it from the next time, and which start of which life is
/// meant, if who says it knows one. Versions before take the first sixteen bytes for what tells it from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Meant {
    pub(crate) life: u128,
    /// Not said by versions before.
    epoch: Option<u32>,
}

impl Meant {
    /// A word with which the member is given up that was last heard of in this start.
    ///
    /// # Errors
    /// If the machine has no random bits.
    pub(crate) fn word(known: Option<&Presence>) -> io::Result<Vec<u8>> {
        let mut word = vec![0; 8];
        rustix::rand::getrandom(&mut word, rustix::rand::GetRandomFlags::empty())?;
        word.extend(EPOCH_FOLLOWS);
        word.extend(known.map_or(0, |known| known.epoch).to_le_bytes());
        word.extend(known.map(|known| known.life.to_le_bytes()).into_iter().flatten());
        Ok(word)
    }

    /// What a word means, if it says so.
    pub(crate) fn by(word: &[u8]) -> Option<Self> {
        let (before, life) = word.split_at_checked(16)?;
        let life = u128::from_le_bytes(life.try_into().ok()?);
        let epoch = before[8..].strip_prefix(&EPOCH_FOLLOWS);
        let epoch = epoch.and_then(|epoch| epoch.try_into().ok()).map(u32::from_le_bytes);
        Some(Self { life, epoch })
    }

    /// Whether it is about a member that is known in this start. In a later life it has come back since. In the same one it may hold
    /// what it held; unless it is a replicated cell, which is nobody's home, and which another host leads since.
    pub(crate) fn is_about(&self, known: &Presence, is_replicated: bool) -> bool {
        match self.life == known.life {
            true => !(is_replicated && self.epoch.is_some_and(|epoch| epoch < known.epoch)),
            false => self.epoch.is_some_and(|epoch| known.epoch < epoch),
        }
    }
}

/// The highest epoch of all cells of this name that were removed and given up, as far as it was said then. Whoever remembers their fences
/// knows them by that name.
pub(crate) fn epoch_of_removed(roster: &Roster, name: &str) -> Option<u32> {
    let removed =
        |cell| roster.member(cell).is_some_and(|it| it.removed && it.name.as_str() == name);
    let words = roster.forgotten().filter(|(cell, _)| removed(*cell));
    words.filter_map(|(_, forgotten)| Meant::by(&forgotten.word)?.epoch).max()
}

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
        let before = self.all.get(&cell.to_string());
        let life = life.map(written).or_else(|| before.and_then(|before| before.life.clone()));
        self.all.insert(cell.to_string(), One { word: word.to_vec(), life, away });
        self.save()
    }

    /// Whether a member in this start is let in.
    pub(crate) fn lets_in(&self, cell: CellId, presence: &Presence, is_replicated: bool) -> bool {
        let Some(one) = self.all.get(&cell.to_string()) else { return true };
        let is_in_that_life = one.life == Some(written(presence.life));
        let is_later =
            || Meant::by(&one.word).is_some_and(|it| !it.is_about(presence, is_replicated));
        !is_in_that_life || is_later()
    }

    /// Brings this in line with the log of the cell, which says how a member was given up last, and in which start it was heard of
    /// since. Another host may have heard more than this one; and this one may have been killed before what it had heard was in the log.
    ///
    /// # Errors
    /// If that cannot be kept.
    pub(crate) fn agree(
        &mut self,
        cell: CellId,
        logged: Option<&GivenUp>,
        met: Option<&Presence>,
    ) -> io::Result<()> {
        let known = self.all.get(&cell.to_string());
        let is_undone = |(known, met): (&One, &Presence)| {
            let is_later = Meant::by(&known.word).is_some_and(|meant| !meant.is_about(met, true));
            known.life == Some(written(met.life)) && !is_later
        };
        if known.zip(met).is_some_and(is_undone) {
            return Ok(());
        }
        let is_news = |logged: &&GivenUp| known.is_none_or(|known| known.word != logged.word);
        match logged.filter(is_news) {
            Some(GivenUp { life, word }) => self.add(cell, word, *life, met.is_none()),
            None if met.is_some() => self.comes_back(cell).map(drop),
            None => Ok(()),
        }
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

fn written(life: u128) -> String {
    format!("{life:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start(life: u128, epoch: u32) -> Presence {
        Presence { life, epoch, ..Presence::default() }
    }

    /// The log goes to another host, which was away, or led before.
    #[test]
    fn fences_go_on_above_those_of_all_of_a_name_that_were_removed() {
        let word = |epoch| Meant::word(Some(&start(5, epoch))).expect("random");
        let mut roster = Roster::new(CellId(1), Vec::new());
        let all = [(2, "x", 30), (3, "x", 70), (4, "x", 50), (5, "y", 900), (6, "x", 800)];
        for (cell, name, epoch) in all {
            roster.add(CellId(cell), &name.parse().expect("a name"), &[], 0).expect("room");
            roster.forget(CellId(cell), word(epoch)).expect("room");
            if cell != 6 {
                roster.remove(CellId(cell), 0).expect("it was there");
            }
        }
        roster.add(CellId(7), &"x".parse().expect("a name"), &[], 0).expect("room");
        roster.remove(CellId(7), 0).expect("it was there");
        assert_eq!(epoch_of_removed(&roster, "x"), Some(70));
        // By one that was never linked with it.
        roster.forget(CellId(3), Meant::word(None).expect("random")).expect("room");
        assert_eq!(epoch_of_removed(&roster, "x"), Some(70));
        assert_eq!(epoch_of_removed(&roster, "z"), None);
    }

    #[test]
    fn what_another_host_has_heard_is_known_from_the_log() {
        let dir = tempfile::tempdir().expect("a directory");
        let (cell, mut kept) = (CellId(7), Forgotten::read(dir.path()).expect("whole"));
        let logged = |life, word: &[u8]| GivenUp { life: Some(life), word: word.to_vec() };
        let lets_in =
            |kept: &Forgotten, life| kept.lets_in(cell, &start(life, 1 + life as u32), false);
        kept.agree(cell, None, Some(&start(1, 1))).expect("kept");
        assert!(lets_in(&kept, 1), "nothing was said");
        kept.agree(cell, Some(&logged(1, b"a")), None).expect("kept");
        assert!(kept.is_known(cell, b"a") && kept.is_away(cell));
        assert!(!lets_in(&kept, 1) && lets_in(&kept, 2));
        // It came back while another one led.
        kept.agree(cell, Some(&logged(1, b"a")), Some(&start(2, 2))).expect("kept");
        assert!(!kept.is_away(cell), "what it holds now nobody has given up");
        // And was given up once more.
        kept.agree(cell, Some(&logged(2, b"b")), None).expect("kept");
        assert!(kept.is_known(cell, b"b") && kept.is_away(cell) && !lets_in(&kept, 2));
    }

    /// Killed between the two.
    #[test]
    fn what_was_heard_and_not_done_is_yet_to_be_done() {
        let dir = tempfile::tempdir().expect("a directory");
        let (cell, mut kept) = (CellId(7), Forgotten::read(dir.path()).expect("whole"));
        kept.add(cell, b"b", Some(2), true).expect("kept");
        let before = GivenUp { life: Some(1), word: b"a".to_vec() };
        kept.agree(cell, Some(&before), Some(&start(2, 2))).expect("kept");
        assert!(kept.is_away(cell) && kept.is_known(cell, b"b"));
    }

    #[test]
    fn a_word_means_a_start_of_a_life_and_what_was_before() {
        let said = start(5, 3);
        let (one, other) = (Meant::word(Some(&said)), Meant::word(Some(&said)));
        let (one, other) = (one.expect("random"), other.expect("random"));
        assert_ne!(one, other);
        let meant = Meant::by(&one).expect("it says so");
        assert_eq!((meant.life, meant.epoch), (5, Some(3)));
        assert!(meant.is_about(&said, true) && meant.is_about(&start(5, 4), false));
        assert!(!meant.is_about(&start(5, 4), true), "another host leads since");
        assert!(!meant.is_about(&start(6, 4), false), "it has come back since");
        assert!(meant.is_about(&start(4, 2), false), "it was not heard of for longer than that");
        assert_eq!(Meant::by(&Meant::word(None).expect("random")), None);
        assert_eq!(Meant::by(b"short"), None);
        // As versions before say it.
        let before = [&[7; 16][..], &5u128.to_le_bytes()].concat();
        let meant = Meant::by(&before).expect("it says so");
        assert!(meant.is_about(&said, true) && !meant.is_about(&start(4, 2), false));
    }

    #[test]
    fn it_counts_once_and_only_in_that_life() {
        let dir = tempfile::tempdir().expect("a directory");
        let read = || Forgotten::read(dir.path()).expect("whole");
        let (cell, mut kept) = (CellId(7), read());
        let lets_in = |kept: &Forgotten, life| kept.lets_in(cell, &start(life, 1), false);
        assert!(!kept.is_away(cell) && lets_in(&kept, 1) && !kept.is_known(cell, b"a"));
        kept.add(cell, b"a", Some(1), true).expect("kept");
        let mut kept = read();
        assert!(kept.is_away(cell) && !lets_in(&kept, 1) && kept.is_known(cell, b"a"));
        assert!(lets_in(&kept, 2), "in another life");
        assert!(kept.comes_back(cell).expect("kept"));
        let mut kept = read();
        assert!(!kept.comes_back(cell).expect("nothing to keep"));
        assert!(!kept.is_away(cell) && kept.is_known(cell, b"a") && !kept.is_known(cell, b"b"));
        std::fs::write(dir.path().join(FILE), "x").expect("ours");
        assert!(Forgotten::read(dir.path()).is_err());
    }
}
