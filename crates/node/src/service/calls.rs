//! Calls of clients.

use std::sync::Arc;

use holdall_holders::{Holder, stopped};
use holdall_protocols::house::Place;
use holdall_wire::{
    AgentView, Ask, Body, Call, Change, Drained, Fault, From, GrantView, Kind, Lasting, NEEDS_MAX,
    Name, Refusal, Reply, RequestNo, Right, State, Status, TEXT_MAX, WaitView, Who,
};
use tracing::{debug, info, warn};

use super::rights::{lacks, needed, of_another};
use super::{Asker, ConnNo, Known, PROTOCOL, Peer, Service};
use crate::audit::Line;
use crate::engine::{Effect, Input, Walk};
use crate::metrics;

/// How many files a command takes, mostly.
const FILES_OF_A_COMMAND: usize = 3;

/// How many of those who wait are followed to explain why another waits.
const EXPLAINED: usize = 64;
/// The longest reason for which units are drained.
const REASON_MAX: usize = 200;
/// How many needs of a request are looked at for slips of the pen.
const DOUBTED: usize = 16;
/// How many processes of a grant are told.
const PIDS_MAX: usize = 1000;
/// How many of them are looked at to see whether it is stopped.
const LOOKED_AT: usize = 4;

impl Service {
    /// Takes a call, and replies to it at once or, if it asks for something, in the end.
    pub(super) fn call(&mut self, conn: ConnNo, call: Call) {
        let id = call.id;
        if let Some(right) = needed(&call.body)
            && let Err(fault) = self.may(conn, right)
        {
            return self.answer(conn, id, Reply::Failed(fault));
        }
        let reply = match call.body {
            Body::Ask(ask) => return self.on_ask(conn, id, ask),
            Body::Agent => Ok(Reply::Agent(self.agent_view(conn))),
            Body::Change(Change::Drain { .. }) => {
                Err(Fault::Wrong("there is a call of its own to drain units".into()))
            }
            Body::Change(change) => self.on_change(conn, &change),
            Body::Drain { name, reason, millis } => self.on_drain(conn, name, &reason, millis),
            Body::Child { request, .. } => Err(self.unknown(request)), // Taken where its peer is.
            Body::End { request, .. } => return self.on_end(conn, id, request),
            Body::Explain { request, most } => self.on_explain(conn, request, most),
            Body::Lock { beside } => return self.on_lock(conn, id, beside),
            Body::Release { request, force } => self.on_release(conn, request, force),
            Body::Renew { request, millis } => self.on_renew(conn, request, millis),
            Body::Status { names, more } => self.on_status(conn, names, more),
            Body::Stop { now } => self.on_stop(conn, now),
            Body::Attach(_)
            | Body::Leave
            | Body::Heard(_)
            | Body::Shutdown(_)
            | Body::Restart { .. } => {
                Err(Fault::Wrong("this is no call of version 5, which this agent speaks".into()))
            }
            Body::Withdraw(asked) => {
                self.on_withdraw(conn, asked);
                Ok(Reply::Done)
            }
        };
        self.answer(conn, id, reply.unwrap_or_else(Reply::Failed));
    }

    fn on_ask(&mut self, conn: ConnNo, call: u64, ask: Ask) {
        let size = match self.admit(conn, call, &ask) {
            Ok(size) => size,
            Err(why) => {
                self.log_turned_away(conn, &ask, &why);
                return self.answer(conn, call, Reply::Refused(why));
            }
        };
        self.enter(conn, call, ask, size);
    }

