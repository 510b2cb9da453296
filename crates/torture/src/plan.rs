//! What is done to whom, and when: a function of the seed.
//!
//! Whom it meets among the clients depends on who is there at that moment, so each fault has a number to choose with: another
//! run with the same seed is similar, not the same.

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::journal::Who;

/// What is asked of the torturer.
#[derive(Clone, Copy, Debug)]
pub struct Course {
    /// How many cells of machines there are.
    pub cells: usize,
    /// Whether there is one more, whose log is in etcd: the last one, and nobody's home.
    pub replicated: bool,
    /// For how many milliseconds things go wrong.
    pub millis: u64,
    /// How long a lease is, in milliseconds.
    pub lease: u64,
    /// Where all choices come from.
    pub seed: u64,
}

/// Something that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An agent is killed, and started again after so many milliseconds.
    KillAgent {
        /// Of which cell.
        cell: usize,
        /// How long it is away.
        away: u64,
    },
    /// An agent is stopped for so many milliseconds.
    PauseAgent {
        /// Of which cell.
        cell: usize,
        /// How long.
        millis: u64,
    },
    /// A machine stands still for so many milliseconds, its agent and all its clients: one where something is used that others guard,
    /// as soon as there is one.
    Freeze {
        /// Which of those that are there.
        pick: u64,
        /// How long.
        millis: u64,
    },
    /// An agent is told to go on as itself.
    RestartAgent {
        /// Of which cell.
        cell: usize,
    },
    /// Somebody of a run is killed, or both.
    Kill {
        /// Whom.
        who: Victims,
        /// Which of those that are there.
        pick: u64,
    },
    /// Somebody of a run is stopped for so many milliseconds, or both.
    Pause {
        /// Whom.
        who: Victims,
        /// Which of those that are there.
        pick: u64,
        /// How long.
        millis: u64,
    },
    /// Somebody uses for long what another cell lends, is cut off from it, and somebody there waits for the same; nothing else is
    /// done to them. Nothing but the deadline of the one and the patience of the guard keeps the two apart.
    Strand {
        /// Where it is used.
        home: usize,
        /// Which cell guards it.
        guard: usize,
        /// What is done.
        how: Stranding,
    },
    /// The network between two cells is not as it should be for so many milliseconds.
    Net {
        /// From this cell.
        from: usize,
        /// To this one.
        to: usize,
        /// What is wrong.
        weather: Weather,
        /// Whether it is the same from there to here.
        both: bool,
        /// How long.
        millis: u64,
    },
}

/// Which processes of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victims {
    /// The wrapper.
    Wrapper,
    /// The command.
    Command,
    /// Both.
    Both,
}

impl Victims {
    /// Each of them.
    pub fn all(self) -> &'static [Who] {
        match self {
            Self::Wrapper => &[Who::Wrapper],
            Self::Command => &[Who::Command],
            Self::Both => &[Who::Wrapper, Who::Command],
        }
    }
}

/// How a home is cut off from a guard while its clients go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stranding {
    /// Its agent is killed: only wrappers can stop anything then.
    Killed,
    /// Its agent is stopped: the same.
    Paused,
    /// The network between the two.
    Net(Weather),
}

/// What can be wrong with a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Nothing arrives, and nobody is told.
    Stalled,
    /// Connections end, and none can be made.
    Cut,
    /// Everything takes so many milliseconds.
    Slow(u64),
}

/// A fault and its time, in milliseconds from the beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// When.
    pub at: u64,
    /// What.
    pub fault: Fault,
}

/// Random numbers of one purpose.
pub fn random(seed: u64, purpose: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ purpose)
}

/// All that is done, in order. It begins after a while in which nothing is wrong.
pub fn plan(course: &Course) -> Vec<Planned> {
    let mut rng = random(course.seed, 0);
    let (mut all, mut at) = (Vec::new(), course.lease / 4);
    // One at least, of those that only fences help against, early enough to wake up in time.
    let pick = rng.next_u64();
    all.push(Planned { at, fault: Fault::Freeze { pick, millis: course.lease * 3 } });
    while at < course.millis {
        all.push(Planned { at, fault: draw(course, &mut rng) });
        // Bursts, and pauses in which somebody gets something.
        let longest = if rng.random_ratio(1, 4) { 2500 } else { 700 };
        at += rng.random_range(20..longest);
    }
    all.extend(strandings(course));
    all.sort_by_key(|planned| planned.at);
    all
}

