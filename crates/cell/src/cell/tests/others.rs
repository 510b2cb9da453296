//! Stories of a cell among others: who is waited for, and what becomes of what they hold.

mod reserved;

use holdall_core::{Home, Length, Need as Count, Needs, Origin, PoolId, UserId};
use holdall_protocols::house::{Round, Span, Stance, ToManager, ToUser};

use super::*;
use crate::books::GivenUp;
use crate::engine::Member;
use crate::greeting::Presence;
use crate::input::Cluster;
use crate::peer::{Asserted, Assertion, Given, Order, PeerMessage};

const HERE: CellId = CellId(1);
const THERE: CellId = CellId(2);
const PATIENCE: u64 = 70_000;
const STOPPING: u64 = 15_000;

fn there() -> Member {
    Member { name: name("there"), cell: THERE }
}

/// A request of the other cell.
fn id(number: u32) -> RequestId {
    RequestId { user: UserId::first_at(Home { cell: THERE, ..Home::default() }, number), seq: 1 }
}

impl Story {
    /// A cell with a board, and another cell that it has a link to.
    fn with_another() -> Self {
        let mut story = Self::new(&[("board", 1)]);
        story.starts_among(&[there()], |_| {});
        story.linked();
        story
    }

    /// Starts among these, from what was logged.
    fn starts_among(&mut self, members: &[Member], change: impl FnOnce(&mut Start)) {
        self.replay(false);
        self.epoch += 1;
        let own = Member { name: name("here"), cell: HERE };
        let (members, forgotten) = (members.to_vec(), Vec::new());
        let declared = |(name, kind)| Declared { name, kind, limit: None };
        let mut start = Start {
            epoch: self.epoch,
            boot: "boot".into(),
            boottime: self.at,
            wall: self.at,
            ephemeral: true,
            pools: self.pools.clone().into_iter().map(declared).collect(),
            cluster: Some(Cluster { own, members, forgotten, stopping: STOPPING }),
            patience: PATIENCE,
            ..Start::default()
        };
        change(&mut start);
        self.input(Input::Started(Box::new(start)));
    }

    fn linked(&mut self) -> Vec<Effect> {
        let presence = Presence { life: 7, epoch: 1, nonce: 1, began: 1, length: 1 };
        self.input(Input::Linked { cell: THERE, presence, first: None })
    }

    fn said(&mut self, message: PeerMessage) -> Vec<Effect> {
        self.input(Input::Said { cell: THERE, message: Box::new(message), length: 0 })
    }

    /// The other cell asks for something of this one.
    fn is_asked_for(&mut self, number: u32, needs: &str) -> Vec<Effect> {
        let needs: Vec<holdall_wire::Need> =
            needs.split(' ').map(|need| need.parse().expect("a need")).collect();
        let counts = (0..needs.len() as u64).map(|at| Count::any(PoolId(at), 1));
        let counts = Needs::new(counts.collect()).expect("needs");
        let order = Some(Order { needs, who: Arc::default(), now: false });
        let message = ToManager::attempt(id(number), counts);
        self.said(PeerMessage::ToManager { message, order })
    }

    /// The other cell gives what it was asked for; the request is told of.
    fn is_given(&mut self, effects: &[Effect], need: &str) -> RequestNo {
        let asked = effects.iter().find_map(|effect| match effect {
            Effect::Send(THERE, message) => match &**message {
                PeerMessage::ToManager { message, .. } => Some(message.request()),
                _ => None,
            },
            _ => None,
        });
        let request = asked.expect("it was asked for");
        let message = ToUser::Yes { request, n: 0, units: Default::default() };
        let taken = [Taken { name: name(need), units: vec![(name(need), 9)] }].into();
        let given = Some(Given { taken, leased: true });
        let effects = self.said(PeerMessage::ToUser { message, given });
        let [Effect::Prepare(request)] = effects[..] else { panic!("{effects:?}") };
        self.input(Input::Prepared { request, holder: None, place: None });
        request
    }

    /// Whether somebody new waits for the board.
    fn is_board_taken(&mut self, session: u64) -> bool {
        self.comes(session);
        let told = self.asks(session, 1, "board", Lasting::Connection);
        !is_grant(&told)
    }

