//! Parts of grants.

use holdall_wire::{Ask, Lasting, Part, Refusal, RequestNo};

use super::super::{Effect, Engine, Input};
use super::{Story, ask, engine, granted, never, step, units};

fn part(of: RequestNo, needs: &str) -> Ask {
    Ask { part: Some(Part { of, outlasts: false }), ..ask(needs) }
}

fn reserved() -> (Story, RequestNo) {
    let mut story = Story(engine());
    story.pool("gpu", 4);
    let lasting = Lasting::Reservation(1000);
    let (whole, effects) = story.asks_with(Ask { lasting, ..ask("gpu/1 gpu:2 db lic:shared") });
    assert_eq!(units(&effects), ["gpu/0", "gpu/1", "gpu/2", "db", "lic"]);
    (story, whole)
}

#[test]
fn parts_are_used_side_by_side_all_or_nothing_in_the_order_asked() {
    let (mut story, whole) = reserved();
    let (first, effects) = story.asks_with(part(whole, "gpu/1 db:shared"));
    assert_eq!(units(&effects), ["gpu/1", "db"]);
    let outer = story.0.grant(whole).expect("held").taken[0].units[0].1;
    assert!(granted(&effects)[0].1[0].units[0].1 > outer, "fences grow");
    let (second, effects) = story.asks_with(part(whole, "gpu db:shared"));
    assert_eq!(units(&effects), ["gpu/0", "db"]);
    let (_, effects) = story.asks_with(Ask { now: true, ..part(whole, "gpu/1") });
    assert!(granted(&effects).is_empty(), "another part has it");
    let (third, effects) = story.asks_with(part(whole, "gpu:all"));
    assert_eq!(effects, [Effect::Queued(third)]);
    let (fourth, effects) = story.asks_with(part(whole, "gpu"));
    assert_eq!(effects, [Effect::Queued(fourth)], "not before the one that wants all");
    let (fifth, effects) = story.asks_with(part(whole, "db:shared"));
    assert_eq!(units(&effects), ["db"], "which wants nothing of this");
    let waiting = story.0.status(&[]).waiting;
    assert_eq!(waiting[0].hindrances[0].holders, [first, second]);
    assert_eq!(waiting[1].hindrances[0].ahead, [third]);
    assert_eq!(story.0.waiting(), [third, fourth]);
    assert_eq!(story.ends(first), []);
    assert_eq!(story.ends(second), [third]);
    assert_eq!(story.ends(third), [fourth]);
    assert_eq!(units(&story.asks("gpu").1), ["gpu/3"], "others get what is not reserved");
    story.ends(fifth);
}

#[test]
fn only_what_a_grant_has_is_a_part_of_it() {
    let (mut story, whole) = reserved();
    for needs in ["gpu:4", "gpu/3", "x", "lic", "gpu/9", "gpu:2 gpu/0 gpu/1"] {
        assert!(never(&story.asks_with(part(whole, needs)).1), "{needs}");
    }
    assert_eq!(units(&story.asks_with(part(whole, "lic:shared")).1), ["lic"]);
    let conflict =
        |effects: &[Effect]| matches!(effects, [Effect::Refused { why: Refusal::Conflict(_), .. }]);
    assert!(conflict(&story.asks_with(part(RequestNo(3), "gpu")).1));
    let (inner, _) = story.asks_with(part(whole, "gpu"));
    assert!(conflict(&story.asks_with(part(inner, "gpu")).1), "parts have no parts");
    let mut stranger = super::who();
    stranger.uid = 2;
    let input = Input::Ask { who: stranger.into(), ask: part(whole, "gpu").into(), length: None };
    let effects = step(&mut story.0, input);
    assert!(matches!(effects[..], [Effect::Refused { why: Refusal::Denied(_), .. }]));
    let own = Ask { within: Some(inner), ..part(whole, "gpu:3") };
    assert!(never(&story.asks_with(own).1), "it would wait for itself");
    let inside = |needs| Ask { within: Some(inner), ..ask(needs) };
    assert!(never(&story.asks_with(inside("gpu/1")).1), "the grant that it is a part of has it");
    assert_eq!(units(&story.asks_with(inside("gpu")).1), ["gpu/3"], "nobody has this one");
}

#[test]
fn a_grant_ends_with_its_last_part() {
    let (mut story, whole) = reserved();
    let (first, _) = story.asks_with(part(whole, "gpu:3"));
    let (second, _) = story.asks_with(part(whole, "gpu"));
    let (other, _) = story.asks("gpu:4");
    let effects = step(&mut story.0, Input::End(whole));
    assert!(matches!(effects[..], [Effect::Refused { request, .. }] if request == second));
    assert!(story.0.is_held(whole) && story.0.is_held(first), "it is still in use");
    assert!(!never(&story.asks_with(part(whole, "gpu")).1), "and has no more parts");
    assert_eq!(story.0.load(), (2, 1));
    let effects = step(&mut story.0, Input::End(first));
    assert!(effects.contains(&Effect::Ended(first)) && effects.contains(&Effect::Ended(whole)));
    assert_eq!(granted(&effects)[0].0, other);
    story.ends(other);
    assert_eq!(story.0.load(), (0, 0));
    assert!(story.0.parts.is_empty() && story.0.users.is_empty());
}

#[test]
fn a_part_comes_back_into_its_grant_or_stands_alone() {
    let (mut story, whole) = reserved();
    let (part_of_it, _) = story.asks_with(part(whole, "gpu/1"));
    let (outer, inner) =
        (story.0.kept(whole).expect("held"), story.0.kept(part_of_it).expect("held"));
    let mut next = Story(Engine::new(None, 8, true).expect("a variant"));
    next.pool("gpu", 4);
    assert_eq!(granted(&step(&mut next.0, Input::Restore(outer))).len(), 1);
    let effects = step(&mut next.0, Input::Restore(inner.clone()));
    assert_eq!(granted(&effects), [(part_of_it, inner.taken.clone())]);
    assert_eq!(units(&next.asks_with(part(whole, "gpu:2")).1), ["gpu/0", "gpu/2"]);
    let mut alone = Story(Engine::new(None, 8, true).expect("a variant"));
    alone.pool("gpu", 4);
    let effects = step(&mut alone.0, Input::Restore(inner.clone()));
    assert_eq!(granted(&effects), [(part_of_it, inner.taken)], "its grant is over");
    assert_eq!(units(&alone.asks("gpu:3").1), ["gpu/0", "gpu/2", "gpu/3"]);
}