    /// Finds room for a request, and says how much it takes.
    fn admit(&mut self, conn: ConnNo, call: u64, ask: &Ask) -> Result<usize, Refusal> {
        let closed = |why: String| Err(Refusal::Closed(why));
        let limits = self.config.limits;
        let Some(peer) = self.peers.get(&conn) else { return Err(Refusal::Withdrawn) };
        let From { command, name, reason } = &ask.from;
        let texts = [Some(command), name.as_ref(), reason.as_ref()];
        let reserves = matches!(ask.lasting, Lasting::Reservation(_));
        let right = if reserves { Right::Reserve } else { Right::Ask };
        if !peer.rights.has(right) {
            return Err(Refusal::Denied(lacks(&peer.who.user, right)));
        } else if self.stopping {
            return closed("the agent is stopping and takes no more requests".into());
        } else if peer.visitor {
            let what = "this user has as many connections as it may (limits.connections)";
            return closed(format!("{what}; it can look and release, but not ask"));
        } else if peer.requests.len() >= limits.requests {
            return closed(format!("more than {} requests on one connection", limits.requests));
        } else if peer.requests.contains_key(&call) {
            return Err(Refusal::Senseless("the number of this call is in use".into()));
        } else if reserves && self.reservations_of(peer.who.uid) >= limits.reservations {
            let most = limits.reservations;
            return closed(format!("a user has {most} reservations at most (limits.reservations)"));
        } else if texts.into_iter().flatten().any(|text| text.len() > TEXT_MAX) {
            let text = format!("a command, name or reason has at most {TEXT_MAX} bytes");
            return Err(Refusal::Senseless(text));
        } else if peer.who.pid == 0 && matches!(ask.lasting, Lasting::Command(_)) {
            return closed(
                "the agent is in another pid namespace (container) and cannot see this process; \
                 run the agent outside, or in the same container"
                    .into(),
            );
        }
        self.admit_span(ask.lasting, &ask.needs)?;
        let (uid, size) = (peer.who.uid, super::size(&peer.who, &ask.from, &ask.needs));
        if !self.requests.take(uid, size) {
            let what = "the requests of this user take as much memory as they may";
            return closed(format!("{what} (limits.memory_bytes)"));
        }
        if !self.files.take(uid, files_for(ask.lasting)) {
            self.requests.give(uid, size);
            let what = "the commands of this user take as many open files as they may";
            return closed(format!("{what} (`ulimit -n` of the agent)"));
        }
        Ok(size)
    }

    fn reservations_of(&self, uid: u32) -> usize {
        self.known.values().filter(|known| known.reserved && known.who.uid == uid).count()
    }

    /// Asks the engine for what was admitted.
    fn enter(&mut self, conn: ConnNo, call: u64, ask: Ask, size: usize) {
        let (request, at) = (self.engine.next_number(), self.now());
        let Some(peer) = self.peers.get_mut(&conn) else { return };
        peer.requests.insert(call, request);
        let who = peer.asks_as(&ask.from);
        let known = Known {
            who: who.clone(),
            size,
            files: files_for(ask.lasting),
            asked: Some((conn, call)),
            at,
            reserved: matches!(ask.lasting, Lasting::Reservation(_)),
            leftovers: match ask.lasting {
                Lasting::Command(leftovers) => Some(leftovers),
                _ => None,
            },
            holder: None,
            ending: false,
            waits: false,
            part: ask.part,
            limit: ask.limit,
            over: None,
        };
        self.known.insert(request, known);
        metrics::requested();
        debug!(%request, user = &*who.user, pid = who.pid, "asked");
        self.log_ask(request, &who, &ask.needs);
        if ask.lasting != Lasting::Connection {
            let doubts = ask.needs.iter().take(DOUBTED).filter_map(|need| self.engine.doubt(need));
            for doubt in doubts.collect::<Vec<_>>() {
                self.answer(conn, call, Reply::Warning(doubt));
            }
        }
        self.input(Input::Ask { who, ask });
        self.touch(false);
    }

    /// The connection gives back a grant.
    fn on_end(&mut self, conn: ConnNo, call: u64, request: RequestNo) {
        match self.own(conn, request) {
            Ok(()) => self.given_back(request, Some((conn, call))),
            Err(fault) => self.answer(conn, call, Reply::Failed(fault)),
        }
    }

    fn on_withdraw(&mut self, conn: ConnNo, asked: u64) {
        let request = self.peers.get(&conn).and_then(|peer| peer.requests.get(&asked));
        if let Some(request) = request.copied() {
            self.given_back(request, None);
        }
    }