    /// Whether it is the other cell that holds something of a pool.
    fn is_theirs(&self, pool: &str) -> bool {
        let theirs = self.cell.books.ties().all_foreign().filter_map(|(request, _)| {
            self.cell.books.get(request)?.held.as_ref().map(|held| held.taken.clone())
        });
        theirs.flat_map(|taken| taken.to_vec()).any(|taken| taken.name == name(pool))
    }

    fn later(&mut self, millis: u64) -> Vec<Effect> {
        self.at += millis;
        self.input(Input::Due)
    }
}

fn gives(effects: &[Effect]) -> bool {
    given_in(effects).is_some()
}

/// What the other cell is given.
fn given_in(effects: &[Effect]) -> Option<Given> {
    effects.iter().find_map(|effect| match effect {
        Effect::Send(_, message) => match &**message {
            PeerMessage::ToUser { given, .. } => given.clone(),
            _ => None,
        },
        _ => None,
    })
}

/// Whether the other cell is told that it has nothing here by a request.
fn over(effects: &[Effect], number: u32) -> bool {
    let message = PeerMessage::ToUser { message: ToUser::Over(id(number)), given: None };
    effects.contains(&Effect::Send(THERE, Box::new(message)))
}

/// The other cell says that it holds this, of a board and a press.
fn asserted(number: u32, given: Given) -> Asserted {
    let needs = ["board", "press"].map(|need| need.parse().expect("a need")).to_vec();
    let order = Order { needs, who: Arc::default(), now: false };
    Asserted { request: id(number), order, given, term: None }
}

fn ask_for(need: &str) -> Ask {
    Ask {
        needs: vec![need.parse().expect("a need")],
        now: false,
        lasting: Lasting::Connection,
        from: From::default(),
        within: None,
        limit: None,
        part: None,
    }
}

/// Whether somebody here is told of a grant, whatever else follows.
fn grants(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| is_grant(std::slice::from_ref(effect)))
}

/// A list without it, or none at all because a directory was moved, says nothing of what a cell holds.
#[test]
fn nobody_is_given_up_for_being_away_from_a_list() {
    for alone in [false, true] {
        let mut story = Story::with_another();
        assert!(gives(&story.is_asked_for(0, "board")));
        story.starts_among(&[], |start| start.cluster = start.cluster.take().filter(|_| !alone));
        assert!(story.is_board_taken(1), "its home may be using it");
        assert!(!grants(&story.later(PATIENCE - 1)));
        assert!(grants(&story.later(1)), "its lease is over by now");
    }
}

/// A host of a replicated cell may not have heard yet of whoever joined last.
#[test]
fn who_is_not_listed_at_a_start_keeps_what_it_holds_if_it_is_heard_of_in_time() {
    for rebuilt in [false, true] {
        let mut story = Story::with_another();
        assert!(gives(&story.is_asked_for(0, "board")));
        story.starts_among(&[], |start| start.rebuilt = rebuilt);
        assert!(story.is_board_taken(1));
        assert!(!grants(&story.later(PATIENCE - 1)));
        story.input(Input::Members(vec![there()]));
        story.linked();
        let (_, entry, held) = story.cell.books.grants().next().expect("it is held");
        let order = Order { needs: entry.ask.needs.clone(), who: Arc::default(), now: false };
        let given = Given { taken: held.taken.clone(), leased: true };
        let held = vec![Asserted { request: id(0), order, given, term: None }];
        let all = Assertion { held, last: true, ..Assertion::default() };
        assert!(!grants(&story.said(PeerMessage::Assert(all))));
        assert!(!grants(&story.later(10 * PATIENCE)), "whoever beats has a lease");
        story.input(Input::Unlinked(THERE));
        assert!(grants(&story.input(Input::Lapsed(THERE))));
    }
}

