//! Random jobs under random schedules, with faults, watched by somebody who knows only the plan.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use proptest::prelude::*;

use super::*;
use crate::plan::When;
use crate::read;

/// A job drawn at random, as text.
fn job() -> impl Strategy<Value = String> {
    let task = (
        prop::collection::vec(any::<prop::sample::Index>(), 0..3),
        0..10_u8,
        prop::collection::btree_set(0..4_u8, 0..3),
        0..3_u32,
        any::<[bool; 4]>(),
    );
    (prop::collection::vec(task, 1..9), prop::option::of((1..6_usize, 1..4_usize))).prop_map(
        |(tasks, group)| {
            let mut text = String::new();
            for (at, (after, when, needs, retries, flags)) in tasks.iter().enumerate() {
                let before: BTreeSet<usize> = if at == 0 {
                    BTreeSet::new()
                } else {
                    after.iter().map(|i| i.index(at)).collect()
                };
                let list: Vec<String> = before.iter().map(|b| format!("'t{b}'")).collect();
                let needs: Vec<String> = needs.iter().map(|n| format!("'n{n}'")).collect();
                let when = match when {
                    0 if !before.is_empty() => "failure",
                    1 => "always",
                    _ => "success",
                };
                let [tolerated, again, timeout, wait] = flags;
                writeln!(
                    text,
                    "[task.t{at}]\nrun = 'x'\nafter = [{}]\nneeds = [{}]",
                    list.join(","),
                    needs.join(",")
                )
                .expect("there is one");
                writeln!(
                    text,
                    "when = '{when}'\nretries = {retries}\ncontinue = {tolerated}\nagain = {again}"
                )
                .expect("there is one");
                if *timeout {
                    writeln!(text, "timeout = '10s'").expect("there is one");
                }
                if *wait {
                    writeln!(text, "wait = '20s'").expect("there is one");
                }
            }
            if let Some((first, count)) = group {
                let names: Vec<String> = (first..first + count)
                    .filter(|at| *at < tasks.len())
                    .map(|at| format!("'t{at}'"))
                    .collect();
                if !names.is_empty() {
                    writeln!(text, "[group.g]\nneeds = ['held']\ntasks = [{}]", names.join(","))
                        .expect("there is one");
                }
            }
            text
        },
    )
}

/// What the world around the machine is like.
struct World {
    machine: Machine,
    limits: Limits,
    now: Millis,
    records: Vec<Record>,
    asked: BTreeMap<RequestIndex, u32>,
    granted: BTreeMap<RequestIndex, u32>,
    running: BTreeSet<TaskIndex>,
    /// How tasks have ended, as noted.
    ended: BTreeMap<TaskIndex, Outcome>,
    told_to_end: BTreeSet<TaskIndex>,
}

impl World {
    fn new(plan: Plan, limits: Limits) -> Self {
        let machine = Machine::new(plan, limits);
        let mut world = Self {
            machine,
            limits,
            now: 1_000_000,
            records: Vec::new(),
            asked: BTreeMap::new(),
            granted: BTreeMap::new(),
            running: BTreeSet::new(),
            ended: BTreeMap::new(),
            told_to_end: BTreeSet::new(),
        };
        let effects = world.machine.start(world.now);
        world.perform(effects, usize::MAX);
        world
    }

    fn tell(&mut self, input: Input) {
        self.tell_some(input, usize::MAX);
    }

    /// Tells the machine, and does only the first of what it says.
    fn tell_some(&mut self, input: Input, most: usize) {
        let effects = self.machine.step(self.now, input);
        self.perform(effects, most);
    }

    fn perform(&mut self, effects: Vec<Effect>, most: usize) {
        for effect in effects.into_iter().take(most) {
            match effect {
                Effect::Record(record) => self.note(record),
                Effect::Ask(request, ask) => {
                    assert!(!self.granted.contains_key(&request), "asked for what is held");
                    assert!(self.asked.insert(request, ask).is_none(), "asked for twice");
                    assert!(self.asked.len() <= self.limits.ahead);
                }
                Effect::Withdraw(request, ask) => {
                    if self.asked.get(&request) == Some(&ask) {
                        self.asked.remove(&request);
                    }
                }
                Effect::Release(request, ask) => {
                    let tasks = self.machine.plan().tasks_of(request);
                    assert!(tasks.iter().all(|task| !self.running.contains(task)), "still in use");
                    assert_eq!(self.granted.remove(&request), Some(ask), "not held");
                }
                Effect::Start(task, _) => self.start(task),
                Effect::Stop(task, _) => {
                    assert!(self.running.contains(&task), "it does not run");
                    self.told_to_end.insert(task);
                }
            }
        }
    }

    fn note(&mut self, record: Record) {
        match &record {
            Record::Ended { task, outcome, .. } => {
                assert!(!self.running.contains(task), "it runs");
                self.ended.insert(*task, outcome.clone());
            }
            // That is an end, even if what follows from it was not noted any more.
            Record::Attempted { task, cause: None, .. } => {
                self.ended.insert(*task, Outcome::Succeeded);
            }
            Record::Retried { tasks, .. } => {
                self.ended.retain(|task, _| !tasks.contains(task));
            }
            _ => {}
        }
        self.records.push(record);
    }

