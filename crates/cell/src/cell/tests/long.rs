//! What leads to more facts than a record of a log has room for.

use super::*;
use crate::replay::{PART_MAX, Parts};

/// One grant of all units of a large pool is longer than a record.
#[test]
fn a_long_record_comes_in_parts() {
    let mut story = Story::new(&[(&"x".repeat(40), 65_536)]);
    story.comes(1);
    let before = story.log.len();
    let needs = format!("{}:all", "x".repeat(40));
    assert!(is_grant(&story.asks(1, 1, &needs, Lasting::Connection)));
    let parts = story.log.len() - before;
    assert!(parts > 3, "{parts} parts");
    assert!(story.log.iter().all(|part| part.len() <= PART_MAX));
    story.restart("boot", false);
    assert_eq!(story.cell.engine.load(), (1, 0));
    // A beginning without an end was never told.
    story.log.truncate(before + parts - 1);
    story.restart("boot", false);
    assert_eq!(story.cell.engine.load(), (0, 0));
    assert_eq!(story.comes_back(1), []);
    assert!(is_grant(&story.asks(1, 1, &needs, Lasting::Connection)));
    story.restart("boot", true);
    let mut middle = Parts::default();
    assert!(middle.take(&story.log[before + 1]).is_err(), "an end without a beginning is damage");
    assert!(middle.take(&[]).is_err());
    assert!(middle.take(&[0, 1, 2]).is_err());
}

#[test]
fn many_who_share_are_granted_at_once() {
    let mut story = Story::new(&[]);
    let lock = "l".repeat(200);
    story.comes(1);
    story.asks(1, 1, &lock, Lasting::Connection);
    let request = story.cell.books.grants().next().expect("it is held").0;
    for session in 2..5 {
        story.comes(session);
        for call in 1..=1000 {
            story.asks(session, call, &format!("{lock}:shared"), Lasting::Connection);
        }
    }
    let before = story.log.len();
    story.calls(1, 2, Wish::End { request, rest: None });
    assert_eq!(story.cell.engine.load(), (3000, 0));
    assert!(story.log.len() > before + 1, "in parts");
    story.restart("boot", false);
    assert_eq!(story.cell.engine.load(), (3000, 0));
}
