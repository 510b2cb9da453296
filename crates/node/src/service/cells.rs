//! Other cells: what their agents say over the links, and what is said to them.
//!
//! # Invariants
//! - What is said over a link is of that link: what was held back until the log had it, and belongs to one that is gone, is dropped.
//! - What rests on the log leaves in the order in which it came up. A beat is confirmed at once, but not before what was taken from its
//!   home by then is in the log: so whatever was taken from a home it is told before its next beat is confirmed.
//! - If something does not fit, the link ends: of what was said over one, a beginning is heard.
//! - Before anything else both say what they know of each other's logs, if both are of a version that does (`service/meeting.rs`).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Weak;
use std::sync::Arc;
use std::time::Duration;

use holdall_cell::greeting::{Presence, Stranger};
use holdall_cell::lease::{Leases, Terms, Verdict};
use holdall_cell::session::{CallNo, ConnNo};
use holdall_cell::{Cluster, Effect, Input};
use holdall_core::CellId;
use holdall_links::{self as links, Event, Events, Unsent, Way};
use holdall_log::Index;
use holdall_wire::{Fault, Reply, RequestNo};
use tracing::{error, info, trace, warn};

use super::away::ToldAway;
use super::backlog::Backlog;
use super::heard::Still;
use super::meeting::Meeting;
use super::questions::Questions;
use super::start::until_written;
use super::{End, Leaving, Service, Shared};
use crate::clock::clamp;
use crate::cluster::frame::Frame;
use crate::cluster::greeter::Greeter;
use crate::cluster::{Known, Running, as_member, number, prepare};
use crate::hosted::prepared::Connected;

/// What the service knows of other cells.
pub(super) struct Cells {
    pub(super) running: Option<Running>,
    pub(super) greeter: Arc<Greeter>,
    /// What this cell is called.
    pub(super) name: String,
    pub(super) terms: Terms,
    pub(super) leases: Leases,
    /// The links that are up.
    pub(super) links: BTreeMap<CellId, Link>,
    /// What beats tell while the log grows by what they tell alone.
    pub(super) still: Still,
    /// Those over which the other one has not said yet what it knows.
    pub(super) meetings: BTreeMap<CellId, Meeting>,
    /// What the links know the cells by.
    pub(super) ids: BTreeMap<CellId, links::CellId>,
    last_link: u64,
    /// When the next beat is due.
    next_beat: u64,
    /// Grants of which is not known yet until when they may be used: for commands, and for whom else.
    pub(super) unprepared: Vec<RequestNo>,
    pub(super) untold: Vec<(ConnNo, CallNo, Reply)>,
    /// Until when clients were told that they may use what.
    pub(super) told: BTreeMap<RequestNo, u64>,
    /// To whom of those who wait it was told which cell is away, since that is.
    pub(super) told_away: ToldAway,
    /// Whether the pools are not what the others were told.
    pub(super) pools_changed: bool,
    pub(super) questions: Questions,
    backlog: Backlog,
    /// The cell whose word is being taken up.
    pub(super) hears: Option<CellId>,
    /// Those that have known more of this cell than its log tells.
    pub(super) outdone_by: BTreeMap<CellId, Stranger>,
}

/// A link that is up.
pub(super) struct Link {
    number: u64,
    pub(super) way: Way,
    /// Something did not fit: nothing more is said over it.
    is_full: bool,
    /// The record up to which the log has to have come before beats are confirmed: that the other cell has said what it holds, or
    /// that something was taken from it. None before it has said so.
    pub(super) settled: Option<Index>,
}

impl Cells {
    /// Of a member of a cluster that has just started.
    pub(super) fn new(known: &Known, presence: Presence, now: u64) -> Self {
        let own = known.home.cell().id;
        let (forgotten, tokens) = (known.forgotten.clone(), known.tokens.clone());
        let greeter = Greeter::new(own, presence, known.terms, forgotten, tokens);
        let mut ids = BTreeMap::new();
        let others = known.members.iter().filter(|(id, _)| *id != own);
        for (id, _) in others.filter(|(id, _)| !known.forgotten.is_away(*id)) {
            ids.insert(number(*id), *id);
            greeter.know_of(*id);
        }
        Self {
            running: None,
            greeter: Arc::new(greeter),
            name: known.home.cell().name.to_string(),
            terms: known.terms,
            leases: Leases::new(known.terms, now, ids.keys().copied()),
            links: BTreeMap::new(),
            still: Still::default(),
            meetings: BTreeMap::new(),
            ids,
            last_link: 0,
            next_beat: now,
            unprepared: Vec::new(),
            untold: Vec::new(),
            told: BTreeMap::new(),
            told_away: ToldAway::default(),
            pools_changed: true,
            questions: Questions::default(),
            backlog: Backlog::default(),
            hears: None,
            outdone_by: BTreeMap::new(),
        }
    }

