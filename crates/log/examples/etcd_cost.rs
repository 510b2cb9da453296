//! What a log in etcd costs, beside other uses of the same etcd: three members on loopback, in a
//! directory of the disk that is named.
//!
//!     cargo run -p holdall-log --example etcd_cost [DIRECTORY [over]]
//!
//! With `over` only how long it takes until another host leads.

#[path = "../tests/members/mod.rs"]
mod members;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdall_etcd::messages::{Compare, Delete, KeyValue, Put, Range, Transaction};
use holdall_etcd::{Address, Client, Failure, Settings};
use holdall_log::etcd::{EtcdStore, Options, WhenLed};
use holdall_log::{Class, Entry, Log};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use self::members::Members;

/// How long each is measured.
const LENGTH: Duration = Duration::from_secs(5);
const CLIENTS: usize = 64;
const LOCKS: usize = 64;
/// A record of the cell has about so many bytes.
const BYTES: usize = 200;

fn main() {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "/tmp".into());
    if let Some(address) = dir.strip_prefix("etcd://") {
        return lead_until_killed(&format!("etcd://{address}"));
    }
    let members = Members::start_in(dir.as_ref(), 3, &[]);
    if std::env::args().nth(2).is_none() {
        rates(&members);
    }
    fail_over(&members);
}

fn rates(members: &Members) {
    for round in 1..=3 {
        for waiting in [1, CLIENTS, 512] {
            let rate = through_the_log(members, waiting);
            println!("round {round}: log, {waiting} waiting at a time: {rate:.0} records/s");
        }
        let rate = clients(members, one_each);
        println!("round {round}: a transaction a record, {CLIENTS} clients: {rate:.0} records/s");
        let rate = clients(members, both_at_once);
        println!(
            "round {round}: a transaction a set, 2 of {LOCKS}, {CLIENTS} clients: {rate:.0} acquisitions/s"
        );
        let rate = clients(members, one_after_the_other);
        println!(
            "round {round}: as etcdctl lock, 2 of {LOCKS}, {CLIENTS} clients: {rate:.0} acquisitions/s"
        );
    }
}

fn options(cell: &str, host: &str) -> Options {
    let mut options = Options::new(cell, host, "127.0.0.1:1");
    (options.create, options.when_led) = (true, WhenLed::StandBy);
    options
}

/// So many wait for their record at a time, and come again when they are told.
fn through_the_log(members: &Members, waiting: usize) -> f64 {
    let store = EtcdStore::new(members.address("cost"), options("cost", "one"));
    let (mut log, _) = store.open_etcd().expect("opened");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let entry = Entry { class: Class::Must, logic: 1, payload: &[7; BYTES], sync: false };
    let (mut watch, mut told, begun) = (log.watch(), 0, Instant::now());
    let mut last = watch.may_leave();
    while begun.elapsed() < LENGTH {
        // As many as were told come again.
        let unanswered = last.0 - watch.may_leave().0;
        for _ in unanswered..waiting as u64 {
            last = log.append(entry).expect("there is room");
            told += 1;
        }
        log.flush().expect("handed over");
        let next = watch.may_leave().next();
        runtime.block_on(watch.reached(next)).expect("it may leave");
    }
    let rate = told as f64 / begun.elapsed().as_secs_f64();
    let job = log.begin_snapshot().expect("none is being made");
    job.keep(1, b"nothing").expect("kept");
    log.resign(None).expect("sealed");
    rate
}

/// The rate at which many clients do something, each with a connection of its own.
fn clients<F>(members: &Members, act: impl Fn(Client, usize) -> F) -> f64
where
    F: Future<Output = Result<u64, Failure>> + 'static,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let local = tokio::task::LocalSet::new();
    let timeout = Duration::from_secs(60);
    let settings = Settings { address: members.address("peers"), timeout };
    local.block_on(&runtime.expect("a runtime"), async {
        let begun = Instant::now();
        let start = |at| {
            let client = Client::new(&settings).expect("a client");
            tokio::task::spawn_local(act(client, at))
        };
        let all: Vec<_> = (0..CLIENTS).map(start).collect();
        let mut done = 0;
        for one in all {
            done += one.await.expect("it ends").expect("it is answered");
        }
        done as f64 / begun.elapsed().as_secs_f64()
    })
}

async fn one_each(client: Client, at: usize) -> Result<u64, Failure> {
    let (mut done, begun) = (0, Instant::now());
    while begun.elapsed() < LENGTH {
        let key = format!("peers/{at}/{done}").into_bytes();
        let put = Put { key: key.clone(), value: Bytes::from_static(&[7; BYTES]), lease: 0 };
        let compare = vec![Compare::was_created(key, 0)];
        let success = vec![put.into()];
        client.transact(Transaction { compare, success, failure: Vec::new() }).await?;
        done += 1;
    }
    Ok(done)
}

fn two(random: &mut Pcg64Mcg) -> [usize; 2] {
    let first = random.random_range(0..LOCKS);
    let second = (first + random.random_range(1..LOCKS)) % LOCKS;
    [first.min(second), first.max(second)]
}

