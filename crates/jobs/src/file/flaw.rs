//! What can be wrong with a file, and where.

use std::fmt;
use std::ops::Range;

use holdall_wire::{BadNeed, NEEDS_MAX};

/// What is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
    /// What it is.
    pub problem: Problem,
}

impl Flaw {
    pub(super) fn at(text: &str, span: &Range<usize>, problem: Problem) -> Self {
        let before = text.get(..span.start).unwrap_or(text);
        let start_of_line = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[start_of_line..].chars().count() + 1,
            problem,
        }
    }
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.problem)
    }
}

impl std::error::Error for Flaw {}

/// What can be wrong with a file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// It is no TOML.
    #[error("{0}")]
    Toml(String),
    /// A key that there is not.
    #[error("there is no '{key}' here{}", nearest(key, known))]
    Key {
        /// What it is.
        key: String,
        /// Those that there are.
        known: &'static [&'static str],
    },
    /// A value of another kind.
    #[error("'{key}' is {wanted}")]
    Kind {
        /// Of what.
        key: String,
        /// What it should be.
        wanted: &'static str,
    },
    /// Something is missing.
    #[error("{whose} has no '{key}'")]
    Missing {
        /// Of what.
        whose: String,
        /// What.
        key: &'static str,
    },
    /// A name that cannot be one.
    #[error(
        "'{0}' cannot be a name: up to {NAME_MAX} letters, digits, '_', '-' and '.', the first a \
         letter, a digit or '_'"
    )]
    Name(String),
    /// No tasks.
    #[error("there is no task; write at least one, like [task.build]")]
    Empty,
    /// Too many tasks.
    #[error("there are more than {TASKS_MAX} tasks")]
    Many,
    /// A need that cannot be read.
    #[error(transparent)]
    Need(#[from] BadNeed),
    /// A need that looks like an option.
    #[error("'{0}' cannot be asked for, as it begins like an option")]
    Dash(String),
    /// Two names that are one in the environment.
    #[error("'{0}' and '{1}' would both be HOLDALL_UNITS_{2} in the environment; rename one")]
    Variable(String, String, String),
    /// Too much at once.
    #[error("it would ask for {0} things at once; a request has at most {NEEDS_MAX}")]
    Needs(usize),
    /// The same thing twice.
    #[error("{0} is asked for twice")]
    Twice(String),
    /// No such task.
    #[error("there is no task '{name}'{}", nearest_of(name, known))]
    Task {
        /// What it is.
        name: String,
        /// Those that there are.
        known: Vec<String>,
    },
    /// Two tasks of one name.
    #[error("there are two tasks '{0}'; the values of an axis differ")]
    Same(String),
    /// Tasks that come after each other.
    #[error("these tasks wait for each other: {}", .0.join(" after "))]
    Cycle(Vec<String>),
    /// Groups that come after each other.
    #[error(
        "these groups wait for each other, as each is asked for when all has ended that its tasks \
         come after: {}", .0.join(" after ")
    )]
    GroupCycle(Vec<String>),
    /// More than can be sorted out.
    #[error("a group has more than {GROUP_MAX} tasks")]
    LargeGroup,
    /// More than can be kept.
    #[error("its tasks come after more than {EDGES_MAX} others in all; put a task in between")]
    Edges,
    /// A matrix without values.
    #[error("the axis '{0}' has no values")]
    Axis(String),
    /// A placeholder that is no axis.
    #[error("'{{{name}}}' is no axis of the matrix ({axes}); write {{{{ for a brace")]
    Placeholder {
        /// What it is.
        name: String,
        /// Those that there are.
        axes: String,
    },
    /// A brace by itself.
    #[error("a brace is left open or was not opened; write {{{{ or }}}} for a brace")]
    Brace,
    /// It would never run.
    #[error("a task that runs only after a failure has to come after something")]
    Never,
    /// In two groups.
    #[error("'{task}' is in two groups, '{one}' and '{other}'")]
    Groups {
        /// Which.
        task: String,
        /// One of them.
        one: String,
        /// The other.
        other: String,
    },
    /// A group that would wait while it holds.
    #[error(
        "the group '{group}' would hold what it has while it waits for '{outside}', which comes \
         after its '{inside}' and is not in the group; put it in, or make two groups"
    )]
    Inside {
        /// The group.
        group: String,
        /// A task of it.
        inside: String,
        /// A task that comes after that and before another of the group.
        outside: String,
    },
    /// What a group has, a task of it asks for.
    #[error("the group '{group}' holds {need} for '{task}' already")]
    Held {
        /// The group.
        group: String,
        /// The task.
        task: String,
        /// What.
        need: String,
    },
}

/// The longest name of a job, a task or a group.
pub(super) const NAME_MAX: usize = 100;
/// The most tasks of a group: what they need at the same time takes a table of all pairs.
pub(super) const GROUP_MAX: usize = 500;
/// The most pairs of a task and one that it comes after.
pub(super) const EDGES_MAX: usize = 2_000_000;
/// The most tasks.
pub(super) const TASKS_MAX: usize = 100_000;

fn nearest(key: &str, known: &[&str]) -> String {
    let near = known
        .iter()
        .max_by(|a, b| strsim::jaro_winkler(key, a).total_cmp(&strsim::jaro_winkler(key, b)));
    match near {
        Some(near) if strsim::jaro_winkler(key, near) > 0.7 => format!("; '{near}' is meant?"),
        _ => format!("; there are {}", known.join(", ")),
    }
}

fn nearest_of(name: &str, known: &[String]) -> String {
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    match nearest(name, &known) {
        near if near.starts_with("; '") => near,
        _ => String::new(),
    }
}