/// Another host may lead when the word is heard again, and knows only the log.
#[test]
fn who_was_given_up_is_known_from_the_log() {
    let mut story = Story::with_another();
    let said = GivenUp { life: Some(7), word: vec![1, 2] };
    let (life, word) = (said.life, said.word.clone());
    story.input(Input::Forget { cell: THERE, life, word });
    let snapshot = story.cell.snapshot().expect("written");
    for logic in [LOGIC, LOGIC + 1] {
        let replay = Replay::new(logic, Some((LOGIC, &snapshot))).expect("understood");
        let cell = replay.finish().expect("an engine").cell;
        assert_eq!(cell.books().ties().given_up(THERE), Some(&said));
        assert_eq!(cell.books().ties().met(THERE), None, "and it has not come back since");
    }
    story.replay(true);
    assert_eq!(story.cell.books.ties().given_up(THERE), Some(&said));
}

#[test]
fn what_has_no_lease_is_given_up_by_the_word_of_somebody() {
    let without_lease = |start: &mut Start| start.waits = vec![name("board")];
    for forced in [false, true] {
        let mut story = Story::with_another();
        story.starts_among(&[there()], without_lease);
        story.linked();
        assert!(gives(&story.is_asked_for(0, "board")));
        story.starts_among(&[], without_lease);
        assert!(story.is_board_taken(1));
        assert!(story.later(10 * PATIENCE).is_empty());
        let told = if forced {
            let held = story.cell.books.grants().next().expect("it holds").0;
            let (by, may, unseen, beyond) = (who(1), true, false, None);
            let wish = Wish::Release { request: held, force: true, by, may, unseen, beyond };
            story.calls(1, 2, wish)
        } else {
            story.input(Input::Forget { cell: THERE, life: Some(7), word: vec![1] })
        };
        assert!(grants(&told), "{told:?}");
    }
}

/// A grant has of one cell what it leases, and what it keeps until its home is back.
#[test]
fn what_is_leased_of_a_grant_is_given_on_and_the_rest_kept_until_it_is_given_back() {
    let start = |story: &mut Story, rebuilt| {
        story.starts_among(&[there()], |start| {
            (start.waits, start.rebuilt) = (vec![name("press")], rebuilt);
        });
        story.linked();
    };
    for (rebuilt, was_granted) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut story = Story::new(&[("board", 1), ("press", 1)]);
        start(&mut story, false);
        let told = story.is_asked_for(0, "board press");
        let given = given_in(&told).expect("both are free");
        assert!(given.leased, "its home is to stop in time whoever uses it");
        assert!(story.is_board_taken(1));
        story.comes(2);
        story.asks(2, 1, "press", Lasting::Connection);
        let told = story.input(Input::Lapsed(THERE));
        assert!(grants(&told) && over(&told, 0), "{told:?}");
        assert!(story.is_theirs("press") && !story.is_theirs("board"));
        assert!(!grants(&story.input(Input::Lapsed(THERE))), "no lease ends the rest");
        let told = story.is_asked_for(0, "board press");
        assert!(over(&told, 0) && !gives(&told), "it has not heard it: {told:?}");
        if rebuilt {
            start(&mut story, true);
            assert!(story.is_theirs("press") && !story.is_theirs("board"));
        }
        let (waiting, held) = match was_granted {
            true => (Vec::new(), vec![asserted(0, given)]),
            false => (vec![(id(0), Some(0))], Vec::new()),
        };
        let told = story.said(PeerMessage::Assert(Assertion { waiting, held, last: true }));
        assert!(over(&told, 0) && story.is_theirs("press"), "{told:?}");
        story.said(PeerMessage::ToManager { message: ToManager::Release(id(0)), order: None });
        assert!(!story.is_theirs("press"));
        assert_eq!(story.cell.books.ties().all_foreign().count(), 0);
    }
}

/// Its home has lost the whole when its lease was over, and says that it has it until it hears that.
#[test]
fn what_was_given_on_is_not_held_again_after_a_loss_of_memory() {
    let start = |story: &mut Story, lost, life| {
        story.starts_among(&[there()], |start| {
            (start.waits, start.lost, start.life) = (vec![name("press")], lost, life);
        });
        story.linked();
    };
    for has_lapsed in [false, true] {
        let mut story = Story::new(&[("board", 1), ("press", 1)]);
        start(&mut story, false, 0);
        let given = given_in(&story.is_asked_for(0, "board press")).expect("both are free");
        if has_lapsed {
            story.input(Input::Lapsed(THERE));
            assert!(story.is_theirs("press") && !story.is_theirs("board"));
        }
        start(&mut story, true, 9);
        assert!(story.cell.is_recovering() && !story.is_theirs("press"), "what it says counts");
        let held = vec![asserted(0, given)];
        let told = story.said(PeerMessage::Assert(Assertion { waiting: vec![], held, last: true }));
        assert_eq!((over(&told, 0), story.is_theirs("board")), (has_lapsed, !has_lapsed));
        assert!(!story.cell.is_recovering());
    }
}

