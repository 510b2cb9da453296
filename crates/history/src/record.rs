//! What the simulator made of requests, as a history: a history of something that never happened.

use std::collections::{BTreeMap, BTreeSet};

use holdall_core::Needs;
use holdall_sim::Fate;
use holdall_wire::{Amount, Name, Need, RequestNo};

use crate::line::{Ask, Grant, How, Line, VERSION, What};
use crate::replay::Replay;

/// The lines of that history, in order. Units are picked here: the lowest that are free.
pub fn lines(replay: &Replay, fates: &[Fate]) -> Vec<Line> {
    let at = |tick: u64| replay.begin + tick;
    let mut lines = vec![Line { at: at(0), what: What::Begin { v: VERSION } }];
    for (number, pool) in replay.pools.iter().enumerate() {
        let units = replay.trace.pools[number].capacity;
        let units = (!replay.locks.contains(&number)).then_some(units);
        lines.push(Line { at: at(0), what: What::Pool { pool: pool.clone(), units } });
    }
    // What ends at a time is free at that time.
    let mut steps: Vec<(u64, Step, usize)> = Vec::new();
    for (request, fate) in fates.iter().enumerate() {
        let asked = replay.trace.requests[request].at;
        steps.push((asked, Step::Ask, request));
        steps.extend(fate.granted.map(|tick| (tick, Step::Grant, request)));
        steps.extend(fate.ended.map(|tick| {
            let at_once = tick == fate.granted.unwrap_or(asked);
            (tick, if at_once { Step::EndAtOnce } else { Step::End }, request)
        }));
    }
    steps.sort();
    let mut desk = Desk::new(replay);
    for (tick, step, request) in steps {
        let r = RequestNo((1 << 32) | (request as u64 + 1));
        let what = match step {
            Step::Ask => What::Ask(desk.ask(request, r)),
            Step::Grant => What::Grant(desk.grant(request, r)),
            Step::End | Step::EndAtOnce => {
                desk.end(request);
                let granted = fates[request].granted.is_some();
                let how = if granted { How::Released } else { How::Withdrawn };
                What::End { r, how, user: None }
            }
        };
        lines.push(Line { at: at(tick), what });
    }
    lines
}

/// What happens to a request, in the order of one tick.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    End,
    Ask,
    Grant,
    /// What takes no time.
    EndAtOnce,
}

/// Who has which units.
struct Desk<'a> {
    replay: &'a Replay,
    free: Vec<BTreeSet<u32>>,
    /// Units of each pool that were never given out: from this number on.
    fresh: Vec<u32>,
    held: BTreeMap<usize, Vec<(usize, Vec<u32>)>>,
}

impl<'a> Desk<'a> {
    fn new(replay: &'a Replay) -> Self {
        let pools = replay.pools.len();
        Self {
            replay,
            free: vec![BTreeSet::new(); pools],
            fresh: vec![0; pools],
            held: BTreeMap::new(),
        }
    }

    fn needs(&self, request: usize) -> &'a Needs {
        &self.replay.trace.requests[request].needs
    }

    fn unit(&self, pool: usize, unit: u32) -> Name {
        let pool = &self.replay.pools[pool];
        format!("{pool}/{unit}").parse().unwrap_or_else(|_| pool.clone())
    }

    fn ask(&self, request: usize, r: RequestNo) -> Ask {
        let mut needs = Vec::new();
        for need in self.needs(request).iter() {
            let (pool, all) =
                (need.pool.index(), self.replay.trace.pools[need.pool.index()].capacity);
            let name = self.replay.pools[pool].clone();
            if self.replay.locks.contains(&pool) {
                let shared = need.units < all;
                let amount = if shared { Amount::Shared } else { Amount::One };
                needs.push(Need { name, amount });
                continue;
            }
            for unit in &need.named {
                needs.push(Need { name: self.unit(pool, *unit), amount: Amount::One });
            }
            match need.more() {
                0 => {}
                1 => needs.push(Need { name, amount: Amount::One }),
                more => needs.push(Need { name, amount: Amount::Units(more) }),
            }
        }
        let asker = &self.replay.askers[request];
        let text = |text: &Option<std::sync::Arc<str>>| text.as_deref().map(Into::into);
        Ask {
            r: Some(r),
            user: text(&asker.user),
            name: text(&asker.name),
            command: text(&asker.command),
            needs,
            ..Ask::default()
        }
    }

    fn grant(&mut self, request: usize, r: RequestNo) -> Grant {
        let (mut got, mut held) = (BTreeMap::new(), Vec::new());
        for need in self.needs(request).iter() {
            let pool = need.pool.index();
            let name = self.replay.pools[pool].clone();
            if self.replay.locks.contains(&pool) {
                got.insert(name.clone(), vec![name]);
                continue;
            }
            for unit in &need.named {
                self.make(pool, *unit + 1);
                self.free[pool].remove(unit);
            }
            let mut units: Vec<u32> = need.named.iter().copied().collect();
            for _ in 0..need.more() {
                if self.free[pool].is_empty() {
                    self.make(pool, self.fresh[pool] + 1);
                }
                units.extend(self.free[pool].pop_first());
            }
            got.insert(name, units.iter().map(|unit| self.unit(pool, *unit)).collect());
            held.push((pool, units));
        }
        self.held.insert(request, held);
        Grant { r, got, ..Grant::default() }
    }

    /// Takes the units before this number into use.
    fn make(&mut self, pool: usize, before: u32) {
        let new = self.fresh[pool]..before.max(self.fresh[pool]);
        self.free[pool].extend(new.clone());
        self.fresh[pool] = new.end;
    }

    fn end(&mut self, request: usize) {
        for (pool, units) in self.held.remove(&request).unwrap_or_default() {
            self.free[pool].extend(units);
        }
    }
}
