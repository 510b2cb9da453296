//! "Actions of resource managers".

use std::collections::{BTreeMap, BTreeSet};

use holdall_core::{Addr, Broken, Event, ManagerId, Never, Outbox, RequestId, Role};
use serde::{Deserialize, Serialize};

use super::{Claim, Form, Kind, Number, PrintedWinkowski, Situation, Version};

type Out = Outbox<PrintedWinkowski, Never>;

/// The manager of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Manager {
    id: ManagerId,
    capacity: u32,
    /// Applications, with what is under way between each task and this manager.
    applications: BTreeMap<RequestId, Link>,
    admissions: BTreeSet<RequestId>,
    requests: Vec<Claim>,
    orders: BTreeSet<RequestId>,
    /// InUse, with the users.
    uses: Vec<Claim>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Link {
    /// Whether the registration form is here.
    registered: bool,
    heard: Number,
    version: Version,
    /// Forms that overtook others.
    early: BTreeMap<Number, Form>,
}

impl Manager {
    pub(super) fn new(id: ManagerId, capacity: u32) -> Self {
        Self {
            id,
            capacity,
            applications: BTreeMap::new(),
            admissions: BTreeSet::new(),
            requests: Vec::new(),
            orders: BTreeSet::new(),
            uses: Vec::new(),
        }
    }

    fn on_form(&mut self, cfg: &PrintedWinkowski, form: Form, out: &mut Out) {
        let (task, id) = (form.task, self.id);
        let link = self.applications.entry(task).or_insert_with(|| Link {
            registered: false,
            heard: Number::first(task.user, id),
            version: Version::first(task.user, id),
            early: BTreeMap::new(),
        });
        if !cfg.repairs.d12 {
            link.heard = link.heard.max(form.number);
            return self.take(cfg, form, out);
        }
        link.early.insert(form.number, form);
        while let Some(link) = self.applications.get_mut(&task) {
            let next = link.heard.next();
            let Some(form) = link.early.remove(&next) else { return };
            link.heard = next;
            self.take(cfg, form, out);
        }
    }

    fn take(&mut self, cfg: &PrintedWinkowski, form: Form, out: &mut Out) {
        let Form { task, units, .. } = form;
        let claim = Claim { task, units };
        match form.kind {
            Kind::Registration => {
                if let Some(link) = self.applications.get_mut(&task) {
                    link.registered = true;
                }
            }
            Kind::Admission => {
                self.admissions.insert(task);
            }
            Kind::Request => {
                if self.requests.iter().all(|request| request.task != task) {
                    self.requests.push(claim);
                }
            }
            Kind::Order => {
                if !cfg.repairs.d15 || self.is_within_reach(claim) {
                    self.orders.insert(task);
                }
            }
            Kind::Advancing => self.advance(cfg, task),
            Kind::Withdrawal => self.withdraw(task),
            Kind::Winning => self.on_winning(cfg, claim),
            Kind::Releasing => {}
        }
        let leaves = form.kind == Kind::Releasing && self.uses.iter().any(|c| c.task == task);
        if leaves {
            self.uses.retain(|claim| claim.task != task);
            if let Some(link) = self.applications.get_mut(&task) {
                link.registered = false;
            }
        }
        self.inform_all(Some(task).filter(|_| leaves), out);
        if leaves {
            self.applications.remove(&task);
        }
    }

    fn withdraw(&mut self, task: RequestId) {
        self.requests.retain(|request| request.task != task);
        self.orders.remove(&task);
    }

    /// One place, whoever is before it; or, repaired, past all of lower priority.
    fn advance(&mut self, cfg: &PrintedWinkowski, task: RequestId) {
        let Some(mut at) = self.requests.iter().position(|claim| claim.task == task) else {
            return;
        };
        let d14 = cfg.repairs.d14;
        let passes = |before: &Claim, me: &Claim, orders: &BTreeSet<RequestId>| {
            !orders.contains(&before.task) && (before.ticket() > me.ticket() || !d14)
        };
        while at > 0 && passes(&self.requests[at - 1], &self.requests[at], &self.orders) {
            self.requests.swap(at - 1, at);
            at = if d14 { at - 1 } else { 0 };
        }
    }

    /// Whether an order is covered by what is neither used nor ordered nor requested before.
    fn is_within_reach(&self, claim: Claim) -> bool {
        let mut before = true;
        let counts = |other: &&Claim| {
            before &= other.task != claim.task;
            other.task != claim.task && (before || self.orders.contains(&other.task))
        };
        let queued = self.requests.iter().any(|other| other.task == claim.task);
        let requested = units(self.requests.iter().filter(counts));
        let used = units(&self.uses);
        queued && used + requested + u64::from(claim.units) <= u64::from(self.capacity)
    }

    fn on_winning(&mut self, cfg: &PrintedWinkowski, claim: Claim) {
        if units(&self.uses) + u64::from(claim.units) <= u64::from(self.capacity) {
            self.uses.push(claim);
            if cfg.repairs.d9 {
                self.withdraw(claim.task);
                self.admissions.remove(&claim.task);
            }
        }
    }

    /// "Messages containing information on the new local state to all the tasks with registration
    /// forms", and to whoever leaves.
    fn inform_all(&mut self, leaver: Option<RequestId>, out: &mut Out) {
        for (task, link) in &mut self.applications {
            if !link.registered && Some(*task) != leaver {
                continue;
            }
            link.version = link.version.next();
            let situation = Situation {
                task: *task,
                version: link.version,
                heard: link.heard,
                registered: link.registered,
                admissions: self.admissions.clone(),
                requests: self.requests.clone(),
                orders: self.orders.clone(),
                uses: self.uses.clone(),
            };
            out.to_user(task.user, situation);
        }
    }
}

/// The units of some claims.
pub(super) fn units<'a>(claims: impl IntoIterator<Item = &'a Claim>) -> u64 {
    claims.into_iter().map(|claim| u64::from(claim.units)).sum()
}

impl Role for Manager {
    type P = PrintedWinkowski;
    type Call = Never;
    type Msg = Form;
    type Timer = Never;

    fn step(&mut self, cfg: &PrintedWinkowski, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Message { from, msg } if from == Addr::User(msg.task.user) => {
                self.on_form(cfg, msg, out);
            }
            Event::Message { from, .. } => out.misbehaved(from, "a form of another task"),
            Event::Gone(_) => {}
            Event::Call(never) | Event::Timer(never) => match never {},
        }
    }

    fn check(&self, _: &PrintedWinkowski) -> Result<(), Broken> {
        Broken::unless(
            units(&self.uses) <= u64::from(self.capacity),
            "what is in use belongs to the pool",
        )
    }

    fn is_idle(&self) -> bool {
        self.applications.is_empty() && self.requests.is_empty() && self.uses.is_empty()
    }
}
