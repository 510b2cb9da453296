//! A cell: the engine, and the books of what came of it.
//!
//! Inputs in, facts and effects out. What an input decides is noted as facts, and these change the
//! books; so whoever has the facts has everything but who is connected, which is over when a host
//! starts, and the engine, which can be built again from them ([`Start::rebuilt`](crate::Start)). The
//! host logs input and facts, and carries out the effects when the log says that they may leave.
//!
//! # Invariants
//! - The books take every fact: what cannot be (a unit held twice, a fence that goes back) is a
//!   [`Defect`], and the cell must not be stepped again.
//! - What the books say is held or waits, the engine does, and nothing else.
//! - An input that is not new ([`Out::is_new`](crate::Out)) has changed nothing that a replay
//!   without it would lack.

mod another;
mod calls;
mod ending;
mod import;
mod keeping;
mod peers;
mod room;
mod start;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use holdall_core::{CellId, RequestId};
use holdall_protocols::house::House;
use holdall_wire::{Fault, Lasting, Name, Refusal, Reply, RequestNo, Taken};
use serde::{Deserialize, Serialize};

use crate::books::{Books, Contradiction, Entry};
use crate::engine::{self, Engine};
use crate::events;
use crate::facts::{Answer, Clock, Fact, How};
use crate::input::{Effect, Input, Limits, Out, Over, Wish};
use crate::peer::Asserting;
use crate::session::{CallNo, ConnNo, Hello, SessionId, Turn};

/// What must never happen in a cell.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// A fact that cannot be.
    #[error("the books: {0}")]
    Books(#[from] Contradiction),
    /// The engine is broken.
    #[error("the engine: {0}")]
    Engine(#[from] engine::Defect),
    /// The protocol is not what the engine needs.
    #[error("there is no engine: {0}")]
    NoEngine(String),
}

/// What the host has said of its configuration when it started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings {
    limits: Limits,
    /// For how many milliseconds anybody has some of a pool at most.
    longest: BTreeMap<Name, u64>,
    /// How many milliseconds before the end of a lease whoever uses what others guard begins to stop.
    stopping: Option<u64>,
    /// For how many milliseconds at most other cells are waited for.
    patience: u64,
}

/// A cell.
pub struct Cell {
    pub(crate) engine: Engine<House>,
    pub(crate) books: Books,
    pub(crate) settings: Settings,
    pub(crate) now: u64,
    out: Out,
    /// What came of the change of a pool that is being made.
    changed: Result<(), Fault>,
    /// The sessions whose connections outlast the start with this epoch.
    pub(crate) kept: (u32, Vec<SessionId>),
    /// What other cells have said so far of what they hold.
    pub(crate) asserting: BTreeMap<CellId, Asserting>,
    /// What they hold and this cell has forgotten and cannot hold again: they stop using it.
    pub(crate) disputed: BTreeMap<CellId, BTreeSet<RequestId>>,
    /// What was held for other homes and could not be when the engine was built again.
    unrestored_abroad: BTreeSet<RequestId>,
    /// Cells that are no members any more, and until when they may use what they hold here.
    pub(crate) strays: BTreeMap<CellId, u64>,
}

impl Cell {
    /// A cell to which nothing has happened.
    ///
    /// # Errors
    /// If there is no such protocol.
    pub fn new() -> Result<Self, Defect> {
        let (engine, books) = (start::engine(0, false)?, Books::default());
        let (settings, out, kept, asserting, disputed) = Default::default();
        let (unrestored_abroad, strays) = Default::default();
        Ok(Self {
            engine,
            books,
            settings,
            now: 0,
            out,
            changed: Ok(()),
            kept,
            asserting,
            disputed,
            unrestored_abroad,
            strays,
        })
    }

