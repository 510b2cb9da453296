//! What cells say to each other.
//!
//! A request lives at its *home*, the cell of the agent that its client talks to, and there its user is. Each cell
//! *guards* its own pools with its manager. So a message is from a user to a manager of another cell, or back. Protocols
//! know pools by number; numbers mean nothing elsewhere, so the needs go along as people have written them, and what
//! was given comes back by name, with the fences of the guard.
//!
//! A link is a connection: what arrives is a beginning of what was sent, in order and once. After each new
//! connection a home first says which requests of its own there are ([`PeerMessage::Assert`]), and then
//! the roles send again whatever is not answered.
//!
//! This is the form of the network: new kinds are added at the end.

use std::collections::BTreeSet;
use std::sync::Arc;

use holdall_core::{CellId, RequestId};
use holdall_protocols::house::{ToManager, ToUser};
use holdall_wire::{NEEDS_MAX, Name, Need, Refusal, TEXT_MAX, Taken, UNITS_MAX, Who, needs_size};
use serde::{Deserialize, Serialize};

use crate::books::is_what_was_asked_for;

/// A message from one cell to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PeerMessage<M = ToManager, U = ToUser> {
    /// From a user to the manager of the other cell.
    ToManager {
        /// What; its pools are places in the order.
        message: M,
        /// What is asked for, unless it is given up.
        order: Option<Order>,
    },
    /// From the manager to a user of the other cell.
    ToUser {
        /// What; it names no units.
        message: U,
        /// The units, if it says that they are held.
        given: Option<Given>,
    },
    /// From a guard: the request will not be granted, and why. All of it is over there.
    Refused {
        /// The request.
        request: RequestId,
        /// Why.
        why: Refusal,
    },
    /// From a home: the request is a reservation that was granted, and lasts for so long, whatever becomes of its home.
    /// Said again, it lasts as long from then on. It is not so before the guard has said [`PeerMessage::Kept`].
    Keep {
        /// The request.
        request: RequestId,
        /// How long.
        term: Term,
    },
    /// From a home, before anything else: all its requests that have to do with this guard.
    Assert(Assertion),
    /// From a guard: it keeps the reservation for as long as it was told to, and that is on its disk.
    Kept {
        /// The request.
        request: RequestId,
        /// The mark of the term.
        mark: u64,
    },
}

/// The longest time that a reservation is renewed for, or kept by a guard: ten years.
pub const RESERVED_MAX: u64 = 10 * 366 * 24 * 3600 * 1000;

/// For how long a guard keeps a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Term {
    /// For so many milliseconds.
    pub millis: u64,
    /// What the home knows the answer by.
    pub mark: u64,
}

impl Term {
    /// The same, if it is not longer than anything may be reserved for.
    pub fn within_reason(self) -> Self {
        Self { millis: self.millis.min(RESERVED_MAX), ..self }
    }

    /// By how much longer than it was told a guard keeps a reservation: clocks run apart, and its home ends it in time.
    pub fn with_grace(self) -> u64 {
        const MOST: u64 = 3_600_000;
        self.millis.saturating_add((self.millis / 6).min(MOST))
    }
}

/// What is asked of a guard, and by whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// The needs that the guard is to see to, without its name.
    pub needs: Vec<Need>,
    /// Who asks, as the home knows it.
    pub who: Arc<Who>,
    /// Refuse at once what cannot be held at once.
    pub now: bool,
}

/// What a guard holds for a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Given {
    /// By name, with fences, as the guard names it.
    pub taken: Arc<[Taken]>,
    /// Whether it is given to others some time after the home was last heard of. Otherwise it stays until the
    /// home is back, or is forgotten.
    pub leased: bool,
}

/// The requests of a home that have to do with a guard. Those that the guard knows besides are over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assertion {
    /// Those that wait; and the stance under which they were told that something is held for them, if so.
    pub waiting: Vec<(RequestId, Option<u32>)>,
    /// Those that hold something there.
    pub held: Vec<Asserted>,
    /// Whether that were all; more follows otherwise.
    pub last: bool,
}

/// What a home has said so far over a link of what it has to do with here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asserting {
    /// What it has said.
    pub said: Assertion,
    /// The epoch of the start since which it remembers everything.
    pub since: u32,
}

/// A request that was granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asserted {
    /// The request.
    pub request: RequestId,
    /// What it had asked for.
    pub order: Order,
    /// What it was given.
    pub given: Given,
    /// If it is a reservation: for how long.
    pub term: Option<Term>,
}

