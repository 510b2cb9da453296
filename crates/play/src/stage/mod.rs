//! The stage: starts the processes of a play, tells them when to begin and to end, hears what they saw.

mod children;
mod failure;

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use holdall_core::{NodeId, UserId};
use tempfile::TempDir;

use self::children::Member;
pub use self::failure::Failure;
pub(crate) use self::failure::cannot;
use crate::cast::Cast;
use crate::clock::{MILLISECOND, Nanos, SECOND, now};
use crate::poll::{Poll, Token};
use crate::process::locks;
use crate::settings::Settings;
use crate::signals::Signals;
use crate::words::{Entry, FromProcess, Part, Place, Secret, Seen, ToProcess};

const SIGNALS: Token = 0;
const FIRST: Token = 1;
/// How long everybody may take to start, for each process that has to.
const START: Nanos = 30 * SECOND;
const START_OF_ONE: Nanos = SECOND / 4;
/// How long somebody may take to answer at the end.
const PATIENCE: Nanos = 5 * SECOND;
/// How long a process may take to be gone once its connections have ended.
const GOING: Duration = Duration::from_secs(2);
/// How often progress is told.
const PROGRESS: Nanos = 100 * MILLISECOND;
const SIGKILL: i32 = 9;

/// What was seen of a play.
#[derive(Debug)]
pub(crate) struct Performance {
    pub(crate) began: Nanos,
    pub(crate) ended: Nanos,
    /// Whether somebody ended it before its time.
    pub(crate) early: bool,
    pub(crate) processes: usize,
    pub(crate) seen: Seen,
    /// Clients that were killed.
    pub(crate) stopped: u64,
    /// By lane.
    pub(crate) grants: Vec<u64>,
    /// Since when each client that waits at the end does so.
    pub(crate) waiting: Vec<Nanos>,
}

/// Is told how much of the time has passed, from 0 to 1, and how many requests were granted.
pub(crate) type Progress<'a> = &'a mut dyn FnMut(f64, u64);

