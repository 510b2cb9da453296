//! What cells know of each other's logs: whose log was put back is found out, and nobody else.

use super::*;
use crate::engine::Member;
use crate::greeting::{First, Known, Presence, Stranger};
use crate::input::Cluster;
use crate::peer::{Assertion, PeerMessage};

const HERE: CellId = CellId(1);
const THERE: CellId = CellId(2);
const LIFE: u128 = 5;

fn known(nonce: u128, length: u64) -> Known {
    Known { life: LIFE, nonce, length }
}

impl Story {
    fn length(&self) -> u64 {
        self.log.len() as u64
    }

    /// Starts from what was logged, as others know it by this.
    fn starts_as(&mut self, nonce: u128, upgrade: bool) {
        self.starts_in(LIFE, nonce, upgrade);
    }

    fn starts_in(&mut self, life: u128, nonce: u128, upgrade: bool) {
        self.starts(HERE, life, nonce, upgrade, "boot");
    }

    fn starts_on(&mut self, boot: &str, life: u128, nonce: u128) {
        self.starts(HERE, life, nonce, false, boot);
    }

    fn starts(&mut self, cell: CellId, life: u128, nonce: u128, upgrade: bool, boot: &str) {
        self.replay(upgrade);
        self.epoch += 1;
        let member = |text, cell| Member { name: name(text), cell };
        let (own, members) = (member("here", cell), vec![member("there", THERE)]);
        let declared = |(name, kind)| Declared { name, kind, limit: None };
        let start = Start {
            epoch: self.epoch,
            pools: self.pools.clone().into_iter().map(declared).collect(),
            life,
            lost: life != LIFE,
            nonce,
            began: self.length(),
            boot: boot.into(),
            boottime: self.at,
            wall: self.at,
            rebuilt: upgrade,
            cluster: Some(Cluster { own, members, forgotten: Vec::new(), stopping: 15_000 }),
            patience: 70_000,
            ..Start::default()
        };
        self.input(Input::Started(Box::new(start)));
    }

    /// There is a link to the other cell, in this start of that, which knows so much of this one.
    fn meets(&mut self, nonce: u128, knows: Option<Known>) {
        let presence = Presence { life: 7, epoch: 1, nonce, began: 10, length: 11 };
        let first = knows.map(|known| First { known, since: 0 });
        self.input(Input::Linked { cell: THERE, presence, first });
    }

    fn looks(&self, known: Known) -> Result<(), Stranger> {
        self.cell.books.check_known(THERE, &known, self.length())
    }
}

/// One that was started among others, and linked in its first start with somebody who knew nothing of it.
fn met() -> Story {
    let mut story = Story::new(&[("board", 1)]);
    story.starts_as(1, false);
    story.meets(50, Some(Known::default()));
    story
}

#[test]
fn a_log_that_goes_on_is_all_that_others_know_however_often_it_was_started() {
    let mut story = met();
    let told = known(1, story.length());
    for nonce in 2..40 {
        story.starts_as(nonce, nonce % 7 == 0);
        assert_eq!(story.looks(told), Ok(()));
    }
    assert_eq!(story.looks(known(1, told.length - 1)), Ok(()), "it was told so before");
    // It has heard nothing over that link, or all.
    story.meets(50, Some(told));
    let last = known(39, story.length());
    for after in [told, last, known(0, 2)] {
        assert_eq!(story.looks(after), Ok(()));
    }
    story.starts_as(40, false);
    for after in [told, last] {
        assert_eq!(story.looks(after), Ok(()));
    }
    story.meets(50, Some(last));
    assert_eq!(story.looks(told), Ok(()), "what it knew since is lost with its machine");
    // An old one is linked, and says nothing.
    story.meets(50, None);
    assert_eq!(story.looks(last), Ok(()));
    let other = Known { life: LIFE - 1, nonce: 9, length: 1 << 40 };
    assert_eq!(story.looks(other), Ok(()), "it knows nothing of this life");
    story.starts_in(LIFE + 1, 41, false);
    assert_eq!(story.looks(last), Ok(()), "its memory is lost, and it says so");
}

