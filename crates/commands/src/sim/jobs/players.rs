//! Copies of a job on their way, as clients of a protocol.

use std::collections::{BTreeMap, BTreeSet};

use holdall_core::Needs;
use holdall_jobs::{Effect, Input, Limits, Machine, Plan, RequestIndex, TaskIndex};
use holdall_sim::{Clients, Deed, Settings, draws};
use serde::Serialize;

use super::pools::Pools;

/// What happens at a time: a copy arrives, or a task of one ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    Arrival(usize),
    End(usize, TaskIndex, u32),
}

/// One copy.
#[derive(Debug)]
struct Copy {
    machine: Machine,
    arrival: u64,
    /// How long each task takes.
    takes: Vec<u64>,
    ended: Option<u64>,
}

/// All copies. Each request of each copy is a client of its own; those that need nothing are none.
#[derive(Debug)]
pub(super) struct Players<'a> {
    pools: &'a Pools,
    copies: Vec<Copy>,
    /// The client of each request that needs something.
    client: Vec<Option<u32>>,
    /// The request of each client, of the first copy.
    request: Vec<RequestIndex>,
    needs: Vec<Needs>,
    due: BTreeSet<(u64, Due)>,
    /// When copies arrive, until that is told.
    arrivals: Vec<u64>,
    /// Copies that have not ended.
    left: usize,
    /// When each client asked, or was granted what it asked for.
    since: Vec<u64>,
    waits: Vec<u64>,
    used: Vec<u32>,
    /// Units times ticks.
    busy: Vec<u128>,
    violations: u64,
    now: u64,
}

/// What became of the jobs.
#[derive(Serialize)]
pub(super) struct Summary {
    /// When the last job ended; nothing if one never did.
    pub(super) ended: Option<u64>,
    /// Jobs that did not end, or never arrived. The figures of jobs are without them.
    pub(super) unfinished: usize,
    pub(super) job_mean: f64,
    pub(super) job_longest: u64,
    pub(super) wait_mean: f64,
    pub(super) wait_median: u64,
    pub(super) wait_p99: u64,
    pub(super) wait_longest: u64,
    /// The share of each pool's units that was in use, until all was over.
    pub(super) pools: BTreeMap<String, f64>,
}

impl<'a> Players<'a> {
    pub(super) fn new(
        plan: &Plan,
        pools: &'a Pools,
        settings: &Settings,
        copies: u32,
        every: u32,
    ) -> Self {
        let plan = without_limits(plan);
        let (mut client, mut request, mut of_one) = (Vec::new(), Vec::new(), Vec::new());
        for (at, asked) in plan.requests.iter().enumerate() {
            let needs = pools.needs(&asked.needs);
            client.push(needs.as_ref().map(|_| of_one.len() as u32));
            request.extend(needs.as_ref().map(|_| RequestIndex(at)));
            of_one.extend(needs);
        }
        let mut arrival = 0;
        let copy = |number: u32| {
            let mut draw = draws(settings.seed, number);
            let between = draw(2 * u64::from(every) + 1);
            arrival += if number == 0 { 0 } else { between };
            let takes = |_| draw(2 * u64::from(settings.service) + 1);
            let takes = plan.tasks.iter().map(takes).collect();
            let machine = Machine::new(plan.clone(), Limits::default());
            Copy { machine, arrival, takes, ended: None }
        };
        let copies: Vec<Copy> = (0..copies).map(copy).collect();
        let due = copies.iter().enumerate().map(|(at, copy)| (copy.arrival, Due::Arrival(at)));
        let needs: Vec<Needs> = copies.iter().flat_map(|_| of_one.iter().cloned()).collect();
        Self {
            pools,
            due: due.collect(),
            arrivals: copies.iter().map(|copy| copy.arrival).collect(),
            left: copies.len(),
            copies,
            client,
            request,
            since: vec![0; needs.len()],
            needs,
            waits: Vec::new(),
            used: vec![0; pools.capacities.len()],
            busy: vec![0; pools.capacities.len()],
            violations: 0,
            now: 0,
        }
    }

    /// The client that asks for a request of a copy.
    fn client_of(&self, copy: usize, request: RequestIndex) -> Option<u32> {
        self.client[request.0].map(|client| (copy * self.request.len()) as u32 + client)
    }

    fn tell(&mut self, copy: usize, input: Input, out: &mut Vec<Deed>) {
        let effects = self.copies[copy].machine.step(self.now, input);
        self.perform(copy, effects, out);
    }

