//! What people are told.

use holdall_wire::event::Ending;

use super::*;
use crate::books::Books;
use crate::events::project;
use crate::replay::Parts;

/// In a line: what happened to which request, and how.
fn line(what: &What) -> String {
    let number = |request: &RequestNo| request.0 & 0xff;
    match what {
        What::Started { epoch } => format!("started {epoch}"),
        What::Asked { request, ask, .. } => {
            format!("{} asked {}", number(request), ask.needs[0])
        }
        What::Queued { request } => format!("{} queued", number(request)),
        What::Granted { request, taken, .. } => {
            format!("{} granted {}", number(request), taken[0].units[0].0)
        }
        What::Runs { request, pid, .. } => format!("{} runs {pid:?}", number(request)),
        What::Renewed { request, until, .. } => format!("{} renewed {until}", number(request)),
        What::Forced { request, by, .. } => format!("{} forced by {}", number(request), by.uid),
        What::TakenAway { request, how, .. } => format!("{} away {}", number(request), how.word()),
        What::Ending { request, how, .. } => format!("{} ending {}", number(request), how.word()),
        What::Ended { request, how, .. } => format!("{} {}", number(request), how.word()),
        What::Refused { request, why, .. } => format!("{} refused: {why}", number(request)),
        What::Changed { by, change } => {
            format!("{} changed {}", by.is_some(), calls::name_of(change))
        }
        What::Pool { name, kind, .. } => format!("pool {name} {kind:?}"),
        What::Restored { request, .. } => format!("{} restored", number(request)),
        What::ClockSet { by } => format!("clock set by {by}"),
    }
}

impl Story {
    fn told(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events).iter().map(|(_, what)| line(what)).collect()
    }
}

#[test]
fn everything_that_becomes_of_a_request_is_told() {
    let mut story = Story::new(&[("gpu", 1)]);
    assert_eq!(story.told(), ["started 1", "pool gpu Some(Numbered(1))"]);
    let request = story.runs(1, "gpu", Leftovers::Wait);
    assert_eq!(story.told(), ["1 asked gpu", "1 granted gpu/0", "1 runs Some(9)"]);
    story.comes(2);
    story.asks(2, 1, "gpu", Lasting::Reservation(5000));
    assert_eq!(story.told(), ["3 asked gpu", "3 queued"]);
    let (by, unseen, beyond) = (who(2), false, None);
    story.calls(2, 2, Wish::Release { request, force: true, by, may: true, unseen, beyond });
    assert_eq!(story.told(), ["1 forced by 1002", "1 away lost"]);
    story.at += 10_000;
    story.input(Input::Due);
    story.input(Input::HolderEnded(request));
    assert_eq!(story.told(), ["1 ending lost", "1 lost", "3 granted gpu/0"]);
    story.at += 5000;
    story.input(Input::Due);
    assert_eq!(story.told(), ["3 expired"]);
    let drained = Drained { reason: "hot".into(), by: "me".into(), until: Some(story.at + 10) };
    story.calls(2, 3, changes(2, Change::Drain { name: name("gpu"), drained }));
    story.asks(2, 4, "gpu", Lasting::Connection);
    story.input(Input::Dismiss);
    story.at += 10;
    story.input(Input::Due);
    assert_eq!(
        story.told(),
        [
            "true changed gpu",
            "5 asked gpu",
            "5 queued",
            "5 refused: the agent is stopping",
            "false changed gpu"
        ]
    );
}

#[test]
fn how_a_grant_ends_is_told() {
    let mut story = Story::new(&[("gpu", 1)]);
    story.comes(1);
    story.asks(1, 1, "gpu", Lasting::Connection);
    story.told();
    story.input(Input::Over(SessionId(1)));
    assert_eq!(story.told(), ["1 left"]);
    let request = story.runs(2, "gpu", Leftovers::Wait);
    story.told();
    story.input(Input::Over(SessionId(2)));
    story.input(Input::HolderEnded(request));
    assert_eq!(story.told(), ["3 ending killed", "3 killed"]);
}

/// They follow from the facts alone, and tell the time that the wall showed.
#[test]
fn events_are_the_same_from_the_log() {
    let mut story = Story::new(&[("gpu", 1)]);
    story.input(Input::Clock { ahead: 1_000_000 });
    assert_eq!(
        story.events.last(),
        Some(&(1_000_000 + story.at, What::ClockSet { by: 1_000_000 }))
    );
    let request = story.runs(1, "gpu", Leftovers::Kill);
    let rest = Some(Rest { holder: child(9), pids: vec![9] });
    story.at = 300;
    story.calls(1, 3, Wish::End { request, rest });
    story.input(Input::HolderEnded(request));
    let (mut books, mut parts, mut again) = (Books::default(), Parts::default(), Vec::new());
    for payload in &story.log {
        let Some(recorded) = parts.take(payload).expect("readable") else { continue };
        for fact in &recorded.facts {
            again.extend(project(&books, recorded.at, fact));
            books.enter(fact).expect("it can be");
        }
    }
    assert_eq!(again, story.events);
    let Some((at, What::Ended { since, how, .. })) = again.last() else { panic!("{again:?}") };
    assert_eq!((*at, *since, *how), (1_000_300, 1_000_100, Ending::Released));
}
