//! The manager: a queue of positions, and messages that wait to open a selection.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

use holdall_core::{
    Addr, Broken, Event, ManagerId, Need, Never, Outbox, Party, Request, RequestId, Role,
};
use serde::{Deserialize, Serialize};

use super::agent::Agent;
use super::{ToManager, ToUser, Walk, Walking};
use crate::pool::Share;
use crate::positions::{Answers, Move, News, Queue};

pub(super) type Out = Outbox<Walking, Never>;

/// Guards one pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manager {
    id: ManagerId,
    queue: Queue,
    /// Those that wait for the selection that is open to end, in the order they came.
    line: VecDeque<Walk>,
    /// The requests in the queue, with their ways.
    ways: BTreeMap<RequestId, Request>,
    /// The requests that it acts for.
    agent: Agent,
}

impl Manager {
    pub(super) fn new(id: ManagerId, capacity: u32) -> Self {
        Self {
            id,
            queue: Queue::new(capacity),
            line: VecDeque::new(),
            ways: BTreeMap::new(),
            agent: Agent::default(),
        }
    }

    /// How many units a request needs here.
    fn share(&self, request: &Request) -> Option<Share> {
        let here = |need: &&Need| Walking::manager_of(need.pool) == self.id;
        let need = request.needs.iter().find(here)?;
        Some(Share { request: request.id, units: need.units })
    }

    fn on_walk(&mut self, cfg: &Walking, from: Addr, walk: Walk, out: &mut Out) {
        let id = walk.request.id;
        let before = Walking::way(&walk.request).take_while(|m| *m != self.id).last();
        let sender = before.map_or(Addr::User(id.user), Addr::Manager);
        let share = self.share(&walk.request).filter(|share| self.queue.admits(*share));
        let waits = self.line.iter().any(|other| other.request.id == id);
        if from != sender {
            return out.misbehaved(from, "walk: off its way");
        }
        if share.is_none() || waits {
            return out.misbehaved(source(from, id), "walk: twice, or for units there are not");
        }
        if !self.queue.was_released(id) {
            self.line.push_back(walk);
            self.serve(cfg, out);
        }
    }

    /// Opens the next selection, once there is none open, and lets its message go on.
    fn serve(&mut self, cfg: &Walking, out: &mut Out) {
        while !self.queue.is_selecting() {
            let Some(walk) = self.line.pop_front() else { return };
            let Some(share) = self.share(&walk.request) else { continue };
            let mut answers = Answers::default();
            self.queue.open(cfg.queues, share, &mut answers);
            let Walk { request, mut marked } = walk;
            for news in answers.news {
                if let News::Marked { positions, .. } = news {
                    marked.extend(positions);
                }
            }
            marked.sort_unstable();
            marked.dedup();
            self.ways.insert(request.id, request.clone());
            match next_after(&request, self.id) {
                Some(next) => out.to_manager(next, ToManager::Walk(Walk { request, marked })),
                None if cfg.agent => {
                    let turn = self.agent.begin(cfg, &request, marked, out);
                    self.carry_out(cfg, &request, turn, out);
                }
                None => {
                    let news = News::Marked { request: request.id, positions: marked };
                    out.to_user(request.id.user, ToUser::News(news));
                }
            }
        }
    }

    fn on_move(&mut self, cfg: &Walking, from: Addr, step: &Move, out: &mut Out) {
        let id = step.request();
        let Some(request) = self.ways.get(&id).cloned() else {
            return; // A release overtook it.
        };
        let agent = Walking::last(&request).filter(|_| cfg.agent);
        let released = matches!(step, Move::Release(_));
        let speaker = match agent {
            Some(agent) if released && agent == self.id => Addr::User(id.user),
            Some(agent) => Addr::Manager(agent),
            None => Addr::User(id.user),
        };
        if from != speaker {
            return out.misbehaved(source(from, id), "a move for another, or by another way");
        }
        if released && agent == Some(self.id) {
            self.carry_out(cfg, &request, Some(step.clone()), out);
        } else {
            self.make(cfg, step, out);
        }
        self.serve(cfg, out);
    }

    /// Tells all queues of a request, for which it acts, and makes the move in its own.
    fn carry_out(&mut self, cfg: &Walking, request: &Request, step: Option<Move>, out: &mut Out) {
        let Some(step) = step else { return };
        for manager in Walking::way(request).filter(|manager| *manager != self.id) {
            out.to_manager(manager, ToManager::Move(step.clone()));
        }
        self.make(cfg, &step, out);
    }

    fn make(&mut self, cfg: &Walking, step: &Move, out: &mut Out) {
        let mut answers = Answers::default();
        self.queue.make(cfg.queues, false, step, &mut answers);
        self.pass_on(cfg, answers, out);
        if let Move::Release(id) = step {
            self.ways.remove(id);
        }
    }

    /// Passes the news of the queue on to users, or to the managers that act for them.
    fn pass_on(&mut self, cfg: &Walking, answers: Answers, out: &mut Out) {
        if !cfg.agent {
            return answers.send(ToUser::News, out);
        }
        for news in answers.news {
            let Some(request) = self.ways.get(&news.request()).cloned() else { continue };
            match Walking::last(&request) {
                Some(agent) if agent != self.id => out.to_manager(agent, ToManager::News(news)),
                _ => self.on_news(cfg, Addr::Manager(self.id), &news, out),
            }
        }
        for (user, what) in answers.wrong {
            out.misbehaved(Addr::User(user), what);
        }
    }

