//! The processes that hold a grant: started, known, contained and ended.
//!
//! A [`Holder`] is everything that runs under one grant. Where there are cgroups it is a cgroup,
//! which `setsid` does not leave and which the kernel watches and kills as one. Elsewhere it is a family of
//! processes, each known by a pidfd.
//!
//! # Invariants
//! - What is not known to be gone is alive: an error is never taken for an end.
//! - Nothing is signalled by a number that may belong to somebody else by now: either by pidfd, or
//!   by a cgroup of our own, or as a child that has not been waited for.
//! - Waiting is for events. `/proc` is read once for each question about a family, not in a loop.

mod boot;
mod cgroup;
mod environment;
mod family;
mod holder;
mod passing;
mod process;
mod raw;
mod signals;
mod spawn;
mod stream;

pub use boot::{boottime, until_boottime};
pub use cgroup::{Cgroup, Cgroups, Mount, NoCgroups};
pub use environment::{Environment, directory, with_environment};
pub use family::{Family, NotAHolder, children, descendants, seen_descendants};
pub use holdall_wire::holder::{CgroupId, ProcessId, Record};
pub use holder::{Holder, boot};
pub use nix::sys::signal::SigSet;
pub use passing::{Peer, inherited, receive, send, take_no_descriptors};
pub use process::{Process, is_gone, stopped, until_gone};
pub use raw::set_mask;
pub use signals::{Caught, Signals, end_by, survive_file_limits};
pub use spawn::{Child, Command, Ended, Start};
pub use stream::{Readable, Stream};