    fn perform(&mut self, copy: usize, effects: Vec<Effect>, out: &mut Vec<Deed>) {
        for effect in effects {
            match effect {
                Effect::Ask(request, ask) => match self.client_of(copy, request) {
                    Some(client) => {
                        self.since[client as usize] = self.now;
                        out.push(Deed::Ask(client));
                    }
                    None => self.tell(copy, Input::Granted(request, ask), out),
                },
                Effect::Start(task, attempt) => {
                    let end = self.now + self.copies[copy].takes[task.0];
                    self.due.insert((end, Due::End(copy, task, attempt)));
                    out.push(Deed::Wake(end));
                }
                Effect::Release(request, _) => {
                    if let Some(client) = self.client_of(copy, request) {
                        self.leave(client);
                        out.push(Deed::Done(client));
                    }
                }
                Effect::Record(_) | Effect::Withdraw(..) | Effect::Stop(..) => {}
            }
        }
        let copy = &mut self.copies[copy];
        if copy.ended.is_none() && copy.machine.is_over() {
            copy.ended = Some(self.now);
            self.left -= 1;
        }
    }

    /// A use begins; wherever there is no room for it, exclusion is violated.
    fn enter(&mut self, client: u32) {
        for need in self.needs[client as usize].iter() {
            let pool = need.pool.index();
            self.used[pool] = self.used[pool].saturating_add(need.units);
            self.violations += u64::from(self.used[pool] > self.pools.capacities[pool]);
        }
    }

    fn leave(&mut self, client: u32) {
        let ticks = u128::from(self.now - self.since[client as usize]);
        for need in self.needs[client as usize].iter() {
            self.used[need.pool.index()] -= need.units;
            self.busy[need.pool.index()] += ticks * u128::from(need.units);
        }
    }

    pub(super) fn violations(&self) -> u64 {
        self.violations
    }

    /// How long all tasks take, one after another.
    #[cfg(test)]
    pub(super) fn work(&self) -> u64 {
        self.copies.iter().flat_map(|copy| &copy.takes).sum()
    }

    pub(super) fn summary(&self) -> Summary {
        let took = |copy: &Copy| copy.ended.map(|at| at.saturating_sub(copy.arrival));
        let jobs: Vec<u64> = self.copies.iter().filter_map(took).collect();
        let ended = self.copies.iter().map(|copy| copy.ended).collect::<Option<Vec<u64>>>();
        let mut waits = self.waits.clone();
        waits.sort_unstable();
        let at = |share: f64| {
            let place = (share * waits.len() as f64).ceil() as usize;
            waits.get(place.saturating_sub(1)).copied().unwrap_or(0)
        };
        let mean = |all: &[u64]| all.iter().sum::<u64>() as f64 / all.len().max(1) as f64;
        let share = |at: usize| {
            let all = u128::from(self.pools.capacities[at]) * u128::from(self.now);
            self.busy[at] as f64 / all.max(1) as f64
        };
        let pools = self.pools.names.iter().enumerate();
        Summary {
            unfinished: self.left,
            ended: ended.and_then(|all| all.into_iter().max()),
            job_mean: mean(&jobs),
            job_longest: jobs.iter().copied().max().unwrap_or(0),
            wait_mean: mean(&waits),
            wait_median: at(0.5),
            wait_p99: at(0.99),
            wait_longest: at(1.0),
            pools: pools.map(|(at, name)| (name.to_string(), share(at))).collect(),
        }
    }
}

/// Tasks end well here, however long they wait or run.
fn without_limits(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    for task in &mut plan.tasks {
        (task.wait, task.timeout) = (None, None);
    }
    for group in &mut plan.groups {
        group.wait = None;
    }
    plan
}

impl Clients for Players<'_> {
    fn capacities(&self) -> &[u32] {
        &self.pools.capacities
    }

    fn needs(&self) -> &[Needs] {
        &self.needs
    }

    fn wake(&mut self, now: u64, out: &mut Vec<Deed>) {
        self.now = now;
        out.extend(self.arrivals.drain(..).map(Deed::Wake));
        while let Some((at, due)) = self.due.first().copied()
            && at <= now
        {
            self.due.pop_first();
            match due {
                Due::Arrival(copy) => {
                    let effects = self.copies[copy].machine.start(now);
                    self.perform(copy, effects, out);
                }
                Due::End(copy, task, attempt) => {
                    self.tell(copy, Input::Ended(task, attempt, None), out);
                }
            }
        }
    }

    fn granted(&mut self, client: u32, now: u64, out: &mut Vec<Deed>) {
        self.now = now;
        let asked = std::mem::replace(&mut self.since[client as usize], now);
        self.waits.push(now - asked);
        self.enter(client);
        let (copy, place) =
            (client as usize / self.request.len(), client as usize % self.request.len());
        self.tell(copy, Input::Granted(self.request[place], 1), out);
    }

    fn is_over(&self) -> bool {
        self.left == 0
    }
}
