//! Hosts that lead, append, make snapshots, stand still, hand over and are killed; and what the
//! world has heard of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tokio::time::{sleep, timeout};

use super::super::lead::Elected;
use super::super::log::{Core, Feed, open};
use super::super::options::{Options, Rules};
use super::super::queue::Heir;
use super::store::{Faults, SimulatedStore};
use crate::{Class, Entry, Index, Life, Memory, OpenError, Opened, Progress, Watch};

/// What the world has heard.
#[derive(Default)]
struct Heard {
    /// What was told, by index: the number in the record.
    told: Vec<u64>,
    drawn: u64,
    life: Option<Life>,
    /// Who has led.
    leaders: Vec<Led>,
    /// What was wrong first.
    wrong: Option<String>,
    elections: u32,
    snapshots: u32,
    withdrawn: u32,
    called: u32,
    handed_over: u32,
}

/// Who has led: since when, and with which epoch at first.
struct Led {
    host: String,
    term: i64,
    elected: u64,
    epoch: u32,
    watch: Watch,
}

impl Led {
    /// What is wrong if this one was elected before another.
    fn wrong_before(&self, other: &Self) -> Option<String> {
        let Progress { leads_until, epoch, .. } = self.watch.progress();
        let until = leads_until.unwrap_or(u64::MAX);
        let (host, later) = (&self.host, &other.host);
        if until > other.elected {
            return Some(format!("{host} leads until {until}, {later} since {}", other.elected));
        }
        let is_higher = other.epoch > epoch.max(self.epoch);
        (!is_higher).then(|| format!("{later} has epoch {} after {epoch} of {host}", other.epoch))
    }
}

/// A store, and what was heard of its hosts.
#[derive(Clone)]
pub(super) struct World {
    pub(super) store: SimulatedStore,
    rules: Rules,
    heard: Arc<Mutex<Heard>>,
}

/// How it went.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) told: usize,
    pub(super) elections: u32,
    pub(super) snapshots: u32,
    /// How many went on since there was no room to hand over.
    pub(super) withdrawn: u32,
    /// How often one was called to lead next, and made leader when it was ready.
    pub(super) called: u32,
    pub(super) handed_over: u32,
}

fn numbers(payload: &[u8]) -> Vec<u64> {
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    payload.chunks(8).map(number).collect()
}

fn payload(state: &[u64]) -> Bytes {
    state.iter().flat_map(|number| number.to_le_bytes()).collect()
}

