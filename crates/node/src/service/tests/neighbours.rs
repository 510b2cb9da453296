//! Agents that are cells of one cluster, each with a thread and a runtime of its own.

use std::sync::mpsc;

use holdall_cell::Input;
use holdall_cell::greeting::Stranger;
use holdall_cell::peer::PeerMessage;
use holdall_cell::session::ConnNo;
use holdall_core::{CellId, RequestId};
use holdall_links::Above as _;
use holdall_links::token::For;
use holdall_protocols::house::{ToManager, ToUser};
use holdall_wire::{ClusterCall, Outlook, Who};

use super::*;
use crate::cluster::behind::FOREVER;
use crate::cluster::frame::Frame;
use crate::cluster::{init, join};
use crate::hosted::Hosted;
use crate::service::begin_links;
use crate::service::host::Leaving;

const CONFIG: &str =
    "cgroups = false\nforgotten = '1ms'\n[cluster]\nlease_seconds = 6\n[pools.board]\nunits = 1\n";

/// Runs something with an agent that is a member, if its directory says so; it is killed in the end.
fn with_member<F: Future>(dir: &Path, story: impl FnOnce(Shared) -> F) -> F::Output {
    let config = Config::parse(CONFIG).expect("sensible");
    let known = Known::read(&dir.join("data"), &config).expect("readable").expect("a member");
    let known = &known;
    with_service(&[], dir, &config, Some(known), |service| async move {
        begin_links(&service, known, None).await.expect("links");
        tokio::task::spawn_local(beat(Rc::downgrade(&service)));
        // It is there as long as the story lasts, whether that has to do with it or not.
        story(service.clone()).await
    })
}