    /// All connections that there are.
    pub(super) fn ways(&self) -> impl Iterator<Item = &Way> {
        let meeting = self.meetings.values().map(Meeting::way);
        self.links.values().map(|link| &link.way).chain(meeting)
    }

    /// A link is up, over which all is said from now on.
    pub(super) fn link_up(&mut self, cell: CellId, way: Way) {
        self.last_link += 1;
        let link = Link { number: self.last_link, way, is_full: false, settled: None };
        self.links.insert(cell, link);
        self.told_away.is_back(cell);
    }

    /// The number of the link to a cell, if there is one.
    pub(super) fn link(&self, cell: CellId) -> Option<u64> {
        self.links.get(&cell).map(|link| link.number)
    }
}

/// How the cell is told that there are others; `all` if also those that were removed or forgotten.
pub(super) fn cluster(known: &Known, all: bool) -> Option<Cluster> {
    let own = known.home.cell();
    let others = known.members.iter().filter(|(id, _)| *id != own.id);
    let others = others.filter(|(id, it)| all || !it.removed && !known.forgotten.is_away(*id));
    let members = others.filter_map(|(id, it)| as_member(*id, it)).collect();
    let name = own.name.as_str().parse().ok()?;
    let own = holdall_cell::engine::Member { name, cell: number(own.id) };
    let forgotten = known.members.iter().map(|(id, _)| *id);
    let forgotten = forgotten.filter(|id| !all && known.forgotten.is_away(*id));
    let forgotten = forgotten.map(number).collect();
    Some(Cluster { own, members, forgotten, stopping: known.terms.stopping })
}

/// Starts the links of a member, or opens those that were prepared, and takes what they tell as long as there is a service.
///
/// # Errors
/// If the links cannot be started.
pub(crate) async fn begin_links(
    service: &Shared,
    known: &Known,
    prepared: Option<Connected>,
) -> anyhow::Result<()> {
    let greeter = service.borrow().cells.as_ref().map(|cells| cells.greeter.clone());
    let Some(greeter) = greeter else { return Ok(()) };
    // So that others are told more than how this start began.
    greeter.has_come_to(until_written(service).await.0);
    let (running, events) = match prepared {
        Some(Connected { running, events, above }) => {
            above.is(greeter);
            (running, events)
        }
        None => prepare(known, greeter)?,
    };
    running.links.open();
    info!(cell = %running.links.own(), at = running.listens, "a member of a cluster");
    if let Some(cells) = &mut service.borrow_mut().cells {
        cells.running = Some(running);
    }
    tokio::task::spawn_local(take_events(std::rc::Rc::downgrade(service), events));
    Ok(())
}