    /// Whether a connection holds a grant.
    pub(super) fn own(&self, conn: ConnNo, request: RequestNo) -> Result<(), Fault> {
        let known = self.known.get(&request);
        let asked = known.filter(|known| !known.ending).and_then(|known| known.asked);
        let held = self.engine.is_held(request);
        if held && asked.is_some_and(|(asker, _)| asker == conn) {
            Ok(())
        } else {
            Err(self.unknown(request))
        }
    }

    fn on_release(
        &mut self,
        conn: ConnNo,
        request: RequestNo,
        force: bool,
    ) -> Result<Reply, Fault> {
        self.tell_grants();
        let grant = self.engine.grant(request).ok_or_else(|| self.unknown(request))?;
        let Some(peer) = self.peers.get(&conn) else { return Ok(Reply::Done) };
        let (caller, mine) = (peer.who.clone(), peer.who.uid == grant.who.uid);
        let reserved = self.known.get(&request).is_some_and(|known| known.reserved);
        if !mine && !peer.rights.has(Right::Force) {
            return Err(of_another(peer, request, &grant.who.user));
        }
        if !force && !mine {
            return Err(Fault::Conflict(format!(
                "{request} belongs to {}; --force releases it all the same",
                grant.who.user
            )));
        }
        if !force && !reserved {
            return Err(Fault::Conflict(format!(
                "{request} is in use by process {} and ends with it; --force takes it away",
                grant.who.pid
            )));
        }
        if force {
            let by = format!("forced by {} (uid {}, pid {})", caller.user, caller.uid, caller.pid);
            warn!(%request, "{by}");
            let taken = self.engine.taken(request).cloned();
            self.log("forced", request, taken.as_ref(), Some(by));
            self.flush_audit();
        }
        if reserved {
            self.keep_without(Some(request)).map_err(|error| {
                Fault::Failed(format!(
                    "{request} is still held, since its end cannot be noted: {error:#}"
                ))
            })?;
            if let Some(known) = self.known.get_mut(&request) {
                known.reserved = false; // Its end is on disk.
            }
            let taken = self.engine.taken(request).cloned();
            self.log("released", request, taken.as_ref(), None);
            self.input(Input::End(request));
            self.end_parts(request, force);
            self.touch(true);
            return Ok(Reply::Done);
        }
        let holder = self.known.get(&request).and_then(|known| known.holder.clone());
        self.take_away(request);
        let left = holder.and_then(|holder| not_ended(request, &holder));
        left.map_or(Ok(Reply::Done), |left| Err(Fault::Conflict(left)))
    }

    fn on_renew(&mut self, conn: ConnNo, request: RequestNo, millis: u64) -> Result<Reply, Fault> {
        let grant = self.engine.grant(request).ok_or_else(|| self.unknown(request))?;
        let Some(peer) = self.peers.get(&conn) else { return Ok(Reply::Done) };
        if grant.until.is_none() {
            return Err(Fault::Conflict(format!(
                "{request} is no reservation; it ends with its process"
            )));
        }
        if peer.who.uid != grant.who.uid && !peer.rights.has(Right::Force) {
            return Err(of_another(peer, request, &grant.who.user));
        }
        if self.known.get(&request).is_some_and(|known| known.ending) {
            return Err(Fault::Conflict(format!("{request} is ending")));
        }
        self.admit_renewal(millis, grant.since, &grant.taken)?;
        let until = self.clock.now().saturating_add(millis);
        self.input(Input::Renew { request, until });
        self.keep().map_err(|error| Fault::Failed(format!("{error:#}")))?;
        let taken = self.engine.taken(request).cloned();
        self.log("renewed", request, taken.as_ref(), None);
        self.touch(true);
        Ok(Reply::Done)
    }

