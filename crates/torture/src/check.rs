//! The judge: what is wrong with a journal. It reads that and nothing else.
//!
//! - No write is accepted after one with a greater fence, on any unit.
//! - No two use a unit at the same time, unless both share it. If the torturer had stopped the wrapper or the command of
//!   one of them not long before, that is excused, and counted: nobody can stop what is itself stopped, and the fences are for that.
//! - Nobody begins with a fence that is not above those with which others began before; with the same excuse.
//! - Everybody who asked comes to an end, as its command does, unless it was killed, or had something of another
//!   cell and was stopped because its lease was over, or could not reach its agent.
//! - Nothing is left: no process, no grant, no request.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::journal::{Agent, Entry, Net, RunNo, Unit, What, Who};

/// The status of `holdall run` if it has lost its grant, and has stopped its command.
const LOST: i32 = 70;
/// If its agent cannot be reached.
const UNREACHED: i32 = 69;
/// If its command was killed.
const COMMAND_KILLED: i32 = 128 + 9;

/// How long things took, in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Spread {
    /// How many there were.
    pub count: usize,
    /// Half took no longer.
    pub median: u64,
    /// None took longer.
    pub longest: u64,
}

/// What can be counted in a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Figures {
    /// How many asked.
    pub runs: usize,
    /// How many commands began.
    pub grants: usize,
    /// How many of them had something of several cells.
    pub spanning: usize,
    /// How many of them had something of another cell.
    pub remote: usize,
    /// Writes that the store took.
    pub writes: usize,
    /// Writes that it refused, because of their fence.
    pub refused_writes: usize,
    /// How many were stopped because their lease was over.
    pub taken_away: usize,
    /// How many could not reach their agent.
    pub unreached: usize,
    /// How many processes of clients were killed.
    pub kills: usize,
    /// How many of them were stopped.
    pub pauses: usize,
    /// How many agents were killed.
    pub agents_killed: usize,
    /// How many agents were stopped.
    pub agents_paused: usize,
    /// How many machines stood still.
    pub machines_frozen: usize,
    /// How many agents were told to go on as themselves.
    pub agents_restarted: usize,
    /// How often a member of etcd was killed or stopped.
    pub members_hit: usize,
    /// How often connections between two cells were cut.
    pub cuts: usize,
    /// How often nothing arrived any more.
    pub stalls: usize,
    /// How often everything took longer.
    pub slow: usize,
    /// How often two used a unit at the same time, one of whom had been stopped.
    pub overlaps_excused: usize,
    /// How often somebody who had been stopped began too late.
    pub late_excused: usize,
    /// How long anybody has waited until its command began.
    pub longest_wait: u64,
    /// From when an agent was started again until a command of its cell began.
    pub after_kill: Spread,
    /// From when two cells could reach each other again until a command began that has something of both.
    pub after_cut: Spread,
    /// From when nothing went wrong any more until the last one was done.
    pub healing: u64,
}

/// What the judge says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Judged {
    /// Everything that is wrong.
    pub wrong: Vec<String>,
    /// What can be counted.
    pub figures: Figures,
}

/// What is known of a run.
#[derive(Clone, Debug, Default)]
struct Run {
    home: usize,
    needs: String,
    asked: u64,
    began: Option<u64>,
    units: BTreeMap<String, Unit>,
    ended: bool,
    gone: bool,
    done: bool,
    killed: Vec<Who>,
    /// From when to when somebody of it was stopped.
    pauses: Vec<(Who, u64, Option<u64>)>,
}

impl Run {
    /// Whether somebody of it was stopped between two times.
    fn was_paused(&self, from: u64, to: u64) -> bool {
        let meets = |(_, begun, over): &(Who, u64, Option<u64>)| {
            *begun <= to && over.is_none_or(|over| over >= from)
        };
        self.pauses.iter().any(meets)
    }

    fn is_local(&self) -> bool {
        !self.needs.contains('@')
    }

    fn cells(&self) -> impl Iterator<Item = &str> {
        self.units.keys().filter_map(|unit| unit.split_once('@').map(|(_, cell)| cell))
    }

    fn has_of(&self, cell: usize) -> bool {
        self.cells().any(|other| other == format!("c{cell}"))
    }
}

/// What is known of a unit.
#[derive(Clone, Debug, Default)]
struct Used {
    by: Vec<RunNo>,
    /// The greatest fence that somebody began with, and whether it was shared.
    begun: Option<(u64, bool)>,
    accepted: u64,
}

struct Judge {
    /// How long before something somebody may have been stopped to be excused.
    window: u64,
    runs: BTreeMap<RunNo, Run>,
    units: BTreeMap<String, Used>,
    calm: Option<u64>,
    left: BTreeMap<usize, (usize, usize)>,
    /// Since when agents are back, and pairs of cells can reach each other, until that shows.
    started: BTreeMap<usize, u64>,
    healed: BTreeMap<(usize, usize), u64>,
    after_kill: Vec<u64>,
    after_cut: Vec<u64>,
    judged: Judged,
}

