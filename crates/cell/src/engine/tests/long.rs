//! Uses that go on and on: others pass whoever waits for them, but not for ever.

use std::collections::BTreeSet;

use holdall_core::Rung;
use holdall_protocols::house::House;
use holdall_wire::RequestNo;

use super::super::{Effect, Engine, Input, TimerNo};
use super::{ask, engine, granted, who};

/// An engine whose timers ring when the test says so.
struct Timed {
    engine: Engine<House>,
    armed: BTreeSet<TimerNo>,
    /// The longest that was armed.
    rung: Rung,
}

fn timed() -> Timed {
    Timed { engine: engine(), armed: BTreeSet::new(), rung: 0 }
}

impl Timed {
    /// Who is granted by it.
    fn input(&mut self, input: Input) -> Vec<RequestNo> {
        let effects = self.engine.step(0, input).expect("unbroken");
        for effect in &effects {
            match effect {
                Effect::Arm(timer, rung) => {
                    self.armed.insert(*timer);
                    self.rung = self.rung.max(*rung);
                }
                Effect::Disarm(timer) => drop(self.armed.remove(timer)),
                _ => {}
            }
        }
        granted(&effects).into_iter().map(|(request, _)| request).collect()
    }

    /// The request, and who is granted by it.
    fn asks(&mut self, needs: &str) -> (RequestNo, Vec<RequestNo>) {
        let request = self.engine.next_number();
        (
            request,
            self.input(Input::Ask { who: who().into(), ask: ask(needs).into(), length: None }),
        )
    }

    /// Everything that is armed rings, so often.
    fn rings(&mut self, times: usize) -> Vec<RequestNo> {
        let mut granted = Vec::new();
        for _ in 0..times {
            for timer in std::mem::take(&mut self.armed) {
                granted.extend(self.input(Input::Timer(timer)));
            }
        }
        granted
    }
}

/// Those who share pass it while one of them goes on and on, but not for ever.
#[test]
fn long_uses_that_overlap_starve_nobody() {
    let mut timed = timed();
    let mut holder = timed.asks("a:shared").0;
    let wide = timed.asks("a").0;
    for passed in 0.. {
        assert!(passed < 4, "the wide one is starved");
        let next = timed.asks("a:shared").0;
        timed.rings(20);
        if timed.input(Input::End(holder)).contains(&wide) {
            break;
        }
        holder = next;
    }
}

/// Nor do those who use this or that for long, one after the other, so that there is always one that is overdue.
#[test]
fn long_uses_of_this_and_that_starve_nobody() {
    let mut timed = timed();
    let locks = ["a", "b"];
    let mut holding = locks.map(|lock| timed.asks(lock).0);
    let wide = timed.asks("a b").0;
    let mut waiting = locks.map(|lock| timed.asks(lock).0);
    for ended in 0.. {
        assert!(ended < 12, "the wide one is starved");
        let mut granted = timed.rings(20);
        granted.extend(timed.input(Input::End(holding[ended % 2])));
        if granted.contains(&wide) {
            break;
        }
        for at in 0..2 {
            if granted.contains(&waiting[at]) {
                (holding[at], waiting[at]) = (waiting[at], timed.asks(locks[at]).0);
            }
        }
    }
}

/// Those who came before it are so many: it steps aside for each of them, and what it needs besides does not idle.
#[test]
fn whoever_comes_last_of_many_long_uses_keeps_nothing_idle() {
    let mut timed = timed();
    let before: Vec<_> = (0..9).map(|_| timed.asks("a").0).collect();
    let wide = timed.asks("a b").0;
    for holder in before {
        timed.rings(20);
        let (narrow, granted) = timed.asks("b");
        assert_eq!(granted, [narrow], "b is kept for who cannot have a");
        timed.input(Input::End(narrow));
        assert_eq!(timed.input(Input::End(holder)).len(), 1, "the next has a");
    }
    assert!(timed.engine.status(&[]).waiting.is_empty(), "{wide} is served");
    assert_eq!(timed.rung, 6 + 4, "and for three minutes, not longer the longer the queue");
}