/// See the module.
pub(crate) struct Stage<'a> {
    /// The number of the cast, for the processes.
    number: usize,
    cast: &'a Cast,
    settings: &'a Settings,
    secret: Secret,
    locks: TempDir,
    poll: Poll,
    signals: &'a mut Signals,
    members: HashMap<Token, Member>,
    next_token: Token,
    phase: Phase,
    began: Nanos,
    /// Connections that ended, and whose they were.
    cuts: Vec<(Token, Entry)>,
    seen: Seen,
    stopped: u64,
    grants: Vec<u64>,
    waiting: Vec<Nanos>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Starting,
    Playing,
    Ending,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(
        number: usize,
        cast: &'a Cast,
        settings: &'a Settings,
        signals: &'a mut Signals,
    ) -> Result<Self, Failure> {
        let poll = Poll::new().map_err(cannot("wait for anything"))?;
        poll.add(signals.input(), SIGNALS).map_err(cannot("wait for signals"))?;
        let locks = tempfile::Builder::new().prefix("holdall-play-").tempdir();
        let locks = locks.map_err(cannot("make a directory for lock files"))?;
        let workload = &settings.workload;
        locks::create(locks.path(), workload.resources, workload.units)
            .map_err(cannot("make lock files"))?;
        let mut secret = Secret::default();
        let mut random = File::open("/dev/urandom").map_err(cannot("draw a secret"))?;
        random.read_exact(&mut secret).map_err(cannot("draw a secret"))?;
        Ok(Self {
            number,
            cast,
            settings,
            secret,
            locks,
            poll,
            signals,
            members: HashMap::new(),
            next_token: FIRST,
            phase: Phase::Starting,
            began: 0,
            cuts: Vec::new(),
            seen: Seen::default(),
            stopped: 0,
            grants: vec![0; workload.users as usize],
            waiting: Vec::new(),
        })
    }

    /// Plays from the beginning to the end. There is nothing to see if a signal comes before it begins.
    pub(crate) fn play(
        mut self,
        nodes: &BTreeSet<NodeId>,
        progress: Progress<'_>,
    ) -> Result<Option<Performance>, Failure> {
        self.start(nodes)?;
        if self.is_interrupted() {
            return Ok(None);
        }
        self.begin()?;
        let length = self.settings.seconds * SECOND as f64;
        let until = self.began + length as Nanos;
        while now() < until && !self.is_interrupted() {
            self.pump(until.min(now() + PROGRESS))?;
            let share = (now() - self.began) as f64 / length;
            progress(share.min(1.0), self.grants.iter().sum());
        }
        let (ended, early, processes) = (now(), self.is_interrupted(), self.members.len());
        self.judge_cuts()?;
        self.end()?;
        Ok(Some(Performance {
            began: self.began,
            ended,
            early,
            processes,
            seen: self.seen,
            stopped: self.stopped,
            grants: self.grants,
            waiting: self.waiting,
        }))
    }

    fn is_interrupted(&mut self) -> bool {
        self.signals.came() > 0
    }

    /// Starts all processes, and lets them find each other, unless a signal comes.
    fn start(&mut self, nodes: &BTreeSet<NodeId>) -> Result<(), Failure> {
        let clients = 0..self.settings.workload.users;
        let places = nodes.iter().copied().map(Place::Node);
        let places: Vec<_> = places.chain(clients.map(Place::Client)).collect();
        let until = now() + START + START_OF_ONE * places.len() as Nanos;
        for place in places {
            let lane = if let Place::Client(lane) = place { lane } else { 0 };
            self.start_one(place, UserId::first(lane), 0)?;
            if self.is_interrupted() {
                return Ok(());
            }
        }
        self.wait_for(|member| member.port.is_some(), until)?;
        let book = self.book();
        for member in self.members.values_mut() {
            member
                .tell(&ToProcess::Meet(book.clone()))
                .map_err(cannot("introduce the processes"))?;
        }
        self.wait_for(|member| member.met, until)
    }

    fn start_one(&mut self, place: Place, user: UserId, rounds: u64) -> Result<(), Failure> {
        let (cast, secret) = (self.number, self.secret);
        let locks = self.locks.path().to_owned();
        let part = Part { cast, place, user, rounds, secret, locks };
        let member = Member::start(part).map_err(cannot("start a process"))?;
        self.next_token += 1;
        self.poll
            .add(member.control.stream(), self.next_token)
            .map_err(cannot("wait for a process"))?;
        self.members.insert(self.next_token, member);
        Ok(())
    }

    fn book(&self) -> Vec<Entry> {
        let entry = |member: &Member| Some(Entry { place: member.place, port: member.port? });
        self.members.values().filter_map(entry).collect()
    }

    /// Waits until this is so of all processes; of the start, only until a signal comes.
    fn wait_for(&mut self, all: fn(&Member) -> bool, until: Nanos) -> Result<(), Failure> {
        while let Some(late) = self.members.values().find(|member| !all(member)) {
            if now() > until {
                return Err(self.silent(late));
            }
            // A signal that is not heard would wake us again and again.
            if self.is_interrupted() && self.phase == Phase::Starting {
                return Ok(());
            }
            self.pump(until)?;
        }
        Ok(())
    }

    fn silent(&self, member: &Member) -> Failure {
        Failure::Silent {
            protocol: self.cast.name().into(),
            place: member.place.to_string(),
            process: member.pid(),
        }
    }

    fn begin(&mut self) -> Result<(), Failure> {
        self.phase = Phase::Playing;
        self.began = now();
        for member in self.members.values_mut() {
            member.begun = true;
            member.tell(&ToProcess::Begin(self.began)).map_err(cannot("begin"))?;
        }
        Ok(())
    }

    /// Connections end only with the process at the other end.
    fn judge_cuts(&mut self) -> Result<(), Failure> {
        for (by, entry) in std::mem::take(&mut self.cuts) {
            let Some(by) = self.members.get(&by).map(|by| (by.place, by.pid())) else { continue };
            let is_meant = |m: &&mut Member| m.place == entry.place && m.port == Some(entry.port);
            let Some(other) = self.members.values_mut().find(is_meant) else { continue };
            if !other.is_gone_within(GOING).map_err(cannot("look at a process"))? {
                return Err(Failure::Cut {
                    protocol: self.cast.name().into(),
                    by: by.0.to_string(),
                    process: by.1,
                    to: entry.place.to_string(),
                });
            }
        }
        Ok(())
    }

    /// Nobody does anything any more, then everybody goes.
    fn end(&mut self) -> Result<(), Failure> {
        self.phase = Phase::Ending;
        self.members.retain(|_, member| member.begun);
        for member in self.members.values_mut() {
            member.tell(&ToProcess::End).map_err(cannot("end"))?;
        }
        self.wait_for(|member| member.last, now() + PATIENCE)?;
        let until = Instant::now() + Duration::from_nanos(PATIENCE);
        for (_, member) in self.members.drain() {
            member.dismiss(until).map_err(cannot("end a process"))?;
        }
        Ok(())
    }

    /// Handles what happens until something did, or until that time.
    fn pump(&mut self, until: Nanos) -> Result<(), Failure> {
        let ready = self.poll.wait(Some(until)).map_err(cannot("wait for anything"))?;
        for token in ready {
            if token != SIGNALS {
                self.hear(token)?;
            }
        }
        Ok(())
    }

    fn hear(&mut self, token: Token) -> Result<(), Failure> {
        let Some(member) = self.members.get_mut(&token) else { return Ok(()) };
        let open = member.control.fill().unwrap_or(false);
        loop {
            let Some(member) = self.members.get_mut(&token) else { return Ok(()) };
            let message = member.control.take::<FromProcess>();
            match message {
                Ok(Some(message)) => self.receive(token, message)?,
                Ok(None) => break,
                Err(bad) => {
                    let what = format!("the stage cannot read its words: {bad}");
                    return Err(self.wrong(token, "it".into(), what));
                }
            }
        }
        if open { Ok(()) } else { self.ended(token) }
    }

    fn receive(&mut self, token: Token, message: FromProcess) -> Result<(), Failure> {
        let Some(member) = self.members.get_mut(&token) else { return Ok(()) };
        match message {
            FromProcess::Ready(port) => {
                member.port = Some(port);
                if self.phase == Phase::Playing {
                    self.introduce(token)?;
                }
            }
            FromProcess::Met => {
                member.met = true;
                self.begin_late(token)?;
            }
            FromProcess::Noted(newcomer) => {
                let by = member.place;
                self.noted(newcomer, by)?;
            }
            FromProcess::Cut(entry) => self.cuts.push((token, entry)),
            FromProcess::Born(user, rounds) => (member.user, member.rounds) = (user, rounds),
            FromProcess::Seen(seen, rounds) => {
                member.rounds = rounds;
                self.include(token, seen);
            }
            FromProcess::Last(seen, since) => {
                member.last = true;
                self.waiting.extend(since);
                self.include(token, seen);
            }
            FromProcess::Dying(seen, rounds) => {
                member.rounds = rounds;
                self.include(token, seen);
            }
            FromProcess::Wrong { who, what } => return Err(self.wrong(token, who, what)),
        }
        Ok(())
    }

    fn include(&mut self, token: Token, seen: Seen) {
        if let Some(Member { place: Place::Client(lane), .. }) = self.members.get(&token)
            && let Some(grants) = self.grants.get_mut(*lane as usize)
        {
            *grants += seen.grants.len() as u64;
        }
        self.seen.include(seen);
    }

    fn wrong(&self, token: Token, who: String, what: String) -> Failure {
        let member = self.members.get(&token);
        Failure::Role {
            protocol: self.cast.name().into(),
            who,
            place: member.map_or_else(String::new, |member| member.place.to_string()),
            process: member.map_or(0, Member::pid),
            what,
        }
    }

    /// Everybody is told where a newcomer is, before anybody can hear of it; it is told of everybody.
    fn introduce(&mut self, newcomer: Token) -> Result<(), Failure> {
        let book = self.book();
        let Some(member) = self.members.get(&newcomer) else { return Ok(()) };
        let Some(port) = member.port else { return Ok(()) };
        let entry = Entry { place: member.place, port };
        let mut awaits = Vec::new();
        for (token, other) in &mut self.members {
            if *token != newcomer && other.port.is_some() {
                other.tell(&ToProcess::Moved(entry)).map_err(cannot("introduce a process"))?;
                awaits.push(other.place);
            }
        }
        if let Some(member) = self.members.get_mut(&newcomer) {
            member.awaits = awaits;
            member.tell(&ToProcess::Meet(book)).map_err(cannot("introduce a process"))?;
        }
        Ok(())
    }

    /// Somebody knows where a newcomer is, or never will.
    fn noted(&mut self, newcomer: Place, by: Place) -> Result<(), Failure> {
        let found = self.members.iter_mut().find(|(_, member)| member.place == newcomer);
        let Some((token, member)) = found else { return Ok(()) };
        member.awaits.retain(|place| *place != by);
        let token = *token;
        self.begin_late(token)
    }

    /// A newcomer begins when it knows the others and the others know it.
    fn begin_late(&mut self, token: Token) -> Result<(), Failure> {
        let Some(member) = self.members.get_mut(&token) else { return Ok(()) };
        if self.phase == Phase::Playing && member.met && member.awaits.is_empty() && !member.begun {
            member.begun = true;
            member.tell(&ToProcess::Begin(self.began)).map_err(cannot("begin"))?;
        }
        Ok(())
    }

    /// A process has ended. A client that was killed is replaced, where clients may stop.
    fn ended(&mut self, token: Token) -> Result<(), Failure> {
        let Some(mut member) = self.members.remove(&token) else { return Ok(()) };
        let status = member.reap(Instant::now() + Duration::from_nanos(PATIENCE));
        let status = status.map_err(cannot("wait for a process"))?;
        let stopped = status.signal() == Some(SIGKILL) && self.cast.about().assumes.departures;
        let Place::Client(_) = member.place else { return Err(self.lost(&member, status)) };
        if !stopped || self.phase == Phase::Starting {
            return Err(self.lost(&member, status));
        }
        self.stopped += 1;
        let waiting: Vec<_> = self.members.values().map(|other| other.place).collect();
        for newcomer in waiting {
            self.noted(newcomer, member.place)?;
        }
        let next = member.user.next_generation();
        if let (Phase::Playing, Some(next)) = (self.phase, next) {
            self.start_one(member.place, next, member.rounds)?;
        }
        Ok(())
    }

    fn lost(&self, member: &Member, status: ExitStatus) -> Failure {
        let how = match status.signal() {
            Some(SIGKILL) if !matches!(member.place, Place::Client(_)) => status.to_string(),
            Some(SIGKILL) if !self.cast.about().assumes.departures => {
                "it was killed, and the protocol assumes that nobody stops".into()
            }
            Some(SIGKILL) if self.phase == Phase::Starting => {
                "it was killed before the play began".into()
            }
            _ => status.to_string(),
        };
        Failure::Ended {
            protocol: self.cast.name().into(),
            place: member.place.to_string(),
            process: member.pid(),
            how,
        }
    }
}
