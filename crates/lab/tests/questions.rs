//! Questions of one's own: about a protocol that knows nothing of them, and without touching the
//! checker.

use holdall_lab::check::{Answer, Asked, Outcome, Report, Scope, Settings, check, random_walks};
use holdall_lab::registry::Chosen;
use holdall_lab::registry::questions::Question;
use holdall_protocols::ordered::{Ordered, ToManager};

const QUESTIONS: &[Question<Ordered>] = &[
    Question::always("nothing is ever given back", |_, system| {
        !system.to_managers.iter().any(|msg| matches!(msg, ToManager::Release(_)))
    }),
    Question::always("there are two of each", |_, system| {
        (system.users.len(), system.managers.len()) == (2, 2)
    }),
    Question::sometime("both are told something at once", |_, system| system.to_users.len() == 2),
    Question::sometime("five messages are under way", |_, system| {
        system.to_users.len() + system.to_managers.len() == 5
    }),
];

fn chosen() -> Chosen {
    Chosen::asking::<Ordered>("ordered", &[], QUESTIONS).expect("it has no variants")
}

fn scope() -> Scope {
    Scope::parse("1,1", "0+1/1+0", None).expect("sensible")
}

fn told(report: &Report) -> Vec<(Asked, Outcome, Option<usize>)> {
    let steps = |answer: &Answer| answer.trace.as_ref().map(|trace| trace.steps.len());
    report.questions.iter().map(|a| (a.kind, a.verdict, steps(a))).collect()
}

#[test]
fn questions_are_answered_with_a_shortest_way() {
    let report = check(&chosen(), &scope(), &Settings::default(), &|_| {}).expect("served");
    assert_eq!(
        told(&report),
        [
            // u0 asks, m0 and m1 grant in turn, and u0 is done.
            (Asked::Always, Outcome::Violated, Some(6)),
            (Asked::Always, Outcome::Holds, None),
            (Asked::Sometime, Outcome::Violated, None),
            (Asked::Sometime, Outcome::Violated, None),
        ]
    );
    assert!(report.broken(), "what is asked to hold always is demanded");
    let promised = report.properties.iter().filter(|p| p.verdict == Outcome::Violated);
    assert_eq!(promised.filter(|p| p.promised).count(), 0);
}

#[test]
fn where_not_everything_is_seen_only_what_is_seen_is_answered() {
    let settings = Settings { max_states: 3, ..Settings::default() };
    let report = check(&chosen(), &scope(), &settings, &|_| {}).expect("served");
    assert!(told(&report).iter().all(|(_, verdict, _)| *verdict == Outcome::Undecided));
    let walked = random_walks(&chosen(), &scope(), &Settings::default(), (20, 1), &|_| {});
    let walked = told(&walked.expect("served"));
    assert_eq!((walked[0].1, walked[1].1), (Outcome::Violated, Outcome::Undecided));
}
