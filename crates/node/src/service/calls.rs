//! Calls of clients.
//!
//! What changes something becomes a wish of a session, and is answered by the cell. What may not be, or
//! cannot be, is refused here, and so are questions answered; a wish that was made before is told
//! again by the cell, whatever it looks like now.

use std::sync::Arc;

use holdall_cell::books::Entry;
use holdall_cell::session::{CallNo, ConnNo};
use holdall_cell::{Input, Rest, Wish};
use holdall_holders::{Holder, Stream};
use holdall_wire::{
    Answer, Ask, Body, Call, Change, Drained, Fault, Kind, Lasting, Name, Reply, RequestNo, Right,
    Shutdown, TEXT_MAX, Who,
};
use tracing::{debug, info};

use super::Service;
use super::rights::{needed, of_another};
use super::sessions::{Calls, Numbering};

/// The longest reason for which units are drained.
const REASON_MAX: usize = 200;
/// How many needs of a request are looked at for slips of the pen.
const DOUBTED: usize = 16;

impl Service {
    /// Takes a call. A child that is about to become a command comes with who it is.
    pub(super) fn call(&mut self, conn: ConnNo, call: Call, stream: &Stream) {
        let Call { id, body } = call;
        if !body.is_numbered() {
            return self.ask_about(conn, id, body, stream);
        }
        if self.was_made(conn, id) {
            let wish = Wish::Withdraw { asked: CallNo(0), rest: None };
            let (call, heard) = (CallNo(id), CallNo(0));
            return self.input(Input::Call { conn, call, heard, wish });
        }
        if let Body::Ask(ask) = body {
            return self.on_ask(conn, id, ask, stream);
        }
        let wish = match needed(&body).map_or(Ok(()), |right| self.may(conn, right)) {
            Ok(()) => self.wish(conn, body, stream),
            Err(fault) => Err(fault),
        };
        if let Ok(wish @ Wish::Withdraw { .. }) = &wish
            && !self.cell().gives_back(conn, wish)
        {
            // Nothing waits or is held: there is nothing to note.
            return self.answer(conn, id, Reply::Done);
        }
        match wish.and_then(|wish| self.make(conn, id, wish, stream)) {
            Ok(()) => {}
            Err(fault) => self.answer(conn, id, Reply::Failed(fault)),
        }
    }

    /// Whether a client with a session has made this call before.
    pub(super) fn was_made(&self, conn: ConnNo, id: u64) -> bool {
        match self.peers.get(&conn).map(|peer| &peer.calls) {
            Some(Calls::Theirs(_)) => !self.cell().is_new_call(conn, CallNo(id)),
            _ => false,
        }
    }

    /// A call that changes nothing, or only the agent.
    fn ask_about(&mut self, conn: ConnNo, id: u64, body: Body, stream: &Stream) {
        if let Some(right) = needed(&body)
            && let Err(fault) = self.may(conn, right)
        {
            return self.answer(conn, id, Reply::Failed(fault));
        }
        let reply = match body {
            Body::Attach(attach) => return self.on_attach(conn, id, &attach, stream),
            Body::Heard(upto) => {
                // On a full disk it may be said again.
                let heard = Input::Heard { conn, upto: CallNo(upto) };
                if self.host.admit(&heard).is_ok() {
                    self.input(heard);
                }
                return;
            }
            Body::Agent => Ok(Reply::Agent(Box::new(self.agent_view(conn)))),
            Body::At { cell, question } => return self.on_at(conn, id, &cell, *question),
            Body::Cluster(call) => return self.on_cluster(conn, id, call),
            Body::Explain { request, most } => self.on_explain(conn, request, most),
            Body::Lock { beside } => return self.on_lock(conn, id, beside),
            Body::Restart { exe } => return self.on_restart(conn, id, exe),
            Body::Shutdown(Shutdown::Drain) => return self.on_drain(conn, id),
            Body::Shutdown(how) => Ok(self.on_stop(conn, how)),
            Body::Prospects => Ok(Reply::Prospects(self.prospects())),
            Body::Status { names, more } => self.on_status(conn, names, more),
            Body::Stop { now: true } => Ok(self.on_stop(conn, Shutdown::AtOnce)),
            Body::Stop { now: false } => Ok(self.on_stop(conn, Shutdown::Drain)),
            _ => Err(Fault::Wrong("this call has a number of its own".into())),
        };
        self.answer(conn, id, reply.unwrap_or_else(Reply::Failed));
    }

