//! Serves requests one after another if it is the first manager, and watches what reaches it.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use super::{Probe, ToManager, ToUser, What};
use crate::contract::Clause;
use crate::ids::{Addr, Party, PoolId, RequestId, UserId};
use crate::needs::{Needs, Request};
use crate::outbox::Outbox;
use crate::role::{Broken, Capacity, Event, Gone, Never, Resize, Role};

type Out = Outbox<Probe, Never>;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manager {
    serves: bool,
    capacity: BTreeMap<PoolId, u64>,
    waiting: VecDeque<Request>,
    held: Vec<Request>,
    heard: BTreeMap<UserId, Heard>,
    departed: BTreeSet<Party>,
    reclaimed: BTreeSet<UserId>,
    broken: Option<Clause>,
}

/// What a user has sent: so many messages, and later ones that came before others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Heard {
    count: u64,
    ahead: BTreeMap<u64, What>,
}

impl Manager {
    pub(super) fn new(serves: bool, capacity: impl Iterator<Item = (PoolId, u64)>) -> Self {
        Self {
            serves,
            capacity: capacity.collect(),
            waiting: VecDeque::new(),
            held: Vec::new(),
            heard: BTreeMap::new(),
            departed: BTreeSet::new(),
            reclaimed: BTreeSet::new(),
            broken: None,
        }
    }

    /// The requests that wait, in the order in which they will be served.
    pub fn waiting(&self) -> Vec<RequestId> {
        self.waiting.iter().map(|request| request.id).collect()
    }

    pub(super) fn knows_departed(&self, user: UserId) -> bool {
        self.departed.iter().any(|party| party.includes(user))
    }

    pub(super) fn has_reclaimed(&self, user: UserId) -> bool {
        self.reclaimed.contains(&user)
    }

    fn complain(&mut self, clause: Clause) {
        self.broken.get_or_insert(clause);
    }

    fn on_message(&mut self, from: Addr, msg: ToManager, out: &mut Out) {
        let ToManager { n, user, what } = msg;
        if from != Addr::User(user) {
            return self.complain(Clause::Sender);
        }
        if self.knows_departed(user) {
            return self.complain(Clause::Silence);
        }
        let heard = self.heard.entry(user).or_default();
        if n < heard.count || heard.ahead.insert(n, what).is_some() {
            return self.complain(Clause::Delivery);
        }
        while let Some(what) = self.next_of(user) {
            self.take(user, what, out);
        }
    }

    /// The next message of a user in the order in which it sent them, if it is there.
    fn next_of(&mut self, user: UserId) -> Option<What> {
        let heard = self.heard.get_mut(&user)?;
        let what = heard.ahead.remove(&heard.count)?;
        heard.count += 1;
        Some(what)
    }

    fn take(&mut self, user: UserId, what: What, out: &mut Out) {
        match what {
            What::Leave => {
                self.forget(Party::User(user));
                out.to_user(user, ToUser::Farewell);
            }
            _ if !self.serves || self.reclaimed.contains(&user) => {}
            What::Ask(request) => self.waiting.push_back(request),
            What::Release(id) => self.held.retain(|request| request.id != id),
        }
        self.serve(out);
    }

    fn forget(&mut self, who: Party) {
        self.waiting.retain(|request| !who.includes(request.id.user));
        self.held.retain(|request| !who.includes(request.id.user));
    }

    fn serve(&mut self, out: &mut Out) {
        while let Some(request) =
            self.waiting.pop_front_if(|first| fits(&self.capacity, &self.held, &first.needs))
        {
            out.to_user(request.id.user, ToUser::Granted(request.id));
            self.held.push(request);
        }
    }

    fn on_gone(&mut self, gone: Gone, out: &mut Out) {
        match gone {
            Gone::Departed(party) => {
                self.departed.insert(party);
                self.heard.retain(|user, _| !party.includes(*user));
                self.forget(party);
            }
            Gone::Reclaimed(user) => {
                self.reclaimed.insert(user);
                self.forget(Party::User(user));
            }
            Gone::Suspected(_) => {}
        }
        self.serve(out);
    }
}

/// Whether these needs fit beside what is held.
fn fits(capacity: &BTreeMap<PoolId, u64>, held: &[Request], needs: &Needs) -> bool {
    needs.iter().all(|need| {
        let same = held.iter().flat_map(|request| request.needs.iter());
        let used: u64 = same.filter(|h| h.pool == need.pool).map(|h| u64::from(h.units)).sum();
        used + u64::from(need.units) <= capacity.get(&need.pool).copied().unwrap_or(0)
    })
}

impl Role for Manager {
    type P = Probe;
    type Call = Resize;
    type Msg = ToManager;
    type Timer = Never;

    fn step(&mut self, _: &Probe, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Call(Resize { pool, capacity }) => {
                let units = match capacity {
                    Capacity::Counted(units) => u64::from(units),
                    Capacity::Listed { units, away } => units.difference(&away).count() as u64,
                };
                self.capacity.insert(pool, units);
                self.serve(out);
            }
            Event::Gone(gone) => self.on_gone(gone, out),
            Event::Message { from, msg } => self.on_message(from, msg, out),
            Event::Timer(never) => match never {},
        }
    }

    fn check(&self, _: &Probe) -> Result<(), Broken> {
        self.broken.map_or(Ok(()), |clause| Err(clause.broken()))
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.held.is_empty()
    }
}
