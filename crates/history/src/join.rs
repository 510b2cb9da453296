//! From lines to requests: what belongs to one request is brought together.

use std::collections::BTreeMap;
use std::sync::Arc;

use holdall_wire::RequestNo;

use crate::clock::Clock;
use crate::forecast::Estimate;
use crate::history::{History, Use};
use crate::holders;
use crate::line::{Ask, Expect, Grant, How, Line, What};
use crate::note::Note;

/// Lines are put in one after another.
#[derive(Debug, Default)]
pub(crate) struct Joiner {
    history: History,
    /// Requests that have not ended, by number.
    open: BTreeMap<RequestNo, usize>,
    /// Texts that have been seen; most come again and again.
    texts: BTreeMap<String, Arc<str>>,
    clock: Clock,
    unknown: usize,
    gaps: u64,
    no_ask: usize,
}

impl Joiner {
    pub(crate) fn add(&mut self, line: Line) {
        // Of the beginning of a file and of marks nothing follows, and if the clock was set before they were written, that is told after
        // them.
        if matches!(line.what, What::Begin { .. } | What::Mark(_)) {
            return;
        }
        let now = match line.what {
            What::Clock { by } => self.clock.set(line.at, by, &mut self.history.notes),
            _ => self.clock.read(line.at, &mut self.history.notes),
        };
        let begin = self.history.span.map_or(now, |(begin, _)| begin);
        self.history.span = Some((begin, now));
        match line.what {
            What::Begin { .. } | What::Mark(_) | What::Clock { .. } => {}
            What::Ask(ask) => self.ask(now, ask),
            What::Grant(grant) => self.grant(now, grant),
            What::End { r, how, .. } => self.end(now, r, how),
            What::Pool { pool, units } => self.history.pools.tell(now, pool, units),
            What::Gap { lines } => self.gaps = self.gaps.saturating_add(lines.max(1)),
            What::Expect(expect) => self.expect(now, &expect),
            What::Other => self.unknown += 1,
        }
    }

    /// How many requests there are.
    pub(crate) fn requests(&self) -> usize {
        self.history.uses.len()
    }

    fn text(&mut self, text: Option<String>) -> Option<Arc<str>> {
        let text = text?;
        if let Some(known) = self.texts.get(&text) {
            return Some(known.clone());
        }
        let shared: Arc<str> = text.as_str().into();
        self.texts.insert(text, shared.clone());
        Some(shared)
    }

    fn ask(&mut self, now: u64, ask: Ask) {
        let Ask { r, user, name, command, needs, part_of, service, now: _ } = ask;
        let turned_away = r.is_none();
        let one = Use {
            request: r,
            user: self.text(user),
            name: self.text(name),
            command: self.text(command),
            needs,
            asked: Some(now),
            ended: turned_away.then_some(now),
            how: turned_away.then_some(How::Refused),
            service,
            part_of,
            ..Use::default()
        };
        if let Some(request) = r {
            self.open.insert(request, self.history.uses.len());
        }
        self.history.uses.push(one);
    }

    /// The request of this number; one of which nothing is known was made before.
    fn known(&mut self, request: RequestNo) -> usize {
        if let Some(at) = self.open.get(&request) {
            return *at;
        }
        self.no_ask += 1;
        self.history.uses.push(Use { request: Some(request), ..Use::default() });
        self.open.insert(request, self.history.uses.len() - 1);
        self.history.uses.len() - 1
    }

    fn grant(&mut self, now: u64, grant: Grant) {
        let at = self.known(grant.r);
        for (pool, units) in &grant.got {
            self.history.pools.granted(pool, units);
        }
        if self.history.uses[at].granted.is_some() {
            return; // It was restored by another agent, and goes on.
        }
        let (user, at_wall) = (self.text(grant.user), self.clock.wall());
        let one = &mut self.history.uses[at];
        // Whose it is is told here, too, for those that were made before the history begins.
        one.user = one.user.take().or(user);
        one.granted = Some(now);
        let in_history = |wall: u64| now.saturating_add(wall.saturating_sub(at_wall));
        one.until = grant.until.map(in_history);
        one.limit = grant.limit.map(in_history);
        (one.got, one.more) = (grant.got, grant.more);
    }

