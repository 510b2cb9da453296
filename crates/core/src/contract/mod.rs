//! What a world promises to the roles it drives.
//!
//! Protocols are written against these clauses, and every world (simulator, checker, service)
//! keeps them. They are also code: [`Probe`] is a protocol whose roles look at everything that
//! happens to them and report a [`Clause`] that their world has broken as a broken invariant. A
//! world that drives probes through its faults and hears no complaint conforms.
//!
//! # Calls
//! - **[`Clause::Asking`].** A user is called to ask only while no request of it is under way: at
//!   the start, or after `Released`. Its requests are numbered from 1, one by one, and carry its id.
//! - **[`Clause::Using`].** It is called `Done` once for each grant, and only then.
//! - **[`Clause::Leaving`].** It is called to leave at any stage, once, and then no more. The role is
//!   kept, and hears messages and timers, until it is idle. A user that said `Lost` counts as having
//!   left.
//!
//! # Lives
//! - **[`Clause::Succession`].** The next user of a lane begins when its predecessor uses nothing and
//!   will ask for nothing: it has left, or has stopped, or is idle and will not be called again. What the predecessor sent, and reports on it,
//!   may still be under way, and may arrive after messages of its successors. So generations grow.
//! - **[`Clause::Lapse`].** When a lease runs out, the client stops using what it holds; then its user
//!   is called to leave; then managers may be told to reclaim. So whoever was reclaimed and lives on
//!   goes on as the next user of its lane, also if it was idle when its lease ran out: a report on a
//!   user never meets a later request of the same user.
//!
//! # Messages
//! - **[`Clause::Sender`].** The sender that a message names is its sender.
//! - **[`Clause::Delivery`].** Messages arrive once and in order as far as the protocol assumes so
//!   ([`Assumes`](crate::Assumes)). What is sent to a user that is no longer there is dropped.
//! - **[`Clause::Silence`].** Once a role was told that a party has departed, it receives no message of
//!   that party any more; and if the party is a home, no report on one of its users either.
//!
//! # Reports
//! - **[`Clause::Departure`].** Only those who have stopped, or have left and are idle, are reported
//!   departed, and they use nothing any more. Reported of a home, it is true of every user of that
//!   life of the cell, of which there will be no others: what is remembered of them can be forgotten.
//! - **Suspicion.** Anybody that has begun may be suspected at any time, rightly or not, and may go on asking until its
//!   lease runs out. All a manager may conclude is that units the suspect does not hold are not in use.
//! - A report on a user is one on its predecessors as well. So nobody is reported on, in whatever way, before it
//!   has begun: then they have ended.
//!
//! # Timers
//! - **[`Clause::Timers`].** A timer rings only if it is armed, once for each arming.
//!
//! # What rests on what
//! Exclusion of `house` is proven from *Asking*, *Leaving*, *Succession*, *Lapse*, *Sender* and what is said of reports, and
//! is lost without each (`docs/proof.md`); that it leaves nothing behind, from *Delivery*, *Silence* and *Departure* besides.
//! *Timers* and *Using* are for progress.
//!
//! # Restarts
//! A role that comes back after a crash of its cell has the value it had, and its timers are armed again;
//! what it sent may be sent again or lost, as far as the protocol assumes. A cell that comes back without its roles' values
//! begins a new life.

mod probe;

use serde::{Deserialize, Serialize};

pub use self::probe::{Manager, Probe, Timer, ToManager, ToUser, User};
use crate::role::Broken;

/// A clause that a probe can see broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Clause {
    /// Users ask one request after another.
    Asking,
    /// Whoever is gone for certain has stopped.
    Departure,
    /// Messages arrive as often and in the order assumed.
    Delivery,
    /// A lease ends before what it covers is reclaimed.
    Lapse,
    /// Nobody is called after leaving.
    Leaving,
    /// Senders are true.
    Sender,
    /// The departed are not heard.
    Silence,
    /// Users of a lane follow each other.
    Succession,
    /// Timers ring as armed.
    Timers,
    /// `Done` is called once for each grant.
    Using,
}

impl Clause {
    /// That the world has broken it.
    const fn broken(self) -> Broken {
        Broken(match self {
            Self::Asking => "contract: users ask one request after another",
            Self::Departure => "contract: whoever is gone for certain has stopped",
            Self::Delivery => "contract: messages arrive as often and in the order assumed",
            Self::Lapse => "contract: a lease ends before what it covers is reclaimed",
            Self::Leaving => "contract: nobody is called after leaving",
            Self::Sender => "contract: senders are true",
            Self::Silence => "contract: the departed are not heard",
            Self::Succession => "contract: users of a lane follow each other",
            Self::Timers => "contract: timers ring as armed",
            Self::Using => "contract: `Done` is called once for each grant",
        })
    }
}
