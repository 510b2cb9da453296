//! Made-up journals: each kind of violation is found, and nothing else.

use super::*;

const LEASE: u64 = 6000;

/// A journal that is being made up. Each line is a millisecond after the one before.
#[derive(Default)]
struct Tale {
    entries: Vec<Entry>,
    at: u64,
}

impl Tale {
    fn then(mut self, what: What) -> Self {
        self.at += 1;
        self.entries.push(Entry { at: self.at, what });
        self
    }

    fn later(mut self, millis: u64) -> Self {
        self.at += millis;
        self
    }

    fn asked(self, run: RunNo, needs: &str) -> Self {
        self.then(What::Asked { run, home: 0, needs: needs.into() })
    }

    fn began(self, run: RunNo, units: &[(&str, u64)]) -> Self {
        self.began_as(run, units, false)
    }

    fn began_as(self, run: RunNo, units: &[(&str, u64)], shared: bool) -> Self {
        let units =
            units.iter().map(|(unit, fence)| ((*unit).to_owned(), Unit { fence: *fence, shared }));
        self.then(What::Began { run, pid: 7, units: units.collect() })
    }

    fn wrote(self, run: RunNo, unit: &str, fence: u64, accepted: bool) -> Self {
        self.then(What::Wrote { run, unit: unit.into(), fence, accepted })
    }

    fn ended(self, run: RunNo) -> Self {
        self.then(What::Ended { run }).then(What::Gone { run }).done(run, 0)
    }

    fn gone(self, run: RunNo, status: i32) -> Self {
        self.then(What::Gone { run }).done(run, status)
    }

    fn done(self, run: RunNo, status: i32) -> Self {
        self.then(What::Done { run, status, said: "so it said".into() })
    }

    fn paused(self, run: RunNo) -> Self {
        self.then(What::Paused { run, who: Who::Wrapper })
    }

    fn resumed(self, run: RunNo) -> Self {
        self.then(What::Resumed { run, who: Who::Wrapper })
    }

    fn killed(self, run: RunNo, who: Who) -> Self {
        self.then(What::Killed { run, who })
    }

    /// Something that spans cells, and the end.
    fn judged(self) -> Judged {
        let spanning = [("a@c0", 1000), ("a@c1", 1000)];
        let told = self.asked(100, "a a@c1").began(100, &spanning).ended(100).then(What::Calm);
        let left = |cell| What::Left { cell, held: 0, waiting: 0 };
        judge(&told.then(left(0)).then(left(1)).entries, 2, LEASE)
    }

    fn judged_fine(self) -> Figures {
        let judged = self.judged();
        assert_eq!(judged.wrong, Vec::<String>::new());
        judged.figures
    }

    /// One thing is wrong, and these words say what.
    fn judged_wrong(self, words: &str) {
        let judged = self.judged();
        assert!(matches!(&judged.wrong[..], [one] if one.contains(words)), "{:?}", judged.wrong);
    }
}

fn tale() -> Tale {
    Tale::default()
}

#[test]
fn what_is_as_it_should_be_is_fine() {
    let figures = tale()
        .asked(1, "x")
        .later(500)
        .began(1, &[("x@c0", 5)])
        .wrote(1, "x@c0", 5, true)
        .ended(1)
        .asked(2, "x")
        .began(2, &[("x@c0", 6)])
        .wrote(2, "x@c0", 6, true)
        .ended(2)
        .judged_fine();
    assert_eq!((figures.runs, figures.grants, figures.spanning, figures.remote), (3, 3, 1, 1));
    assert_eq!((figures.writes, figures.longest_wait), (2, 501));
}

#[test]
fn two_at_a_time_are_found() {
    let both = || tale().asked(1, "x").asked(2, "x").began(1, &[("x@c0", 5)]);
    both()
        .began(2, &[("x@c0", 6)])
        .ended(1)
        .ended(2)
        .judged_wrong("x@c0 is used by run 1 and by run 2");
    both().ended(1).began(2, &[("x@c0", 6)]).ended(2).judged_fine();
    both().began(2, &[("y@c0", 6)]).ended(1).ended(2).judged_fine();
}

#[test]
fn those_who_share_may_be_several() {
    let both = || tale().asked(1, "x:shared").asked(2, "x").began_as(1, &[("x@c0", 5)], true);
    both().began_as(2, &[("x@c0", 5)], true).ended(1).ended(2).judged_fine();
    both().began(2, &[("x@c0", 6)]).ended(1).ended(2).judged_wrong("is used by run 1 and by run 2");
}

#[test]
fn whoever_was_stopped_not_long_ago_is_excused() {
    let first = || tale().asked(1, "x@c1").asked(2, "x").began(1, &[("x@c1", 5)]);
    let paused = first().paused(1).began(2, &[("x@c1", 6)]).ended(2).resumed(1).gone(1, 70);
    assert_eq!(paused.judged_fine().overlaps_excused, 1);
    let just_now = first().paused(1).resumed(1).later(LEASE - 10).began(2, &[("x@c1", 6)]);
    assert_eq!(just_now.ended(2).gone(1, 70).judged_fine().overlaps_excused, 1);
    let long_ago = first().paused(1).resumed(1).later(LEASE + 10).began(2, &[("x@c1", 6)]);
    long_ago.ended(2).gone(1, 70).judged_wrong("x@c1 is used by run 1 and by run 2");
    let afterwards = first().began(2, &[("x@c1", 6)]).paused(1).ended(2).gone(1, 70);
    afterwards.judged_wrong("x@c1 is used by run 1 and by run 2");
    let other = first().paused(3).began(2, &[("x@c1", 6)]).ended(2).gone(1, 70);
    let judged = other.judged();
    assert!(judged.wrong.iter().any(|wrong| wrong.contains("is used by run 1 and by run 2")));
}