    /// Makes a wish for a session.
    pub(super) fn make(
        &mut self,
        conn: ConnNo,
        id: u64,
        wish: Wish,
        stream: &Stream,
    ) -> Result<(), Fault> {
        let asks = matches!(wish, Wish::Ask { .. });
        let Numbering { call, heard } = self.number(conn, id, asks, stream)?;
        let input = Input::Call { conn, call, heard, wish };
        if let Err(full) = self.host.admit(&input) {
            if let Some(peer) = self.peers.get_mut(&conn) {
                peer.calls.over(call);
            }
            return Err(Fault::Failed(full.to_string()));
        }
        self.input(input);
        self.touch(!asks);
        Ok(())
    }

    fn on_ask(&mut self, conn: ConnNo, id: u64, mut ask: Ask, stream: &Stream) {
        for need in &mut ask.needs {
            if let Some(meant) = self.config.meant(&need.name) {
                need.name = meant;
            }
        }
        let admitted = match self.admit(conn, id, &ask) {
            Ok(admitted) => admitted,
            Err(why) => {
                self.log_turned_away(conn, &ask, &why);
                return self.answer(conn, id, Reply::Refused(why));
            }
        };
        let Some(peer) = self.peers.get_mut(&conn) else { return };
        let who = peer.asks_as(&ask.from);
        debug!(user = &*who.user, pid = who.pid, "asks");
        if ask.lasting != Lasting::Connection {
            let doubts = ask.needs.iter().take(DOUBTED);
            let doubts: Vec<_> = doubts.filter_map(|need| self.engine().doubt(need)).collect();
            for doubt in doubts {
                self.answer(conn, id, Reply::Warning(doubt));
            }
        }
        self.admitted = Some(admitted);
        let length = self.length(&who, &ask);
        let wish = Wish::Ask { who, ask: Arc::new(ask), length };
        if let Err(fault) = self.make(conn, id, wish, stream) {
            self.answer(conn, id, Reply::Failed(fault));
        }
        if let Some(unused) = self.admitted.take() {
            self.give_up_admission(unused);
        }
    }

    /// What a call wants, if it may be.
    fn wish(&mut self, conn: ConnNo, body: Body, stream: &Stream) -> Result<Wish, Fault> {
        match body {
            Body::End { request, left } => {
                self.own(conn, request)?;
                if left {
                    self.take_in(request, stream)?;
                }
                Ok(Wish::End { request, rest: self.rest(request) })
            }
            Body::Withdraw(asked) => {
                let peer = self.peers.get(&conn).ok_or(Fault::Forgotten)?;
                let asked = peer.calls.asked(asked);
                let session = peer.calls.session();
                let request = session.and_then(|own| self.books().sessions().request(own, asked));
                let held = request.filter(|request| self.own(conn, *request).is_ok());
                Ok(Wish::Withdraw { asked, rest: held.and_then(|request| self.rest(request)) })
            }
            Body::Change(Change::Drain { .. }) => {
                Err(Fault::Wrong("there is a call of its own to drain units".into()))
            }
            Body::Change(change) => self.change(conn, change),
            Body::Drain { name, reason, millis } => self.drain(conn, name, &reason, millis),
            Body::Leave => Ok(Wish::Leave),
            Body::Release { request, force, reason } => self.release(conn, request, force, reason),
            Body::Renew { request, millis } => self.renew(conn, request, millis),
            _ => Err(Fault::Wrong("this call cannot be made so".into())),
        }
    }

    pub(super) fn caller(&self, conn: ConnNo) -> Arc<Who> {
        self.peers.get(&conn).map(|peer| Arc::new(peer.who.clone())).unwrap_or_default()
    }

