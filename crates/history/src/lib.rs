//! What was asked for, granted and used, and what follows from it: who used what ([`usage`]), when it is somebody's
//! turn ([`forecast`]), and what would be if there were more or less ([`whatif`]).
//!
//! A history is kept as lines ([`Line`], `docs/history.md`), written by a [`Keeper`] and read by [`read`], which
//! also reads the audit log of an agent. [`History`] is what is made of them: a [`Use`] for each request.
//! [`Replay`] turns that into a trace for the simulator, and [`swf`] does the same with logs of other sites.
//!
//! # Invariants
//! - A history that is damaged is read as far as it goes: what is odd is told ([`Note`]), and nothing else is left out.
//! - Times inside a history never go back, whatever the clock did; [`History::wall`] tells what the clock said.

#![forbid(unsafe_code)]

mod audit;
mod clock;
mod event;
mod export;
pub mod forecast;
mod history;
mod holders;
mod join;
mod keep;
mod line;
mod note;
mod pools;
mod read;
mod record;
mod replay;
mod stats;
pub mod swf;
mod text;
mod told;
pub mod usage;
pub mod whatif;
mod words;

pub use self::export::{csv, json_lines};
pub use self::history::{History, Period, Use};
pub use self::keep::{Keeper, Retention, Trouble, files, is_of_later_version};
pub use self::line::{Ask, Expect, Grant, How, Line, Mark, VERSION, What};
pub use self::note::Note;
pub use self::pools::PoolSeen;
pub use self::read::{Recorded, Unreadable, parse, read, read_told, read_trace};
pub use self::record::lines;
pub use self::replay::{Asker, BadChange, Changes, Replay, agent_settings, served};
pub use self::stats::{Waits, percentile};
pub use self::told::Told;
