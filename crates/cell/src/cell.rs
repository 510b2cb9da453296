//! A cell: the engine, and the books of what came of it.
//!
//! Inputs in, facts and effects out. What an input decides is noted as facts, and only these change
//! the books; so whoever has the facts has everything but the engine, which can be built again from
//! them ([`Start::rebuilt`](crate::Start)). The host logs input and facts, and carries out the
//! effects when the log says that they may leave.
//!
//! # Invariants
//! - The books take every fact: what cannot be (a unit held twice, a fence that goes back) is a
//!   [`Defect`], and the cell must not be stepped again.
//! - What the books say is held or waits, the engine does, and nothing else.
//! - An input that is not new ([`Out::is_new`](crate::Out)) has changed nothing that a replay
//!   without it would lack.

mod calls;
mod ending;
mod start;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use holdall_protocols::house::House;
use holdall_wire::{Fault, Lasting, Place, Reply, RequestNo, Taken};

use crate::books::{Books, Contradiction, Entry};
use crate::engine::{self, Engine};
use crate::facts::{Fact, How};
use crate::input::{Effect, Input, Out};
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
    None(String),
}

/// A cell.
pub struct Cell {
    pub(crate) engine: Engine<House>,
    pub(crate) books: Books,
    pub(crate) now: u64,
    out: Out,
    /// What came of the change of a pool that is being made.
    changed: Result<(), Fault>,
}

impl Cell {
    pub(crate) fn of(engine: Engine<House>, books: Books, now: u64) -> Self {
        Self { engine, books, now, out: Out::default(), changed: Ok(()) }
    }

    /// A cell to which nothing has happened.
    ///
    /// # Errors
    /// If there is no such protocol.
    pub fn new() -> Result<Self, Defect> {
        Ok(Self::of(start::engine(0, false)?, Books::default(), 0))
    }

    /// Takes an input, at a time in milliseconds that does not go back.
    ///
    /// # Errors
    /// If an invariant is broken. Nothing may leave any more, and the input does not belong into the
    /// log.
    pub fn step(&mut self, at: u64, input: Input) -> Result<Out, Defect> {
        let before = self.now;
        self.now = before.max(at);
        match input {
            Input::Started(start) => self.start(start)?,
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
        }
        let mut out = std::mem::take(&mut self.out);
        out.is_new |= !out.facts.is_empty();
        if !out.is_new {
            self.now = before;
        }
        Ok(out)
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

    /// When to look at deadlines ([`Input::Due`]).
    pub fn next_due(&self) -> Option<u64> {
        let grant = self.books.next_due().map(|(at, _)| at);
        let lease = self.books.sessions.next_lapse();
        let drained = self.books.drained().iter().filter_map(|(_, drained)| drained.until);
        grant.into_iter().chain(lease).chain(drained).min()
    }

    /// Something is so from now on.
    fn note(&mut self, fact: Fact) -> Result<(), Defect> {
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
            self.effect(Effect::Reply { conn, call, reply });
        }
    }

    /// Tells the last reply of a call.
    fn answer(&mut self, session: SessionId, call: CallNo, reply: Reply) -> Result<(), Defect> {
        self.note(Fact::Answered { session, call, reply: reply.clone() })?;
        self.tell(session, call, reply);
        Ok(())
    }

