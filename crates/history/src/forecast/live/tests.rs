use holdall_sim::draws;
use holdall_wire::event::Ending;
use holdall_wire::{Ask, Drained, From, Kind as Units, Name, Refusal};

use super::super::{Estimate, Runs};
use super::*;

const MINUTE: u64 = 60_000;
/// Some day.
const NOW: u64 = 20_000 * 24 * 3_600_000;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn who(label: &str) -> Arc<Who> {
    let from = From { name: Some(label.into()), ..From::default() };
    Arc::new(Who { user: "anna".into(), from, ..Who::default() })
}

fn pool(pool: &str, kind: Units) -> Happened {
    Happened::Pool { name: name(pool), kind: Some(kind), configured: true }
}

fn asked(number: u64, needs: &str, lasting: Lasting) -> Happened {
    let needs: Vec<Need> = needs.split(' ').map(|need| need.parse().expect("a need")).collect();
    let (now, from) = (false, From::default());
    let ask = Ask { needs, now, lasting, from, within: None, limit: None, part: None };
    Happened::Asked { request: RequestNo(number), who: who("job"), ask: ask.into() }
}

fn taken(number: u64, pool: &str, units: &[&str], until: Option<u64>) -> Happened {
    let units = units.iter().map(|unit| (name(unit), 1)).collect();
    Happened::Granted {
        request: RequestNo(number),
        who: who("job"),
        taken: [Taken { name: name(pool), units }].into(),
        asked: NOW,
        until,
        limit: None,
        overtook: 0,
    }
}

/// An agent in which something happens.
#[derive(Default)]
struct Agent(Live);

impl Agent {
    fn with(name: &str, kind: Units) -> Self {
        let mut agent = Self::default();
        agent.0.stands(0, &pool(name, kind));
        agent
    }

    fn ask(&mut self, at: u64, number: u64, needs: &str, lasting: Lasting) {
        self.0.happens(at, &asked(number, needs, lasting));
    }

    fn grant(&mut self, at: u64, number: u64, pool: &str, units: &[&str], until: Option<u64>) {
        self.0.happens(at, &taken(number, pool, units, until));
    }

    fn end(&mut self, at: u64, number: u64) {
        self.0.happens(
            at,
            &Happened::Ended {
                request: RequestNo(number),
                who: who("job"),
                taken: Vec::new().into(),
                since: 0,
                how: Ending::Released,
            },
        );
    }

    /// Asked for, granted and used before, often enough, for as long as this.
    fn used(&mut self, needs: &str, unit: &str, length: u64) {
        for number in 100..105 {
            let at = NOW - number * 10 * MINUTE;
            self.ask(at, number, needs, Lasting::Connection);
            let first = needs.split(' ').next().expect("a need");
            self.grant(at, number, first, &[unit], None);
            self.end(at + length, number);
        }
    }

    fn expected(&self) -> Vec<(u64, Estimate)> {
        let outset = self.0.outset(NOW).expect("somebody waits");
        let mut runs = Runs::default();
        for run in 0..50 {
            let course = self.0.course(&outset, &mut draws(1, run)).expect("a course");
            runs.play(&course, &crate::served()).expect("played");
        }
        outset.waiting.iter().map(|request| request.0).zip(runs.estimates()).collect()
    }
}

fn exactly(minutes: u64) -> Estimate {
    let at = minutes * MINUTE;
    Estimate { half: (at, at), nine: (at, at) }
}

