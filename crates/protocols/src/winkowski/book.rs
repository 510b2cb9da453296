//! The book of one pool: who stands where, and what each of them sees.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use holdall_core::{Broken, ManagerId, Origin, Party, RequestId};
use serde::{Deserialize, Serialize};

use super::{Level, Number, Rules, Settings, Stance, Ticket, Turn, Version, View};
use crate::lanes::ends_with;

/// A task at a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Entry {
    /// Its latest stance.
    pub(super) n: Turn,
    /// The latest view it was sent since.
    pub(super) version: Version,
    pub(super) level: Level,
    units: u32,
    ticket: Option<Ticket>,
    /// If admitted: it waits elsewhere.
    passive: bool,
    /// It uses, and may be dead.
    suspected: bool,
    /// Whom it found competing when it registered, and who still does.
    predecessors: BTreeSet<RequestId>,
    /// What it was told last.
    pub(super) told: Option<View>,
}

impl Entry {
    fn competes(&self) -> bool {
        (Level::Adm..=Level::Ord).contains(&self.level)
    }
}

/// Everybody at one pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Book {
    capacity: u32,
    pub(super) entries: BTreeMap<RequestId, Entry>,
    /// Those who request or have ordered, in the order of their requests.
    queue: Vec<RequestId>,
    /// The greatest number on a ticket that was ever here. Never forgotten: a ticket taken when
    /// nobody competes must be above those that are still under way.
    top: Number,
}

impl Book {
    pub(super) fn new(capacity: u32, origin: Origin) -> Self {
        let top = Number::first(origin);
        Self { capacity, entries: BTreeMap::new(), queue: Vec::new(), top }
    }

    /// Whether a stance makes sense here. Without orders nobody passes others either: whoever fits once
    /// fits until it uses.
    pub(super) fn accepts(&self, settings: Settings, orders: bool, stance: &Stance) -> bool {
        let advances = stance.level == Level::Req && stance.special;
        let competes = (Level::Adm..=Level::Ord).contains(&stance.level);
        let possible = match self.entries.get(&stance.request).map(|entry| entry.level) {
            None => stance.level <= Level::Reg,
            Some(Level::Use) => matches!(stance.level, Level::Out | Level::Use),
            Some(level) => stance.level != Level::Use || level >= Level::Req,
        };
        (1..=self.capacity).contains(&stance.units)
            && competes == stance.ticket.is_some()
            && stance.ticket.is_none_or(|ticket| {
                ticket == settings.ticket(ticket.number, stance.request.user.lane())
            })
            && (orders || stance.level != Level::Ord && !advances)
            && possible
    }

    /// Whether a task was told a number on a ticket that no honest manager has seen.
    pub(super) fn was_led_astray(&self, stance: &Stance) -> bool {
        stance.ticket.is_some_and(|ticket| ticket.number.leaps_beyond(self.top))
    }

    /// Follows a task to its new stance, as far as the game allows; its level tells how far.
    pub(super) fn follow(&mut self, rules: &Rules, orders: bool, at: ManagerId, stance: &Stance) {
        let id = stance.request;
        match stance.level {
            Level::Out => self.remove(id),
            Level::Reg => self.register(rules, at, stance),
            Level::Adm => {
                self.dequeue(id);
                self.compete(stance, Level::Adm);
            }
            Level::Req | Level::Ord => {
                if !self.queue.contains(&id) {
                    self.queue.push(id);
                    self.compete(stance, Level::Req);
                }
                if stance.level == Level::Ord && (self.fits(id) || !rules.orders) {
                    self.set_level(id, Level::Ord);
                } else if stance.special {
                    self.advance(id);
                }
            }
            Level::Use => {
                let from = self.entries.get(&id).map(|entry| entry.level);
                let won = from == Some(Level::Ord) || !orders && self.fits(id);
                if won {
                    self.dequeue(id);
                    self.leave_competition(id);
                    self.set_level(id, Level::Use);
                }
            }
        }
        if let Some(entry) = self.entries.get_mut(&id) {
            (entry.n, entry.version) = (stance.n, Version::first(id.user, at));
        }
    }

    /// A newcomer notes whom it has to wait for. A competitor that registers again has none.
    fn register(&mut self, rules: &Rules, at: ManagerId, stance: &Stance) {
        let id = stance.request;
        if self.entries.contains_key(&id) {
            self.dequeue(id);
            self.leave_competition(id);
            return self.set_level(id, Level::Reg);
        }
        let competes = |(id, entry): (&RequestId, &Entry)| entry.competes().then_some(*id);
        let predecessors = match rules.predecessors {
            true => self.entries.iter().filter_map(competes).collect(),
            false => BTreeSet::new(),
        };
        let entry = Entry {
            n: stance.n,
            version: Version::first(id.user, at),
            level: Level::Reg,
            units: stance.units,
            ticket: None,
            passive: false,
            suspected: false,
            predecessors,
            told: None,
        };
        self.entries.insert(id, entry);
    }

    fn compete(&mut self, stance: &Stance, level: Level) {
        if let Some(entry) = self.entries.get_mut(&stance.request) {
            entry.predecessors.clear();
            (entry.level, entry.ticket) = (level, stance.ticket);
            self.top = stance.ticket.map_or(self.top, |ticket| self.top.max(ticket.number));
            entry.passive = level == Level::Adm && stance.special;
        }
    }

