//! A log in etcd: a cell that outlives its machine.
//!
//! One host leads it: a key under a lease. It appends batches in transactions that compare the
//! revision at which that key was made, so that a host that leads no longer can append nothing, and
//! tells nobody anything: effects leave when a transaction is committed. Others stand by.
//! `docs/replication.md` has the layout, and the argument why nothing is granted twice.
//!
//! | module | what it is |
//! |---|---|
//! | `layout`, `batch` | keys and values, pure |
//! | `kv` | what is needed of a store, etcd or simulated |
//! | `lead` | being elected, renewing the lease |
//! | `queue`, `writer` | appends, in groups, mostly one transaction at a time |
//! | `read` | reads a log as of one revision |
//! | `snapshot` | snapshots in pieces, and what is deleted then |
//! | `told` | what the watch tells |
//! | `log`, `store` | the log, and where it runs |
//! | `call`, `heir` | the host that leads next gets ready, called by the one that leads |
//! | `follow` | who leads, for those who look for it |
//! | `copy` | a cell in one file, and how it is put back |
//! | `remove` | a cell that nobody wants any more |
//! | `simulated` | a store that fails in every way, and what must be true all the same |

mod batch;
mod call;
mod copy;
mod follow;
mod heir;
mod kv;
mod layout;
mod lead;
mod log;
mod options;
mod queue;
mod read;
mod remove;
#[cfg(test)]
mod simulated;
mod snapshot;
mod store;
mod told;
mod writer;

pub use self::copy::CellCopy;
pub use self::follow::Following;
pub use self::heir::Ahead;
pub use self::layout::Leader;
pub use self::lead::EPOCHS_AHEAD;
pub use self::options::{Options, Seen, WhenLed};
pub use self::remove::Election;
pub use self::store::{Contents, EtcdLog, EtcdStore};
pub use holdall_etcd::Address;
