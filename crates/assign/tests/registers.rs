//! What the registers do underneath: a directory sees whole-file gets and puts, few of them; the
//! hot path has no read-modify-write instruction.
#![cfg(not(any(loom, shuttle)))]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hint::black_box;
use std::process::Command;

use holdall_assign::machine::{Access, Machine};
use holdall_assign::registers::{
    Atomics, Dir, DirError, Durability, Mapped, MappedError, Memory, Observer, Registers,
    WordRegisters,
};
use holdall_assign::windows::{Layout, Seat, Worker};

/// Registers that count.
struct Counting<R> {
    inner: R,
    gets: usize,
    puts: usize,
    fences: usize,
}

impl<R: Registers> Registers for Counting<R> {
    type Error = R::Error;

    fn get(&mut self, owner: usize, slot: usize) -> Result<u64, R::Error> {
        self.gets += 1;
        self.inner.get(owner, slot)
    }

    fn put(&mut self, slot: usize, value: u64) -> Result<(), R::Error> {
        self.puts += 1;
        self.inner.put(slot, value)
    }

    fn fence(&mut self) -> Result<(), R::Error> {
        self.fences += 1;
        self.inner.fence()
    }

    fn publish(&mut self) -> Result<(), R::Error> {
        self.inner.publish()
    }
}

#[test]
fn steps_of_an_operation() {
    const N: usize = 16;
    let layout = Layout::new(N, 256, 1).expect("good sizes");
    let memory = Atomics::new(N, layout.slots());
    let worker = |id| {
        let Ok(inner) = memory.handle(id);
        let regs = Counting { inner, gets: 0, puts: 0, fences: 0 };
        let Ok(worker) = Worker::<_>::resume(layout, id, regs);
        worker
    };
    let mut workers: Vec<Worker<Counting<WordRegisters<Atomics>>>> = (0..N).map(worker).collect();
    let mut out = Vec::new();
    let mut count = |workers: &mut [Worker<Counting<WordRegisters<Atomics>>>]| {
        for _ in 0..1000 {
            for worker in &mut *workers {
                let Ok(()) = worker.acquire(&mut out);
                out.clear();
            }
        }
        let regs = workers[0].registers();
        let counted = [regs.gets, regs.puts, regs.fences].map(|count| count as f64 / 1000.0);
        (regs.gets, regs.puts, regs.fences) = (0, 0, 0);
        counted
    };
    count(&mut workers[..1]);
    let [gets, puts, fences] = count(&mut workers[..1]);
    println!("alone: {gets} gets, {puts} puts, {fences} fences an operation, {N} items");
    assert!(gets < 20.0 && puts <= 5.1 && fences == 1.0);
    count(&mut workers);
    let [gets, puts, fences] = count(&mut workers);
    println!("in turn: {gets} gets, {puts} puts, {fences} fences an operation, 1 item");
    assert!(gets < 40.0 && puts <= 5.1 && fences == 1.0);
}

#[test]
fn a_directory_refuses_what_it_cannot_trust() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = |terms| Dir::new(dir.path(), 2, 4, terms, Durability::Disk);
    let mut regs = store([1; 4]).handle(0).expect("new");
    regs.put(2, 9).expect("noted");
    assert!(!Dir::file(dir.path(), 0).exists(), "puts wait for a fence");
    regs.fence().expect("written");
    assert_eq!(store([1; 4]).handle(1).expect("new").get(0, 2).expect("read"), 9);
    assert!(matches!(store([2; 4]).handle(0), Err(DirError::Terms { .. })));
    let file = Dir::file(dir.path(), 0);
    let good = fs::read(&file).expect("there");
    let mut other = good.clone();
    other[8] = 77;
    fs::write(&file, &other).expect("written");
    assert!(matches!(store([1; 4]).handle(0), Err(DirError::Version { found: 77, .. })));
    let mut damaged = good.clone();
    *damaged.last_mut().expect("not empty") ^= 1;
    fs::write(&file, &damaged).expect("written");
    assert!(matches!(store([1; 4]).handle(0), Err(DirError::Damaged(_))));
    fs::write(&file, &good[..good.len() - 8]).expect("written");
    assert!(matches!(store([1; 4]).handle(0), Err(DirError::Damaged(_))));
}