/// How many requests are asserted in one message.
pub const ASSERTED_MAX: usize = 256;

/// How many requests a home has that span cells, and so at any guard, waiting or holding.
pub const AT_A_GUARD_MAX: usize = 4096;

/// How many needs these have together at one guard.
pub const NEEDS_AT_A_GUARD_MAX: usize = 65_536;

/// About how many bytes of what a home asserts a guard keeps until it has heard all.
pub const ASSERTED_BYTES_MAX: usize = 256 << 20;

/// In which lanes requests are that span cells: a guard remembers something of each.
pub const LANES_MAX: u32 = 1 << 16;

impl PeerMessage {
    /// Whether a guard says by this that it has nothing for a request any more.
    pub fn ends(&self) -> bool {
        matches!(self, Self::ToUser { message: ToUser::Over(_), .. } | Self::Refused { .. })
    }

    /// Looks whether an honest cell would say this to another: everything in it comes from elsewhere.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn check(&self, from: CellId, to: CellId) -> Result<(), &'static str> {
        let (senders, receivers) = (is_of(from), is_of(to));
        match self {
            Self::ToManager { message, order } => {
                sensible(senders(&message.request()), "a request that is not its own")?;
                let releases = matches!(message, ToManager::Release(_));
                sensible(releases == order.is_none(), "an order with a release, or none without")?;
                order.as_ref().map_or(Ok(()), Order::check)
            }
            Self::ToUser { message, given } => {
                sensible(receivers(&message.request()), "a request of somebody else")?;
                let holds = matches!(message, ToUser::Yes { .. });
                sensible(holds == given.is_some(), "something given without a yes, or nothing")?;
                given.as_ref().map_or(Ok(()), Given::check)
            }
            Self::Refused { request, .. } | Self::Kept { request, .. } => {
                sensible(receivers(request), "a request of somebody else")
            }
            Self::Keep { request, .. } => {
                sensible(senders(request), "a request that is not its own")
            }
            Self::Assert(Assertion { waiting, held, .. }) => {
                let many = waiting.len() + held.len() > ASSERTED_MAX;
                sensible(!many, "more requests than are asserted at once")?;
                let waiting = waiting.iter().map(|(request, _)| request);
                let mut all = waiting.chain(held.iter().map(|one| &one.request));
                sensible(all.all(senders), "a request that is not its own")?;
                held.iter().try_for_each(|one| {
                    one.order.check()?;
                    one.given.check()?;
                    let asked_for = is_what_was_asked_for(&one.order.needs, &one.given.taken);
                    sensible(asked_for, "something held that was not asked for")
                })
            }
        }
    }
}

/// Whether a request is that of a cell. Each user makes one.
fn is_of(cell: CellId) -> impl Fn(&RequestId) -> bool {
    move |request| {
        let user = request.user;
        user.home().cell == cell && user.lane().number < LANES_MAX && request.seq == 1
    }
}

fn sensible(is: bool, otherwise: &'static str) -> Result<(), &'static str> {
    if is { Ok(()) } else { Err(otherwise) }
}

/// Whether names are those of the guard's own things.
fn are_its_own<'a>(mut names: impl Iterator<Item = &'a Name>) -> Result<(), &'static str> {
    sensible(names.all(|name| name.cell().is_none()), "a name with a cell")
}

impl Assertion {
    /// About how many bytes it takes.
    pub fn size(&self) -> usize {
        let units = |one: &Asserted| -> usize {
            let units = one.given.taken.iter().flat_map(|taken| &taken.units);
            units.map(|(unit, _)| unit.as_str().len() + 64).sum()
        };
        let held = self
            .held
            .iter()
            .map(|one| 256 + one.order.who.size() + needs_size(&one.order.needs) + units(one));
        64 * self.waiting.len() + held.sum::<usize>()
    }
}

impl Order {
    fn check(&self) -> Result<(), &'static str> {
        are_its_own(self.needs.iter().map(|need| &need.name))?;
        let different: BTreeSet<_> = self.needs.iter().map(|need| &need.name).collect();
        sensible(different.len() == self.needs.len(), "a name that is asked for twice")?;
        let Who { user, host, from, .. } = &*self.who;
        let long = user.len().max(host.len()) > TEXT_MAX || from.size() > 3 * TEXT_MAX;
        sensible(!long, "words that are too long")?;
        sensible((1..=NEEDS_MAX).contains(&self.needs.len()), "too many needs, or none")
    }
}