#[test]
fn who_waits_is_told_when_from_reservations_and_former_uses() {
    let mut agent = Agent::with("gpu", Units::Numbered(1));
    agent.ask(NOW - 9 * MINUTE, 1, "gpu", Lasting::Connection);
    assert_eq!(agent.0.outset(NOW).expect_err("nothing to go by"), Unknown::NoPast(0));
    agent.grant(NOW - 9 * MINUTE, 1, "gpu", &["gpu/0"], None);
    agent.end(NOW - 5 * MINUTE, 1);
    agent.used("gpu", "gpu/0", 4 * MINUTE);
    assert_eq!(agent.0.outset(NOW).expect_err("nothing to tell"), Unknown::Nobody);
    agent.ask(NOW - 5 * MINUTE, 2, "gpu", Lasting::Reservation(12 * MINUTE));
    agent.grant(NOW - 5 * MINUTE, 2, "gpu", &["gpu/0"], Some(NOW + 7 * MINUTE));
    agent.ask(NOW, 3, "gpu", Lasting::Reservation(30 * MINUTE));
    agent.ask(NOW, 4, "gpu", Lasting::Connection);
    agent.ask(NOW, 5, "gpu", Lasting::Connection);
    assert_eq!(agent.expected(), [(3, exactly(7)), (4, exactly(37)), (5, exactly(41))]);
    let renewed = Happened::Renewed {
        request: RequestNo(2),
        who: who("job"),
        taken: Vec::new().into(),
        until: NOW + 10 * MINUTE,
    };
    agent.0.happens(NOW, &renewed);
    let withdrawn = Happened::Refused {
        request: RequestNo(3),
        who: who("job"),
        needs: Vec::new().into(),
        asked: NOW,
        why: Refusal::Withdrawn,
    };
    agent.0.happens(NOW, &withdrawn);
    assert_eq!(agent.expected(), [(4, exactly(10)), (5, exactly(14))]);
    assert_eq!(agent.0.is_told_first(RequestNo(4)), Some("anna"));
    assert_eq!(agent.0.is_told_first(RequestNo(4)), None);
}

#[test]
fn a_unit_that_is_drained_is_nobodys_when_its_use_ends() {
    let mut agent = Agent::with("seat", Units::Named(vec![name("red"), name("blue")]));
    agent.used("seat", "red", 4 * MINUTE);
    agent.ask(NOW, 2, "seat:2", Lasting::Reservation(3 * MINUTE));
    agent.grant(NOW, 2, "seat", &["red", "blue"], Some(NOW + 3 * MINUTE));
    let drained = Drained { reason: "".into(), by: "".into(), until: Some(NOW + 20 * MINUTE) };
    let drain = Change::Drain { name: name("seat/red"), drained };
    agent.0.happens(NOW, &Happened::Changed { by: None, change: drain });
    agent.ask(NOW, 3, "seat", Lasting::Connection);
    agent.ask(NOW, 4, "seat/red", Lasting::Connection);
    assert_eq!(agent.expected(), [(3, exactly(3)), (4, exactly(20))]);
    let undrain = Change::Undrain { name: name("seat") };
    agent.0.happens(NOW, &Happened::Changed { by: None, change: undrain });
    assert_eq!(agent.expected(), [(3, exactly(3)), (4, exactly(3))]);
}

#[test]
fn who_waits_for_what_is_drained_without_an_end_is_in_nobodys_way() {
    let mut agent = Agent::with("gpu", Units::Numbered(3));
    agent.used("gpu", "gpu/0", 4 * MINUTE);
    let drained = Drained { reason: "".into(), by: "".into(), until: None };
    let drain = Change::Drain { name: name("gpu/1"), drained };
    agent.0.happens(NOW, &Happened::Changed { by: None, change: drain });
    for (number, unit) in [(2, "gpu/0"), (3, "gpu/2")] {
        agent.ask(NOW, number, "gpu", Lasting::Reservation(3 * MINUTE));
        agent.grant(NOW, number, "gpu", &[unit], Some(NOW + 3 * MINUTE));
    }
    agent.ask(NOW, 4, "gpu:all", Lasting::Connection);
    agent.ask(NOW, 5, "gpu/1", Lasting::Connection);
    agent.ask(NOW, 6, "gpu", Lasting::Connection);
    assert_eq!(agent.expected(), [(6, exactly(3))]);
    let stuck = |agent: &Agent| agent.0.outset(NOW).expect("some wait").stuck;
    assert_eq!(stuck(&agent), [4, 5].map(RequestNo));
    agent.0.happens(
        NOW,
        &Happened::Changed { by: None, change: Change::Undrain { name: name("gpu") } },
    );
    assert_eq!(stuck(&agent), []);
}

