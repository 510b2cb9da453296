//! What is odd about a history, for people to read.

use std::fmt;
use std::mem::{Discriminant, discriminant};

use holdall_wire::Name;

use crate::words::{count, span};

/// Something odd, and what was made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Note {
    /// The last line of the last file is only half there.
    Torn {
        /// Which file.
        file: String,
        /// Which line.
        line: usize,
    },
    /// Lines that are none.
    Unreadable {
        /// Which file.
        file: String,
        /// The first of them.
        line: usize,
        /// How many.
        lines: usize,
    },
    /// A file of a later version.
    Later {
        /// Which file.
        file: String,
        /// Its version.
        version: u32,
    },
    /// Lines of a kind that this version does not know.
    Unknown(usize),
    /// Lines that were left out when the file was written.
    Gaps(u64),
    /// The clock was set back.
    JumpedBack {
        /// To what, in milliseconds since 1970.
        to: u64,
        /// By how many milliseconds, at least.
        by: u64,
    },
    /// The clock was set forward.
    JumpedForward {
        /// To what, in milliseconds since 1970.
        to: u64,
        /// By how many milliseconds, about.
        by: u64,
    },
    /// Uses whose end is not recorded.
    NoEnd(usize),
    /// Requests that were made before the history begins.
    NoAsk(usize),
    /// Requests of earlier starts of the agent of which nothing more is known.
    Forgotten(usize),
    /// A pool has got another number of units.
    Resized {
        /// The pool.
        pool: Name,
        /// How many it had.
        from: u32,
        /// How many it has.
        to: u32,
    },
    /// A pool is no more.
    Removed(Name),
    /// The number of units is not recorded.
    Guessed {
        /// The pool.
        pool: Name,
        /// How many have been seen.
        units: u32,
    },
    /// Requests that need more than there is.
    Clamped {
        /// Of which pool.
        pool: Name,
        /// How many there are.
        units: u32,
        /// How many requests.
        requests: usize,
    },
    /// Requests that cannot be played.
    LeftOut {
        /// How many.
        requests: usize,
        /// Why.
        why: &'static str,
    },
    /// Uses that have not ended yet.
    StillHeld(usize),
}

/// So many of a kind are told; there may be one for each of thousands of pools.
const OF_A_KIND: usize = 10;

impl Note {
    /// All of them in words: of each kind the first few, and how many more there are.
    pub fn tell<'a>(notes: impl IntoIterator<Item = &'a Self>) -> Vec<String> {
        let mut kinds: Vec<(Discriminant<Self>, usize, Vec<String>)> = Vec::new();
        for note in notes {
            let kind = discriminant(note);
            let at = kinds.iter().position(|(known, ..)| *known == kind).unwrap_or_else(|| {
                kinds.push((kind, 0, Vec::new()));
                kinds.len() - 1
            });
            let (_, count, told) = &mut kinds[at];
            *count += 1;
            if *count <= OF_A_KIND {
                told.push(note.to_string());
            }
        }
        let told = kinds.into_iter().flat_map(|(_, count, mut told)| {
            let more = count.saturating_sub(OF_A_KIND);
            told.extend((more > 0).then(|| format!("and so on, {more} times more")));
            told
        });
        told.collect()
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Torn { file, line } => {
                write!(f, "{file}: line {line}, the last one, is only half there: left out")
            }
            Self::Unreadable { file, line, lines } => {
                let lines = count(*lines, "line");
                write!(f, "{file}: {lines} cannot be read, the first is line {line}: left out")
            }
            Self::Later { file, version } => {
                write!(
                    f,
                    "{file} is of version {version}: left out; use a newer program to read it"
                )
            }
            Self::Unknown(lines) => {
                let lines = count(*lines, "line");
                write!(f, "{lines} of a kind that this version does not know: left out")
            }
            Self::Gaps(lines) => {
                let lines = count(*lines, "line");
                write!(f, "{lines} or more missing: the agent could not write them")
            }
            Self::JumpedBack { to, by } => set_clock(f, "back", *to, *by),
            Self::JumpedForward { to, by } => set_clock(f, "forward", *to, *by),
            Self::NoEnd(uses) => {
                let uses = count(*uses, "use");
                write!(
                    f,
                    "{uses} without a recorded end: taken to have ended when others got the units"
                )
            }
            Self::NoAsk(requests) => {
                let requests = count(*requests, "request");
                write!(
                    f,
                    "{requests} made before the history begins: how long that took is not known"
                )
            }
            Self::Forgotten(requests) => write!(
                f,
                "{} of earlier starts of the agent, neither granted nor ended: how long that took does not count",
                count(*requests, "request")
            ),
            Self::Resized { pool, from, to } => {
                write!(f, "'{pool}' had {} before it had {to}", count(*from, "unit"))
            }
            Self::Removed(pool) => write!(f, "'{pool}' is no more"),
            Self::Guessed { pool, units } => {
                write!(f, "how many units '{pool}' has is not recorded: {units} have been seen")
            }
            Self::Clamped { pool, units, requests } => write!(
                f,
                "{} for more of '{pool}' than its {}: for all of it when played",
                count(*requests, "request"),
                count(*units, "unit")
            ),
            Self::LeftOut { requests, why } => {
                write!(f, "{} left out: {why}", count(*requests, "request"))
            }
            Self::StillHeld(uses) => {
                write!(
                    f,
                    "{} without an end so far: taken to end with the history",
                    count(*uses, "use")
                )
            }
        }
    }
}

fn set_clock(f: &mut fmt::Formatter<'_>, how: &str, to: u64, by: u64) -> fmt::Result {
    let at = jiff::Timestamp::from_millisecond(to as i64);
    let at = at.map_or_else(|_| to.to_string(), |at| at.strftime("%F %T UTC").to_string());
    let by = span(by);
    write!(f, "the clock was set {how} to {at}, by {by}: spans go on as if it had not been")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_kind_a_few_are_told() {
        let pool = |n: u32| Note::Removed(format!("pool{n}").parse().expect("a name"));
        let mut notes: Vec<Note> = (0..10_000).map(pool).collect();
        notes.insert(5000, Note::NoEnd(3));
        let told = Note::tell(&notes);
        assert_eq!(told.len(), OF_A_KIND + 2);
        assert_eq!(
            (&*told[0], &*told[OF_A_KIND]),
            ("'pool0' is no more", "and so on, 9990 times more")
        );
        assert!(told[OF_A_KIND + 1].starts_with("3 uses without a recorded end"));
        assert_eq!(Note::tell([]), Vec::<String>::new());
    }
}
