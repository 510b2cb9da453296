//! How long uses have taken, and what came when.

use std::collections::VecDeque;
use std::sync::Arc;

use holdall_core::Needs;
use holdall_wire::Name;
use rustc_hash::FxHashMap;

/// What kind of use something is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kind {
    /// What it is called: its name, or else its command.
    pub label: Option<Arc<str>>,
    /// Whose it is.
    pub user: Option<Arc<str>>,
    /// Of which pools.
    pub pools: Vec<Name>,
}

impl Kind {
    /// Whether its pools are of several cells.
    pub(super) fn spans_cells(&self) -> bool {
        self.pools.windows(2).any(|pair| pair[0].cell() != pair[1].cell())
    }
}

/// A group of uses.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Group {
    Label(Arc<str>),
    User(Arc<str>),
    Pool(Name),
    /// Those of pools of several cells.
    Spanning,
    All,
}

/// Uses before now. Like are those with the same name or command; if there are few, also those of the same user, and then those of a
/// pool; at last all. What was asked for is told in needs of the kind `N`.
///
/// It is bounded, whatever comes: of groups those that were added to last are kept, of each its latest uses, and of what was
/// asked for the latest, as far as that is not long.
#[derive(Clone, Debug)]
pub struct Past<N = Needs> {
    groups: FxHashMap<Group, Lengths>,
    /// How many uses there were.
    added: u64,
    /// When something was asked for, what, and for what kind of use; in order.
    asked: VecDeque<(u64, N, Arc<Kind>)>,
    /// About how many bytes that takes.
    asked_bytes: usize,
}

/// Needs of some kind.
pub trait Bulk {
    /// How many there are.
    fn count(&self) -> usize;
    /// About how many bytes they take.
    fn bytes(&self) -> usize;
}

impl Bulk for Needs {
    fn count(&self) -> usize {
        self.iter().len()
    }

    fn bytes(&self) -> usize {
        self.iter().map(|need| size_of_val(need) + 8 * need.named.len()).sum()
    }
}

impl Bulk for Arc<[holdall_wire::Need]> {
    fn count(&self) -> usize {
        self.len()
    }

    fn bytes(&self) -> usize {
        holdall_wire::needs_size(self)
    }
}

#[derive(Clone, Debug, Default)]
struct Lengths {
    /// The latest last.
    all: Vec<u64>,
    /// Which use was the last of this group.
    last: u64,
}

/// With so many uses a group is enough by itself.
const ENOUGH: usize = 20;
/// With so many it tells how long a use takes on average.
const SOME: usize = 5;
/// Only the latest of a group count: habits change.
const LATEST: usize = 500;
/// So many groups are kept at most.
const GROUPS: usize = 2000;
/// And so many times at which something was asked for, which take so many bytes.
const ASKED: usize = 100_000;
const ASKED_BYTES: usize = 32 << 20;
/// A request with more needs is not remembered: it is no usual one.
const NEEDS_MAX: usize = 64;
/// So many come at most in what is played: a run takes only so long.
const ARRIVALS: usize = 10_000;
/// If no more than so many wait. Of twice as many a quarter comes: each takes the longer to play the more wait, and matters the
/// less.
const FEW: usize = 50;
const DAY: u64 = 24 * 3_600_000;
/// So many days before are chosen from.
const DAYS: u64 = 28;

impl<N> Default for Past<N> {
    fn default() -> Self {
        Self { groups: FxHashMap::default(), added: 0, asked: VecDeque::new(), asked_bytes: 0 }
    }
}

impl<N> Past<N> {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// The clock was set by so many milliseconds: what was asked for is as long ago as before.
    pub fn clock_set(&mut self, by: i64) {
        self.asked.iter_mut().for_each(|(at, ..)| *at = at.saturating_add_signed(by));
    }

    /// How many uses there were.
    pub fn added(&self) -> u64 {
        self.added
    }

