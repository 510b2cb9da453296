//! A month of a lab that does not exist: who asks for which boards, when, and for how long.
//!
//! Twenty boards, four oscilloscopes and six licences, which people use by day and jobs by night. What comes out is a workload
//! in the format of a history (`docs/history.md`), in which nothing is granted yet: played through a protocol, it becomes a history with waits.

#![forbid(unsafe_code)]

/// When it begins, in milliseconds since 1970: Monday, the 1st of June 2026, in UTC.
pub const BEGIN: u64 = 1_780_272_000_000;

const MINUTE: f64 = 60_000.0;
const HOUR: f64 = 60.0 * MINUTE;

/// Something that people do again and again.
struct Habit {
    name: &'static str,
    users: &'static [&'static str],
    needs: &'static str,
    /// Half of the uses take less.
    median: f64,
    /// How much they differ: the standard deviation of the logarithm.
    spread: f64,
    /// How many there are on a working day.
    a_day: f64,
    when: When,
}

enum When {
    /// From eight to six on working days, with a break at noon.
    Office,
    /// From ten in the evening to three, every day.
    Night,
    /// At any time, half as often at weekends.
    Always,
}

const HABITS: [Habit; 6] = [
    Habit {
        name: "smoke",
        users: &["ci"],
        needs: r#""board""#,
        median: 9.0 * MINUTE,
        spread: 0.4,
        a_day: 130.0,
        when: When::Always,
    },
    Habit {
        name: "debug",
        users: &["anna", "ben", "chris", "dora", "emil", "fay"],
        needs: r#""board","scope""#,
        median: 40.0 * MINUTE,
        spread: 0.8,
        a_day: 22.0,
        when: When::Office,
    },
    Habit {
        name: "regress",
        users: &["ci", "anna", "gus"],
        needs: r#""board:2","licence""#,
        median: 1.4 * HOUR,
        spread: 0.5,
        a_day: 32.0,
        when: When::Office,
    },
    Habit {
        name: "nightly",
        users: &["ci"],
        needs: r#""board:4","licence""#,
        median: 2.2 * HOUR,
        spread: 0.3,
        a_day: 15.0,
        when: When::Night,
    },
    Habit {
        name: "soak",
        users: &["hana", "ivo"],
        needs: r#""board""#,
        median: 11.0 * HOUR,
        spread: 0.3,
        a_day: 6.0,
        when: When::Always,
    },
    Habit {
        name: "release",
        users: &["jo"],
        needs: r#""board:6","licence:2""#,
        median: 2.0 * HOUR,
        spread: 0.4,
        a_day: 2.0,
        when: When::Office,
    },
];

/// The lines of a workload of so many days.
pub fn workload(seed: u64, days: u32) -> Vec<String> {
    let mut random = Random(seed);
    let mut asks = Vec::new();
    for habit in &HABITS {
        for hour in 0..u64::from(days) * 24 {
            let mut rate = habit.a_day * habit.when.share(hour);
            // As many as fall into an hour if each comes by itself (Poisson).
            loop {
                rate += random.fraction().ln();
                if rate < 0.0 {
                    break;
                }
                let at = BEGIN + ((hour as f64 + random.fraction()) * HOUR) as u64;
                let user = habit.users[random.below(habit.users.len())];
                let length = habit.median * (habit.spread * random.normal()).exp();
                asks.push((at, user, habit, length as u64));
            }
        }
    }
    asks.sort_by_key(|(at, user, habit, length)| (*at, *user, habit.name, *length));
    let mut lines = vec![format!(r#"{{"t":{BEGIN},"k":"begin","v":1}}"#)];
    for (pool, units) in [("board", 20), ("scope", 4), ("licence", 6)] {
        lines.push(format!(r#"{{"t":{BEGIN},"k":"pool","pool":"{pool}","units":{units}}}"#));
    }
    for ((at, user, habit, length), number) in asks.into_iter().zip(1..) {
        let Habit { name, needs, .. } = habit;
        lines.push(format!(
            r#"{{"t":{at},"k":"ask","r":"1-{number}","u":"{user}","n":"{name}","needs":[{needs}],"for":{length}}}"#
        ));
    }
    lines
}

impl When {
    /// The share of a working day's requests that fall into an hour, counted from a Monday.
    fn share(&self, hour: u64) -> f64 {
        let (of_day, weekend) = (hour % 24, hour / 24 % 7 >= 5);
        match (self, of_day) {
            (Self::Office, _) if weekend => 0.0,
            (Self::Office, 12) => 0.05,
            (Self::Office, 8..18) => 0.95 / 9.0,
            (Self::Night, 22 | 23 | 0 | 1 | 2) => 0.2,
            (Self::Always, _) => (if weekend { 0.5 } else { 1.0 }) / 24.0,
            _ => 0.0,
        }
    }
}

/// Random numbers, the same for the same seed (`SplitMix64`).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let n = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        n ^ (n >> 31)
    }

    /// Above 0, and at most 1.
    fn fraction(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.next()) * n as u128) >> 64) as usize
    }

    /// Normally distributed, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.fraction().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.fraction()).cos()
    }
}
