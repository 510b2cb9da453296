//! Real hosts on a real etcd of three members: hosts and members are killed and stopped, the way
//! between them is cut, and two hosts believe to lead. Nothing is told twice, and nothing is lost.

mod members;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdall_log::etcd::{EtcdLog, EtcdStore, Options};
use holdall_log::{Class, Entry, Error, Index, Life, Log, Memory, Opened};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::process::{Pid, Signal, kill_process};

use self::members::Members;
use self::members::proxy::{Cut, Way};

const PORTS: &str = "HOLDALL_ETCD_TEST_PORTS";
const NAME: &str = "HOLDALL_ETCD_TEST_NAME";
const LEASE: Duration = Duration::from_secs(2);
/// How long it storms.
const STORM: Duration = Duration::from_secs(25);

fn store(ports: &[u16], host: &str) -> EtcdStore {
    let mut options = Options::new("storm", host, "127.0.0.1:1");
    (options.create, options.lease) = (true, LEASE);
    EtcdStore::new(members::address(ports, "storm"), options)
}

/// The numbers in all records, in order.
fn numbers(opened: &Opened) -> Vec<u64> {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    let snapshot = opened.snapshot.as_ref().map_or(&[][..], |snapshot| &snapshot.payload);
    let mut all: Vec<u64> = snapshot.chunks(8).map(number).collect();
    for record in &opened.records {
        assert_eq!(record.index.0, all.len() as u64 + 1, "no gaps");
        all.push(number(&record.payload));
    }
    all
}

