//! The explorer itself, on processes of a few accesses whose every outcome is known: what buffers
//! of stores, collected puts, fences, readings of whole files and crashes allow, no more and no less.
#![cfg(not(any(loom, shuttle)))]

use std::cell::RefCell;
use std::collections::BTreeSet;

use holdall_assign::explore::{Buffers, Found, Memory, Model, Settings, Slotted, World, explore};
use holdall_assign::machine::{Access, Machine};

/// Added to the own register 0 as it is found after a crash.
const CRASHED: u64 = 100;
const PUT: Access = Access::Put { slot: 0, value: 1 };

fn get(owner: usize) -> Access {
    Access::Get { owner, slot: 0 }
}

/// A process that makes these accesses and remembers what it read.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Script {
    accesses: Vec<Access>,
    at: usize,
    reads: Vec<u64>,
    /// Whether it asks again until it reads something.
    waits: bool,
}

impl Machine for Script {
    fn step(&mut self, read: u64) -> Access {
        let before = self.at.checked_sub(1).and_then(|last| self.accesses.get(last));
        if let Some(Access::Get { .. }) = before {
            if self.waits && read == 0 {
                return self.accesses[self.at - 1];
            }
            self.reads.push(read);
        }
        self.at += 1;
        self.accesses.get(self.at - 1).copied().unwrap_or(Access::Done)
    }
}

/// What each process reads.
type Outcome = Vec<Vec<u64>>;

struct Litmus {
    start: Vec<Script>,
    outcomes: RefCell<BTreeSet<Outcome>>,
    forbidden: Option<Outcome>,
}

impl Model for Litmus {
    type Process = Script;

    fn slots(&self) -> usize {
        2
    }

    fn start(&self) -> Vec<Script> {
        self.start.clone()
    }

    fn check(&self, world: &World<'_, Script>) -> Result<u32, String> {
        let done = world.processes().filter(|process| process.done()).count();
        if world.processes().all(Slotted::done) {
            let outcome: Outcome = world.processes().map(|p| p.process.reads.clone()).collect();
            if self.forbidden.as_ref() == Some(&outcome) {
                return Err(format!("{outcome:?}"));
            }
            self.outcomes.borrow_mut().insert(outcome);
        }
        Ok(done as u32)
    }

    fn restart(&self, who: usize, process: &Script, memory: &Memory) -> Script {
        let mut reads = process.reads.clone();
        reads.push(CRASHED + memory.get(who, 0));
        Script { accesses: vec![get(1 - who)], at: 0, reads, waits: false }
    }
}

fn litmus(programs: &[&[Access]]) -> Litmus {
    let script = |accesses: &&[Access]| Script {
        accesses: accesses.to_vec(),
        at: 0,
        reads: Vec::new(),
        waits: false,
    };
    Litmus {
        start: programs.iter().map(script).collect(),
        outcomes: RefCell::default(),
        forbidden: None,
    }
}

fn search(model: &Litmus, buffers: Buffers, crashes: u32) -> Found {
    explore(model, &Settings { buffers, crashes, ..Settings::default() })
}

/// All outcomes; every one of the processes is done in them.
fn outcomes(programs: &[&[Access]], buffers: Buffers, crashes: u32) -> BTreeSet<Outcome> {
    let model = litmus(programs);
    let found = search(&model, buffers, crashes);
    assert!(found.complete && found.violation.is_none());
    assert_eq!(found.most as usize, programs.len());
    model.outcomes.into_inner()
}

/// The outcomes of two processes that read once each.
fn pairs(pairs: &[(u64, u64)]) -> BTreeSet<Outcome> {
    pairs.iter().map(|(one, other)| vec![vec![*one], vec![*other]]).collect()
}

#[test]
fn without_a_fence_both_may_miss_the_other() {
    let programs: [&[Access]; 2] = [&[PUT, get(1)], &[PUT, get(0)]];
    let one_sees = pairs(&[(0, 1), (1, 0), (1, 1)]);
    let neither = pairs(&[(0, 0), (0, 1), (1, 0), (1, 1)]);
    assert_eq!(outcomes(&programs, Buffers::None, 0), one_sees);
    assert_eq!(outcomes(&programs, Buffers::Stores, 0), neither);
    assert_eq!(outcomes(&programs, Buffers::Files, 0), neither);
    let fenced: [&[Access]; 2] = [&[PUT, Access::Fence, get(1)], &[PUT, Access::Fence, get(0)]];
    for buffers in [Buffers::None, Buffers::Stores, Buffers::Files] {
        assert_eq!(outcomes(&fenced, buffers, 0), one_sees, "{buffers:?}");
    }
    // A publication is a fence for files only.
    let published: [&[Access]; 2] =
        [&[PUT, Access::Publish, get(1)], &[PUT, Access::Publish, get(0)]];
    assert_eq!(outcomes(&published, Buffers::Stores, 0), neither);
    assert_eq!(outcomes(&published, Buffers::Files, 0), one_sees);
}