    fn expect(&mut self, now: u64, expect: &Expect) {
        let Expect { r, half, nine, .. } = expect;
        if let Some(at) = self.open.get(r) {
            let estimate = Estimate { half: *half, nine: *nine };
            self.history.uses[*at].expected.get_or_insert((now, estimate));
        }
    }

    fn end(&mut self, now: u64, request: RequestNo, how: How) {
        let at = match self.open.get(&request) {
            Some(at) => *at,
            None if matches!(how, How::Withdrawn | How::Refused) => self.known(request),
            // Of a use of which not even the units are known, nothing can be said.
            None => return self.no_ask += 1,
        };
        let one = &mut self.history.uses[at];
        one.ended = Some(now);
        // What is told first is why; what follows is when.
        one.how = one.how.or(Some(how));
        if !matches!(how, How::Forced | How::Overrun) {
            self.open.remove(&request);
        }
    }

    /// Nothing follows.
    pub(crate) fn finish(mut self) -> History {
        let clock = std::mem::take(&mut self.clock);
        clock.finish(&mut self.history);
        let no_end = holders::end_what_others_got(&mut self.history.uses);
        let uses = &mut self.history.uses;
        let latest = uses.iter().filter_map(|one| one.request).max().map_or(0, |last| last.0 >> 32);
        let mut forgotten = 0;
        for one in uses.iter_mut() {
            let old = one.request.is_some_and(|request| request.0 >> 32 < latest);
            if old && one.granted.is_none() && one.ended.is_none() {
                // How long it waited is not known.
                (one.ended, one.how) = (one.asked, Some(How::Unknown));
                forgotten += 1;
            }
        }
        // What was refused may not be there at all.
        for one in self.history.uses.iter().filter(|one| one.how != Some(How::Refused)) {
            self.history.pools.wanted(&one.needs);
        }
        let counted = [
            (self.unknown, Note::Unknown(self.unknown)),
            (usize::from(self.gaps > 0), Note::Gaps(self.gaps)),
            (no_end, Note::NoEnd(no_end)),
            (self.no_ask, Note::NoAsk(self.no_ask)),
            (forgotten, Note::Forgotten(forgotten)),
        ];
        self.history
            .notes
            .extend(counted.into_iter().filter(|(n, _)| *n > 0).map(|(_, note)| note));
        self.history.notes.extend(self.history.pools.notes());
        self.history
    }
}

