//! What is in a log stays readable. `UPDATE_GOLDEN=1 cargo test -p holdall-cell --test golden` writes the files
//! anew that belong to this logic; those of earlier ones stay, and are read for ever.
//!
//! | file | what |
//! |---|---|
//! | `facts` | one record of each fact, and of each of the types in them |
//! | `log-N` | the records of a story, under logic N |
//! | `snapshot-N` | the state after them |

use std::path::PathBuf;
use std::sync::Arc;

use hashbrown::HashSet;
use holdall_cell::facts::{Answer, Clock, Fact, GivenAbroad, How, Imported};
use holdall_cell::greeting::Presence;
use holdall_cell::replay::{LOGIC, Parts, Recorded, Replay};
use holdall_cell::session::{CallNo, ConnNo, Hello, Means, Secret, SessionId};
use holdall_cell::{Cell, Declared, Input, Rest, Start, Wish};
use holdall_core::{CellId, Home, Length, Life, RequestId, UserId};
use holdall_wire::holder::{CgroupId, Namespaces, ProcessId, Record};
use holdall_wire::{
    Ask, Change, Drained, Fault, From, Kind, Lasting, Leftovers, Name, Part, Place, Refusal,
    RequestNo, Taken, Who,
};

// What is logged in parts fits into a log.
const _: () = assert!(holdall_cell::replay::PART_MAX <= holdall_log::PAYLOAD_MAX);

const SESSION: SessionId = SessionId(0x0102_0304_0506_0708_090a);

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn who() -> Arc<Who> {
    let (command, said) = ("make test".into(), |text: &str| Some(text.into()));
    let from = From { command, name: said("nightly"), reason: said("because") };
    Arc::new(Who { uid: 1000, user: "me".into(), host: "lab".into(), pid: 77, from })
}

fn ask(needs: &str, lasting: Lasting, part: Option<Part>) -> Ask {
    let needs = needs.split(' ').map(|need| need.parse().expect("a need")).collect();
    let (from, within) = (who().from.clone(), Some(RequestNo(3)));
    Ask { needs, now: false, lasting, from, within, limit: Some(60_000), part }
}

fn taken() -> Arc<[Taken]> {
    let units = vec![(name("gpu/0"), 9), (name("gpu/1"), 9)];
    [Taken { name: name("gpu"), units }].into()
}

fn holder() -> Box<Record> {
    Box::new(Record {
        boot: "boot".into(),
        cgroup: Some(CgroupId { path: "grant".into(), inode: 5, root: 1 }),
        leader: Some((ProcessId { pid: 8, start: 900 }, true)),
        others: vec![ProcessId { pid: 9, start: 901 }],
        wrapper: Some(ProcessId { pid: 7, start: 899 }),
        namespaces: Namespaces { pid: "pid:[1]".into(), time: "time:[2]".into() },
        lock: Some("client-1-2.lock".into()),
    })
}

fn drained(until: Option<u64>) -> Drained {
    Drained { reason: "hot".into(), by: "me".into(), until }
}

