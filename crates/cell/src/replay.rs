//! How a cell comes back from its log.
//!
//! A record is an input with the facts that came of it, under the number of the logic that came to
//! them. The same logic must come to the same facts again. Another logic, or one that does not, goes on
//! from the facts: the books are kept from these alone, and the engine is built again from them when the
//! host starts.

use holdall_wire::append;
use serde::Deserialize;

use crate::books::{Books, Contradiction, Ties};
use crate::cell::{Cell, Defect, Settings};
use crate::facts::Fact;
use crate::input::{Input, Out, Start};
use crate::record::Raw;
pub use crate::record::{PART_MAX, Parts, Recorded, Room, Writing, Written};

/// The number of this code: one more with every change after which old inputs lead to other facts, or are
/// not understood.
pub const LOGIC: u32 = 8;

/// Why a cell cannot come back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// What was logged is not what this code understands.
    #[error("a record or snapshot is not understood: {0}; use the version that wrote it")]
    Form(postcard::Error),
    /// A part of a record has no beginning.
    #[error("a part of a record is not understood; use the version that wrote it")]
    Parts,
    /// It is longer than any record can be.
    #[error("an input is too long to be logged")]
    TooLong,
    /// The parts of a snapshot contradict each other.
    #[error(
        "the snapshot is damaged: {0}; put the data directory back from a copy, or start without it"
    )]
    Damaged(&'static str),
    /// What was logged cannot be.
    #[error("what was logged cannot be: {0}")]
    Facts(#[from] Contradiction),
    /// There is no engine.
    #[error("{0}")]
    Cell(#[from] Defect),
}

/// The same input, and something else came of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Diverged {
    /// It broke an invariant.
    #[error("an input that was taken before breaks an invariant now: {0}")]
    Defect(Defect),
    /// It, or the engine in a snapshot, is not understood, though the same logic wrote it.
    #[error("an input or engine that the same logic wrote is not understood: {0}")]
    Form(postcard::Error),
    /// It led to other facts.
    #[error("an input leads to {got:?} now, and led to {expected:?} before")]
    Facts {
        /// What is in the log.
        expected: Vec<Fact>,
        /// What came of it now.
        got: Vec<Fact>,
    },
}

/// A snapshot. The books come first, and with the ties are enough for another logic.
#[derive(Deserialize)]
struct Snapshot<'a> {
    now: u64,
    books: Books,
    /// The engine and the settings.
    engine: &'a [u8],
}

/// Reads a snapshot. What ties the books to other cells follows it, where there is anything, and then what was agreed with them,
/// who was given up, and what is known of whom.
fn read_snapshot(bytes: &[u8]) -> Result<Snapshot<'_>, Unreadable> {
    let (mut kept, rest) =
        postcard::take_from_bytes::<Snapshot<'_>>(bytes).map_err(Unreadable::Form)?;
    if !rest.is_empty() {
        let (mut ties, rest) = postcard::take_from_bytes::<Ties>(rest).map_err(Unreadable::Form)?;
        if !rest.is_empty() {
            ties = ties.with_behind(rest).map_err(Unreadable::Form)?;
        }
        kept.books = kept.books.tied(ties);
    }
    kept.books = kept.books.counted();
    kept.books.check().map_err(Unreadable::Damaged)?;
    Ok(kept)
}

impl Cell {
    /// The whole state.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn snapshot(&self) -> Result<Vec<u8>, Unreadable> {
        let engine = (&self.engine, &self.settings, &self.asserting, &self.disputed, &self.strays);
        let engine = postcard::to_allocvec(&engine).map_err(Unreadable::Form)?;
        // As a `Snapshot` is written.
        let snapshot = (self.now, &self.books, &engine[..]);
        let mut bytes = postcard::to_allocvec(&snapshot).map_err(Unreadable::Form)?;
        let ties = self.books.ties();
        if *ties != Ties::default() {
            // One after the other, as the fields of one.
            append(ties, &mut bytes).map_err(Unreadable::Form)?;
            append(&ties.behind(), &mut bytes).map_err(Unreadable::Form)?;
        }
        Ok(bytes)
    }
}

/// A cell that is being built again from its log.
pub struct Replay {
    logic: u32,
    cell: Cell,
    /// What the facts add up to; only if this code does not come to them, and until the engine is built
    /// again from them.
    books: Option<Books>,
    /// What the log begins with, and all facts since, one after the other with their lengths: should
    /// this code come to others, the books are made of these.
    begun: Begun,
    facts: Vec<u8>,
    /// The facts of one step.
    got: Vec<u8>,
    diverged: Option<Diverged>,
    parts: Parts,
}