    /// Takes an input, at a time in milliseconds that does not go back: [`Clock::steady`] of the clock
    /// that the last start has led to ([`Cell::clock`]).
    ///
    /// # Errors
    /// If an invariant is broken. Nothing may leave any more, and the input does not belong into the
    /// log.
    pub fn step(&mut self, at: u64, input: Input) -> Result<Out, Defect> {
        let before = self.now;
        self.now = before.max(at);
        match input {
            Input::Started(start) => self.start(&start)?,
            Input::Attach { conn, hello } => self.attach(conn, &hello)?,
            Input::Call { conn, call, heard, wish } => self.call(conn, call, heard, wish)?,
            Input::Heard { conn, upto } => self.hear(conn, upto)?,
            Input::Detach(conn) => self.detach(conn)?,
            Input::Over(session) => self.close(session)?,
            Input::Prepared { request, holder, place } => self.prepared(request, holder, place)?,
            Input::HolderEnded(request) => self.holder_ended(request)?,
            Input::Timer(timer) => {
                self.out.is_new = true;
                self.run(engine::Input::Timer(timer))?;
            }
            Input::Due => self.look_at_deadlines()?,
            Input::Dismiss => self.dismiss()?,
            Input::Clock { ahead } => {
                if ahead != self.books.clock().ahead {
                    self.note(Fact::Clock { ahead })?;
                }
            }
            Input::Spare { session, call } => self.spare(session, call)?,
            Input::Import(import) => self.import(import)?,
            Input::Keep { epoch, sessions } => {
                self.out.is_new = true;
                self.kept = (epoch, sessions);
            }
            Input::Linked { cell, presence, first } => self.linked(cell, presence, first)?,
            Input::Unlinked(cell) => self.unlinked(cell),
            Input::Said { cell, message, length } => self.said(cell, *message, length)?,
            Input::CameTo { cell, length } => self.comes_to(cell, length)?,
            Input::Outdone(cell) => self.outdone(cell)?,
            Input::Members(members) => self.know(&members),
            Input::Suspected(cell) => self.suspected(cell)?,
            Input::Lapsed(cell) => self.lapsed(cell)?,
            Input::LeaseOver(cell) => self.lease_over(cell)?,
            Input::Forget { cell, life, word } => self.give_up(cell, life, word)?,
            Input::Removed(cell) => self.removed(cell)?,
        }
        self.take_outgoing();
        let mut out = std::mem::take(&mut self.out);
        out.is_new |= !out.facts.is_empty();
        if !out.is_new {
            self.now = before;
        }
        Ok(out)
    }

    /// How many requests, sessions and units of pools there are: its snapshot is about as many times as long.
    pub fn extent(&self) -> usize {
        self.books.requests() + self.books.sessions.count() + self.engine.units()
    }

    /// Takes back what a step led to, once that is used up, for the room that it has.
    pub fn reuse(&mut self, mut out: Out) {
        out.facts.clear();
        out.facts.shrink_to(engine::ROOM);
        out.events.clear();
        out.events.shrink_to(engine::ROOM);
        out.effects.clear();
        out.effects.shrink_to(engine::ROOM);
        out.ended.clear();
        out.ended.shrink_to(engine::ROOM);
        (out.is_new, out.sync) = (false, false);
        self.out = out;
    }

    /// The epoch that numbers have reached. It must be kept before effects leave.
    pub fn epoch(&self) -> u32 {
        self.engine.epoch()
    }

    /// The engine, to be looked at.
    pub fn engine(&self) -> &Engine<House> {
        &self.engine
    }

    /// The books.
    pub fn books(&self) -> &Books {
        &self.books
    }

    /// The time that the last input has led to.
    pub fn now(&self) -> u64 {
        self.now
    }

    /// What times mean.
    pub fn clock(&self) -> &Clock {
        self.books.clock()
    }

    /// Whether a call that comes over a connection is new, and will be done.
    pub fn is_new_call(&self, conn: ConnNo, call: CallNo) -> bool {
        let session = self.books.sessions.of(conn);
        session.is_some_and(|session| self.books.sessions.is_new(session, call))
    }

    /// When to look at deadlines ([`Input::Due`]).
    pub fn next_due(&self) -> Option<u64> {
        let grant = self.books.next_due().map(|(at, _)| at);
        let lease = self.books.sessions.next_lapse();
        let drained = self.books.next_undrain();
        let recovery = self.books.ties().recovery().until;
        let stray = self.strays.values().min().copied();
        grant.into_iter().chain(lease).chain(drained).chain(recovery).chain(stray).min()
    }

    /// Something is so from now on.
    fn note(&mut self, fact: Fact) -> Result<(), Defect> {
        let event = events::project(&self.books, self.now, &fact);
        self.out.events.extend(event);
        if let Fact::Ended { request, .. } = fact
            && let Some(Entry { who, session, .. }) = self.books.get(request)
        {
            self.out.ended.push(Over { request, uid: who.uid, asked: *session });
        }
        self.books.enter(&fact)?;
        self.out.facts.push(fact);
        Ok(())
    }

    fn effect(&mut self, effect: Effect) {
        self.out.effects.push(effect);
    }

    /// Tells a session something, if it is there to hear it. What it misses it is told when it comes
    /// back.
    fn tell(&mut self, session: SessionId, call: CallNo, reply: Reply) {
        if let Some(conn) = self.books.sessions.connection(session) {
            // It outlives the machine: whoever has it is on another one.
            let is_granted = matches!(reply, Reply::Granted { .. });
            self.out.sync |= is_granted && self.books.sessions.is_leased(session);
            self.effect(Effect::Reply { conn, call, reply });
        }
    }

