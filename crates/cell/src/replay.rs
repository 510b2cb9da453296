//! How a cell comes back from its log.
//!
//! A record is an input with the facts that came of it, under the number of the logic that came to
//! them. The same logic must come to the same facts again. Another logic, or one that does not, goes on
//! from the facts: the books are kept from these alone, and the engine is built again from them when the
//! host starts.

use serde::{Deserialize, Serialize};

use crate::books::{Books, Contradiction};
use crate::cell::{Cell, Defect, Settings};
use crate::facts::Fact;
use crate::input::{Input, Out, Start};
pub use crate::record::{PART_MAX, Parts, Recorded, Writing, Written};

/// The number of this code: one more with every change after which old inputs lead to other facts, or are
/// not understood.
pub const LOGIC: u32 = 1;

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

/// A snapshot. The books come first, and alone are enough for another logic.
#[derive(Serialize, Deserialize)]
struct Snapshot<'a> {
    now: u64,
    books: Books,
    /// The engine and the settings.
    engine: &'a [u8],
}

impl Cell {
    /// The whole state.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn snapshot(&self) -> Result<Vec<u8>, Unreadable> {
        let engine = (&self.engine, &self.settings);
        let engine = postcard::to_allocvec(&engine).map_err(Unreadable::Form)?;
        let (now, books) = (self.now, self.books.clone());
        let snapshot = Snapshot { now, books, engine: &engine };
        postcard::to_allocvec(&snapshot).map_err(Unreadable::Form)
    }
}

/// A cell that is being built again from its log.
pub struct Replay {
    logic: u32,
    cell: Cell,
    /// What the facts in the log add up to, whatever this code makes of the inputs.
    books: Books,
    /// Whether only the facts count, until the engine is built again.
    from_facts: bool,
    diverged: Option<Diverged>,
    parts: Parts,
}

/// What a log has led to.
pub struct Replayed {
    /// The cell, to be told that its host has started.
    pub cell: Cell,
    /// Whether its engine must be built again then ([`Start::rebuilt`](crate::Start)).
    pub from_facts: bool,
    /// What went wrong with a record of the same logic: worth a report, and nothing is lost.
    pub diverged: Option<Diverged>,
}

impl Replayed {
    /// The input with which it goes on.
    pub fn started(&self, mut start: Start) -> Input {
        start.rebuilt |= self.from_facts;
        Input::Started(start)
    }
}

impl Replay {
    /// Begins with a snapshot and the logic that wrote it, or with nothing; for a certain logic.
    ///
    /// # Errors
    /// If the snapshot cannot be read.
    pub fn new(logic: u32, snapshot: Option<(u32, &[u8])>) -> Result<Self, Unreadable> {
        let (cell, books, parts) = (Cell::new()?, Books::default(), Parts::default());
        let mut replay = Self { logic, cell, books, from_facts: false, diverged: None, parts };
        if let Some((written_by, bytes)) = snapshot {
            let kept: Snapshot<'_> = postcard::from_bytes(bytes).map_err(Unreadable::Form)?;
            replay.books = kept.books;
            replay.cell.now = kept.now;
            if written_by == logic {
                replay.take_engine(kept.engine);
            } else {
                replay.from_facts = true;
            }
        }
        Ok(replay)
    }

    /// The engine of a snapshot, if it is understood: the books are enough otherwise.
    fn take_engine(&mut self, engine: &[u8]) {
        match postcard::from_bytes::<(_, Settings)>(engine) {
            Ok((engine, settings)) => {
                (self.cell.engine, self.cell.settings) = (engine, settings);
                self.cell.books = self.books.clone();
            }
            Err(why) => {
                self.from_facts = true;
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
        let Some(recorded) = self.parts.take(payload)? else { return Ok(None) };
        self.take_whole(written_by, &recorded)
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
        let mut out = None;
        if written_by != self.logic {
            self.from_facts = true;
        } else {
            match postcard::from_bytes::<Input>(&recorded.input) {
                Err(why) => self.diverges(Diverged::Form(why)),
                Ok(input) => {
                    let rebuilds = matches!(&input, Input::Started(start) if start.rebuilt);
                    if self.from_facts && rebuilds {
                        self.go_on_from_facts()?;
                    }
                    if !self.from_facts {
                        out = self.step(recorded.at, input, &recorded.facts);
                    }
                }
            }
        }
        for fact in &recorded.facts {
            self.books.enter(fact)?;
            if let Fact::Started { at, .. } = fact {
                self.cell.now = self.cell.now.max(*at);
            }
        }
        self.cell.now = self.cell.now.max(recorded.at);
        Ok(out)
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
        let from_facts = self.from_facts;
        if from_facts {
            self.go_on_from_facts()?;
        }
        Ok(Replayed { cell: self.cell, from_facts, diverged: self.diverged })
    }

    fn step(&mut self, at: u64, input: Input, facts: &[Fact]) -> Option<Out> {
        match self.cell.step(at, input) {
            Ok(out) if out.facts == facts => return Some(out),
            Ok(out) => {
                self.diverges(Diverged::Facts { expected: facts.to_vec(), got: out.facts });
            }
            Err(defect) => self.diverges(Diverged::Defect(defect)),
        }
        None
    }

    fn diverges(&mut self, diverged: Diverged) {
        self.from_facts = true;
        self.diverged.get_or_insert(diverged);
    }

    /// The cell has the books of the facts, and no engine that counts.
    fn go_on_from_facts(&mut self) -> Result<(), Unreadable> {
        let now = self.cell.now;
        self.cell = Cell::new()?;
        (self.cell.books, self.cell.now) = (self.books.clone(), now);
        self.from_facts = false;
        Ok(())
    }
}