async fn beat(service: std::rc::Weak<std::cell::RefCell<Service>>) {
    while let Some(service) = service.upgrade() {
        service.borrow_mut().look_at_cells();
        drop(service);
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

async fn until(is_so: impl Fn() -> bool) {
    while !is_so() {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// Two directories of members, `a` and `b`.
fn members() -> [(tempfile::TempDir, PathBuf); 2] {
    let all = [directory(), directory()];
    let [(_, a), (_, b)] = &all;
    let made = init(&a.join("data"), Some("a"), "127.0.0.1:0").expect("a cluster");
    let (data, token) = (b.join("data"), made.token.expect("it signs"));
    with_member(a, |_| async {
        let listen = Some("127.0.0.1:0");
        join(&data, Some("b"), listen, &made.listens, &token).await.expect("let in");
    });
    all
}

#[test]
fn who_comes_back_when_what_it_waits_for_is_granted_and_confirmed_is_told() {
    let [(_a, a), (_b, b)] = members();
    let (holds, held) = mpsc::channel();
    let (release, mut released) = tokio::sync::mpsc::channel::<()>(1);
    let guard = std::thread::spawn(move || {
        with_member(&b, |service| async move {
            let (mut holder, _) = Client::attached(&service, 9, false).await;
            let request = granted(&holder.ask("board", Lasting::Connection).await);
            holds.send(()).expect("awaited");
            released.recv().await;
            let end = Body::End { request, left: false };
            assert_eq!(holder.call(end).await, Reply::Done);
            released.recv().await;
        });
    });
    held.recv().expect("held");
    let request = with_member(&a, |service| async move {
        let (mut waiter, _) = Client::attached(&service, 1, false).await;
        let Reply::Queued(request) = waiter.ask("board@b", Lasting::Connection).await else {
            panic!("it is in use")
        };
        until(|| service.borrow().engine().links().all(|(_, up, _)| up)).await;
        request
    });
    release.blocking_send(()).expect("awaited");
    with_member(&a, |service| async move {
        until(|| service.borrow().books().get(request).is_some_and(|entry| entry.ready)).await;
        let (mut waiter, told) = Client::attached(&service, 1, true).await;
        let Reply::Attached { answers, .. } = told else { panic!("{told:?}") };
        assert_eq!(answers, [(1, None)], "it is told by itself");
        assert!(matches!(waiter.reply(1).await, Reply::Until { request: of, .. } if of == request));
        assert_eq!(granted(&waiter.reply(1).await), request);
    });
    drop(release);
    guard.join().expect("it ends well");
}

/// Tells a story of a guard while the home `b` holds its board, and is linked with it.
fn with_a_guard(story: impl FnOnce(&mut Service, CellId, RequestId)) {
    let [(_a, a), (_b, b)] = members();
    let (holds, mut held) = tokio::sync::mpsc::channel::<()>(1);
    let (end, mut ended) = tokio::sync::mpsc::channel::<()>(1);
    let home = std::thread::spawn(move || {
        with_member(&b, |service| async move {
            let (mut holder, _) = Client::attached(&service, 9, false).await;
            if let Reply::Queued(_) = holder.ask("board@a", Lasting::Connection).await {
                holder.reply(holder.last).await;
            }
            holds.send(()).await.expect("awaited");
            ended.recv().await;
        });
    });
    with_member(&a, |service| async move {
        held.recv().await;
        let settled_with = || {
            let service = service.borrow();
            let (_, id) = service.books().ties().all_foreign().next()?;
            let home = id.user.home().cell;
            let settled = service.cells.as_ref()?.links.get(&home)?.settled?;
            service.host.has_left(settled).then_some((home, id))
        };
        until(|| settled_with().is_some()).await;
        let (home, id) = settled_with().expect("it holds");
        // Nothing else happens meanwhile: it does not wait.
        story(&mut service.borrow_mut(), home, id);
    });
    drop(end);
    home.join().expect("it ends well");
}

/// How much more waits to leave.
fn waits_after(service: &mut Service, what: impl FnOnce(&mut Service)) -> usize {
    let before = service.host.waits();
    what(service);
    service.host.waits() - before
}

fn release(id: RequestId) -> Box<PeerMessage> {
    Box::new(PeerMessage::ToManager { message: ToManager::Release(id), order: None })
}

/// While the log stands still a beat is confirmed all the same: but not before its home was told that something was taken from it.
#[test]
fn who_has_lost_something_is_told_before_its_beat_is_confirmed() {
    with_a_guard(|service, home, id| {
        let trouble = service.host.trouble_log();
        trouble.stop_flushes(true);
        service.input(Input::Members(Vec::new()));
        assert_eq!(waits_after(service, |service| service.confirm(home, 1)), 0);
        let said = waits_after(service, |service| service.input(Input::Lapsed(home)));
        assert!(said > 0, "it is told");
        assert_eq!(waits_after(service, |service| service.confirm(home, 2)), 1);
        trouble.stop_flushes(false);
        service.host.flush().expect("room");
        let mut due = Vec::new();
        while !service.host.is_idle() {
            service.host.due(&mut due);
        }
        let at = |is: &dyn Fn(&Frame) -> bool| {
            let said = |leaving: &Leaving| matches!(leaving, Leaving::Said(to, _, frame) if *to == home && is(frame));
            due.iter().position(said).expect("it is said")
        };
        let over = PeerMessage::ToUser { message: ToUser::Over(id), given: None };
        let is_over =
            |frame: &Frame| matches!(frame, Frame::Said { message, .. } if **message == over);
        assert!(at(&is_over) < at(&|frame| *frame == Frame::Beaten { sent: 2 }));
    });
}

/// It knows of that itself, whatever becomes of the answer.
#[test]
fn whoever_gives_something_back_goes_on_with_the_rest() {
    with_a_guard(|service, home, id| {
        service.host.trouble_log().stop_flushes(true);
        assert!(waits_after(service, |service| service.hear(home, release(id), 0)) > 0);
        assert_eq!(waits_after(service, |service| service.confirm(home, 1)), 0);
        service.settle(home);
        assert_eq!(waits_after(service, |service| service.confirm(home, 2)), 1);
    });
}

#[test]
fn what_is_said_again_while_there_is_no_room_does_not_pile_up() {
    with_a_guard(|service, home, id| {
        service.host.stand_still();
        let before = service.host.last();
        assert!(waits_after(service, |service| service.hear(home, release(id), 0)) > 0);
        let last = service.host.last();
        assert!(last > before, "what is new is taken in");
        assert_eq!(waits_after(service, |service| service.hear(home, release(id), 0)), 0);
        assert_eq!(service.host.last(), last);
        assert_eq!(waits_after(service, |service| service.beat(home)), 1);
        let (name, host, store) = ("x".into(), "a".into(), String::new());
        let (hosts, advertise) = (Vec::new(), Vec::new());
        service.hosted = Some(Hosted { name, store, host, hosts, advertise });
        assert_eq!(waits_after(service, |service| service.beat(home)), 0, "it holds nothing there");
    });
}

#[test]
fn a_member_whose_directory_is_lost_gives_nothing_before_others_have_stopped_using_it() {
    let [(_a, a), (_b, b)] = members();
    let data = b.join("data");
    let who = |known: &Known| known.home.cell().clone();
    let config = Config::parse(CONFIG).expect("sensible");
    let own = who(&Known::read(&data, &config).expect("readable").expect("a member"));
    with_member(&b, |_| async {});
    std::fs::remove_dir_all(&data).expect("ours");
    // Also if it is restarted meanwhile.
    for _ in 0..2 {
        with_service(&[], &b, &config, None, |service| async move {
            let why = service.borrow().awaited.told().expect("it waits");
            assert!(why.contains("the member 'b'"), "{why}");
        });
    }
    // As another member it would not hear of what was given as this one.
    let home = holdall_links::Home::open(&a.join("data/cluster")).expect("a member");
    let good = |whose| home.add_token(LIMIT, whose).expect("it signs").to_string();
    let (others, own_token) = (good(For::New(1)), good(For::Cell(own.id)));
    let listens = crate::cluster::listens_at(&a.join("data")).expect("a member");
    with_member(&a, |_| async {
        let listen = Some("127.0.0.1:0");
        let refused = join(&data, Some("c"), listen, &listens, &others).await;
        let why = refused.err().expect("it was another").to_string();
        assert!(why.contains("token --for b"), "{why}");
        let joined = join(&data, None, listen, &listens, &own_token).await;
        assert_eq!(joined.expect("let in").name, "b");
    });
    assert_eq!(who(&Known::read(&data, &config).expect("readable").expect("a member")), own);
    with_member(&b, |service| async move {
        assert!(service.borrow().cell().is_recovering(), "until all have said what they hold");
    });
}

#[test]
fn a_member_that_has_lost_its_directory_and_stays_alone_grants_when_others_have_stopped() {
    let (_dir, dir) = directory();
    std::fs::write(dir.join("data.known-as"), format!("b {:032x} 50\n", 7)).expect("writable");
    with_service(&[], &dir, &config(), None, |service| async move {
        let (mut client, _) = Client::attached(&service, 1, false).await;
        granted(&client.ask("x", Lasting::Connection).await);
        until(|| service.borrow().awaited.told().is_none()).await;
    });
    let has = |name: &str| dir.join("data").join(name).exists();
    assert!(
        has("known-as") && !has("known-as.lost"),
        "it is known who it was, and that it is over"
    );
    let waits = "[pools.press]\nlock = true\non_partition = 'wait'\n";
    let config = Config::parse(&format!("{CONFIG}{waits}")).expect("sensible");
    std::fs::remove_dir_all(dir.join("data")).expect("ours");
    with_service(&[], &dir, &config, None, |service| async move {
        let why = service.borrow().awaited.told().expect("it waits");
        assert!(why.contains("known-as.lost"), "{why}");
    });
}

fn log_in(data: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(data).expect("ours").map(|file| file.expect("ours").path());
    let is_log = |path: &PathBuf| {
        let name = path.file_name().expect("it has one").to_string_lossy();
        name.starts_with("segment-") || name.starts_with("snapshot-")
    };
    files.filter(is_log).collect()
}

/// In place: there is nothing to be seen of it when the agent starts.
#[test]
fn a_member_whose_log_was_put_back_gives_nothing_to_anybody_once_it_is_refused() {
    let [(_a, a), (_b, b)] = members();
    let data = b.join("data");
    with_member(&b, |_| async {});
    let before: Vec<_> = log_in(&data)
        .into_iter()
        .map(|path| (std::fs::read(&path).expect("ours"), path))
        .map(|(bytes, path)| (path, bytes))
        .collect();
    let (holds, mut held) = tokio::sync::mpsc::channel::<()>(1);
    let (end, mut ended) = tokio::sync::mpsc::channel::<()>(1);
    let other = std::thread::spawn(move || {
        with_member(&a, |service| async move {
            let (mut holder, _) = Client::attached(&service, 9, false).await;
            if let Reply::Queued(_) = holder.ask("board@b", Lasting::Connection).await {
                holder.reply(holder.last).await;
            }
            holds.send(()).await.expect("awaited");
            ended.recv().await;
        });
    });
    with_member(&b, |_| async move {
        held.recv().await;
    });
    log_in(&data).iter().for_each(|path| std::fs::remove_file(path).expect("ours"));
    before.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).expect("ours"));
    let told = |service: &Shared| service.borrow().awaited.told();
    with_member(&b, |service| async move {
        until(|| service.borrow().awaited.is_behind()).await;
        assert!(told(&service).expect("it is").contains("the member 'a' knows more"));
        // It begins once more; but this program does not say that it can go on from the log.
        let Some(End::Broken(why)) = service.borrow().ends() else { panic!("it goes on") };
        assert!(why.contains("cannot go on"), "{why}");
    });
    drop(end);
    other.join().expect("it ends well");
    // Also when nobody is there who knows more, and for those who know less.
    for _ in 0..2 {
        with_member(&b, |service| async move {
            assert!(told(&service).expect("it is kept").contains("behind.json"));
            assert!(service.borrow().cell().is_recovering(), "who waits already gets nothing");
            let c = "c".parse().expect("a name");
            let c = holdall_links::Cell { id: holdall_links::CellId(9 << 64), name: c };
            let greeter = service.borrow().cells.as_ref().expect("a member").greeter.clone();
            let why = greeter.welcome(&c, &[]).expect_err("it talks to nobody");
            assert!(why.contains("the log of 'b' is not all"), "{why}");
            let (mut client, _) = Client::attached(&service, 1, false).await;
            for now in [true, false] {
                let ask = Ask { now, ..ask("board", Lasting::Connection) };
                let refused = client.call(Body::Ask(ask)).await;
                assert!(matches!(refused, Reply::Refused(Refusal::Busy(_))), "{refused:?}");
            }
            let forget = Body::Cluster(ClusterCall::Forget("a".into()));
            let Reply::Failed(Fault::Conflict(why)) = client.call(forget).await else {
                panic!("nobody would be waited for")
            };
            assert!(why.contains("knows more of this one"), "{why}");
        });
    }
    // Whoever was given up, or is not remembered, is waited for all the same.
    let config = Config::parse(CONFIG).expect("sensible");
    let mut alone = Known::read(&data, &config).expect("readable").expect("a member");
    let of_a = alone.members.iter().find(|(id, _)| *id != alone.home.cell().id);
    let (of_a, word) = (of_a.expect("there are two").0, vec![0; 16]);
    alone.forgotten.add(of_a, &word, Some(0), true).expect("kept");
    with_service(&[], &b, &config, Some(&alone), |service| async move {
        assert!(service.borrow().cell().is_recovering(), "nobody is left who could say anything");
    });
    alone.forgotten.comes_back(of_a).expect("kept");
    let (noted, aside) = (data.join("behind.json"), data.join("behind.aside"));
    std::fs::rename(&noted, &aside).expect("ours");
    with_member(&b, |service| async move {
        let service = service.borrow();
        let until = service.books().ties().recovery().until;
        assert!(!service.awaited.is_behind(), "somebody has said that it is wrong");
        assert!(
            until.is_some_and(|until| until < FOREVER),
            "it waits as after any doubt: {until:?}"
        );
    });
    std::fs::rename(&aside, &noted).expect("ours");
    log_in(&data).iter().for_each(|path| std::fs::remove_file(path).expect("ours"));
    with_member(&b, |service| async move {
        assert!(!service.borrow().awaited.is_behind(), "its memory is lost");
        assert!(service.borrow().cell().is_recovering(), "until all have said what they hold");
    });
    assert!(!noted.exists());
}

/// As on a full disk: otherwise the next start would know nothing of it.
#[test]
fn an_agent_that_cannot_keep_that_its_log_was_put_back_ends() {
    let [(_a, a), _b] = members();
    let (noted, by) = (a.join("data/behind.json"), holdall_links::CellId(9 << 64));
    with_member(&a, |service| async move {
        std::fs::create_dir(&noted).expect("in its way");
        service.borrow_mut().on_outdone(by, Stranger::Parted { known: 5 });
        let service = service.borrow();
        assert!(service.awaited.is_behind(), "it grants nothing any more");
        let Some(End::Broken(why)) = service.ends() else { panic!("it goes on") };
        assert!(why.contains("cannot be kept"), "{why}");
    });
}

/// Its log goes to another host, and no file does.
#[test]
fn a_replicated_cell_keeps_in_its_log_that_this_was_put_back() {
    let [(_a, a), _b] = members();
    with_member(&a, |service| async move {
        let epoch = outdone(&mut service.borrow_mut());
        let shown = until(|| service.borrow().hosted_views()[0].epoch == epoch);
        tokio::time::timeout(std::time::Duration::from_secs(20), shown).await.expect("shown");
    });
}

/// A member knows more than the log of a replicated cell tells. Returns the epoch that it goes to.
fn outdone(service: &mut Service) -> u32 {
    let cells = service.cells.as_ref().expect("a member");
    let by = cells.running.as_ref().expect("links").links.named("b").expect("a member");
    let (name, host, store) = ("x".into(), "a".into(), String::new());
    let (hosts, advertise) = (Vec::new(), Vec::new());
    service.hosted = Some(Hosted { name, store, host, hosts, advertise });
    for _ in 0..2 {
        service.on_outdone(by, Stranger::Parted { known: 5 });
        assert!(service.cell().is_recovering() && !service.awaited.is_behind());
        let missing = &service.books().ties().recovery().missing;
        assert!(missing.contains(&crate::cluster::number(by)));
        assert!(service.ends().is_none());
    }
    let told = service.hosted_views()[0].trouble.clone().expect("nothing is granted");
    for word in ["'b' knows more", "cell adopt x", "cluster forget b"] {
        assert!(told.contains(word), "{told}");
    }
    assert!(service.hosted_views()[0].is_put_back());
    // What its log tells is not all that is held.
    let Err(Fault::Conflict(why)) = service.close_cell(false) else { panic!("it ends") };
    assert!(why.contains("'b' knows more") && service.ends().is_none(), "{why}");
    // Whoever reads an epoch there makes a cell whose fences are above it.
    let epoch = service.cell().epoch();
    assert!(epoch > service.epoch);
    assert_eq!(service.agent_view(ConnNo(0)).epoch, epoch);
    service.host.flush().expect("room");
    epoch
}

#[test]
fn who_waits_for_a_cell_that_cannot_be_reached_is_told() {
    let [(_a, a), _b] = members();
    with_member(&a, |service| async move {
        let (mut waiter, _) = Client::attached(&service, 1, false).await;
        let told = waiter.ask("board@b", Lasting::Connection).await;
        assert!(matches!(told, Reply::Queued(_)), "{told:?}");
        let frame = waiter.next_frame().await.expect("open");
        let Reply::Warning(why) = frame::read::<Answer>(&frame).expect("an answer").reply else {
            panic!("something else")
        };
        assert!(why.starts_with("the cell 'b' cannot be reached"), "{why}");
        let Reply::Queued(request) = told else { panic!("it waits") };
        let Ok(Reply::Explanation(told)) = service.borrow().explained(request, 10) else {
            panic!("it is known")
        };
        let Some(Outlook::Unknown(why)) = told.outlook else { panic!("it is never granted") };
        assert!(why.contains("cannot be reached"), "{why}");
    });
}

/// Whatever is of one cell is waited for nearly as long with or without it.
#[test]
fn how_long_uses_take_is_told_in_a_cluster_and_not_by_one_alone() {
    let [(_a, a), (_b, b)] = members();
    let (end, mut ended) = tokio::sync::mpsc::channel::<()>(1);
    let guard = std::thread::spawn(move || {
        with_member(&b, |_| async move { ended.recv().await });
    });
    let needs = ["board", "board@b"].map(|need| need.parse().expect("a need")).to_vec();
    let ask = Ask { needs, ..ask("board", Lasting::Connection) };
    let asked = ask.clone();
    let foreseen = |service: &Shared| {
        let service = service.borrow();
        let history = service.history.as_ref().expect("it keeps one");
        (history.length(&Who::default(), &ask), service.length(&Who::default(), &ask))
    };
    with_member(&a, |service| async move {
        let (mut client, _) = Client::attached(&service, 1, false).await;
        assert_eq!(foreseen(&service).1, None, "nothing was used yet");
        for _ in 0..9 {
            let mut told = client.call(Body::Ask(asked.clone())).await;
            while !matches!(told, Reply::Granted { .. }) {
                told = client.reply(client.last).await;
            }
            let end = Body::End { request: granted(&told), left: false };
            assert_eq!(client.call(end).await, Reply::Done);
        }
        service.borrow_mut().flush_history();
        until(|| foreseen(&service).1.is_some()).await;
    });
    drop(end);
    guard.join().expect("it ends well");
    let config = Config::parse(CONFIG).expect("sensible");
    with_service(&[], &a, &config, None, |service| async move {
        until(|| foreseen(&service).0.is_some()).await;
        assert_eq!(foreseen(&service).1, None);
    });
}