    /// Tells the last reply of a call.
    fn answer(&mut self, session: SessionId, call: CallNo, answer: Answer) -> Result<(), Defect> {
        self.note(Fact::Answered { session, call, answer: answer.clone() })?;
        self.tell(session, call, answer.into());
        Ok(())
    }

    fn attach(&mut self, conn: ConnNo, hello: &Hello) -> Result<(), Defect> {
        let session = hello.session;
        let before = self.books.sessions.heard(session);
        let welcome = match self.books.sessions.attach(conn, hello, &self.settings.limits) {
            Ok(welcome) => welcome,
            Err(why) => {
                self.effect(Effect::TurnedAway(conn, why));
                return Ok(());
            }
        };
        self.out.is_new = true;
        if before.is_none() {
            let Hello { secret, uid, means, .. } = *hello;
            self.note(Fact::Session { session, secret, uid, means })?;
            self.effect(Effect::WatchSession(session, means));
        }
        self.note_heard(session, before)?;
        if let Some(other) = welcome.displaced {
            self.effect(Effect::Close(other));
        }
        let open = welcome.open.iter();
        let open = open.map(|(call, request)| (*call, self.stands(*request)));
        let replied = welcome.replied.into_iter().map(|(call, answer)| (call, Some(answer.into())));
        let pending = welcome.pending.into_iter().map(|call| (call, None));
        let mut answers: Vec<(CallNo, Option<Reply>)> =
            open.chain(replied).chain(pending).collect();
        answers.sort_by_key(|(call, _)| *call);
        let is_granted = |reply: &Option<Reply>| matches!(reply, Some(Reply::Granted { .. }));
        let tells_of_a_grant = answers.iter().any(|(_, reply)| is_granted(reply));
        self.out.sync |= tells_of_a_grant && self.books.sessions.is_leased(session);
        let (life, last) = (self.books.life(), welcome.last);
        self.effect(Effect::Welcome { conn, life, last, answers });
        Ok(())
    }

    /// How a request stands, for the client that asked; none if it will be told.
    fn stands(&self, request: RequestNo) -> Option<Reply> {
        let entry = self.books.get(request)?;
        let ended = entry.left.as_ref().map(|left| &left.how).or(entry.closing.as_deref());
        if let Some(how) = ended {
            // Whoever has given it back knows.
            return (*how != How::Released).then(|| how.answer(request).into());
        }
        match &entry.held {
            None => Some(Reply::Queued(request)),
            Some(_) if entry.taken_away.is_some() => Some(Reply::Lost(request)),
            Some(held) if entry.ready => Some(Reply::Granted {
                request,
                taken: held.taken.clone(),
                place: entry.place.as_deref().cloned(),
                // The host knows its configuration.
                variables: Vec::new(),
                limit: held.limit_at.map(|at| at.saturating_sub(self.now)),
            }),
            Some(_) => None,
        }
    }

    fn note_heard(&mut self, session: SessionId, before: Option<CallNo>) -> Result<(), Defect> {
        match self.books.sessions.heard(session) {
            Some(upto) if upto > before.unwrap_or_default() => {
                self.note(Fact::Heard { session, upto })
            }
            _ => Ok(()),
        }
    }

    fn hear(&mut self, conn: ConnNo, upto: CallNo) -> Result<(), Defect> {
        match self.books.sessions.hear(conn, upto) {
            Some((session, upto)) => self.note(Fact::Heard { session, upto }),
            None => Ok(()),
        }
    }

    fn detach(&mut self, conn: ConnNo) -> Result<(), Defect> {
        self.out.is_new = self.books.sessions.of(conn).is_some();
        match self.books.sessions.detach(self.now, conn) {
            Some(session) => self.close(session),
            None => Ok(()),
        }
    }

    /// A call: new ones are done, others told again.
    fn call(
        &mut self,
        conn: ConnNo,
        call: CallNo,
        heard: CallNo,
        wish: Wish,
    ) -> Result<(), Defect> {
        if heard > CallNo(0) {
            self.hear(conn, heard)?;
        }
        let gives_back = self.gives_back(conn, &wish);
        match self.books.sessions.call(conn, call, gives_back) {
            Ok((session, Turn::New)) => self.wish(session, call, wish)?,
            Ok((session, Turn::Open(request))) => {
                if let Some(reply) = self.stands(request) {
                    self.tell(session, call, reply);
                }
            }
            Ok((session, Turn::Replied(answer))) => self.tell(session, call, answer.into()),
            Ok((_, Turn::Pending | Turn::Heard)) => {}
            Err(why) => self.effect(Effect::NotTaken(conn, call, why)),
        }
        Ok(())
    }