/// However often it was started, and however much it has written since; before it is heard of.
#[test]
fn a_log_that_was_put_back_is_found_out() {
    let mut story = met();
    let before = story.log.clone();
    story.starts_as(2, false);
    story.meets(50, Some(known(1, before.len() as u64)));
    for _ in 0..10 {
        story.input(Input::Members(Vec::new()));
        story.input(Input::Unlinked(THERE));
    }
    let of_this_start = known(2, story.length());
    let again = |story: &mut Story| {
        for nonce in 100..130 {
            story.starts_as(nonce, nonce % 2 == 0);
        }
        assert!(story.length() > of_this_start.length, "it has grown");
    };
    // To before that start.
    let mut back = met();
    back.epoch = 9;
    again(&mut back);
    assert_eq!(back.looks(of_this_start), Err(Stranger::Parted { known: of_this_start.length }));
    let told = known(1, before.len() as u64);
    assert_eq!(back.looks(told), Ok(()), "who knows no more lets it in");
    back.meets(50, Some(told));
    assert!(back.looks(of_this_start).is_err(), "and others do not for that");
    // Within it.
    let length = story.length() - 5;
    story.log.truncate(length as usize);
    again(&mut story);
    let shorter = Stranger::Shorter { length, known: of_this_start.length };
    assert_eq!(story.looks(of_this_start), Err(shorter));
    assert_eq!(story.looks(known(2, length)), Ok(()));
    // To before it was linked with anybody.
    let mut back = Story::new(&[("board", 1)]);
    again(&mut back);
    assert!(back.looks(of_this_start).is_err());
}

#[test]
fn what_is_known_of_another_log_outlasts_a_start() {
    let mut story = met();
    let knows = |story: &Story| story.cell.books.ties().known_of(THERE);
    let there = |nonce, length| Known { life: 7, nonce, length };
    let all = |length| {
        let message = Assertion { last: true, ..Assertion::default() };
        let message = Box::new(PeerMessage::Assert(message));
        Input::Said { cell: THERE, message, length }
    };
    assert_eq!(knows(&story), Known::default(), "it has said nothing");
    assert!(story.cell.books.ties().is_to_be_kept(THERE, 12));
    assert!(!story.cell.books.ties().is_to_be_kept(THERE, 11), "it was in its greeting");
    story.input(Input::CameTo { cell: THERE, length: 12 });
    assert!(!story.cell.books.ties().is_to_be_kept(THERE, 13), "nothing rests on it");
    assert_eq!(knows(&story), there(50, 12));
    story.input(all(20));
    story.input(all(0));
    for upgrade in [false, true] {
        story.starts_as(2, upgrade);
        assert_eq!(knows(&story), there(50, 20));
    }
    assert_eq!(story.cell.books.ties().met(THERE).expect("met").length, 20);
    // It does not know yet whether that log has this link in it.
    story.meets(51, Some(Known::default()));
    assert_eq!(knows(&story), there(50, 20));
    story.input(all(30));
    assert_eq!(knows(&story), there(51, 30));
    // One of before does not put it in there.
    story.meets(52, None);
    story.input(all(40));
    assert_eq!(knows(&story), there(51, 30));
    assert_eq!(story.cell.books.ties().met(THERE).expect("met").length, 40);
    let (life, word) = (None, Vec::new());
    story.input(Input::Forget { cell: THERE, life, word });
    assert_eq!(knows(&story), Known::default());
}

impl Story {
    /// Whether somebody who comes is given the board, which is given back at once.
    fn gives(&mut self, session: u64) -> bool {
        self.comes(session);
        let told = self.asks(session, 1, "board", Lasting::Connection);
        self.input(Input::Over(SessionId(session.into())));
        told.iter().any(|it| matches!(it, Effect::Reply { reply: Reply::Granted { .. }, .. }))
    }

    fn forgets(&mut self, cell: CellId) {
        self.input(Input::Forget { cell, life: None, word: Vec::new() });
    }
}

/// Of a log that goes from host to host.
#[test]
fn whoever_is_outdone_gives_nothing_to_anybody_whatever_starts_follow() {
    let mut story = met();
    assert!(story.gives(1));
    story.input(Input::Outdone(THERE));
    assert!(!story.gives(2));
    for upgrade in [false, true] {
        story.starts_as(2, upgrade);
        story.at += 1 << 40;
        story.input(Input::Due);
        assert!(story.cell.is_recovering() && !story.gives(3 + u64::from(upgrade)));
    }
    story.forgets(THERE);
    assert!(!story.cell.is_recovering() && story.gives(5), "an operator has said so");
}

