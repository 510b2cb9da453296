//! The time of a history, which never goes back and does not leap, from what the clock on the wall said.
//!
//! An agent tells when the clock was set, and by how much. Where nobody does (audit logs, former versions, files of others) it shows when the
//! clock goes back. If that takes it to where it was before some leap forward, it had been set forward there: the leap was no time that
//! passed.
//!
//! # Invariants
//! - Times are in the order of the lines, and what happened between two lines takes at least no time.

use std::collections::VecDeque;

use crate::forecast::Estimate;
use crate::history::{History, Use};
use crate::note::Note;

/// A clock that is no more than so many milliseconds behind what it said before was not set back. Lines may be written a
/// little out of order.
const TOLERANCE: u64 = 1000;
/// What is shorter is no leap.
const LEAP: u64 = 60_000;
/// So many leaps are remembered.
const LEAPS: usize = 1000;

/// How many milliseconds it is from one time to another, whatever these are: files may say anything.
pub(crate) fn from_to(from: u64, to: u64) -> i64 {
    let most = i128::from(i64::MAX);
    (i128::from(to) - i128::from(from)).clamp(-most, most) as i64
}

/// Whether a clock that said one thing, and now another, was set back.
pub(crate) fn was_set_back(before: u64, now: u64) -> bool {
    now.saturating_add(TOLERANCE) < before
}

/// What the clock said so far.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    /// What it said last, and the time of the history then.
    wall: u64,
    now: u64,
    /// From when on it was behind the time of the history, and by how much.
    behind: Vec<(u64, i128)>,
    /// Leaps forward of which nobody knows yet whether time passed.
    leaps: VecDeque<Leap>,
    /// From these times on, it is so much earlier than was thought: those leaps were none.
    undone: Vec<(u64, u64)>,
}

/// The clock went forward without a line between.
#[derive(Clone, Copy, Debug)]
struct Leap {
    /// What it said before, and after.
    from: u64,
    to: u64,
    /// The time of the history after it.
    at: u64,
}

impl Clock {
    /// What it said last.
    pub(crate) fn wall(&self) -> u64 {
        self.wall
    }

    fn behind(&self) -> i128 {
        self.behind.last().map_or(0, |(_, by)| *by)
    }

    /// The time of the history when it says this.
    fn time(&self, wall: u64) -> u64 {
        let time = i128::from(wall).saturating_add(self.behind()).max(0);
        u64::try_from(time).unwrap_or(u64::MAX).max(self.now)
    }

    /// It says this now. Returns the time of the history.
    pub(crate) fn read(&mut self, wall: u64, notes: &mut Vec<Note>) -> u64 {
        if was_set_back(self.wall, wall) {
            let by = self.wall - wall;
            self.notice_return(wall, by, notes);
            notes.push(Note::JumpedBack { to: wall, by });
            self.shift(by.into());
        } else {
            let now = self.time(wall);
            if self.now > 0 && wall.saturating_sub(self.wall) >= LEAP {
                self.leaps.push_back(Leap { from: self.wall, to: wall, at: now });
                self.leaps.drain(..self.leaps.len().saturating_sub(LEAPS));
            }
            self.now = now;
        }
        self.wall = wall;
        self.now
    }

    /// It was set by so much, and says this now. Returns the time of the history.
    pub(crate) fn set(&mut self, wall: u64, by: i64, notes: &mut Vec<Note>) -> u64 {
        notes.push(match u64::try_from(by) {
            Ok(by) => Note::JumpedForward { to: wall, by },
            Err(_) => Note::JumpedBack { to: wall, by: by.unsigned_abs() },
        });
        self.shift(-i128::from(by));
        self.wall = wall;
        self.now = self.time(wall);
        self.now
    }

    /// From now on it is behind by so much more.
    fn shift(&mut self, by: i128) {
        self.now = self.now.saturating_add(1);
        self.behind.push((self.now, self.behind().saturating_add(by)));
    }

    /// It was set back: perhaps to where it was before a leap, most of which was no time then.
    fn notice_return(&mut self, wall: u64, by: u64, notes: &mut Vec<Note>) {
        let is_undone = |leap: &Leap| {
            let length = leap.to - leap.from;
            !was_set_back(leap.from, wall)
                && length.saturating_add(TOLERANCE) >= by
                && by > length / 2
        };
        let Some(at) = self.leaps.iter().rposition(is_undone) else { return };
        let leap = self.leaps[at];
        self.leaps.truncate(at);
        let by = by.min(leap.to - leap.from);
        notes.push(Note::JumpedForward { to: leap.to, by });
        self.undone.push((leap.at, by));
    }

