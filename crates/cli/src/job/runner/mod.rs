//! What runs a job: does what its machine says, and tells it what has happened.
//!
//! For each request there is a process that waits for it: `holdall run`, whose command is a
//! [holder](super::holder). So a runner is an ordinary client of the agent, with no rights but the
//! user's. When it is killed, those who wait and those who hold go with it.
//!
//! # Invariants
//! - Nothing is done before what comes before it is on disk.
//! - A task has ended only when nothing of it is left: its holder says so, or its
//!   [mark](super::mark) is free.
//! - No process is signalled that has been waited for.

mod asking;
mod begin;
mod tasks;
mod units;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::time::{Duration, Instant};

use holdall_holders::{SigSet, Signals, end_by};
use holdall_jobs::{Cause, Effect, Force, Input, Machine, Record, Stage, TaskIndex};
use rustix::process::{Signal, WaitOptions, wait};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

use self::asking::{Asked, Asking};
use self::begin::resumed;
pub(super) use self::begin::{change, now};
use super::journal::Journal;
use super::mark::End;
use super::store::{About, Lock, Over, Store};
use super::talk::{self, FromRunner, ToRunner};

/// How long what was released may take to end before the job counts as over.
const LAST: Duration = Duration::from_secs(15);
/// The most that is handled before it is noted.
const BATCH: usize = 200;

/// Looks on.
pub(super) trait Watcher {
    /// A record is on disk.
    fn noted(&mut self, machine: &Machine, record: &Record, now: u64);

    /// Something has happened, or [`Watcher::every`] is over.
    fn look(&mut self, _machine: &Machine, _now: u64) {}

    /// Something is said to people.
    fn say(&mut self, text: &str) {
        crate::say(text);
    }

    /// How often it wants to look even if nothing happens.
    fn every(&self) -> Option<Duration> {
        None
    }
}

/// What happens around a runner.
enum Event {
    /// What a holder or a command says; with its first words, where to answer.
    Told(ToRunner, Option<Answers>),
    /// Nothing is left of these attempts. How they ended, if that is known.
    Clear(Vec<(TaskIndex, u32, Option<End>)>),
}

type Answers = mpsc::UnboundedSender<FromRunner>;

/// Time that goes on evenly, whatever is done to the clock of the machine.
struct Clock {
    start: u64,
    since: Instant,
}

impl Clock {
    fn now(&self) -> u64 {
        let passed = self.since.elapsed().as_millis();
        self.start.saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }
}

pub(super) struct Runner<'a> {
    store: Store,
    about: About,
    clock: Clock,
    machine: Machine,
    journal: Journal,
    /// Where it is noted which units tasks had.
    units: File,
    /// Holders of a runner before this one are not listened to.
    life: String,
    asking: BTreeMap<Asked, Asking>,
    /// Processes that wait or hold, even if nobody speaks to them any more.
    children: BTreeMap<i32, Asked>,
    /// Those that are asked for again, and when.
    again: BTreeSet<(Instant, Asked)>,
    /// What was started, for the so many-th time.
    running: BTreeMap<TaskIndex, u32>,
    /// What the machine has said and is not done yet.
    todo: Vec<Effect>,
    /// Commands that are told when all of that is noted.
    answers: Vec<Answers>,
    events: mpsc::UnboundedSender<Event>,
    watcher: &'a mut dyn Watcher,
    /// How often somebody wanted an end.
    interrupts: u32,
    /// How a command finds signals that it starts with: not as we have them.
    mask: SigSet,
    _lock: Lock,
}

/// Runs a job to its end, as whoever has its lock may.
pub(super) async fn run(
    store: Store,
    lock: Lock,
    watcher: &mut dyn Watcher,
) -> anyhow::Result<Over> {
    let signals = Signals::new(&[Signal::HUP, Signal::INT, Signal::TERM])?;
    if let Some(over) = store.over() {
        return Ok(over);
    }
    let listener = talk::listen(&store.dir)?;
    let (events, incoming) = mpsc::unbounded_channel();
    let mut runner = Runner::new(store, events, watcher, lock, signals.mask_before())?;
    runner.perform()?;
    runner.go_on(listener, incoming, signals).await?;
    let over =
        Over::new(runner.clock.now(), &runner.machine.summary(), runner.machine.is_cancelled());
    runner.store.end(&over)?;
    let _ = std::fs::remove_file(runner.store.dir.join("socket"));
    Ok(over)
}