#[test]
fn whoever_begins_late_was_stopped_before() {
    let before = || tale().asked(1, "x@c1").asked(2, "x").began(2, &[("x@c1", 6)]).ended(2);
    before().began(1, &[("x@c1", 5)]).ended(1).judged_wrong("begins with fence 5 on x@c1, after 6");
    before().began(1, &[("x@c1", 6)]).ended(1).judged_wrong("begins with fence 6 on x@c1, after 6");
    let late = before().paused(1).resumed(1).began(1, &[("x@c1", 5)]).gone(1, 70).judged_fine();
    assert_eq!(late.late_excused, 1);
}

#[test]
fn a_write_out_of_order_is_never_excused() {
    let late = |accepted| {
        let told = tale().asked(1, "x@c1").asked(2, "x").began(1, &[("x@c1", 5)]).paused(1);
        let told = told.began(2, &[("x@c1", 6)]).wrote(2, "x@c1", 6, true).ended(2).resumed(1);
        told.wrote(1, "x@c1", 5, accepted).gone(1, 70)
    };
    assert_eq!(late(false).judged_fine().refused_writes, 1);
    late(true).judged_wrong("accepted with fence 5, after one with 6");
}

#[test]
fn everybody_is_served_or_said_to_be_killed() {
    tale().asked(1, "x").judged_wrong("run 1 at c0 for x still waits");
    let told = tale().asked(1, "x").began(1, &[("x@c0", 5)]).then(What::Gone { run: 1 });
    told.judged_wrong("run 1 at c0 for x never ended");
    tale().asked(1, "x").done(1, 75).judged_wrong("ended with 75");
    let began = || tale().asked(1, "x").began(1, &[("x@c0", 5)]);
    began().gone(1, 0).judged_wrong("ended with 0");
    began().gone(1, -9).judged_wrong("to which nothing was done, ended with -9");
    began().killed(1, Who::Wrapper).gone(1, -9).judged_fine();
    began().gone(1, 137).judged_wrong("ended with 137");
    began().killed(1, Who::Wrapper).gone(1, 137).judged_wrong("ended with 137");
    began().killed(1, Who::Command).gone(1, 137).judged_fine();
    began().ended(1).began(1, &[("x@c0", 6)]).judged_wrong("began twice");
}

#[test]
fn a_lease_is_lost_only_with_something_of_others() {
    let began = |needs: &str| tale().asked(1, needs).began(1, &[("x@c0", 5)]).gone(1, 70);
    began("x").judged_wrong("with units of its own cell");
    assert_eq!(began("x y@c1").judged_fine().taken_away, 1);
}

#[test]
fn no_agent_is_out_of_reach_when_all_is_well() {
    assert_eq!(tale().asked(1, "x").done(1, 69).judged_fine().unreached, 1);
    let calm = || tale().asked(1, "x").then(What::Calm);
    assert_eq!(calm().done(1, 69).judged_fine().unreached, 1);
    calm().later(LEASE).done(1, 69).judged_wrong("ended with 69");
}

#[test]
fn nothing_may_be_left() {
    let told = tale().asked(1, "x@c1").began(1, &[("x@c1", 5)]).done(1, 70);
    told.judged_wrong("the command of run 1 is still there");
    let left = |cell, held, waiting| What::Left { cell, held, waiting };
    let spans = || {
        tale().asked(1, "a a@c1").began(1, &[("a@c0", 1), ("a@c1", 1)]).ended(1).then(What::Calm)
    };
    let judged = |tale: Tale| judge(&tale.entries, 2, LEASE).wrong;
    assert_eq!(judged(spans().then(left(0, 0, 0)).then(left(1, 0, 0))), Vec::<String>::new());
    for wrong in [
        judged(spans().then(left(0, 0, 0)).then(left(1, 1, 0))),
        judged(spans().then(left(0, 0, 2)).then(left(1, 0, 0))),
        judged(spans().then(left(0, 0, 0))),
        judged(tale().then(left(0, 0, 0)).then(left(1, 0, 0))),
    ] {
        assert_eq!(wrong.len(), 1, "{wrong:?}");
    }
}

#[test]
fn times_to_recover_are_from_when_it_could_work_again() {
    let agent = |how| What::Agent { cell: 0, how };
    let net = |how| What::Net { from: 1, to: 0, how };
    let figures = tale()
        .then(agent(Agent::Killed))
        .later(3000)
        .then(agent(Agent::Started))
        .later(20)
        .asked(1, "x")
        .began(1, &[("x@c0", 5)])
        .ended(1)
        .then(net(Net::Cut))
        .then(net(Net::Healed))
        .asked(2, "x")
        .began(2, &[("x@c0", 6)])
        .ended(2)
        .later(100)
        .asked(3, "x@c1")
        .began(3, &[("x@c1", 5)])
        .ended(3)
        .judged_fine();
    assert_eq!(figures.after_kill, Spread { count: 1, median: 22, longest: 22 });
    assert_eq!(figures.after_cut, Spread { count: 1, median: 107, longest: 107 });
    assert_eq!((figures.agents_killed, figures.cuts), (1, 1));
}