#[test]
fn a_directory_reads_a_file_once_between_two_fences() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Dir::new(dir.path(), 3, 2, [0; 4], Durability::Process);
    assert_eq!((store.workers(), store.slots()), (3, 2));
    let [mut a, mut b, mut c] = [0, 1, 2].map(|id| store.handle(id).expect("new"));
    let mut put = |value| {
        b.put(1, value).expect("noted");
        b.publish().expect("written");
        c.put(1, value).expect("noted");
        c.fence().expect("written");
    };
    put(5);
    assert_eq!(a.get(1, 1).expect("read"), 5);
    put(6);
    assert_eq!(a.get(1, 1).expect("read before"), 5);
    assert_eq!(a.get(2, 1).expect("not read before"), 6);
    a.publish().expect("nothing to do");
    assert_eq!(a.get(1, 1).expect("still read before"), 5);
    a.fence().expect("nothing to write");
    assert_eq!(a.get(1, 1).expect("read again"), 6);
    a.put(0, 3).expect("noted");
    assert_eq!(a.get(0, 0).expect("its own"), 3);
}

#[test]
fn a_directory_writes_what_has_changed() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Dir::new(dir.path(), 2, 2, [0; 4], Durability::Process);
    let mut regs = store.handle(0).expect("new");
    let mut written = |value| {
        regs.put(0, value).expect("noted");
        regs.publish().expect("written");
        fs::remove_file(Dir::file(dir.path(), 0)).is_ok()
    };
    assert_eq!([0, 4, 4, 5].map(&mut written), [false, true, false, true]);
}

#[test]
fn a_slow_directory_reads_all_others_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Dir::new(dir.path(), 3, 1, [0; 4], Durability::Process);
    let mut slow =
        store.clone().slowed(std::time::Duration::from_millis(2)).handle(0).expect("new");
    let [mut b, mut c] = [1, 2].map(|id| store.handle(id).expect("new"));
    let mut put = |value| {
        for other in [&mut b, &mut c] {
            other.put(0, value).expect("noted");
            other.fence().expect("written");
        }
    };
    put(1);
    // The first time it is not known to be slow: one file.
    assert_eq!(slow.get(1, 0).expect("read"), 1);
    put(2);
    assert_eq!(slow.get(2, 0).expect("not read before"), 2);
    assert_eq!(slow.get(1, 0).expect("read before"), 1);
    slow.fence().expect("nothing to write");
    assert_eq!(slow.get(1, 0).expect("read, and the other beside it"), 2);
    put(3);
    assert_eq!([1, 2].map(|owner| slow.get(owner, 0).expect("read before")), [2, 2]);
    slow.fence().expect("nothing to write");
    fs::write(Dir::file(dir.path(), 2), "rubbish").expect("written");
    assert!(matches!(slow.get(1, 0), Err(DirError::Damaged(_))));
}

#[test]
fn a_directory_declares_and_sweeps() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = |terms| Dir::new(dir.path(), 11, 2, terms, Durability::Process);
    assert_eq!(Dir::terms(dir.path(), 1).expect("read"), None);
    store([7; 4]).declare(1).expect("written");
    store([8; 4]).declare(1).expect("there is one");
    assert_eq!(Dir::terms(dir.path(), 1).expect("read"), Some([7; 4]));
    assert_eq!(store([7; 4]).handle(0).expect("new").get(1, 1).expect("read"), 0);
    let left = [".worker-1.77", ".worker-10.77", "worker-1"].map(|name| dir.path().join(name));
    fs::write(&left[0], "cut sho").expect("written");
    fs::write(&left[1], "cut sho").expect("written");
    store([7; 4]).sweep(1).expect("swept");
    assert_eq!(left.map(|file| file.exists()), [false, true, true]);
}

#[test]
fn a_directory_refuses_other_sizes_and_what_is_no_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = |slots| Dir::new(dir.path(), 2, slots, [0; 4], Durability::Process);
    store(2).declare(0).expect("written");
    assert!(matches!(store(3).handle(0), Err(DirError::Damaged(_))));
    let file = Dir::file(dir.path(), 0);
    let mut longer = fs::read(&file).expect("there");
    longer.push(0);
    fs::write(&file, longer).expect("written");
    assert!(matches!(store(2).handle(0), Err(DirError::Damaged(_))), "a part of a word");
    store(2).declare(1).expect("written");
    let good = fs::read(Dir::file(dir.path(), 1)).expect("there");
    fs::write(&file, &good[..8]).expect("written");
    assert!(matches!(store(2).handle(0), Err(DirError::Damaged(_))), "no more than the magic");
    let mut foreign = good;
    foreign[0] ^= 1;
    fs::write(&file, foreign).expect("written");
    assert!(matches!(store(2).handle(0), Err(DirError::Damaged(_))), "without the magic");
    fs::remove_file(Dir::file(dir.path(), 1)).expect("there");
    fs::create_dir(Dir::file(dir.path(), 1)).expect("made");
    assert!(matches!(store(2).handle(1), Err(DirError::Io { .. })));
}

