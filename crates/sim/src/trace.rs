//! Requests that come at given times, ask for given things and use them for given times: what was recorded
//! somewhere, in place of a workload.
//!
//! Nobody waits for anybody else before asking (an *open* system), and one tick is whatever unit of time the trace has.
//!
//! # Invariants
//! - A client of the protocol has one request at a time. Requests take idle clients, or new ones if there are none;
//!   where a protocol has to know its participants, each user of the trace is one, and its requests follow each other.
//! - What is in use of a pool is counted here at every grant: more than there is, is a violation.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::ops::ControlFlow;

use holdall_core::{Known, Needs, PoolId};

use crate::clients::{Clients, Deed, run_clients};
use crate::contender::Contender;
use crate::stats::Report;
use crate::waiting::END_OF_TIME;
use crate::{Error, Settings};

/// What there is, and who asks for what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace {
    /// The pools, by number.
    pub pools: Vec<TracePool>,
    /// The requests, in the order in which they come.
    pub requests: Vec<Asked>,
    /// If only some requests matter, which: all is over when these are granted or given up.
    pub watched: Option<BTreeSet<usize>>,
}

/// A pool of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracePool {
    /// How many units it has.
    pub capacity: u32,
    /// Whether units are asked for by name.
    pub listed: bool,
}

/// A request of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// When it is made.
    pub at: u64,
    /// What is asked for.
    pub needs: Needs,
    /// How long it is used.
    pub service: u64,
    /// After what time it is given up, if it is not granted by then.
    pub patience: Option<u64>,
    /// Whose it is.
    pub user: u32,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fate {
    /// When it was granted, if it was.
    pub granted: Option<u64>,
    /// When its use ended, or when it was given up.
    pub ended: Option<u64>,
}

/// What one protocol made of a trace.
#[derive(Clone, Debug)]
pub struct Played {
    /// Messages, grants and events.
    pub report: Report,
    /// What became of each request.
    pub fates: Vec<Fate>,
    /// Entries into a pool that had no room, and units that were granted twice.
    pub violations: u64,
    /// Requests that were given up in the trace and are not played, because the protocol assumes that nobody leaves.
    pub left_out: usize,
}

/// The settings for a trace: of those given, what says how messages, nodes and roles are.
pub fn trace_settings(trace: &Trace, settings: &Settings) -> Settings {
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let widest = trace.requests.iter().map(|asked| asked.needs.len()).max().unwrap_or(1);
    let users = trace.requests.iter().map(|asked| asked.user).max().map_or(1, |last| last + 1);
    // Even if one is served after another, all is over by then.
    let last = trace.requests.last().map_or(0, |asked| asked.at);
    let work: u128 = trace.requests.iter().map(|asked| u128::from(asked.service)).sum();
    let ticks = (2 * (u128::from(last) + work) + SLACK).min(END_OF_TIME.into());
    Settings {
        users,
        resources: number(trace.pools.len()).max(1),
        units: trace.pools.iter().map(|pool| pool.capacity).max().unwrap_or(1),
        named: f64::from(u8::from(trace.pools.iter().any(|pool| pool.listed))),
        per_request: number(widest),
        of: None,
        unequal: false,
        ticks: u64::try_from(ticks).unwrap_or(END_OF_TIME),
        ..settings.clone()
    }
}

/// For messages on their way when all else is done.
const SLACK: u128 = 1_000_000;

/// Plays a trace through a protocol, until all requests have come to their end. The settings are [those for
/// it](trace_settings).
///
/// # Errors
/// As for [`run`](crate::run).
pub fn play(settings: &Settings, contender: &Contender, trace: &Trace) -> Result<Played, Error> {
    play_told(settings, contender, trace, &|_| ControlFlow::Continue(()))
}

/// How far a trace is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Which tick it is.
    pub now: u64,
    /// How many requests wait.
    pub waiting: usize,
    /// How many have still to come to their end.
    pub left: usize,
}