/// One of each; what is added comes at the end.
fn facts() -> Vec<Fact> {
    let (request, session, call) = (RequestNo((3 << 32) + 17), SESSION, CallNo(4));
    let text = || String::from("why");
    let clock = Clock { boot: "boot".into(), base: -5, ahead: 7 };
    let mut all = vec![
        Fact::Started { epoch: 3, life: u128::MAX, at: 1000, clock },
        Fact::Session { session, secret: Secret(6), uid: 1000, means: Means::Connection },
        Fact::Session { session, secret: Secret(6), uid: 1000, means: Means::Lease(60_000) },
        Fact::Session {
            session,
            secret: Secret(6),
            uid: 1000,
            means: Means::Process { pid: 7, start: 8 },
        },
        Fact::SessionOver(session),
        Fact::Heard { session, upto: call },
        Fact::Ready {
            request,
            holder: Some(holder()),
            place: Some(Place { path: "/grant".into(), inode: 5 }),
        },
        Fact::Renewed { request, until: 5 },
        Fact::Used { request, holder: holder() },
        Fact::Left { request, how: How::Released, call: Some(call) },
        Fact::TakenAway { request, how: How::Lost, kill_at: 10_000 },
        Fact::Granted {
            request,
            taken: taken(),
            since: 1,
            until: Some(2),
            limit_at: Some(3),
            overtook: 4,
        },
        Fact::Drained(vec![(name("gpu/0"), drained(None)), (name("gpu/1"), drained(Some(9)))]),
        Fact::Forced { request, by: who() },
        Fact::Closing { request, how: How::Expired },
        Fact::Overtime { request, until: 8 },
        Fact::Clock { ahead: -1 },
        Fact::Imported(Box::new(Imported {
            request,
            who: who(),
            ask: ask("gpu:2", Lasting::Connection, None),
            taken: taken(),
            since: 1,
            until: Some(2),
            holder: Some((*holder(), How::Gone)),
        })),
        Fact::Queued { request },
    ];
    let part = Some(Part { of: RequestNo(3), outlasts: true });
    let asks = [
        ask("gpu gpu:2 gpu:all db:shared", Lasting::Connection, part),
        ask("gpu", Lasting::Command(Leftovers::Wait), None),
        ask("gpu", Lasting::Command(Leftovers::Warn), None),
        ask("gpu", Lasting::Command(Leftovers::Kill), None),
        ask("gpu", Lasting::Reservation(5000), None),
    ];
    let asked = |ask| Fact::Asked { request, session, call, who: who(), ask: Arc::new(ask), at: 9 };
    all.extend(asks.map(asked));
    let answers = [
        Answer::Done,
        Answer::Failed(Fault::Wrong(text()).into()),
        Answer::Failed(Fault::Conflict(text()).into()),
        Answer::Failed(Fault::Denied(text()).into()),
        Answer::Failed(Fault::Failed(text()).into()),
        Answer::Leftovers([8, 9].into()),
        Answer::Lost(request),
        Answer::Refused(Refusal::Withdrawn.into()),
    ];
    all.extend(answers.map(|answer| Fact::Answered { session, call, answer }));
    let hows = [
        How::Expired,
        How::Gone,
        How::Lost,
        How::Refused(Refusal::Busy(text())),
        How::Refused(Refusal::Withdrawn),
        How::Refused(Refusal::Never(text())),
        How::Refused(Refusal::Senseless(text())),
        How::Refused(Refusal::Closed(text())),
        How::Refused(Refusal::Denied(text())),
        How::Refused(Refusal::Conflict(text())),
        How::Released,
        How::Unrestored,
        How::Withdrawn,
        How::Overrun,
        How::WithItsGrant,
    ];
    all.extend(hows.map(|how| Fact::Ended { request, how }));
    let kinds = [Kind::Lock, Kind::Numbered(4), Kind::Named(vec![name("red"), name("blue")])];
    let pool = |kind| Fact::Pool { name: name("gpu"), kind, configured: true };
    all.extend(kinds.clone().map(Some).map(pool));
    all.push(pool(None));
    let changes = [
        Change::Add { name: name("gpu"), kind: kinds[2].clone() },
        Change::Remove { name: name("gpu"), force: true },
        Change::Resize { name: name("gpu"), units: 4 },
        Change::Drain { name: name("gpu"), drained: drained(Some(1)) },
        Change::Undrain { name: name("gpu") },
    ];
    all.extend(changes.map(|change| Fact::Changed { by: Some(who()), change }));
    let means = Means::Once { pid: 7, start: 8 };
    all.push(Fact::Session { session, secret: Secret(6), uid: 1000, means });
    all.extend(facts_of_cells(request));
    all
}

/// What a cell knows of others.
fn facts_of_cells(request: RequestNo) -> Vec<Fact> {
    let cell = CellId(2);
    let first = UserId::first_at(Home { cell, life: Life(9) }, 3);
    let id = RequestId { user: first.next_generation().expect("not the last"), seq: 4 };
    let given = GivenAbroad {
        request,
        id,
        stance: vec![1, 2],
        leased: true,
        who: who(),
        ask: ask("gpu:2", Lasting::Connection, None),
        taken: taken(),
        since: 1,
        until: Some(2),
    };
    let (missing, held) = (vec![cell, CellId(5)], vec![id]);
    vec![
        Fact::Peer { cell, life: Some(u128::MAX) },
        Fact::Peer { cell, life: None },
        Fact::Spans { request, id },
        Fact::HeldFor(Box::new(given)),
        Fact::Recovery { missing, until: Some(2), horizon: 6, held },
        Fact::Recovery { missing: Vec::new(), until: None, horizon: 0, held: Vec::new() },
        Fact::Met {
            cell,
            presence: Presence { life: 3, epoch: 4, nonce: u128::MAX, began: 4, length: 5 },
        },
        Fact::NotLeased { request, cells: vec![cell] },
        Fact::Keeping { request, until: 9, missing: vec![cell], call: Some((SESSION, CallNo(4))) },
        Fact::Keeping { request, until: 9, missing: Vec::new(), call: None },
        Fact::GivenUp { cell, life: Some(7), word: vec![1, 2] },
        Fact::Begun { nonce: u128::MAX, began: 300, cell: Some(cell) },
        Fact::Agreed { cell, upto: 301 },
        Fact::CameTo { cell, length: 302 },
    ]
}

