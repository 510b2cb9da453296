//! The course of it: first things go wrong, then everything heals, and then nothing may be left.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use crate::agents::Agent;
use crate::check::{Judged, judge};
use crate::clients::{Clients, Place};
use crate::ground::Ground;
use crate::journal::{self, Journal, Net, RunNo, What, Who};
use crate::plan::{Course, Errand, Fault, Planned, Stranding, Victims, Weather, lent, plan};
use crate::process::Process;
use crate::replicated::{self, Replicated};
use crate::store::Store;

/// How often everything is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// How much earlier than those who would stop it a command wakes up, in milliseconds.
const WAKING: u64 = 100;
/// How long everything may take to come to its end once nothing goes wrong any more.
const PATIENCE: Duration = Duration::from_secs(180);

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The program.
    pub exe: PathBuf,
    /// What has the commands of runs in it ([`crate::section`]): the torturer itself.
    pub torturer: PathBuf,
    /// Where the directory is made.
    pub parent: PathBuf,
    /// How many cells.
    pub cells: usize,
    /// How many clients.
    pub clients: usize,
    /// For how long things go wrong.
    pub seconds: u64,
    /// How long a lease is.
    pub lease_seconds: u64,
    /// Where all choices come from.
    pub seed: u64,
    /// Whether each agent is in a network namespace of its own.
    pub namespaces: bool,
    /// Whether the agents host one more cell, whose log is in etcd.
    pub replicated: bool,
}

/// What came of it.
pub struct Verdict {
    /// What the judge says; and what else was seen to be wrong.
    pub judged: Judged,
    /// The directory, if it was kept because something is wrong.
    pub kept: Option<PathBuf>,
    /// Whether it was ended before its time.
    pub interrupted: bool,
}

/// Something that is undone at its time.
#[derive(Clone, Copy, Debug)]
enum Undo {
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

/// Somebody who is, or will be, cut off from the guard of what it uses ([`Fault::Strand`]).
#[derive(Clone, Copy, Debug)]
struct Stranded {
    home: usize,
    guard: usize,
    how: Stranding,
    victim: RunNo,
    /// Who waits for the same, once it is cut off.
    rival: Option<RunNo>,
}

/// Everything that goes on.
struct Torture<'a> {
    course: Course,
    settings: &'a Settings,
    work: &'a Path,
    journal: Arc<Journal>,
    // In this order they are dropped: clients before agents, and the store, which sees them end, last.
    clients: Clients,
    agents: Vec<Agent>,
    replicated: Option<Replicated>,
    store: Store,
    ground: Ground,
    sockets: Vec<PathBuf>,
    undo: Vec<(Instant, Undo)>,
    /// Processes of clients that are stopped.
    stopped: Vec<(RunNo, Who, Arc<Process>)>,
    /// The cells whose machines stand still.
    frozen: BTreeSet<usize>,
    stranded: Option<Stranded>,
    wrong: Vec<String>,
    stop: &'a AtomicBool,
}

/// Plays it. `say` is told how it goes on.
///
/// # Errors
/// If it cannot be played at all.
pub fn torture(
    settings: &Settings,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> anyhow::Result<Verdict> {
    let work = tempfile::Builder::new().prefix("torture-").tempdir_in(&settings.parent)?;
    let played = play(settings, work.path(), stop, say);
    let interrupted = stop.load(Ordering::Relaxed);
    let judged = match played {
        Ok(judged) => judged,
        Err(_) if interrupted => Judged::default(),
        Err(error) => {
            let kept = work.keep();
            return Err(error.context(format!("what there is of it is in {}", kept.display())));
        }
    };
    let keep = !judged.wrong.is_empty() && !interrupted;
    let kept = keep.then(|| work.keep());
    Ok(Verdict { judged, kept, interrupted })
}

fn play(
    settings: &Settings,
    work: &Path,
    stop: &AtomicBool,
    say: &mut dyn FnMut(&str),
) -> anyhow::Result<Judged> {
    let Settings { cells, clients, seconds, lease_seconds, seed, replicated, .. } = *settings;
    let (millis, lease) = (seconds * 1000, lease_seconds * 1000);
    let course = Course { cells, replicated, millis, lease, seed };
    let path = work.join("journal");
    let journal = Arc::new(Journal::create(&path)?);
    let ground = Ground::new(cells, settings.namespaces)?;
    let agents =
        (0..cells).map(|cell| Agent::new(&settings.exe, work, cell, lease_seconds, &ground));
    let agents = agents.collect::<Result<Vec<_>, _>>()?;
    let sockets = agents.iter().map(Agent::socket).collect();
    let store = Store::start(&work.join("store"), journal.clone())?;
    let mut torture = Torture {
        course,
        settings,
        work,
        journal,
        clients: Clients::new(clients, seed),
        agents,
        replicated: None,
        store,
        ground,
        sockets,
        undo: Vec::new(),
        stopped: Vec::new(),
        frozen: BTreeSet::new(),
        stranded: None,
        wrong: Vec::new(),
        stop,
    };
    say("the agents are started, and join");
    torture.join()?;
    if replicated {
        torture.replicate()?;
    }
    say("things go wrong");
    torture.rage()?;
    say("everything heals");
    torture.heal()?;
    torture.look_for_leftovers()?;
    let wrong = std::mem::take(&mut torture.wrong);
    drop(torture);
    let mut judged = judge(&journal::read(&path)?, cells, lease_seconds * 1000);
    judged.wrong.extend(wrong);
    Ok(judged)
}

fn place<'a>(
    settings: &'a Settings,
    work: &'a Path,
    sockets: &'a [PathBuf],
    journal: &'a Journal,
) -> Place<'a> {
    Place { exe: &settings.exe, torturer: &settings.torturer, work, sockets, journal }
}