/// The history that some lines are.
#[cfg(test)]
pub(crate) fn joined(lines: &[&str]) -> History {
    let mut joiner = Joiner::default();
    for line in lines {
        joiner.add(serde_json::from_str(line).expect("a line"));
    }
    joiner.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_from_asking_to_its_end() {
        let history = joined(&[
            r#"{"t":1000,"k":"ask","r":"1-1","u":"anna","n":"x","needs":["gpu:2"]}"#,
            r#"{"t":3000,"k":"grant","r":"1-1","got":{"gpu":["gpu/0","gpu/1"]}}"#,
            r#"{"t":9000,"k":"end","r":"1-1","how":"forced"}"#,
            r#"{"t":9500,"k":"end","r":"1-1","how":"killed"}"#,
            r#"{"t":9600,"k":"ask","needs":["gpu:9"]}"#,
        ]);
        let [one, other] = &history.uses[..] else { panic!("{history:?}") };
        assert_eq!(
            (one.waited(), one.held(), one.how),
            (Some(2000), Some(6500), Some(How::Forced))
        );
        assert_eq!((other.how, other.held()), (Some(How::Refused), None));
        assert_eq!(
            history.notes,
            [Note::Guessed { pool: "gpu".parse().expect("a name"), units: 2 }]
        );
    }

    #[test]
    fn a_clock_that_was_set_back_does_not_shorten_anything() {
        let history = joined(&[
            r#"{"t":1000000,"k":"ask","r":"1-1","needs":["db"]}"#,
            r#"{"t":1001000,"k":"grant","r":"1-1","got":{"db":["db"]}}"#,
            r#"{"t":5000,"k":"ask","r":"1-2","needs":["db"]}"#,
            r#"{"t":7000,"k":"end","r":"1-1","how":"released"}"#,
            r#"{"t":7000,"k":"grant","r":"1-2","got":{"db":["db"]}}"#,
        ]);
        assert_eq!(history.notes, [Note::JumpedBack { to: 5000, by: 996_000 }]);
        assert_eq!(history.uses[0].held(), Some(2001 - 1), "2 s after the clock was set");
        assert_eq!(history.uses[1].waited(), Some(2000 - 1));
        let asked = history.uses[1].asked.expect("asked");
        assert!(history.wall(asked).abs_diff(5000) <= 1 && history.wall(1_000_000) == 1_000_000);
        let period = history.period(Some(8000), Some(2500));
        assert!(period.to >= 1_003_000 && period.length() == 2500);
    }

    #[test]
    fn whatever_the_clock_says_and_whatever_is_missing_it_can_be_counted() {
        let mut joiner = Joiner::default();
        let end = r#"{"t":253402300799999,"k":"gap","lines":18446744073709551615}"#;
        let begin = r#"{"t":5,"k":"gap","lines":1}"#;
        let [end, begin] = [end, begin].map(|line| serde_json::from_str(line).expect("a line"));
        // More often than there is time for.
        for _ in 0..80_000 {
            let (end, begin): (&Line, &Line) = (&end, &begin);
            joiner.add(end.clone());
            joiner.add(begin.clone());
        }
        let history = joiner.finish();
        let back = history.notes.iter().filter(|note| matches!(note, Note::JumpedBack { .. }));
        assert_eq!(back.count(), 80_000);
        assert_eq!(history.notes.last(), Some(&Note::Gaps(u64::MAX)));
        assert_eq!(history.period(Some(u64::MAX), Some(9)).to, u64::MAX);
    }

    #[test]
    fn ends_that_are_missing_are_told_and_parts_are_no_use_of_their_own() {
        let history = joined(&[
            r#"{"t":1,"k":"grant","r":"1-1","got":{"gpu":["gpu/0","gpu/1"]},"u":"anna"}"#,
            r#"{"t":2,"k":"ask","r":"1-2","needs":["gpu"]}"#,
            r#"{"t":3,"k":"grant","r":"1-2","got":{"gpu":["gpu/1"]}}"#,
            r#"{"t":4,"k":"end","r":"1-2","how":"released"}"#,
            r#"{"t":5,"k":"end","r":"1-1","how":"expired"}"#,
            r#"{"t":6,"k":"ask","r":"1-3","needs":["gpu"]}"#,
            r#"{"t":6,"k":"grant","r":"1-3","got":{"gpu":["gpu/0"]}}"#,
            r#"{"t":7,"k":"ask","r":"1-5","needs":["gpu"]}"#,
            r#"{"t":8,"k":"ask","r":"2-4","needs":["gpu"]}"#,
            r#"{"t":9,"k":"grant","r":"2-4","got":{"gpu":["gpu/0"]}}"#,
        ]);
        assert_eq!(history.uses[0].user.as_deref(), Some("anna"), "though nobody heard it ask");
        assert_eq!(history.uses[1].part_of, Some(RequestNo((1 << 32) | 1)));
        assert_eq!((history.uses[2].ended, history.uses[2].how), (Some(9), Some(How::Unknown)));
        for note in [Note::NoEnd(1), Note::NoAsk(1), Note::Forgotten(1)] {
            assert!(history.notes.contains(&note), "{note}: {:?}", history.notes);
        }
    }
}