    /// A call that was not done, and must not be, fails.
    fn spare(&mut self, session: SessionId, call: CallNo) -> Result<(), Defect> {
        if !self.books.sessions.is_new(session, call) {
            return Ok(());
        }
        let why = "this call has broken an invariant of the agent, and is not done; `broken.json` \
                   in its data directory says which";
        self.answer(session, call, Answer::Failed(Fault::Failed(why.into()).into()))
    }

    /// Steps the engine, and notes what follows.
    fn run(&mut self, input: engine::Input) -> Result<(), Defect> {
        let effects = self.engine.step(self.now, input)?;
        self.take_effects(effects)
    }

    fn take_effects(&mut self, mut effects: Vec<engine::Effect>) -> Result<(), Defect> {
        for effect in effects.drain(..) {
            match effect {
                engine::Effect::Arm(timer, rung) => {
                    self.effect(Effect::Arm(timer, rung, self.now));
                }
                engine::Effect::Disarm(timer) => self.effect(Effect::Disarm(timer)),
                engine::Effect::Changed(changed) => self.changed = changed,
                engine::Effect::Ended(request) => self.all_parts_have_ended(request)?,
                engine::Effect::Granted { request, taken, overtook } => {
                    self.granted(request, taken, overtook)?;
                }
                engine::Effect::HeldFor(held) => self.held_for(*held)?,
                engine::Effect::Kept(request, until) => self.kept(request, until)?,
                engine::Effect::LetGo(request) => self.let_go(request)?,
                engine::Effect::Lost(request) => self.take_away(request, How::Lost)?,
                engine::Effect::Misbehaved(cell, what) => self.misbehaved(cell, what),
                engine::Effect::Queued(request) => self.queued(request)?,
                engine::Effect::Refused { request, why } => {
                    self.over(request, How::Refused(why))?;
                }
                engine::Effect::Unrestored(request) => self.unrestored(request)?,
            }
        }
        self.engine.reuse(effects);
        Ok(())
    }

    fn granted(
        &mut self,
        request: RequestNo,
        taken: Arc<[Taken]>,
        overtook: u32,
    ) -> Result<(), Defect> {
        let Some(entry) = self.books.get(request) else { return Ok(()) };
        if entry.held.is_some() {
            return Ok(()); // It is in force again.
        }
        let since = self.now;
        let until = match entry.ask.lasting {
            Lasting::Reservation(millis) => Some(since.saturating_add(millis)),
            _ => None,
        };
        let longest = taken.iter().filter_map(|taken| self.settings.longest.get(&taken.name));
        let limit = longest.copied().chain(entry.ask.limit).min().filter(|_| until.is_none());
        let limit_at = limit.map(|millis| since.saturating_add(millis));
        let (session, is_command) = (entry.session, entry.leftovers().is_some());
        self.out.sync |= until.is_some();
        self.note(Fact::Granted { request, taken, since, until, limit_at, overtook })?;
        let spans = self.engine.id_abroad(request);
        if let Some(id) = spans {
            self.span(request, id)?;
        }
        if let (Some(until), Some(_)) = (until, spans) {
            return self.keep(request, until, None);
        }
        if is_command || spans.is_some() {
            self.effect(Effect::Prepare(request));
        } else if let (Some((session, call)), Some(reply)) = (session, self.stands(request)) {
            self.tell(session, call, reply);
        }
        Ok(())
    }

    /// It waits, if its user may have one more that does.
    fn queued(&mut self, request: RequestNo) -> Result<(), Defect> {
        let Some(entry) = self.books.get(request) else { return Ok(()) };
        let most = self.settings.limits.waiting;
        if self.books.waiting_of(entry.who.uid) > most {
            let why = format!(
                "{most} requests of this user wait, which is as many as may (limits.waiting)"
            );
            return self.end(request, How::Refused(Refusal::Closed(why)));
        }
        let session = entry.session;
        self.note(Fact::Queued { request })?;
        if let Some((session, call)) = session {
            self.tell(session, call, Reply::Queued(request));
        }
        Ok(())
    }

    /// A request that the engine does not know any more is over.
    fn over(&mut self, request: RequestNo, how: How) -> Result<(), Defect> {
        let Some(Entry { session, .. }) = self.books.get(request) else { return Ok(()) };
        let (session, answer) = (*session, how.answer(request));
        let renewal = self.books.ties().keeping(request).and_then(|keeping| keeping.call);
        self.note(Fact::Ended { request, how })?;
        self.fail_renewal(
            renewal,
            request,
            "ended before every cell had confirmed that it lasts longer",
        )?;
        if let Some((session, call)) = session.filter(|_| answer != Answer::Done) {
            self.tell(session, call, answer.into());
        }
        Ok(())
    }
}