/// The same; `progress` is told now and then how far it is, and may break it off there.
///
/// # Errors
/// As for [`run`](crate::run).
pub fn play_told(
    settings: &Settings,
    contender: &Contender,
    trace: &Trace,
    progress: &dyn Fn(Progress) -> ControlFlow<()>,
) -> Result<Played, Error> {
    let assumes = &contender.about().assumes;
    let known = assumes.participants == Known::Known;
    let mut player = Player::new(trace, known, assumes.departures, progress);
    let report = run_clients(settings, contender, &mut player)?;
    let violations = player.violations + report.violations;
    let Player { fates, left_out, .. } = player;
    Ok(Played { report, fates, violations, left_out })
}

/// Progress is told after so many requests that came or were granted.
const TOLD: u64 = 16;

/// What is due some time: the use of a client ends, or its patience.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    End { client: u32 },
    GiveUp { client: u32, request: usize },
}

/// Whoever is told of progress.
struct Told<'a>(&'a dyn Fn(Progress) -> ControlFlow<()>);

impl std::fmt::Debug for Told<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Told")
    }
}

/// The requests of a trace, as clients of a protocol.
#[derive(Debug)]
struct Player<'a> {
    trace: &'a Trace,
    progress: Told<'a>,
    /// It was broken off.
    broken_off: bool,
    capacities: Vec<u32>,
    /// The requests that are played.
    order: Vec<usize>,
    left_out: usize,
    /// How many of these have come, and for how many of these we have asked to be woken.
    come: usize,
    awaited: usize,
    /// What each client asked for last.
    needs: Vec<Needs>,
    /// The request of each client.
    request: Vec<Option<usize>>,
    idle: Vec<u32>,
    /// If each user is one client: what each of them has still to ask for.
    known: Option<BTreeMap<u32, VecDeque<usize>>>,
    due: BinaryHeap<Reverse<(u64, Due)>>,
    fates: Vec<Fate>,
    used: Vec<u64>,
    violations: u64,
    /// Requests that are waited for and not over.
    left: usize,
    /// Requests that wait.
    waiting: usize,
    /// How often one came or was granted.
    steps: u64,
}

impl<'a> Player<'a> {
    fn new(
        trace: &'a Trace,
        known: bool,
        departures: bool,
        progress: &'a dyn Fn(Progress) -> ControlFlow<()>,
    ) -> Self {
        let played = |asked: &Asked| departures || asked.patience.is_none();
        let order: Vec<usize> =
            (0..trace.requests.len()).filter(|at| played(&trace.requests[*at])).collect();
        let (mut needs, mut request) = (Vec::new(), Vec::new());
        if known {
            let mut first = BTreeMap::new();
            for at in &order {
                let Asked { user, needs, .. } = &trace.requests[*at];
                first.entry(*user).or_insert_with(|| needs.clone());
            }
            let users = first.last_key_value().map_or(0, |(user, _)| user + 1);
            let any = order.first().map(|at| trace.requests[*at].needs.clone());
            needs.extend((0..users).filter_map(|user| first.remove(&user).or_else(|| any.clone())));
            request.resize(needs.len(), None);
        }
        let matters = |at: &usize| trace.watched.as_ref().is_none_or(|some| some.contains(at));
        Self {
            trace,
            progress: Told(progress),
            broken_off: false,
            capacities: trace.pools.iter().map(|pool| pool.capacity).collect(),
            left_out: trace.requests.len() - order.len(),
            left: order.iter().filter(|at| matters(at)).count(),
            order,
            come: 0,
            awaited: 0,
            needs,
            request,
            idle: Vec::new(),
            known: known.then(BTreeMap::new),
            due: BinaryHeap::new(),
            fates: vec![Fate::default(); trace.requests.len()],
            used: vec![0; trace.pools.len()],
            violations: 0,
            waiting: 0,
            steps: 0,
        }
    }

