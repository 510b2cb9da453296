//! Reservations here whose home has lost its memory of them: they are kept until their time.

use super::*;
use crate::greeting::{First, Known};
use crate::peer::{RESERVED_MAX, Term};

/// For so long a reservation is made; it is kept a sixth longer.
const TERM: Term = Term { millis: 60_000, mark: 5 };

impl Story {
    /// The other cell has the board, as a reservation or not, of the time before its epoch 2.
    fn with_board_of_another(reserved: bool) -> Self {
        let mut story = Self::with_another();
        assert!(gives(&story.is_asked_for(0, "board")));
        if reserved {
            let told = story.said(PeerMessage::Keep { request: id(0), term: TERM });
            let kept = PeerMessage::Kept { request: id(0), mark: TERM.mark };
            assert_eq!(told, [Effect::Send(THERE, Box::new(kept))]);
        }
        assert!(story.is_board_taken(1));
        story
    }

    /// There is a link to another life of the other cell, which says that it remembers everything since then.
    fn links_anew(&mut self, since: u32) {
        self.links_from(1, Some(First { known: Known::default(), since }));
    }

    /// The same, of a log that had as many records when it began.
    fn links_from(&mut self, began: u64, first: Option<First>) {
        let presence = Presence { life: 8, epoch: 2, nonce: 2, began, length: 3 };
        self.input(Input::Linked { cell: THERE, presence, first });
    }

    /// It says that it has nothing here.
    fn asserts_nothing(&mut self) -> Vec<Effect> {
        let all = Assertion { last: true, ..Assertion::default() };
        self.said(PeerMessage::Assert(all))
    }

    fn forces(&mut self, call: u64) -> Vec<Effect> {
        let request = self.cell.books.grants().next().expect("it is held").0;
        let (by, may, unseen, beyond) = (who(1), true, false, None);
        let wish = Wish::Release { request, force: true, by, may, unseen, beyond };
        self.calls(1, call, wish)
    }
}

#[test]
fn what_a_home_has_forgotten_is_kept_until_its_time() {
    for restarts in 0..4 {
        let mut story = Story::with_board_of_another(true);
        story.links_anew(2);
        match restarts {
            0 => {}
            1 => story.replay(false),
            2 => {
                let snapshot = story.cell.snapshot().expect("written");
                let replay = Replay::new(LOGIC, Some((LOGIC, &snapshot))).expect("understood");
                story.cell = replay.finish().expect("an engine").cell;
            }
            _ => {
                assert!(!grants(&story.asserts_nothing()));
                story.starts_among(&[there()], |start| (start.rebuilt, start.life) = (true, 9));
                story.links_anew(2);
            }
        }
        assert!(!grants(&story.asserts_nothing()), "{restarts}");
        assert!(!grants(&story.input(Input::Lapsed(THERE))), "it asks for no lease");
        let before = TERM.with_grace() - 1;
        story.later(before);
        assert!(story.is_theirs("board"), "{restarts}");
        story.later(1);
        assert!(!story.is_theirs("board") && story.cell.books.waiting().count() == 0, "{restarts}");
    }
}

/// The log of a machine that was restarted may be a copy from before: it does not know that, and whoever counts its records does.
#[test]
fn what_is_not_in_a_log_that_was_put_back_is_kept_until_its_time() {
    let says_all = Some(First::default());
    for (first, again) in [(says_all, says_all), (None, None), (None, says_all)] {
        let mut story = Story::with_board_of_another(true);
        story.links_from(0, first);
        assert!(!grants(&story.asserts_nothing()));
        story.input(Input::Unlinked(THERE));
        let snapshot = story.cell.snapshot().expect("written");
        let replay = Replay::new(LOGIC, Some((LOGIC, &snapshot))).expect("understood");
        story.cell = replay.finish().expect("an engine").cell;
        story.links_from(0, again);
        assert!(!grants(&story.asserts_nothing()), "the same life over another link");
        story.later(TERM.with_grace());
        assert!(!story.is_theirs("board"));
    }
    for first in [None, says_all] {
        let mut story = Story::with_board_of_another(true);
        story.links_from(1, first);
        assert!(grants(&story.asserts_nothing()), "its log is whole");
    }
}

#[test]
fn to_say_once_more_that_this_is_all_gives_up_nothing() {
    let mut story = Story::with_board_of_another(true);
    story.links_anew(2);
    for _ in 0..3 {
        assert!(!grants(&story.asserts_nothing()));
    }
}

#[test]
fn nothing_is_kept_for_longer_than_may_be_reserved() {
    let mut story = Story::with_another();
    assert!(gives(&story.is_asked_for(0, "board")));
    story.said(PeerMessage::Keep { request: id(0), term: Term { millis: u64::MAX, mark: 5 } });
    let most = Term { millis: RESERVED_MAX, mark: 5 };
    story.later(most.with_grace() - 1);
    assert!(story.is_theirs("board"));
    story.later(1);
    assert!(!story.is_theirs("board"));
}

/// Its home would go on using it: nobody tells it.
#[test]
fn what_is_kept_for_a_home_that_is_away_is_not_ended_by_force() {
    for reserved in [true, false] {
        let mut story = Story::with_board_of_another(reserved);
        story.input(Input::Unlinked(THERE));
        let told = story.forces(2);
        let refused = format!("{told:?}").contains("'there', which cannot be reached");
        assert!(refused == reserved && over(&told, 0) != reserved, "{told:?}");
        story.linked();
        assert!(over(&story.forces(3), 0));
    }
}

#[test]
fn what_a_home_remembers_and_does_not_say_is_over_and_so_is_what_was_not_reserved() {
    for (reserved, since) in [(true, 0), (false, 2)] {
        let mut story = Story::with_board_of_another(reserved);
        story.links_anew(since);
        assert!(grants(&story.asserts_nothing()), "{reserved} {since}");
    }
}

#[test]
fn what_nobody_speaks_of_any_more_ends_by_force() {
    for (since, is_over) in [(2, true), (0, false)] {
        let mut story = Story::with_board_of_another(true);
        story.links_anew(since);
        if is_over {
            story.asserts_nothing();
        }
        let told = story.forces(2);
        assert!(over(&told, 0) && grants(&told) == is_over, "{told:?}");
    }
    let mut story = Story::with_board_of_another(true);
    story.links_anew(2);
    story.asserts_nothing();
    assert!(grants(&story.input(Input::Forget { cell: THERE, life: Some(8), word: vec![1] })));
}