/// Every register has a place of its own.
fn apart<M: Memory<Error: std::fmt::Debug>>(memory: &M) {
    let (workers, slots) = (memory.workers(), memory.slots());
    let value = |worker: usize, slot: usize| (1 + worker * slots + slot) as u64;
    for worker in 0..workers {
        let mut regs = memory.handle(worker).expect("a handle");
        (0..slots).for_each(|slot| regs.put(slot, value(worker, slot)).expect("written"));
        regs.fence().expect("seen");
    }
    let mut regs = memory.handle(0).expect("a handle");
    for (worker, slot) in (0..workers).flat_map(|worker| (0..slots).map(move |slot| (worker, slot)))
    {
        assert_eq!(regs.get(worker, slot).expect("read"), value(worker, slot));
    }
}

#[test]
fn registers_are_apart() {
    let atomics = Atomics::new(3, 33);
    assert_eq!((atomics.workers(), atomics.slots()), (3, 33));
    apart(&atomics);
    let dir = tempfile::tempdir().expect("a directory");
    apart(&Dir::new(dir.path(), 3, 33, [0; 4], Durability::Process));
    let path = dir.path().join("mapped");
    let mapped = Mapped::create(&path, 3, 700).expect("new");
    assert_eq!((mapped.workers(), mapped.slots()), (3, 700));
    apart(&mapped);
    // A page of head, and two for each worker.
    assert_eq!(fs::metadata(&path).expect("there").len(), 7 * 4096);
}

#[test]
#[should_panic = "worker 2 of 2"]
fn atomics_have_no_more_workers() {
    let _ = Atomics::new(2, 16).handle(2);
}

#[test]
#[should_panic = "worker 2 of 2"]
fn a_mapped_file_has_no_more_workers() {
    let dir = tempfile::tempdir().expect("a directory");
    let _ = Mapped::create(&dir.path().join("mapped"), 2, 8).expect("new").handle(2);
}

#[test]
fn a_mapped_file_is_shared_and_refused_if_it_is_another() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("mapped");
    let Ok(mut regs) = Mapped::create(&path, 2, 8).expect("new").handle(0);
    let Ok(()) = regs.put(7, 9);
    let Ok(mut other) = Mapped::open(&path, 2, 8).expect("there").handle(1);
    assert_eq!(other.get(0, 7), Ok(9));
    assert!(matches!(Mapped::create(&path, 2, 8), Err(MappedError::Io { .. })));
    assert_eq!(fs::read_dir(dir.path()).expect("read").count(), 1, "nothing is left behind");
    // Of the same length, but for other sizes.
    assert!(matches!(Mapped::open(&path, 2, 9), Err(MappedError::Other { .. })));
    fs::write(&path, vec![0; 3 * 4096]).expect("written");
    assert!(matches!(Mapped::open(&path, 2, 8), Err(MappedError::Other { .. })));
    let good = dir.path().join("good");
    Mapped::create(&good, 2, 8).expect("new");
    let mut longer = fs::read(&good).expect("there");
    longer.extend([0; 4096]);
    fs::write(&path, longer).expect("written");
    assert!(matches!(Mapped::open(&path, 2, 8), Err(MappedError::Other { .. })));
}

#[test]
fn an_observer_writes_nothing_and_sees_what_it_put() {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Dir::new(dir.path(), 2, 2, [0; 4], Durability::Process);
    let mut other = store.handle(1).expect("new");
    let mut put = |value| {
        other.put(0, value).expect("noted");
        other.fence().expect("written");
    };
    put(1);
    let mut ghost = Observer::new(store.handle(0).expect("new"), 0);
    ghost.put(0, 5).expect("kept");
    ghost.publish().expect("nothing to do");
    assert_eq!((ghost.get(0, 0).expect("its own"), ghost.get(1, 0).expect("read")), (5, 1));
    put(2);
    ghost.fence().expect("nothing to write");
    assert_eq!(ghost.get(1, 0).expect("read again"), 2);
    assert!(!Dir::file(dir.path(), 0).exists());
}

#[inline(never)]
fn hot_path_of_windows(worker: &mut Worker<WordRegisters<Atomics>>) -> u64 {
    worker.next()
}

