//! Stories of one cell: what is told, and what its host is asked to do.

mod cells;
mod events;
mod known;
mod long;
mod others;
mod parts;
mod sessions;
mod starts;
mod time;

use std::sync::Arc;

use holdall_wire::event::What;
use holdall_wire::holder::{CgroupId, ProcessId, Record};
use holdall_wire::{
    Ask, Change, Drained, Fault, From, Kind, Lasting, Leftovers, Name, Place, Refusal, Reply,
    RequestNo, Who,
};

use super::*;
use crate::input::{Declared, Limits, Rest, Start, Wish};
use crate::replay::{LOGIC, Recorded, Replay};
use crate::session::{Means, Secret, Turned};

/// A cell, what was logged of it, and clients that are known by the numbers of their sessions.
struct Story {
    cell: Cell,
    log: Vec<Vec<u8>>,
    events: Vec<(u64, What)>,
    at: u64,
    epoch: u32,
    pools: Vec<(Name, Kind)>,
    /// For how long anybody has some of these.
    limit: Option<u64>,
    limits: Limits,
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn conn(session: u64) -> ConnNo {
    ConnNo(session)
}

fn hello(session: u64, means: Means, returns: bool) -> Hello {
    let (secret, uid) = (Secret(7), 1000 + session as u32);
    let session = SessionId(session.into());
    Hello { session, secret, uid, means, returns, heard: CallNo(0) }
}

const PROCESS: Means = Means::Process { pid: 2, start: 3 };

impl Story {
    fn new(pools: &[(&str, u32)]) -> Self {
        let pools = pools.iter().map(|(pool, units)| (name(pool), Kind::Numbered(*units)));
        let (pools, cell) = (pools.collect(), Cell::new().expect("an engine"));
        let (log, limit, limits) = (Vec::new(), None, Limits::default());
        let events = Vec::new();
        let mut story = Self { cell, log, events, at: 100, epoch: 0, pools, limit, limits };
        story.start("boot", false);
        story
    }

    fn input(&mut self, input: Input) -> Vec<Effect> {
        let (at, recorded) = (self.at, input.clone());
        let out = self.cell.step(at, input).expect("unbroken");
        self.cell.books.check().expect("sound");
        self.events.extend(out.events);
        if out.is_new {
            let recorded = Recorded::begin(at, &recorded).expect("written");
            let recorded = recorded.end(&out.facts).expect("written");
            let append = |payload: &[u8]| {
                self.log.push(payload.to_vec());
                Ok::<_, ()>(())
            };
            recorded.append(append).expect("there is room");
        }
        // Timers are the protocol's own affair.
        let is_timer = |effect: &Effect| matches!(effect, Effect::Arm(..) | Effect::Disarm(_));
        out.effects.into_iter().filter(|effect| !is_timer(effect)).collect()
    }

    fn start(&mut self, boot: &str, rebuilt: bool) -> Vec<Effect> {
        self.epoch += 1;
        let (epoch, boot, pools) = (self.epoch, boot.into(), self.pools.clone());
        let declared = |(name, kind)| Declared { name, kind, limit: self.limit };
        let start = Start {
            epoch,
            boot,
            boottime: self.at,
            wall: self.at,
            rebuilt,
            ephemeral: true,
            pools: pools.into_iter().map(declared).collect(),
            limits: self.limits,
            ..Start::default()
        };
        self.input(Input::Started(Box::new(start)))
    }

    /// The host is killed, and another starts with the log: with the same code or with other.
    fn restart(&mut self, boot: &str, upgrade: bool) -> Vec<Effect> {
        self.replay(upgrade);
        self.start(boot, upgrade)
    }

    fn replay(&mut self, upgrade: bool) {
        let logic = LOGIC + u32::from(upgrade);
        let mut replay = Replay::new(logic, None).expect("an engine");
        for record in &self.log {
            replay.take(LOGIC, record).expect("readable");
        }
        let replayed = replay.finish().expect("an engine");
        assert_eq!(replayed.diverged, None);
        assert_eq!(replayed.from_facts, upgrade);
        self.cell = replayed.cell;
    }

