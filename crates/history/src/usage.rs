//! Who used what, and who waited for how long.

use std::collections::BTreeMap;
use std::io;

use holdall_wire::Name;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use serde::Serialize;

use crate::history::{History, Period, Use, covered};
use crate::line::How;
use crate::pools::PoolSeen;
use crate::stats::Waits;

/// What is added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Users.
    User,
    /// Pools and locks.
    Pool,
    /// Units of pools.
    Unit,
    /// Names of requests, or else commands.
    Name,
    /// Days, by the clock on the wall.
    Day,
}

/// What came together under one key. Spans are milliseconds; what is held counts once for each unit.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Row {
    /// The user, pool, unit, name or day; nothing if it is not recorded.
    pub key: Option<String>,
    /// Requests that were made in the period.
    pub requests: usize,
    /// Of these, how many were given up before they were granted.
    pub given_up: usize,
    /// Of these, how many were refused.
    pub refused: usize,
    /// How long units were held in the period.
    pub held: u128,
    /// How long requests waited in the period, granted or not.
    pub waited: u128,
    /// The waits of requests that were made in the period, and granted.
    pub waits: Waits,
    /// The share of the unit-time that there was which was held: of the pool, of the unit, or of all pools. Of a lock, the share
    /// of the time in which anybody held it.
    pub utilisation: Option<f64>,
    /// The longest use that ended in the period, or has not ended.
    pub longest: u64,
}

/// The usage of a period.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Usage {
    /// From when on, in milliseconds since 1970 by the clock on the wall.
    pub from: u64,
    /// Until when.
    pub to: u64,
    /// How long that was, however the clock was set meanwhile.
    pub length: u64,
    /// What came together under each key: days in order, others by how long they were held.
    pub rows: Vec<Row>,
    /// All together.
    pub total: Row,
}