#[test]
fn locks_are_shared_or_not() {
    let mut agent = Agent::default();
    agent.used("db", "db", 4 * MINUTE);
    agent.ask(NOW, 2, "db:shared", Lasting::Reservation(3 * MINUTE));
    agent.grant(NOW, 2, "db", &["db"], Some(NOW + 3 * MINUTE));
    agent.ask(NOW, 3, "db", Lasting::Connection);
    assert_eq!(agent.expected(), [(3, exactly(3))]);
    agent.end(NOW, 2);
    agent.grant(NOW, 3, "db", &["db"], Some(NOW + 6 * MINUTE));
    agent.ask(NOW, 4, "db:shared other", Lasting::Connection);
    agent.ask(NOW, 5, "db:shared", Lasting::Connection);
    assert_eq!(agent.expected(), [(4, exactly(6)), (5, exactly(6))]);
}

#[test]
fn former_uses_are_remembered_from_lines() {
    let mut agent = Agent::with("gpu", Units::Numbered(1));
    for text in [
        r#"{"t":1000,"k":"ask","r":"1-1","u":"anna","n":"job","needs":["gpu"]}"#,
        r#"{"t":2000,"k":"grant","r":"1-1","got":{"gpu":["gpu/0"]}}"#,
        r#"{"t":122000,"k":"end","r":"1-1","how":"released"}"#,
    ]
    .repeat(5)
    {
        agent.0.remember(serde_json::from_str(text).expect("a line"));
    }
    agent.ask(NOW, 2, "gpu", Lasting::Connection);
    agent.grant(NOW, 2, "gpu", &["gpu/0"], None);
    agent.ask(NOW, 3, "gpu", Lasting::Connection);
    assert_eq!(agent.expected(), [(3, exactly(2))]);
}

#[test]
fn many_who_hold_and_wait_are_told_all_the_same() {
    let mut agent = Agent::with("gpu", Units::Numbered(2));
    agent.used("gpu", "gpu/0", MINUTE);
    for number in 2..1500 {
        agent.ask(NOW, number, "gpu", Lasting::Connection);
        if number < 4 {
            agent.grant(NOW, number, "gpu", &[&format!("gpu/{}", number - 2)], None);
        }
    }
    let all = agent.expected();
    assert_eq!((all.len(), all[0]), (500, (4, exactly(1))));
    assert_eq!(all[499], (503, exactly(250)));
}

#[test]
fn who_was_turned_away_or_would_not_wait_is_not_expected_again() {
    let mut agent = Agent::default();
    for text in [
        r#"{"t":1000,"k":"ask","u":"anna","needs":["gpu"]}"#,
        r#"{"t":1000,"k":"ask","r":"1-1","now":true,"needs":["gpu"]}"#,
        r#"{"t":1000,"k":"ask","r":"1-2","needs":["gpu"]}"#,
    ] {
        agent.0.remember(serde_json::from_str(text).expect("a line"));
    }
    let now = 1000 + 24 * 60 * MINUTE;
    assert_eq!(agent.0.past.arrivals(now, 1, &mut draws(1, 0)).count(), 1);
}

#[test]
fn when_something_was_missed_nothing_is_said() {
    let mut agent = Agent::with("gpu", Units::Numbered(1));
    agent.used("gpu", "gpu/0", 4 * MINUTE);
    agent.ask(NOW, 2, "gpu", Lasting::Connection);
    assert!(agent.0.outset(NOW).is_ok());
    agent.0.lose_track();
    agent.ask(NOW, 3, "gpu", Lasting::Connection);
    assert_eq!(agent.0.outset(NOW).expect_err("2 may wait no more"), Unknown::LostTrack);
    assert!(!agent.0.is_awaited(), "nothing is kept that nobody looks at");
}