    /// Nothing follows: times are as they are now known to have been.
    pub(crate) fn finish(mut self, history: &mut History) {
        let earlier = Earlier::of(std::mem::take(&mut self.undone));
        history.behind = self.behind_in_all(&earlier);
        earlier.correct(history);
    }

    /// From which times on, as they are now known to have been, it was behind, and by how much.
    fn behind_in_all(&self, earlier: &Earlier) -> Vec<(u64, i64)> {
        let set = self.behind.iter().map(|(from, _)| *from);
        let mut froms: Vec<u64> = set.chain(earlier.0.iter().map(|(from, _)| *from)).collect();
        froms.sort_unstable();
        let most = i128::from(i64::MAX);
        let behind = |from: u64| {
            let known = self.behind.partition_point(|(set, _)| *set <= from);
            let behind = self.behind[..known].last().map_or(0, |(_, by)| *by);
            let behind = behind.saturating_sub_unsigned(earlier.by(from));
            (earlier.right(from), behind.clamp(-most, most) as i64)
        };
        froms.into_iter().map(behind).collect()
    }
}

/// From when on it was earlier than was thought, and by how much in all.
struct Earlier(Vec<(u64, u128)>);

impl Earlier {
    /// After leaps that were none.
    fn of(mut undone: Vec<(u64, u64)>) -> Self {
        undone.sort_unstable();
        let mut all = 0u128;
        let summed = undone.into_iter().map(|(from, by)| {
            all = all.saturating_add(by.into());
            (from, all)
        });
        Self(summed.collect())
    }

    fn by(&self, time: u64) -> u128 {
        let known = self.0.partition_point(|(from, _)| *from <= time);
        self.0[..known].last().map_or(0, |(_, by)| *by)
    }

    fn right(&self, time: u64) -> u64 {
        before(time, self.by(time))
    }

    fn correct(&self, history: &mut History) {
        if self.0.is_empty() {
            return;
        }
        let right = |time: &mut u64| *time = self.right(*time);
        for one in &mut history.uses {
            // Until when something lasts counts from its grant on.
            let by = one.granted.map_or(0, |granted| self.by(granted));
            for until in [&mut one.until, &mut one.limit].into_iter().flatten() {
                *until = before(*until, by);
            }
            times_of(one).for_each(right);
        }
        let sizes = history.pools.0.values_mut().flat_map(|pool| &mut pool.sizes);
        sizes.for_each(|(at, _)| right(at));
        history.span.iter_mut().for_each(|(begin, end)| {
            right(begin);
            right(end);
        });
    }
}

/// So many milliseconds before.
fn before(time: u64, by: u128) -> u64 {
    time.saturating_sub(u64::try_from(by).unwrap_or(u64::MAX))
}

/// The times at which something happened to a request.
fn times_of(one: &mut Use) -> impl Iterator<Item = &mut u64> {
    let Use { asked, granted, ended, expected, .. } = one;
    let expected = expected.as_mut().map(|(at, _): &mut (u64, Estimate)| at);
    [asked, granted, ended].into_iter().flatten().chain(expected)
}

#[cfg(test)]
mod tests {
    use crate::join::joined;
    use crate::note::Note;

    const DAY: u64 = 24 * 3_600_000;
    const T: u64 = 20_000 * DAY;

    /// Two uses of a minute each, an hour apart; the first lasts while the clock is set.
    fn story(set: u64, told: bool, back: bool) -> Vec<String> {
        let line = |at: u64, rest: &str| format!("{{\"t\":{at},{rest}}}");
        let ask = |at, r| line(at, &format!("\"k\":\"ask\",\"r\":\"1-{r}\",\"needs\":[\"db\"]"));
        let end = |at, r| line(at, &format!("\"k\":\"end\",\"r\":\"1-{r}\",\"how\":\"released\""));
        let grant = |at: u64, r| {
            let until = at + 60_000;
            line(
                at,
                &format!(
                    "\"k\":\"grant\",\"r\":\"1-{r}\",\"got\":{{\"db\":[\"db\"]}},\"until\":{until}"
                ),
            )
        };
        let mut lines = vec![ask(T, 1), grant(T + 1000, 1)];
        if told {
            lines.push(line(T + 2000 + set, &format!("\"k\":\"clock\",\"by\":{set}")));
        }
        lines.push(end(T + 61_000 + set, 1));
        let rest = if back { 0 } else { set };
        if !told {
            // Otherwise nobody could know how long it lasted.
            lines.push(line(T + 62_000, "\"k\":\"pool\",\"pool\":\"gpu\",\"units\":1"));
        } else if back {
            lines.push(line(T + 62_000, &format!("\"k\":\"clock\",\"by\":-{set}")));
        }
        let later = T + 3_600_000 + rest;
        lines.extend([ask(later, 2), grant(later + 1000, 2), end(later + 61_000, 2)]);
        lines
    }