    fn on_news(&mut self, cfg: &Walking, from: Addr, news: &News, out: &mut Out) {
        let Some(request) = self.ways.get(&news.request()).cloned() else {
            return; // It crossed the release.
        };
        match self.agent.on_news(cfg, from, news, out) {
            Ok(step) => self.carry_out(cfg, &request, step, out),
            Err(what) => out.misbehaved(source(from, news.request()), what),
        }
    }

    /// Takes a request out, wherever it is; its message may have gone on.
    fn recall(&mut self, cfg: &Walking, id: RequestId, out: &mut Out) {
        let waits = self.line.iter().position(|walk| walk.request.id == id);
        if let Some(at) = waits {
            self.line.remove(at);
            return;
        }
        if let Some(next) = self.ways.get(&id).and_then(|request| next_after(request, self.id)) {
            out.to_manager(next, ToManager::Recall(id));
        }
        self.make(cfg, &Move::Release(id), out);
        self.serve(cfg, out);
    }

    /// Takes a request out whose message has been everywhere; the next may not have heard as much.
    fn purge(&mut self, cfg: &Walking, id: RequestId, out: &mut Out) {
        let Some(request) = self.ways.get(&id) else { return };
        if let Some(next) = next_after(request, self.id) {
            out.to_manager(next, ToManager::Purge(id));
        }
        self.make(cfg, &Move::Release(id), out);
        self.serve(cfg, out);
    }

    /// What is left of a user that is gone. It may have stopped when only the first on its way had
    /// heard its last word; all it said has arrived. Where its request stands, its message has been
    /// everywhere. Where it does not, the first knows best: nobody has heard more.
    fn on_gone(&mut self, cfg: &Walking, who: Party, out: &mut Out) {
        if !cfg.queues.purge {
            return;
        }
        let here = self.ways.values().chain(self.line.iter().map(|walk| &walk.request));
        let gone: Vec<_> = here.filter(|request| who.includes(request.id.user)).cloned().collect();
        for request in gone {
            if self.queue.stands(request.id) {
                self.purge(cfg, request.id, out);
            } else if Walking::way(&request).next() == Some(self.id) {
                self.recall(cfg, request.id, out);
            }
        }
    }
}

/// Who made a message up that makes no sense. Managers trust each other: one that sent it passed on
/// what the user said, which may have sent several messages on different ways for one request.
const fn source(from: Addr, request: RequestId) -> Addr {
    match from {
        Addr::Manager(_) => Addr::User(request.user),
        Addr::User(_) => from,
    }
}

/// Who comes after a manager on the way of a request.
fn next_after(request: &Request, manager: ManagerId) -> Option<ManagerId> {
    Walking::way(request).skip_while(|m| *m != manager).nth(1)
}

impl Role for Manager {
    type P = Walking;
    type Call = Never;
    type Msg = ToManager;
    type Timer = Never;

    fn step(&mut self, cfg: &Walking, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Message { from, msg: ToManager::Walk(walk) } => {
                self.on_walk(cfg, from, walk, out);
            }
            Event::Message { from, msg: ToManager::Move(step) } => {
                self.on_move(cfg, from, &step, out);
            }
            Event::Message { from, msg: ToManager::News(news) } => {
                self.on_news(cfg, from, &news, out);
                self.serve(cfg, out);
            }
            Event::Message { from, msg: ToManager::Purge(id) } => match from {
                Addr::User(_) => out.misbehaved(from, "purge: from a user"),
                Addr::Manager(_) => self.purge(cfg, id, out),
            },
            Event::Message { from, msg: ToManager::Recall(id) } => match from {
                Addr::User(user) if user != id.user => {
                    out.misbehaved(from, "recall: for another user");
                }
                _ => self.recall(cfg, id, out),
            },
            Event::Gone(gone) => self.on_gone(cfg, gone.who(), out),
            Event::Call(never) | Event::Timer(never) => match never {},
        }
    }

    fn check(&self, cfg: &Walking) -> Result<(), Broken> {
        let known = |request: RequestId| self.ways.contains_key(&request);
        Broken::unless(self.queue.requests().all(known), "W1: the way of all who are here")?;
        self.queue.check(cfg.queues)
    }

    /// A move, or news for an agent, comes only after the message has been here.
    fn is_stale(&self, _: &Walking, _: Addr, msg: &ToManager) -> bool {
        match msg {
            ToManager::Move(step) => !self.ways.contains_key(&step.request()),
            ToManager::News(news) => !self.ways.contains_key(&news.request()),
            ToManager::Purge(id) => !self.ways.contains_key(id),
            ToManager::Recall(_) | ToManager::Walk(_) => false,
        }
    }

    fn is_idle(&self) -> bool {
        self.queue.is_idle() && self.line.is_empty() && self.ways.is_empty() && self.agent.is_idle()
    }
}
