//! Calls about the cluster, and questions that other cells answer, or ask.

use std::collections::BTreeMap;
use std::time::Duration;

use holdall_cell::engine::{Engine, Walk};
use holdall_cell::session::ConnNo;
use holdall_core::CellId;
use holdall_links::member::{ABOUT_MAX, Member};
use holdall_links::token::For;
use holdall_links::{self as links, MESSAGE_MAX};
use holdall_protocols::house::Place;
use holdall_wire::{
    Body, Change, ClusterCall, ClusterView, Fault, JoinTokenView, Kind, MemberView, NEEDS_MAX,
    Name, Reply, RequestNo,
};

use super::rights::is_change;
use super::{Served, Service};
use crate::cluster::frame::Frame;
use crate::cluster::greeter::Greeter;
use crate::cluster::{Running, number};

/// How long another cell may take to answer.
const PATIENCE: Duration = Duration::from_secs(8);
/// How many questions may wait for an answer.
const ASKED_MAX: usize = 1024;
/// How many walks of those who look from elsewhere are kept.
const WALKS_MAX: usize = 64;
/// The longest answer: with what is around it, it fits into a message.
const ANSWER_MAX: usize = MESSAGE_MAX - 64;

/// Questions under way, in both directions.
#[derive(Default)]
pub(super) struct Questions {
    last: u64,
    asked: BTreeMap<u64, Asked>,
    /// How far those have looked who look from elsewhere.
    walks: BTreeMap<(CellId, u64), Walk<Place>>,
}

/// A question that another cell was asked.
struct Asked {
    cell: CellId,
    conn: ConnNo,
    id: u64,
}

const ALONE: &str = "this agent is a member of no cluster; `holdall cluster init` makes one, and \
                     `holdall cluster join` joins one";

impl Service {
    /// A call about the cluster.
    pub(super) fn on_cluster(&mut self, conn: ConnNo, id: u64, call: ClusterCall) {
        if self.on_hosting(conn, id, &call).is_some() {
            return;
        }
        let cells = self.cells.as_ref();
        let Some((cells, running)) = cells.and_then(|cells| Some((cells, cells.running.as_ref()?)))
        else {
            return self.answer(conn, id, Reply::Failed(Fault::Conflict(ALONE.into())));
        };
        if call == ClusterCall::Members {
            let view = self.cluster_view(running);
            return self.answer(conn, id, Reply::Cluster(view));
        }
        if let (ClusterCall::Forget(_), Some(why)) = (&call, self.awaited.why_behind()) {
            // Whoever is forgotten is not waited for, and it may be the one who knows what is in use.
            return self.answer(conn, id, Reply::Failed(Fault::Conflict(why)));
        }
        let (links, home, greeter) =
            (running.links.clone(), running.home.clone(), cells.greeter.clone());
        tracing::info!(?call, by = &*self.caller(conn).user, "about the cluster");
        self.note_cluster(self.caller(conn), &call);
        let me = self.me.clone();
        tokio::task::spawn_local(async move {
            let reply = match carry_out(&links, &home, &greeter, call).await {
                Ok(reply) => reply,
                Err(why) => Reply::Failed(Fault::Conflict(why)),
            };
            if let Some(service) = me.upgrade() {
                service.borrow_mut().answer(conn, id, reply);
            }
        });
    }

