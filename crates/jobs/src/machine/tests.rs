//! Random jobs under random schedules, with faults, watched by somebody who knows only the plan.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::plan::When;
use crate::read;

/// A task drawn at random: what it comes after, when, what it needs, and flags.
type Drawn = (Vec<prop::sample::Index>, u8, BTreeSet<u8>, u32, [bool; 4]);

/// A job drawn at random, as text.
fn job() -> impl Strategy<Value = String> {
    let task = (
        prop::collection::vec(any::<prop::sample::Index>(), 0..3),
        0..10_u8,
        prop::collection::btree_set(0..4_u8, 0..3),
        0..3_u32,
        any::<[bool; 4]>(),
    );
    let groups = prop::collection::vec((0..4_usize, 1..4_usize), 0..3);
    (prop::collection::vec(task, 1..9), groups).prop_map(|(tasks, groups)| {
        let texts = tasks.iter().enumerate().map(|(at, task)| task_text(at, task));
        let mut text: String = texts.collect();
        let mut first = 0;
        for (number, (gap, count)) in groups.into_iter().enumerate() {
            first += gap;
            let inside: Vec<usize> = (first..tasks.len().min(first + count)).collect();
            if !inside.is_empty() {
                let tasks = list(inside, 't');
                let group = format!("[group.g{number}]\nneeds = ['held']\ntasks = [{tasks}]\n");
                text.push_str(&group);
            }
            first += count;
        }
        text
    })
}

fn list(numbers: impl IntoIterator<Item = usize>, letter: char) -> String {
    let names: Vec<String> = numbers.into_iter().map(|n| format!("'{letter}{n}'")).collect();
    names.join(",")
}

fn task_text(at: usize, (after, when, needs, retries, flags): &Drawn) -> String {
    let before: BTreeSet<usize> =
        after.iter().filter(|_| at > 0).map(|index| index.index(at)).collect();
    let when = match when {
        0 if !before.is_empty() => "failure",
        1 => "always",
        _ => "success",
    };
    let (after, needs) = (list(before, 't'), list(needs.iter().map(|n| usize::from(*n)), 'n'));
    let [tolerated, again, timeout, wait] = flags;
    let timeout = if *timeout { "timeout = '10s'\n" } else { "" };
    let wait = if *wait { "wait = '20s'\n" } else { "" };
    format!(
        "[task.t{at}]\nrun = 'x'\nafter = [{after}]\nneeds = [{needs}]\nwhen = '{when}'\n\
         retries = {retries}\ncontinue = {tolerated}\nagain = {again}\n{timeout}{wait}"
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
    /// For the so many-th time.
    running: BTreeMap<TaskIndex, u32>,
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
            running: BTreeMap::new(),
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
                    let needs = |request: &&RequestIndex| {
                        !self.machine.plan().requests[request.0].needs.is_empty()
                    };
                    assert!(self.asked.keys().filter(needs).count() <= self.limits.ahead);
                }
                Effect::Withdraw(request, ask) => {
                    if self.asked.get(&request) == Some(&ask) {
                        self.asked.remove(&request);
                    }
                }
                Effect::Release(request, ask) => {
                    let tasks = self.machine.plan().tasks_of(request);
                    assert!(
                        tasks.iter().all(|task| !self.running.contains_key(task)),
                        "still in use"
                    );
                    assert_eq!(self.granted.remove(&request), Some(ask), "not held");
                }
                Effect::Start(task, attempt) => self.start(task, attempt),
                Effect::Stop(task, _) => {
                    assert!(self.running.contains_key(&task), "it does not run");
                    self.told_to_end.insert(task);
                }
            }
        }
    }

    fn note(&mut self, record: Record) {
        match &record {
            Record::Ended { task, outcome, .. } => {
                assert!(!self.running.contains_key(task), "it runs");
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

    fn start(&mut self, task: TaskIndex, attempt: u32) {
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
        for other in self.running.keys().filter(|other| plan.task(**other).request == own.request) {
            let both = |need: &holdall_wire::Need| plan.task(*other).needs.contains(need);
            assert!(!own.needs.iter().any(both), "{} beside {}", own.name, plan.task(*other).name);
        }
        assert!(self.running.insert(task, attempt).is_none(), "{} runs twice", own.name);
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
                let nth = self.running.iter().nth(nth(self.running.len()));
                let (task, attempt) = nth.map(|(t, a)| (*t, *a)).expect("there is one");
                self.running.remove(&task);
                self.told_to_end.remove(&task);
                // What is told of another time counts for nothing.
                self.tell(Input::Ended(task, attempt + 1, None));
                let cause = match kind {
                    5 => Some(Cause::Exit(1)),
                    6 => Some(Cause::Unknown),
                    _ => None,
                };
                self.tell(Input::Ended(task, attempt, cause));
            }
            10 if !self.granted.is_empty() => {
                let (request, ask) = self
                    .granted
                    .iter()
                    .nth(nth(self.granted.len()))
                    .map(|(r, a)| (*r, *a))
                    .expect("there is one");
                self.granted.remove(&request);
                self.tell(Input::Lost(request, ask, Cause::GrantLost));
                let lost = self.machine.plan().tasks_of(request).iter();
                let lost: Vec<_> =
                    lost.filter(|task| self.running.contains_key(task)).copied().collect();
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
        } else if let Some((task, attempt)) = self.running.pop_first() {
            self.tell_some(Input::Ended(task, attempt, None), done % 4);
        } else if done.is_multiple_of(5) {
            self.tell_some(Input::Cancel(None), done % 7);
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
                // What ran at the cut may count as failed; otherwise nothing is different.
                let started = |record: &&Record| matches!(record, Record::Started { .. });
                let attempted = |record: &&Record| matches!(record, Record::Attempted { .. });
                let noted = || whole.records[..cut].iter();
                if noted().filter(started).count() == noted().filter(attempted).count() {
                    prop_assert_eq!(&world.ended, &whole.ended);
                }
            }
        }
    }
}