impl World {
    pub(super) fn new(seed: u64, faults: Faults, rules: Rules) -> Self {
        let store = SimulatedStore::new(seed, faults);
        Self { store, rules, heard: Arc::default() }
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn options(&self, host: &str) -> Options {
        let mut options = Options::new("cell", host, "nowhere:1");
        (options.create, options.lease) = (true, Duration::from_secs(3));
        options.rules = self.rules;
        options
    }

    fn wrong(&self, what: String) {
        self.heard().wrong.get_or_insert(what);
    }

    fn is_wrong(&self) -> bool {
        self.heard().wrong.is_some()
    }

    /// A host has been elected, and has read this.
    fn opened(&self, host: &str, core: &Core<SimulatedStore>, opened: &Opened) -> Vec<u64> {
        let mut state = opened.snapshot.as_ref().map_or(Vec::new(), |s| numbers(&s.payload));
        for record in &opened.records {
            state.extend(numbers(&record.payload));
        }
        let Elected { term, epoch, .. } = *core.elected;
        let (elected, watch) = (self.store.elected_at(term), core.watch());
        let led = Led { host: host.into(), term, elected, epoch, watch };
        let mut heard = self.heard();
        heard.elections += 1;
        let is_last = heard.leaders.iter().all(|other| other.term < term);
        let mut wrong = Vec::new();
        // Whoever reads for long may have been replaced by then, and what is told later is not there.
        let is_well = state.starts_with(&heard.told) || !is_last && heard.told.starts_with(&state);
        if !is_well {
            wrong.push(format!("{host}: {:?} was told, and {state:?} is there", heard.told));
        }
        let mut sorted = state.clone();
        sorted.sort_unstable();
        sorted.dedup();
        if sorted.len() != state.len() {
            wrong.push(format!("{host}: a record is there twice: {state:?}"));
        }
        let is_new = state.is_empty() && opened.snapshot.is_none();
        let memory = if is_new { Memory::New } else { Memory::Kept };
        if opened.memory != memory || heard.life.is_some_and(|life| life != opened.life) {
            wrong.push(format!("{host}: {:?}, {:?}", opened.memory, opened.life));
        }
        for other in &heard.leaders {
            let (first, then) = if other.term < term { (other, &led) } else { (&led, other) };
            wrong.extend(first.wrong_before(then));
        }
        heard.life = Some(opened.life);
        heard.leaders.push(led);
        heard.wrong = heard.wrong.take().or_else(|| wrong.into_iter().next());
        state
    }

    /// A host may tell this much of its state.
    fn hear(&self, host: &str, state: &[u64], may_leave: Index) {
        let Some(told) = state.get(..may_leave.0 as usize) else {
            return self.wrong(format!("{host} may tell {}, and has {state:?}", may_leave.0));
        };
        let mut heard = self.heard();
        let common = told.len().min(heard.told.len());
        if told[..common] != heard.told[..common] {
            let wrong = format!("{host} tells {told:?}, and {:?} was told", heard.told);
            heard.wrong.get_or_insert(wrong);
        } else if told.len() > common {
            heard.told = told.to_vec();
        }
    }

    fn draw(&self) -> u64 {
        let mut heard = self.heard();
        heard.drawn += 1;
        heard.drawn
    }

    /// Hosts are started one after the other on one machine, until time is over.
    pub(super) async fn host(self, name: String, seed: u64) {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        loop {
            sleep(Duration::from_millis(random.random_range(0..500))).await;
            let kv = self.store.client();
            if random.random_range(0..3) == 0 {
                kv.stand_still(Duration::from_millis(random.random_range(0..4000)));
            }
            let options = self.options(&name);
            let opening = open(Arc::new(kv.clone()), options, name.clone(), None);
            // Some are killed while they stand by, or get ready.
            let killed = Duration::from_millis(match random.random_range(0..4) {
                0 => random.random_range(0..6000),
                _ => 60_000,
            });
            let Ok(opened) = timeout(killed, opening).await else { continue };
            match opened {
                Ok((core, opened)) => {
                    let state = self.opened(&name, &core, &opened);
                    let host = Host { world: self.clone(), name: name.clone(), kv, state };
                    host.lead(core, &mut random).await;
                }
                Err(OpenError::InUse(_) | OpenError::Io { .. }) => {}
                Err(error) => return self.wrong(format!("{name}: {error}")),
            }
        }
    }

    /// Plays a while, heals, and lets one more host look.
    pub(super) async fn play(self, seed: u64, length: Duration) -> Result<Report, String> {
        let hosts: Vec<_> = (0..3)
            .map(|at| tokio::spawn(self.clone().host(format!("h{at}"), seed * 4 + at)))
            .collect();
        let mut random = Pcg64Mcg::seed_from_u64(!seed);
        let until = tokio::time::Instant::now() + length;
        while tokio::time::Instant::now() < until && !self.is_wrong() {
            sleep(Duration::from_millis(random.random_range(1..1500))).await;
            if random.random_range(0..8) == 0 {
                self.store.set_full(true);
                sleep(Duration::from_millis(random.random_range(1..1500))).await;
                self.store.set_full(false);
            }
        }
        for host in hosts {
            host.abort();
        }
        self.store.set_faults(Faults::default());
        self.finish().await?;
        let heard = self.heard();
        match &heard.wrong {
            Some(wrong) => Err(wrong.clone()),
            None => Ok(Report {
                told: heard.told.len(),
                elections: heard.elections,
                snapshots: heard.snapshots,
                withdrawn: heard.withdrawn,
                called: heard.called,
                handed_over: heard.handed_over,
            }),
        }
    }

    /// With nothing wrong any more, a host leads, and its records are committed.
    async fn finish(&self) -> Result<(), String> {
        let kv = Arc::new(self.store.client());
        let opened =
            timeout(Duration::from_secs(60), open(kv, self.options("z"), "z".into(), None));
        let opened = opened.await.map_err(|_| "nobody is elected any more".to_owned())?;
        let (core, opened) = opened.map_err(|error| error.to_string())?;
        let mut state = self.opened("z", &core, &opened);
        let _running = Task::run(&core);
        let mut feed = Feed::new(core);
        let number = self.draw();
        let payload = number.to_le_bytes();
        let entry = Entry { class: Class::Must, logic: 1, payload: &payload, sync: false };
        let index = feed.append(entry).map_err(|error| error.to_string())?;
        state.push(number);
        feed.flush().map_err(|error| error.to_string())?;
        let mut watch = feed.core.watch();
        let reached = timeout(Duration::from_secs(60), watch.reached(index)).await;
        match reached {
            Ok(Ok(())) => {
                self.hear("z", &state, index);
                Ok(())
            }
            Ok(Err(error)) => Err(format!("a healed log ends: {error}")),
            Err(_) => Err("a healed log does not go on".into()),
        }
    }
}

/// What is done beside; it ends with whoever has begun it.
struct Task(tokio::task::JoinHandle<()>);

impl Task {
    fn run(core: &Arc<Core<SimulatedStore>>) -> Self {
        let core = Arc::clone(core);
        Self(tokio::spawn(async move { core.run().await }))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A host that leads.
struct Host {
    world: World,
    name: String,
    kv: SimulatedStore,
    /// All records, those included that are not committed.
    state: Vec<u64>,
}

impl Host {
    async fn lead(mut self, core: Arc<Core<SimulatedStore>>, random: &mut Pcg64Mcg) {
        let mut feed = Feed::new(Arc::clone(&core));
        // They end with this, as if the host was killed.
        let _running = Task::run(&core);
        let mut snapshot: Option<Task> = None;
        for _ in 0..random.random_range(1..40) {
            self.append(&mut feed, random);
            self.wait(&feed, random).await;
            if feed.core.progress().has_ended() {
                break;
            }
            match random.random_range(0..20) {
                0..4 if snapshot.as_ref().is_none_or(|task| task.0.is_finished()) => {
                    snapshot = self.snapshot(&mut feed);
                }
                4 => self.kv.stand_still(Duration::from_millis(random.random_range(0..6000))),
                5 => drop(feed.raise_epoch(feed.core.progress().epoch + 2)),
                6 => {
                    core.seal(match random.random_range(0..2) {
                        0 => Heir::Named("h1".into()),
                        _ => Heir::Anybody,
                    });
                    if self.has_ended(&feed, random).await {
                        break;
                    }
                }
                7..9 if self.hand_over(&mut feed, random).await => break,
                _ => {}
            }
        }
        self.hear(&feed);
    }

    fn hear(&self, feed: &Feed<SimulatedStore>) {
        self.world.hear(&self.name, &self.state, feed.core.progress().may_leave);
    }

    fn append(&mut self, feed: &mut Feed<SimulatedStore>, random: &mut Pcg64Mcg) {
        for _ in 0..random.random_range(0..4) {
            let number = self.world.draw();
            let payload = number.to_le_bytes();
            let class = if random.random_range(0..2) == 0 { Class::Must } else { Class::May };
            let entry = Entry { class, logic: 1, payload: &payload, sync: false };
            if feed.append(entry).is_ok() {
                self.state.push(number);
            }
        }
        let _ = feed.flush(); // If it is at its end, that is seen.
    }

    /// Waits a little, and listens.
    async fn wait(&self, feed: &Feed<SimulatedStore>, random: &mut Pcg64Mcg) {
        for _ in 0..random.random_range(1..5) {
            self.hear(feed);
            // Some append again before they are answered.
            let longest = if random.random_range(0..2) == 0 { 5 } else { 200 };
            sleep(Duration::from_millis(random.random_range(1..longest))).await;
        }
        self.hear(feed);
    }

    /// Whether it has come to its end; if not, it goes on.
    async fn has_ended(&self, feed: &Feed<SimulatedStore>, random: &mut Pcg64Mcg) -> bool {
        let sealed = self.wait_for_end(feed, random);
        let _ = timeout(Duration::from_secs(20), sealed).await;
        let has_ended = feed.core.is_ending() || feed.core.progress().has_ended();
        self.world.heard().withdrawn += u32::from(!has_ended);
        has_ended
    }

    /// Calls another host, goes on meanwhile, and hands over when that is ready, or calls it off; whether this one has ended.
    async fn hand_over(&mut self, feed: &mut Feed<SimulatedStore>, random: &mut Pcg64Mcg) -> bool {
        let heir = format!("h{}", random.random_range(0..3));
        feed.core.call(Some(heir.clone()));
        self.world.heard().called += 1;
        for _ in 0..random.random_range(1..30) {
            self.append(feed, random);
            self.wait(feed, random).await;
            if feed.core.progress().heir.as_ref() == Some(&heir) {
                break;
            }
        }
        self.append(feed, random);
        let Ok(ready) = feed.core.heir(&heir) else {
            feed.core.call(None);
            return false;
        };
        if random.random_range(0..4) == 0 {
            // What was said may be too long ago.
            sleep(Duration::from_millis(random.random_range(0..4000))).await;
        }
        feed.core.seal(ready);
        let has_ended = self.has_ended(feed, random).await;
        self.world.heard().handed_over += u32::from(has_ended);
        feed.core.call(None);
        has_ended
    }

    async fn wait_for_end(&self, feed: &Feed<SimulatedStore>, random: &mut Pcg64Mcg) {
        while feed.core.is_ending() && !feed.core.progress().has_ended() {
            self.wait(feed, random).await;
        }
    }

    fn snapshot(&self, feed: &mut Feed<SimulatedStore>) -> Option<Task> {
        let (upto, token) = feed.begin_snapshot().ok()?;
        let (core, world) = (Arc::clone(&feed.core), self.world.clone());
        let expected = self.state[..upto.0 as usize].to_vec();
        let making = async move {
            let Ok((before, records)) = core.keeper.history(upto).await else { return };
            let mut state = before.map_or(Vec::new(), |snapshot| numbers(&snapshot.payload));
            for record in records {
                state.extend(numbers(&record.payload));
            }
            // Whoever is deposed meanwhile may read what another has written; it keeps nothing.
            let is_kept = core.keeper.keep(upto, 1, payload(&state)).await.is_ok();
            if is_kept && state != expected {
                world.wrong(format!("a snapshot of {state:?} where {expected:?} was appended"));
            }
            world.heard().snapshots += u32::from(is_kept);
            drop(token);
        };
        Some(Task(tokio::spawn(making)))
    }
}