    fn cluster_view(&self, running: &Running) -> ClusterView {
        let own = running.links.own();
        let peers: BTreeMap<_, _> =
            running.links.peers().into_iter().map(|peer| (peer.id, peer)).collect();
        let missing = &self.books().ties().recovery().missing;
        let names = running.links.members();
        let waits_for = names.iter().filter(|(id, _)| missing.contains(&number(*id)));
        // Whoever is behind waits for more than that.
        let waits_for = waits_for.filter(|_| !self.awaited.is_behind());
        let waits_for = waits_for.map(|(_, it)| it.name.to_string()).collect();
        let mut members: Vec<MemberView> = names
            .iter()
            .map(|(id, it)| {
                let is_own = *id == own.id;
                let peer = peers.get(id);
                let about = running.links.about(*id).unwrap_or_default();
                let away = self.cells.as_ref().is_some_and(|cells| cells.greeter.is_away(*id));
                MemberView {
                    name: it.name.to_string(),
                    id: id.to_string(),
                    own: is_own,
                    addresses: it.addresses.clone(),
                    signs: it.signs,
                    removed: it.removed,
                    forgotten: away,
                    up: is_own || peer.is_some_and(|peer| peer.up),
                    since: peer.map_or(if is_own { self.since } else { it.since }, |it| it.since),
                    why: match is_own {
                        true => self.awaited.why_behind().or_else(|| running.deaf.clone()),
                        false => peer.filter(|peer| !peer.up).and_then(|peer| peer.why.clone()),
                    },
                    round_trip: peer
                        .filter(|peer| peer.up)
                        .and_then(|peer| Some(peer.round_trip?.as_micros() as u64)),
                    frames: peer.map_or((0, 0, 0), |it| {
                        (it.frames_sent, it.frames_received, it.dropped_out + it.dropped_in)
                    }),
                    pools: if is_own { declared(self.engine()) } else { pools_in(&about) },
                }
            })
            .collect();
        members.sort_by_key(|member| (!member.own, member.removed, member.name.clone()));
        ClusterView {
            name: own.name.to_string(),
            listens: running.listens.clone(),
            lease: self.cells.as_ref().map_or(0, |cells| cells.terms.lease),
            removed: running.links.is_removed(),
            waits_for,
            members,
        }
    }

    /// A question that another cell answers.
    pub(super) fn on_at(&mut self, conn: ConnNo, id: u64, cell: &str, question: Body) {
        if let Err(fault) = self.ask_cell(conn, id, cell, question) {
            self.answer(conn, id, Reply::Failed(fault));
        }
    }

    fn ask_cell(&mut self, conn: ConnNo, id: u64, name: &str, question: Body) -> Result<(), Fault> {
        let conflict = |why: String| Fault::Conflict(why);
        let running = self.cells.as_ref().and_then(|cells| cells.running.as_ref());
        let links = running.map(|running| running.links.clone());
        let links = links.ok_or_else(|| conflict(ALONE.into()))?;
        if links.own().name.as_str() == name {
            if let Body::Cluster(call) = question {
                self.on_cluster(conn, id, call);
                return Ok(());
            }
            let reply = self.answer_cell(number(links.own().id), conn.0, question);
            self.answer(conn, id, reply);
            return Ok(());
        }
        let cell_id = links.named(name).map_err(|why| conflict(why.to_string()))?;
        let cell = number(cell_id);
        let Some(cells) = &mut self.cells else { return Ok(()) };
        if cells.link(cell).is_none() {
            let why = links.peers().into_iter().find(|peer| peer.id == cell_id);
            let why = why.and_then(|peer| peer.why).unwrap_or_else(|| "there is no link".into());
            return Err(Fault::silent(name, format_args!(": {why}")));
        }
        if is_change(&question) && !cells.greeter.knows_of_replicated(cell_id) {
            let why = "has an older version of holdall, which knows nothing of replicated cells";
            return Err(Fault::Failed(format!("{name} {why}; upgrade its agent")));
        }
        let questions = &mut cells.questions;
        if questions.asked.len() >= ASKED_MAX {
            return Err(conflict("too many questions to other cells wait for an answer".into()));
        }
        questions.last += 1;
        let number = questions.last;
        questions.asked.insert(number, Asked { cell, conn, id });
        let question = Box::new(question);
        self.say(cell, Frame::Asks { number, asker: conn.0, question });
        let (me, name) = (self.me.clone(), name.to_owned());
        tokio::task::spawn_local(async move {
            tokio::time::sleep(PATIENCE).await;
            if let Some(service) = me.upgrade() {
                let why = Fault::silent(name, " in time");
                service.borrow_mut().answered(cell, number, Reply::Failed(why));
            }
        });
        Ok(())
    }

    /// A question was answered, by the cell that it was for.
    pub(super) fn answered(&mut self, cell: CellId, number: u64, reply: Reply) {
        let Some(cells) = &mut self.cells else { return };
        if cells.questions.asked.get(&number).is_none_or(|asked| asked.cell != cell) {
            return;
        }
        if let Some(Asked { conn, id, .. }) = cells.questions.asked.remove(&number) {
            self.answer(conn, id, reply);
        }
    }

