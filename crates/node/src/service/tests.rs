//! Whole services in a directory, killed and started again, with clients that ride through.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use holdall_cell::session::{CallNo, SessionId};
use holdall_holders::Stream;
use holdall_wire::frame::{self, FROM_CLIENT_MAX, FROM_NODE_MAX, Incoming};
use holdall_wire::{
    Answer, Ask, Attach, Body, Call, Change, FIRST_QUERY, Fault, From, Kind, Lasting, Refusal,
    Reply, RequestNo, Status,
};
use tokio::task::LocalSet;

use super::{End, Service, Shared, end_rounds, let_leave, serve};
use crate::cluster::Known;
use crate::config::{Config, Durability};
use crate::data::{Data, InUse, leave_dump};

mod carriers;
mod ends;
mod greedy;
mod handed;
mod history;
mod neighbours;
mod replaying;

/// How long anything may take.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(60);

fn config() -> Config {
    Config { cgroups: false, forgotten: "1ms".into(), ..Config::default() }
}

/// Runs something with an agent in a directory, which is killed in the end.
fn with_agent<F: Future>(
    dir: &Path,
    config: &Config,
    story: impl FnOnce(Shared) -> F,
) -> F::Output {
    with_agent_that_keeps(&[], dir, config, story)
}

/// The same with an agent that has taken the place of another one with connections.
fn with_agent_that_keeps<F: Future>(
    kept: &[SessionId],
    dir: &Path,
    config: &Config,
    story: impl FnOnce(Shared) -> F,
) -> F::Output {
    with_service(kept, dir, config, None, story)
}

/// The same with one that is perhaps a member of a cluster.
fn with_service<F: Future>(
    kept: &[SessionId],
    dir: &Path,
    config: &Config,
    known: Option<&Known>,
    story: impl FnOnce(Shared) -> F,
) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("ours");
    let local = LocalSet::new();
    let told = local.run_until(async {
        let service = loop {
            let data = match Data::open(&dir.join("data"), None, false) {
                // A process that another test starts has the lock of the one before until it is its program.
                Err(error) if error.is::<InUse>() => {
                    tokio::task::yield_now().await;
                    continue;
                }
                opened => opened.expect("free"),
            };
            let socket = dir.join("sock");
            let log = match data.open_log(config.durability == Durability::Sync, &socket) {
                // A snapshot of the one before is being made.
                Err(error) if error.is::<InUse>() => {
                    tokio::task::yield_now().await;
                    continue;
                }
                opened => opened.expect("a log"),
            };
            let (kept, (log, opened)) = (kept.to_vec(), log);
            let begun =
                Service::new(data, (log, opened, None), config.clone(), &socket, kept, known, None);
            break begun.await.expect("an agent");
        };
        tokio::task::spawn_local(end_rounds(Rc::downgrade(&service)));
        tokio::task::spawn_local(let_leave(Rc::downgrade(&service)));
        tokio::time::timeout(LIMIT, story(service)).await.expect("it hangs")
    });
    runtime.block_on(told)
}

struct Client {
    stream: Stream,
    incoming: Incoming,
    /// What has come for calls that nobody has looked at yet.
    answers: VecDeque<Answer>,
    last: u64,
}

impl Client {
    async fn connect(service: &Shared, version: u32) -> Self {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("sockets");
        let [stream, theirs] = [ours, theirs].map(|end| Stream::new(end).expect("a socket"));
        tokio::task::spawn_local(serve(service.clone(), theirs));
        let (incoming, answers) = (Incoming::new(FROM_NODE_MAX), VecDeque::new());
        let mut client = Self { stream, incoming, answers, last: 0 };
        let mut greeting = Vec::new();
        frame::greet(&mut greeting, version);
        client.stream.write(&greeting).expect("sent");
        let greeted = client.next_frame().await.expect("a greeting");
        assert_eq!(frame::version(&greeted).expect("a greeting"), version);
        client
    }

    /// One with a session; what it is told when it comes.
    async fn attached(service: &Shared, session: u128, returns: bool) -> (Self, Reply) {
        let mut client = Self::connect(service, frame::VERSION).await;
        let attach = Attach { session, secret: 7, returns, heard: 0, lease: None };
        client.send(FIRST_QUERY, Body::Attach(attach));
        let told = client.reply(FIRST_QUERY).await;
        (client, told)
    }

    fn send(&mut self, id: u64, body: Body) {
        let mut bytes = Vec::new();
        frame::write(&Call { id, body }, FROM_CLIENT_MAX, &mut bytes).expect("short");
        self.stream.write(&bytes).expect("sent");
    }

