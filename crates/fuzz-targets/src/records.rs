//! The log of a cell, as it is read at a start: a snapshot, and records, each under the number of a logic.
//!
//! The bytes are pieces, each with its length in two bytes and a byte that says what it is.

use holdall_cell::replay::{LOGIC, Parts, Replay};
use holdall_cell::{Cell, Input, Start};

const SNAPSHOT: u8 = 0;
const RECORD: u8 = 1;
/// A record of another logic: its facts alone count.
const FORMER: u8 = 2;

pub(crate) fn run(bytes: &[u8]) -> bool {
    let mut pieces = pieces(bytes).peekable();
    let snapshot = pieces.next_if(|(kind, _)| *kind % 3 == SNAPSHOT).map(|(_, it)| it);
    // The engine of a snapshot is read by the version that wrote it alone, and as that left it.
    let Ok(mut replay) = Replay::new(LOGIC, snapshot.map(|it| (LOGIC - 1, it))) else {
        return false;
    };
    let mut parts = Parts::default();
    for (kind, payload) in pieces {
        if let Ok(Some(recorded)) = parts.take(payload) {
            drop(recorded.input());
        }
        let logic = if kind % 3 == FORMER { LOGIC - 1 } else { LOGIC };
        if replay.take(logic, payload).is_err() {
            return false;
        }
    }
    let Ok(replayed) = replay.finish() else { return false };
    let input = replayed.started(Start {
        epoch: u32::MAX / 2,
        life: 3,
        boot: "b".into(),
        ..Start::default()
    });
    let mut cell = replayed.cell;
    goes_on(&mut cell, input);
    true
}

/// Whatever the log says, the cell takes its start or says why not; and if it takes it, it can be written.
fn goes_on(cell: &mut Cell, started: Input) {
    let now = cell.now().saturating_add(1);
    if cell.step(now, started).is_ok() {
        drop(cell.step(now, Input::Due));
        drop(cell.snapshot());
    }
}

fn pieces(bytes: &[u8]) -> impl Iterator<Item = (u8, &[u8])> {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let (kind, behind) = rest.split_first()?;
        let (length, behind) = behind.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_le_bytes(*length)).min(behind.len());
        let (piece, behind) = behind.split_at(length);
        rest = behind;
        Some((*kind, piece))
    })
}

fn piece(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).expect("it is short").to_le_bytes();
    [&[kind][..], &length, payload].concat()
}

/// The logs and snapshots that the tests of the cell keep, and each of their beginnings.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let log = golden(include_bytes!("../../cell/tests/golden/log-3"));
    let snapshot = include_bytes!("../../cell/tests/golden/snapshot-3");
    let of = |kind| move |payload: &Vec<u8>| piece(kind, payload);
    let all: Vec<u8> = log.iter().flat_map(of(RECORD)).collect();
    let facts: Vec<u8> = log.iter().flat_map(of(FORMER)).collect();
    let first: Vec<u8> = log.iter().take(2).flat_map(of(RECORD)).collect();
    vec![all, facts, first, piece(SNAPSHOT, snapshot)]
}

/// The records of a golden log, each with its length before it.
fn golden(file: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = file;
    let mut records = Vec::new();
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let (record, behind) = behind.split_at(u32::from_le_bytes(*length) as usize);
        records.push(record.to_vec());
        rest = behind;
    }
    records
}