    /// There is no link to a cell any more: nobody waits for its answers.
    pub(super) fn no_answer_from(&mut self, cell: CellId, why: &Fault) {
        let Some(cells) = &mut self.cells else { return };
        cells.questions.walks.retain(|(of, _), _| *of != cell);
        let asked = cells.questions.asked.iter().filter(|(_, asked)| asked.cell == cell);
        let asked: Vec<_> = asked.map(|(number, _)| *number).collect();
        for number in asked {
            self.answered(cell, number, Reply::Failed(why.clone()));
        }
    }

    /// Answers a question from another cell. Members may look.
    pub(super) fn answer_cell(&mut self, cell: CellId, asker: u64, question: Body) -> Reply {
        let reply = match question {
            Body::Status { names, .. } if names.len() > NEEDS_MAX => {
                Err(Fault::Wrong(format!("a status is for {NEEDS_MAX} names at most")))
            }
            Body::Status { names, more } => Ok(self.status_for(cell, asker, names, more)),
            Body::Explain { request, most } => self.explained(request, most),
            Body::ExplainAs { id, most } => match self.known_as(&id) {
                Some(request) => self.explained(request, most),
                None => Err(Fault::Conflict("it does not wait there any more".into())),
            },
            Body::Agent => Ok(Reply::Agent(Box::new(self.agent_view(ConnNo(0))))),
            Body::Change(_) | Body::Drain { .. } => {
                let why = "the pools of a machine are changed by its own users, on it";
                Err(Fault::Conflict(why.into()))
            }
            _ => Err(Fault::Wrong("this is no question for another cell".into())),
        };
        let reply = reply.unwrap_or_else(Reply::Failed);
        match postcard::experimental::serialized_size(&reply) {
            Ok(size) if size <= ANSWER_MAX => reply,
            _ => Reply::Failed(Fault::Failed("the answer is too long to be sent".into())),
        }
    }

    fn known_as(&self, id: &[u8]) -> Option<RequestNo> {
        self.engine().known_as(postcard::from_bytes(id).ok()?)
    }

    fn status_for(&mut self, cell: CellId, asker: u64, names: Vec<Name>, more: bool) -> Reply {
        let walks = self.cells.as_mut().map(|cells| &mut cells.questions.walks);
        let last = walks.and_then(|walks| walks.remove(&(cell, asker))).filter(|_| more);
        if more && last.is_none() {
            // Whoever began anew each time would never come to an end.
            let why = "too many look at this cell at once; ask again in a moment";
            return Reply::Failed(Fault::Conflict(why.into()));
        }
        let mut walk = last.unwrap_or_else(|| Walk::new(names));
        let page = self.status(&mut walk);
        let more = !walk.is_over();
        if let Some(cells) = self.cells.as_mut().filter(|_| more) {
            let walks = &mut cells.questions.walks;
            while walks.len() >= WALKS_MAX {
                walks.pop_first(); // Whoever follows it is told so.
            }
            walks.insert((cell, asker), walk);
        }
        Reply::Status { page, more }
    }
}

