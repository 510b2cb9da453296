//! The course of it: first things go wrong, then everything heals, and then nothing may be left.

mod stranded;
mod strike;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use self::stranded::Stranded;
use self::strike::Undo;
use crate::agents::Agent;
use crate::check::{Judged, judge};
use crate::clients::{Clients, Place};
use crate::ground::Ground;
use crate::journal::{self, Journal, RunNo, What, Who};
use crate::plan::{Course, Errand, Planned, plan};
use crate::process::Process;
use crate::replicated::{self, Replicated};
use crate::store::Store;

/// How often everything is looked at.
const LOOK: Duration = Duration::from_millis(10);
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

    /// Starts a run at a cell. Its number.
    fn start(&mut self, home: usize, errand: &Errand) -> anyhow::Result<RunNo> {
        let place = place(self.settings, self.work, &self.sockets, &self.journal);
        Ok(self.clients.start(0, home, errand, &place)?)
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
        let needs =
            needs.chain(replicated.into_iter().flat_map(|name| replicated::everything(&name)));
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