#[test]
fn a_process_sees_its_own_puts_and_takes_them_for_no_other() {
    let newer = Access::Put { slot: 0, value: 2 };
    let beside = Access::Get { owner: 0, slot: 1 };
    let alone: [&[Access]; 2] = [&[PUT, newer, get(0), beside, get(1)], &[]];
    for buffers in [Buffers::None, Buffers::Stores, Buffers::Files] {
        let only = BTreeSet::from([vec![vec![2, 0, 0], vec![]]]);
        assert_eq!(outcomes(&alone, buffers, 0), only, "{buffers:?}");
    }
}

#[test]
fn puts_arrive_in_order_and_files_are_read_as_one() {
    let both: &[Access] = &[PUT, Access::Put { slot: 1, value: 1 }];
    let (first, second) = (get(0), Access::Get { owner: 0, slot: 1 });
    let reads = |reader: &[Access], buffers| {
        let found = outcomes(&[both, reader], buffers, 0);
        found.into_iter().map(|outcome| outcome[1].clone()).collect::<BTreeSet<_>>()
    };
    let all = BTreeSet::from([vec![0, 0], vec![0, 1], vec![1, 0], vec![1, 1]]);
    let forwards = BTreeSet::from([vec![0, 0], vec![1, 0], vec![1, 1]]);
    let backwards = BTreeSet::from([vec![0, 0], vec![0, 1], vec![1, 1]]);
    for buffers in [Buffers::None, Buffers::Stores] {
        assert_eq!(reads(&[first, second], buffers), all);
        assert_eq!(reads(&[second, first], buffers), backwards);
    }
    assert_eq!(reads(&[first, second], Buffers::Files), forwards);
    assert_eq!(reads(&[first, Access::Fence, second], Buffers::Files), all);
    assert_eq!(reads(&[first, Access::Publish, second], Buffers::Files), forwards);
}

#[test]
fn a_crash_loses_what_was_collected_and_nothing_that_was_published() {
    let reads = |program: &[Access], buffers, crashes| {
        let found = outcomes(&[program, &[]], buffers, crashes);
        found.into_iter().map(|outcome| outcome[0].clone()).collect::<BTreeSet<_>>()
    };
    let (plain, published) = ([PUT, get(1), get(1)], [PUT, Access::Publish, get(1), get(1)]);
    assert_eq!(reads(&plain, Buffers::Files, 0), BTreeSet::from([vec![0, 0]]));
    let early = [vec![0, 0], vec![CRASHED, 0], vec![CRASHED + 1, 0]];
    let late = [vec![0, CRASHED + 1, 0]];
    let lost = [vec![0, CRASHED, 0]];
    let kept: BTreeSet<_> = early.into_iter().chain(late).collect();
    // What a processor has stored arrives although the process is gone.
    for buffers in [Buffers::None, Buffers::Stores] {
        assert_eq!(reads(&plain, buffers, 1), kept, "{buffers:?}");
    }
    assert_eq!(reads(&published, Buffers::Files, 1), kept);
    assert_eq!(reads(&plain, Buffers::Files, 1), kept.iter().cloned().chain(lost).collect());
    assert!(reads(&plain, Buffers::None, 2).contains(&vec![CRASHED, CRASHED, 0]));
}

#[test]
fn steps_are_counted_and_the_search_is_bounded() {
    let model = litmus(&[&[PUT, get(1)], &[get(0)]]);
    let found = search(&model, Buffers::None, 0);
    assert_eq!((found.steps, found.most), (vec![2, 1], 2));
    let short = Settings { max_states: 3, ..Settings::default() };
    let short = explore(&model, &short);
    assert_eq!((short.complete, short.states), (false, 3));
    // A fence is a step if there is something to wait for; that a put arrives is none.
    let fenced = litmus(&[&[PUT, Access::Fence, get(1)], &[]]);
    assert_eq!(search(&fenced, Buffers::None, 0).steps, [2, 0]);
    assert_eq!(search(&fenced, Buffers::Stores, 0).steps, [3, 0]);
    let alone = search(&litmus(&[&[PUT, get(0)]]), Buffers::None, 0);
    assert_eq!((alone.states, alone.steps), (3, vec![2]));
}

#[test]
fn waiting_for_another_is_a_cycle() {
    let mut model = litmus(&[&[PUT], &[get(0)]]);
    model.start[1].waits = true;
    let violation = search(&model, Buffers::None, 0).violation.expect("it waits");
    assert!(violation.what.contains("cycle"));
    assert_eq!(violation.schedule, "1x1");
}

#[test]
fn a_schedule_leads_to_the_violation() {
    let schedule = |buffers, crashes, forbidden: Outcome| {
        let mut model = litmus(&[&[PUT, get(1)], &[PUT, get(0)]]);
        model.forbidden = Some(forbidden);
        search(&model, buffers, crashes).violation.expect("it can happen").schedule
    };
    assert_eq!(schedule(Buffers::None, 0, vec![vec![0], vec![1]]), "0x2 1x2");
    assert_eq!(schedule(Buffers::Stores, 0, vec![vec![0], vec![0]]), "0x2 1x2 w0x1 w1x1");
    let crashed = vec![vec![CRASHED + 1, 0], vec![1]];
    assert_eq!(schedule(Buffers::None, 1, crashed), "0x1 c0 0x1 1x2");
}