    /// The same, with the reason that it gives for what it does to others.
    fn caller_because(&self, conn: ConnNo, reason: Option<String>) -> Result<Arc<Who>, Fault> {
        let Some(reason) = reason else { return Ok(self.caller(conn)) };
        if reason.len() > TEXT_MAX {
            return Err(Fault::Wrong(format!("a reason has at most {TEXT_MAX} bytes")));
        }
        let mut by = self.caller(conn);
        Arc::make_mut(&mut by).from.reason = Some(in_one_line(&reason));
        Ok(by)
    }

    /// Whether the session of a connection holds a grant, and has not given it back.
    pub(super) fn own(&self, conn: ConnNo, request: RequestNo) -> Result<(), Fault> {
        let session = self.peers.get(&conn).and_then(|peer| peer.calls.session());
        let entry = self.books().get(request);
        let is_its = |entry: &&Entry| entry.session.map(|(owner, _)| owner) == session;
        match entry.filter(|_| session.is_some()).filter(is_its) {
            Some(entry) if entry.is_in_hand() => Ok(()),
            _ => Err(self.unknown(request)),
        }
    }

    /// What still runs under a grant.
    fn rest(&mut self, request: RequestNo) -> Option<Rest> {
        let holder = self.holders.get(&request)?;
        if holder.ended() {
            self.holders.remove(&request);
            return None;
        }
        Some(Rest { holder: Box::new(holder.record()), pids: holder.pids() })
    }

    fn release(
        &mut self,
        conn: ConnNo,
        request: RequestNo,
        force: bool,
        reason: Option<String>,
    ) -> Result<Wish, Fault> {
        let by = self.caller_because(conn, reason)?;
        let entry = self.books().get(request).filter(|entry| entry.held.is_some());
        let Some(entry) = entry else { return Err(self.unknown(request)) };
        let peer = self.peers.get(&conn).ok_or(Fault::Forgotten)?;
        let (owner, reserved) = (entry.who.clone(), entry.is_reserved());
        let (mine, may) =
            (self.books().is_of(request, Some(peer.who.uid)), peer.rights.has(Right::Force));
        if !mine && !may {
            return Err(of_another(peer, request, &owner.user));
        }
        let conflict = |why: String| Err(Fault::Conflict(why));
        if !force && !mine {
            let user = &owner.user;
            return conflict(format!(
                "{request} belongs to {user}; --force releases it all the same"
            ));
        }
        if !force && !reserved {
            return conflict(format!(
                "{request} is in use by process {} and ends with it; --force takes it away",
                owner.pid
            ));
        }
        let holder = self.holders.get(&request).filter(|_| !reserved);
        let beyond = holder.and_then(|holder| not_ended(request, holder));
        // Somebody knows better than we do.
        let unseen = holder
            .is_some_and(|holder| matches!(**holder, Holder::Unknown(..) | Holder::Client(..)));
        Ok(Wish::Release { request, force, by, may, unseen, beyond })
    }

    fn renew(&mut self, conn: ConnNo, request: RequestNo, millis: u64) -> Result<Wish, Fault> {
        let entry = self.books().get(request);
        let held = entry.and_then(|entry| Some((entry, entry.held.as_ref()?)));
        let Some((entry, held)) = held else { return Err(self.unknown(request)) };
        let peer = self.peers.get(&conn).ok_or(Fault::Forgotten)?;
        let may = peer.rights.has(Right::Force);
        if !entry.is_reserved() {
            return Err(Fault::Conflict(format!(
                "{request} is no reservation; it ends with its process"
            )));
        }
        if !self.books().is_of(request, Some(peer.who.uid)) && !may {
            return Err(of_another(peer, request, &entry.who.user));
        }
        if entry.closing.is_some() {
            return Err(Fault::Conflict(format!("{request} is ending")));
        }
        self.admit_renewal(millis, held.since, &held.taken)?;
        Ok(Wish::Renew { request, millis, by: self.caller(conn), may })
    }

