//! What happened, one line for each thing, in the order in which it did.
//!
//! Everything that is judged is told by the commands, to the store that they write to ([`crate::store`]), and noted by that;
//! the torturer adds what it has done to whom. Times are milliseconds of CLOCK_BOOTTIME.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

/// A number of a run of `holdall run`, from 1 on.
pub type RunNo = u64;

/// A line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// When.
    pub at: u64,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// Which of the two processes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Who {
    /// `holdall run`.
    Wrapper,
    /// What it runs.
    Command,
}

/// A unit that a run was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unit {
    /// Its fence.
    pub fence: u64,
    /// Whether others may have it at the same time, if they share it, too.
    pub shared: bool,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum What {
    /// A wrapper was started.
    Asked {
        /// Which.
        run: RunNo,
        /// At which cell.
        home: usize,
        /// For what.
        needs: String,
    },
    /// A command has begun to use these, by name and cell.
    Began {
        /// Of which run.
        run: RunNo,
        /// Its process.
        pid: u32,
        /// What it was given.
        units: BTreeMap<String, Unit>,
    },
    /// A command wrote to a unit.
    Wrote {
        /// Of which run.
        run: RunNo,
        /// To which unit.
        unit: String,
        /// With which fence.
        fence: u64,
        /// Whether the store took it.
        accepted: bool,
    },
    /// A command is about to end by itself.
    Ended {
        /// Of which run.
        run: RunNo,
    },
    /// The process of a command is gone.
    Gone {
        /// Of which run.
        run: RunNo,
    },
    /// A wrapper is over.
    Done {
        /// Which.
        run: RunNo,
        /// Its exit status; minus the signal that ended it.
        status: i32,
        /// What it has said.
        said: String,
    },
    /// The torturer has stopped somebody.
    Paused {
        /// Of which run.
        run: RunNo,
        /// Whom.
        who: Who,
    },
    /// The torturer has let somebody go on.
    Resumed {
        /// Of which run.
        run: RunNo,
        /// Whom.
        who: Who,
    },
    /// The torturer has killed somebody.
    Killed {
        /// Of which run.
        run: RunNo,
        /// Whom.
        who: Who,
    },
    /// Something was done to an agent.
    Agent {
        /// Of which cell.
        cell: usize,
        /// What.
        how: Agent,
    },
    /// Something was done to a member of etcd.
    Member {
        /// Which.
        member: usize,
        /// What.
        how: Agent,
    },
    /// Something was done to what goes from one cell to another.
    Net {
        /// From this cell.
        from: usize,
        /// To this one.
        to: usize,
        /// What.
        how: Net,
    },
    /// Nothing goes wrong any more, and nobody asks for anything new.
    Calm,
    /// What an agent has left when all is over.
    Left {
        /// Of which cell.
        cell: usize,
        /// Grants.
        held: usize,
        /// Requests.
        waiting: usize,
    },
}

/// What was done to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Agent {
    /// Killed.
    Killed,
    /// Started again.
    Started,
    /// Stopped.
    Paused,
    /// Stopped together with all who use something at its cell.
    Frozen,
    /// Let go on.
    Resumed,
    /// Told to go on as itself.
    Restarted,
}

/// What was done to what goes from one cell to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Net {
    /// Nothing arrives any more; whoever connects is not answered.
    Stalled,
    /// Connections are cut, and new ones are, too.
    Cut,
    /// Everything takes longer.
    Slow,
    /// As it was.
    Healed,
}

/// Where lines are written, by whoever has something to tell.
pub struct Journal {
    file: Mutex<File>,
}

impl Journal {
    /// A new one.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self { file: Mutex::new(File::create_new(path)?) })
    }

    /// Adds a line.
    ///
    /// # Panics
    /// If it cannot be written: what follows would prove nothing.
    pub fn note(&self, what: What) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // The time is taken where the order is.
        let entry = Entry { at: crate::now(), what };
        let mut line = serde_json::to_vec(&entry).expect("plain data");
        line.push(b'\n');
        file.write_all(&line).expect("the journal can be written");
    }
}

/// All lines of a journal.
///
/// # Errors
/// If it cannot be read, or is none.
pub fn read(path: &Path) -> io::Result<Vec<Entry>> {
    let lines = BufReader::new(File::open(path)?).lines();
    lines.map(|line| Ok(serde_json::from_str(&line?)?)).collect()
}
