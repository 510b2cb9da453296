//! Who had a unit before whom.
//!
//! Whoever got a unit of a grant that ended later has used a part of it. If that grant never ended as far as is known, its end was
//! not recorded: it was over when somebody else got what it had.

use std::collections::BTreeMap;

use holdall_wire::{Amount, Name, RequestNo};

use crate::history::Use;
use crate::line::How;

/// Ends the uses of which others got something, and says what is part of what. Returns how many ends were not recorded.
pub(crate) fn end_what_others_got(uses: &mut [Use]) -> usize {
    let own = |at: &usize| uses[*at].granted.is_some() && uses[*at].part_of.is_none();
    let mut granted: Vec<usize> = (0..uses.len()).filter(own).collect();
    // What was over at once was over before whoever got it in the same millisecond.
    granted.sort_by_key(|at| (uses[*at].granted, uses[*at].ended != uses[*at].granted));
    let (mut holders, mut no_end) = (Holders::default(), 0);
    for at in granted {
        if let Some(whole) = holders.whole(uses, at) {
            uses[at].part_of = Some(whole);
            continue;
        }
        for before in holders.replaced_by(&uses[at], at) {
            if uses[before].ended.is_none() {
                (uses[before].ended, uses[before].how) = (uses[at].granted, Some(How::Unknown));
                no_end += 1;
            }
        }
    }
    no_end
}

/// Who got what last.
#[derive(Default)]
struct Holders {
    units: BTreeMap<Name, usize>,
    locks: BTreeMap<Name, Lock>,
}

/// Who got a lock: one alone, and those who share it since.
#[derive(Default)]
struct Lock {
    alone: Option<usize>,
    shared: Vec<usize>,
}

impl Holders {
    /// The grant of which this one is a part, if it is one.
    fn whole(&self, uses: &[Use], at: usize) -> Option<RequestNo> {
        let mut before = units(&uses[at]).filter_map(|unit| self.units.get(unit));
        let whole = before.find(|before| uses[**before].ended > uses[at].granted)?;
        uses[*whole].request
    }

    /// Those who had before what this one has now.
    fn replaced_by(&mut self, one: &Use, at: usize) -> Vec<usize> {
        let mut before: Vec<usize> =
            units(one).filter_map(|unit| self.units.insert(unit.clone(), at)).collect();
        for lock in one.got.iter().filter(is_lock).map(|(lock, _)| lock) {
            let Lock { alone, shared } = self.locks.entry(lock.clone()).or_default();
            before.extend(alone.take());
            let is_alone = |need: &holdall_wire::Need| {
                need.name == *lock && !matches!(need.amount, Amount::Shared)
            };
            if one.needs.iter().any(is_alone) {
                before.append(shared);
                *alone = Some(at);
            } else {
                shared.push(at);
            }
        }
        before
    }
}

/// The units of pools that it got.
fn units(one: &Use) -> impl Iterator<Item = &Name> {
    one.got.iter().filter(|got| !is_lock(got)).flat_map(|(_, units)| units)
}

/// A lock is told by its own name.
fn is_lock((pool, units): &(&Name, &Vec<Name>)) -> bool {
    matches!(&units[..], [only] if only == *pool)
}

#[cfg(test)]
mod tests {
    use crate::Note;
    use crate::history::Period;
    use crate::join::joined;
    use crate::line::How;
    use crate::usage::{By, usage};

    /// What the uses of something were, of which no end is recorded.
    fn uses(grants: &[(&str, &str)]) -> crate::History {
        let mut lines = vec![r#"{"t":0,"k":"pool","pool":"gpu","units":2}"#.to_owned()];
        for ((need, got), n) in grants.iter().zip(1..) {
            lines.push(format!(r#"{{"t":{n}000,"k":"ask","r":"1-{n}","needs":["{need}"]}}"#));
            lines.push(format!(r#"{{"t":{n}000,"k":"grant","r":"1-{n}","got":{{{got}}}}}"#));
        }
        joined(&lines.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn ends(history: &crate::History) -> Vec<Option<u64>> {
        history.uses.iter().map(|one| one.ended).collect()
    }

    #[test]
    fn several_uses_in_a_row_without_an_end_are_all_ended() {
        let (first, both) = (r#""gpu":["gpu/0"]"#, r#""gpu":["gpu/0","gpu/1"]"#);
        let history = uses(&[("gpu", first), ("gpu:2", both), ("gpu", first), ("gpu", first)]);
        assert_eq!(ends(&history), [Some(2000), Some(3000), Some(4000), None]);
        assert_eq!(history.uses[1].how, Some(How::Unknown));
        assert!(history.uses.iter().all(|one| one.part_of.is_none()));
        assert_eq!(history.notes, [Note::NoEnd(3)]);
        let all = Period { from: 0, to: 5000 };
        let used = usage(&history, all, By::Pool, &jiff::tz::TimeZone::UTC);
        assert_eq!(used.rows[0].held, 1000 + 2 * 1000 + 1000 + 1000);
    }

    #[test]
    fn what_was_over_at_once_is_no_part_of_what_was_granted_next() {
        let history = joined(&[
            r#"{"t":0,"k":"pool","pool":"gpu","units":2}"#,
            r#"{"t":1,"k":"ask","r":"1-2","needs":["gpu:2"]}"#,
            r#"{"t":2,"k":"ask","r":"1-1","needs":["gpu"]}"#,
            r#"{"t":5,"k":"grant","r":"1-1","got":{"gpu":["gpu/0"]}}"#,
            r#"{"t":5,"k":"end","r":"1-1","how":"left"}"#,
            r#"{"t":5,"k":"grant","r":"1-2","got":{"gpu":["gpu/0","gpu/1"]}}"#,
            r#"{"t":9,"k":"end","r":"1-2","how":"released"}"#,
        ]);
        assert_eq!(history.uses.iter().map(|one| one.part_of).collect::<Vec<_>>(), [None, None]);
    }

    #[test]
    fn locks_without_an_end_are_over_when_others_could_not_have_had_them() {
        let got = r#""db":["db"]"#;
        let history = uses(&[
            ("db:shared", got),
            ("db:shared", got),
            ("db", got),
            ("db", got),
            ("db:shared", got),
            ("db:shared", got),
        ]);
        let over = [Some(3000), Some(3000), Some(4000), Some(5000), None, None];
        assert_eq!(ends(&history), over);
        assert!(history.notes.contains(&Note::NoEnd(4)), "{:?}", history.notes);
    }
}