    fn start(&mut self, task: TaskIndex) {
        let plan = self.machine.plan();
        let own = plan.task(task);
        assert!(self.granted.contains_key(&own.request), "{} has no grant", own.name);
        assert!(!self.ended.contains_key(&task), "{} has ended", own.name);
        let well = |before: &TaskIndex| match self.ended.get(before) {
            Some(Outcome::Succeeded) => true,
            Some(Outcome::Failed(cause)) => {
                plan.task(*before).tolerated && *cause != Cause::Cancelled
            }
            Some(Outcome::Skipped) => false,
            None => panic!("{} starts before {}", own.name, plan.task(*before).name),
        };
        let all_well = own.after.iter().filter(|before| well(before)).count() == own.after.len();
        match own.when {
            When::Success => assert!(all_well, "{} wants success", own.name),
            When::Failure => assert!(!all_well, "{} wants a failure", own.name),
            When::Always => {}
        }
        // What a group has only once, no two of its tasks have at a time.
        for other in self.running.iter().filter(|other| plan.task(**other).request == own.request) {
            let both = |need: &holdall_wire::Need| plan.task(*other).needs.contains(need);
            assert!(!own.needs.iter().any(both), "{} beside {}", own.name, plan.task(*other).name);
        }
        assert!(self.running.insert(task), "{} runs twice", own.name);
    }

    /// One thing happens, chosen by two numbers.
    fn happen(&mut self, kind: u8, which: usize) {
        let nth = |count: usize| which % count.max(1);
        match kind {
            0..=4 if !self.asked.is_empty() => {
                let (request, ask) = self
                    .asked
                    .iter()
                    .nth(nth(self.asked.len()))
                    .map(|(r, a)| (*r, *a))
                    .expect("there is one");
                self.asked.remove(&request);
                if kind == 0 {
                    self.tell(Input::Refused(request, ask, Cause::Never("no".into())));
                } else {
                    self.granted.insert(request, ask);
                    self.tell(Input::Granted(request, ask));
                }
            }
            5..=9 if !self.running.is_empty() => {
                let task = *self.running.iter().nth(nth(self.running.len())).expect("there is one");
                self.running.remove(&task);
                self.told_to_end.remove(&task);
                self.tell(Input::Ended(task, (kind < 7).then_some(Cause::Exit(1))));
            }
            10 if !self.granted.is_empty() => {
                let (request, ask) = self
                    .granted
                    .iter()
                    .nth(nth(self.granted.len()))
                    .map(|(r, a)| (*r, *a))
                    .expect("there is one");
                self.granted.remove(&request);
                self.tell(Input::Lost(request, ask));
                let lost = self.machine.plan().tasks_of(request).iter();
                let lost: Vec<_> =
                    lost.filter(|task| self.running.contains(task)).copied().collect();
                assert!(lost.iter().all(|task| self.told_to_end.contains(task)), "it may go on");
            }
            11 => self.pass_time(),
            12 => {
                let task = TaskIndex(nth(self.machine.plan().tasks.len()));
                self.tell(Input::Cancel(Some(task)));
            }
            13 => self.crash(which),
            14 if which.is_multiple_of(8) => self.tell(Input::Cancel(None)),
            15 if self.machine.is_over() => self.tell(Input::Retry(None)),
            _ => {}
        }
    }

    fn pass_time(&mut self) {
        self.now = self.machine.next_alarm().unwrap_or(self.now).max(self.now) + 1;
        self.tell(Input::Tick);
    }

    /// The machine ends in the midst of what it says, with all that runs; another goes on.
    fn crash(&mut self, done: usize) {
        if let Some((request, ask)) = self.asked.pop_first() {
            self.granted.insert(request, ask);
            self.tell_some(Input::Granted(request, ask), done % 4);
        } else if let Some(task) = self.running.pop_first() {
            self.tell_some(Input::Ended(task, None), done % 4);
        }
        self.asked.clear();
        self.granted.clear();
        self.running.clear();
        let plan = self.machine.plan().clone();
        let (machine, effects) = Machine::resume(plan, self.limits, &self.records, self.now);
        self.machine = machine;
        self.perform(effects, usize::MAX);
    }

    /// From now on all goes well, and it must come to its end.
    fn heal(&mut self) {
        for _ in 0..2000 {
            if self.machine.is_over() {
                assert!(
                    self.asked.is_empty() && self.granted.is_empty() && self.running.is_empty()
                );
                let ended = |task: &Progress| matches!(task.stage, Stage::Ended(_));
                assert!(self.machine.tasks.iter().all(ended));
                return;
            }
            if !self.asked.is_empty() {
                self.happen(1, 0);
            } else if !self.running.is_empty() {
                self.happen(9, 0);
            } else {
                assert!(self.machine.next_alarm().is_some(), "it waits for nothing");
                self.pass_time();
            }
        }
        panic!("it does not end");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]
    #[test]
    fn whatever_happens_the_rules_hold_and_it_ends(
        text in job(),
        events in prop::collection::vec((0..16_u8, any::<usize>()), 0..60),
        ahead in 1..4_usize,
        jobs in 1..5_usize,
    ) {
        // A group drawn at random may be one that would wait while it holds.
        if let Ok(plan) = read(&text, "random") {
            let mut world = World::new(plan, Limits { ahead, jobs });
            for (kind, which) in events {
                world.happen(kind, which);
            }
            world.heal();
        }
    }

    /// Wherever a machine ends, one that goes on from what was noted comes to the same end.
    #[test]
    fn from_any_record_on_it_comes_to_the_same_end(text in job()) {
        if let Ok(plan) = read(&text, "random") {
            let mut whole = World::new(plan.clone(), Limits::default());
            whole.heal();
            for cut in 0..=whole.records.len() {
                let mut world = World::new(plan.clone(), Limits::default());
                world.records.clear();
                whole.records[..cut].iter().for_each(|record| world.note(record.clone()));
                (world.asked, world.granted) = Default::default();
                let (machine, effects) =
                    Machine::resume(plan.clone(), Limits::default(), &world.records, world.now);
                world.machine = machine;
                world.perform(effects, usize::MAX);
                world.heal();
                prop_assert_eq!(world.machine.summary().tasks, whole.machine.summary().tasks);
            }
        }
    }
}