async fn carry_out(
    links: &links::Links,
    home: &links::Home,
    greeter: &Greeter,
    call: ClusterCall,
) -> Result<Reply, String> {
    let told = |error: links::Unsaid| error.to_string();
    match call {
        // These were answered before.
        ClusterCall::Members
        | ClusterCall::Host(_)
        | ClusterCall::Hosted
        | ClusterCall::HandOver(_)
        | ClusterCall::Close(_) => Ok(Reply::Done),
        ClusterCall::Token { millis, machines, whose } => {
            let whose = match whose {
                Some(name) => For::Cell(links.named(&name).map_err(told)?),
                None => For::New(machines.max(1)),
            };
            let token = home.add_token(Duration::from_millis(millis), whose);
            Ok(Reply::JoinToken(token.map_err(|error| error.to_string())?.to_string()))
        }
        ClusterCall::Tokens => {
            let tokens = home.tokens().map_err(|error| error.to_string())?;
            let members = links.members();
            let name = |id: links::CellId| {
                let known = members.iter().find(|(other, _)| *other == id);
                known.map_or_else(|| id.to_string(), |(_, it)| it.name.to_string())
            };
            let view = tokens.into_iter().map(|token| JoinTokenView {
                label: token.label(),
                made: token.made,
                until: token.until,
                machines: token.uses,
                used: token.used.len() as u32,
                whose: token.only.map(name),
            });
            Ok(Reply::JoinTokens(view.collect()))
        }
        ClusterCall::Revoke(label) => {
            home.revoke_token(&label).map_err(|error| error.to_string())?;
            Ok(Reply::Done)
        }
        ClusterCall::Remove(name) => {
            let cell = links.named(&name).map_err(told)?;
            links.remove(cell).await.map_err(told)?;
            Ok(Reply::Done)
        }
        ClusterCall::Forget(name) => {
            let cell = match is_to_be_forgotten(&links.members(), &name)? {
                Some(cell) => cell,
                None => links.named(&name).map_err(told)?,
            };
            if cell == links.own().id {
                return Err("a cell does not forget itself; say it at another member".into());
            }
            let (word, says_life) =
                greeter.word_to_forget(cell).map_err(|error| error.to_string())?;
            links.forget(cell, word).await.map_err(told)?;
            if says_life {
                return Ok(Reply::Done);
            }
            Err(format!(
                "what {name} holds here is given up; but this cell has never had a link to it, and members that have do not \
                 take its word, since {name} may have come back: say it at one of them, too"
            ))
        }
    }
}

/// The one that is or was a member and has this name, or none. Whoever was removed may have joined again as another one, which must not be given
/// up in its place: of several, the id says which is meant.
fn is_to_be_forgotten(
    members: &[(links::CellId, Member)],
    name: &str,
) -> Result<Option<links::CellId>, String> {
    let named = members.iter().filter(|(_, it)| it.name.as_str() == name);
    let named: Vec<_> = named.map(|(id, it)| (*id, it.removed)).collect();
    if let [] | [_] = named[..] {
        return Ok(named.first().map(|(id, _)| *id));
    }
    let told = named.iter().map(|(id, removed)| {
        let which = if *removed { "was removed" } else { "is a member" };
        format!("{id} ({which})")
    });
    let told = told.collect::<Vec<_>>().join(", ");
    Err(format!("{} cells are or were called {name}: {told}; say the id of one", named.len()))
}

fn declared(engine: &Engine<Served>) -> Vec<(Name, Kind)> {
    let pools = engine.declared().into_iter().filter_map(|change| match change {
        Change::Add { name, kind } => Some((name, kind)),
        _ => None,
    });
    pools.collect()
}

/// What this cell says about itself. If that is too much, the last pools are left out.
pub(super) fn about(engine: &Engine<Served>) -> Vec<u8> {
    let mut pools = declared(engine);
    loop {
        let bytes = postcard::to_stdvec(&pools).unwrap_or_default();
        if bytes.len() <= ABOUT_MAX {
            return bytes;
        }
        pools.truncate(pools.len() * 9 / 10);
    }
}

fn pools_in(about: &[u8]) -> Vec<(Name, Kind)> {
    postcard::from_bytes(about).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_member_is_not_forgotten_in_place_of_a_removed_one_of_its_name() {
        let member = |id: &str, name: &str, removed| {
            let name = name.parse().expect("a name");
            let member =
                Member { removed, version: 1, since: 0, name, addresses: Vec::new(), signs: false };
            (format!("{id:0>32}").parse::<links::CellId>().expect("an id"), member)
        };
        let (old, older) = (member("a3", "lab3", true), member("a2", "lab3", true));
        let (new, other) = (member("b3", "lab3", false), member("c1", "lab1", false));
        let meant = |members: &[_]| is_to_be_forgotten(members, "lab3");
        assert_eq!(meant(std::slice::from_ref(&other)), Ok(None));
        assert_eq!(meant(&[old.clone(), other.clone()]), Ok(Some(old.0)));
        assert_eq!(meant(&[new.clone(), other]), Ok(Some(new.0)));
        for (one, is) in [(&new, "is a member"), (&older, "was removed")] {
            let told = meant(&[old.clone(), one.clone()]).expect_err("several");
            assert!(told.contains(&format!("{} (was removed)", old.0)), "{told}");
            assert!(told.contains(&format!("{} ({is})", one.0)), "{told}");
        }
    }
}