    fn attach(&mut self, conn: ConnNo, hello: &Hello) -> Result<(), Defect> {
        let session = hello.session;
        let before = self.books.sessions.heard(session);
        let welcome = match self.books.sessions.attach(conn, hello) {
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
        let open = open.filter_map(|(call, request)| Some((*call, self.stands(*request)?)));
        let mut answers: Vec<_> = open.chain(welcome.replied.clone()).collect();
        answers.sort_by_key(|(call, _)| *call);
        self.effect(Effect::Welcome { conn, last: welcome.last, answers });
        Ok(())
    }

    /// How a request stands, for the client that asked; none if it will be told.
    fn stands(&self, request: RequestNo) -> Option<Reply> {
        let entry = self.books.get(request)?;
        if let Some(left) = &entry.left {
            // Whoever has given it back knows.
            return (left.how != How::Released).then(|| left.how.reply(request));
        }
        match &entry.held {
            None => Some(Reply::Queued(request)),
            Some(_) if entry.kill_at.is_some() => Some(Reply::Lost(request)),
            Some(held) if entry.ready => {
                let (taken, place) = (held.taken.clone(), entry.place.clone());
                Some(granted(request, taken, place))
            }
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
        let Some(session) = self.books.sessions.of(conn) else { return Ok(()) };
        let before = self.books.sessions.heard(session);
        self.books.sessions.hear(conn, upto);
        self.note_heard(session, before)
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
        wish: crate::input::Wish,
    ) -> Result<(), Defect> {
        let session = self.books.sessions.of(conn);
        match (self.books.sessions.call(conn, call), session) {
            (Ok(Turn::New), Some(session)) => {
                self.hear(conn, heard)?;
                self.wish(session, call, wish)?;
            }
            (Ok(Turn::Open(request)), Some(session)) => {
                if let Some(reply) = self.stands(request) {
                    self.tell(session, call, reply);
                }
            }
            (Ok(Turn::Replied(reply)), Some(session)) => self.tell(session, call, reply),
            (Ok(_), _) => {}
            (Err(why), _) => self.effect(Effect::NotTaken(conn, call, why)),
        }
        Ok(())
    }

    /// Steps the engine, and notes what follows.
    fn run(&mut self, input: engine::Input) -> Result<(), Defect> {
        let effects = self.engine.step(self.now, input)?;
        self.take_effects(effects)
    }

    fn take_effects(&mut self, effects: Vec<engine::Effect>) -> Result<(), Defect> {
        for effect in effects {
            match effect {
                engine::Effect::Arm(timer, rung) => {
                    self.effect(Effect::Arm(timer, rung, self.now));
                }
                engine::Effect::Disarm(timer) => self.effect(Effect::Disarm(timer)),
                engine::Effect::Changed(changed) => self.changed = changed,
                engine::Effect::Ended(_) => {} // Whoever ended it has noted it.
                engine::Effect::Granted { request, taken, .. } => self.granted(request, taken)?,
                engine::Effect::Queued(request) => {
                    if let Some(entry) = self.books.get(request) {
                        let (session, call) = (entry.session, entry.call);
                        self.tell(session, call, Reply::Queued(request));
                    }
                }
                engine::Effect::Refused { request, why } => {
                    self.over(request, How::Refused(why))?;
                }
                engine::Effect::Unrestored(request) => self.over(request, How::Unrestored)?,
            }
        }
        Ok(())
    }

    fn granted(&mut self, request: RequestNo, taken: Arc<[Taken]>) -> Result<(), Defect> {
        let Some(entry) = self.books.get(request) else { return Ok(()) };
        if entry.held.is_some() {
            return Ok(()); // It is in force again.
        }
        let (session, call, since) = (entry.session, entry.call, self.now);
        let until = match entry.ask.lasting {
            Lasting::Reservation(millis) => Some(since.saturating_add(millis)),
            _ => None,
        };
        self.out.sync |= until.is_some();
        let is_command = entry.leftovers().is_some();
        self.note(Fact::Granted { request, taken: taken.clone(), since, until })?;
        if is_command {
            self.effect(Effect::Prepare(request));
        } else {
            self.tell(session, call, granted(request, taken, None));
        }
        Ok(())
    }

    /// A request that the engine does not know any more is over.
    fn over(&mut self, request: RequestNo, how: How) -> Result<(), Defect> {
        let Some(Entry { session, call, .. }) = self.books.get(request) else { return Ok(()) };
        let (session, call, reply) = (*session, *call, how.reply(request));
        self.note(Fact::Ended { request, how })?;
        if reply != Reply::Done {
            self.tell(session, call, reply);
        }
        Ok(())
    }
}

/// What a client is told of a grant. What else comes along is the host's, which knows its
/// configuration.
fn granted(request: RequestNo, taken: Arc<[Taken]>, place: Option<Place>) -> Reply {
    Reply::Granted { request, taken, place, variables: Vec::new(), limit: None }
}