    fn set_level(&mut self, id: RequestId, level: Level) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.level = level;
        }
    }

    /// Those of lower priority without an order fall behind the request.
    fn advance(&mut self, id: RequestId) {
        let Some(at) = self.queue.iter().position(|other| *other == id) else { return };
        let mine = self.entries.get(&id).and_then(|entry| entry.ticket);
        let yields = |other: &RequestId| {
            let entry = &self.entries[other];
            entry.level == Level::Req && entry.ticket > mine
        };
        let (behind, mut before): (Vec<_>, Vec<_>) =
            self.queue[..at].iter().copied().partition(yields);
        before.push(id);
        before.extend(behind);
        self.queue[..=at].copy_from_slice(&before);
    }

    fn dequeue(&mut self, id: RequestId) {
        self.queue.retain(|other| *other != id);
    }

    /// Nobody waits for it any more, and it gives its ticket back.
    fn leave_competition(&mut self, id: RequestId) {
        for entry in self.entries.values_mut() {
            entry.predecessors.remove(&id);
        }
        if let Some(entry) = self.entries.get_mut(&id) {
            (entry.ticket, entry.passive) = (None, false);
        }
    }

    /// Takes a task out of the game.
    pub(super) fn remove(&mut self, id: RequestId) {
        self.dequeue(id);
        self.leave_competition(id);
        self.entries.remove(&id);
    }

    /// The tasks that a report on a party ends.
    pub(super) fn of(&self, who: Party) -> Vec<RequestId> {
        self.entries.keys().copied().filter(|id| ends_with(*id, who)).collect()
    }

    /// Notes that a task may be dead, if it uses; false if it does not.
    pub(super) fn suspect(&mut self, id: RequestId) -> bool {
        let entry = self.entries.get_mut(&id).filter(|entry| entry.level == Level::Use);
        entry.map(|entry| entry.suspected = true).is_some()
    }

    pub(super) fn top(&self) -> Number {
        self.top
    }

    /// The units of those others that a task has to reckon with.
    fn units(&self, except: RequestId, counts: impl Fn(&Entry) -> bool) -> u64 {
        let others = self.entries.iter().filter(|(id, entry)| **id != except && counts(entry));
        others.map(|(_, entry)| u64::from(entry.units)).sum()
    }

    /// What is used or ordered by others.
    fn taken(&self, id: RequestId) -> u64 {
        self.units(id, |entry| entry.level >= Level::Ord)
    }

    /// What is requested by those before a task in the queue, where some count: all in the queue
    /// if the task is not.
    fn before(&self, id: RequestId, counts: impl Fn(&Entry) -> bool) -> u64 {
        let before = self.queue.iter().take_while(|other| **other != id);
        let entries = before.map(|other| &self.entries[other]);
        entries.filter(|e| e.level == Level::Req && counts(e)).map(|e| u64::from(e.units)).sum()
    }

    fn has_room(&self, id: RequestId, beside: u64) -> bool {
        let units = self.entries.get(&id).map_or(0, |entry| u64::from(entry.units));
        beside + units <= u64::from(self.capacity)
    }

    /// Whether its units are free beside all that are before it.
    fn fits(&self, id: RequestId) -> bool {
        self.has_room(id, self.taken(id) + self.before(id, |_| true))
    }

    /// Condition (p2), and that it is not somebody else's turn.
    fn may(&self, rules: &Rules, settings: Settings, id: RequestId) -> bool {
        let me = &self.entries[&id];
        let first = |other: &Entry| other.ticket < me.ticket || !rules.priority;
        let turn = |other: &Entry| other.level == Level::Adm && !other.passive && first(other);
        let turns = match settings.turns && me.level == Level::Adm {
            true => self.units(id, turn),
            false => 0,
        };
        self.has_room(id, self.taken(id) + self.before(id, first) + turns)
    }

    /// What a task sees.
    pub(super) fn view(&self, rules: &Rules, settings: Settings, id: RequestId) -> View {
        let entry = &self.entries[&id];
        let level = entry.level;
        let waits = level == Level::Reg && !entry.predecessors.is_empty();
        let competes = entry.competes();
        let suspected = || self.units(id, |other| other.suspected);
        View {
            level,
            waits,
            may: level == Level::Ord || competes && self.may(rules, settings, id),
            fits: match level {
                Level::Reg => !waits && settings.fast && self.fits(id),
                Level::Req => self.fits(id),
                _ => false,
            },
            stranded: rules.strand && level <= Level::Req && !self.has_room(id, suspected()),
        }
    }

    pub(super) fn check(&self) -> Result<(), Broken> {
        let taken = self.entries.values().filter(|entry| entry.level >= Level::Ord);
        let taken: u64 = taken.map(|entry| u64::from(entry.units)).sum();
        Broken::unless(
            taken <= u64::from(self.capacity),
            "W1: what is used and what is ordered fit into the pool",
        )?;
        let queued = |entry: &Entry| matches!(entry.level, Level::Req | Level::Ord);
        let queue: BTreeSet<_> = self.queue.iter().copied().collect();
        let same = self.entries.iter().all(|(id, entry)| queued(entry) == queue.contains(id));
        Broken::unless(
            same && self.queue.iter().all(|id| self.entries.contains_key(id)),
            "W2: exactly those who request or have ordered stand in the queue",
        )?;
        let competes = |id: &RequestId| self.entries.get(id).is_some_and(Entry::competes);
        let sound = |entry: &Entry| {
            let none = entry.predecessors.is_empty();
            none || entry.level == Level::Reg && entry.predecessors.iter().all(competes)
        };
        Broken::unless(
            self.entries.values().all(sound),
            "W3: only the registered have predecessors, and all of them compete",
        )
    }
}