    async fn call(&mut self, body: Body) -> Reply {
        self.last += 1;
        let id = self.last;
        self.send(id, body);
        self.reply(id).await
    }

    async fn ask(&mut self, need: &str, lasting: Lasting) -> Reply {
        self.call(Body::Ask(ask(need, lasting))).await
    }

    async fn reply(&mut self, id: u64) -> Reply {
        loop {
            if let Some(at) = self.answers.iter().position(|answer| answer.id == id) {
                return self.answers.remove(at).expect("it is there").reply;
            }
            let content = self.next_frame().await.expect("the agent has closed the connection");
            let answer = frame::read::<Answer>(&content).expect("an answer");
            if !matches!(answer.reply, Reply::Warning(_)) {
                self.answers.push_back(answer);
            }
        }
    }

    async fn next_frame(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(content) = self.incoming.next_frame().expect("a frame") {
                return Some(content.to_vec());
            }
            let ready = self.stream.readable().await.expect("a socket");
            if ready.read(self.incoming.buffer()).expect("open") == Some(0) {
                return None;
            }
        }
    }
}

fn ask(need: &str, lasting: Lasting) -> Ask {
    let needs = vec![need.parse().expect("a need")];
    let (now, from, within) = (false, From::default(), None);
    Ask { needs, now, lasting, from, within, limit: None, part: None }
}

fn granted(reply: &Reply) -> RequestNo {
    match reply {
        Reply::Granted { request, .. } => *request,
        other => panic!("not granted: {other:?}"),
    }
}

fn directory() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().to_owned();
    (dir, path)
}

#[test]
fn a_killed_agent_ends_nothing_and_forgets_no_place() {
    let (_dir, dir) = directory();
    let hour = Lasting::Reservation(3_600_000);
    let (first, reserved) = with_agent(&dir, &config(), |service| async move {
        let (mut holder, _) = Client::attached(&service, 1, false).await;
        let first = holder.ask("x", Lasting::Connection).await;
        let (mut second, _) = Client::attached(&service, 2, false).await;
        assert!(matches!(second.ask("x", Lasting::Connection).await, Reply::Queued(_)));
        let (mut third, _) = Client::attached(&service, 3, false).await;
        assert!(matches!(third.ask("x", Lasting::Connection).await, Reply::Queued(_)));
        (first, holder.ask("r", hour).await)
    });
    with_agent(&dir, &config(), |service| async move {
        let (mut third, _) = Client::attached(&service, 3, true).await;
        let (mut holder, told) = Client::attached(&service, 1, true).await;
        let Reply::Attached { last: 2, answers, .. } = told else { panic!("{told:?}") };
        assert_eq!(answers, [(1, Some(first.clone())), (2, Some(reserved.clone()))]);
        let (mut second, told) = Client::attached(&service, 2, true).await;
        let Reply::Attached { last: 1, answers, .. } = told else { panic!("{told:?}") };
        assert!(matches!(answers[..], [(1, Some(Reply::Queued(_)))]), "{answers:?}");
        holder.last = 2;
        let end = Body::End { request: granted(&first), left: false };
        assert_eq!(holder.call(end).await, Reply::Done);
        let next = granted(&second.reply(1).await);
        assert!(next > granted(&first));
        second.last = 1;
        assert_eq!(second.call(Body::End { request: next, left: false }).await, Reply::Done);
        granted(&third.reply(1).await);
    });
}

#[test]
fn a_call_that_is_made_again_is_done_once() {
    let (_dir, dir) = directory();
    let first = with_agent(&dir, &config(), |service| async move {
        let (mut client, _) = Client::attached(&service, 1, false).await;
        let first = client.ask("x", Lasting::Connection).await;
        client.send(1, Body::Ask(ask("x", Lasting::Connection)));
        assert_eq!(client.reply(1).await, first);
        first
    });
    with_agent(&dir, &config(), |service| async move {
        let (mut client, _) = Client::attached(&service, 1, true).await;
        client.send(1, Body::Ask(ask("x", Lasting::Connection)));
        assert_eq!(client.reply(1).await, first);
        let end = Body::End { request: granted(&first), left: false };
        client.send(2, end.clone());
        assert_eq!(client.reply(2).await, Reply::Done);
        client.send(2, end);
        assert_eq!(client.reply(2).await, Reply::Done);
    });
}

