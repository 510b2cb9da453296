//! A process with roles: the managers of a node, or the user of a client and the client itself.
//!
//! One thread: it waits for sockets and alarms, lets a role handle what came, and carries out what follows.
//!
//! # The contract
//! What a world promises to its roles (`holdall_core::contract`) is kept like this:
//! - **Asking, Using, Leaving**: the client goes through its stages one after another ([`client`]).
//! - **Succession**: a user follows one that left within the process; one that stopped died with its
//!   process, and the next process of the lane is started when that one is gone.
//! - **Sender**: every connection belongs to one process, and what comes on it must be from a role there.
//! - **Delivery**: TCP, one connection for each direction; no other is ever made in its place.
//! - **Silence, Departure**: a process that dies is reported to the managers at the end of its connection,
//!   which comes after all it sent; with it go all its users that are not over.
//! - **Timers**: an alarm for each arming, cancelled with it.
//!
//! There are no leases and no suspicions here. Messages inside a process are delivered at once, in order.

mod client;
pub(crate) mod links;
pub(crate) mod locks;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use holdall_core::{About, Addr, Gone, ManagerId, NodeId, Party, Rung};

use self::client::{Action, Client};
use self::links::{Arrival, Links};
use crate::channel::Channel;
use crate::clock::{self, Alarms, MILLISECOND, Nanos, now};
use crate::poll::{Poll, Token};
use crate::roles::{Act, RoleEvent, Roles};
use crate::settings::Settings;
use crate::words::{Frame, FromProcess, Part, Place, Seen, Sum, ToProcess};

const CONTROL: Token = 0;
const LISTENER: Token = 1;

/// How often the stage is told what was seen.
const NEWS: Nanos = 250 * MILLISECOND;
/// A timer waits for so many mean delays, doubled for every rung, as in the simulator.
const DELAYS_OF_A_TIMER: u64 = 4;
/// What is taken for a mean delay until enough of them were measured.
const USUAL_DELAY: Nanos = MILLISECOND / 2;
const ENOUGH_DELAYS: u64 = 20;

/// What is due.
#[derive(Debug)]
enum Alarm {
    Client(u64, Action),
    News,
    Role(Addr, Vec<u8>),
}

/// Why a process cannot go on.
#[derive(Debug)]
pub(super) struct Failed {
    /// The role, or the process.
    pub(super) who: String,
    pub(super) what: String,
}

type Step<T = ()> = Result<T, Failed>;

/// See the module.
pub(super) struct Process<'a> {
    place: Place,
    settings: &'a Settings,
    about: &'a About,
    locks: PathBuf,
    control: Channel<UnixStream>,
    poll: Poll,
    links: Links,
    roles: Box<dyn Roles>,
    /// The role that handles something right now.
    handling: Option<Addr>,
    managers: Vec<ManagerId>,
    client: Option<Client<'a>>,
    /// Messages from one role here to another.
    inside: VecDeque<(Addr, Addr, Vec<u8>)>,
    alarms: Alarms<Alarm>,
    armed: HashMap<(Addr, Vec<u8>), clock::Set>,
    /// When the play began.
    began: Nanos,
    seen: Seen,
    /// Of all messages so far.
    delays: Sum,
    ended: bool,
}

impl<'a> Process<'a> {
    pub(super) fn new(
        part: &Part,
        roles: Box<dyn Roles>,
        about: &'a About,
        settings: &'a Settings,
        control: Channel<UnixStream>,
    ) -> io::Result<Self> {
        let poll = Poll::new()?;
        poll.add(control.stream(), CONTROL)?;
        let nodes = roles.managers();
        let links = Links::new(part.place, part.secret, nodes.clone(), &poll, LISTENER)?;
        let mut process = Self {
            place: part.place,
            settings,
            about,
            locks: part.locks.clone(),
            control,
            poll,
            links,
            roles,
            handling: None,
            managers: Vec::new(),
            client: None,
            inside: VecDeque::new(),
            alarms: Alarms::default(),
            armed: HashMap::new(),
            began: 0,
            seen: Seen::default(),
            delays: Sum::default(),
            ended: false,
        };
        match part.place {
            Place::Node(node) => process.add_managers(node, &nodes),
            Place::Client(lane) => {
                process.client = Some(Client::new(settings, lane, part.user, part.rounds));
            }
        }
        let port = process.links.port()?;
        process.say(&FromProcess::Ready(port))?;
        Ok(process)
    }