impl Torture<'_> {
    fn note(&self, what: What) {
        self.journal.note(what);
    }

    fn check_interrupt(&self) -> anyhow::Result<()> {
        if self.stop.load(Ordering::Relaxed) { bail!("interrupted") } else { Ok(()) }
    }

    /// All agents are members of one cluster, and can reach each other.
    fn join(&mut self) -> anyhow::Result<()> {
        for agent in &mut self.agents {
            agent.start()?;
        }
        let token = self.agents[0].found()?;
        for cell in 1..self.agents.len() {
            self.check_interrupt()?;
            self.agents[cell].join(&self.agents[0], &token)?;
        }
        let all: Vec<_> = (0..self.agents.len()).map(|cell| format!("board@c{cell}")).collect();
        let mut words = vec!["run", "-q", "-w", "50s"];
        words.extend(all.iter().map(String::as_str));
        words.extend(["--", "true"]);
        for agent in &self.agents {
            self.check_interrupt()?;
            agent.ask(&words).context("the cells do not hand out together")?;
        }
        Ok(())
    }

    /// All of them host one more cell.
    fn replicate(&mut self) -> anyhow::Result<()> {
        let Self { course, work, agents, ground, journal, .. } = self;
        let made = Replicated::start(course, work, agents, ground, journal.clone())?;
        self.replicated = Some(made);
        Ok(())
    }

    fn rage(&mut self) -> anyhow::Result<()> {
        let (begun, course) = (Instant::now(), self.course);
        let mut planned = plan(&course).into_iter().peekable();
        while begun.elapsed() < Duration::from_millis(course.millis) {
            self.check_interrupt()?;
            let place = place(self.settings, self.work, &self.sockets, &self.journal);
            self.clients.go_on(&course, &place)?;
            self.look()?;
            let by_now = |next: &Planned| begun.elapsed() >= Duration::from_millis(next.at);
            while let Some(Planned { fault, .. }) = planned.next_if(by_now) {
                self.strike(fault)?;
            }
            if let Some(replicated) = &mut self.replicated {
                replicated.go_on(begun.elapsed().as_millis() as u64, &mut self.agents)?;
            }
            self.undo_what_is_due(Instant::now())?;
            self.look_at_stranded()?;
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    fn look(&mut self) -> anyhow::Result<()> {
        self.clients.reap(&self.journal)?;
        for cell in 0..self.agents.len() {
            let is_away = self
                .undo
                .iter()
                .any(|(_, undo)| matches!(undo, Undo::StartAgent(at) if *at == cell));
            if !is_away && !self.agents[cell].is_running() {
                let what = format!("the agent of c{cell} has ended by itself");
                if !self.wrong.contains(&what) {
                    self.wrong.push(what);
                }
                self.agents[cell].start()?;
            }
        }
        Ok(())
    }

    fn later(&mut self, millis: u64, undo: Undo) {
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

    fn is_spared(&self, cell: usize) -> bool {
        self.stranded.is_some_and(|it| cell == it.home || cell == it.guard)
    }

    fn strike(&mut self, fault: Fault) -> anyhow::Result<()> {
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

    fn spoil(
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

    /// Starts a run at a cell. Its number.
    fn start(&mut self, home: usize, errand: &Errand) -> anyhow::Result<RunNo> {
        let place = place(self.settings, self.work, &self.sockets, &self.journal);
        Ok(self.clients.start(0, home, errand, &place)?)
    }

    /// Somebody asks for what it is to be cut off from. If another one is at that, it does so later.
    fn strand(&mut self, home: usize, guard: usize, how: Stranding) -> anyhow::Result<()> {
        if self.stranded.is_some() {
            self.later(LOOK.as_millis() as u64, Undo::Strand { home, guard, how });
            return Ok(());
        }
        let (needs, works) = (vec![format!("rig@c{guard}")], self.course.lease * 3);
        let victim = self.start(home, &Errand { needs, works, deaf: false, local: false })?;
        self.stranded = Some(Stranded { home, guard, how, victim, rival: None });
        Ok(())
    }

    /// Who uses what it asked for is cut off, as soon as nothing else is wrong there; and is left alone until somebody else has
    /// had the same.
    fn look_at_stranded(&mut self) -> anyhow::Result<()> {
        let Some(it) = self.stranded else { return Ok(()) };
        let Stranded { home, guard, how, victim, rival } = it;
        if !self.clients.runs.contains_key(&rival.unwrap_or(victim)) {
            self.stranded = None;
            // It was over before it could be cut off.
            return if rival.is_none() { self.strand(home, guard, how) } else { Ok(()) };
        }
        let uses = self.store.users().contains_key(&victim);
        let is_bad = self.ground.is_bad(home, guard) || self.ground.is_bad(guard, home);
        if rival.is_some() || !uses || is_bad || !self.is_well(home) || !self.is_well(guard) {
            return Ok(());
        }
        let errand = Errand { needs: vec!["rig".into()], works: 50, deaf: false, local: true };
        let rival = Some(self.start(guard, &errand)?);
        self.stranded = Some(Stranded { rival, ..it });
        self.cut_off(home, guard, how)
    }

    fn is_well(&mut self, cell: usize) -> bool {
        !self.frozen.contains(&cell) && !self.agents[cell].paused && self.agents[cell].is_running()
    }

    /// For longer than a lease and a grace.
    fn cut_off(&mut self, home: usize, guard: usize, how: Stranding) -> anyhow::Result<()> {
        let millis = self.course.lease * 2;
        match how {
            Stranding::Killed => {
                self.agents[home].kill();
                self.note(What::Agent { cell: home, how: journal::Agent::Killed });
                self.later(millis, Undo::StartAgent(home));
            }
            Stranding::Paused => {
                self.agents[home].pause(true);
                self.note(What::Agent { cell: home, how: journal::Agent::Paused });
                self.later(millis, Undo::ResumeAgent(home));
            }
            Stranding::Net(weather) => {
                self.spoil(home, guard, weather, millis)?;
                self.spoil(guard, home, weather, millis)?;
            }
        }
        Ok(())
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
            if self.stranded.is_some_and(|it| it.victim == *run || it.rival == Some(*run)) {
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

    fn undo_what_is_due(&mut self, now: Instant) -> anyhow::Result<()> {
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

    /// Nothing goes wrong any more: everybody comes to an end.
    fn heal(&mut self) -> anyhow::Result<()> {
        self.undo.retain(|(_, undo)| !matches!(undo, Undo::Freeze { .. } | Undo::Strand { .. }));
        let longest = self.undo.iter().map(|(at, _)| *at).max();
        self.undo_what_is_due(longest.unwrap_or_else(Instant::now))?;
        if let Some(replicated) = &mut self.replicated {
            replicated.heal()?;
        }
        self.note(What::Calm);
        self.wait_for_all()?;
        // Everything can be had at once: nothing is held by nobody.
        let pools = ["board@cN:all", "scope@cN", "db@cN", "rig@cN", "keep@cN"];
        let cells = self.agents.len();
        let needs =
            (0..cells).flat_map(|cell| pools.map(|pool| pool.replace('N', &cell.to_string())));
        let replicated = self.replicated.as_ref().map(|_| format!("c{cells}"));
        let needs = needs.chain(replicated.into_iter().flat_map(replicated::everything));
        let errand = Errand { needs: needs.collect(), works: 20, deaf: false, local: false };
        let place = place(self.settings, self.work, &self.sockets, &self.journal);
        for home in 0..cells {
            self.clients.start(0, home, &errand, &place)?;
        }
        self.wait_for_all()
    }

    fn wait_for_all(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + PATIENCE;
        while !(self.clients.runs.is_empty() && self.store.users().is_empty())
            && Instant::now() < until
        {
            self.check_interrupt()?;
            self.look()?;
            std::thread::sleep(LOOK);
        }
        for (number, (_, run)) in &self.clients.runs {
            self.wrong.push(format!("run {number} does not end; it says: {}", run.told()));
        }
        Ok(())
    }

    fn look_for_leftovers(&mut self) -> anyhow::Result<()> {
        for (cell, agent) in self.agents.iter().enumerate() {
            let until = Instant::now() + Duration::from_secs(20);
            loop {
                self.check_interrupt()?;
                match agent.left() {
                    Ok((0, 0)) => {
                        self.note(What::Left { cell, held: 0, waiting: 0 });
                        break;
                    }
                    Ok((held, waiting)) if Instant::now() > until => {
                        self.note(What::Left { cell, held, waiting });
                        break;
                    }
                    Err(error) if Instant::now() > until => {
                        self.wrong.push(format!("{error:#}"));
                        break;
                    }
                    _ => std::thread::sleep(LOOK * 20),
                }
            }
            let log = agent.log()?;
            let bad =
                log.lines().filter(|line| line.contains("panicked") || line.contains(" ERROR "));
            self.wrong.extend(bad.take(5).map(|line| format!("the agent of c{cell} says: {line}")));
        }
        Ok(())
    }
}