/// One after the other, in all ways; first those in which the wrapper is alone.
fn strandings(course: &Course) -> impl Iterator<Item = Planned> {
    let (course, mut rng) = (*course, random(course.seed, u64::MAX));
    let hows = [
        Stranding::Killed,
        Stranding::Net(Weather::Stalled),
        Stranding::Paused,
        Stranding::Net(Weather::Cut),
    ];
    let times = (0..course.millis).step_by(course.lease as usize * 5 / 2);
    times.zip(hows.into_iter().cycle()).map(move |(at, how)| {
        let home = rng.random_range(0..course.cells);
        let guard = (home + rng.random_range(1..course.cells)) % course.cells;
        Planned { at, fault: Fault::Strand { home, guard, how } }
    })
}

fn draw(course: &Course, rng: &mut Pcg64Mcg) -> Fault {
    let lease = course.lease;
    let cell = rng.random_range(0..course.cells);
    let pick = rng.next_u64();
    match rng.random_range(0..25) {
        0..=2 => Fault::KillAgent { cell, away: rng.random_range(0..lease * 5 / 2) },
        3..=4 => Fault::PauseAgent { cell, millis: rng.random_range(100..lease * 2) },
        5 => Fault::RestartAgent { cell },
        6..=11 => {
            let who = [Victims::Wrapper, Victims::Wrapper, Victims::Command, Victims::Both];
            Fault::Kill { who: who[rng.random_range(0..4)], pick }
        }
        12..=17 => {
            let who = [Victims::Wrapper, Victims::Command, Victims::Both];
            let millis = rng.random_range(100..lease * 2);
            Fault::Pause { who: who[rng.random_range(0..3)], pick, millis }
        }
        18 => {
            // Longer than a lease and a grace: then others are given what it holds.
            let millis = rng.random_range(lease * 3 / 2..lease * 4);
            Fault::Freeze { pick, millis }
        }
        _ => {
            let to = (cell + rng.random_range(1..course.cells)) % course.cells;
            let weather = match rng.random_range(0..5) {
                0..=1 => Weather::Stalled,
                2..=3 => Weather::Cut,
                _ => Weather::Slow(rng.random_range(20..1000)),
            };
            let millis = rng.random_range(300..lease * 5 / 2);
            Fault::Net { from: cell, to, weather, both: rng.random_bool(0.5), millis }
        }
    }
}

/// What a run asks for, for how long it uses it, and how it behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errand {
    /// The needs.
    pub needs: Vec<String>,
    /// For how many milliseconds its command works.
    pub works: u64,
    /// Whether the command ignores being asked to end.
    pub deaf: bool,
    /// Whether everything it needs is of its own cell.
    pub local: bool,
}

/// What another cell than its home guards of what somebody uses, and lends it for a time: the cell, and its name there.
pub fn lent(home: usize, units: &[String]) -> Option<(usize, String)> {
    units.iter().find_map(|unit| {
        let (name, cell) = unit.split_once("@c")?;
        let cell = cell.parse().ok()?;
        (cell != home && name != "keep").then(|| (cell, name.to_owned()))
    })
}