#[test]
fn when_it_is_known_again_how_it_stands_estimates_are_made_again() {
    let mut agent = Agent::with("gpu", Units::Numbered(2));
    agent.used("gpu", "gpu/0", 4 * MINUTE);
    agent.ask(NOW, 2, "gpu", Lasting::Connection);
    agent.ask(NOW, 3, "gpu", Lasting::Connection);
    assert!(agent.0.is_told_first(RequestNo(2)).is_some());
    assert!(agent.0.is_told_first(RequestNo(3)).is_some());
    agent.0.lose_track();
    // Meanwhile the pool became smaller, 2 is over, 4 holds, and 3 and 5 wait.
    let mut standing = vec![(0, pool("gpu", Units::Numbered(1)))];
    standing.push((NOW, asked(4, "gpu", Lasting::Connection)));
    standing.push((NOW, taken(4, "gpu", &["gpu/0"], Some(NOW + 7 * MINUTE))));
    standing.extend([3, 5].map(|n| (NOW, asked(n, "gpu", Lasting::Connection))));
    agent.0.find_again(NOW, &standing);
    let expected = [(3, exactly(7)), (5, exactly(11))];
    assert_eq!(agent.expected(), expected);
    assert_eq!(agent.0.is_told_first(RequestNo(3)), None, "it was told before");
    assert_eq!(agent.0.is_told_first(RequestNo(5)), Some("anna"));
    // What led to this is told only now.
    agent.end(NOW, 2);
    agent.ask(NOW, 4, "gpu", Lasting::Connection);
    agent.grant(NOW, 4, "gpu", &["gpu/0"], Some(NOW + 7 * MINUTE));
    agent.ask(NOW, 5, "gpu", Lasting::Connection);
    assert_eq!(agent.expected(), expected);
}

#[test]
fn who_was_told_before_a_restart_is_not_told_for_the_first_time() {
    let mut agent = Agent::with("gpu", Units::Numbered(1));
    for number in [2, 3] {
        agent.0.stands(NOW, &asked(number, "gpu", Lasting::Connection));
    }
    for text in [
        r#"{"t":1,"k":"expect","r":"0-2","half":[5,9],"nine":[1,20]}"#,
        r#"{"t":1,"k":"expect","r":"0-9","half":[5,9],"nine":[1,20]}"#,
    ] {
        agent.0.remember(serde_json::from_str(text).expect("a line"));
    }
    agent.0.has_remembered(NOW);
    assert_eq!(agent.0.is_told_first(RequestNo(2)), None);
    assert_eq!(agent.0.is_told_first(RequestNo(3)), Some("anna"));
    assert!(!agent.0.told.contains(&RequestNo(9)), "it waits no more");
}

#[test]
fn after_a_start_it_is_not_taken_for_known_who_held_before() {
    let mut agent = Agent::with("gpu", Units::Numbered(1));
    // Two have waited for an hour, in which others used it.
    for number in [3, 4] {
        agent.0.stands(NOW - 60 * MINUTE, &asked(number, "gpu", Lasting::Connection));
    }
    agent.0.stands(NOW - 60 * MINUTE, &asked(2, "gpu", Lasting::Reservation(8 * MINUTE)));
    agent.0.stands(NOW - MINUTE, &taken(2, "gpu", &["gpu/0"], Some(NOW + 7 * MINUTE)));
    for text in [
        r#"{"t":1000,"k":"ask","r":"1-1","u":"anna","n":"job","needs":["gpu"]}"#,
        r#"{"t":2000,"k":"grant","r":"1-1","got":{"gpu":["gpu/0"]}}"#,
        r#"{"t":122000,"k":"end","r":"1-1","how":"released"}"#,
    ]
    .repeat(5)
    {
        agent.0.remember(serde_json::from_str(text).expect("a line"));
    }
    agent.0.has_remembered(NOW);
    assert_eq!(agent.expected(), [(3, exactly(7)), (4, exactly(9))]);
}

