//! Calls of clients.

use holdall_wire::{
    AgentView, Ask, Body, Call, Change, Fault, Lasting, NEEDS_MAX, Name, Refusal, Reply, RequestNo,
    State, Status,
};
use tracing::{debug, info, warn};

use super::{ConnNo, Known, PROTOCOL, Service, now};
use crate::engine::{Effect, Input};
use crate::holders::{Group, stopped};
use crate::metrics;

/// The longest a reservation may last: ten years.
const RESERVATION_MAX_MILLIS: u64 = 10 * 366 * 86_400_000;

impl Service {
    /// Takes a call, and replies to it at once or, if it asks for something, in the end.
    pub(super) fn call(&mut self, conn: ConnNo, call: Call) {
        let id = call.id;
        let reply = match call.body {
            Body::Ask(ask) => return self.on_ask(conn, id, ask),
            Body::Agent => Ok(Reply::Agent(self.agent_view())),
            Body::Change(change) => self.on_change(conn, &change),
            Body::Child { request, pid } => self.on_child(conn, request, pid),
            Body::End(request) => self.on_end(conn, request),
            Body::Explain(request) => match self.engine.explain(request) {
                Some(explanation) => Ok(Reply::Explanation(explanation)),
                None => Err(unknown(request)),
            },
            Body::Release { request, force } => self.on_release(conn, request, force),
            Body::Renew { request, millis } => self.on_renew(conn, request, millis),
            Body::Status(names) => self.on_status(&names),
            Body::Stop { now } => self.on_stop(conn, now),
            Body::Withdraw(asked) => {
                self.on_withdraw(conn, asked);
                Ok(Reply::Done)
            }
        };
        self.answer(conn, id, reply.unwrap_or_else(Reply::Failed));
    }

    pub(super) fn on_ask(&mut self, conn: ConnNo, call: u64, ask: Ask) {
        let Some(peer) = self.peers.get_mut(&conn) else { return };
        let refusal = if self.stopping {
            Some(Refusal::Closed("the agent is stopping and takes no more requests".into()))
        } else if peer.requests.len() >= self.config.limits.requests {
            let most = self.config.limits.requests;
            Some(Refusal::Closed(format!("more than {most} requests on one connection")))
        } else if peer.requests.contains_key(&call) {
            Some(Refusal::Senseless("the number of this call is in use".into()))
        } else if matches!(ask.lasting, Lasting::Reservation(m) if m > RESERVATION_MAX_MILLIS) {
            Some(Refusal::Senseless("a reservation lasts ten years at most".into()))
        } else {
            None
        };
        if let Some(why) = refusal {
            return self.answer(conn, call, Reply::Refused(why));
        }
        if let Some(early) = &mut self.early {
            if ask.now {
                let why = "processes of a former agent still hold what it granted".into();
                return self.answer(conn, call, Reply::Refused(Refusal::Busy(why)));
            }
            return early.push((conn, call, ask));
        }
        let request = self.engine.next_number();
        peer.requests.insert(call, request);
        let mut who = peer.who.clone();
        who.from = ask.from.clone();
        let known = Known {
            asked: Some((conn, call)),
            at: std::time::Instant::now(),
            reserved: matches!(ask.lasting, Lasting::Reservation(_)),
            group: None,
            ending: false,
        };
        self.known.insert(request, known);
        metrics::requested();
        debug!(%request, user = who.user, pid = who.pid, "asked");
        self.log_ask(request, &who, &ask.needs);
        self.input(Input::Ask { who, ask });
        self.touch(false);
    }

    /// The connection gives back a grant.
    fn on_end(&mut self, conn: ConnNo, request: RequestNo) -> Result<Reply, Fault> {
        self.own(conn, request)?;
        self.client_ended(request, true);
        Ok(Reply::Done)
    }

    fn on_withdraw(&mut self, conn: ConnNo, asked: u64) {
        if let Some(early) = &mut self.early {
            early.retain(|(c, call, _)| (*c, *call) != (conn, asked));
        }
        let request = self.peers.get(&conn).and_then(|peer| peer.requests.get(&asked));
        if let Some(request) = request.copied() {
            self.client_ended(request, true);
        }
    }

    fn on_child(&mut self, conn: ConnNo, request: RequestNo, pid: u32) -> Result<Reply, Fault> {
        self.own(conn, request)?;
        let parent = self.peers.get(&conn).map_or(0, |peer| peer.who.pid);
        let group = Group::of_child(pid, parent).map_err(|e| Fault::Wrong(format!("{e:#}")))?;
        match self.known.get_mut(&request) {
            Some(known) if known.group.is_none() => known.group = Some(group),
            _ => return Err(Fault::Wrong(format!("{request} has a child already"))),
        }
        Ok(Reply::Done)
    }

    /// Whether a connection holds a grant.
    fn own(&self, conn: ConnNo, request: RequestNo) -> Result<(), Fault> {
        let known = self.known.get(&request);
        let asked = known.filter(|known| !known.ending).and_then(|known| known.asked);
        let held = self.engine.grant(request).is_some();
        if held && asked.is_some_and(|(asker, _)| asker == conn) {
            Ok(())
        } else {
            Err(unknown(request))
        }
    }

