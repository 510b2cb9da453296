//! What an acquire and release costs the engine while many others wait, hold, or do both: the
//! time of one must not grow with their number.
//!
//! `cargo run --release -p holdall-node --example engine_cost`

use std::time::Instant;

use holdall_node::engine::{Effect, Engine, Input};
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
        };
        let request = self.engine.next_number();
        let input = Input::Ask { who: self.who.clone(), ask };
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

    /// Microseconds for a holder to give way to the next, and to queue again behind all others.
    fn in_turn(&mut self, mut holders: Vec<(RequestNo, Vec<String>)>, of: &[Vec<String>]) -> f64 {
        let mut names: std::collections::HashMap<_, _> = holders.iter().cloned().collect();
        let mut next = 0;
        let start = Instant::now();
        for _ in 0..TURNS {
            let (request, _) = holders.remove(0);
            let granted = self.end(request);
            let wants = of[next % of.len()].clone();
            next += 1;
            let again = self.ask(&wants);
            names.insert(again, wants);
            for effect in granted {
                if let Effect::Granted { request, .. } = effect {
                    holders.push((request, Vec::new()));
                }
            }
            if holders.is_empty() {
                break;
            }
        }
        start.elapsed().as_secs_f64() * 1e6 / TURNS as f64
    }
}

/// So many requests for two of so many locks.
fn crowd(requests: usize, locks: usize) -> Vec<Vec<String>> {
    let lock = |n: usize| format!("lock/{}", n % locks);
    (0..requests).map(|i| vec![lock(i * 7), lock(i * 13 + 1)]).collect()
}

fn main() {
    println!("waiting or held, locks: us alone, us in turn");
    for (requests, locks) in
        [(10, 5), (1000, 500), (10_000, 5000), (100_000, 50_000), (100_000, 100)]
    {
        let mut bench = Bench::new();
        let wants: Vec<_> =
            crowd(requests, locks).into_iter().filter(|names| names[0] != names[1]).collect();
        let start = Instant::now();
        let all: Vec<_> = wants.iter().map(|names| (bench.ask(names), names.clone())).collect();
        let entering = start.elapsed().as_secs_f64() * 1e6 / all.len() as f64;
        let held = |(request, _): &(RequestNo, Vec<String>)| bench.engine.grant(*request).is_some();
        let holders: Vec<_> = all.into_iter().filter(held).collect();
        let alone = bench.alone();
        let in_turn = bench.in_turn(holders, &wants);
        println!(
            "{requests:>7} {locks:>6}: enter {entering:8.2} alone {alone:8.2} turn {in_turn:8.2}"
        );
    }
}
