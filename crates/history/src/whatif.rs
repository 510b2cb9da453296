//! What would be: recorded requests, played again with something changed, beside the same requests unchanged.

mod find;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::ControlFlow;

use holdall_sim::{Contender, Error, Fate, Played, Progress, Settings, play_told, trace_settings};
use holdall_wire::Name;
use serde::Serialize;

pub use self::find::{Found, Goal, find};
use crate::history::covered;
use crate::replay::{BadChange, Replay, agent_settings};
use crate::stats::Waits;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// The change cannot be made.
    #[error(transparent)]
    Change(#[from] BadChange),
    /// The protocol cannot be played like that, or went wrong.
    #[error(transparent)]
    Sim(#[from] Error),
    /// The protocol granted something twice.
    #[error("{0} broke exclusion {1} times")]
    Broken(String, u64),
    /// Too many wait.
    #[error("{how}: more than {most} requests wait at once, {} hours on: it cannot be served (--most-waiting plays on)", after / 3_600_000)]
    Overloaded {
        /// What was played.
        how: String,
        /// So many may wait.
        most: usize,
        /// After how many milliseconds it was broken off.
        after: u64,
    },
    /// No number of units is enough.
    #[error(
        "{goal} cannot be had with any number of units of '{pool}': {value} with {most}; something else is short"
    )]
    Never {
        /// What was wanted.
        goal: Goal,
        /// Of which pool.
        pool: Name,
        /// The most units that were tried.
        most: u32,
        /// What it is with these.
        value: String,
    },
}

/// Figures of some requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figures {
    /// Their waits, in milliseconds.
    pub waits: Waits,
    /// How many were given up.
    pub given_up: usize,
    /// The share of the unit-time that was used; only of a pool.
    pub utilisation: Option<f64>,
}

/// What became of all requests.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// All of them.
    pub all: Figures,
    /// Those that need something of a pool.
    pub pools: BTreeMap<String, Figures>,
    /// Those of a user; `-` if it is not recorded.
    pub users: BTreeMap<String, Figures>,
    /// All waits.
    #[serde(skip)]
    pub waits: Vec<u64>,
}

/// How near the replay of the unchanged history comes to what was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Nearness {
    /// Requests whose wait is known both ways.
    pub requests: usize,
    /// Their mean wait as recorded, in milliseconds.
    pub recorded: f64,
    /// As played.
    pub played: f64,
    /// By how much they differ on average.
    pub difference: f64,
    /// The share that differ by at most a tenth of the wait, or a second.
    pub close: f64,
}

/// Whoever wants to see how far it is: it may take minutes.
pub trait Watch {
    /// So many requests are about to be played, like this.
    fn begins(&self, how: &str, requests: usize);
    /// How far it is.
    fn sees(&self, progress: Progress);
}

/// Nobody.
impl Watch for () {
    fn begins(&self, _: &str, _: usize) {}
    fn sees(&self, _: Progress) {}
}

/// If more wait at once, they cannot be served, unless told otherwise: what comes of the rest takes ever longer to find out.
pub const MOST_WAITING: usize = 10_000;

/// Where requests are played.
pub struct Stage<'a> {
    /// Who looks on.
    pub watch: &'a dyn Watch,
    /// It is broken off when more than so many wait at once.
    pub most_waiting: usize,
    /// How long messages take, and where roles live.
    pub settings: Settings,
}

impl Default for Stage<'_> {
    /// Requests are served as an agent does it.
    fn default() -> Self {
        Self { watch: &(), most_waiting: MOST_WAITING, settings: agent_settings() }
    }
}

impl Stage<'_> {
    /// Plays requests through a protocol. `how` says for whoever looks on what is different.
    ///
    /// # Errors
    /// If the protocol cannot do it, or breaks exclusion, or too many wait at once.
    pub fn play(
        &self,
        replay: &Replay,
        contender: &Contender,
        how: &str,
    ) -> Result<Played, Failed> {
        let played = self.play_out(replay, contender, how)?;
        match played.violations {
            0 => Ok(played),
            violations => Err(Failed::Broken(contender.name().into(), violations)),
        }
    }

    /// The same, though it may break exclusion.
    ///
    /// # Errors
    /// If the protocol cannot do it, or too many wait at once.
    pub fn play_out(
        &self,
        replay: &Replay,
        contender: &Contender,
        how: &str,
    ) -> Result<Played, Failed> {
        let settings = trace_settings(&replay.trace, &self.settings);
        self.watch.begins(how, replay.trace.requests.len());
        let stopped = Cell::new(None);
        let progress = |progress: Progress| {
            self.watch.sees(progress);
            if progress.waiting > self.most_waiting {
                stopped.set(Some(progress.now));
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        };
        let played = play_told(&settings, contender, &replay.trace, &progress)?;
        if let Some(after) = stopped.get() {
            let (most, how) = (self.most_waiting, how.to_owned());
            return Err(Failed::Overloaded { how, most, after });
        }
        Ok(played)
    }
}