    /// A request comes.
    fn come(&mut self, request: usize, now: u64, out: &mut Vec<Deed>) {
        let user = self.trace.requests[request].user;
        let client = match &mut self.known {
            Some(backlog) => {
                let own = backlog.entry(user).or_default();
                own.push_back(request);
                if self.request[user as usize].is_some() || own.len() > 1 {
                    return;
                }
                own.clear();
                user
            }
            None => self.idle.pop().unwrap_or(self.needs.len() as u32),
        };
        self.ask(client, request, now, out);
    }

    fn ask(&mut self, client: u32, request: usize, now: u64, out: &mut Vec<Deed>) {
        let asked = &self.trace.requests[request];
        let at = client as usize;
        if at == self.needs.len() {
            self.needs.push(asked.needs.clone());
            self.request.push(None);
        }
        self.needs[at] = asked.needs.clone();
        self.request[at] = Some(request);
        out.push(Deed::Ask(client));
        if let Some(patience) = asked.patience {
            let until = asked.at.saturating_add(patience).clamp(now, END_OF_TIME);
            self.due.push(Reverse((until, Due::GiveUp { client, request })));
            out.push(Deed::Wake(until));
        }
    }

    fn over(&mut self, request: usize) {
        if self.trace.watched.as_ref().is_none_or(|some| some.contains(&request)) {
            self.left = self.left.saturating_sub(1);
        }
    }

    /// Tells how far it is, now and then.
    fn tell(&mut self, now: u64) {
        self.steps += 1;
        if self.steps.is_multiple_of(TOLD) {
            let Self { waiting, left, .. } = *self;
            self.broken_off |= (self.progress.0)(Progress { now, waiting, left }).is_break();
        }
    }

    fn end(&mut self, client: u32, now: u64, out: &mut Vec<Deed>) {
        let Some(request) = self.request[client as usize] else { return };
        self.fates[request].ended = Some(now);
        for need in self.needs[client as usize].iter() {
            self.used[need.pool.index()] -= u64::from(need.units);
        }
        out.push(Deed::Done(client));
        if self.trace.watched.is_none() {
            self.over(request);
        }
    }

    fn give_up(&mut self, client: u32, request: usize, now: u64, out: &mut Vec<Deed>) {
        if self.request[client as usize] != Some(request) || self.fates[request].granted.is_some() {
            return;
        }
        self.fates[request].ended = Some(now);
        self.waiting = self.waiting.saturating_sub(1);
        out.push(Deed::Leave(client));
        self.over(request);
    }
}