    fn change(&mut self, conn: ConnNo, change: Change) -> Result<Wish, Fault> {
        let more = match &change {
            Change::Add { kind: Kind::Numbered(units), .. } => *units as usize,
            Change::Add { kind: Kind::Named(units), .. } => units.len(),
            Change::Add { kind: Kind::Lock, .. } => 1,
            Change::Resize { units, .. } => *units as usize,
            Change::Drain { .. } | Change::Remove { .. } | Change::Undrain { .. } => 0,
        };
        let most = self.config.limits.units;
        if more > 0 && more.saturating_add(self.engine().units()) > most {
            return Err(Fault::Wrong(format!(
                "all pools have {most} units at most (limits.units)"
            )));
        }
        if let Change::Add { name, .. } = &change
            && let Some(meant) = self.config.meant(name)
        {
            return Err(Fault::Conflict(format!(
                "'{name}' means '{meant}' here ([names] of the configuration), and nobody would get this pool by its name; take another one"
            )));
        }
        let by = self.caller(conn);
        info!(user = &*by.user, ?change, "the pools change");
        Ok(Wish::Change { by, change })
    }

    fn drain(
        &mut self,
        conn: ConnNo,
        name: Name,
        reason: &str,
        millis: Option<u64>,
    ) -> Result<Wish, Fault> {
        if reason.len() > REASON_MAX {
            let most = "bytes, since it is shown with every unit";
            return Err(Fault::Wrong(format!("this reason has at most {REASON_MAX} {most}")));
        }
        let reason = in_one_line(reason).into();
        let by = self.caller(conn).user.clone();
        let until = millis.map(|millis| self.clock.now().saturating_add(millis));
        self.change(conn, Change::Drain { name, drained: Drained { reason, by, until } })
    }

    fn on_stop(&mut self, conn: ConnNo, how: Shutdown) -> Reply {
        let by = self.caller(conn).user.clone();
        info!(%by, ?how, "asked to stop");
        self.stop(how);
        Reply::Done
    }

    /// Whoever wants it to be drained is told when it is.
    fn on_drain(&mut self, conn: ConnNo, id: u64) {
        self.on_stop(conn, Shutdown::Drain);
        self.drainers.push((conn, id));
    }

    /// Clients of former versions want a descriptor by which a later agent would know them. They are
    /// known by their process. It goes along with the reply that is told next: so they are told at once.
    fn on_lock(&mut self, conn: ConnNo, id: u64, beside: Option<u64>) {
        let reply = beside.map_or_else(|| self.new_lock(conn), |number| Ok(Reply::Locked(number)));
        let failed = |error: std::io::Error| Reply::Failed(Fault::Failed(error.to_string()));
        let reply = reply.unwrap_or_else(failed);
        self.tell(conn, &Answer { id, reply });
    }

    fn new_lock(&self, conn: ConnNo) -> std::io::Result<Reply> {
        let (reads, _) = std::io::pipe()?;
        if let Some(peer) = self.peers.get(&conn) {
            peer.outbox.hand_over(reads.into());
        }
        Ok(Reply::Locked(conn.0))
    }
}

/// A text of somebody's as others read it.
fn in_one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// What a forced release does not end, in words; none if it ends everything.
fn not_ended(request: RequestNo, holder: &Holder) -> Option<String> {
    let family = match holder {
        Holder::Unknown(record, _) => {
            let which = record.told();
            return Some(format!(
                "{request} is free, but what used it cannot be seen from here and was not ended: \
                 {which}"
            ));
        }
        Holder::Family(family) => family,
        _ => return None,
    };
    let (beyond, unsure) = (family.beyond_us(), family.unsure());
    if !beyond.is_empty() {
        Some(format!(
            "{request} is held until {beyond:?} have ended, which this agent has no right to end: \
             ask root to"
        ))
    } else if let Some(pid) = family.stopped_client() {
        Some(format!(
            "{request} is held until `holdall run`, process {pid}, has ended, which is stopped: \
             `kill -CONT {pid}` lets it end"
        ))
    } else if !unsure.is_empty() {
        Some(format!(
            "{request} is free, but {unsure:?} are in a process group of its number and were not \
             ended, since they may be somebody else's"
        ))
    } else {
        None
    }
}