async fn take_events(service: Weak<RefCell<Service>>, mut events: Events) {
    while let Some(event) = events.next().await {
        let Some(service) = service.upgrade() else { return };
        while !service.borrow().listens {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        service.borrow_mut().on_event(event);
    }
}

impl Service {
    /// The time of leases: nobody can set it, and it goes on while the machine sleeps.
    pub(super) fn boottime(&self) -> u64 {
        clamp(self.clock.reads().boottime)
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Up { peer, greeting, way } => self.on_up(&peer, &greeting, way),
            Event::Down { peer, why } => self.on_down(&peer, &why),
            Event::Refused { peer, why } => self.on_refused(peer, &why),
            Event::Message { peer, bytes } => self.on_message(number(peer), &bytes),
            Event::Members(members) => self.on_members(&members),
            Event::Forget { cell, word } => self.on_forget(cell, &word),
            // It is looked at when somebody wants to see it.
            Event::About { .. } => {}
            Event::Client { name, from, stream } => self.let_in_remote(&name, from, stream),
        }
        self.round.begin();
    }

    fn on_up(&mut self, peer: &links::Cell, greeting: &[u8], way: Way) {
        self.remember_word(peer.id);
        let known = self.books().ties().known_of(number(peer.id));
        let Some(cells) = &mut self.cells else { return };
        if !cells.backlog.has_room(number(peer.id)) {
            return way.end("the disk stands still, and too much waits to be said to it");
        }
        // The greeting says where another start of it is.
        let known = cells.greeter.knows(peer.id, known);
        let (presence, is_back) = match cells.greeter.linked(peer, greeting) {
            Ok(wanted) => wanted,
            Err(why) => {
                warn!(%peer, "a link is not wanted any more: {why}");
                return way.end("it is not wanted any more; it is told why when it comes again");
            }
        };
        let known = cells.greeter.says_what_it_knows(peer.id).then_some(known);
        self.meet(Meeting { peer: peer.clone(), presence, is_back, way }, known);
    }

    fn on_down(&mut self, peer: &links::Cell, why: &str) {
        let cell = number(peer.id);
        let Some(cells) = &mut self.cells else { return };
        if cells.meetings.remove(&cell).is_some() {
            return cells.greeter.unlinked(peer.id);
        }
        if cells.links.remove(&cell).is_none() {
            return;
        }
        cells.greeter.unlinked(peer.id);
        self.input(Input::Unlinked(cell));
        self.no_answer_from(cell, &Fault::silent(peer, format_args!(": {why}")));
        self.is_away(cell);
    }

    fn on_message(&mut self, cell: CellId, bytes: &[u8]) {
        if self.end == Some(End::Closed) {
            return; // It is heard by whoever leads next, if anybody does.
        }
        let Some(cells) = &self.cells else { return };
        let meets = cells.meetings.contains_key(&cell);
        if !meets && !cells.links.contains_key(&cell) {
            return;
        }
        match Frame::decode(bytes) {
            Ok(frame) => {
                trace!(cell = cell.0, ?frame, "heard");
                match frame {
                    Frame::First(first) if meets => self.on_first(cell, first),
                    _ if meets => self.unlink(cell, "it does not say first what it knows"),
                    frame => self.on_frame(cell, frame),
                }
            }
            Err(_) => self.unlink(cell, "it says what cannot be read"),
        }
    }

    fn on_frame(&mut self, cell: CellId, frame: Frame) {
        let now = self.boottime();
        let Some(cells) = &mut self.cells else { return };
        match frame {
            Frame::Beat { sent, length } => {
                cells.leases.heard(now, cell);
                if let Some(id) = cells.ids.get(&cell) {
                    cells.greeter.heard(*id, length);
                }
                self.heard_length(cell, length);
                self.confirm(cell, sent);
            }
            Frame::Beaten { sent } if sent <= now => {
                cells.leases.confirmed(sent, cell);
                self.tell_who_waits_for_a_lease();
                self.tell_deadlines(cell);
            }
            Frame::Beaten { .. } => self.unlink(cell, "it answers what was not said yet"),
            Frame::Said { length, message } => {
                if let Some(id) = cells.ids.get(&cell) {
                    cells.greeter.heard(*id, length);
                }
                self.hear(cell, message, length);
            }
            Frame::Asks { number, question, .. }
                if self.answered_beside(cell, number, &question) => {}
            Frame::Asks { number, asker, question } => {
                let reply = Box::new(self.answer_cell(cell, asker, *question));
                self.say(cell, Frame::Answers { number, reply });
            }
            Frame::Answers { number, reply } => self.answered(cell, number, *reply),
            Frame::First(_) => self.unlink(cell, "it says twice what it knows"),
        }
    }

    /// Something is said to a cell, over the link that there is now, when all has left that came before.
    pub(super) fn say(&mut self, cell: CellId, frame: Frame) {
        if let Some(said) = self.saying(cell, frame) {
            self.hold(said, false);
            self.round.begin();
        }
    }

    /// Something that is to be said over the link that there is now, if there is room for it until the log lets it leave.
    fn saying(&mut self, cell: CellId, frame: Frame) -> Option<Leaving> {
        let cells = self.cells.as_mut()?;
        let link = cells.links.get_mut(&cell).filter(|link| !link.is_full)?;
        if cells.backlog.add(cell, &frame) {
            return Some(Leaving::Said(cell, link.number, Box::new(frame)));
        }
        link.is_full = true;
        link.way.end("the disk stands still, and too much waits to be said to it");
        None
    }

    /// Something is said to a cell that rests on nothing.
    pub(super) fn say_at_once(&mut self, cell: CellId, frame: &Frame) {
        if let Some(link) = self.cells.as_ref().and_then(|cells| cells.link(cell)) {
            self.send_over(cell, link, frame);
        }
    }

    /// The log lets something leave that is said to a cell.
    pub(super) fn send_to(&mut self, cell: CellId, number: u64, frame: &Frame) {
        if let Some(cells) = &mut self.cells {
            cells.backlog.remove(cell, frame);
        }
        self.send_over(cell, number, frame);
    }

    fn send_over(&self, cell: CellId, number: u64, frame: &Frame) {
        let Some(cells) = &self.cells else { return };
        // What leaves is in the log: greetings tell of nothing that a kill could undo.
        if let Frame::Beat { length, .. } | Frame::Said { length, .. } = frame {
            cells.greeter.has_come_to(*length);
        }
        let link = cells.links.get(&cell).filter(|link| link.number == number);
        let Some(link) = link else { return };
        trace!(cell = cell.0, ?frame, "said");
        let sent = frame.encode().map_or(Err(Unsent::Long), |bytes| link.way.send(bytes));
        match sent {
            Ok(()) | Err(Unsent::Down) => {}
            Err(Unsent::Full) => link.way.end("it does not take in what it is told"),
            Err(Unsent::Long) => {
                error!("something is too long to be said to another cell");
                link.way.end("what is to be said is too long");
            }
        }
    }

    /// A cell says what no honest one would.
    pub(super) fn unlink(&mut self, cell: CellId, why: &'static str) {
        let Some(cells) = &self.cells else { return };
        let way = cells.links.get(&cell).map(|link| &link.way);
        if let Some(way) = way.or_else(|| cells.meetings.get(&cell).map(Meeting::way)) {
            warn!(cell = cell.0, "the link to a cell is cut: {why}");
            way.end(why);
        }
    }

    pub(super) fn beat(&mut self, cell: CellId) {
        if self.hosted.is_some() && self.host.held_up().is_some() {
            return; // It holds nothing elsewhere: its beats keep nothing alive, and would only pile up.
        }
        let (sent, last) = (self.boottime(), self.host.last().0);
        let length = self.cells.as_ref().map_or(last, |cells| cells.still.told(last));
        self.say(cell, Frame::Beat { sent, length });
    }

    /// Beats, looks whether others do, and says when to look again.
    pub(crate) fn look_at_cells(&mut self) -> Option<Duration> {
        let now = self.boottime();
        let cells = self.cells.as_mut()?;
        if cells.next_beat <= now {
            cells.next_beat = now + cells.terms.beat();
            let linked: Vec<_> = cells.links.keys().copied().collect();
            linked.into_iter().for_each(|cell| self.beat(cell));
        }
        let verdicts = self.cells.as_mut()?.leases.look(now);
        for verdict in verdicts {
            match verdict {
                Verdict::Suspected(cell) => self.input(Input::Suspected(cell)),
                Verdict::Lapsed(cell) => {
                    self.input(Input::Lapsed(cell));
                    self.settle(cell);
                }
                Verdict::LeaseOver(cell) => {
                    self.lease_over(cell, "could not be reached for too long");
                }
            }
        }
        let cells = self.cells.as_ref()?;
        crate::metrics::observe_cells(cells.ids.len(), cells.links.len());
        let next = cells.leases.next_due().map_or(cells.next_beat, |due| due.min(cells.next_beat));
        Some(Duration::from_millis(next.saturating_sub(now)))
    }

    /// What follows from an input for another cell.
    pub(super) fn for_cell(&mut self, effect: Effect) -> Option<Leaving> {
        match effect {
            Effect::Send(cell, message) => {
                let hears = self.cells.as_ref().and_then(|cells| cells.hears);
                if message.ends() && hears != Some(cell) {
                    self.settle(cell);
                }
                let length = self.host.last().0;
                self.saying(cell, Frame::Said { length, message })
            }
            effect => Some(Leaving::Effect(Box::new(effect))),
        }
    }
}