    /// A use has ended, which took so many milliseconds.
    pub fn add(&mut self, kind: &Kind, length: u64) {
        self.added += 1;
        let spanning = kind.spans_cells().then_some(Group::Spanning);
        for group in groups(kind).chain(spanning) {
            let lengths = self.groups.entry(group).or_default();
            // Now and then, so that it costs little.
            if lengths.all.len() >= 2 * LATEST {
                lengths.all.drain(..LATEST);
            }
            lengths.all.push(length);
            lengths.last = self.added;
        }
        if self.groups.len() > GROUPS {
            self.forget_half();
        }
    }

    /// Forgets the groups to which nothing was added for longest.
    fn forget_half(&mut self) {
        let mut last: Vec<u64> = self.groups.values().map(|lengths| lengths.last).collect();
        let middle = last.len() / 2;
        let (_, limit, _) = last.select_nth_unstable(middle);
        let limit = *limit;
        self.groups.retain(|_, lengths| lengths.last >= limit);
    }

    /// How long a use of a kind takes on average, by the nearest kin that there are some of.
    pub(super) fn usual(&self, kind: &Kind) -> Option<u64> {
        groups(kind).filter(|group| *group != Group::All).find_map(|group| self.mean(&group))
    }

    /// How long a use of several cells takes on average.
    pub(super) fn typical(&self) -> Option<u64> {
        self.mean(&Group::Spanning)
    }

    fn mean(&self, group: &Group) -> Option<u64> {
        let latest = self.latest(group);
        let sum: u128 = latest.iter().copied().map(u128::from).sum();
        (latest.len() >= SOME).then(|| (sum / latest.len() as u128) as u64)
    }

    /// How long a use takes.
    pub(super) fn length(&self, kind: &Kind, draw: &mut impl FnMut(u64) -> u64) -> u64 {
        let lengths = self.like(kind);
        lengths.get(draw(lengths.len() as u64) as usize).copied().unwrap_or(0)
    }

    /// How much longer a use takes that has lasted so long.
    pub(super) fn rest(&self, kind: &Kind, age: u64, draw: &mut impl FnMut(u64) -> u64) -> u64 {
        // Of those with enough uses the nearest, and else of any.
        for enough in [ENOUGH, 1] {
            for latest in groups(kind).map(|group| self.latest(&group)) {
                if latest.len() < enough {
                    continue;
                }
                let longer: Vec<u64> = latest.iter().copied().filter(|l| *l > age).collect();
                if let Some(length) = longer.get(draw(longer.len() as u64) as usize) {
                    return length - age;
                }
            }
        }
        // It lasts longer than anything before: about as long again.
        draw(2 * age.max(1)) + 1
    }

    /// The latest uses that are like this.
    fn like(&self, kind: &Kind) -> &[u64] {
        let mut best: &[u64] = &[];
        for group in groups(kind) {
            let latest = self.latest(&group);
            if latest.len() >= ENOUGH {
                return latest;
            }
            if best.is_empty() {
                best = latest;
            }
        }
        best
    }

    fn latest(&self, group: &Group) -> &[u64] {
        let all = self.groups.get(group).map_or(&[][..], |lengths| &lengths.all);
        &all[all.len().saturating_sub(LATEST)..]
    }

