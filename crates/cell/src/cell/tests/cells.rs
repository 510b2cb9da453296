//! Two cells that talk: grants that span them, and what becomes of these when one is not heard of, or forgets.

use holdall_core::CellId;

use super::*;
use crate::engine::Member;
use crate::greeting::Presence;
use crate::input::Cluster;

const HERE: u64 = 1;
const THERE: u64 = 2;
const STOPPING: u64 = 15;

/// Cells that hear all that they say to each other, as long as they are linked.
struct Pair {
    /// The home of the clients, and the guard of a board.
    cells: [Story; 2],
    lives: [u128; 2],
}

fn member(cell: u64) -> Member {
    let own = if cell == HERE { "here" } else { "there" };
    Member { name: name(own), cell: CellId(cell) }
}

fn other(cell: u64) -> u64 {
    HERE + THERE - cell
}

impl Pair {
    fn new() -> Self {
        let story = |pool| Story {
            cell: Cell::new().expect("an engine"),
            log: Vec::new(),
            events: Vec::new(),
            at: 100,
            epoch: 0,
            pools: vec![(name(pool), Kind::Numbered(1))],
            limit: None,
            limits: Limits::default(),
        };
        let mut pair = Self { cells: [story("gpu"), story("board")], lives: [7, 8] };
        pair.starts(HERE, false);
        pair.starts(THERE, false);
        pair.link();
        pair
    }

    fn at(&mut self, cell: u64) -> &mut Story {
        &mut self.cells[cell as usize - 1]
    }

    fn starts(&mut self, cell: u64, lost: bool) {
        let life = &mut self.lives[cell as usize - 1];
        *life += 10 * u128::from(lost);
        let life = *life;
        let cluster = Cluster {
            own: member(cell),
            members: vec![member(other(cell))],
            forgotten: Vec::new(),
            stopping: STOPPING,
        };
        let story = self.at(cell);
        story.epoch += 1;
        let declared = |(name, kind)| Declared { name, kind, limit: None };
        let start = Start {
            epoch: story.epoch,
            life,
            lost,
            boot: "boot".into(),
            boottime: story.at,
            wall: story.at,
            pools: story.pools.iter().cloned().map(declared).collect(),
            cluster: Some(cluster),
            patience: 70,
            ..Start::default()
        };
        story.input(Input::Started(Box::new(start)));
    }

    fn link(&mut self) {
        for cell in [HERE, THERE] {
            let life = self.lives[other(cell) as usize - 1];
            let presence = Presence { life, epoch: 1, nonce: 1, began: 0, length: 0 };
            let linked = Input::Linked { cell: CellId(other(cell)), presence, first: None };
            self.input(cell, linked);
        }
    }

    /// What follows for clients, when all that the cells have to say to each other was said.
    fn input(&mut self, cell: u64, input: Input) -> Vec<Effect> {
        let (mut inputs, mut told) =
            (std::collections::VecDeque::from([(cell, input)]), Vec::new());
        while let Some((cell, input)) = inputs.pop_front() {
            for effect in self.at(cell).input(input) {
                match effect {
                    Effect::Send(to, message) => {
                        let said = Input::Said { cell: CellId(cell), message, length: 0 };
                        inputs.push_back((to.0, said));
                    }
                    Effect::Prepare(request) => {
                        let (holder, place) = (None, None);
                        inputs.push_back((cell, Input::Prepared { request, holder, place }));
                    }
                    effect => told.push(effect),
                }
            }
        }
        told
    }

    fn asks(&mut self, session: u64, means: Means, needs: &str) -> Vec<Effect> {
        let hello = hello(session, means, false);
        self.at(HERE).input(Input::Attach { conn: conn(session), hello });
        let ask = Ask {
            needs: needs.split(' ').map(|need| need.parse().expect("a need")).collect(),
            now: false,
            lasting: Lasting::Connection,
            from: From::default(),
            within: None,
            limit: None,
            part: None,
        };
        let wish = Wish::Ask { who: who(session), ask: ask.into(), length: None };
        let (conn, call, heard) = (conn(session), CallNo(1), CallNo(0));
        self.input(HERE, Input::Call { conn, call, heard, wish })
    }

