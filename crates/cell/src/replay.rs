//! How a cell comes back from its log.
//!
//! A record is an input with the facts that came of it, under the number of the logic that came to
//! them. The same logic must come to the same facts again. Another logic, or one that does not, goes on
//! from the facts: the books are kept from these alone, and the engine is built again from them when the
//! host starts.

use serde::{Deserialize, Serialize};

use crate::books::{Books, Contradiction};
use crate::cell::{Cell, Defect};
use crate::facts::Fact;
use crate::input::{Input, Out};

/// The number of this code: one more with every change after which old inputs lead to other facts.
pub const LOGIC: u32 = 1;

/// What is logged of an input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// When it came.
    pub at: u64,
    /// The input.
    pub input: Input,
    /// What came of it.
    pub facts: Vec<Fact>,
}

/// A record that is being written: its input is there, before that is used up.
pub struct Writing(Vec<u8>);

impl Writing {
    /// The record with what came of its input.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn end(self, facts: &[Fact]) -> Result<Vec<u8>, Unreadable> {
        postcard::to_extend(facts, self.0).map_err(Unreadable::Form)
    }
}

impl Recorded {
    /// Begins to write a record.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn begin(at: u64, input: &Input) -> Result<Writing, Unreadable> {
        // The parts of a record follow one another.
        postcard::to_extend(&(at, input), Vec::new()).map(Writing).map_err(Unreadable::Form)
    }

    /// As it is logged.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn to_bytes(&self) -> Result<Vec<u8>, Unreadable> {
        postcard::to_allocvec(self).map_err(Unreadable::Form)
    }

    /// As it was logged.
    ///
    /// # Errors
    /// If it is none.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Unreadable> {
        postcard::from_bytes(bytes).map_err(Unreadable::Form)
    }
}

/// Why a cell cannot come back.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// What was logged is not what this code understands.
    #[error("a record or snapshot is not understood: {0}; use the version that wrote it")]
    Form(postcard::Error),
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
    engine: &'a [u8],
}

impl Cell {
    /// The whole state.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn snapshot(&self) -> Result<Vec<u8>, Unreadable> {
        let engine = postcard::to_allocvec(&self.engine).map_err(Unreadable::Form)?;
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

impl Replay {
    /// Begins with a snapshot and the logic that wrote it, or with nothing; for a certain logic.
    ///
    /// # Errors
    /// If the snapshot cannot be read.
    pub fn new(logic: u32, snapshot: Option<(u32, &[u8])>) -> Result<Self, Unreadable> {
        let (mut cell, mut books, mut from_facts) = (Cell::new()?, Books::default(), false);
        if let Some((written_by, bytes)) = snapshot {
            let kept: Snapshot<'_> = postcard::from_bytes(bytes).map_err(Unreadable::Form)?;
            books = kept.books;
            from_facts = written_by != logic;
            if !from_facts {
                cell.engine = postcard::from_bytes(kept.engine).map_err(Unreadable::Form)?;
                cell.books = books.clone();
            }
            cell.now = kept.now;
        }
        Ok(Self { logic, cell, books, from_facts, diverged: None })
    }

    /// Takes the next record, with the logic that wrote it. Tells what came of it, if its input counts
    /// and not only its facts.
    ///
    /// # Errors
    /// If it cannot be read, or cannot be.
    pub fn take(&mut self, written_by: u32, payload: &[u8]) -> Result<Option<Out>, Unreadable> {
        let Recorded { at, input, facts } = Recorded::from_bytes(payload)?;
        if written_by != self.logic {
            self.from_facts = true;
        } else if self.from_facts && matches!(&input, Input::Started(start) if start.rebuilt) {
            self.go_on_from_facts()?;
        }
        let out = if self.from_facts { None } else { self.step(at, input, &facts) };
        facts.iter().try_for_each(|fact| self.books.enter(fact))?;
        self.cell.now = self.cell.now.max(at);
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
        let diverged = match self.cell.step(at, input) {
            Ok(out) if out.facts == facts => return Some(out),
            Ok(out) => Diverged::Facts { expected: facts.to_vec(), got: out.facts },
            Err(defect) => Diverged::Defect(defect),
        };
        self.from_facts = true;
        self.diverged.get_or_insert(diverged);
        None
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