fn bytes(numbers: &[u64]) -> Bytes {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

/// Makes a snapshot on a thread of its own.
fn snapshot_beside(log: &mut EtcdLog, state: &[u64]) -> Option<JoinHandle<()>> {
    let job = log.begin_snapshot().ok()?;
    let state = bytes(&state[..job.upto().0 as usize]);
    Some(std::thread::spawn(move || {
        // Whoever leads no longer may read less, or more; it keeps nothing.
        let counted = job.history().map(|(before, records)| {
            before.map_or(0, |snapshot| snapshot.upto.0) + records.len() as u64
        });
        if counted.is_ok_and(|counted| counted == job.upto().0) {
            let _ = job.keep(1, &state);
        }
    }))
}

/// Leads whenever it can, appends, and tells what may be told; started by the test below.
#[test]
#[ignore = "a part of another test"]
fn host() {
    let (Ok(ports), Ok(name)) = (std::env::var(PORTS), std::env::var(NAME)) else { return };
    let ports: Vec<u16> = ports.split(',').map(|port| port.parse().expect("a port")).collect();
    let seed = u64::from(std::process::id());
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let mut drawn = seed << 32;
    loop {
        match store(&ports, &name).open_etcd() {
            Ok((log, opened)) => lead(log, &opened, &mut drawn, &mut random),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// Leads until that is over.
fn lead(mut log: EtcdLog, opened: &Opened, drawn: &mut u64, random: &mut Pcg64Mcg) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let mut out = std::io::stdout().lock();
    let mut state = numbers(opened);
    let Opened { epoch, life: Life(life), memory, .. } = opened;
    writeln!(out, "\nopen {epoch} {life:x} {memory:?}").expect("somebody listens");
    let mut watch = log.watch();
    let mut snapshot: Option<JoinHandle<()>> = None;
    for round in 1.. {
        // Some are slow to begin: whoever led before and comes back finds the head as it was.
        if random.random_range(0..if round == 1 { 2 } else { 1000 }) == 0 {
            std::thread::sleep(Duration::from_millis(random.random_range(0..2500)));
        }
        let told = state.len();
        // Several batches are under way at a time.
        for _ in 0..random.random_range(1..5) {
            for _ in 0..random.random_range(1..8) {
                *drawn += 1;
                let payload = drawn.to_le_bytes();
                let entry = Entry { class: Class::Must, logic: 1, payload: &payload, sync: false };
                if log.append(entry).is_err() {
                    return;
                }
                state.push(*drawn);
            }
            if log.flush().is_err() {
                return;
            }
            std::thread::sleep(Duration::from_micros(random.random_range(0..1500)));
        }
        let last = Index(state.len() as u64);
        if runtime.block_on(watch.reached(last)).is_err() {
            return;
        }
        for (index, number) in state.iter().enumerate().skip(told) {
            writeln!(out, "told {epoch} {} {number}", index + 1).expect("somebody listens");
        }
        if round % 60 == 0 && snapshot.as_ref().is_none_or(JoinHandle::is_finished) {
            snapshot = snapshot_beside(&mut log, &state);
        }
        if random.random_range(0..2000) == 0 {
            let _: Result<(), Error> = log.resign(Some("h1"));
            return;
        }
        if random.random_range(0..60) == 0 {
            log.call(Some(&format!("h{}", random.random_range(0..3))));
        }
        // It may be ready no more: then this one goes on.
        if let Some(heir) = watch.progress().heir
            && log.hand_over(&heir).is_ok()
        {
            writeln!(out, "handed over {epoch}").expect("somebody listens");
            return;
        }
    }
}

/// What was heard of all hosts.
#[derive(Default)]
struct Heard {
    told: BTreeMap<u64, (u64, u32)>,
    epochs: Vec<u32>,
    life: Option<String>,
    /// How often another host was made leader at once.
    handed_over: u32,
}

impl Heard {
    fn line(&mut self, line: &str) {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["open", epoch, life, memory] => {
                let epoch = epoch.parse().expect("an epoch");
                assert!(!self.epochs.contains(&epoch), "epoch {epoch} comes twice");
                self.epochs.push(epoch);
                assert!(memory == "New" || memory == "Kept", "{memory}");
                let before = self.life.get_or_insert_with(|| life.into());
                assert_eq!(before, life, "it is the same life");
            }
            ["told", epoch, index, number] => {
                // The last line of a killed host may be cut short.
                let (Ok(epoch), Ok(index), Ok(number)) =
                    (epoch.parse(), index.parse(), number.parse())
                else {
                    return;
                };
                let before = self.told.insert(index, (number, epoch));
                assert_eq!(before, None, "record {index} is told twice");
            }
            ["handed", "over", _] => self.handed_over += 1,
            _ => {}
        }
    }
}

struct Host {
    child: Child,
    reader: JoinHandle<()>,
}

/// How hosts are started, and what is heard of them.
struct Start {
    ports: Vec<Vec<u16>>,
    heard: mpsc::Sender<String>,
    /// Who was elected last.
    leader: Arc<AtomicUsize>,
}

impl Host {
    fn start(at: usize, start: &Start) -> Self {
        let ports: Vec<_> = start.ports[at].iter().map(ToString::to_string).collect();
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        command.arg(std::env::current_exe().expect("this test"));
        command.args(["--exact", "host", "--ignored", "--nocapture"]);
        command.env(PORTS, ports.join(",")).env(NAME, format!("h{at}"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).split(b'\n');
        let (heard, leader) = (start.heard.clone(), Arc::clone(&start.leader));
        let reader = std::thread::spawn(move || {
            let mut lines = lines.map_while(Result::ok).peekable();
            while let Some(line) = lines.next() {
                // A line without an end was cut by a kill: what it says is a part of a number.
                let is_last = lines.peek().is_none();
                if line.starts_with(b"open ") {
                    leader.store(at, Ordering::SeqCst);
                }
                if !is_last {
                    let _ = heard.send(String::from_utf8_lossy(&line).into_owned());
                }
            }
        });
        Self { child, reader }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a pid")).expect("a pid");
        kill_process(pid, signal).expect("it runs");
    }

    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it has ended");
        self.reader.join().expect("it has read all");
    }
}

/// What goes wrong.
#[derive(Clone, Copy)]
enum Wrong {
    HostStopped,
    HostKilled,
    Swallowed,
    CutOff,
    MemberKilled,
    MemberStopped,
    NoQuorum,
}

/// Each of them in turn; hosts are gone for longer than their lease, so that another one leads.
const WRONG: [Wrong; 9] = [
    Wrong::HostStopped,
    Wrong::Swallowed,
    Wrong::MemberKilled,
    Wrong::HostKilled,
    Wrong::HostStopped,
    Wrong::NoQuorum,
    Wrong::CutOff,
    Wrong::HostKilled,
    Wrong::MemberStopped,
];

/// Everything goes wrong, one thing after the other, mostly for who leads.
fn storm(members: &mut Members, hosts: &mut [Option<Host>], cuts: &[Cut], start: &Start) {
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let begun = Instant::now();
    let wait = |millis: u64| std::thread::sleep(Duration::from_millis(millis));
    let lease = LEASE.as_millis() as u64;
    for wrong in WRONG.into_iter().cycle().take_while(|_| begun.elapsed() < STORM) {
        wait(random.random_range(100..700));
        let any = random.random_range(0..hosts.len());
        let leader = start.leader.load(Ordering::SeqCst);
        let at = if random.random_range(0..8) > 0 { leader } else { any };
        let member = random.random_range(0..members.count());
        let other = (member + 1) % members.count();
        let for_long = lease + random.random_range(500..2000);
        match wrong {
            Wrong::HostKilled => {
                hosts[at].take().expect("a host").kill();
                hosts[at] = Some(Host::start(at, start));
            }
            Wrong::HostStopped => {
                // Another one leads meanwhile; then both believe to.
                let host = hosts[at].as_ref().expect("a host");
                host.signal(Signal::STOP);
                wait(for_long);
                host.signal(Signal::CONT);
            }
            Wrong::Swallowed | Wrong::CutOff => {
                let is_cut = matches!(wrong, Wrong::CutOff);
                cuts[at].set(if is_cut { Way::Cut } else { Way::Still });
                wait(for_long);
                cuts[at].set(Way::Open);
            }
            Wrong::MemberKilled => {
                members.kill(member);
                wait(random.random_range(100..1000));
                members.run(member);
            }
            Wrong::MemberStopped | Wrong::NoQuorum => {
                let is_both = matches!(wrong, Wrong::NoQuorum);
                let stopped = if is_both { vec![member, other] } else { vec![member] };
                stopped.iter().for_each(|at| members.pause(*at));
                wait(random.random_range(500..3000));
                stopped.iter().for_each(|at| members.resume(*at));
            }
        }
    }
}

#[test]
fn nothing_is_told_twice_or_lost() {
    if !members::is_there() {
        return;
    }
    let mut members = Members::start(3, &[]);
    let cuts: Vec<Cut> = (0..3).map(|_| Cut::new()).collect();
    let before = |cut: &Cut| members.ports().into_iter().map(|port| cut.before(port)).collect();
    let ports = cuts.iter().map(before).collect();
    let (heard, told) = mpsc::channel();
    let start = Start { ports, heard, leader: Arc::default() };
    let mut hosts: Vec<_> = (0..3).map(|at| Some(Host::start(at, &start))).collect();
    storm(&mut members, &mut hosts, &cuts, &start);
    // What is told while nothing is wrong any more.
    std::thread::sleep(2 * LEASE);
    for host in hosts.into_iter().flatten() {
        host.kill();
    }
    drop(start);
    let mut heard = Heard::default();
    told.iter().for_each(|line| heard.line(&line));
    judge(&heard, &members);
}

fn judge(heard: &Heard, members: &Members) {
    let (_log, opened) = store(&members.ports(), "judge").open_etcd().expect("it can be opened");
    assert_eq!(opened.memory, Memory::Kept);
    let highest = heard.epochs.iter().max().expect("somebody has led");
    assert!(opened.epoch > *highest, "epochs only grow");
    let state = numbers(&opened);
    let mut sorted = state.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), state.len(), "a record is there twice");
    let mut last = 0;
    for (index, (number, epoch)) in &heard.told {
        assert_eq!(state.get(*index as usize - 1), Some(number), "record {index} is lost");
        assert!(*epoch >= last, "epoch {epoch} after {last} at record {index}");
        last = *epoch;
    }
    let (told, led) = (heard.told.len(), heard.epochs.len());
    println!(
        "{told} told, {} there, led {led} times, handed over {}",
        state.len(),
        heard.handed_over
    );
    assert!(told > 100 && led > 3 && heard.handed_over > 0, "too little has happened");
}