/// It is said again until it is answered, and the answer may have to wait for the log.
#[test]
fn what_was_heard_is_known_when_it_is_said_again() {
    let mut story = Story::with_another();
    let needs = || Needs::new(vec![Count::any(PoolId(0), 1)]).expect("needs");
    let tries = |number, solo| ToManager::Try {
        request: id(number),
        needs: needs(),
        solo,
        span: Span::ONE,
    };
    let waits = |number, n| {
        let (request, parked) = (id(number), false);
        let round = Round::first(Origin::default());
        let base = round;
        ToManager::Queue(Stance {
            request,
            n,
            round,
            span: Span::ONE,
            base,
            needs: needs(),
            parked,
        })
    };
    let release = |number| ToManager::Release(id(number));
    let heard = |story: &Story, message: &ToManager| story.cell.engine().has_heard(message);
    let says = |story: &mut Story, message: &ToManager| {
        let needs = vec!["board".parse().expect("a need")];
        let order = Order { needs, who: Arc::default(), now: false };
        let order = (!matches!(message, ToManager::Release(_))).then_some(order);
        assert!(!heard(story, message), "{message:?}");
        story.said(PeerMessage::ToManager { message: message.clone(), order });
        assert!(heard(story, message), "{message:?}");
    };
    for message in [tries(0, false), tries(1, true), waits(1, 1), release(1), release(0)] {
        says(&mut story, &message);
    }
}

#[test]
fn who_is_given_up_while_the_host_is_away_holds_nothing() {
    let mut story = Story::with_another();
    assert!(gives(&story.is_asked_for(0, "board")));
    story.starts_among(&[], |start| {
        start.cluster.iter_mut().for_each(|cluster| cluster.forgotten = vec![THERE]);
    });
    assert!(!story.is_board_taken(1));
}

#[test]
fn whoever_waits_for_another_cell_is_not_in_its_own_way() {
    let mut story = Story::with_another();
    story.comes(1);
    story.asks(1, 1, "board press@there", Lasting::Connection);
    let waiting = story.cell.books.waiting().next().expect("it waits").0;
    let lacks = |story: &Story| {
        let explained = story.cell.engine().explain(waiting, 9).expect("it is there");
        let lacks = explained.chain[0].hindrances.iter().map(|one| one.need.to_string());
        lacks.collect::<Vec<_>>()
    };
    assert_eq!(lacks(&story), ["press@there"], "the rest is kept for it");
}

#[test]
fn who_waits_for_a_member_that_was_removed_is_told_so_at_once() {
    let mut story = Story::with_another();
    assert!(gives(&story.is_asked_for(0, "board")));
    story.comes(1);
    story.asks(1, 1, "press@there", Lasting::Connection);
    let told = story.input(Input::Removed(THERE));
    let refused = |effect: &Effect| matches!(effect, Effect::Reply { reply: Reply::Refused(Refusal::Never(why)), .. } if why.contains("'there' is no member"));
    assert!(told.iter().any(refused), "{told:?}");
    assert!(story.is_board_taken(2), "what it holds is its own");
    assert!(grants(&story.later(PATIENCE)));
}

/// Whoever uses it is not seen here: a program with the library, or on another machine.
#[test]
fn who_is_not_seen_has_time_to_stop_when_a_lease_runs_out() {
    let mut story = Story::with_another();
    story.comes(1);
    let asked = story.asks(1, 1, "board press@there", Lasting::Connection);
    let request = story.is_given(&asked, "press");
    assert!(story.is_board_taken(2));
    let told = story.input(Input::LeaseOver(THERE));
    assert_eq!(told, [reply(1, 1, Reply::Lost(request))], "and the board is its own still");
    assert!(story.later(STOPPING - 1).is_empty());
    let told = story.later(1);
    assert!(grants(&told), "{told:?}");
}