    fn add_managers(&mut self, node: NodeId, nodes: &[NodeId]) {
        let here = (0..).map(ManagerId).zip(nodes).filter(|(_, at)| **at == node);
        self.managers = here.map(|(id, _)| id).collect();
        for id in &self.managers {
            self.roles.add(Addr::Manager(*id));
        }
    }

    /// The role that was handling something when everything ended.
    pub(super) fn handling(&self) -> Option<Addr> {
        self.handling
    }

    /// Says that it cannot go on, and waits for the end.
    pub(super) fn fail(&mut self, failed: Failed) {
        let Failed { who, what } = failed;
        if self.say(&FromProcess::Wrong { who, what }).is_ok() {
            self.wait_for_the_end();
        }
    }

    fn wait_for_the_end(&mut self) {
        let blocking = self.control.stream().set_nonblocking(false);
        while blocking.is_ok() && self.control.fill().is_ok_and(|open| open) {}
    }

    /// Plays to the end.
    pub(super) fn run(&mut self) -> Step {
        loop {
            let until = self.alarms.next();
            let ready = self.poll.wait(until).map_err(|error| self.trouble(&error))?;
            for token in ready {
                match token {
                    CONTROL => self.receive()?,
                    LISTENER => self.links.accept(&self.poll).map_err(|e| self.trouble(&e))?,
                    link => self.hear(link)?,
                }
                if self.ended {
                    self.wait_for_the_end();
                    return Ok(());
                }
            }
            // What is set meanwhile has to wait until the sockets were looked at.
            let due = now();
            while let Some(alarm) = self.alarms.ring(due) {
                self.ring(alarm)?;
            }
            self.flush()?;
        }
    }

    fn flush(&mut self) -> Step {
        self.links.flush(&self.poll).map_err(|error| self.trouble(&error))?;
        for entry in self.links.take_cut() {
            self.tell(&FromProcess::Cut(entry))?;
        }
        Ok(())
    }

    /// What the system refuses.
    fn trouble(&self, error: &io::Error) -> Failed {
        Failed { who: self.place.to_string(), what: error.to_string() }
    }