    fn on_change(&mut self, conn: ConnNo, change: &Change) -> Result<Reply, Fault> {
        let more = match change {
            Change::Add { kind: Kind::Numbered(units), .. } => *units as usize,
            Change::Add { kind: Kind::Named(units), .. } => units.len(),
            Change::Add { kind: Kind::Lock, .. } => 1,
            Change::Resize { units, .. } => *units as usize,
            Change::Drain { .. } | Change::Remove { .. } | Change::Undrain { .. } => 0,
        };
        let most = self.config.limits.units;
        if more > 0 && more.saturating_add(self.engine.units()) > most {
            return Err(Fault::Wrong(format!(
                "all pools have {most} units at most (limits.units)"
            )));
        }
        let mut effects = self.step(Input::Change(change.clone()));
        let done = effects.iter().position(|effect| matches!(effect, Effect::Changed(_)));
        let done = match done.map(|at| effects.remove(at)) {
            Some(Effect::Changed(done)) => done,
            _ => Ok(()),
        };
        let user = self.peers.get(&conn).map_or_else(|| "".into(), |peer| peer.who.user.clone());
        if done.is_ok() {
            info!(%user, ?change, "the pools change");
            let who = self.peers.get(&conn).map(|peer| Arc::new(peer.who.clone()));
            let line = Line::new(self.clock.wall(), "pool").of(who);
            self.audit.add(line.detail(serde_json::to_string(change).ok()));
        }
        self.carry_out(effects);
        self.note_drained();
        self.touch(true);
        done?;
        self.keep().map_err(|error| Fault::Failed(format!("done, but not for good: {error:#}")))?;
        Ok(Reply::Done)
    }

    fn on_drain(
        &mut self,
        conn: ConnNo,
        name: Name,
        reason: &str,
        millis: Option<u64>,
    ) -> Result<Reply, Fault> {
        if reason.len() > REASON_MAX {
            let most = "bytes, since it is shown with every unit";
            return Err(Fault::Wrong(format!("this reason has at most {REASON_MAX} {most}")));
        }
        let plain = |c: char| if c.is_control() { ' ' } else { c };
        let reason = reason.chars().map(plain).collect::<String>().into();
        let by = self.peers.get(&conn).map_or_else(|| "".into(), |peer| peer.who.user.clone());
        let until = millis.map(|millis| self.clock.now().saturating_add(millis));
        self.on_change(conn, &Change::Drain { name, drained: Drained { reason, by, until } })
    }

    fn on_stop(&mut self, conn: ConnNo, at_once: bool) -> Result<Reply, Fault> {
        let by = self.peers.get(&conn).map(|peer| peer.who.user.clone()).unwrap_or_default();
        info!(%by, at_once, "asked to stop");
        self.stop(at_once);
        Ok(Reply::Done)
    }

    fn agent_view(&self, conn: ConnNo) -> AgentView {
        let (grants, waiting) = self.engine.load();
        let peer = self.peers.get(&conn);
        AgentView {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            epoch: self.data.epoch(),
            since: self.clock.shown(self.since),
            data: self.data.dir().path().display().to_string(),
            protocol: PROTOCOL.into(),
            grants: grants as u32,
            waiting: waiting as u32,
            pools: self.engine.declared().len() as u32,
            memory: (self.requests.used() + self.traffic.used()) as u64,
            stopping: self.stopping,
            no_cgroups: self.containment.why_not().cloned(),
            you: peer.map_or_else(|| "".into(), |peer| peer.who.user.clone()),
            your_rights: peer.map(|peer| peer.rights.list()).unwrap_or_default(),
            rights: self.config.rights.told(),
            ephemeral: self.config.ephemeral,
        }
    }

    fn on_explain(&self, conn: ConnNo, request: RequestNo, most: u32) -> Result<Reply, Fault> {
        self.may(conn, Right::View)?;
        let most = EXPLAINED.min(most as usize);
        let explanation = self.engine.explain(request, most);
        let mut explanation = explanation.ok_or_else(|| self.unknown(request))?;
        self.show_times(&mut explanation.release, &mut explanation.chain);
        Ok(Reply::Explanation(explanation))
    }

