//! What is done to agents, clients, machines and the network, and how it is undone.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{LOOK, Torture};
use crate::journal::{self, Net, RunNo, What, Who};
use crate::plan::{Errand, Fault, Stranding, Victims, Weather, lent};
use crate::process::Process;

/// How much earlier than those who would stop it a command wakes up, in milliseconds.
const WAKING: u64 = 100;

/// Something that is undone at its time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Undo {
    StartAgent(usize),
    ResumeAgent(usize),
    /// A machine stands still no more.
    Thaw(usize),
    Resume(RunNo, Who),
    Heal(usize, usize),
    /// What was put off until there is somebody to do it to.
    Freeze {
        pick: u64,
        millis: u64,
    },
    Strand {
        home: usize,
        guard: usize,
        how: Stranding,
    },
}

impl Torture<'_> {
    pub(super) fn later(&mut self, millis: u64, undo: Undo) {
        self.undo.push((Instant::now() + Duration::from_millis(millis), undo));
    }

    /// Whether a fault would disturb what is to show with those who are stranded.
    fn spares(&self, fault: Fault) -> bool {
        let is_part = |cell| self.is_spared(cell);
        match fault {
            Fault::KillAgent { cell, .. }
            | Fault::PauseAgent { cell, .. }
            | Fault::RestartAgent { cell } => is_part(cell),
            Fault::Net { from, to, .. } => is_part(from) && is_part(to),
            _ => false,
        }
    }

    pub(super) fn strike(&mut self, fault: Fault) -> anyhow::Result<()> {
        if self.spares(fault) {
            return Ok(());
        }
        match fault {
            Fault::KillAgent { cell, away } => {
                if !self.frozen.contains(&cell) && self.agents[cell].kill() {
                    self.note(What::Agent { cell, how: journal::Agent::Killed });
                    self.later(away, Undo::StartAgent(cell));
                    self.covet(cell)?;
                }
            }
            Fault::PauseAgent { cell, millis } => {
                if !self.agents[cell].paused && self.agents[cell].pause(true) {
                    self.note(What::Agent { cell, how: journal::Agent::Paused });
                    self.later(millis, Undo::ResumeAgent(cell));
                    self.covet(cell)?;
                }
            }
            Fault::RestartAgent { cell } => {
                if self.agents[cell].is_running() {
                    self.agents[cell].restart()?;
                    self.note(What::Agent { cell, how: journal::Agent::Restarted });
                }
            }
            Fault::Kill { who, pick } => self.kill(who, pick),
            Fault::Pause { who, pick, millis } => self.pause(who, pick, millis),
            Fault::Freeze { pick, millis } => self.freeze(pick, millis)?,
            Fault::Strand { home, guard, how } => self.strand(home, guard, how)?,
            Fault::Net { from, to, weather, both, millis } => {
                self.spoil(from, to, weather, millis)?;
                if both {
                    self.spoil(to, from, weather, millis)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn spoil(
        &mut self,
        from: usize,
        to: usize,
        weather: Weather,
        millis: u64,
    ) -> anyhow::Result<()> {
        if self.ground.is_bad(from, to) {
            return Ok(());
        }
        self.ground.set(from, to, Some(weather))?;
        let how = match weather {
            Weather::Stalled => Net::Stalled,
            Weather::Cut => Net::Cut,
            Weather::Slow(_) => Net::Slow,
        };
        self.note(What::Net { from, to, how });
        self.later(millis, Undo::Heal(from, to));
        self.covet(from)
    }

    /// Somebody wants what is lent to somebody of a cell: if it were given to others too early, that would show.
    fn covet(&mut self, home: usize) -> anyhow::Result<()> {
        let users = self.store.users().clone();
        let its = users
            .iter()
            .filter(|(run, _)| self.clients.runs.get(run).is_some_and(|(_, run)| run.home == home));
        let wanted = its.filter_map(|(_, user)| lent(home, &user.units)).next_back();
        let Some((guard, what)) = wanted else { return Ok(()) };
        self.want(home, guard, what)
    }

    /// Somebody wants something, at the cell that guards it, or if that is nobody's home, at another one.
    fn want(&mut self, home: usize, guard: usize, what: String) -> anyhow::Result<()> {
        let local = guard < self.agents.len();
        let (at, need) = match local {
            true => (guard, what),
            false => ((home + 1) % self.agents.len(), format!("{what}@c{guard}")),
        };
        let errand = Errand { needs: vec![need], works: 50, deaf: false, local };
        self.start(at, &errand).map(drop)
    }

    /// A machine stands still on which something is used that others lend. When it wakes up, commands may go on for a moment before
    /// anybody stops them: that is what fences are for. If there is none, it does so when there is.
    fn freeze(&mut self, pick: u64, millis: u64) -> anyhow::Result<()> {
        let users = self.store.users().clone();
        let using = users.iter().filter_map(|(run, user)| {
            let home = self.clients.runs.get(run)?.1.home;
            Some((home, lent(home, &user.units)?))
        });
        let is_open = |home: usize| !self.agents[home].paused && !self.is_spared(home);
        let using: Vec<_> = using.filter(|(home, _)| is_open(*home)).collect();
        let victim = using.get(pick as usize % using.len().max(1)).cloned();
        let Some((cell, (guard, what))) = victim.filter(|(cell, _)| self.agents[*cell].pause(true))
        else {
            self.later(LOOK.as_millis() as u64, Undo::Freeze { pick, millis });
            return Ok(());
        };
        self.note(What::Agent { cell, how: journal::Agent::Frozen });
        self.frozen.insert(cell);
        let here = self.clients.runs.iter().filter(|(_, (_, run))| run.home == cell);
        let here: Vec<_> = here.map(|(run, (_, found))| (*run, found.wrapper.clone())).collect();
        for (run, wrapper) in here {
            self.stop(run, Who::Wrapper, Some(wrapper), millis + WAKING);
            let command = users.get(&run).map(|user| user.process.clone());
            self.stop(run, Who::Command, command, millis);
        }
        self.later(millis + WAKING, Undo::Thaw(cell));
        // Somebody else wants it meanwhile.
        self.want(cell, guard, what)
    }

    /// A run and the process of its command, if it has one: mostly one that uses something.
    fn victim(&self, who: Victims, pick: u64) -> Option<(RunNo, Option<Arc<Process>>)> {
        // Nobody does anything to what is on a machine that stands still.
        let is_awake = |run: &RunNo| {
            if self.is_stranded(*run) {
                return false;
            }
            let home = self.clients.runs.get(run).map(|(_, run)| run.home);
            home.is_none_or(|home| !self.frozen.contains(&home))
        };
        let users: Vec<_> =
            self.store.users().iter().map(|(run, user)| (*run, user.clone())).collect();
        let users: Vec<_> = users.into_iter().filter(|(run, _)| is_awake(run)).collect();
        let anybody = who == Victims::Wrapper && pick.is_multiple_of(3);
        let chosen = |among: usize| (pick / 3) as usize % among.max(1);
        if anybody || users.is_empty() {
            let runs: Vec<_> = self.clients.runs.keys().filter(|run| is_awake(run)).collect();
            let run = **runs.get(chosen(runs.len()))?;
            let its = users.iter().find(|(user, _)| *user == run);
            return Some((run, its.map(|(_, user)| user.process.clone())));
        }
        let (run, user) = users.get(chosen(users.len()))?;
        Some((*run, Some(user.process.clone())))
    }

    /// What is done is noted before it is done: nobody may see it happen before it is known.
    fn kill(&mut self, who: Victims, pick: u64) {
        let Some((run, command)) = self.victim(who, pick) else { return };
        for who in who.all() {
            match (who, self.clients.runs.get(&run), &command) {
                (Who::Wrapper, Some((_, found)), _) => {
                    self.note(What::Killed { run, who: *who });
                    found.wrapper.kill();
                }
                (Who::Command, _, Some(command)) => {
                    self.note(What::Killed { run, who: *who });
                    command.kill();
                }
                _ => {}
            }
        }
    }

    fn pause(&mut self, who: Victims, pick: u64, millis: u64) {
        let Some((run, command)) = self.victim(who, pick) else { return };
        for who in who.all() {
            let process = match who {
                Who::Command => command.clone(),
                Who::Wrapper => {
                    let found = self.clients.runs.get(&run);
                    found.map(|(_, found)| found.wrapper.clone())
                }
            };
            self.stop(run, *who, process, millis);
        }
    }

    /// Stops a process of a run for a while, unless it is stopped.
    fn stop(&mut self, run: RunNo, who: Who, process: Option<Arc<Process>>, millis: u64) {
        let is_stopped = |(stopped, whom, _): &(RunNo, Who, _)| *stopped == run && *whom == who;
        let Some(process) = process.filter(|_| !self.stopped.iter().any(is_stopped)) else {
            return;
        };
        self.note(What::Paused { run, who });
        process.pause();
        self.stopped.push((run, who, process));
        self.later(millis, Undo::Resume(run, who));
    }

    pub(super) fn undo_what_is_due(&mut self, now: Instant) -> anyhow::Result<()> {
        let due: Vec<_> = self.undo.extract_if(.., |(at, _)| *at <= now).collect();
        for (_, undo) in due {
            match undo {
                Undo::StartAgent(cell) => {
                    self.agents[cell].start()?;
                    self.note(What::Agent { cell, how: journal::Agent::Started });
                }
                Undo::ResumeAgent(cell) => {
                    if self.agents[cell].paused {
                        self.agents[cell].pause(false);
                        self.note(What::Agent { cell, how: journal::Agent::Resumed });
                    }
                }
                Undo::Thaw(cell) => {
                    self.frozen.remove(&cell);
                    self.agents[cell].pause(false);
                    self.note(What::Agent { cell, how: journal::Agent::Resumed });
                }
                Undo::Resume(run, who) => {
                    let its =
                        |(stopped, whom, _): &mut (RunNo, Who, _)| *stopped == run && *whom == who;
                    for (run, who, process) in self.stopped.extract_if(.., its) {
                        process.resume();
                        self.journal.note(What::Resumed { run, who });
                    }
                }
                Undo::Freeze { pick, millis } => self.freeze(pick, millis)?,
                Undo::Strand { home, guard, how } => self.strand(home, guard, how)?,
                Undo::Heal(from, to) => {
                    self.ground.set(from, to, None)?;
                    self.note(What::Net { from, to, how: Net::Healed });
                }
            }
        }
        Ok(())
    }
}
