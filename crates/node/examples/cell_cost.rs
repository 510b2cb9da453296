//! What a cell with its log costs: an acquire and release, beside the engine alone; and how long a start
//! takes after so many of them.
//!
//! `cargo run -p holdall-node --example cell_cost [DIRECTORY]`

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use holdall_cell::engine::{Engine, Input as EngineInput};
use holdall_cell::replay::{LOGIC, Recorded, Replay};
use holdall_cell::session::{CallNo, ConnNo, Hello, Means, Secret, SessionId};
use holdall_cell::{Cell, Input, Out, Start, Wish};
use holdall_log::disk::RealDisk;
use holdall_log::file::{FileLog, FileStore, Options};
use holdall_log::{Class, Entry, Log, Opened};
use holdall_protocols::house::House;
use holdall_wire::{Ask, From, Lasting, RequestNo, Who};

/// How many inputs are flushed together, as in a round of a busy agent.
const ROUND: usize = 16;

/// How many clients there are.
const CLIENTS: usize = 10;

struct Host {
    cell: Cell,
    log: Option<FileLog>,
    /// How many calls each client has made.
    calls: [u64; CLIENTS],
    inputs: usize,
}

fn open(dir: &Path) -> (FileLog, Opened) {
    let disk = Arc::new(RealDisk::open(dir).expect("it is there"));
    FileStore::new(disk, None, Options::default()).open_file().expect("it can be opened")
}

fn ask(number: usize) -> Ask {
    Ask {
        needs: vec![format!("lock{number}").parse().expect("a need")],
        now: false,
        lasting: Lasting::Connection,
        from: From { command: "make -j8 test".into(), ..From::default() },
        within: None,
        limit: None,
        part: None,
    }
}

fn who() -> Arc<Who> {
    let from = ask(0).from;
    Arc::new(Who { uid: 1000, user: "somebody".into(), host: "lab".into(), pid: 4711, from })
}

impl Host {
    /// A cell with its clients; with a log, or without.
    fn new(log: Option<FileLog>) -> Self {
        let cell = Cell::new().expect("an engine");
        let mut host = Self { cell, log, calls: [0; CLIENTS], inputs: 0 };
        let start = Start { epoch: 1, ephemeral: true, ..Start::default() };
        host.input(Input::Started(Box::new(start)));
        for client in 0..CLIENTS {
            let hello = Hello {
                session: SessionId(u128::MAX - client as u128),
                secret: Secret(7),
                uid: 1000,
                means: Means::Process { pid: 4711, start: 1 },
                returns: false,
                heard: CallNo(0),
            };
            host.input(Input::Attach { conn: ConnNo(client as u64), hello });
        }
        host
    }

    fn input(&mut self, input: Input) -> Out {
        let Some(log) = &mut self.log else {
            return self.cell.step(1, input).expect("unbroken");
        };
        let recorded = Recorded::begin(1, &input).expect("written");
        let out = self.cell.step(1, input).expect("unbroken");
        assert!(out.is_new, "all of these change something");
        let (class, logic, sync) = (Class::Must, LOGIC, false);
        let append = |payload: &[u8]| log.append(Entry { class, logic, payload, sync });
        recorded.end(&out.facts).expect("written").append(append).expect("there is room");
        self.inputs += 1;
        if self.inputs.is_multiple_of(ROUND) {
            log.flush().expect("written");
        }
        out
    }

    fn call(&mut self, client: usize, wish: Wish) {
        self.calls[client] += 1;
        let (conn, call) = (ConnNo(client as u64), CallNo(self.calls[client]));
        let heard = CallNo(call.0 - 1);
        self.input(Input::Call { conn, call, heard, wish });
    }

    fn acquire(&mut self, number: usize) -> RequestNo {
        let request = self.cell.engine().next_number();
        self.call(
            number % CLIENTS,
            Wish::Ask { who: who(), ask: ask(number).into(), length: None },
        );
        request
    }

    fn turn(&mut self, number: usize) {
        let request = self.acquire(number);
        self.call(number % CLIENTS, Wish::End { request, rest: None });
    }
}

/// The best of some: others use the machine, too.
fn best(turns: usize, mut turn: impl FnMut(usize)) -> Duration {
    let mut best = Duration::MAX;
    for _ in 0..20 {
        let begun = Instant::now();
        (0..turns).for_each(&mut turn);
        best = best.min(begun.elapsed() / turns as u32);
    }
    best
}

fn main() {
    let above = std::env::args_os().nth(1).map_or_else(std::env::temp_dir, PathBuf::from);
    let dir = above.join(format!("holdall-cell-cost-{}", std::process::id()));
    std::fs::create_dir(&dir).expect("a directory");

    let mut engine: Engine<House> = Engine::new(None, 1, true).expect("a protocol");
    let alone = best(1000, |number| {
        let request = engine.next_number();
        engine
            .step(1, EngineInput::Ask { who: who(), ask: ask(number % 8).into(), length: None })
            .expect("unbroken");
        engine.step(1, EngineInput::End(request)).expect("unbroken");
    });
    println!("an acquire and release, the engine alone: {alone:.2?}");
    let mut host = Host::new(None);
    println!("the cell: {:.2?}", best(1000, |number| host.turn(number % 8)));
    let mut host = Host::new(Some(open(&dir).0));
    println!("the cell and its log: {:.2?}", best(1000, |number| host.turn(number % 8)));
    drop(host);
    std::fs::remove_dir_all(&dir).expect("it was made here");
    std::fs::create_dir(&dir).expect("a directory");

    let mut host = Host::new(Some(open(&dir).0));
    for number in 0..10_000 {
        host.acquire(number);
    }
    for number in 0..45_000 {
        host.turn(100_000 + number);
    }
    host.log.take().map(|log| Box::new(log).seal()).expect("there is one").expect("sealed");
    let begun = Instant::now();
    let (mut log, opened) = open(&dir);
    let read = begun.elapsed();
    let mut replay = Replay::new(LOGIC, None).expect("an engine");
    let bytes: usize = opened.records.iter().map(|record| record.payload.len()).sum();
    for record in &opened.records {
        replay.take(record.logic, &record.payload).expect("readable");
    }
    let cell = replay.finish().expect("an engine").cell;
    let replayed = begun.elapsed() - read;
    let records = opened.records.len();
    println!(
        "{records} records of {} bytes: read in {read:.2?}, replayed in {replayed:.2?}",
        bytes / records
    );
    let begun = Instant::now();
    let state = cell.snapshot().expect("written");
    let job = log.begin_snapshot().expect("begun");
    job.keep(LOGIC, &state).expect("kept");
    println!(
        "10,000 grants are a snapshot of {} bytes, made in {:.2?}",
        state.len(),
        begun.elapsed()
    );
    drop(log);
    let begun = Instant::now();
    let (_log, opened) = open(&dir);
    let snapshot = opened.snapshot.expect("it was kept");
    let replay = Replay::new(LOGIC, Some((LOGIC, &snapshot.payload))).expect("readable");
    drop(replay.finish().expect("an engine"));
    println!("started from it in {:.2?}", begun.elapsed());
    let begun = Instant::now();
    let replay = Replay::new(LOGIC + 1, Some((LOGIC, &snapshot.payload))).expect("readable");
    let mut cell = replay.finish().expect("an engine").cell;
    let start = Start { epoch: 2, ephemeral: true, rebuilt: true, ..Start::default() };
    cell.step(1, Input::Started(Box::new(start))).expect("unbroken");
    println!("built again from its facts, after an upgrade, in {:.2?}", begun.elapsed());
    std::fs::remove_dir_all(&dir).expect("it was made here");
}