impl Given {
    fn check(&self) -> Result<(), &'static str> {
        let units = || self.taken.iter().flat_map(|taken| &taken.units).map(|(unit, _)| unit);
        are_its_own(self.taken.iter().map(|taken| &taken.name).chain(units()))?;
        let pools: BTreeSet<_> = self.taken.iter().map(|taken| &taken.name).collect();
        let different: BTreeSet<_> = units().collect();
        sensible(pools.len() == self.taken.len(), "a pool that is given twice")?;
        sensible(different.len() == units().count(), "a unit that is given twice")?;
        let many = self.taken.len() > NEEDS_MAX || different.len() > 2 * UNITS_MAX as usize;
        sensible(!many && !self.taken.is_empty(), "too much that is given, or nothing")
    }
}

#[cfg(test)]
mod tests {
    use holdall_core::{Home, UserId};

    use super::*;

    const HOME: CellId = CellId(1);
    const GUARD: CellId = CellId(2);

    fn request(cell: CellId, seq: u64) -> RequestId {
        RequestId { user: UserId::first_at(Home { cell, ..Home::default() }, 0), seq }
    }

    fn order(needs: &[&str]) -> Option<Order> {
        let needs = needs.iter().map(|need| need.parse().expect("a need")).collect();
        Some(Order { needs, who: Arc::default(), now: false })
    }

    fn given(units: &[&str]) -> Option<Given> {
        let name = |text: &str| text.parse::<Name>().expect("a name");
        let units = units.iter().map(|unit| (name(unit), 1)).collect();
        Some(Given { taken: [Taken { name: name("board"), units }].into(), leased: true })
    }

    #[test]
    fn what_no_honest_cell_says_is_known() {
        let release = |request| ToManager::Release(request);
        let asks = |message, order| PeerMessage::ToManager { message, order }.check(HOME, GUARD);
        assert_eq!(asks(release(request(HOME, 1)), None), Ok(()));
        assert!(asks(release(request(HOME, 1)), order(&["board"])).is_err());
        assert!(asks(release(request(HOME, 2)), None).is_err(), "a user asks once");
        assert!(asks(release(request(GUARD, 1)), None).is_err(), "another's");
        let needs = holdall_core::Needs::new(vec![holdall_core::Need::any(Default::default(), 1)]);
        let attempt = || ToManager::attempt(request(HOME, 1), needs.clone().expect("needs"));
        assert_eq!(asks(attempt(), order(&["board"])), Ok(()));
        assert!(asks(attempt(), None).is_err());
        assert!(asks(attempt(), order(&[])).is_err());
        assert!(asks(attempt(), order(&["board@other"])).is_err());
        let says = |message, given| PeerMessage::ToUser { message, given }.check(GUARD, HOME);
        let units = holdall_core::Picked::new;
        let yes = || ToUser::Yes { request: request(HOME, 1), n: 0, units: units() };
        assert_eq!(says(yes(), given(&["board/0", "board/1"])), Ok(()));
        assert!(says(yes(), None).is_err());
        assert!(says(yes(), given(&["board/0", "board/0"])).is_err(), "a unit twice");
        assert!(says(yes(), given(&["board/0@c"])).is_err());
        assert!(says(ToUser::Over(request(HOME, 1)), given(&["board/0"])).is_err());
        let (request, order) = (request(HOME, 1), order(&["board"]).expect("one"));
        let given = given(&["board/0", "board/0"]).expect("some");
        let held = vec![Asserted { request, order, given, term: None }];
        let assertion = Assertion { waiting: Vec::new(), held, last: true };
        assert!(PeerMessage::Assert(assertion).check(HOME, GUARD).is_err());
    }

    /// Otherwise the engine and the books could take it for different things.
    #[test]
    fn what_is_asserted_is_what_was_asked_for_and_once() {
        let asserts = |needs: &[&str]| {
            let (order, given) = (order(needs).expect("one"), given(&["board/0"]).expect("some"));
            let held = vec![Asserted { request: request(HOME, 1), order, given, term: None }];
            PeerMessage::Assert(Assertion { waiting: Vec::new(), held, last: true })
                .check(HOME, GUARD)
        };
        assert_eq!(asserts(&["board"]), Ok(()));
        assert!(asserts(&["scope"]).is_err(), "something else");
        assert!(asserts(&["board:2"]).is_err(), "less");
        assert!(asserts(&["board", "board"]).is_err(), "twice");
    }
}