#[test]
fn what_somebody_uses_who_is_not_seen_outlasts_a_loss_of_memory() {
    let mut story = Story::new(&[("board", 1)]);
    let hello = hello(1, Means::Lease(5000), false);
    story.input(Input::Attach { conn: conn(1), hello });
    let ask = Wish::Ask { who: who(1), ask: ask_for("board").into(), length: None };
    let (conn, call, heard) = (conn(1), CallNo(1), CallNo(0));
    let input = Input::Call { conn, call, heard, wish: ask };
    let out = story.cell.step(story.at, input).expect("unbroken");
    assert!(is_grant(&out.effects) && out.sync, "it is on the disk before it is told");
    let start = Start { epoch: 9, life: 5, lost: true, boot: "other".into(), ..Start::default() };
    let pools = story.pools.clone().into_iter();
    let pools = pools.map(|(name, kind)| Declared { name, kind, limit: None }).collect();
    let (boottime, wall) = (story.at, story.at);
    story.input(Input::Started(Box::new(Start { pools, boottime, wall, ..start })));
    assert!(story.is_board_taken(2));
    assert!(!is_grant(&story.later(4999)));
    let told = story.later(1);
    assert!(grants(&told), "{told:?}");
}

#[test]
fn whoever_may_be_a_copy_gives_nothing_until_all_have_said_what_they_hold() {
    let all = || PeerMessage::Assert(Assertion { last: true, ..Assertion::default() });
    let mut story = Story::with_another();
    story.starts_among(&[there()], |start| start.doubtful = true);
    assert!(story.cell.engine().next_number().0 >> 32 > u64::from(story.epoch), "far beyond");
    assert!(story.is_board_taken(1));
    assert!(!gives(&story.is_asked_for(0, "board")));
    story.linked();
    let told = story.said(all());
    assert!(is_grant(&told), "{told:?}");
    story.starts_among(&[there()], |_| {});
    story.linked();
    assert!(!story.cell.is_recovering(), "it is not every start");
}

/// What the manager of the other cell is told of how long a use will take.
fn told_spans(effects: &[Effect]) -> Vec<u8> {
    let told = effects.iter().filter_map(|effect| match effect {
        Effect::Send(THERE, message) => match &**message {
            PeerMessage::ToManager { message: ToManager::Try { span, .. }, .. } => Some(*span),
            _ => None,
        },
        _ => None,
    });
    told.map(u8::from).collect()
}

#[test]
fn how_long_a_use_will_probably_take_is_told_to_other_cells_and_stays_in_the_log() {
    let mut story = Story::with_another();
    let length = Length::try_from(9).ok();
    let ask = |story: &mut Story, session, length| {
        story.comes(session);
        let needs = ["board", "press@there"].map(|need| need.parse().expect("a need")).to_vec();
        let ask = Ask { needs, ..ask_for("board") };
        story.calls(session, 1, Wish::Ask { who: who(session), ask: ask.into(), length })
    };
    assert_eq!(told_spans(&ask(&mut story, 1, length)), [9]);
    assert_eq!(told_spans(&ask(&mut story, 2, None)), [2], "by its size");
    // Comes to the same facts, and the same messages, again.
    story.replay(false);
    // Whoever asks while nothing is granted is not forgotten to be long.
    let mut story = Story::with_another();
    story.starts_among(&[there()], |start| start.doubtful = true);
    assert!(told_spans(&ask(&mut story, 1, length)).is_empty());
    story.replay(false);
    story.linked();
    let all = PeerMessage::Assert(Assertion { last: true, ..Assertion::default() });
    assert_eq!(told_spans(&story.said(all)), [9]);
    // Nor if the other cell forgets it, and it is asked for as another.
    let presence = Presence { life: 8, epoch: 1, nonce: 2, began: 0, length: 0 };
    assert_eq!(told_spans(&story.input(Input::Linked { cell: THERE, presence, first: None })), [9]);
}