    /// Lets time pass everywhere.
    fn pass(&mut self, millis: u64) -> Vec<Effect> {
        for cell in [HERE, THERE] {
            self.at(cell).at += millis;
        }
        self.input(HERE, Input::Due)
    }

    fn load(&mut self, cell: u64) -> (usize, usize) {
        self.at(cell).cell.engine.load()
    }
}

fn granted(effects: &[Effect]) -> RequestNo {
    match effects {
        [.., Effect::Reply { reply: Reply::Granted { request, .. }, .. }] => *request,
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_holds_and_who_waits_elsewhere_is_found_by_its_name() {
    let mut pair = Pair::new();
    let holds = granted(&pair.asks(1, Means::Connection, "board@there"));
    pair.asks(2, Means::Connection, "board@there");
    let mut seen = |name: &str| {
        let status = pair.at(HERE).cell.engine().status(&[name.parse().expect("a name")]);
        let held: Vec<_> = status.grants.iter().map(|grant| grant.request).collect();
        (held, status.waiting.len())
    };
    assert_eq!(seen("board@there"), (vec![holds], 1));
    assert_eq!(seen("scope@there"), (vec![], 0));
}

/// Nobody here can end it, and it stops by itself: until then it has what this cell guards.
#[test]
fn who_is_not_seen_keeps_what_is_here_until_it_has_stopped() {
    for means in [Means::Lease(60), PROCESS] {
        let mut pair = Pair::new();
        let request = granted(&pair.asks(1, means, "gpu board@there"));
        let told = pair.input(HERE, Input::LeaseOver(CellId(THERE)));
        assert_eq!(told, [reply(1, 1, Reply::Lost(request))]);
        pair.asks(2, PROCESS, "gpu");
        assert_eq!(pair.load(HERE), (1, 1), "it is not another's yet");
        assert_eq!(pair.input(HERE, Input::LeaseOver(CellId(THERE))), [], "it is told once");
        assert_eq!(pair.pass(STOPPING - 1), []);
        granted(&pair.pass(1)); // By now it has stopped.
    }
}

#[test]
fn who_says_that_it_has_stopped_is_not_waited_for() {
    let mut pair = Pair::new();
    let request = granted(&pair.asks(1, Means::Lease(60), "gpu board@there"));
    pair.input(HERE, Input::LeaseOver(CellId(THERE)));
    pair.asks(2, PROCESS, "gpu");
    let (conn, call, heard) = (conn(1), CallNo(2), CallNo(0));
    let wish = Wish::End { request, rest: None };
    let told = pair.input(HERE, Input::Call { conn, call, heard, wish });
    granted(&told[..1]);
}

/// The client of a machine that was restarted uses what another cell guards until its lease is over.
#[test]
fn what_is_lent_to_other_machines_stays_lent_elsewhere_too() {
    let mut pair = Pair::new();
    let request = granted(&pair.asks(1, Means::Lease(60), "gpu board@there"));
    pair.starts(HERE, true);
    pair.link();
    assert_eq!(pair.at(HERE).units(request), ["gpu/0", "board/0@there"]);
    assert_eq!((pair.load(HERE), pair.load(THERE)), ((1, 0), (1, 0)));
    pair.pass(60);
    assert_eq!((pair.load(HERE), pair.load(THERE)), ((0, 0), (0, 0)), "its lease is over");
}

/// What a process held has ended with the machine.
#[test]
fn what_processes_held_elsewhere_is_free_when_their_machine_was_restarted() {
    let mut pair = Pair::new();
    granted(&pair.asks(1, PROCESS, "gpu board@there"));
    pair.starts(HERE, true);
    pair.link();
    assert_eq!((pair.load(HERE), pair.load(THERE)), ((0, 0), (0, 0)));
}
