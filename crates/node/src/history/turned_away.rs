//! Those who were turned away at the door: a few of each user in a minute are told, the rest is counted. It costs nothing to
//! be turned away, and the history of everybody else must not have to go for it.

use std::collections::BTreeMap;

use holdall_history::{Line, What};
use holdall_wire::Ask;

/// So many of a user are told in a minute.
const TOLD: u32 = 10;
const MINUTE: u64 = 60_000;

#[derive(Debug, Default)]
pub(super) struct TurnedAway {
    /// Which minute it is, and how many of each user were told in it.
    minute: u64,
    told: BTreeMap<Box<str>, u32>,
    /// How many were not told, and when the last one came.
    rest: u64,
    last: u64,
}

impl TurnedAway {
    /// What is to be told when somebody is turned away.
    pub(super) fn lines(&mut self, at: u64, user: &str, ask: &Ask) -> Vec<Line> {
        let mut lines = Vec::new();
        if self.minute != at / MINUTE {
            lines.extend(self.rest());
            (self.minute, self.told) = (at / MINUTE, BTreeMap::new());
        }
        self.last = at;
        let told = self.told.entry(user.into()).or_default();
        if *told < TOLD {
            *told += 1;
            lines.push(Line::turned_away(at, user, ask));
        } else {
            self.rest += 1;
        }
        lines
    }

    /// That some were not told, if so.
    pub(super) fn rest(&mut self) -> Option<Line> {
        let lines = std::mem::take(&mut self.rest);
        (lines > 0).then_some(Line { at: self.last, what: What::Gap { lines } })
    }
}

#[cfg(test)]
mod tests {
    use holdall_wire::{From, Lasting};

    use super::*;

    #[test]
    fn of_many_who_are_turned_away_a_few_are_told_and_the_rest_is_counted() {
        let ask = Ask {
            needs: Vec::new(),
            now: false,
            lasting: Lasting::Connection,
            from: From::default(),
            within: None,
            limit: None,
            part: None,
        };
        let mut all = TurnedAway::default();
        let told: usize = (0..1000).map(|at| all.lines(at, "ben", &ask).len()).sum();
        assert_eq!(told, 10);
        assert_eq!(all.lines(1000, "anna", &ask).len(), 1, "others are told all the same");
        let next = all.lines(MINUTE, "ben", &ask);
        assert!(matches!(next[0].what, What::Gap { lines: 990 }), "{next:?}");
        assert_eq!((next.len(), all.rest()), (2, None));
    }
}