/// Judges a journal of so many cells, with a lease of so many milliseconds.
pub fn judge(entries: &[Entry], cells: usize, lease: u64) -> Judged {
    let (runs, units, left, started, healed) = Default::default();
    let (after_kill, after_cut, judged) = Default::default();
    let mut judge = Judge {
        window: lease,
        runs,
        units,
        calm: None,
        left,
        started,
        healed,
        after_kill,
        after_cut,
        judged,
    };
    for entry in entries {
        judge.take(entry);
    }
    judge.finish(cells)
}

impl Judge {
    fn wrong(&mut self, what: String) {
        self.judged.wrong.push(what);
    }

    fn take(&mut self, Entry { at, what }: &Entry) {
        let at = *at;
        match what {
            What::Asked { run, home, needs } => {
                self.judged.figures.runs += 1;
                let asked = Run { home: *home, needs: needs.clone(), asked: at, ..Run::default() };
                self.runs.insert(*run, asked);
            }
            What::Began { run, units, .. } => self.began(at, *run, units),
            What::Wrote { run, unit, fence, accepted } => {
                self.wrote(at, *run, unit, *fence, *accepted);
            }
            What::Ended { run } => {
                self.run(*run).ended = true;
                self.stops(*run);
            }
            What::Gone { run } => {
                self.run(*run).gone = true;
                self.stops(*run);
            }
            What::Done { run, status, said } => self.done(at, *run, *status, said),
            What::Paused { run, who } => {
                self.judged.figures.pauses += 1;
                self.run(*run).pauses.push((*who, at, None));
            }
            What::Resumed { run, who } => {
                let pauses = self.run(*run).pauses.iter_mut();
                for pause in pauses.filter(|pause| pause.0 == *who && pause.2.is_none()) {
                    pause.2 = Some(at);
                }
            }
            What::Killed { run, who } => {
                self.judged.figures.kills += 1;
                self.run(*run).killed.push(*who);
            }
            What::Agent { cell, how } => self.agent(at, *cell, *how),
            What::Member { how, .. } => {
                let is_hit = matches!(how, Agent::Killed | Agent::Paused);
                self.judged.figures.members_hit += usize::from(is_hit);
            }
            What::Net { from, to, how } => self.net(at, *from, *to, *how),
            What::Calm => self.calm = Some(at),
            What::Left { cell, held, waiting } => drop(self.left.insert(*cell, (*held, *waiting))),
        }
    }

    fn run(&mut self, run: RunNo) -> &mut Run {
        self.runs.entry(run).or_default()
    }

    fn began(&mut self, at: u64, run: RunNo, units: &BTreeMap<String, Unit>) {
        let known = self.run(run);
        if known.began.is_some() {
            self.wrong(format!("{at}: the command of run {run} began twice"));
            return;
        }
        known.began = Some(at);
        known.units = units.clone();
        let (home, waited) = (known.home, at - known.asked);
        let mut cells: Vec<_> = known.cells().map(ToOwned::to_owned).collect();
        cells.sort();
        cells.dedup();
        let figures = &mut self.judged.figures;
        figures.grants += 1;
        figures.spanning += usize::from(cells.len() > 1);
        figures.remote += usize::from(cells.iter().any(|cell| *cell != format!("c{home}")));
        figures.longest_wait = figures.longest_wait.max(waited);
        for (name, unit) in units {
            self.uses(at, run, name, unit);
        }
        self.shows_recovery(at, run, home);
    }

    /// A run begins to use a unit.
    fn uses(&mut self, at: u64, run: RunNo, name: &str, unit: &Unit) {
        let used = self.units.entry(name.to_owned()).or_default();
        let others = used.by.clone();
        used.by.push(run);
        let before = used.begun;
        used.begun = before.max(Some((unit.fence, unit.shared)));
        let was_late = |run: &Run| run.was_paused(run.asked, at);
        let late = self.runs.get(&run).is_some_and(was_late);
        for other in others {
            let Some(first) = self.runs.get(&other) else { continue };
            let both_share = unit.shared && first.units.get(name).is_some_and(|its| its.shared);
            if both_share {
                continue;
            }
            if late || first.was_paused(at.saturating_sub(self.window), at) {
                self.judged.figures.overlaps_excused += 1;
            } else {
                self.wrong(format!("{at}: {name} is used by run {other} and by run {run}"));
            }
        }
        let Some((fence, shared)) = before else { return };
        let behind = unit.fence < fence || unit.fence == fence && !(unit.shared && shared);
        if behind && late {
            self.judged.figures.late_excused += 1;
        } else if behind {
            let what =
                format!("{at}: run {run} begins with fence {} on {name}, after ", unit.fence);
            self.wrong(format!("{what}{fence}"));
        }
    }