impl Clients for Player<'_> {
    fn capacities(&self) -> &[u32] {
        &self.capacities
    }

    fn is_listed(&self, pool: PoolId) -> bool {
        self.trace.pools[pool.index()].listed
    }

    fn needs(&self) -> &[Needs] {
        &self.needs
    }

    fn pools_of_each(&self) -> Vec<BTreeSet<PoolId>> {
        let mut pools = vec![BTreeSet::new(); self.needs.len()];
        for asked in self.order.iter().map(|at| &self.trace.requests[*at]) {
            pools[asked.user as usize].extend(asked.needs.iter().map(|need| need.pool));
        }
        pools
    }

    /// Ends first: what comes back at a time can be had at that time.
    fn wake(&mut self, now: u64, out: &mut Vec<Deed>) {
        while let Some(Reverse((at, due))) = self.due.peek().copied()
            && at <= now
        {
            self.due.pop();
            match due {
                Due::End { client } => self.end(client, now, out),
                Due::GiveUp { client, request } => self.give_up(client, request, now, out),
            }
        }
        while let Some(request) = self.order.get(self.come).copied() {
            let at = self.trace.requests[request].at;
            if at > now {
                // Once: every wake that asked for another would soon be a crowd.
                if self.awaited <= self.come {
                    self.awaited = self.come + 1;
                    out.push(Deed::Wake(at));
                }
                break;
            }
            self.come += 1;
            self.waiting += 1;
            self.tell(now);
            self.come(request, now, out);
        }
    }

    fn granted(&mut self, client: u32, now: u64, out: &mut Vec<Deed>) {
        let Some(request) = self.request[client as usize] else { return };
        self.fates[request].granted = Some(now);
        self.waiting = self.waiting.saturating_sub(1);
        self.tell(now);
        for need in self.needs[client as usize].iter() {
            let pool = need.pool.index();
            self.used[pool] += u64::from(need.units);
            self.violations += u64::from(self.used[pool] > u64::from(self.capacities[pool]));
        }
        if self.trace.watched.is_some() {
            self.over(request);
        }
        let end = now.saturating_add(self.trace.requests[request].service).min(END_OF_TIME);
        if end == now {
            self.end(client, now, out);
        } else {
            self.due.push(Reverse((end, Due::End { client })));
            out.push(Deed::Wake(end));
        }
    }

    fn released(&mut self, client: u32, now: u64, out: &mut Vec<Deed>) {
        self.request[client as usize] = None;
        let Some(backlog) = &mut self.known else {
            self.idle.push(client);
            return;
        };
        if let Some(request) = backlog.get_mut(&client).and_then(VecDeque::pop_front) {
            self.ask(client, request, now, out);
        }
    }

    fn is_over(&self) -> bool {
        self.left == 0 || self.broken_off
    }
}

#[cfg(test)]
mod tests {
    use holdall_core::{Need, Options, Protocol};
    use holdall_protocols::chandy_misra::ChandyMisra;
    use holdall_protocols::coordinator::Coordinator;
    use holdall_protocols::house::House;
    use holdall_protocols::ordered::Ordered;

    use super::*;

    fn needs(pool: u64, units: u32) -> Needs {
        Needs::new(vec![Need::any(PoolId(pool), units)]).expect("sensible")
    }

    fn asked(at: u64, needs: Needs, service: u64) -> Asked {
        Asked { at, needs, service, patience: None, user: 0 }
    }

    fn counted(capacity: u32) -> TracePool {
        TracePool { capacity, listed: false }
    }

    fn contender<P: Protocol>(variant: Option<&str>) -> Contender {
        let options = Options { variant: variant.map(Into::into), ..Options::default() };
        Contender::of::<P>(P::FAMILY, options).expect("a protocol")
    }

    fn played(contender: &Contender, trace: &Trace) -> Played {
        let one = Settings { nodes: Some(1), colocated: true, ..Settings::default() };
        play(&trace_settings(trace, &one), contender, trace).expect("played")
    }

    fn waits(played: &Played, trace: &Trace) -> Vec<Option<u64>> {
        let wait = |(fate, asked): (&Fate, &Asked)| fate.granted.map(|at| at - asked.at);
        played.fates.iter().zip(&trace.requests).map(wait).collect()
    }

    #[test]
    fn one_after_another_where_there_is_one_and_side_by_side_where_there_are_two() {
        let requests: Vec<Asked> = (0..3).map(|n| asked(10 * n, needs(0, 1), 100)).collect();
        let trace = Trace { pools: vec![counted(1)], requests, watched: None };
        let fifo = contender::<Coordinator>(Some("fifo"));
        let oracle = Contender::oracle().expect("the yardstick");
        let (house, ordered) = (contender::<House>(None), contender::<Ordered>(None));
        for protocol in [house, fifo, ordered, oracle] {
            let name = protocol.name();
            let one = played(&protocol, &trace);
            assert_eq!(waits(&one, &trace), [Some(0), Some(90), Some(180)], "{name}");
            let two = Trace { pools: vec![counted(2)], ..trace.clone() };
            assert_eq!(
                waits(&played(&protocol, &two), &two),
                [Some(0), Some(0), Some(80)],
                "{name}"
            );
            assert_eq!(one.violations + one.left_out as u64, 0, "{name}");
        }
    }