/// Plays requests as an agent would serve them, but through any protocol.
///
/// # Errors
/// As for [`Stage::play`].
pub fn played(replay: &Replay, contender: &Contender) -> Result<Played, Failed> {
    Stage::default().play(replay, contender, "")
}

impl Summary {
    /// Of requests with these fates.
    pub fn of(replay: &Replay, fates: &[Fate]) -> Self {
        let mut groups = Groups::default();
        for (request, fate) in fates.iter().enumerate() {
            let asked = &replay.trace.requests[request];
            let wait = replay.wait(request, fate);
            let given_up =
                replay.counted[request] && fate.granted.is_none() && fate.ended.is_some();
            let user = replay.askers[request].user.as_deref().unwrap_or("-");
            groups.all.add(wait, given_up);
            groups.users.entry(user.into()).or_default().add(wait, given_up);
            let end = fate.ended.unwrap_or(replay.length).min(replay.length);
            let held = fate.granted.map_or(0, |granted| end.saturating_sub(granted));
            for need in asked.needs.iter() {
                let pool = groups.pools.entry(need.pool.index()).or_default();
                pool.add(wait, given_up);
                if replay.locks.contains(&need.pool.index()) {
                    pool.of_lock.extend(fate.granted.map(|granted| (granted, end)));
                } else {
                    pool.busy += u128::from(held) * u128::from(need.units);
                }
            }
        }
        let waits = groups.all.waits.clone();
        let of_pool = |(at, mut group): (usize, Group)| {
            // A lock is one, however many share it.
            let is_lock = replay.locks.contains(&at);
            let capacity = if is_lock { 1 } else { replay.trace.pools[at].capacity };
            let all = u128::from(capacity) * u128::from(replay.length);
            let busy = group.busy + u128::from(covered(std::mem::take(&mut group.of_lock)));
            let utilisation = Some(busy as f64 / all.max(1) as f64);
            (replay.pools[at].to_string(), Figures { utilisation, ..group.figures() })
        };
        Self {
            all: groups.all.figures(),
            pools: groups.pools.into_iter().map(of_pool).collect(),
            users: groups.users.into_iter().map(|(user, group)| (user, group.figures())).collect(),
            waits,
        }
    }
}

#[derive(Default)]
struct Groups {
    all: Group,
    pools: BTreeMap<usize, Group>,
    users: BTreeMap<String, Group>,
}

#[derive(Default)]
struct Group {
    waits: Vec<u64>,
    given_up: usize,
    /// Units times ticks.
    busy: u128,
    /// When a lock was held.
    of_lock: Vec<(u64, u64)>,
}

impl Group {
    fn add(&mut self, wait: Option<u64>, given_up: bool) {
        self.waits.extend(wait);
        self.given_up += usize::from(given_up);
    }

    fn figures(self) -> Figures {
        Figures { waits: Waits::of(self.waits), given_up: self.given_up, utilisation: None }
    }
}

/// How near fates come to what was recorded; nothing if no waits were.
pub fn nearness(replay: &Replay, fates: &[Fate]) -> Option<Nearness> {
    let pair = |(request, fate): (usize, &Fate)| {
        let recorded = replay.recorded[request].as_ref()?;
        Some((replay.wait(request, recorded)?, replay.wait(request, fate)?))
    };
    let pairs: Vec<(u64, u64)> = fates.iter().enumerate().filter_map(pair).collect();
    if pairs.is_empty() {
        return None;
    }
    let mean = |figure: fn(&(u64, u64)) -> u64| {
        pairs.iter().map(|pair| figure(pair) as f64).sum::<f64>() / pairs.len() as f64
    };
    let close =
        |(recorded, played): &&(u64, u64)| recorded.abs_diff(*played) <= (recorded / 10).max(1000);
    Some(Nearness {
        requests: pairs.len(),
        recorded: mean(|pair| pair.0),
        played: mean(|pair| pair.1),
        difference: mean(|pair| pair.0.abs_diff(pair.1)),
        close: pairs.iter().filter(close).count() as f64 / pairs.len() as f64,
    })
}

#[cfg(test)]
mod tests;