/// Disassembles this test and follows the calls from the hot path: no instruction reads and
/// writes shared memory at once. The fence is a locked write to the private stack, or `mfence`.
#[test]
#[cfg(target_arch = "x86_64")]
fn no_read_modify_write() {
    let layout = Layout::new(3, 4, 1).expect("good sizes");
    let Ok(regs) = Atomics::new(3, layout.slots()).handle(0);
    let Ok(mut worker) = Worker::resume(layout, 0, regs);
    black_box(hot_path_of_windows(black_box(&mut worker)));
    let exe = std::env::current_exe().expect("this test");
    let dump = Command::new("objdump").args(["-d", "--no-show-raw-insn"]).arg(exe).output();
    let Ok(dump) = dump else {
        eprintln!("SKIPPED: no objdump here, nothing was disassembled");
        return;
    };
    let text = String::from_utf8_lossy(&dump.stdout);
    let functions = functions(&text);
    let start = functions.keys().find(|name| name.contains("hot_path_of_windows"));
    let mut todo = vec![*start.expect("the hot path is in this test")];
    let (mut seen, mut fences) = (BTreeSet::new(), 0);
    while let Some(name) = todo.pop() {
        if !seen.insert(name) {
            continue;
        }
        for line in functions.get(name).into_iter().flatten() {
            let fence = line.contains("mfence") || line.contains("lock") && line.contains("(%rsp)");
            fences += usize::from(fence);
            // An exchange with memory is locked without saying so.
            let exchange = line.contains("xchg") && line.contains('(');
            assert!(fence || !line.contains("lock") && !exchange, "in {name}: {line}");
            let call = line.contains("call") || line.contains("jmp");
            let target = line.split_once('<').and_then(|(_, rest)| rest.split_once('>'));
            todo.extend(target.map(|(target, _)| target).filter(|t| call && ours(t)));
        }
    }
    println!("{} functions, {fences} fences", seen.len());
    assert!(seen.len() > 1 && fences > 0, "the walk saw the algorithm: {seen:?}");
}

/// Not the allocator, nor what happens after a panic.
#[cfg(target_arch = "x86_64")]
fn ours(function: &str) -> bool {
    function.contains("holdall_assign") && !function.contains('+')
}

#[cfg(target_arch = "x86_64")]
fn functions(dump: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut functions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut current = "";
    for line in dump.lines() {
        let head = line.strip_suffix(">:").and_then(|head| head.split_once('<'));
        match head {
            Some((_, name)) => current = name,
            None => functions.entry(current).or_default().push(line),
        }
    }
    functions
}

/// A worker that is stopped and moved on by hand.
struct Puppet<R> {
    seat: Seat,
    regs: R,
    next: Access,
}

impl<R: Registers<Error: std::fmt::Debug>> Puppet<R> {
    fn acquire(&mut self) {
        self.seat.acquire();
        self.next = self.seat.step(0);
    }

    /// Makes accesses up to the first that is told, or to the end of the operation.
    fn until(&mut self, stop: Access) {
        while self.next != stop && self.next != Access::Done {
            let mut read = 0;
            match self.next {
                Access::Get { owner, slot } => read = self.regs.get(owner, slot).expect("read"),
                Access::Put { slot, value } => self.regs.put(slot, value).expect("noted"),
                Access::Fence => self.regs.fence().expect("written"),
                Access::Publish => self.regs.publish().expect("written"),
                Access::Done => {}
            }
            self.next = self.seat.step(read);
        }
    }

    fn take(&mut self) -> Vec<u64> {
        self.acquire();
        self.until(Access::Done);
        std::mem::take(self.seat.won())
    }
}

/// Between two fences a directory answers from one reading of each file. A worker that has read
/// one file, in which nobody needs its last window, and then another, which shows that window left
/// behind, must not conclude that nobody will need it.
#[test]
fn what_was_read_before_says_nothing_of_needs_after() {
    let dir = tempfile::tempdir().expect("a directory");
    let layout = Layout::new(4, 2, 1).expect("good sizes");
    let store = Dir::new(dir.path(), 4, layout.slots(), [0; 4], Durability::Process);
    let puppet = |id| Puppet {
        seat: Seat::new(layout, id),
        regs: store.handle(id).expect("new"),
        next: Access::Done,
    };
    let (mut p, mut s, mut r, mut me) = (puppet(0), puppet(1), puppet(2), puppet(3));
    let mut mine = [me.take(), me.take()].concat();
    assert_eq!(me.seat.last(), 2);
    // The third entry, which makes a pass, has looked at p and s and not yet at r.
    me.acquire();
    me.until(Access::Get { owner: 2, slot: 0 });
    let mut theirs = p.take();
    assert_eq!(p.seat.last(), 2, "p comes to need the window");
    theirs.extend([s.take(), s.take(), r.take()].concat());
    assert_eq!(r.seat.last(), 3, "r, which never was there, shows it left behind");
    me.until(Access::Done);
    mine.append(me.seat.won());
    mine.extend(me.take());
    assert_eq!(me.seat.last(), 4, "the record of window 2 is overwritten");
    theirs.extend(p.take());
    theirs.extend(p.take());
    let both: Vec<_> = mine.iter().filter(|lot| theirs.contains(lot)).collect();
    assert!(both.is_empty(), "handed out twice: {both:?}");
}