    fn comes(&mut self, session: u64) -> Vec<Effect> {
        self.input(Input::Attach { conn: conn(session), hello: hello(session, PROCESS, false) })
    }

    fn comes_back(&mut self, session: u64) -> Vec<(CallNo, Option<Reply>)> {
        let hello = hello(session, PROCESS, true);
        let effects = self.input(Input::Attach { conn: conn(session), hello });
        match &effects[..] {
            [Effect::Welcome { answers, .. }] => answers.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn calls(&mut self, session: u64, call: u64, wish: Wish) -> Vec<Effect> {
        let (conn, call, heard) = (conn(session), CallNo(call), CallNo(0));
        self.input(Input::Call { conn, call, heard, wish })
    }

    fn asks(&mut self, session: u64, call: u64, needs: &str, lasting: Lasting) -> Vec<Effect> {
        let needs = needs.split(' ').map(|need| need.parse().expect("a need")).collect();
        let ask = Ask {
            needs,
            now: false,
            lasting,
            from: From::default(),
            within: None,
            limit: None,
            part: None,
        };
        self.calls(session, call, Wish::Ask { who: who(session), ask: ask.into(), length: None })
    }

    /// A command that runs under a grant, without a cgroup.
    fn runs(&mut self, session: u64, needs: &str, leftovers: Leftovers) -> RequestNo {
        self.comes(session);
        let effects = self.asks(session, 1, needs, Lasting::Command(leftovers));
        let [Effect::Prepare(request)] = effects[..] else { panic!("{effects:?}") };
        let told = self.input(Input::Prepared { request, holder: None, place: None });
        assert!(is_grant(&told), "{told:?}");
        let done = self.calls(session, 2, Wish::Child { request, holder: child(9) });
        assert_eq!(done, [reply(session, 2, Reply::Done)]);
        request
    }

    fn units(&self, request: RequestNo) -> Vec<String> {
        let held = self.cell.books.get(request).and_then(|entry| entry.held.as_ref());
        let taken = held.expect("it is held").taken.iter();
        taken.flat_map(|taken| &taken.units).map(|(unit, _)| unit.to_string()).collect()
    }
}

fn reply(session: u64, call: u64, reply: Reply) -> Effect {
    Effect::Reply { conn: conn(session), call: CallNo(call), reply }
}

fn child(pid: u32) -> Box<Record> {
    let leader = Some((ProcessId { pid, start: 7 }, true));
    Box::new(Record { boot: "boot".into(), leader, ..Record::default() })
}

fn is_grant(effects: &[Effect]) -> bool {
    matches!(effects, [Effect::Reply { reply: Reply::Granted { .. }, .. }])
}

fn conflict(effects: &[Effect]) -> bool {
    matches!(effects, [Effect::Reply { reply: Reply::Failed(Fault::Conflict(_)), .. }])
}

fn unknown(effects: &[Effect]) -> bool {
    matches!(effects, [Effect::Reply { reply: Reply::Failed(fault), .. }] if fault.is_unknown())
}

fn denied(effects: &[Effect]) -> bool {
    matches!(effects, [Effect::Reply { reply: Reply::Failed(Fault::Denied(_)), .. }])
}

/// Who makes the calls of a session.
fn who(session: u64) -> Arc<Who> {
    Arc::new(Who { uid: 1000 + session as u32, user: "me".into(), ..Who::default() })
}

fn changes(session: u64, change: Change) -> Wish {
    Wish::Change { by: who(session), change }
}

/// `pkill -9 holdall`, and the child has closed all its descriptors: it is known all the same.
#[test]
fn a_child_whose_wrapper_and_agent_were_killed_together_is_found_and_killed() {
    for upgrade in [false, true] {
        let mut story = Story::new(&[("gpu", 1)]);
        let request = story.runs(1, "gpu", Leftovers::Wait);
        story.comes(2);
        story.asks(2, 1, "gpu", Lasting::Connection);
        let effects = story.restart("boot", upgrade);
        let session = SessionId(1);
        assert!(effects.contains(&Effect::WatchSession(session, PROCESS)), "{effects:?}");
        let effects = story.input(Input::Over(session));
        assert_eq!(effects, [Effect::Forget(session, None), Effect::Kill(request, child(9))]);
        assert_eq!(story.units(request), ["gpu/0"], "it is held until nothing of it is left");
        let effects = story.restart("boot", false);
        assert!(effects.contains(&Effect::Kill(request, child(9))), "{effects:?}");
        let answers = story.comes_back(2);
        assert!(matches!(answers[..], [(CallNo(1), Some(Reply::Queued(_)))]), "{answers:?}");
        let told = story.input(Input::HolderEnded(request));
        assert!(is_grant(&told), "{told:?}");
    }
}

#[test]
fn a_wrapper_that_rides_through_notices_nothing() {
    for upgrade in [false, true] {
        let mut story = Story::new(&[("gpu", 1)]);
        let request = story.runs(1, "gpu", Leftovers::Wait);
        story.restart("boot", upgrade);
        let answers = story.comes_back(1);
        assert!(
            matches!(&answers[..], [(CallNo(1), Some(Reply::Granted { request: again, .. })), (CallNo(2), Some(Reply::Done))] if *again == request),
            "{answers:?}"
        );
        // What it is not sure to have been heard it says again.
        let again = story.calls(1, 2, Wish::Child { request, holder: child(9) });
        assert_eq!(again, [reply(1, 2, Reply::Done)]);
        let done = story.calls(1, 3, Wish::End { request, rest: None });
        assert_eq!(done, [reply(1, 3, Reply::Done)]);
        assert_eq!(story.cell.engine.load(), (0, 0));
        assert_eq!(story.calls(1, 3, Wish::End { request, rest: None }), done, "done once");
    }
}

#[test]
fn a_cgroup_is_in_the_log_before_its_grant_is_told() {
    let mut story = Story::new(&[]);
    story.comes(1);
    let effects = story.asks(1, 1, "a", Lasting::Command(Leftovers::Kill));
    let [Effect::Prepare(request)] = effects[..] else { panic!("{effects:?}") };
    let effects = story.restart("boot", false);
    assert!(effects.contains(&Effect::Prepare(request)), "it is still to be made");
    assert_eq!(story.comes_back(1), [(CallNo(1), None)], "and nothing is told before");
    let id = CgroupId { path: "grant".into(), inode: 5, root: 1 };
    let holder = Record { boot: "boot".into(), cgroup: Some(id), ..Record::default() };
    let holder = Box::new(holder);
    let place = Some(Place { path: "/grant".into(), inode: 5 });
    let prepared = Input::Prepared { request, holder: Some(holder.clone()), place };
    assert!(is_grant(&story.input(prepared.clone())));
    let pids = vec![9];
    let rest = Some(Rest { holder: holder.clone(), pids });
    assert_eq!(
        story.calls(1, 2, Wish::End { request, rest }),
        [Effect::End(request, holder.clone())],
        "whoever wants leftovers killed is told when they are"
    );
    let effects = story.restart("boot", true);
    assert!(effects.contains(&Effect::End(request, holder.clone())), "{effects:?}");
    story.comes_back(1);
    assert_eq!(story.input(Input::HolderEnded(request)), [reply(1, 2, Reply::Done)]);
    // What is made too late is not used.
    assert_eq!(story.input(prepared), [Effect::Unused(holder)]);
}

#[test]
fn leftovers_are_waited_for_or_let_go() {
    let mut story = Story::new(&[("gpu", 2)]);
    let rest = || Some(Rest { holder: child(9), pids: vec![9] });
    let waits = story.runs(1, "gpu", Leftovers::Wait);
    let left = reply(1, 3, Reply::Leftovers(vec![9]));
    let effects = story.calls(1, 3, Wish::End { request: waits, rest: rest() });
    assert_eq!(effects, [Effect::Watch(waits, child(9)), left]);
    let warns = story.runs(2, "gpu", Leftovers::Warn);
    let left = reply(2, 3, Reply::Leftovers(vec![9]));
    let effects = story.calls(2, 3, Wish::End { request: warns, rest: rest() });
    assert_eq!(effects, [Effect::Unused(child(9)), left]);
    assert_eq!(story.cell.engine.load(), (1, 0));
    assert!(
        conflict(&story.calls(1, 4, Wish::End { request: waits, rest: None })),
        "it is given back"
    );
    story.input(Input::HolderEnded(waits));
    assert_eq!(story.cell.engine.load(), (0, 0));
}

/// What is restored has the units it had, whatever the pools are now.
#[test]
fn reservations_stay_where_they_are() {
    for upgrade in [false, true] {
        let mut story = Story::new(&[("gpu", 4)]);
        story.comes(1);
        story.asks(1, 1, "gpu:2", Lasting::Reservation(5000));
        let effects = story.asks(1, 2, "gpu", Lasting::Reservation(5000));
        let [Effect::Reply { reply: Reply::Granted { request, .. }, .. }] = effects[..] else {
            panic!("{effects:?}")
        };
        assert_eq!(story.units(request), ["gpu/2"]);
        story.pools = vec![(name("gpu"), Kind::Numbered(1))];
        story.restart("another boot", upgrade);
        assert_eq!(story.units(request), ["gpu/2"], "upgrade {upgrade}");
        assert_eq!(story.cell.books.sessions.means().count(), 0, "all processes are gone");
        story.comes(2);
        let effects = story.asks(2, 1, "gpu", Lasting::Connection);
        assert!(matches!(effects[..], [Effect::Reply { reply: Reply::Queued(_), .. }]));
        story.at += 6000;
        assert_eq!(story.cell.next_due(), Some(5100));
        let told = story.input(Input::Due);
        assert!(is_grant(&told), "{told:?}");
        assert_eq!(story.cell.engine.kind(&name("gpu")), Some(Kind::Numbered(1)));
    }
}

#[test]
fn pools_are_what_the_configuration_says_now_and_others_stay() {
    for upgrade in [false, true] {
        let mut story = Story::new(&[("a", 1), ("b", 1)]);
        story.comes(1);
        let kind = Kind::Numbered(3);
        let done = story.calls(1, 1, changes(1, Change::Add { name: name("c"), kind }));
        assert_eq!(done, [reply(1, 1, Reply::Done)]);
        story.pools = vec![(name("b"), Kind::Numbered(5))];
        story.restart("boot", upgrade);
        let pools: Vec<_> = story
            .cell
            .books
            .pools()
            .map(|(name, pool)| (name.to_string(), pool.kind.clone(), pool.configured))
            .collect();
        let numbered = Kind::Numbered;
        assert_eq!(
            pools,
            [("b".into(), numbered(5), true), ("c".into(), numbered(3), false)],
            "upgrade {upgrade}"
        );
    }
}

#[test]
fn what_is_drained_stays_so_until_its_time_is_over() {
    for upgrade in [false, true] {
        let mut story = Story::new(&[("gpu", 3)]);
        let request = story.runs(1, "gpu", Leftovers::Wait);
        story.comes(2);
        let drained = |until| Drained { reason: "hot".into(), by: "me".into(), until };
        let drain = |unit: &str, until| {
            changes(2, Change::Drain { name: name(unit), drained: drained(until) })
        };
        assert_eq!(story.calls(2, 1, drain("gpu/0", None)), [reply(2, 1, Reply::Done)]);
        assert_eq!(story.calls(2, 2, drain("gpu/1", Some(500))), [reply(2, 2, Reply::Done)]);
        story.restart("boot", upgrade);
        let both = [(name("gpu/0"), drained(None)), (name("gpu/1"), drained(Some(500)))];
        assert_eq!(story.cell.books.drained(), both);
        assert_eq!(story.units(request), ["gpu/0"], "whoever has it keeps it");
        story.comes_back(2);
        let told = story.asks(2, 3, "gpu", Lasting::Connection);
        assert!(is_grant(&told) && format!("{told:?}").contains("gpu/2"), "{told:?}");
        story.asks(2, 4, "gpu", Lasting::Connection);
        assert_eq!(story.cell.next_due(), Some(500));
        story.at = 500;
        let told = story.input(Input::Due);
        assert!(is_grant(&told) && format!("{told:?}").contains("gpu/1"), "{told:?}");
        assert_eq!(story.cell.books.drained(), &both[..1]);
    }
}

#[test]
fn what_is_taken_away_is_killed_in_time_and_its_client_told_whenever_it_comes() {
    let mut story = Story::new(&[("gpu", 1)]);
    let request = story.runs(1, "gpu", Leftovers::Wait);
    story.comes(2);
    let release =
        |force, may| Wish::Release { request, force, may, by: who(2), unseen: false, beyond: None };
    assert!(denied(&story.calls(2, 1, release(true, false))), "it is another's");
    assert!(conflict(&story.calls(2, 2, release(false, true))), "it is in use");
    let lost = reply(1, 1, Reply::Lost(request));
    assert_eq!(story.calls(2, 3, release(true, true)), [lost, reply(2, 3, Reply::Done)]);
    story.restart("boot", true);
    assert!(story.comes_back(1).contains(&(CallNo(1), Some(Reply::Lost(request)))));
    story.at += 10_000;
    assert_eq!(story.input(Input::Due), [Effect::Kill(request, child(9))]);
    assert!(story.comes_back(1).contains(&(CallNo(1), Some(Reply::Lost(request)))), "still");
    story.input(Input::HolderEnded(request));
    assert_eq!(story.cell.engine.load(), (0, 0));
}

#[test]
fn a_lease_lasts_as_long_as_it_says_and_no_session_is_anothers() {
    let mut story = Story::new(&[]);
    let lease = Means::Lease(50);
    story.input(Input::Attach { conn: conn(1), hello: hello(1, lease, false) });
    let stranger = Hello { secret: Secret(8), ..hello(1, lease, true) };
    let effects = story.input(Input::Attach { conn: conn(9), hello: stranger });
    assert_eq!(effects, [Effect::TurnedAway(conn(9), Turned::Stranger)]);
    assert!(is_grant(&story.asks(1, 1, "a", Lasting::Connection)));
    story.input(Input::Detach(conn(1)));
    assert_eq!(story.cell.next_due(), Some(150));
    story.at = 149;
    story.input(Input::Due);
    assert_eq!(story.cell.engine.load(), (1, 0));
    story.at = 150;
    story.input(Input::Due);
    assert_eq!(story.cell.engine.load(), (0, 0));
    let back = Input::Attach { conn: conn(1), hello: hello(1, lease, true) };
    assert_eq!(story.input(back), [Effect::TurnedAway(conn(1), Turned::Forgotten)]);
}

#[test]
fn whoever_waits_is_told_to_go_and_nobody_is_granted_anything_meanwhile() {
    let mut story = Story::new(&[]);
    for (session, needs) in [(1, "a"), (2, "a b"), (3, "b")] {
        story.comes(session);
        story.asks(session, 1, needs, Lasting::Connection);
    }
    assert_eq!(story.cell.engine.load(), (1, 2));
    let told = story.input(Input::Dismiss);
    let refused = |effect: &Effect| {
        matches!(effect, Effect::Reply { reply: Reply::Refused(Refusal::Closed(_)), .. })
    };
    assert_eq!(told.iter().filter(|effect| refused(effect)).count(), 2, "{told:?}");
    assert_eq!(story.cell.engine.load(), (1, 0));
}

#[test]
fn a_grant_is_its_sessions_own() {
    let mut story = Story::new(&[("gpu", 1)]);
    let request = story.runs(1, "gpu", Leftovers::Wait);
    story.comes(2);
    assert!(unknown(&story.calls(2, 1, Wish::End { request, rest: None })));
    let effects = story.calls(2, 2, Wish::Child { request, holder: child(8) });
    assert_eq!(effects[0], Effect::Unused(child(8)), "it becomes nothing");
    assert!(conflict(&effects[1..]) && story.cell.engine.is_held(request));
    assert!(
        conflict(&story.calls(2, 3, Wish::Renew { request, millis: 1, by: who(2), may: false })),
        "no reservation"
    );
    let asked = CallNo(1);
    assert_eq!(
        story.calls(2, 4, Wish::Withdraw { asked, rest: None }),
        [reply(2, 4, Reply::Done)],
        "its own call of that number has asked for nothing"
    );
    assert!(story.cell.engine.is_held(request));
}

/// Whoever has it may be on a machine that is not restarted when this one is.
#[test]
fn what_is_granted_to_a_leased_session_is_synced_before_it_is_told() {
    let mut story = Story::new(&[("gpu", 1)]);
    let hello = |returns| hello(1, Means::Lease(50), returns);
    let attach = |conn_no, returns| Input::Attach { conn: conn(conn_no), hello: hello(returns) };
    assert!(!story.cell.step(100, attach(1, false)).expect("unbroken").sync, "it has nothing");
    let needs = vec!["gpu".parse().expect("a need")];
    let (now, lasting, from) = (false, Lasting::Connection, From::default());
    let ask = Ask { needs, now, lasting, from, within: None, limit: None, part: None };
    let wish = Wish::Ask { who: who(1), ask: ask.into(), length: None };
    let call = Input::Call { conn: conn(1), call: CallNo(1), heard: CallNo(0), wish };
    assert!(story.cell.step(100, call).expect("unbroken").sync);
    assert!(story.cell.step(100, attach(2, true)).expect("unbroken").sync, "it is told again");
}

/// What must survive the machine is told when it does.
#[test]
fn reservations_and_pools_are_synced_and_nothing_else() {
    let mut story = Story::new(&[]);
    story.comes(1);
    let mut synced = |call: u64, wish: Wish| {
        let (conn, call, heard) = (conn(1), CallNo(call), CallNo(0));
        let input = Input::Call { conn, call, heard, wish };
        story.cell.step(100, input).expect("unbroken").sync
    };
    let ask = |needs: &str, lasting| {
        let needs = vec![needs.parse().expect("a need")];
        let (from, within, limit, part) = (From::default(), None, None, None);
        let ask = Ask { needs, now: false, lasting, from, within, limit, part };
        Wish::Ask {
            who: Arc::new(Who { uid: 1001, ..Who::default() }),
            ask: ask.into(),
            length: None,
        }
    };
    assert!(!synced(1, ask("a", Lasting::Connection)));
    assert!(synced(2, ask("b", Lasting::Reservation(1000))));
    assert!(!synced(3, ask("b", Lasting::Reservation(1000))), "it waits");
    let request = RequestNo((1 << 32) + 3);
    assert!(synced(4, Wish::Renew { request, millis: 5000, by: who(1), may: false }));
    assert!(synced(
        5,
        Wish::Release {
            request,
            force: false,
            may: false,
            by: who(1),
            unseen: false,
            beyond: None
        }
    ));
    assert!(synced(6, changes(1, Change::Add { name: name("c"), kind: Kind::Lock })));
    let gone = changes(1, Change::Remove { name: name("d"), force: false });
    assert!(!synced(7, gone), "there is no such pool");
    assert!(!synced(8, Wish::End { request: RequestNo((1 << 32) + 1), rest: None }));
}