#[test]
fn a_call_that_is_turned_away_leaves_a_gap() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let (mut client, _) = Client::attached(&service, 1, false).await;
        let unknown = Body::End { request: RequestNo(99), left: false };
        assert!(matches!(client.call(unknown).await, Reply::Failed(fault) if fault.is_unknown()));
        granted(&client.ask("x", Lasting::Connection).await);
        let (_, told) = Client::attached(&service, 1, true).await;
        let Reply::Attached { last: 2, answers, .. } = told else { panic!("{told:?}") };
        assert!(matches!(answers[..], [(2, Some(Reply::Granted { .. }))]), "{answers:?}");
        assert!(client.next_frame().await.is_none(), "another connection has its session");
    });
}

#[test]
fn strangers_and_those_who_are_forgotten_are_told() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let (_client, _) = Client::attached(&service, 1, false).await;
        let mut stranger = Client::connect(&service, frame::VERSION).await;
        let attach = Attach { session: 1, secret: 8, returns: true, heard: 0, lease: None };
        stranger.send(FIRST_QUERY, Body::Attach(attach));
        let told = stranger.reply(FIRST_QUERY).await;
        assert!(matches!(told, Reply::Failed(Fault::Denied(_))), "{told:?}");
        let (_, told) = Client::attached(&service, 9, true).await;
        assert_eq!(told, Reply::Failed(Fault::Forgotten));
    });
}

#[test]
fn what_a_client_without_sessions_asks_for_ends_with_its_connection() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let mut first = Client::connect(&service, frame::OLDEST).await;
        let mut second = Client::connect(&service, frame::OLDEST).await;
        assert!(matches!(first.call(Body::Lock { beside: None }).await, Reply::Locked(_)));
        granted(&first.ask("x", Lasting::Connection).await);
        assert!(matches!(second.ask("x", Lasting::Connection).await, Reply::Queued(_)));
        let id = second.last;
        drop(first);
        let request = granted(&second.reply(id).await);
        // Numbers mean nothing without a session.
        second.last = 0;
        assert_eq!(second.call(Body::End { request, left: false }).await, Reply::Done);
        granted(&second.ask("x", Lasting::Connection).await);
        assert!(service.borrow().books().sessions().count() == 1, "that of the first is over");
    });
}

#[test]
fn pools_and_reservations_outlive_whoever_made_them() {
    let (_dir, dir) = directory();
    let name = || "gpu".parse().expect("a name");
    let request = with_agent(&dir, &config(), |service| async move {
        let (mut client, _) = Client::attached(&service, 1, false).await;
        let add = Change::Add { name: name(), kind: Kind::Numbered(2) };
        assert_eq!(client.call(Body::Change(add)).await, Reply::Done);
        let reserved = client.ask("gpu", Lasting::Reservation(3_600_000)).await;
        assert_eq!(client.call(Body::Leave).await, Reply::Done);
        assert!(client.next_frame().await.is_none(), "a session that is over has no connection");
        granted(&reserved)
    });
    assert_eq!(crate::reserved(&dir.join("data")).len(), 1, "also while no agent runs");
    with_agent(&dir, &config(), |service| async move {
        let (mut client, _) = Client::attached(&service, 2, false).await;
        let all =
            client.call(Body::Ask(Ask { now: true, ..ask("gpu:2", Lasting::Connection) })).await;
        assert!(matches!(all, Reply::Refused(Refusal::Busy(_))), "{all:?}");
        let resize = Change::Resize { name: name(), units: 1 };
        assert_eq!(client.call(Body::Change(resize)).await, Reply::Done);
        assert_eq!(
            client.call(Body::Release { request, force: false, reason: None }).await,
            Reply::Done
        );
        granted(&client.ask("gpu", Lasting::Connection).await);
    });
}

#[test]
fn an_agent_whose_files_are_gone_grants_nothing_and_its_fences_do_not_come_again() {
    let (_dir, dir) = directory();
    let data = dir.join("data");
    let before = with_agent(&dir, &config(), |service| async move {
        let (mut client, _) = Client::attached(&service, 1, false).await;
        let before = granted(&client.ask("x", Lasting::Connection).await);
        std::fs::remove_dir_all(&data).expect("ours");
        client.send(2, Body::Ask(ask("y", Lasting::Connection)));
        while service.borrow().end.is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        assert!(matches!(&service.borrow().end, Some(End::Broken(why)) if why.contains("removed")));
        before
    });
    with_agent(&dir, &config(), |service| async move {
        let (_, told) = Client::attached(&service, 1, true).await;
        assert_eq!(told, Reply::Failed(Fault::Forgotten));
        let (mut client, _) = Client::attached(&service, 2, false).await;
        assert!(granted(&client.ask("x", Lasting::Connection).await) > before);
    });
}

