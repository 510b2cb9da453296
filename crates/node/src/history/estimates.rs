//! The thread that works out what those who wait can expect.
//!
//! It plays on from the queue as it is, some hundred times, and begins anew when the queue has changed, or after a while since uses go
//! on. Each time tells when everybody is granted, so that all who wait have an estimate after a few of them ([`FIRST`]), which the others
//! make finer; if somebody has come meanwhile, it begins anew instead. It takes at most a twentieth of a core over any minute, and
//! yields to everybody else.
//!
//! # Invariants
//! - What is on the board is by the clock as it is: when that is set, the board is cleared, and nothing that was begun before
//!   comes onto it.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use holdall_core::Length;
use holdall_history::forecast::{FAR, Live, Outset, RUNS, Runs, Unknown};
use holdall_history::{Expect, Line, served};
use holdall_sim::{Contender, draws};
use holdall_wire::event::What;
use holdall_wire::{Ask, Expected, Who};
use rustix::time::{ClockId, clock_gettime};
use tracing::warn;

use super::board::Board;

/// The share of a core that it takes in the long run.
const SHARE: f64 = 0.04;
/// How much may be taken at once after a rest. With this, it takes at most a twentieth of a core in any minute.
const AT_ONCE: Duration = Duration::from_millis(600);
/// After so many times everybody is told what to expect: within the earliest and the latest of twenty, nine of ten come (19 of 21).
const FIRST: u32 = 20;
/// After these, it is told again.
const FINER: [u32; 3] = [50, 100, RUNS];
/// After what time it is done again though nothing has happened.
const AGAIN: Duration = Duration::from_secs(30);
/// The least time between two.
const PAUSE: Duration = Duration::from_millis(200);
/// Its priority.
const NICE: i32 = 19;
/// So many who were told wait to be noted at most.
const TOLD: usize = 10_000;
/// Of everybody, until it is worked out anew.
const CLOCK_SET: &str = "the clock was set: it is being worked out anew";

#[derive(Debug, Default)]
struct Queue {
    live: Live,
    /// It has changed since it was last looked at.
    changed: bool,
    /// Who was told what for the first time, and when, to be noted.
    told: Vec<(u64, Expect)>,
    closed: bool,
}