/// What a log begins with.
enum Begun {
    Nothing,
    Snapshot(Vec<u8>),
    Books(Box<Books>),
}

/// What a log has led to.
pub struct Replayed {
    /// The cell, to be told that its host has started.
    pub cell: Cell,
    /// Whether its engine must be built again then ([`Start::rebuilt`](crate::Start)).
    pub from_facts: bool,
    /// What went wrong with a record of the same logic, if the engine was not built again since: worth
    /// a report, and nothing is lost.
    pub diverged: Option<Diverged>,
}

impl Replayed {
    /// The input with which it goes on.
    pub fn started(&self, mut start: Start) -> Input {
        start.rebuilt |= self.from_facts;
        Input::Started(Box::new(start))
    }
}

impl Replay {
    /// Begins with a snapshot and the logic that wrote it, or with nothing; for a certain logic.
    ///
    /// # Errors
    /// If the snapshot cannot be read.
    pub fn new(logic: u32, snapshot: Option<(u32, &[u8])>) -> Result<Self, Unreadable> {
        let (begun, parts) = (Begun::Nothing, Parts::default());
        let (facts, got) = (Vec::new(), Vec::new());
        let cell = Cell::new()?;
        let mut replay =
            Self { logic, cell, books: None, begun, facts, got, diverged: None, parts };
        if let Some((written_by, bytes)) = snapshot {
            let kept = read_snapshot(bytes)?;
            replay.cell.now = kept.now;
            if written_by == logic {
                replay.take_engine(kept, bytes);
            } else {
                replay.books = Some(kept.books);
            }
        }
        Ok(replay)
    }

    /// The engine of a snapshot, if it is understood: the books are enough otherwise.
    fn take_engine(&mut self, kept: Snapshot<'_>, bytes: &[u8]) {
        match postcard::from_bytes::<(_, Settings, _, _, _)>(kept.engine) {
            Ok((engine, settings, asserting, disputed, strays)) => {
                (self.cell.engine, self.cell.settings) = (engine, settings);
                (self.cell.asserting, self.cell.disputed) = (asserting, disputed);
                self.cell.strays = strays;
                self.cell.books = kept.books;
                let Cell { engine, books, .. } = &mut self.cell;
                engine.share(|request| books.get(request).map(|entry| (&entry.who, &entry.ask)));
                self.begun = Begun::Snapshot(bytes.to_vec());
            }
            Err(why) => {
                self.books = Some(kept.books);
                self.diverged = Some(Diverged::Form(why));
            }
        }
    }

    /// Takes the next record, with the logic that wrote it. Tells what came of it, if its input counts
    /// and not only its facts.
    ///
    /// # Errors
    /// If it cannot be read, or cannot be.
    pub fn take(&mut self, written_by: u32, payload: &[u8]) -> Result<Option<Out>, Unreadable> {
        let mut parts = std::mem::take(&mut self.parts);
        let out = match parts.raw(payload)? {
            Some(raw) => self.take_raw(written_by, raw)?,
            None => None,
        };
        self.parts = parts;
        Ok(out)
    }

    /// The same with a record that was put together.
    ///
    /// # Errors
    /// If it cannot be.
    pub fn take_whole(
        &mut self,
        written_by: u32,
        recorded: &Recorded,
    ) -> Result<Option<Out>, Unreadable> {
        let facts = postcard::to_allocvec(&recorded.facts).map_err(Unreadable::Form)?;
        let raw = Raw { at: recorded.at, input: &recorded.input, facts: &facts };
        self.take_raw(written_by, raw)
    }

    fn take_raw(&mut self, written_by: u32, raw: Raw<'_>) -> Result<Option<Out>, Unreadable> {
        if written_by != self.logic {
            self.count_facts()?;
        } else {
            match postcard::from_bytes::<Input>(raw.input) {
                Err(why) => self.diverges(Diverged::Form(why))?,
                Ok(input) => {
                    if let Input::Keep { epoch, sessions } = &input {
                        // It is about the start that follows, whatever counts until then.
                        self.cell.kept = (*epoch, sessions.clone());
                    }
                    let rebuilds = matches!(&input, Input::Started(start) if start.rebuilt);
                    if rebuilds && let Some(books) = self.books.take() {
                        self.go_on_from(books)?;
                        self.diverged = None; // What it led to is in force.
                    }
                    if self.books.is_none()
                        && let Some(out) = self.step(raw, input)?
                    {
                        return Ok(Some(out));
                    }
                }
            }
        }
        self.enter(raw)?;
        Ok(None)
    }