    #[test]
    fn who_gives_up_is_passed_and_not_served() {
        let mut requests: Vec<Asked> = (0..3).map(|n| asked(n, needs(0, 1), 100)).collect();
        requests[1].patience = Some(20);
        let trace = Trace { pools: vec![counted(1)], requests, watched: None };
        let house = played(&contender::<House>(None), &trace);
        assert_eq!(waits(&house, &trace), [Some(0), None, Some(98)]);
        assert_eq!(house.fates[1].ended, Some(21));
        let diners = played(&contender::<ChandyMisra>(None), &trace);
        assert_eq!(diners.left_out, 1, "it assumes that nobody leaves");
    }

    #[test]
    fn protocols_that_know_their_participants_see_users_one_request_at_a_time() {
        let mut requests: Vec<Asked> = (0..4).map(|n| asked(n, needs(n % 2, 1), 10)).collect();
        requests[3].user = 2;
        let trace = Trace { pools: vec![counted(1), counted(1)], requests, watched: None };
        let diners = played(&contender::<ChandyMisra>(None), &trace);
        assert!(diners.fates.iter().all(|fate| fate.ended.is_some()), "{:?}", diners.fates);
        assert_eq!(diners.violations, 0);
    }

    #[test]
    fn units_by_name_wait_for_their_unit() {
        let unit = |unit| {
            let need = Need { named: [unit].into(), ..Need::any(PoolId(0), 1) };
            Needs::new(vec![need]).expect("sensible")
        };
        let requests = vec![asked(0, unit(1), 50), asked(1, unit(1), 50), asked(2, unit(0), 50)];
        let pools = vec![TracePool { capacity: 2, listed: true }];
        let trace = Trace { pools, requests, watched: None };
        assert_eq!(
            waits(&played(&contender::<House>(None), &trace), &trace),
            [Some(0), Some(49), Some(0)]
        );
    }

    #[test]
    fn all_is_over_when_those_who_matter_are_granted() {
        let requests: Vec<Asked> = (0..50).map(|n| asked(n, needs(0, 1), 100)).collect();
        let trace = Trace { pools: vec![counted(1)], requests, watched: Some([0, 1].into()) };
        let played = played(&contender::<House>(None), &trace);
        assert_eq!(played.fates[1].granted, Some(100));
        assert!(played.fates[2..].iter().all(|fate| fate.granted.is_none()));
    }

    #[test]
    fn who_sees_how_far_it_is_may_break_it_off() {
        // One a tick comes, and one in ten ticks is served.
        let requests: Vec<Asked> = (0..1000).map(|n| asked(n, needs(0, 1), 10)).collect();
        let trace = Trace { pools: vec![counted(1)], requests, watched: None };
        let one = Settings { nodes: Some(1), colocated: true, ..Settings::default() };
        let contender = contender::<House>(None);
        let settings = trace_settings(&trace, &one);
        let told = std::cell::RefCell::new(Vec::new());
        let watch = |most: usize| {
            let progress = |progress: Progress| {
                told.borrow_mut().push(progress);
                match progress.waiting > most {
                    true => ControlFlow::Break(()),
                    false => ControlFlow::Continue(()),
                }
            };
            play_told(&settings, &contender, &trace, &progress).expect("played").fates
        };
        let all = watch(1000);
        assert!(all.iter().all(|fate| fate.ended.is_some()), "it goes to its end");
        let most = told.borrow().iter().map(|progress| progress.waiting).max();
        assert!(most.is_some_and(|most| (850..=900).contains(&most)), "{most:?}");
        told.borrow_mut().clear();
        let some = watch(100);
        let last = *told.borrow().last().expect("told");
        assert!((101..130).contains(&last.waiting) && last.left > 900, "{last:?}");
        assert!(some.iter().filter(|fate| fate.granted.is_some()).count() < 20);
    }
}