#[test]
fn a_clock_that_is_set_makes_no_use_longer_or_shorter() {
    const YEARS: i64 = 10 * 365 * 24 * 60 * MINUTE as i64;
    let lengths = |by: i64, back: i64| {
        let mut agent = Agent::with("gpu", Units::Numbered(1));
        let set = NOW.saturating_add_signed(by);
        agent.ask(NOW - 20 * MINUTE, 1, "gpu", Lasting::Connection);
        agent.grant(NOW - 20 * MINUTE, 1, "gpu", &["gpu/0"], None);
        agent.0.happens(set - 15 * MINUTE, &Happened::ClockSet { by });
        agent.end(set - 10 * MINUTE, 1);
        agent.0.happens(NOW - 9 * MINUTE, &Happened::ClockSet { by: back });
        agent.used("gpu", "gpu/0", 10 * MINUTE);
        // It has lasted for five minutes, and lasts for ten.
        agent.ask(NOW - 5 * MINUTE, 8, "gpu", Lasting::Connection);
        agent.grant(NOW - 5 * MINUTE, 8, "gpu", &["gpu/0"], None);
        agent.ask(NOW, 9, "gpu", Lasting::Connection);
        agent.expected()
    };
    assert_eq!(lengths(YEARS, -YEARS), [(9, exactly(5))]);
    assert_eq!(lengths(-YEARS, YEARS), [(9, exactly(5))]);
}