    /// Enters the facts of a record that count by themselves.
    fn enter(&mut self, raw: Raw<'_>) -> Result<(), Unreadable> {
        let Some(books) = &mut self.books else { return Ok(()) };
        for fact in raw.facts()? {
            books.enter(&fact)?;
            if let Fact::Started { at, .. } = fact {
                self.cell.now = self.cell.now.max(at);
            }
        }
        self.cell.now = self.cell.now.max(raw.at);
        Ok(())
    }

    /// The cell as it is by now.
    pub fn cell(&self) -> &Cell {
        &self.cell
    }

    /// The end of the log.
    ///
    /// # Errors
    /// If there is no engine.
    pub fn finish(mut self) -> Result<Replayed, Unreadable> {
        let books = self.books.take();
        let from_facts = books.is_some();
        if let Some(books) = books {
            self.go_on_from(books)?;
        }
        Ok(Replayed { cell: self.cell, from_facts, diverged: self.diverged })
    }

    /// Steps the cell. None if it does not come to the same facts.
    fn step(&mut self, raw: Raw<'_>, input: Input) -> Result<Option<Out>, Unreadable> {
        let out = match self.cell.step(raw.at, input) {
            Ok(out) => out,
            Err(defect) => return self.diverges(Diverged::Defect(defect)).map(|()| None),
        };
        self.got.clear();
        append(&out.facts, &mut self.got).map_err(Unreadable::Form)?;
        if self.got != raw.facts {
            let (expected, got) = (raw.facts()?, out.facts);
            return self.diverges(Diverged::Facts { expected, got }).map(|()| None);
        }
        let length = u32::try_from(raw.facts.len()).map_err(|_| Unreadable::TooLong)?;
        self.facts.extend(length.to_le_bytes());
        self.facts.extend_from_slice(raw.facts);
        Ok(Some(out))
    }

    fn diverges(&mut self, diverged: Diverged) -> Result<(), Unreadable> {
        self.diverged.get_or_insert(diverged);
        self.count_facts()
    }

    /// From now on only the facts count: the books are those that all of them so far add up to.
    fn count_facts(&mut self) -> Result<(), Unreadable> {
        if self.books.is_some() {
            return Ok(());
        }
        let mut books = match std::mem::replace(&mut self.begun, Begun::Nothing) {
            Begun::Nothing => Books::default(),
            Begun::Books(books) => *books,
            Begun::Snapshot(bytes) => read_snapshot(&bytes)?.books,
        };
        let facts = std::mem::take(&mut self.facts);
        let mut rest = &facts[..];
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let (facts, behind) = behind
                .split_at_checked(u32::from_le_bytes(*length) as usize)
                .ok_or(Unreadable::Parts)?;
            let facts: Vec<Fact> = postcard::from_bytes(facts).map_err(Unreadable::Form)?;
            facts.iter().try_for_each(|fact| books.enter(fact))?;
            rest = behind;
        }
        self.books = Some(books);
        Ok(())
    }

    /// The cell has the books of the facts, and no engine that counts.
    fn go_on_from(&mut self, books: Books) -> Result<(), Unreadable> {
        let (now, kept) = (self.cell.now, std::mem::take(&mut self.cell.kept));
        self.cell = Cell::new()?;
        self.cell.kept = kept;
        self.begun = Begun::Books(Box::new(books.clone()));
        self.facts.clear();
        (self.cell.books, self.cell.now) = (books, now);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use holdall_core::{CellId, RequestId};
    use holdall_wire::RequestNo;

    use super::*;
    use crate::books::{Recovery, Tie};

    /// Its checksum may be right all the same.
    #[test]
    fn a_snapshot_that_contradicts_itself_is_damaged() {
        let cell = Cell::new().expect("an engine");
        let mut bytes = cell.snapshot().expect("written");
        assert!(Replay::new(LOGIC, Some((LOGIC, &bytes))).is_ok());
        let id = RequestId { user: holdall_core::UserId::first_at(Default::default(), 0), seq: 1 };
        let spanning = BTreeMap::from([(RequestNo(5), id)]);
        let (foreign, lives) = (BTreeMap::<RequestNo, Tie>::new(), BTreeMap::<CellId, u128>::new());
        let ties = (spanning, foreign, lives, Recovery::default());
        append(&ties, &mut bytes).expect("written");
        for logic in [LOGIC, LOGIC - 1] {
            let read = Replay::new(LOGIC, Some((logic, &bytes)));
            assert!(matches!(read, Err(Unreadable::Damaged(_))));
        }
    }
}