    /// Tells the stage something. That it does not listen means that the play is over.
    fn say(&mut self, message: &FromProcess) -> io::Result<()> {
        self.control.push(message).map_err(io::Error::other)?;
        while !self.control.flush()? {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Ok(())
    }

    fn tell(&mut self, message: &FromProcess) -> Step {
        self.say(message).map_err(|error| self.trouble(&error))
    }

    fn receive(&mut self) -> Step {
        let open = self.control.fill().unwrap_or(false);
        while let Some(message) = self
            .control
            .take::<ToProcess>()
            .map_err(|bad| Failed { who: self.place.to_string(), what: bad.to_string() })?
        {
            self.follow(message)?;
        }
        self.ended |= !open;
        Ok(())
    }

    fn follow(&mut self, message: ToProcess) -> Step {
        match message {
            ToProcess::Part(_) => {}
            ToProcess::Meet(entries) => {
                entries.into_iter().for_each(|entry| self.links.note(entry));
                if self.client.is_some() {
                    self.add_user()?;
                    self.links.meet_nodes(&self.poll).map_err(|error| self.trouble(&error))?;
                }
                self.tell(&FromProcess::Met)?;
            }
            ToProcess::Moved(entry) => {
                self.links.note(entry);
                self.tell(&FromProcess::Noted(entry.place))?;
            }
            ToProcess::Begin(at) => {
                self.began = at;
                self.alarms.set(now() + NEWS, Alarm::News);
                self.think();
            }
            ToProcess::End => {
                self.ended = true;
                let (seen, since) = (std::mem::take(&mut self.seen), self.waiting_since());
                self.tell(&FromProcess::Last(seen, since))?;
            }
        }
        Ok(())
    }

    fn hear(&mut self, link: Token) -> Step {
        let arrivals = self.links.ready(link, &self.poll).map_err(|error| self.trouble(&error))?;
        for arrival in arrivals {
            match arrival {
                Arrival::Frame(Frame::Message { from, to, sent, body }) => {
                    let delay = now().saturating_sub(sent);
                    self.delays.add(delay);
                    self.seen.delays.add(delay);
                    self.deliver(from, to, body)?;
                }
                Arrival::Frame(_) => {}
                Arrival::End(users) if self.about.assumes.departures => {
                    for user in users {
                        for manager in self.managers.clone() {
                            let gone = Gone::Departed(Party::User(user));
                            self.step(Addr::Manager(manager), RoleEvent::Gone(gone))?;
                        }
                    }
                }
                Arrival::End(_) => {}
                Arrival::Nonsense(from, what) => {
                    let what = format!("cannot make sense of what {from} sent: {what}");
                    return Err(Failed { who: self.place.to_string(), what });
                }
            }
        }
        Ok(())
    }

    /// A message arrives. One to a user that is no longer there is dropped; nobody else is missing.
    fn deliver(&mut self, from: Addr, to: Addr, body: Vec<u8>) -> Step {
        if self.roles.has(to) {
            return self.step(to, RoleEvent::Message { from, body });
        }
        if self.is_past(to) {
            return Ok(());
        }
        let what = format!("gets a message of {from:?} for {to:?}, which is not there");
        Err(Failed { who: self.place.to_string(), what })
    }

    fn ring(&mut self, alarm: Alarm) -> Step {
        match alarm {
            Alarm::Client(number, action) => self.act(number, action),
            Alarm::News => {
                self.alarms.set(now() + NEWS, Alarm::News);
                let seen = std::mem::take(&mut self.seen);
                let rounds = self.rounds_begun();
                if seen == Seen::default() {
                    Ok(())
                } else {
                    self.tell(&FromProcess::Seen(seen, rounds))
                }
            }
            Alarm::Role(who, tag) => {
                self.armed.remove(&(who, tag.clone()));
                self.step(who, RoleEvent::Timer(tag))
            }
        }
    }

    /// Lets a role handle something, and then all roles what follows from it inside this process.
    fn step(&mut self, who: Addr, input: RoleEvent) -> Step {
        self.step_one(who, input)?;
        while let Some((from, to, body)) = self.inside.pop_front() {
            if self.roles.has(to) {
                self.step_one(to, RoleEvent::Message { from, body })?;
            }
        }
        Ok(())
    }

    fn step_one(&mut self, who: Addr, input: RoleEvent) -> Step {
        let mut acts = Vec::new();
        self.handling = Some(who);
        let stepped = self.roles.step(who, input, &mut acts);
        self.handling = None;
        stepped.map_err(|wrong| Failed { who: format!("{who:?}"), what: wrong.to_string() })?;
        for act in acts {
            self.carry_out(who, act)?;
        }
        if let Addr::User(user) = who {
            self.retire_if_over(user)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, who: Addr, act: Act) -> Step {
        match act {
            Act::Arm(tag, rung) => {
                self.disarm(who, &tag);
                let alarm = Alarm::Role(who, tag.clone());
                let set = self.alarms.set(now().saturating_add(self.patience(rung)), alarm);
                self.armed.insert((who, tag), set);
                Ok(())
            }
            Act::Disarm(tag) => {
                self.disarm(who, &tag);
                Ok(())
            }
            Act::Granted(request) => self.granted(who, &request),
            Act::Lost(request) => self.lost(who, request),
            Act::Released(request) => self.released(who, request),
            Act::Send(to, body) => self.send(who, to, body),
        }
    }

    fn disarm(&mut self, who: Addr, tag: &[u8]) {
        if let Some(set) = self.armed.remove(&(who, tag.to_vec())) {
            self.alarms.cancel(set);
        }
    }

    /// How long a timer waits.
    fn patience(&self, rung: Rung) -> Nanos {
        let base = u128::from(DELAYS_OF_A_TIMER * self.mean_delay().max(1));
        Nanos::try_from(base << rung.min(64)).unwrap_or(Nanos::MAX)
    }

    /// As measured so far.
    fn mean_delay(&self) -> Nanos {
        let measured = Some(self.delays).filter(|delays| delays.number >= ENOUGH_DELAYS);
        measured.and_then(Sum::mean).map_or(USUAL_DELAY, |mean| mean as Nanos)
    }

    fn send(&mut self, from: Addr, to: Addr, body: Vec<u8>) -> Step {
        let Some(place) = self.links.place_of(to) else {
            let what = format!("sends to {to:?}, which there is not");
            return Err(Failed { who: format!("{from:?}"), what });
        };
        if place == self.place {
            self.inside.push_back((from, to, body));
            return Ok(());
        }
        self.seen.messages += 1;
        let frame = Frame::Message { from, to, sent: now(), body };
        self.links.send(place, &frame, &self.poll).map_err(|error| self.trouble(&error))
    }
}
