//! What those who wait take of memory in a cell: its books, sessions and engine, without the service around it.
//!
//! `cargo run -p holdall-cell --example waiting_cost [REQUESTS [own]]`, under `heaptrack` for what is allocated where.

use std::sync::Arc;

use holdall_cell::session::{CallNo, ConnNo, Hello, Means, Secret, SessionId};
use holdall_cell::{Cell, Input, Start, Wish};
use holdall_wire::{Ask, From, Lasting, Need, Who};

/// Over how many connections they wait.
const CONNECTIONS: u64 = 100;

fn step(cell: &mut Cell, input: Input) {
    let out = cell.step(1, input).expect("unbroken");
    cell.reuse(out);
}

fn cell() -> Cell {
    let mut cell = Cell::new().expect("an engine");
    let start = Start { epoch: 1, ephemeral: true, ..Start::default() };
    step(&mut cell, Input::Started(Box::new(start)));
    for client in 0..CONNECTIONS {
        let session = SessionId(u128::MAX - u128::from(client));
        let means = Means::Process { pid: 4711, start: 1 };
        let (secret, heard) = (Secret(7), CallNo(0));
        let hello = Hello { session, secret, uid: 1000, means, returns: false, heard };
        step(&mut cell, Input::Attach { conn: ConnNo(client), hello });
    }
    cell
}

/// What a request is for: the same as all others, or something of its own as well.
fn needs(number: u64, own: bool) -> Vec<Need> {
    let mut names = vec!["crowd".to_owned()];
    names.extend((own && number > 0).then(|| format!("crowd/{number}")));
    names.iter().map(|name| name.parse().expect("a need")).collect()
}

/// How many bytes of the process are in memory.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number") * 4096
}

fn main() {
    let count = std::env::args().nth(1).map_or(100_000, |text| text.parse().expect("a number"));
    let own = std::env::args().nth(2).is_some_and(|word| word == "own");
    let mut cell = cell();
    let whos: Vec<Arc<Who>> = (0..CONNECTIONS).map(|_| Arc::default()).collect();
    let before = resident();
    for number in 0..count {
        let (conn, call) = (number % CONNECTIONS, CallNo(number / CONNECTIONS + 1));
        let (now, lasting, from) = (false, Lasting::Connection, From::default());
        let (needs, within, limit, part) = (needs(number, own), None, None, None);
        let ask = Arc::new(Ask { needs, now, lasting, from, within, limit, part });
        let wish = Wish::Ask { who: whos[conn as usize].clone(), ask, length: None };
        let (conn, heard) = (ConnNo(conn), CallNo(0));
        step(&mut cell, Input::Call { conn, call, heard, wish });
    }
    assert_eq!(cell.books().requests() as u64, count);
    println!("{count} requests: {} bytes each", (resident() - before) / count);
}