/// All keys of a set in one transaction, or none, and then a watch of one that is taken.
async fn both_at_once(client: Client, at: usize) -> Result<u64, Failure> {
    let lease = client.grant_lease(600).await?.id;
    let mut random = Pcg64Mcg::seed_from_u64(at as u64);
    let (mut done, begun) = (0, Instant::now());
    while begun.elapsed() < LENGTH {
        let keys = two(&mut random).map(|lock| format!("sets/{lock}").into_bytes());
        loop {
            let compare = keys.iter().map(|key| Compare::was_created(key.clone(), 0)).collect();
            let put = |key: &Vec<u8>| Put { key: key.clone(), value: Bytes::new(), lease }.into();
            let look = |key: &Vec<u8>| Range { key: key.clone(), ..Range::default() }.into();
            let (success, failure) =
                (keys.iter().map(put).collect(), keys.iter().map(look).collect());
            let answer = client.transact(Transaction { compare, success, failure }).await?;
            if answer.succeeded {
                break;
            }
            let revision = answer.header.clone().unwrap_or_default().revision;
            if let Some(taken) = answer.found().pop() {
                client.watch((taken.key, Vec::new()), revision + 1).await?.next().await?;
            }
        }
        done += 1;
        let delete = |key: Vec<u8>| Delete { key, end: Vec::new() }.into();
        let success = keys.into_iter().map(delete).collect();
        client.transact(Transaction { success, ..Transaction::default() }).await?;
    }
    Ok(done)
}

/// A queue of keys for each lock, one lock after the other, in order.
async fn one_after_the_other(client: Client, at: usize) -> Result<u64, Failure> {
    let lease = client.grant_lease(600).await?.id;
    let mut random = Pcg64Mcg::seed_from_u64(at as u64);
    let (mut done, begun) = (0, Instant::now());
    while begun.elapsed() < LENGTH {
        let locks = two(&mut random);
        for lock in locks {
            wait_for(&client, lock, lease).await?;
        }
        done += 1;
        for lock in locks {
            let key = format!("locks/{lock}/{lease}").into_bytes();
            let success = vec![Delete { key, end: Vec::new() }.into()];
            client.transact(Transaction { success, ..Transaction::default() }).await?;
        }
    }
    Ok(done)
}

/// A key behind those that are there, and then a watch of the one before.
async fn wait_for(client: &Client, lock: usize, lease: i64) -> Result<(), Failure> {
    let own = format!("locks/{lock}/{lease}").into_bytes();
    let key = format!("locks/{lock}/").into_bytes();
    let end = format!("locks/{lock}0").into_bytes();
    let queue = Range { key, end, ..Range::default() };
    let put = Put { key: own.clone(), value: Bytes::new(), lease };
    let success = vec![put.into(), queue.clone().into()];
    let answer = client.transact(Transaction { success, ..Transaction::default() }).await?;
    let mut revision = answer.header.clone().unwrap_or_default().revision;
    let mut found = answer.found();
    loop {
        let created = |key: &KeyValue| key.created;
        let mine = found.iter().find(|key| key.key == own).map_or(0, created);
        let before = found.into_iter().filter(|key| created(key) < mine).max_by_key(created);
        let Some(before) = before else { return Ok(()) };
        client.watch((before.key, Vec::new()), revision + 1).await?.next().await?;
        let ranged = client.range(queue.clone()).await?;
        revision = ranged.header.clone().unwrap_or_default().revision;
        found = ranged.found;
    }
}

/// How long it takes until another one leads: after a hand-over, and after one is gone.
fn fail_over(members: &Members) {
    let store = |host: &str| EtcdStore::new(members.address("over"), options("over", host));
    for _ in 0..3 {
        let (mut log, _) = store("one").open_etcd().expect("opened");
        let heir = store("two");
        let heir = std::thread::spawn(move || heir.open_etcd().map(|_| Instant::now()));
        std::thread::sleep(Duration::from_secs(1));
        let begun = Instant::now();
        log.resign(Some("two")).expect("resigned");
        let led = heir.join().expect("it ends").expect("opened");
        println!("handed over: another one leads after {:?}", led - begun);
    }
    for _ in 0..3 {
        let this = std::env::current_exe().expect("this program");
        let mut leader = Command::new(this);
        leader.arg(members.address("over").to_string()).stdout(Stdio::piped());
        let mut leader = leader.spawn().expect("a process");
        let mut line = String::new();
        BufReader::new(leader.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let next = store("two");
        let next = std::thread::spawn(move || next.open_etcd().map(|_| Instant::now()));
        std::thread::sleep(Duration::from_secs(1));
        let begun = Instant::now();
        leader.kill().expect("it runs");
        leader.wait().expect("it has ended");
        let led = next.join().expect("it ends").expect("opened");
        println!("killed: another one leads after {:?}", led - begun);
    }
}

fn lead_until_killed(address: &str) {
    let address = Address::parse(address).expect("an address");
    let _leading = EtcdStore::new(address, options("over", "one")).open_etcd().expect("opened");
    println!("leads");
    std::thread::sleep(Duration::from_secs(60));
}