    fn wrote(&mut self, at: u64, run: RunNo, unit: &str, fence: u64, accepted: bool) {
        if !accepted {
            self.judged.figures.refused_writes += 1;
            return;
        }
        self.judged.figures.writes += 1;
        let used = self.units.entry(unit.to_owned()).or_default();
        let last = used.accepted;
        used.accepted = last.max(fence);
        if fence < last {
            let told =
                format!("{at}: a write of run {run} to {unit} was accepted with fence {fence}");
            self.wrong(format!("{told}, after one with {last}"));
        }
    }

    fn stops(&mut self, run: RunNo) {
        for used in self.units.values_mut() {
            used.by.retain(|user| *user != run);
        }
    }

    fn done(&mut self, at: u64, number: RunNo, status: i32, said: &str) {
        // Whoever asked before may be told a moment later.
        let is_calm = self.calm.is_some_and(|calm| at > calm + self.window);
        let run = self.run(number);
        run.done = true;
        let was_killed = |who| run.killed.contains(&who);
        let touched = !run.killed.is_empty() || !run.pauses.is_empty();
        let fine = match status {
            0 => run.ended,
            LOST => !run.is_local(),
            UNREACHED => run.began.is_none() && !is_calm,
            -9 => was_killed(Who::Wrapper),
            COMMAND_KILLED => was_killed(Who::Command),
            _ => false,
        };
        let (began, ended, local) = (run.began.is_some(), run.ended, run.is_local());
        let figures = &mut self.judged.figures;
        figures.taken_away += usize::from(status == LOST);
        figures.unreached += usize::from(status == UNREACHED);
        if let Some(calm) = self.calm {
            self.judged.figures.healing = at.saturating_sub(calm);
        }
        if !fine {
            let begun = if began { "had begun" } else { "had not begun" };
            let over = if ended { " and ended" } else { "" };
            let of = if local { "its own cell" } else { "other cells" };
            let done = if touched { "something" } else { "nothing" };
            self.wrong(format!(
                "{at}: run {number}, whose command {begun}{over}, with units of {of}, to which {done} was done, \
                 ended with {status}: {said}"
            ));
        }
    }

    fn agent(&mut self, at: u64, cell: usize, how: Agent) {
        let figures = &mut self.judged.figures;
        match how {
            Agent::Killed => figures.agents_killed += 1,
            Agent::Paused => figures.agents_paused += 1,
            Agent::Frozen => figures.machines_frozen += 1,
            Agent::Restarted => figures.agents_restarted += 1,
            Agent::Started => drop(self.started.insert(cell, at)),
            Agent::Resumed => {}
        }
        if how == Agent::Killed {
            self.started.remove(&cell);
        }
    }

    fn net(&mut self, at: u64, from: usize, to: usize, how: Net) {
        let pair = (from.min(to), from.max(to));
        match how {
            Net::Stalled => self.judged.figures.stalls += 1,
            Net::Cut => self.judged.figures.cuts += 1,
            Net::Slow => self.judged.figures.slow += 1,
            Net::Healed => {
                self.healed.insert(pair, at);
                return;
            }
        }
        self.healed.remove(&pair);
    }

    /// A run that has begun may be the first that shows that something works again.
    fn shows_recovery(&mut self, at: u64, run: RunNo, home: usize) {
        if let Some(since) = self.started.remove(&home) {
            self.after_kill.push(at - since);
        }
        let Some(run) = self.runs.get(&run) else { return };
        let over = |(one, other): (usize, usize)| {
            (home == one && run.has_of(other)) || (home == other && run.has_of(one))
        };
        let pairs: Vec<_> = self.healed.keys().copied().filter(|pair| over(*pair)).collect();
        for pair in pairs {
            if let Some(since) = self.healed.remove(&pair) {
                self.after_cut.push(at - since);
            }
        }
    }

    fn finish(mut self, cells: usize) -> Judged {
        let runs = std::mem::take(&mut self.runs);
        for (number, run) in &runs {
            if !run.done {
                let state = if run.began.is_some() { "never ended" } else { "still waits" };
                self.wrong(format!("run {number} at c{} for {} {state}", run.home, run.needs));
            }
            if run.began.is_some() && !run.gone {
                self.wrong(format!("the command of run {number} is still there"));
            }
        }
        for cell in 0..cells {
            match self.left.get(&cell) {
                None => self.wrong(format!("the agent of c{cell} does not answer in the end")),
                Some((0, 0)) => {}
                Some((held, waiting)) => {
                    let told = format!("c{cell} is left with {held} grants and {waiting} requests");
                    self.wrong(told);
                }
            }
        }
        if self.judged.figures.spanning == 0 {
            self.wrong("nothing that spans cells was granted: this shows nothing".into());
        }
        self.judged.figures.after_kill = spread(&mut self.after_kill);
        self.judged.figures.after_cut = spread(&mut self.after_cut);
        self.judged
    }
}

fn spread(times: &mut [u64]) -> Spread {
    times.sort_unstable();
    let at = |index: usize| times.get(index).copied().unwrap_or(0);
    Spread {
        count: times.len(),
        median: at(times.len().saturating_sub(1) / 2),
        longest: times.last().copied().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests;