impl Usage {
    /// As a table in CSV: hours held and waited, waits and the longest use in seconds.
    ///
    /// # Errors
    /// Never, as far as we know: it is made in memory.
    pub fn csv(&self) -> io::Result<String> {
        let mut table = csv::Writer::from_writer(Vec::new());
        let columns = [
            "key",
            "requests",
            "given_up",
            "refused",
            "hours_held",
            "hours_waited",
            "wait_mean",
            "wait_p50",
            "wait_p99",
            "wait_longest",
            "utilisation",
            "longest_use",
        ];
        table.write_record(columns)?;
        for row in &self.rows {
            let hours = |millis: u128| format!("{:.4}", millis as f64 / 3_600_000.0);
            let seconds = |millis: Option<u64>| {
                millis.map(|millis| format!("{:.3}", millis as f64 / 1000.0)).unwrap_or_default()
            };
            table.write_record([
                row.key.clone().unwrap_or_default(),
                row.requests.to_string(),
                row.given_up.to_string(),
                row.refused.to_string(),
                hours(row.held),
                hours(row.waited),
                seconds(row.waits.mean.map(|mean| mean.round() as u64)),
                seconds(row.waits.p50),
                seconds(row.waits.p99),
                seconds(row.waits.max),
                row.utilisation.map(|share| format!("{share:.4}")).unwrap_or_default(),
                seconds(Some(row.longest)),
            ])?;
        }
        let bytes = table.into_inner().map_err(csv::IntoInnerError::into_error)?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

#[derive(Default)]
struct Sum {
    row: Row,
    waits: Vec<u64>,
    /// How long units of pools were held: of locks there is no end.
    of_pools: u128,
    /// When a lock was held; by several at a time, if it was shared.
    of_lock: Vec<(u64, u64)>,
    available: u128,
}

impl Sum {
    fn finish(mut self, key: Option<String>) -> Row {
        self.row.key = key;
        self.row.waits = Waits::of(self.waits);
        let share = self.of_pools as f64 / self.available as f64;
        self.row.utilisation = (self.available > 0).then_some(share);
        self.row
    }

    /// What was held of one pool, unit or lock is what it was in use.
    fn of_one(&mut self) {
        self.of_pools += u128::from(covered(std::mem::take(&mut self.of_lock)));
    }

    /// Counts a request, which belongs under this key.
    fn count(&mut self, one: &Use, period: Period) {
        let asked = one.asked.is_some_and(|asked| period.has(asked));
        if asked {
            self.row.requests += 1;
            self.row.refused += usize::from(one.how == Some(How::Refused));
            let given_up = one.granted.is_none() && one.how == Some(How::Withdrawn);
            self.row.given_up += usize::from(given_up);
            self.waits.extend(one.waited());
        }
        if let Some(asked) = one.asked {
            let over = one.granted.or(one.ended).unwrap_or(period.to);
            self.row.waited += u128::from(period.share_of(asked, over));
        }
        if let Some(granted) = one.granted {
            let end = one.ended.unwrap_or(period.to);
            if one.ended.is_none_or(|end| period.has(end)) && granted < period.to {
                self.row.longest = self.row.longest.max(end.saturating_sub(granted));
            }
        }
    }

    fn hold(&mut self, held: &Held<'_>) {
        let sum = u128::from(held.to - held.from) * u128::from(held.units);
        self.row.held += sum;
        self.of_pools += if held.lock { 0 } else { sum };
    }

    /// The same, where everything is of one pool, unit or lock.
    fn hold_of_one(&mut self, held: &Held<'_>) {
        self.hold(held);
        if held.lock {
            self.of_lock.push((held.from, held.to));
        }
    }
}

/// Units that a request held in a period.
struct Held<'a> {
    pool: &'a Name,
    /// Those that are not named have the name of their pool.
    unit: &'a Name,
    units: u32,
    from: u64,
    to: u64,
    lock: bool,
}

/// Adds up what was used in a period. Days are those of a time zone.
pub fn usage(history: &History, period: Period, by: By, zone: &TimeZone) -> Usage {
    let mut sums: BTreeMap<Option<String>, Sum> = BTreeMap::new();
    let mut total = Sum::default();
    let days = if by == By::Day { days(history, period, zone) } else { Vec::new() };
    for one in &history.uses {
        let relevant = one.first() < period.to && one.ended.is_none_or(|end| end >= period.from);
        if !relevant {
            continue;
        }
        total.count(one, period);
        hold(history, one, period, |held| total.hold(held));
        match by {
            By::User | By::Name => {
                let key = if by == By::User { one.user.as_deref() } else { one.label() };
                let sum = sums.entry(key.map(Into::into)).or_default();
                sum.count(one, period);
                hold(history, one, period, |held| sum.hold(held));
            }
            By::Pool | By::Unit => {
                for key in keys(history, one, by) {
                    sums.entry(Some(key.to_string())).or_default().count(one, period);
                }
                hold(history, one, period, |held| {
                    let key = if by == By::Pool { held.pool } else { held.unit };
                    sums.entry(Some(key.to_string())).or_default().hold_of_one(held);
                });
            }
            By::Day => {
                let first = days.partition_point(|(_, span)| span.to <= one.first());
                let touched = days[first..].iter();
                let last = one.ended.unwrap_or(u64::MAX);
                for (day, span) in touched.take_while(|(_, span)| span.from <= last) {
                    let sum = sums.entry(Some(day.clone())).or_default();
                    sum.count(one, *span);
                    hold(history, one, *span, |held| sum.hold(held));
                }
            }
        }
    }
    finish(history, period, by, &days, sums, total)
}

/// The pools or units that a request is counted under.
fn keys(history: &History, one: &Use, by: By) -> Vec<Name> {
    let mut keys: Vec<Name> = match by {
        By::Unit => one.got.values().flatten().cloned().collect(),
        _ if one.granted.is_some() => one.got.keys().cloned().collect(),
        _ => one.needs.iter().map(|need| history.pool_of(need).0).collect(),
    };
    keys.sort();
    keys.dedup();
    keys
}

/// Tells of each unit that a request held in a period.
fn hold(history: &History, one: &Use, period: Period, mut tell: impl FnMut(&Held<'_>)) {
    let Some(granted) = one.granted.filter(|_| one.part_of.is_none()) else { return };
    let (from, to) = (granted.max(period.from), one.ended.unwrap_or(period.to).min(period.to));
    for (pool, units) in one.got.iter().filter(|_| from < to) {
        let lock = history.pools().get(pool).is_some_and(|pool| pool.lock);
        let all = Held { pool, unit: pool, units: 1, from, to, lock };
        units.iter().for_each(|unit| tell(&Held { unit, ..all }));
        if let Some(more) = one.more.get(pool) {
            tell(&Held { units: *more, ..all });
        }
    }
}

fn finish(
    history: &History,
    period: Period,
    by: By,
    days: &[(String, Period)],
    mut sums: BTreeMap<Option<String>, Sum>,
    mut total: Sum,
) -> Usage {
    total.available = unit_time(history, period);
    match by {
        By::User | By::Name => {
            sums.values_mut().for_each(|sum| sum.available = total.available);
        }
        By::Day => {
            for (day, span) in days {
                sums.entry(Some(day.clone())).or_default().available += unit_time(history, *span);
            }
        }
        By::Pool => complete_pools(history, period, &mut sums),
        By::Unit => complete_units(history, period, &mut sums),
    }
    let mut rows: Vec<Row> = sums.into_iter().map(|(key, sum)| sum.finish(key)).collect();
    if by != By::Day {
        rows.sort_by_key(|row| std::cmp::Reverse((row.held, row.waited, row.requests)));
    }
    Usage {
        from: history.wall(period.from),
        to: history.wall(period.to),
        length: period.length(),
        rows,
        total: total.finish(None),
    }
}

/// The units that all pools had, times the milliseconds for which they had them.
fn unit_time(history: &History, period: Period) -> u128 {
    let pools = history.pools().values().filter(|pool| !pool.lock);
    pools.map(|pool| pool.unit_time(period.from, period.to)).sum()
}

/// What there was of each pool. Those that nobody used are the most interesting.
fn complete_pools(history: &History, period: Period, sums: &mut BTreeMap<Option<String>, Sum>) {
    for (name, pool) in history.pools() {
        let available = pool.unit_time(period.from, period.to);
        let key = Some(name.to_string());
        if sums.contains_key(&key) || !pool.lock && available > 0 {
            let sum = sums.entry(key).or_default();
            sum.available = available;
            sum.of_one();
        }
    }
}

/// The same of each unit.
fn complete_units(history: &History, period: Period, sums: &mut BTreeMap<Option<String>, Sum>) {
    let there = |pool: &PoolSeen| !pool.lock && pool.unit_time(period.from, period.to) > 0;
    for (name, pool) in history.pools().iter().filter(|(_, pool)| there(pool)) {
        for unit in pool.all_units(name) {
            sums.entry(Some(unit.to_string())).or_default();
        }
    }
    for sum in sums.values_mut() {
        sum.available = period.length().into();
        sum.of_one();
    }
}

/// The days of a period, each as far as it lies within.
fn days(history: &History, period: Period, zone: &TimeZone) -> Vec<(String, Period)> {
    let zoned = |wall: u64| -> Option<Zoned> {
        Some(Timestamp::from_millisecond(i64::try_from(wall).ok()?).ok()?.to_zoned(zone.clone()))
    };
    let mut days: Vec<(String, Period)> = Vec::new();
    let mut from = period.from;
    while from < period.to {
        let wall = history.wall(from);
        let day = zoned(wall);
        let next = day.as_ref().and_then(|day| day.tomorrow().ok()?.start_of_day().ok());
        let next = next.map(|next| next.timestamp().as_millisecond() as u64);
        let length = next.map_or(86_400_000, |next| next.saturating_sub(wall)).max(1);
        // The clock may be set back within the day.
        let set = history.behind.partition_point(|(at, _)| *at <= from);
        let set = history.behind.get(set).map_or(u64::MAX, |(at, _)| *at);
        let to = (from + length).min(period.to).min(set);
        let name = day.map_or_else(|| "?".into(), |day| day.strftime("%Y-%m-%d").to_string());
        days.push((name, Period { from, to }));
        from = to;
    }
    days
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::join::Joiner;

    const HOUR: u64 = 3_600_000;

    /// Anna holds two of four for two hours, and after an hour of waiting for it a lock for one; Ben gives up.
    fn history() -> History {
        let mut joiner = Joiner::default();
        let line = |hours: u64, rest: &str| format!("{{\"t\":{},{rest}}}", hours * HOUR);
        for line in [
            line(22, r#""k":"pool","pool":"gpu","units":4"#),
            line(22, r#""k":"ask","r":"1-1","u":"anna","n":"x","needs":["gpu:2"]"#),
            line(22, r#""k":"grant","r":"1-1","got":{"gpu":["gpu/0","gpu/1"]}"#),
            line(23, r#""k":"ask","r":"1-2","u":"ben","needs":["gpu:3"]"#),
            line(23, r#""k":"ask","r":"1-3","u":"anna","c":"make","needs":["db"]"#),
            line(24, r#""k":"end","r":"1-1","how":"released""#),
            line(24, r#""k":"grant","r":"1-3","got":{"db":["db"]}"#),
            line(25, r#""k":"end","r":"1-3","how":"released""#),
            line(26, r#""k":"end","r":"1-2","how":"withdrawn""#),
        ] {
            joiner.add(serde_json::from_str(&line).expect("a line"));
        }
        joiner.finish()
    }

    fn rows(by: By) -> Vec<Row> {
        let history = history();
        let period = Period { from: 22 * HOUR, to: 26 * HOUR };
        usage(&history, period, by, &TimeZone::UTC).rows
    }

    fn hours(millis: u128) -> f64 {
        millis as f64 / HOUR as f64
    }

    #[test]
    fn by_user() {
        let rows = rows(By::User);
        let [anna, ben] = &rows[..] else { panic!("{rows:?}") };
        assert_eq!((anna.key.as_deref(), anna.requests), (Some("anna"), 2));
        assert_eq!((hours(anna.held), hours(anna.waited)), (5.0, 1.0));
        assert_eq!(anna.utilisation, Some(4.0 / 16.0), "the lock is not part of the pools");
        assert_eq!((anna.waits.p50, anna.waits.p99), (Some(0), Some(HOUR)));
        assert_eq!(anna.longest, 2 * HOUR);
        assert_eq!((ben.given_up, hours(ben.waited), ben.waits.requests), (1, 3.0, 0));
    }

    #[test]
    fn by_pool_unit_and_name() {
        let pools = rows(By::Pool);
        assert_eq!(pools[0].key.as_deref(), Some("gpu"));
        assert_eq!((pools[0].requests, pools[0].utilisation), (2, Some(4.0 / 16.0)));
        assert_eq!(pools[1].utilisation, Some(0.25), "a lock is one unit");
        let units = rows(By::Unit);
        assert_eq!(units[0].utilisation, Some(0.5));
        let units: Vec<_> =
            units.iter().map(|row| (row.key.as_deref().expect("a name"), row.requests)).collect();
        let used = [("gpu/1", 1), ("gpu/0", 1), ("db", 1)];
        assert!(used.iter().all(|unit| units.contains(unit)), "{units:?}");
        assert_eq!(units[3..], [("gpu/2", 0), ("gpu/3", 0)], "they might as well not be there");
        let names: Vec<_> = rows(By::Name).into_iter().map(|row| row.key).collect();
        assert_eq!(names, [Some("x".into()), Some("make".into()), None]);
    }

    #[test]
    fn what_nobody_used_is_told_and_what_was_refused_is_nothing() {
        let mut history = crate::join::joined(&[
            r#"{"t":0,"k":"pool","pool":"gpu","units":2}"#,
            r#"{"t":0,"k":"pool","pool":"seat","units":2}"#,
            r#"{"t":0,"k":"pool","pool":"db","units":null}"#,
            r#"{"t":1,"k":"ask","r":"1-1","needs":["gpu"]}"#,
            r#"{"t":1,"k":"grant","r":"1-1","got":{"gpu":["gpu/1"]}}"#,
            r#"{"t":2,"k":"ask","needs":["gpu/7","other:60000","more:9"]}"#,
            r#"{"t":9,"k":"end","r":"1-1","how":"released"}"#,
        ]);
        assert_eq!(history.notes, [], "nothing is known of what there is not");
        let period = Period { from: 0, to: 10 };
        let keys = |history: &History, by| {
            let used = usage(history, period, by, &TimeZone::UTC);
            assert_eq!(used.total.utilisation, Some(8.0 / 40.0));
            used.rows.into_iter().map(|row| row.key.expect("a name")).collect::<Vec<_>>()
        };
        let [used, rest @ ..] = &keys(&history, By::Pool)[..] else { panic!("nothing") };
        let mut rest: Vec<&str> = rest.iter().map(String::as_str).collect();
        rest.sort_unstable();
        assert_eq!((&**used, &rest[..]), ("gpu", &["more", "other", "seat"][..]));
        assert_eq!(keys(&history, By::Unit), ["gpu/1", "gpu/0"]);
        // An agent knows the others by name.
        let names = ["red", "blue"].map(|name| name.parse().expect("a name")).to_vec();
        history.know_pools([("seat".parse().expect("a name"), Some(names))]);
        assert_eq!(keys(&history, By::Unit), ["gpu/1", "blue", "gpu/0", "red"]);
        let remove = ["red".parse().expect("a name")].into();
        let changes = crate::Changes { remove, ..crate::Changes::default() };
        let replay = crate::Replay::of(&history, period, &changes).expect("it is there");
        let capacities = replay.trace.pools.iter().map(|pool| pool.capacity);
        assert_eq!(capacities.collect::<Vec<_>>(), [1, 2, 1], "db, gpu, seat");
    }

    #[test]
    fn a_pool_that_was_not_there_any_more_has_no_units() {
        let history = crate::join::joined(&[
            r#"{"t":0,"k":"pool","pool":"old","units":2}"#,
            r#"{"t":1,"k":"ask","r":"1-1","needs":["old"]}"#,
            r#"{"t":1,"k":"grant","r":"1-1","got":{"old":["old/1"]}}"#,
            r#"{"t":2,"k":"end","r":"1-1","how":"released"}"#,
            r#"{"t":5,"k":"pool","pool":"old","units":0}"#,
            r#"{"t":9,"k":"ask","r":"1-2","needs":["db"]}"#,
        ]);
        let units =
            |from, to| usage(&history, Period { from, to }, By::Unit, &TimeZone::UTC).rows.len();
        assert_eq!((units(0, 4), units(6, 10)), (2, 0));
    }

    #[test]
    fn a_part_of_a_reservation_is_held_by_the_reservation_only() {
        let history = crate::join::joined(&[
            r#"{"t":0,"k":"pool","pool":"gpu","units":2}"#,
            r#"{"t":0,"k":"ask","r":"1-1","u":"anna","needs":["gpu:2"]}"#,
            r#"{"t":0,"k":"grant","r":"1-1","got":{"gpu":["gpu/0","gpu/1"]}}"#,
            r#"{"t":2,"k":"ask","r":"1-2","u":"anna","needs":["gpu"],"in":"1-1"}"#,
            r#"{"t":2,"k":"grant","r":"1-2","got":{"gpu":["gpu/1"]}}"#,
            r#"{"t":8,"k":"end","r":"1-2","how":"released"}"#,
            r#"{"t":10,"k":"end","r":"1-1","how":"released"}"#,
        ]);
        for by in [By::User, By::Pool, By::Day] {
            let used = usage(&history, Period { from: 0, to: 10 }, by, &TimeZone::UTC);
            let told = (used.rows[0].requests, used.rows[0].held, used.rows[0].utilisation);
            assert_eq!(told, (2, 20, Some(1.0)), "{by:?}");
        }
    }

    #[test]
    fn a_lock_is_in_use_while_anybody_holds_it_however_many_share_it() {
        let lines = (1..=3).flat_map(|n| {
            let of = format!(r#""r":"1-{n}""#);
            let line = move |at, rest| (at, format!("{{\"t\":{at},{of},{rest}}}"));
            [
                (0, r#""k":"ask","u":"anna","needs":["s:shared"]"#),
                (n * HOUR, r#""k":"grant","got":{"s":["s"]}"#),
                ((n + 1) * HOUR + HOUR / 2, r#""k":"end","how":"released""#),
            ]
            .map(|(at, rest)| line(at, rest))
        });
        let mut lines: Vec<(u64, String)> = lines.collect();
        lines.sort_by_key(|(at, _)| *at);
        let mut joiner = Joiner::default();
        for (_, line) in &lines {
            joiner.add(serde_json::from_str(line).expect("a line"));
        }
        let (history, period) = (joiner.finish(), Period { from: 0, to: 5 * HOUR });
        for by in [By::Pool, By::Unit] {
            let told = usage(&history, period, by, &TimeZone::UTC);
            assert_eq!(told.rows[0].utilisation, Some(3.5 / 5.0), "{by:?}");
            assert_eq!(hours(told.rows[0].held), 4.5, "each holder counts");
        }
        let changes = crate::Changes::default();
        let replay = crate::Replay::of(&history, period, &changes).expect("a replay");
        let played = crate::whatif::played(&replay, &crate::served()).expect("played");
        let summary = crate::whatif::Summary::of(&replay, &played.fates);
        // There they are granted when they are asked for.
        assert_eq!(summary.pools["s"].utilisation, Some(1.5 / 5.0));
    }

    #[test]
    fn days_end_at_midnight() {
        let days = rows(By::Day);
        let [first, second] = &days[..] else { panic!("{days:?}") };
        assert_eq!(first.key.as_deref(), Some("1970-01-01"));
        assert_eq!((first.requests, hours(first.held), hours(first.waited)), (3, 4.0, 2.0));
        assert_eq!((second.requests, hours(second.held), hours(second.waited)), (0, 1.0, 2.0));
        assert_eq!((first.utilisation, second.utilisation), (Some(0.5), Some(0.0)));
        assert_eq!((first.longest, second.longest), (0, 2 * HOUR), "both end on the second");
    }
}