    /// What may come from now on: what came on some day before, of the same kind and from this hour on, up to three days
    /// of it. The more wait already, the fewer of it.
    pub(super) fn arrivals(
        &self,
        now: u64,
        waiting: usize,
        draw: &mut impl FnMut(u64) -> u64,
    ) -> impl Iterator<Item = (u64, &N, &Kind)> + '_ {
        let begin = self.asked.front().map_or(now, |(at, ..)| *at);
        let days = 1..=(now.saturating_sub(begin) / DAY).min(DAYS);
        let alike = |back: &u64| kind_of_day(now - back * DAY) == kind_of_day(now);
        let mut choice: Vec<u64> = days.clone().filter(alike).collect();
        if choice.is_empty() {
            choice.extend(days);
        }
        let back = choice.get(draw(choice.len() as u64) as usize);
        let from = back.map_or(u64::MAX, |back| now - back * DAY);
        let first = self.asked.partition_point(|(at, ..)| *at < from);
        let since = move |at: &u64| at.saturating_sub(from);
        let most = ARRIVALS * FEW * FEW / waiting.max(FEW).pow(2);
        let came = self.asked.range(first..).take(most);
        let came = came.take_while(move |(at, ..)| since(at) < 3 * DAY);
        came.map(move |(at, needs, kind)| (since(at), needs, &**kind))
    }
}

impl<N: Bulk> Past<N> {
    /// Something was asked for, at a time that is not before the others.
    pub fn ask(&mut self, at: u64, needs: N, kind: Arc<Kind>) {
        if needs.count() > NEEDS_MAX {
            return;
        }
        self.asked_bytes += bytes(&needs, &kind);
        self.asked.push_back((at, needs, kind));
        while self.asked.len() > ASKED || self.asked_bytes > ASKED_BYTES {
            let Some((_, needs, kind)) = self.asked.pop_front() else { return };
            self.asked_bytes -= bytes(&needs, &kind);
        }
    }
}

/// About how many bytes something takes that was asked for.
fn bytes(needs: &impl Bulk, kind: &Kind) -> usize {
    let names: usize = kind.pools.iter().map(|name| 16 + name.as_str().len()).sum();
    128 + needs.bytes() + kind.label.as_ref().map_or(0, |label| label.len()) + names
}

/// Whether a day, in UTC, is of a weekend, and whether the next one is.
fn kind_of_day(at: u64) -> (bool, bool) {
    // The first day of 1970 was a Thursday.
    let weekday = (at / DAY + 3) % 7;
    (weekday >= 5, (weekday + 1) % 7 >= 5)
}