    /// People have only the clock on the wall.
    fn show_times(&self, grants: &mut [GrantView], waiting: &mut [WaitView]) {
        for grant in grants {
            grant.since = self.clock.shown(grant.since);
            grant.until = grant.until.map(|until| self.clock.shown(until));
        }
        for wait in waiting {
            wait.since = self.clock.shown(wait.since);
            let hindrances = wait.hindrances.iter_mut();
            for (_, drained) in hindrances.flat_map(|hindrance| &mut hindrance.drained) {
                drained.until = drained.until.map(|until| self.clock.shown(until));
            }
        }
    }

    fn on_status(&mut self, conn: ConnNo, names: Vec<Name>, more: bool) -> Result<Reply, Fault> {
        if names.len() > NEEDS_MAX {
            return Err(Fault::Wrong(format!("a status is for {NEEDS_MAX} names at most")));
        }
        let peer = self.peers.get_mut(&conn);
        let last = peer.and_then(|peer| peer.walk.take()).filter(|_| more);
        let mut walk = last.unwrap_or_else(|| Box::new(Walk::new(names)));
        let page = self.status(&mut walk);
        let more = !walk.is_over();
        if let Some(peer) = self.peers.get_mut(&conn).filter(|_| more) {
            peer.walk = Some(walk);
        }
        Ok(Reply::Status { page, more })
    }

    /// What the engine knows, and how it stands with the processes.
    fn status(&self, walk: &mut Walk<Place>) -> Status {
        let mut status = self.engine.look(walk);
        self.show_times(&mut status.grants, &mut status.waiting);
        let units = status.pools.iter_mut().flat_map(|pool| &mut pool.units);
        for drained in units.filter_map(|unit| unit.drained.as_mut()) {
            drained.until = drained.until.map(|until| self.clock.shown(until));
        }
        for grant in &mut status.grants {
            let Some(known) = self.known.get(&grant.request) else { continue };
            let over = known.over.as_ref().map(|(over, _)| self.clock.shown(*over));
            grant.until = grant.until.or(over);
            grant.pids = known.holder.as_ref().map(|holder| holder.pids()).unwrap_or_default();
            grant.pids.truncate(PIDS_MAX);
            let mut looked_at = grant.pids.iter().take(LOOKED_AT).copied();
            if known.ending {
                grant.state = State::Ending;
            } else if !known.reserved && (stopped(grant.who.pid) || looked_at.any(stopped)) {
                grant.state = State::Stopped;
            }
        }
        status
    }

    /// A request that was not even admitted has no number, but somebody who asked.
    fn log_turned_away(&mut self, conn: ConnNo, ask: &Ask, why: &Refusal) {
        let Some(peer) = self.peers.get(&conn) else { return };
        let line = Line::new(self.clock.wall(), "refused").of(Some(Arc::new(peer.who.clone())));
        self.audit.add(line.needs(&ask.needs).detail(Some(why.to_string())));
    }

    fn log_ask(&mut self, request: RequestNo, who: &Arc<Who>, needs: &[holdall_wire::Need]) {
        let line = Line::new(self.clock.wall(), "asked").about(request).of(Some(who.clone()));
        self.audit.add(line.needs(needs).detail(who.from.reason.clone()));
    }
}

/// The longest words of a client that are kept between its requests.
const WORDS_MAX: usize = 2048;

impl Peer {
    /// Who asks, with what it says of itself.
    fn asks_as(&mut self, from: &From) -> Arc<Who> {
        match &self.asker {
            Some(asker) if asker.who.from == *from => asker.who.clone(),
            _ => {
                let who = Arc::new(Who { from: from.clone(), ..self.who.clone() });
                let words = serde_json::value::to_raw_value(&*who).ok();
                // What is long counts against its user's memory only as long as a request lasts.
                let words = words.filter(|words| words.get().len() <= WORDS_MAX);
                self.asker = words.map(|words| Asker { who: who.clone(), words });
                who
            }
        }
    }
}

/// How many files a request takes beside its connection: the cgroup of a command, or its processes.
fn files_for(lasting: Lasting) -> usize {
    if matches!(lasting, Lasting::Command(_)) { FILES_OF_A_COMMAND } else { 0 }
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