/// It comes back in another life, and remembers what it knew.
#[test]
fn what_one_knows_that_was_waited_for_and_given_up_is_settled() {
    let beyond = known(77, 5000);
    let mut story = met();
    assert!(story.looks(beyond).is_err());
    story.forgets(THERE);
    assert!(story.looks(beyond).is_err(), "nobody has asked about that");
    story.input(Input::Outdone(THERE));
    story.forgets(THERE);
    for upgrade in [false, true] {
        story.starts_as(2, upgrade);
        assert_eq!(story.looks(beyond), Ok(()));
    }
    story.meets(60, Some(beyond));
    assert!(story.gives(1));
    story.starts_as(3, false);
    assert_eq!(story.looks(beyond), Ok(()), "it has heard nothing since");
    let more = known(77, 5001);
    assert_eq!(story.looks(more), Err(Stranger::Parted { known: 5001 }), "for once");
}

/// It was in the log when there was a link first.
#[test]
fn whoever_forgets_what_it_knew_and_remembers_it_again_is_let_in() {
    let mut story = met();
    let told = known(1, story.length());
    story.starts_as(2, false);
    story.meets(50, Some(told));
    story.meets(51, Some(Known::default()));
    assert_eq!(story.looks(told), Ok(()));
}

/// Also those that know no more than the log tells may hold what it has forgotten.
#[test]
fn whoever_is_outdone_waits_for_all_and_goes_above_all_fences() {
    let third = CellId(3);
    let mut story = met();
    let members = [("there", THERE), ("third", third)];
    let members = members.map(|(text, cell)| Member { name: name(text), cell });
    story.input(Input::Members(members.into()));
    let presence = Presence { life: 8, epoch: 1, nonce: 9, began: 10, length: 11 };
    let link = Input::Linked { cell: third, presence, first: Some(First::default()) };
    story.input(link.clone());
    let says = |length| {
        let all = Assertion { last: true, ..Assertion::default() };
        Input::Said { cell: third, message: Box::new(PeerMessage::Assert(all)), length }
    };
    story.input(says(12));
    story.input(Input::Unlinked(THERE));
    let (before, told) = (story.cell.epoch(), story.input(Input::Outdone(THERE)));
    let cut = |it: &Effect| matches!(it, Effect::Unlink(cell, _) if *cell == third);
    assert!(told.iter().any(cut), "it has said before what it holds: {told:?}");
    assert!(story.cell.epoch() >= Presence::epoch_beyond(before));
    story.forgets(THERE);
    assert!(story.cell.is_recovering() && !story.gives(1));
    story.input(Input::Unlinked(third));
    story.input(link);
    story.input(says(13));
    assert!(!story.cell.is_recovering() && story.gives(2));
}

/// What was asked for before, a log that is not there, or was put back, says nothing of.
#[test]
fn since_when_everything_is_remembered_is_known() {
    let since = |story: &Story| story.cell.books.ties().first(Known::default()).since;
    let mut story = Story::new(&[]);
    story.starts_on("boot of the first start", LIFE, 50);
    assert_eq!((since(&story), story.epoch), (2, 2));
    story.starts_in(LIFE, 51, true);
    assert_eq!(since(&story), 2, "it goes on from its log");
    for logic in [LOGIC, LOGIC + 1] {
        let snapshot = story.cell.snapshot().expect("written");
        let replay = Replay::new(logic, Some((LOGIC, &snapshot))).expect("understood");
        let cell = replay.finish().expect("an engine").cell;
        assert_eq!(cell.books().ties().first(Known::default()).since, 2);
    }
    story.starts_on("other", LIFE + 1, 52);
    assert_eq!(since(&story), 2, "reservations outlast the machine");
    story.starts_on("other", LIFE + 2, 53);
    assert_eq!(since(&story), story.epoch, "its log was lost, or is a copy");
}

/// One that was removed joins again under another id. Others have never been linked with that.
#[test]
fn what_was_told_to_another_cell_is_not_known_to_this_one() {
    let mut story = met();
    story.input(Input::CameTo { cell: THERE, length: 12 });
    let knows = |story: &Story| story.cell.books.ties().known_of(THERE).length;
    story.start("boot", false);
    story.starts_as(2, false);
    assert_eq!(knows(&story), 12, "it was alone for a while");
    story.starts(CellId(9), LIFE, 3, false, "boot");
    assert_eq!(knows(&story), 0);
    story.replay(true);
    assert_eq!(knows(&story), 0);
}