fn groups(kind: &Kind) -> impl Iterator<Item = Group> + '_ {
    let label = kind.label.iter().cloned().map(Group::Label);
    let user = kind.user.iter().cloned().map(Group::User);
    let pools = kind.pools.iter().cloned().map(Group::Pool);
    label.chain(user).chain(pools).chain([Group::All])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(label: &str, user: &str, pool: &str) -> Kind {
        Kind {
            label: Some(label.into()),
            user: Some(user.into()),
            pools: vec![pool.parse().expect("a name")],
        }
    }

    #[test]
    fn the_nearest_kin_with_enough_uses_counts() {
        let mut past: Past = Past::default();
        (0..30).for_each(|_| past.add(&kind("long", "ben", "gpu"), 1000));
        past.add(&kind("new", "anna", "gpu"), 1);
        let mut draw = holdall_sim::draws(1, 1);
        assert_eq!(past.length(&kind("long", "anna", "gpu"), &mut draw), 1000);
        assert_eq!(past.length(&kind("other", "ben", "cpu"), &mut draw), 1000);
        let drawn: Vec<u64> =
            (0..200).map(|_| past.length(&kind("new", "anna", "gpu"), &mut draw)).collect();
        assert!(drawn.contains(&1) && drawn.contains(&1000), "one use alone is not enough");
        let alone = past.length(&kind("new", "anna", "cpu"), &mut draw);
        assert!(alone == 1 || alone == 1000);
    }

    #[test]
    fn the_nearest_kin_that_there_are_some_of_tells_how_long_a_use_takes() {
        let mut past: Past = Past::default();
        assert_eq!(past.usual(&kind("long", "ben", "gpu")), None, "nothing is known");
        (1..SOME).for_each(|_| past.add(&kind("long", "ben", "gpu"), 1000));
        assert_eq!(past.usual(&kind("long", "ben", "gpu")), None, "these are too few");
        past.add(&kind("long", "ben", "gpu"), 1500);
        (0..2 * SOME).for_each(|_| past.add(&kind("short", "anna", "gpu"), 20));
        assert_eq!(past.usual(&kind("long", "anna", "gpu")), Some(1100));
        assert_eq!(past.usual(&kind("new", "anna", "gpu")), Some(20), "it is anna's");
        assert_eq!(
            past.usual(&kind("new", "dora", "gpu")),
            Some((5500 + 200) / 15),
            "it is of the pool"
        );
        assert_eq!(past.usual(&kind("new", "dora", "cpu")), None, "it is like no other");
    }

    #[test]
    fn uses_of_several_cells_tell_what_is_typical() {
        let mut past: Past = Past::default();
        let [here, there] = ["gpu", "gpu@there"].map(|pool| kind("job", "ben", pool));
        let both = Kind {
            pools: [&here, &there].map(|kind| kind.pools[0].clone()).into(),
            ..here.clone()
        };
        (0..2 * SOME).for_each(|_| past.add(&here, 1));
        (0..SOME).for_each(|_| past.add(&there, 2));
        (1..SOME).for_each(|_| past.add(&both, 1000));
        assert_eq!(past.typical(), None, "these are too few");
        past.add(&both, 1500);
        assert_eq!(past.typical(), Some(1100));
    }

    #[test]
    fn the_name_comes_before_the_user_and_the_user_before_the_pool() {
        let mut past: Past = Past::default();
        for _ in 0..ENOUGH {
            past.add(&kind("long", "ben", "gpu"), 1000);
            past.add(&kind("short", "ben", "gpu"), 10);
            past.add(&kind("short", "anna", "gpu"), 10);
        }
        let mut draw = holdall_sim::draws(1, 1);
        let mut lengths = |label, user| {
            let kind = kind(label, user, "gpu");
            (0..200)
                .map(|_| past.length(&kind, &mut draw))
                .collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(lengths("long", "ben"), [1000].into());
        assert_eq!(lengths("new", "anna"), [10].into());
        assert_eq!(lengths("new", "dora"), [10, 1000].into());
    }

    #[test]
    fn of_a_use_that_lasts_already_the_nearest_kin_with_enough_uses_counts_too() {
        let mut past: Past = Past::default();
        (0..30).for_each(|_| past.add(&kind("long", "ben", "gpu"), 1000));
        past.add(&kind("new", "ben", "gpu"), 5000);
        let mut draw = holdall_sim::draws(1, 1);
        let mut rest = |name, age| -> Vec<u64> {
            let kind = kind(name, "ben", "gpu");
            (0..200).map(|_| past.rest(&kind, age, &mut draw)).collect()
        };
        let rests = rest("new", 400);
        assert!(rests.contains(&600) && rests.contains(&4600), "one use alone is not enough");
        assert_eq!(rest("long", 3000), [2000; 200], "others of the same user lasted longer");
        assert!(rest("new", 6000).iter().all(|rest| (1..=12_000).contains(rest)));
    }

    #[test]
    fn only_the_latest_uses_count() {
        let mut past: Past = Past::default();
        (0..5000).for_each(|n| past.add(&kind("x", "ben", "gpu"), n));
        let mut draw = holdall_sim::draws(1, 1);
        assert!((0..500).all(|_| past.length(&kind("x", "ben", "gpu"), &mut draw) >= 4500));
    }

    #[test]
    fn however_many_names_there_are_it_stays_small() {
        let mut past: Past = Past::default();
        for n in 0..10_000 {
            past.add(&kind(&format!("job {n}"), "ben", "gpu"), n);
            assert!(past.groups.len() <= GROUPS);
        }
        let mut draw = holdall_sim::draws(1, 1);
        assert!(past.length(&kind("new", "anna", "gpu"), &mut draw) >= 9500, "the pool is kept");
        let needs = Needs::new(vec![super::super::need(0, 1)]).expect("sensible");
        let some = Arc::new(kind("job", "ben", "gpu"));
        (0..ASKED as u64 + 5).for_each(|at| past.ask(at, needs.clone(), some.clone()));
        assert_eq!((past.asked.len(), past.asked[0].0), (ASKED, 5));
    }

    #[test]
    fn others_come_as_on_a_day_before() {
        let mut past: Past = Past::default();
        let needs = Needs::new(vec![super::super::need(0, 1)]).expect("sensible");
        for day in 0..12 {
            let of_day = kind(&format!("day {day}"), "ben", "gpu");
            past.ask(day * DAY + 8 * 3_600_000, needs.clone(), of_day.into());
        }
        let now = 12 * DAY + 7 * 3_600_000; // A Tuesday.
        let mut seen = std::collections::BTreeSet::new();
        for seed in 0..50 {
            let came: Vec<_> = past.arrivals(now, 1, &mut holdall_sim::draws(seed, 0)).collect();
            assert_eq!(came[0].0, 3_600_000, "an hour from now");
            seen.insert(came[0].2.label.clone());
        }
        let alike: Vec<_> = [11, 4, 5, 6, 7].map(|day| Some(format!("day {day}").into())).into();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), alike, "the first day is not whole");
        assert_eq!(past.arrivals(0, 1, &mut holdall_sim::draws(1, 0)).count(), 0);
    }

    #[test]
    fn a_monday_is_like_a_tuesday_and_not_like_a_sunday() {
        let monday = 4 * DAY; // The 5th of January 1970.
        assert_eq!(kind_of_day(monday), (false, false));
        assert_eq!(kind_of_day(monday - 1), (true, false));
        assert_eq!(kind_of_day(monday - 2 * DAY), (true, true));
        assert_eq!(kind_of_day(monday - 3 * DAY), (false, true));
    }

    #[test]
    fn however_much_is_asked_for_it_stays_small() {
        let mut past: Past<Arc<[holdall_wire::Need]>> = Past::default();
        let needs = |many: usize| -> Arc<[holdall_wire::Need]> {
            vec!["n".repeat(200).parse().expect("a need"); many].into()
        };
        let (few, some) = (needs(60), Arc::new(kind(&"j".repeat(4000), "ben", "gpu")));
        (0..10_000).for_each(|at| past.ask(at, few.clone(), some.clone()));
        let kept = past.asked.len();
        assert!((100..4000).contains(&kept), "about 16 kB each: {kept}");
        assert_eq!(past.asked.back().map(|(at, ..)| *at), Some(9999), "the latest are kept");
        past.ask(10_000, needs(1000), some);
        assert_eq!(past.asked.back().map(|(at, ..)| *at), Some(9999), "this is no usual request");
    }

    #[test]
    fn a_run_has_so_many_arrivals_at_most() {
        let mut past: Past = Past::default();
        let needs = Needs::new(vec![super::super::need(0, 1)]).expect("sensible");
        let some = Arc::new(kind("job", "ben", "gpu"));
        (0..60_000).for_each(|at| past.ask(at, needs.clone(), some.clone()));
        let came = |waiting| past.arrivals(DAY, waiting, &mut holdall_sim::draws(1, 0)).count();
        assert_eq!([0, 50, 100, 500].map(came), [10_000, 10_000, 2500, 100]);
    }

    #[test]
    fn times_move_with_the_clock() {
        let mut past: Past = Past::default();
        let needs = Needs::new(vec![super::super::need(0, 1)]).expect("sensible");
        let some = Arc::new(kind("job", "ben", "gpu"));
        (1..=3).for_each(|at| past.ask(at * DAY, needs.clone(), some.clone()));
        past.clock_set(-2 * DAY as i64);
        past.ask(2 * DAY, needs, some);
        let at: Vec<u64> = past.asked.iter().map(|(at, ..)| *at).collect();
        assert_eq!(at, [0, 0, DAY, 2 * DAY]);
    }
}
