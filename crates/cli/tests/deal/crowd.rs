//! More workers, fewer workers, more items than was said at first.

use std::fs::{self, OpenOptions};
use std::io::Write;

use holdall_assign::machine::{Access, Machine};
use holdall_assign::registers::{Dir, Durability, Memory, Registers};
use holdall_assign::windows::{Layout, Seat};

use super::{Place, code, quiet, ran, status, terminate, told, wait_until};

/// The registers of worker 1 of two, numbers not synced, once it wants a window more.
pub(crate) fn intends_more(file: &[u8]) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a directory");
    let layout = Layout::new(2, 16, 1).expect("the sizes of a store for two");
    fs::write(Dir::file(dir.path(), 1), file).expect("written");
    let files = Dir::new(dir.path(), 2, layout.slots(), [2, 1, 0, 0], Durability::Process);
    let mut regs = files.handle(1).expect("the terms of such a store");
    let mut seat: Seat = Seat::resume(layout, 1, &mut |slot| regs.get(1, slot).expect("there"));
    holdall_assign::machine::drive(&mut seat, &mut regs).expect("settled");
    seat.acquire();
    let Access::Put { slot, value } = seat.step(0) else { panic!("it puts its intent") };
    regs.put(slot, value).expect("noted");
    regs.fence().expect("written");
    fs::read(Dir::file(dir.path(), 1)).expect("there")
}

/// All items are in one window of 64 lots; whoever is there shares them, and one that has nothing
/// left to do gets some of the others'.
#[test]
fn fewer_workers_than_said() {
    let place = Place::new();
    // Worker 0 is stuck with its first item until the others have done all the rest.
    let (out, all) = (place.file("out"), "--of 64 --count 64");
    let slow =
        format!("until test $(wc -l < {out}) -ge 63; do sleep 0.01; done; echo {{}} >> {out}");
    fs::write(&out, "").expect("written");
    let slow = quiet(&mut place.shell(0, all, &slow));
    wait_until("it works", || place.journal(0).contains("start"));
    let quick = format!("echo {{}} >> {out}");
    let others: Vec<_> = (1..4).map(|id| quiet(&mut place.shell(id, all, &quick))).collect();
    for worker in others.into_iter().chain([slow]) {
        let out = worker.wait_with_output().expect("it ends");
        assert_eq!(code(&out), 0, "{}", told(&out));
    }
    assert_eq!((ran(place.0.path()).len(), code(&place.deal("status", "--check"))), (64, 0));
}

/// Workers beyond the number that the store was begun with live on what the others give them.
#[test]
fn more_workers_than_said() {
    let place = Place::new();
    let out = place.file("out");
    fs::write(&out, "").expect("written");
    let slow =
        format!("until test $(wc -l < {out}) -ge 29; do sleep 0.01; done; echo {{}} >> {out}");
    let first = quiet(&mut place.shell(0, "--of 1 --count 30 --batch 30", &slow));
    wait_until("it works", || place.journal(0).contains("start"));
    let note = format!("echo {{}} >> {out}");
    let more: Vec<_> = [1, 7]
        .into_iter()
        .map(|id| quiet(&mut place.shell(id, "--of 8 --count 30 --batch 30", &note)))
        .collect();
    for worker in more.into_iter().chain([first]) {
        assert_eq!(code(&worker.wait_with_output().expect("it ends")), 0);
    }
    assert_eq!(ran(place.0.path()).len(), 30);
    let status = status(&place.store());
    assert_eq!(status["at"].as_array().expect("rows").len(), 3, "{status}");
    assert_eq!(status["at"][0]["done"], 1, "{status}");
}

/// More numbers, and more lines while workers wait for them.
#[test]
fn more_items_than_at_first() {
    let place = Place::new();
    let work = |count: &str| {
        let args = format!("--of 2 --count {count}");
        code(&place.worker(0, &args, &["true"]).output().expect("it runs"))
    };
    assert_eq!((work("5"), work("9"), &status(&place.store())["done"]), (0, 0, &9.into()));

    let place = Place::new();
    let (list, out) = (place.file("list"), place.file("out"));
    fs::write(&list, b"1\n2").expect("written");
    let args = format!("--of 2 --items {list} --follow");
    let note = format!("echo {{}} >> {out}");
    let workers: Vec<_> = (0..2).map(|id| quiet(&mut place.shell(id, &args, &note))).collect();
    wait_until("the first is run", || ran(place.0.path()).len() == 1);
    let mut file = OpenOptions::new().append(true).open(&list).expect("there");
    for more in 3..40 {
        file.write_all(format!("0\n{more}").as_bytes()).expect("written");
    }
    // Not only run: until it is noted, whoever is told to stop says that something is left.
    wait_until("all complete lines are done", || status(&place.store())["done"] == 38);
    assert_eq!(ran(place.0.path()).len(), 38);
    for worker in workers {
        terminate(&worker);
        assert_eq!(code(&worker.wait_with_output().expect("it ends")), 0);
    }
}

#[test]
fn any_bytes() {
    let place = Place::new();
    let (list, out) = (place.file("list"), place.file("out"));
    fs::write(&list, b"two\nlines\0\xff\xfe\0").expect("written");
    let args = format!("--of 1 --items {list} -0");
    let line = format!("printf '%s;' \"$HOLDALL_ITEM\" >> {out}");
    let done = place.shell(0, &args, &line).output().expect("it runs");
    assert_eq!(code(&done), 0, "{}", told(&done));
    assert_eq!(fs::read(&out).expect("there"), b"two\nlines;\xff\xfe;");
}
