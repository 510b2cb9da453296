//! The durable log of a cell: what happens to it is kept before its effects leave.
//!
//! A cell is a deterministic state machine; its log is what it remembers. The log knows nothing of
//! the cell: records and snapshots are bytes under a *logic number*, the version of the code that
//! wrote them.
//!
//! [`Store::open`] gives a snapshot and the records after it, and a [`Log`] to go on with.
//! [`Log::append`] numbers a record and never waits; [`Log::flush`] hands over what was appended,
//! and does not wait either. A [`Watch`] tells how far the log has come: whatever rests on a record
//! (a message, a reply, also the answer to a question) may leave when [`Progress::may_leave`] has
//! reached its index.
//!
//! | module | what it is |
//! |---|---|
//! | `log`, `watch`, `error` | the contract |
//! | [`mod@file`] | a log in a directory; the format is in `docs/log.md` |
//! | [`etcd`] | a log in etcd, led by one host at a time; the layout is in `docs/replication.md` |
//! | [`memory`] | a log in memory, led by whoever opened it last, as one in a replicated store is |
//! | [`epoch`] | the number that only grows, kept in two places |
//! | [`disk`] | what the file log needs of a disk: real, or simulated with its crashes |
//! | [`conformance`] | what every log promises, as tests |
//!
//! # Invariants
//! - **Prefix.** What a log gives when it is opened is a prefix of what was appended, and contains
//!   everything up to the last `may_leave` that was told; after a crash of the machine, up to the
//!   last `synced`.
//! - **Memory.** If less than what may have left can be there, [`Opened::memory`] says
//!   [`Memory::Lost`], and epoch and life are new. The end of a process loses nothing.
//! - **Epoch.** Each log that is opened has a higher epoch than all before, unless nothing was lost
//!   and the disk is full; it is synced in both its places before the log can be used.
//! - **One leader.** Of two logs on one store at most one moves its watch.
//!
//! # Cost
//! `cargo run -p holdall-log --example cost` measures it; figures are in `docs/log.md`.

#![forbid(unsafe_code)]

pub mod conformance;
pub mod disk;
pub mod epoch;
mod error;
pub mod etcd;
pub mod file;
mod log;
pub mod memory;
mod watch;

pub use self::error::{Error, OpenError};
pub use self::log::{
    Class, Entry, Identity, Index, Life, Log, Lost, Memory, Opened, PAYLOAD_MAX, Record, Snapshot,
    SnapshotJob, Store,
};
pub use self::watch::{Progress, Watch};