/// The queue, for whoever keeps it up with what happens.
#[derive(Clone, Debug)]
pub(super) struct Followed(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    queue: Mutex<Queue>,
    moved: Condvar,
    board: Board,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Followed {
    /// Something happens.
    pub(super) fn change(&self, change: impl FnOnce(&mut Live)) {
        let mut queue = self.0.lock();
        let clock_sets = queue.live.clock_sets();
        change(&mut queue.live);
        if queue.live.clock_sets() != clock_sets {
            queue.told.clear();
            self.0.board.clear(CLOCK_SET.into());
        }
        queue.changed = true;
        self.0.moved.notify_one();
    }

    /// What stands already.
    pub(super) fn begin_with(&self, standing: &[(u64, What)]) {
        let mut queue = self.0.lock();
        standing.iter().for_each(|(at, what)| queue.live.stands(*at, what));
    }

    /// A line of former times.
    pub(super) fn remember(&self, line: Line) {
        self.0.lock().live.remember(line);
    }

    /// Who was told what since the last time, and when.
    pub(super) fn told(&self) -> Vec<(u64, Expect)> {
        std::mem::take(&mut self.0.lock().told)
    }
}

/// The thread, as long as it is wanted. Nobody waits for its end: it leaves nothing behind.
pub(super) struct Estimates(Arc<Shared>);

impl Estimates {
    /// Begins with a queue.
    ///
    /// # Errors
    /// If there can be no more threads.
    pub(super) fn start(live: Live, board: Board) -> std::io::Result<Self> {
        let queue = Queue { live, ..Queue::default() };
        let shared = Shared { queue: Mutex::new(queue), moved: Condvar::new(), board };
        let shared = Arc::new(shared);
        let own = shared.clone();
        let work =
            move || Estimator { shared: own, budget: Budget::new(Instant::now(), cpu()) }.run();
        std::thread::Builder::new().name("estimates".into()).spawn(work)?;
        Ok(Self(shared))
    }

    pub(super) fn queue(&self) -> Followed {
        Followed(self.0.clone())
    }

    /// How long the use will probably take of what somebody asks for of several cells. Nobody waits for that: while the
    /// queue is looked at by others, nothing is known.
    pub(super) fn length(&self, who: &Who, ask: &Ask) -> Option<Length> {
        let queue = match self.0.queue.try_lock() {
            Ok(queue) => queue,
            Err(TryLockError::Poisoned(queue)) => queue.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let (takes, typical) = queue.live.foresees(who, ask)?;
        Some(Length::of(takes, typical))
    }
}

impl Drop for Estimates {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.moved.notify_one();
    }
}

struct Estimator {
    shared: Arc<Shared>,
    budget: Budget,
}

impl Estimator {
    fn run(mut self) {
        // Whoever asks comes first.
        let _ = rustix::process::setpriority_process(None, NICE);
        let contender = served();
        let mut seed = 0;
        while self.wait() {
            seed += 1;
            if self.estimate(&contender, seed).and_then(|()| self.pause()).is_none() {
                return;
            }
        }
    }

    /// Waits until there is something to be worked out. False if nothing will be.
    fn wait(&self) -> bool {
        let mut queue = self.shared.lock();
        let begun = Instant::now();
        loop {
            let waited = begun.elapsed();
            let is_awaited = queue.live.is_awaited();
            let is_due = is_awaited && waited >= AGAIN || queue.changed && waited >= PAUSE;
            if queue.closed || is_due {
                queue.changed = false;
                return !queue.closed;
            }
            let left = if waited < PAUSE { PAUSE - waited } else { AGAIN.saturating_sub(waited) };
            queue = if is_awaited || queue.changed {
                let woken = self.shared.moved.wait_timeout(queue, left);
                woken.unwrap_or_else(PoisonError::into_inner).0
            } else {
                self.shared.moved.wait(queue).unwrap_or_else(PoisonError::into_inner)
            };
        }
    }

    /// Plays on from the queue as it is, and tells what came of it. Nothing if that is not wanted any more.
    fn estimate(&mut self, contender: &Contender, seed: u64) -> Option<()> {
        let queue = self.shared.lock();
        let made = now();
        let outset = match queue.live.outset(made) {
            Ok(outset) => outset,
            Err(Unknown::Nobody) => {
                self.shared.board.post(Vec::new());
                return Some(());
            }
            Err(why) => {
                self.shared.board.clear(why.to_string());
                return Some(());
            }
        };
        drop(queue);
        let mut runs = Runs::default();
        if outset.waiting.is_empty() {
            self.tell(made, &outset, &runs);
            return Some(());
        }
        for run in 0..RUNS {
            // Played without the lock: others go on meanwhile.
            let course = self.shared.lock().live.course(&outset, &mut draws(seed, run));
            let Some(course) = course else { return Some(()) };
            if let Err(error) = runs.play(&course, contender) {
                warn!("what comes cannot be played: {error}");
                self.shared.board.clear(format!("what comes cannot be played: {error}"));
                return Some(());
            }
            let played = run + 1;
            if played == FIRST || FINER.contains(&played) {
                self.tell(made, &outset, &runs);
            }
            // Whoever has no estimate comes before those who have one.
            if played >= FIRST && self.shared.lock().live.awaits_others(&outset) {
                return Some(());
            }
            self.pause()?;
        }
        Some(())
    }

    /// Tells those who wait what they can expect, as far as that was played; nothing if the clock was set meanwhile.
    fn tell(&self, made: u64, outset: &Outset, runs: &Runs) {
        let mut expected = Vec::new();
        let mut queue = self.shared.lock();
        if !queue.live.is_by_the_clock(outset) {
            return;
        }
        for (request, estimate) in outset.waiting.iter().zip(runs.estimates()) {
            let (request, half, nine) = (*request, estimate.half, estimate.nine);
            let at = |(from, to): (u64, u64)| (made + from, made + to);
            expected.push(Expected { request, made, half: at(half), nine: at(nine) });
            if queue.told.len() < TOLD
                && let Some(user) = queue.live.is_told_first(request)
            {
                let user = Some(user.into());
                queue.told.push((made, Expect { r: request, half, nine, user }));
            }
        }
        // Of these it is not noted: when somebody puts a unit back cannot be foreseen.
        expected.extend(outset.stuck.iter().map(|request| {
            let far = (made + FAR, made + FAR);
            Expected { request: *request, made, half: far, nine: far }
        }));
        // Under the lock: whoever follows the clock clears it before or after.
        self.shared.board.post(expected);
    }

    /// Waits until there is time for more. Nothing if that is not wanted any more.
    fn pause(&mut self) -> Option<()> {
        let begun = Instant::now();
        let until = begun + self.budget.pause(begun, cpu());
        let mut queue = self.shared.lock();
        loop {
            if queue.closed {
                return None;
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Some(());
            }
            let waited = self.shared.moved.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// How much time of a core may be taken.
struct Budget {
    /// What is left of it, in seconds.
    left: f64,
    /// When that was so, and what had been used by then.
    at: Instant,
    spent: Duration,
}

impl Budget {
    fn new(at: Instant, spent: Duration) -> Self {
        Self { left: AT_ONCE.as_secs_f64(), at, spent }
    }

    /// How long to wait until there is some again, if so much has been used by now.
    fn pause(&mut self, at: Instant, spent: Duration) -> Duration {
        let earned = SHARE * (at - self.at).as_secs_f64();
        let used = spent.saturating_sub(self.spent).as_secs_f64();
        (self.at, self.spent) = (at, spent);
        self.left = (self.left + earned - used).min(AT_ONCE.as_secs_f64());
        Duration::from_secs_f64((-self.left / SHARE).max(0.0))
    }
}

/// What this thread has used of a core.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.max(0).unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64
}

#[cfg(test)]
mod tests {
    use holdall_wire::{Outlook, RequestNo};

    use super::*;

    /// A lock that was used for a minute some times, with one of another cell, and is waited for by a request.
    fn awaited(request: u64, now: u64) -> Live {
        let mut live = Live::default();
        let lines = (1..=5).flat_map(|n| {
            let (at, end) = (now - n * 1_000_000, now - n * 1_000_000 + 60_000);
            [
                format!(r#"{{"t":{at},"k":"ask","r":"1-{n}","needs":["db","db@there"]}}"#),
                format!(r#"{{"t":{at},"k":"grant","r":"1-{n}","got":{{"db":["db"]}}}}"#),
                format!(r#"{{"t":{end},"k":"end","r":"1-{n}","how":"released"}}"#),
            ]
        });
        lines.for_each(|line| live.remember(serde_json::from_str(&line).expect("a line")));
        let ask = ask_for("db", holdall_wire::Lasting::Connection);
        let (request, who) = (RequestNo(request), Arc::default());
        let asked = What::Asked { request, who, ask: ask.into() };
        live.happens(now, &asked);
        live
    }

    fn ask_for(needs: &str, lasting: holdall_wire::Lasting) -> Ask {
        let needs = needs.split(' ').map(|need| need.parse().expect("a need")).collect();
        let from = holdall_wire::From::default();
        Ask { needs, now: false, lasting, from, within: None, limit: None, part: None }
    }

    #[test]
    fn no_more_than_a_twentieth_of_a_core_is_taken_in_any_minute() {
        const MINUTE: Duration = Duration::from_secs(60);
        // How long it plays once, and for how long there is nothing to do now and then.
        for (once, rest) in [(5, 0), (20, 0), (20, 30), (100, 5), (3, 70)] {
            let (once, rest) = (Duration::from_millis(once), Duration::from_secs(rest));
            let (mut now, mut spent) = (Instant::now(), Duration::ZERO);
            let mut budget = Budget::new(now, spent);
            let mut plays = Vec::new();
            for play in 0..2000 {
                (now, spent) = (now + once, spent + once);
                plays.push(now);
                now += budget.pause(now, spent);
                now += rest * u32::from(play % 40 == 0);
            }
            let in_minute = |from: &Instant| {
                let until = plays.partition_point(|at| *at <= *from + MINUTE);
                let before = plays.partition_point(|at| *at <= *from);
                once * u32::try_from(until - before).expect("few")
            };
            let most = plays.iter().map(in_minute).max().expect("some");
            assert!(most <= MINUTE / 20 + once, "{most:?} in a minute, {once:?} each");
            let gets_on = spent > (now - plays[0]).mul_f64(0.9 * SHARE);
            assert!(gets_on || !rest.is_zero(), "{spent:?}, {once:?} each");
        }
    }

    #[test]
    fn how_long_a_use_takes_is_known_unless_somebody_looks_at_the_queue() {
        let queue = Mutex::new(Queue { live: awaited(7, now()), ..Queue::default() });
        let estimates = Estimates(Arc::new(Shared { queue, ..Shared::default() }));
        let ask = ask_for("db db@there", holdall_wire::Lasting::Reservation(60_000 / 2));
        let length = || estimates.length(&Who::default(), &ask).map(Length::get);
        assert_eq!(length(), Some(Length::TYPICAL / 2));
        let looked_at = estimates.0.lock();
        assert_eq!(length(), None, "nobody waits for that");
        drop(looked_at);
        assert_eq!(length(), Some(Length::TYPICAL / 2));
    }

    #[test]
    fn what_was_worked_out_by_another_clock_is_told_to_nobody() {
        let made = now();
        let queue = Mutex::new(Queue { live: awaited(7, made), ..Queue::default() });
        let shared = Arc::new(Shared { queue, ..Shared::default() });
        let budget = Budget::new(Instant::now(), cpu());
        let estimator = Estimator { shared: shared.clone(), budget };
        let followed = Followed(shared.clone());
        let expected = || matches!(shared.board.outlook(RequestNo(7)), Outlook::Expected(_));

        let outset = shared.lock().live.outset(made).expect("it waits");
        let course = shared.lock().live.course(&outset, &mut draws(1, 0)).expect("a course");
        let mut runs = Runs::default();
        runs.play(&course, &served()).expect("played");
        estimator.tell(made, &outset, &runs);
        assert!(expected());
        followed.change(|live| live.happens(made, &What::ClockSet { by: -3_600_000 }));
        assert!(!expected(), "it is cleared");
        assert!(followed.told().is_empty(), "nothing is noted of it");
        estimator.tell(made, &outset, &runs);
        assert!(!expected(), "it was begun before");
        let outset = shared.lock().live.outset(made - 3_600_000).expect("it waits");
        estimator.tell(made - 3_600_000, &outset, &runs);
        assert!(expected());
    }
}
