//! The whole state of an engine, as it is kept: whoever reads it goes on with the same effects.
//!
//! Maps are written in the order of their keys, so that equal states are equal bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdall_core::{Protocol, Rung, UserId};
use holdall_wire::{Ask, Kind, Name, RequestNo, Who};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::cells::Cells;
use super::ledger::Ledger;
use super::roles::{Slot, Timers};
use super::users::Users;
use super::{Defect, Effect, Engine, Entry, Serving, TimerNo};

/// What is kept of an engine, to be written.
#[derive(Serialize)]
#[serde(bound = "")]
struct Written<'a, P: Protocol> {
    manager: &'a P::Manager,
    users: Vec<(UserId, &'a Slot<P>)>,
    requests: Vec<(&'a RequestNo, &'a Entry)>,
    ledger: &'a Ledger,
    cells: &'a Cells<P>,
    timers: &'a Timers<P>,
    counter: u64,
    lanes: &'a [UserId],
    lanes_made: u32,
    now: u64,
    ephemeral: bool,
}

/// The same, as it is read.
#[derive(Deserialize)]
#[serde(bound = "")]
struct Read<P: Protocol> {
    manager: P::Manager,
    users: Vec<(UserId, Box<Slot<P>>)>,
    requests: Vec<(RequestNo, Box<Entry>)>,
    ledger: Ledger,
    cells: Cells<P>,
    timers: Timers<P>,
    counter: u64,
    lanes: Vec<UserId>,
    lanes_made: u32,
    now: u64,
    ephemeral: bool,
}

impl<P: Protocol<Manager: Serving>> Serialize for Engine<P> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // All fields are named, so that none is forgotten. Some follow from others; between steps
        // the rest is empty room.
        let Self {
            cfg: _,
            manager,
            users,
            requests,
            held: _,
            inside: _,
            parts: _,
            ledger,
            cells,
            timers,
            mail: _,
            outgoing: _,
            lost: _,
            of_user: _,
            of_manager: _,
            resizes: _,
            doomed: _,
            effects: _,
            counter,
            lanes,
            lanes_made,
            now,
            ephemeral,
        } = self;
        let users = users.sorted();
        let mut requests: Vec<_> =
            requests.iter().map(|(request, entry)| (request, &**entry)).collect();
        requests.sort_unstable_by_key(|(request, _)| **request);
        let (counter, lanes_made, now, ephemeral) = (*counter, *lanes_made, *now, *ephemeral);
        let written = Written {
            manager,
            users,
            requests,
            ledger,
            cells,
            timers,
            counter,
            lanes,
            lanes_made,
            now,
            ephemeral,
        };
        written.serialize(to)
    }
}

impl<'de, P: Protocol<Manager: Serving>> Deserialize<'de> for Engine<P> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let state = Read::<P>::deserialize(from)?;
        let mut engine = Self::new(None, 0, state.ephemeral).map_err(de::Error::custom)?;
        P::Manager::settle(&mut engine.cfg, state.cells.home.cell);
        let mut users = Users::new(state.cells.home);
        state.users.into_iter().for_each(|(user, slot)| users.insert(user, slot));
        let holds =
            |(request, entry): &(RequestNo, Box<Entry>)| entry.taken.is_some().then_some(*request);
        let held = state.requests.iter().filter_map(holds).collect();
        let mut inside: BTreeMap<RequestNo, BTreeSet<RequestNo>> = BTreeMap::new();
        let mut parts: BTreeMap<RequestNo, BTreeSet<RequestNo>> = BTreeMap::new();
        for (request, entry) in &state.requests {
            if let Some(outer) = entry.besides.within {
                inside.entry(outer).or_default().insert(*request);
            }
            if let Some(whole) = entry.besides.part_of {
                parts.entry(whole).or_default().insert(*request);
            }
        }
        Ok(Self {
            manager: state.manager,
            users,
            requests: state.requests.into_iter().collect(),
            held,
            inside,
            parts,
            ledger: state.ledger,
            cells: state.cells,
            timers: state.timers,
            counter: state.counter,
            lanes: state.lanes,
            lanes_made: state.lanes_made,
            now: state.now,
            ..engine
        })
    }
}

/// How an engine goes on after its host has started again.
impl<P: Protocol<Manager: Serving>> Engine<P> {
    /// Numbers are above an epoch from now on; with `ephemeral`, locks are made on first use.
    pub fn start(&mut self, epoch: u32, ephemeral: bool) {
        self.go_above(u64::from(epoch) << 32);
        self.ephemeral = ephemeral;
    }

    /// Numbers are above one that was used.
    pub fn go_above(&mut self, number: u64) {
        self.counter = self.counter.max(number);
    }

    /// As a new request, for one that has its number from an engine before this one.
    ///
    /// # Errors
    /// If an invariant is broken. Nothing may then be granted any more.
    pub fn ask_again(
        &mut self,
        now: u64,
        request: RequestNo,
        who: Arc<Who>,
        ask: &Arc<Ask>,
    ) -> Result<Vec<Effect>, Defect> {
        self.now = now;
        self.go_above(request.0);
        self.on_ask(request, who, ask, None)?;
        Ok(std::mem::take(&mut self.effects))
    }

    /// A grant that was put in force again was asked inside another.
    pub fn put_within(&mut self, request: RequestNo, within: Option<RequestNo>) {
        let Some(uid) = self.who(request).map(|who| who.uid) else { return };
        let within = self.nest(request, uid, within);
        if let Some(entry) = self.requests.get_mut(&request) {
            entry.besides.change(|besides| besides.within = within);
        }
    }

    /// The timers that are armed: each with its rung, and since when.
    pub fn armed(&self) -> impl Iterator<Item = (TimerNo, Rung, u64)> {
        self.timers.armed.iter().map(|(timer, (rung, since))| (*timer, *rung, *since))
    }

    /// What a declared pool consists of; none if there is no such pool, or it is being removed.
    pub fn kind(&self, name: &Name) -> Option<Kind> {
        let (_, pool) = self.ledger.find(name)?;
        pool.declared.then(|| pool.kind())
    }
}