    #[test]
    fn a_clock_that_went_forward_and_back_changes_no_span() {
        for (set, told, back) in [
            (3650 * DAY, true, true),
            (3650 * DAY, true, false),
            (3650 * DAY, false, true),
            (2 * 3_600_000, false, true),
            (20 * 60_000, true, true),
        ] {
            let lines = story(set, told, back);
            let history = joined(&lines.iter().map(String::as_str).collect::<Vec<_>>());
            let what = format!("{set} {told} {back}: {history:?}");
            for one in &history.uses {
                assert!(one.held().is_some_and(|held| held.abs_diff(60_000) < 5000), "{what}");
                let lasts = one.until.expect("reserved") - one.granted.expect("granted");
                assert_eq!(lasts, 60_000, "{what}");
            }
            let asked = history.uses[1].asked.expect("asked");
            assert!((asked - T).abs_diff(3_600_000) < 5000, "{what}");
            let (rest, shown) = (if back { 0 } else { set }, history.wall(asked));
            assert!(shown.abs_diff(T + 3_600_000 + rest) < 5000, "{what}: {shown}");
            assert_eq!(history.wall(history.uses[0].asked.expect("asked")), T, "{what}");
            let forward = |note: &Note| matches!(note, Note::JumpedForward { .. });
            assert_eq!(history.notes.iter().filter(|note| forward(note)).count(), 1, "{what}");
            let month = history.period(Some(T + 3_700_000 + rest), Some(30 * DAY));
            assert!(month.has(history.uses[0].asked.expect("asked")), "{what}");
        }
    }

    #[test]
    fn a_file_that_is_begun_when_the_clock_was_set_changes_no_span() {
        let line = |at: u64, rest: &str| format!("{{\"t\":{at},{rest}}}");
        for set in [20 * DAY as i64, -20 * (DAY as i64)] {
            let begun = |at| {
                let mark = "\"k\":\"mark\",\"upto\":5,\"of\":\"here\"";
                [line(at, "\"k\":\"begin\",\"v\":1"), line(at, mark)]
            };
            let ask = |at, r| line(at, &format!("\"k\":\"ask\",\"r\":\"1-{r}\",\"needs\":[\"x\"]"));
            let grant = |at, r| {
                line(at, &format!("\"k\":\"grant\",\"r\":\"1-{r}\",\"got\":{{\"x\":[\"x\"]}}"))
            };
            let end = |at, r| line(at, &format!("\"k\":\"end\",\"r\":\"1-{r}\",\"how\":\"left\""));
            let by = |by: i64| format!("\"k\":\"clock\",\"by\":{by}");
            let set_at = (T + 1000).saturating_add_signed(set);
            let before = [&begun(T)[..], &[ask(T, 1), grant(T, 1)]].concat();
            let after = [
                &begun(set_at)[..],
                &[line(set_at, &by(set)), end(set_at + 4000, 1), ask(set_at + 5000, 2)],
                &[grant(set_at + 5000, 2)],
                &begun(T + 7000),
                &[line(T + 7000, &by(-set)), end(T + 8000, 2)],
            ]
            .concat();
            // The first file may be gone.
            for lines in [[&before[..], &after[..]].concat(), after] {
                let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
                let history = joined(&lines);
                let last = history.uses.last().expect("some");
                assert!(
                    last.held().is_some_and(|held| held.abs_diff(2000) < 5),
                    "{set}: {history:?}"
                );
                let first = history.uses[0].held().filter(|_| history.uses.len() > 1);
                assert!(first.is_none_or(|held| held.abs_diff(5000) < 5), "{set}: {history:?}");
                assert!(history.period(None, None).length() < 9000, "{set}: {history:?}");
                let walls = [last.asked, last.ended].map(|at| history.wall(at.expect("known")));
                assert!(walls[0].abs_diff(set_at + 5000) < 5, "{set}: {walls:?}");
                assert!(walls[1].abs_diff(T + 8000) < 5, "{set}: {walls:?}");
            }
        }
    }

    #[test]
    fn a_night_in_which_nothing_happens_is_a_night() {
        let lines = [
            r#"{"t":1000000,"k":"ask","r":"1-1","needs":["db"]}"#,
            r#"{"t":1001000,"k":"grant","r":"1-1","got":{"db":["db"]}}"#,
            r#"{"t":37001000,"k":"end","r":"1-1","how":"released"}"#,
            r#"{"t":36701000,"k":"ask","r":"1-2","needs":["db"]}"#,
        ];
        let history = joined(&lines);
        assert_eq!(history.uses[0].held(), Some(36_000_000), "the clock was set back five minutes");
    }
}