    fn on_release(
        &mut self,
        conn: ConnNo,
        request: RequestNo,
        force: bool,
    ) -> Result<Reply, Fault> {
        let grant = self.engine.grant(request).ok_or_else(|| unknown(request))?;
        let Some(peer) = self.peers.get(&conn) else { return Ok(Reply::Done) };
        let (caller, mine) = (peer.who.clone(), peer.who.uid == grant.who.uid);
        let reserved = self.known.get(&request).is_some_and(|known| known.reserved);
        if !force && !mine {
            return Err(Fault::Wrong(format!(
                "{request} belongs to {}; --force releases it all the same",
                grant.who.user
            )));
        }
        if !force && !reserved {
            return Err(Fault::Wrong(format!(
                "{request} is in use by process {} and ends with it; --force takes it away",
                grant.who.pid
            )));
        }
        if !mine || !reserved {
            let by = format!("forced by {} (uid {}, pid {})", caller.user, caller.uid, caller.pid);
            warn!(%request, "{by}");
            self.log("forced", request, &grant.taken, Some(by));
            self.flush_audit();
        }
        if reserved {
            self.log("released", request, &grant.taken, None);
            self.input(Input::End(request));
        } else {
            self.take_away(request);
        }
        Ok(Reply::Done)
    }

    fn on_renew(&mut self, conn: ConnNo, request: RequestNo, millis: u64) -> Result<Reply, Fault> {
        let grant = self.engine.grant(request).ok_or_else(|| unknown(request))?;
        let caller = self.peers.get(&conn).map_or(u32::MAX, |peer| peer.who.uid);
        if grant.until.is_none() {
            return Err(Fault::Wrong(format!(
                "{request} is no reservation; it ends with its process"
            )));
        }
        if caller != grant.who.uid && caller != 0 {
            return Err(Fault::Wrong(format!("{request} belongs to {}", grant.who.user)));
        }
        if millis > RESERVATION_MAX_MILLIS {
            return Err(Fault::Wrong("a reservation lasts ten years at most".into()));
        }
        self.input(Input::Renew { request, until: now() + millis });
        self.keep().map_err(|error| Fault::Failed(format!("{error:#}")))?;
        self.log("renewed", request, &grant.taken, None);
        self.touch(true);
        Ok(Reply::Done)
    }

    fn on_change(&mut self, conn: ConnNo, change: &Change) -> Result<Reply, Fault> {
        let mut effects = self.step(Input::Change(change.clone()));
        let done = effects.iter().position(|effect| matches!(effect, Effect::Changed(_)));
        let done = match done.map(|at| effects.remove(at)) {
            Some(Effect::Changed(done)) => done,
            _ => Ok(()),
        };
        let user = self.peers.get(&conn).map_or_else(String::new, |peer| peer.who.user.clone());
        if done.is_ok() {
            info!(user, ?change, "the pools change");
        }
        self.carry_out(effects);
        self.touch(false);
        done?;
        self.keep().map_err(|error| Fault::Failed(format!("done, but not for good: {error:#}")))?;
        Ok(Reply::Done)
    }

    fn on_stop(&mut self, conn: ConnNo, at_once: bool) -> Result<Reply, Fault> {
        let uid = self.peers.get(&conn).map_or(u32::MAX, |peer| peer.who.uid);
        let own = rustix::process::getuid().as_raw();
        if uid != own && uid != 0 {
            return Err(Fault::Wrong(format!("only the user with uid {own} or root may stop it")));
        }
        self.stop(at_once);
        Ok(Reply::Done)
    }

    pub(crate) fn agent_view(&self) -> AgentView {
        let (grants, waiting) = self.engine.load();
        let early = self.early.as_ref().map_or(0, Vec::len);
        AgentView {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            epoch: self.data.epoch(),
            since: self.since,
            data: self.data.dir().path().display().to_string(),
            holders_file: self.data.dir().path_of("holders.lock").display().to_string(),
            protocol: PROTOCOL.into(),
            grants: grants as u32,
            waiting: (waiting + early) as u32,
            pools: self.engine.declared().len() as u32,
            stopping: self.stopping,
            starting: self.starting(),
        }
    }

    fn on_status(&self, names: &[Name]) -> Result<Reply, Fault> {
        if names.len() > NEEDS_MAX {
            return Err(Fault::Wrong(format!("a status is for {NEEDS_MAX} names at most")));
        }
        Ok(Reply::Status(self.status(names)))
    }

    /// What the engine knows, and how it stands with the processes.
    fn status(&self, names: &[Name]) -> Status {
        let mut status = self.engine.status(names);
        for grant in &mut status.grants {
            let Some(known) = self.known.get(&grant.request) else { continue };
            grant.group = known.group.as_ref().map(Group::number);
            if known.ending {
                grant.state = State::Ending;
            } else if !known.reserved {
                let processes = [Some(grant.who.pid), grant.group];
                if processes.into_iter().flatten().any(stopped) {
                    grant.state = State::Stopped;
                }
            }
        }
        status
    }

    fn log_ask(
        &mut self,
        request: RequestNo,
        who: &holdall_wire::Who,
        needs: &[holdall_wire::Need],
    ) {
        let (at, taken) = (now(), &[]);
        let line = crate::audit::Line {
            at,
            what: "asked",
            request,
            who: Some(who),
            needs,
            taken,
            detail: who.from.reason.clone(),
        };
        self.add_line(line);
    }
}

fn unknown(request: RequestNo) -> Fault {
    Fault::Wrong(format!("there is no {request}; `holdall status` shows what there is"))
}