/// The next errand of a client at a cell.
pub fn errand(course: &Course, home: usize, rng: &mut Pcg64Mcg) -> Errand {
    let cells = course.cells + usize::from(course.replicated);
    let other = |rng: &mut Pcg64Mcg| (home + rng.random_range(1..cells)) % cells;
    let (one, two) = (other(rng), other(rng));
    let needs: Vec<String> = match rng.random_range(0..12) {
        0 => vec!["board".into()],
        1 => vec!["board:2".into(), "scope".into()],
        2..=3 => vec![format!("board@c{one}")],
        4..=5 => vec!["board".into(), format!("board@c{one}")],
        6..=7 => vec![format!("scope@c{one}"), format!("board@c{home}")],
        8 => (0..cells).map(|cell| format!("board@c{cell}")).collect(),
        9 => vec![format!("db@c{one}:shared"), format!("board@c{two}:2")],
        10 => vec![format!("db@c{one}")],
        _ => vec!["scope".into(), format!("keep@c{one}")],
    };
    let local = needs.iter().all(|need| !need.contains('@'));
    // Some are at it for longer than a lease.
    let works = if rng.random_ratio(1, 6) { course.lease * 2 } else { rng.random_range(20..400) };
    Errand { needs, works, deaf: rng.random_ratio(1, 4), local }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COURSE: Course =
        Course { cells: 3, replicated: false, millis: 600_000, lease: 6000, seed: 7 };

    #[test]
    fn the_same_seed_is_the_same_plan() {
        assert_eq!(plan(&COURSE), plan(&COURSE));
        assert_ne!(plan(&COURSE), plan(&Course { seed: 8, ..COURSE }));
    }

    #[test]
    fn everything_is_tried_in_time_and_nobody_beyond() {
        let plan = plan(&COURSE);
        assert!(plan.is_sorted_by_key(|planned| planned.at));
        assert!(plan.iter().all(|planned| planned.at < COURSE.millis));
        let has = |of: &dyn Fn(&Fault) -> bool| plan.iter().any(|planned| of(&planned.fault));
        assert!(has(&|it| matches!(it, Fault::KillAgent { away, .. } if *away > COURSE.lease)));
        assert!(has(
            &|it| matches!(it, Fault::PauseAgent { millis, .. } if *millis > COURSE.lease)
        ));
        assert!(has(&|it| matches!(it, Fault::RestartAgent { .. })));
        let is_long = |millis: u64| millis > COURSE.lease + COURSE.lease / 6;
        assert!(has(&|it| matches!(it, Fault::Freeze { millis, .. } if is_long(*millis))));
        for who in [Victims::Wrapper, Victims::Command, Victims::Both] {
            assert!(has(&|it| matches!(it, Fault::Kill { who: whom, .. } if *whom == who)));
            assert!(has(&|it| matches!(it, Fault::Pause { who: whom, millis, .. }
                if *whom == who && *millis > COURSE.lease)));
        }
        for one_way in [true, false] {
            assert!(has(
                &|it| matches!(it, Fault::Net { weather: Weather::Stalled, both, millis, .. }
                if *both != one_way && *millis > COURSE.lease)
            ));
            assert!(has(&|it| matches!(it, Fault::Net { weather: Weather::Cut, both, .. }
                if *both != one_way)));
        }
        assert!(!has(&|it| matches!(it, Fault::Net { from, to, .. } if from == to)));
        for stranding in [
            Stranding::Killed,
            Stranding::Paused,
            Stranding::Net(Weather::Stalled),
            Stranding::Net(Weather::Cut),
        ] {
            assert!(has(&|it| matches!(it, Fault::Strand { how, .. } if *how == stranding)));
        }
        assert!(!has(&|it| matches!(it, Fault::Strand { home, guard, .. } if home == guard)));
    }

    #[test]
    fn what_others_guard_is_lent_unless_it_is_kept() {
        let lent =
            |units: &[&str]| lent(1, &units.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(lent(&["scope@c1", "board/2@c2"]), Some((2, "board/2".into())));
        assert_eq!((lent(&["board/0@c1"]), lent(&["keep@c0", "scope@c1"])), (None, None));
    }

    #[test]
    fn errands_are_of_all_cells_and_some_outlast_a_lease() {
        let mut rng = random(1, 2);
        let errands: Vec<_> = (0..500).map(|_| errand(&COURSE, 1, &mut rng)).collect();
        assert!(errands.iter().any(|it| it.local) && errands.iter().any(|it| !it.local));
        assert!(errands.iter().any(|it| it.works > COURSE.lease));
        assert!(errands.iter().any(|it| it.deaf) && errands.iter().any(|it| !it.deaf));
        for cell in ["@c0", "@c1", "@c2"] {
            assert!(errands.iter().any(|it| it.needs.iter().any(|need| need.contains(cell))));
        }
    }
}
