//! What an acquire and release costs the engine while many others wait, hold, or do both: the
//! time of one must not grow with their number.
//!
//! `cargo run --release -p holdall-node --example engine_cost`

use std::collections::VecDeque;
use std::time::Instant;

use holdall_cell::engine::{Effect, Engine, Input};
use holdall_protocols::house::House;
use holdall_wire::{Ask, From, Lasting, Need, RequestNo, Who};

const TURNS: usize = 2000;

struct Bench {
    engine: Engine<House>,
    who: Who,
}

impl Bench {
    fn new() -> Self {
        let from = From { command: "bench".into(), ..From::default() };
        let who = Who { uid: 1, user: "u".into(), host: "h".into(), pid: 1, from };
        Self { engine: Engine::new(None, 1, true).expect("no variant"), who }
    }

    fn ask(&mut self, names: &[String]) -> RequestNo {
        let need = |name: &String| -> Need { name.parse().expect("a name") };
        let ask = Ask {
            needs: names.iter().map(need).collect(),
            now: false,
            lasting: Lasting::Connection,
            from: self.who.from.clone(),
            within: None,
            limit: None,
            part: None,
        };
        let request = self.engine.next_number();
        let input = Input::Ask { who: self.who.clone().into(), ask: ask.into(), length: None };
        self.engine.step(0, input).expect("sound");
        request
    }

    fn end(&mut self, request: RequestNo) -> Vec<Effect> {
        self.engine.step(0, Input::End(request)).expect("sound")
    }

    /// Microseconds for an acquire and release of something that nobody else wants.
    fn alone(&mut self) -> f64 {
        let names = ["free/a".to_string(), "free/b".to_string()];
        let start = Instant::now();
        for _ in 0..TURNS {
            let request = self.ask(&names);
            self.end(request);
        }
        start.elapsed().as_secs_f64() * 1e6 / TURNS as f64
    }

    /// Microseconds for a holder to give way to the next, and for a newcomer to queue behind all.
    fn in_turn(&mut self, mut holders: VecDeque<RequestNo>, wants: &[[String; 2]]) -> f64 {
        let start = Instant::now();
        for names in wants.iter().cycle().take(TURNS) {
            let Some(holder) = holders.pop_front() else { break };
            for effect in self.end(holder) {
                if let Effect::Granted { request, .. } = effect {
                    holders.push_back(request);
                }
            }
            self.ask(names);
        }
        start.elapsed().as_secs_f64() * 1e6 / TURNS as f64
    }
}

/// So many requests for two of so many locks.
fn crowd(requests: usize, locks: usize) -> Vec<[String; 2]> {
    let lock = |n: usize| format!("lock/{}", n % locks);
    let pair = |i: usize| [lock(i * 7), lock(i * 7 + 1 + i % (locks - 1))];
    (0..requests).map(pair).collect()
}

fn main() {
    println!("requests  locks   us: to enter, alone beside them, in turn");
    for (requests, locks) in
        [(10, 5), (1000, 500), (10_000, 5000), (100_000, 50_000), (100_000, 100)]
    {
        let mut bench = Bench::new();
        let wants = crowd(requests, locks);
        let start = Instant::now();
        let all: Vec<_> = wants.iter().map(|names| bench.ask(names)).collect();
        let entering = start.elapsed().as_secs_f64() * 1e6 / requests as f64;
        let held = |request: &RequestNo| bench.engine.grant(*request).is_some();
        let holders = all.into_iter().filter(held).collect();
        let alone = bench.alone();
        let in_turn = bench.in_turn(holders, &wants);
        println!("{requests:>8} {locks:>6} {entering:>8.2} {alone:>8.2} {in_turn:>8.2}");
    }
}