impl<'a> Runner<'a> {
    fn new(
        store: Store,
        events: mpsc::UnboundedSender<Event>,
        watcher: &'a mut dyn Watcher,
        lock: Lock,
        mask: SigSet,
    ) -> anyhow::Result<Self> {
        let clock = Clock { start: now(), since: Instant::now() };
        let about = store.about()?;
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(about.umask));
        let (journal, machine, todo) = resumed(&store, clock.now())?;
        let units =
            File::options().create(true).append(true).open(store.dir.join("units.jsonl"))?;
        let life = format!("{}-{}", std::process::id(), clock.start);
        std::fs::create_dir(store.life(&life))?;
        Ok(Self {
            store,
            about,
            clock,
            machine,
            journal,
            units,
            life,
            asking: BTreeMap::new(),
            children: BTreeMap::new(),
            again: BTreeSet::new(),
            running: BTreeMap::new(),
            todo,
            answers: Vec::new(),
            events,
            watcher,
            interrupts: 0,
            mask,
            _lock: lock,
        })
    }

    /// Until everything has ended, and everything is given back.
    async fn go_on(
        &mut self,
        listener: UnixListener,
        mut incoming: mpsc::UnboundedReceiver<Event>,
        mut signals: Signals,
    ) -> anyhow::Result<()> {
        let mut last = None;
        loop {
            self.watcher.look(&self.machine, self.clock.now());
            let is_over = self.machine.is_over();
            last = is_over.then(|| last.unwrap_or_else(|| Instant::now() + LAST));
            if is_over && (self.children.is_empty() || last.is_some_and(|t| t <= Instant::now())) {
                return Ok(());
            }
            tokio::select! {
                Some(event) = incoming.recv() => self.take(event),
                Ok((stream, _)) = listener.accept() => self.listen_to(stream),
                caught = signals.next() => match caught?.signal {
                    Signal::CHILD => self.reap(),
                    // The terminal is gone, which is no reason to end.
                    Signal::HUP => {}
                    _ if is_over => return Ok(()),
                    Signal::TERM => self.leave(),
                    _ => self.interrupt(),
                },
                () = tokio::time::sleep(self.pause(last)) => self.tell(Input::Tick),
            }
            for _ in 0..BATCH {
                let Ok(event) = incoming.try_recv() else { break };
                self.take(event);
            }
            self.ask_again();
            self.perform()?;
        }
    }

    /// How long nothing needs to be done unless something happens.
    fn pause(&self, last: Option<Instant>) -> Duration {
        let alarm = self.machine.next_alarm().map(|at| at.saturating_sub(self.clock.now()));
        let again = self.again.first().map(|(at, _)| *at);
        let due = [again, last].into_iter().flatten();
        let due = due.map(|at| at.saturating_duration_since(Instant::now()));
        let all = due.chain(alarm.map(Duration::from_millis)).chain(self.watcher.every());
        all.min().unwrap_or(Duration::from_secs(3600))
    }

    /// Ends as if we were killed: the machine may be going down, and the job goes on when it is up again.
    fn leave(&mut self) {
        let id = self.store.id();
        self.watcher.say(&format!("told to end; `holdall job resume {id}` goes on with the job"));
        end_by(Signal::TERM);
    }

    /// Ends everything: politely, then at once.
    fn interrupt(&mut self) {
        self.interrupts += 1;
        if self.interrupts == 1 {
            self.watcher.say("the job is cancelled; once more kills what still runs");
            return self.tell(Input::Cancel(None));
        }
        for task in (0..self.machine.plan().tasks.len()).map(TaskIndex) {
            if matches!(self.machine.stage(task), Stage::Stopping(_)) {
                self.order(task, FromRunner::Stop { task, kill: true });
            }
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Told(ToRunner::Holding { life, request, ask, variables }, answers) => {
                // One that was withdrawn, or belongs to a runner before this one, is not answered,
                // and goes.
                let Some(asked) = self.machine.plan().requests.get(request.0) else { return };
                if life == self.life
                    && let Some(asking) = self.asking.get_mut(&(request, ask))
                    && let Some(orders) = answers
                    && asking.hold(orders, &variables, &asked.needs)
                {
                    self.tell(Input::Granted(request, ask));
                }
            }
            Event::Told(ToRunner::Ended { task, attempt, cause }, _) => {
                self.tell(Input::Ended(task, attempt, cause));
            }
            Event::Told(ToRunner::Cancel { task }, answers) => {
                self.tell(Input::Cancel(task));
                self.answers.extend(answers);
            }
            Event::Clear(attempts) => {
                for (task, attempt, end) in attempts {
                    let cause = end.map_or(Some(Cause::Unknown), |end| end.cause);
                    self.tell(Input::Ended(task, attempt, cause));
                }
            }
        }
    }

    fn listen_to(&self, stream: UnixStream) {
        let (mut incoming, mut outgoing) = talk::split(stream);
        let (answers, mut answered) = mpsc::unbounded_channel();
        let (events, mut answers) = (self.events.clone(), Some(answers));
        tokio::spawn(async move {
            while let Some(message) = incoming.next::<ToRunner>().await {
                if events.send(Event::Told(message, answers.take())).is_err() {
                    return;
                }
            }
        });
        // Ends when nobody here has more to say; so does the connection.
        tokio::spawn(async move {
            while let Some(message) = answered.recv().await {
                if outgoing.send(&message).await.is_err() {
                    return;
                }
            }
        });
    }

    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if let Some(asked) = self.children.remove(&pid.as_raw_nonzero().get()) {
                self.gone(asked, std::os::unix::process::ExitStatusExt::from_raw(status.as_raw()));
            }
        }
    }

    fn tell(&mut self, input: Input) {
        let effects = self.machine.step(self.clock.now(), input);
        self.todo.extend(effects);
    }

    /// Does what the machine says, in that order, when everything is noted that is to be noted.
    fn perform(&mut self) -> anyhow::Result<()> {
        let todo = std::mem::take(&mut self.todo);
        let record = |effect: &Effect| match effect {
            Effect::Record(record) => Some(record.clone()),
            _ => None,
        };
        let records: Vec<Record> = todo.iter().filter_map(record).collect();
        self.journal.note(&records)?;
        for effect in todo {
            match effect {
                Effect::Record(record) => {
                    self.watcher.noted(&self.machine, &record, self.clock.now());
                    self.forget(&record);
                }
                Effect::Ask(request, ask) => self.ask((request, ask)),
                Effect::Withdraw(request, ask) => self.withdraw((request, ask)),
                // It goes when nobody speaks to it any more.
                Effect::Release(request, ask) => drop(self.asking.remove(&(request, ask))),
                Effect::Start(task, attempt) => self.start(task, attempt),
                Effect::Stop(task, force) => {
                    self.order(task, FromRunner::Stop { task, kill: force == Force::Kill });
                }
            }
        }
        for answers in self.answers.drain(..) {
            // Whoever wanted to know may have gone.
            let _ = answers.send(FromRunner::Noted);
        }
        Ok(())
    }
}