/// Records one after the other, each with its length.
fn pack(records: &[Vec<u8>]) -> Vec<u8> {
    let with_length = |record: &Vec<u8>| {
        let length = u32::try_from(record.len()).expect("it is short").to_le_bytes();
        [&length[..], record].concat()
    };
    records.iter().flat_map(with_length).collect()
}

fn unpack(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
        let (record, rest) = rest.split_at(u32::from_le_bytes(*length) as usize);
        records.push(record.to_vec());
        bytes = rest;
    }
    records
}

fn golden(file: &str, content: &[u8]) -> Vec<u8> {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path(file), content).expect("writable");
    }
    std::fs::read(path(file)).expect("a golden file")
}

fn write(at: u64, input: &Input, facts: &[Fact]) -> Vec<u8> {
    let written = Recorded::begin(at, input).and_then(|begun| begun.end(facts));
    let keep = |payload: &[u8]| Ok::<_, ()>(payload.to_vec());
    written.expect("written").append(keep).expect("kept")
}

#[test]
fn every_fact_is_read_as_it_was_written() {
    let facts = facts();
    let kinds: HashSet<_> = facts.iter().map(std::mem::discriminant).collect();
    assert_eq!(kinds.len(), 33, "one of each");
    let written: Vec<_> =
        facts.iter().map(|fact| write(5, &Input::Due, std::slice::from_ref(fact))).collect();
    let content = pack(&written);
    let kept = golden("facts", &content);
    let mut parts = Parts::default();
    for (record, fact) in unpack(&kept).iter().zip(&facts) {
        let recorded = parts.take(record).expect("it is understood").expect("in one part");
        assert_eq!(recorded.facts, std::slice::from_ref(fact));
        assert_eq!(recorded.at, 5);
    }
    assert!(content.starts_with(&kept), "what is written now is read otherwise than it was");
}

/// A cell to which everything happens that may.
struct Story {
    cell: Cell,
    log: Vec<Vec<u8>>,
    calls: u64,
}

impl Story {
    fn input(&mut self, at: u64, input: Input) {
        let recorded = input.clone();
        let out = self.cell.step(at, input).expect("unbroken");
        if out.is_new {
            self.log.push(write(at, &recorded, &out.facts));
        }
    }

    fn call(&mut self, at: u64, wish: Wish) {
        self.calls += 1;
        let (conn, call, heard) = (ConnNo(1), CallNo(self.calls), CallNo(self.calls / 2));
        self.input(at, Input::Call { conn, call, heard, wish });
    }

    fn ask(&mut self, at: u64, needs: &str, lasting: Lasting, part: Option<Part>) -> RequestNo {
        let request = self.cell.engine().next_number();
        let ask = Ask { within: None, ..ask(needs, lasting, part) };
        let length = Length::try_from(at as u8 % 16).ok();
        self.call(at, Wish::Ask { who: who(), ask: ask.into(), length });
        request
    }
}