#[test]
fn snapshots_take_the_place_of_the_log() {
    let (_dir, dir) = directory();
    let often = || Config { snapshot_records: 20, ..config() };
    let kept = with_agent(&dir, &often(), |service| async move {
        let (mut client, _) = Client::attached(&service, 1, false).await;
        let kept = client.ask("kept", Lasting::Connection).await;
        for _ in 0..200 {
            let request = granted(&client.ask("x", Lasting::Connection).await);
            assert_eq!(client.call(Body::End { request, left: false }).await, Reply::Done);
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        kept
    });
    let names = std::fs::read_dir(dir.join("data")).expect("ours");
    let names = names.map(|entry| entry.expect("ours").file_name().into_string().expect("plain"));
    assert!(names.into_iter().any(|name| name.starts_with("snapshot-")), "none was made");
    with_agent(&dir, &often(), |service| async move {
        let (_, told) = Client::attached(&service, 1, true).await;
        let Reply::Attached { answers, .. } = told else { panic!("{told:?}") };
        assert!(answers.contains(&(1, Some(kept))));
    });
}

#[test]
fn the_call_that_broke_the_agent_before_is_not_done_when_it_is_made_again() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let (mut client, _) = Client::attached(&service, 1, false).await;
        granted(&client.ask("x", Lasting::Connection).await);
        let culprit = Some((SessionId(1), CallNo(2)));
        let own = service.borrow();
        leave_dump(own.data.dir(), "B1", culprit, &Status::default()).expect("written");
    });
    with_agent(&dir, &config(), |service| async move {
        let (mut client, _) = Client::attached(&service, 1, true).await;
        client.last = 1;
        let told = client.ask("y", Lasting::Connection).await;
        assert!(matches!(told, Reply::Failed(Fault::Failed(_))), "{told:?}");
        granted(&client.ask("y", Lasting::Connection).await);
    });
}

#[test]
fn with_every_record_synced_everything_goes_on_the_same() {
    let (_dir, dir) = directory();
    let sync = Config { durability: Durability::Sync, ..config() };
    with_agent(&dir, &sync, |service| async move {
        let (mut client, _) = Client::attached(&service, 1, false).await;
        for _ in 0..5 {
            let request = granted(&client.ask("x", Lasting::Connection).await);
            assert_eq!(client.call(Body::End { request, left: false }).await, Reply::Done);
        }
        assert!(matches!(client.call(Body::Agent).await, Reply::Agent(_)));
    });
}

#[test]
fn what_is_synced_holds_up_nobody_else() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let (mut one, _) = Client::attached(&service, 1, false).await;
        let (mut other, _) = Client::attached(&service, 2, false).await;
        one.send(1, Body::Ask(ask("r", Lasting::Reservation(3_600_000))));
        one.send(2, Body::Ask(ask("x", Lasting::Connection)));
        granted(&other.ask("y", Lasting::Connection).await);
        granted(&one.reply(1).await);
        assert!(one.answers.is_empty(), "what one client is told comes in order");
        granted(&one.reply(2).await);
    });
}

#[test]
fn an_agent_that_starts_often_leaves_no_pieces_behind() {
    let (_dir, dir) = directory();
    for _ in 0..40 {
        with_agent(&dir, &config(), |_| async {});
    }
    let names = std::fs::read_dir(dir.join("data")).expect("ours");
    let names = names.map(|entry| entry.expect("ours").file_name().into_string().expect("plain"));
    let pieces = names.filter(|name| name.starts_with("segment-")).count();
    assert!(pieces < 20, "{pieces}");
}

/// Its end would not be noticed, nor would it learn when its session is over.
#[test]
fn whoever_cannot_be_seen_holds_nothing_without_a_lease() {
    let dir = tempfile::tempdir().expect("a directory");
    with_agent(dir.path(), &config(), async |service| {
        let (mut client, _) = Client::attached(&service, 1, false).await;
        service.borrow_mut().peers.values_mut().for_each(|peer| peer.unseen = true);
        let told = client.ask("a", Lasting::Connection).await;
        assert!(matches!(&told, Reply::Refused(Refusal::Closed(why)) if why.contains("lease")));
        let reserved = client.ask("a", Lasting::Reservation(1000)).await;
        assert!(matches!(reserved, Reply::Granted { .. }), "{reserved:?}");
    });
}