#[test]
fn lines_of_before_the_clock_was_set_are_as_long_ago_as_they_were() {
    for clock in
        [r#"{"t":20001000,"k":"clock","by":-9000000}"#, r#"{"t":20001000,"k":"gap","lines":1}"#]
    {
        let mut agent = Agent::default();
        for text in [
            r#"{"t":29000000,"k":"ask","r":"1-1","needs":["gpu"]}"#,
            r#"{"t":29001000,"k":"grant","r":"1-1","got":{"gpu":["gpu/0"]}}"#,
            r#"{"t":20001000,"k":"begin","v":1}"#,
            r#"{"t":20001000,"k":"mark","upto":7,"of":"here"}"#,
            clock,
            r#"{"t":20061000,"k":"end","r":"1-1","how":"released"}"#,
        ] {
            agent.0.remember(serde_json::from_str(text).expect("a line"));
        }
        let length = agent.0.past.length(&Kind::default(), &mut draws(1, 0));
        assert!((59_000..=61_000).contains(&length), "{length}");
    }
}

#[test]
fn the_clock_is_followed_while_track_is_lost() {
    let mut agent = Agent::default();
    let line = r#"{"t":9000000,"k":"ask","r":"1-1","needs":["gpu"]}"#;
    agent.0.remember(serde_json::from_str(line).expect("a line"));
    agent.0.lose_track();
    let by = 100 * 24 * 60 * MINUTE;
    agent.0.happens(by, &Happened::ClockSet { by: by as i64 });
    // A day after it was asked for, by the clock as it is now.
    let now = by + 9_000_000 + 24 * 60 * MINUTE;
    assert_eq!(agent.0.past.arrivals(now, 1, &mut draws(1, 0)).count(), 1);
}

#[test]
fn a_clock_that_was_set_back_while_no_agent_ran_is_noticed() {
    let mut agent = Agent::default();
    let day = 24 * 60 * MINUTE;
    let line = format!(r#"{{"t":{},"k":"ask","r":"1-1","needs":["gpu"]}}"#, NOW + 100 * day);
    agent.0.remember(serde_json::from_str(&line).expect("a line"));
    agent.0.has_remembered(NOW);
    assert_eq!(agent.0.past.arrivals(NOW + day, 1, &mut draws(1, 0)).count(), 1);
}

#[test]
fn nothing_is_played_on_by_another_clock() {
    let mut agent = Agent::with("gpu", Units::Numbered(1));
    agent.used("gpu", "gpu/0", MINUTE);
    agent.ask(NOW, 2, "gpu", Lasting::Connection);
    let outset = agent.0.outset(NOW).expect("somebody waits");
    assert!(agent.0.course(&outset, &mut draws(1, 0)).is_some());
    agent.0.happens(NOW, &Happened::ClockSet { by: -5000 });
    assert!(agent.0.course(&outset, &mut draws(1, 0)).is_none());
    let outset = agent.0.outset(NOW - 5000).expect("somebody waits");
    assert!(agent.0.course(&outset, &mut draws(1, 0)).is_some());
}

#[test]
fn lines_of_whatever_times_are_remembered() {
    let mut agent = Agent::default();
    for at in [u64::MAX, 0, 1 << 63, 5, u64::MAX - 1] {
        for rest in [
            r#""k":"ask","r":"1-1","needs":["gpu"]}"#,
            r#""k":"grant","r":"1-1","got":{"gpu":["gpu/0"]}}"#,
            r#""k":"clock","by":-9223372036854775808}"#,
            r#""k":"clock","by":9223372036854775807}"#,
            r#""k":"end","r":"1-1","how":"released"}"#,
        ] {
            let line: Line = serde_json::from_str(&format!(r#"{{"t":1,{rest}"#)).expect("a line");
            agent.0.remember(Line { at, ..line });
        }
    }
    agent.ask(NOW, 2, "gpu", Lasting::Connection);
    assert_eq!(agent.expected().len(), 1);
}

#[test]
fn whoever_comes_among_the_first_is_noticed() {
    let mut agent = Agent::with("gpu", Units::Numbered(1));
    agent.used("gpu", "gpu/0", MINUTE);
    (1..=499).for_each(|number| agent.ask(NOW, 1000 + number, "gpu", Lasting::Connection));
    let outset = agent.0.outset(NOW).expect("some wait");
    assert!(!agent.0.awaits_others(&outset));
    agent.ask(NOW, 1500, "gpu", Lasting::Connection);
    assert!(agent.0.awaits_others(&outset), "it is the five hundredth");
    let outset = agent.0.outset(NOW).expect("some wait");
    agent.ask(NOW, 1501, "gpu", Lasting::Connection);
    assert!(!agent.0.awaits_others(&outset), "it is one too many");
    agent.grant(NOW, 1001, "gpu", &["gpu/0"], None);
    assert!(agent.0.awaits_others(&outset), "it has moved up");
}

#[test]
fn how_long_a_use_of_several_cells_takes_is_foreseen_from_former_ones_and_from_whoever_asks() {
    const BOTH: &str = "gpu scope@there";
    let foresees = |agent: &Agent, label: &str, needs: &str, lasting, limit| {
        let Happened::Asked { ask, .. } = asked(1, needs, lasting) else { unreachable!() };
        agent.0.foresees(&who(label), &Ask { limit, ..Ask::clone(&ask) })
    };
    let mut agent = Agent::with("gpu", Units::Numbered(1));
    let reservation = Lasting::Reservation(30 * MINUTE);
    assert_eq!(foresees(&agent, "job", BOTH, Lasting::Connection, None), None);
    assert_eq!(foresees(&agent, "job", BOTH, reservation, None), None, "typical is what?");
    agent.used(BOTH, "gpu/0", 4 * MINUTE);
    let typical = |takes| Some((takes * MINUTE, 4 * MINUTE));
    assert_eq!(foresees(&agent, "job", BOTH, Lasting::Connection, None), typical(4));
    assert_eq!(foresees(&agent, "job", "gpu", Lasting::Connection, None), None, "of one cell");
    assert_eq!(foresees(&agent, "job", BOTH, Lasting::Connection, Some(MINUTE)), typical(1));
    assert_eq!(foresees(&agent, "new", BOTH, reservation, None), typical(4), "so anna's are");
    assert_eq!(foresees(&agent, "new", BOTH, Lasting::Reservation(MINUTE), None), typical(1));
    let ben = |needs: &str, lasting| {
        let Happened::Asked { ask, .. } = asked(1, needs, lasting) else { unreachable!() };
        agent.0.foresees(&Who { user: "ben".into(), ..Who::default() }, &ask)
    };
    assert_eq!(ben(BOTH, reservation), typical(4), "so those of the pool are");
    assert_eq!(ben("cpu scope@away", reservation), typical(30), "as it says");
    assert_eq!(ben("cpu scope@away", Lasting::Connection), typical(4), "as any");
}