fn story() -> Story {
    let mut story = Story { cell: Cell::new().expect("an engine"), log: Vec::new(), calls: 0 };
    let pool = |text: &str, kind| Declared { name: name(text), kind, limit: Some(90_000) };
    let start = Start {
        epoch: 1,
        life: 5,
        boot: "boot".into(),
        boottime: 10,
        wall: 1000,
        ephemeral: true,
        pools: vec![pool("gpu", Kind::Numbered(4))],
        ..Start::default()
    };
    story.input(0, Input::Started(Box::new(start.clone())));
    let means = Means::Lease(60_000);
    let (session, secret, heard) = (SESSION, Secret(6), CallNo(0));
    let hello = Hello { session, secret, uid: 1000, means, returns: false, heard };
    story.input(1001, Input::Attach { conn: ConnNo(1), hello });
    let runs = story.ask(1002, "gpu:2 db:shared", Lasting::Command(Leftovers::Kill), None);
    story.input(1003, Input::Prepared { request: runs, holder: None, place: None });
    story.call(1004, Wish::Child { request: runs, holder: holder() });
    let reserved = story.ask(1005, "gpu", Lasting::Reservation(500_000), None);
    let part = Some(Part { of: reserved, outlasts: true });
    story.ask(1006, "gpu", Lasting::Connection, part);
    let waits = story.ask(1007, "gpu:3", Lasting::Connection, None);
    let change = |change| Wish::Change { by: who(), change };
    story.call(1008, change(Change::Add { name: name("x"), kind: Kind::Lock }));
    story.call(1009, change(Change::Drain { name: name("gpu/3"), drained: drained(Some(5000)) }));
    story.call(1010, Wish::Renew { request: reserved, millis: 900_000, by: who(), may: false });
    let rest = Some(Rest { holder: holder(), pids: vec![8] });
    story.call(1011, Wish::End { request: runs, rest });
    story.input(1012, Input::HolderEnded(runs));
    story.input(1013, Input::Clock { ahead: 50 });
    let (by, may, unseen, beyond) = (who(), false, false, None);
    let request = reserved;
    story.call(1014, Wish::Release { request, force: false, by, may, unseen, beyond });
    let lent = story.ask(1015, "x", Lasting::Connection, None);
    let (by, may, unseen, beyond) = (who(), true, false, None);
    story.call(1016, Wish::Release { request: lent, force: true, by, may, unseen, beyond });
    story.input(2000, Input::Detach(ConnNo(1)));
    let wall = 3000;
    story.input(0, Input::Started(Box::new(Start { epoch: 2, boottime: 1500, wall, ..start })));
    story.input(6000, Input::Due);
    assert!(story.cell.books().get(waits).is_some());
    let lent = story.cell.books().get(lent).expect("nobody sees whether it is used still");
    assert!(lent.taken_away.is_some());
    story
}

#[test]
fn a_log_leads_where_it_led() {
    let story = story();
    let kept = golden(&format!("log-{LOGIC}"), &pack(&story.log));
    let state = story.cell.snapshot().expect("written");
    let kept_state = golden(&format!("snapshot-{LOGIC}"), &state);
    let mut replay = Replay::new(LOGIC, None).expect("an engine");
    for record in unpack(&kept) {
        replay.take(LOGIC, &record).expect("it is understood");
    }
    let replayed = replay.finish().expect("an engine");
    assert_eq!(replayed.diverged, None, "another logic must have another number");
    assert!(!replayed.from_facts);
    assert!(replayed.cell.snapshot().expect("written") == kept_state, "it is the same state");
    assert!(pack(&story.log) == kept, "the same inputs lead to the same bytes");
}

/// Logs and snapshots of all versions there were.
#[test]
fn what_another_logic_has_written_is_gone_on_from() {
    for logic in 1..=LOGIC {
        let read = |file: &str| std::fs::read(path(&format!("{file}-{logic}"))).expect("golden");
        let mut replay = Replay::new(LOGIC + 1, None).expect("an engine");
        for record in unpack(&read("log")) {
            replay.take(logic, &record).expect("its facts are understood");
        }
        let from_log = replay.finish().expect("an engine");
        let state = read("snapshot");
        let from_state = Replay::new(LOGIC + 1, Some((logic, &state))).expect("understood");
        let from_state = from_state.finish().expect("an engine");
        for replayed in [from_log, from_state] {
            assert!(replayed.from_facts && replayed.diverged.is_none());
            let started = replayed.started(Start { epoch: 9, lost: true, ..Start::default() });
            let mut cell = replayed.cell;
            let grants = cell.books().grants().count();
            assert!(grants > 0, "logic {logic}");
            cell.step(0, started).expect("unbroken");
            cell.books().check().expect("sound");
        }
    }
}

/// An engine that cannot be read is built again from the books.
#[test]
fn a_snapshot_is_good_without_its_engine() {
    let story = story();
    let mut state = story.cell.snapshot().expect("written");
    // The engine comes last, but for the few bytes of what ties this cell to others: there are none.
    let length = state.len();
    state[length - 240..length - 40].fill(0xff);
    let replay = Replay::new(LOGIC, Some((LOGIC, &state))).expect("the books are there");
    let replayed = replay.finish().expect("an engine");
    assert!(replayed.from_facts && replayed.diverged.is_some());
    let books = story.cell.books().grants().map(|(request, ..)| request).collect::<Vec<_>>();
    let again = replayed.cell.books().grants().map(|(request, ..)| request).collect::<Vec<_>>();
    assert_eq!(books, again);
}
