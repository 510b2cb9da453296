//! `no-twice`: a coordinator that grants whatever fits, except that nobody is granted twice in a
//! row while others wait.
//!
//! It looks fair, and no single user can shut another out. Two narrow users taking turns still
//! starve a wide one: each of them is served between two grants of the other. When all ask for
//! ever, the states form one component in which everybody is served somewhere; only a search
//! restricted to the states in which the wide user waits shows its starvation.

use holdall_core::{
    About, Broken, Call, Event, ManagerId, Needs, Never, NodeId, Options, Outbox, Protocol,
    Request, RequestId, Role, Topology, Unsupported, UserId,
};
use holdall_protocols::ordered::Ordered;
use serde::{Deserialize, Serialize};

type Out = Outbox<NoTwice, Never>;

/// What the coordinator may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToManager {
    /// Queue this.
    Ask(Request),
    /// Take this back.
    Release(RequestId),
}

/// What a user may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grant(RequestId);

/// The configuration.
#[derive(Debug)]
pub struct NoTwice {
    topology: Topology,
}

impl Protocol for NoTwice {
    const FAMILY: &'static str = "no-twice";
    const NAMES: &'static [&'static str] = &["no-twice"];
    type ToUser = Grant;
    type ToManager = ToManager;
    type User = User;
    type Manager = Manager;

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        let sound = Ordered::about(variant)?;
        Ok(About {
            name: Self::FAMILY.into(),
            summary: "specimen: grants what fits, but to nobody twice in a row; starves the wide",
            source: "made up for the checker",
            assumes: holdall_core::Assumes { departures: false, named: false, ..sound.assumes },
            rules: Vec::new(),
            ..sound
        })
    }

    fn new(topology: &Topology, _: &Options) -> Result<Self, Unsupported> {
        Ok(Self { topology: topology.clone() })
    }

    fn managers(&self) -> Vec<NodeId> {
        vec![NodeId(0)]
    }

    fn user(&self, _: UserId) -> User {
        User { request: None }
    }

    fn manager(&self, _: ManagerId) -> Manager {
        let free = self.topology.pools.iter().map(|pool| pool.capacity).collect();
        Manager { free, holders: Vec::new(), waiting: Vec::new(), last: None }
    }
}

/// Asks, waits, gives back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User {
    request: Option<Request>,
}

impl Role for User {
    type P = NoTwice;
    type Call = Call;
    type Msg = Grant;
    type Timer = Never;

    fn step(&mut self, _: &NoTwice, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Call(Call::Ask(request, _)) => {
                out.to_manager(ManagerId(0), ToManager::Ask(request.clone()));
                self.request = Some(request);
            }
            Event::Call(Call::Done | Call::Leave) => {
                let Some(request) = self.request.take() else { return };
                out.to_manager(ManagerId(0), ToManager::Release(request.id));
                out.released(request.id);
            }
            Event::Message { msg: Grant(_), .. } => {
                out.granted(self.request.clone().expect("asked"));
            }
            Event::Gone(_) => {}
            Event::Timer(never) => match never {},
        }
    }

    fn check(&self, _: &NoTwice) -> Result<(), Broken> {
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.request.is_none()
    }
}

/// Grants what fits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manager {
    free: Vec<u32>,
    holders: Vec<Request>,
    waiting: Vec<Request>,
    /// Who was granted last.
    last: Option<UserId>,
}

impl Manager {
    fn fits(&self, needs: &Needs) -> bool {
        needs.iter().all(|need| need.units <= self.free[need.pool.index()])
    }

    fn scan(&mut self, out: &mut Out) {
        let alone = self.waiting.len() == 1;
        let may = |r: &Request| self.fits(&r.needs) && (alone || self.last != Some(r.id.user));
        let Some(at) = self.waiting.iter().position(may) else { return };
        let request = self.waiting.remove(at);
        request.needs.iter().for_each(|need| self.free[need.pool.index()] -= need.units);
        self.last = Some(request.id.user);
        out.to_user(request.id.user, Grant(request.id));
        self.holders.push(request);
        self.scan(out);
    }
}

impl Role for Manager {
    type P = NoTwice;
    type Call = Never;
    type Msg = ToManager;
    type Timer = Never;

    fn step(&mut self, _: &NoTwice, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Message { msg: ToManager::Ask(request), .. } => self.waiting.push(request),
            Event::Message { msg: ToManager::Release(id), .. } => {
                if let Some(at) = self.holders.iter().position(|request| request.id == id) {
                    let needs = self.holders.remove(at).needs;
                    needs.iter().for_each(|need| self.free[need.pool.index()] += need.units);
                }
            }
            Event::Gone(_) => {}
            Event::Call(never) | Event::Timer(never) => match never {},
        }
        self.scan(out);
    }

    fn check(&self, _: &NoTwice) -> Result<(), Broken> {
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.holders.is_empty() && self.waiting.is_empty()
    }
}
