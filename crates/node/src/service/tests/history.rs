//! The history that an agent keeps, over restarts and losses, and what it tells those who wait.

use holdall_history::{History, Note, read};
use holdall_wire::{Expected, HistoryPlace, Outlook, RequestNo};

use super::*;
use crate::history::{Config as Kept, Keep};

fn config() -> Config {
    Config { ephemeral: true, ..super::config() }
}

fn kept(dir: &Path) -> History {
    read(&dir.join("data")).expect("a history")
}

/// A use of a lock, from asking to its end.
async fn use_it(client: &mut Client, lock: &str) {
    let request = granted(&client.ask(lock, Lasting::Connection).await);
    assert_eq!(client.call(Body::End { request, left: false }).await, Reply::Done);
}

async fn outlook(looker: &mut Client, request: RequestNo) -> Outlook {
    match looker.call(Body::Explain { request, most: 1 }).await {
        Reply::Explanation(explanation) => explanation.outlook.expect("it waits"),
        other => panic!("{other:?}"),
    }
}

/// The first estimate that was made after a time by the wall.
async fn expected_after(looker: &mut Client, request: RequestNo, after: u64) -> Expected {
    for _ in 0..6000 {
        match outlook(looker, request).await {
            Outlook::Expected(expected) if expected.made > after => return expected,
            _ => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
        }
    }
    panic!("no estimate: {:?}", outlook(looker, request).await)
}

#[test]
fn everything_is_kept_once_over_any_number_of_starts() {
    let (_dir, dir) = directory();
    for start in 1..=3 {
        with_agent(&dir, &config(), |service| async move {
            let (mut client, _) = Client::attached(&service, start, false).await;
            use_it(&mut client, "x").await;
            service.borrow_mut().flush_history();
        });
        // One in which nothing happens.
        with_agent(&dir, &config(), |_| async {});
        let history = kept(&dir);
        assert_eq!((history.uses.len(), &history.notes[..]), (start as usize, &[][..]));
        assert!(history.uses.iter().all(|one| one.held().is_some()), "{history:?}");
    }
}

#[test]
fn what_was_not_written_is_made_up_for_from_the_log() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let (mut client, _) = Client::attached(&service, 1, false).await;
        use_it(&mut client, "x").await;
    });
    let files = holdall_history::files(&dir.join("data")).expect("there");
    // As if it had been killed before it could write anything.
    files.iter().for_each(|(_, file)| std::fs::remove_file(file).expect("removed"));
    with_agent(&dir, &config(), |service| async move {
        let (mut client, _) = Client::attached(&service, 2, false).await;
        use_it(&mut client, "y").await;
        service.borrow_mut().flush_history();
    });
    let history = kept(&dir);
    let asked: Vec<_> = history.uses.iter().map(|one| one.needs[0].to_string()).collect();
    assert_eq!((&asked[..], &history.notes[..]), (&["x".into(), "y".into()][..], &[][..]));
}

#[test]
fn what_is_not_in_the_log_any_more_is_a_gap() {
    let (_dir, dir) = directory();
    let config = config();
    with_agent(&dir, &config, |service| async move {
        let (mut client, _) = Client::attached(&service, 1, false).await;
        use_it(&mut client, "x").await;
        service.borrow_mut().flush_history();
    });
    let off = Kept { keep: Keep::Off, ..Kept::default() };
    with_agent(&dir, &Config { history: off, ..config.clone() }, |service| async move {
        let (mut client, _) = Client::attached(&service, 2, false).await;
        use_it(&mut client, "y").await;
        let made = service.borrow_mut().snapshot_now();
        made.await.expect("told").expect("a snapshot");
    });
    with_agent(&dir, &config, |service| async move { service.borrow_mut().flush_history() });
    let history = kept(&dir);
    assert_eq!(history.uses.len(), 1);
    assert!(matches!(history.notes[..], [Note::Gaps(1..)]), "{:?}", history.notes);
}

#[test]
fn who_waits_is_told_when_as_soon_as_there_is_something_to_go_by() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let (mut holder, _) = Client::attached(&service, 1, false).await;
        let first = granted(&holder.ask("x", Lasting::Connection).await);
        let (mut waiting, _) = Client::attached(&service, 2, false).await;
        let Reply::Queued(request) = waiting.ask("x", Lasting::Connection).await else {
            panic!("it has to wait")
        };
        let mut looker = Client::connect(&service, frame::VERSION).await;
        let none = |why: &str| why.contains("only 0 uses");
        while !matches!(outlook(&mut looker, request).await, Outlook::Unknown(why) if none(&why)) {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        for _ in 0..5 {
            use_it(&mut holder, "y").await;
        }
        let expected = expected_after(&mut looker, request, 0).await;
        assert_eq!(expected.request, request);
        assert!(expected.nine.0 <= expected.half.0 && expected.half.1 <= expected.nine.1);
        let Reply::Prospects(all) = looker.call(Body::Prospects).await else { panic!("nothing") };
        assert_eq!(all.expected.len(), 1);
        holder.call(Body::End { request: first, left: false }).await;
        granted(&waiting.reply(1).await);
        service.borrow_mut().flush_history();
        let from = HistoryPlace::default();
        let Reply::History(page) = looker.call(Body::History { from }).await else {
            panic!("it may be read")
        };
        assert!(page.all && page.next.is_none());
        assert!(page.text.contains("\"k\":\"expect\""), "{}", page.text);
    });
    let history = kept(&dir);
    assert_eq!(history.uses.iter().filter(|one| one.expected.is_some()).count(), 1);
}

#[test]
fn after_events_were_left_out_estimates_are_made_again() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let (mut holder, _) = Client::attached(&service, 1, false).await;
        for _ in 0..5 {
            use_it(&mut holder, "y").await;
        }
        granted(&holder.ask("x", Lasting::Connection).await);
        let (mut waiting, _) = Client::attached(&service, 2, false).await;
        let Reply::Queued(request) = waiting.ask("x", Lasting::Connection).await else {
            panic!("it has to wait")
        };
        let mut looker = Client::connect(&service, frame::VERSION).await;
        expected_after(&mut looker, request, 0).await;
        // The writer sees this with the next that happens.
        service.borrow().history.as_ref().expect("it is kept").leave_out(3);
        use_it(&mut holder, "y").await;
        service.borrow_mut().flush_history();
        let now = service.borrow().clock.wall();
        expected_after(&mut looker, request, now).await;
    });
    assert!(kept(&dir).notes.contains(&Note::Gaps(3)));
}

#[test]
fn without_a_history_it_is_said_so() {
    let (_dir, dir) = directory();
    let off = Kept { keep: Keep::Off, ..Kept::default() };
    with_agent(&dir, &Config { history: off, ..config() }, |service| async move {
        let (mut client, _) = Client::attached(&service, 1, false).await;
        use_it(&mut client, "x").await;
        let Reply::Prospects(all) = client.call(Body::Prospects).await else { panic!("nothing") };
        assert!(all.unknown.contains("keeps no history"), "{all:?}");
    });
    assert!(holdall_history::files(&dir.join("data")).expect("there").is_empty());
}
