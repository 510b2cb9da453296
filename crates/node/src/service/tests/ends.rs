//! Agents that end, break, and are restarted; sessions that end.

use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use holdall_cell::session::{ConnNo, Hello, Means, Secret};
use holdall_cell::{Input, Wish};
use holdall_holders::ProcessId;
use holdall_wire::{Shutdown, Who};

use super::super::dump;
use super::*;
use crate::data::Dump;
use crate::handover::UNDERSTOOD;

fn attach(conn: u64, session: u128, process: ProcessId) -> Input {
    let ProcessId { pid, start } = process;
    let (means, heard) = (Means::Process { pid, start }, CallNo(0));
    let (session, uid) = (SessionId(session), rustix::process::geteuid().as_raw());
    let hello = Hello { session, secret: Secret(7), uid, means, returns: false, heard };
    Input::Attach { conn: ConnNo(conn), hello }
}

fn this_process() -> ProcessId {
    let own = holdall_holders::Process::open(std::process::id()).expect("known");
    own.expect("alive").id()
}

/// Nobody has this number.
const GONE: ProcessId = ProcessId { pid: 4_194_305, start: 1 };

#[test]
fn a_number_of_a_session_that_is_used_again_belongs_to_the_new_process() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let own = this_process();
        {
            let mut service = service.borrow_mut();
            service.input(attach(1001, 9, GONE));
            service.input(Input::Over(SessionId(9)));
            service.input(attach(1002, 9, own));
            service.end_round();
        }
        let service = service.borrow();
        assert!(service.sessions.contains_key(&SessionId(9)));
        assert_eq!(service.watched.keys().collect::<Vec<_>>(), [&own], "and nobody else's");
        assert_eq!(service.files.used(), 1);
    });
}

#[test]
fn a_pool_that_is_in_the_way_of_the_dead_alone_is_configured() {
    let (_dir, dir) = directory();
    let sync = || Config { durability: Durability::Sync, ..config() };
    with_agent(&dir, &sync(), |service| async move {
        service.borrow_mut().input(attach(1001, 9, GONE));
        let (who, ask) = (Arc::new(Who::default()), ask("gpu/0", Lasting::Connection));
        let (conn, call, heard) = (ConnNo(1001), CallNo(1), CallNo(0));
        let wish = Wish::Ask { who, ask: Arc::new(ask), length: None };
        service.borrow_mut().input(Input::Call { conn, call, heard, wish });
        assert_eq!(service.borrow().books().grants().count(), 1);
        let (mut watch, last) = (service.borrow().host.watch(), service.borrow().host.last());
        watch.synced(last).await.expect("there is room");
    });
    let mut configured = sync();
    let pools = "[pools.gpu]\nunits = 2\n";
    configured.pools = toml::from_str::<Config>(pools).expect("a configuration").pools;
    with_agent(&dir, &configured, |service| async move {
        assert_eq!(service.borrow().books().grants().count(), 0);
        let (mut client, _) = Client::attached(&service, 1, false).await;
        granted(&client.ask("gpu:2", Lasting::Connection).await);
    });
}

#[test]
fn whoever_stops_an_agent_that_is_about_to_restart_stops_it() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let mut service = service.borrow_mut();
        service.end = Some(End::Restarted("program".into()));
        service.stop(Shutdown::AtOnce);
        assert_eq!(service.ends(), Some(End::Stopped));
        service.go_on(&anyhow::anyhow!("it cannot be run"));
        assert_eq!(service.ends(), Some(End::Stopped));
        service.end = Some(End::Broken("the disk".into()));
        service.stop(Shutdown::AtOnce);
        assert_eq!(service.ends(), Some(End::Broken("the disk".into())));
    });
}

#[test]
fn who_asks_for_a_restart_that_is_under_way_is_told_the_same() {
    let (_dir, dir) = directory();
    let (exe, runs) = (dir.join("program"), dir.join("runs"));
    let text = format!("#!/bin/sh\necho >> {}\nsleep 0.3\necho '{UNDERSTOOD}'\n", runs.display());
    std::fs::write(&exe, text).expect("writable");
    std::fs::set_permissions(&exe, PermissionsExt::from_mode(0o755)).expect("ours");
    with_agent(&dir, &config(), |service| async move {
        let mut clients = Vec::new();
        for _ in 0..4 {
            clients.push(Client::connect(&service, frame::VERSION).await);
        }
        let name = |exe: &Path| Some(exe.display().to_string());
        for client in &mut clients {
            client.send(1, Body::Restart { exe: name(&exe) });
        }
        while service.borrow().restarting.is_none() {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        let mut other = Client::connect(&service, frame::VERSION).await;
        let told = other.call(Body::Restart { exe: None }).await;
        assert!(matches!(told, Reply::Failed(Fault::Conflict(_))), "{told:?}");
        for client in &mut clients {
            assert_eq!(client.reply(1).await, Reply::Done);
        }
        assert_eq!(service.borrow().ends(), Some(End::Restarted(exe.clone())));
        assert_eq!(std::fs::read_to_string(&runs).expect("it ran").lines().count(), 1);
        assert_eq!(clients[0].call(Body::Restart { exe: name(&exe) }).await, Reply::Done);
        // One that is drained is not restarted, and does not forget it.
        other.send(2, Body::Shutdown(Shutdown::Drain));
        while !service.borrow().draining {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
        assert_eq!(service.borrow().ends(), Some(End::Stopped), "nothing is held");
        let told = clients[0].call(Body::Restart { exe: name(&exe) }).await;
        assert!(matches!(told, Reply::Failed(Fault::Conflict(_))), "{told:?}");
    });
}

#[test]
fn whoever_drains_an_agent_is_told_when_everything_was_given_back() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let (mut holder, _) = Client::attached(&service, 1, false).await;
        let request = granted(&holder.ask("x", Lasting::Connection).await);
        let mut client = Client::connect(&service, frame::VERSION).await;
        client.send(1, Body::Shutdown(Shutdown::Drain));
        assert!(matches!(holder.ask("y", Lasting::Connection).await, Reply::Refused(_)));
        assert!(matches!(client.call(Body::Agent).await, Reply::Agent(_)));
        assert!(client.answers.is_empty(), "something is held");
        assert_eq!(service.borrow().ends(), None);
        assert_eq!(holder.call(Body::End { request, left: false }).await, Reply::Done);
        assert_eq!(service.borrow().ends(), Some(End::Stopped));
        service.borrow_mut().tell_drainers();
        assert_eq!(client.reply(1).await, Reply::Done);
    });
}

#[test]
fn a_drain_that_is_cut_short_has_failed() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let (mut holder, _) = Client::attached(&service, 1, false).await;
        granted(&holder.ask("x", Lasting::Connection).await);
        let mut client = Client::connect(&service, frame::VERSION).await;
        client.send(1, Body::Shutdown(Shutdown::Drain));
        assert_eq!(client.call(Body::Shutdown(Shutdown::AtOnce)).await, Reply::Done);
        service.borrow_mut().tell_drainers();
        let told = client.reply(1).await;
        assert!(matches!(told, Reply::Failed(Fault::Conflict(_))), "{told:?}");
    });
}

#[test]
fn a_panic_leaves_a_note_of_the_call_that_was_being_done() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let data = &service.borrow().data;
        let culprit = Some((SessionId(1), CallNo(2)));
        dump::blame(culprit);
        crate::note_panic("it panicked");
        assert_eq!(data.take_dump(1).expect("readable"), Some(Dump { culprit }));
        dump::blame(None);
        crate::note_panic("it panicked");
        assert_eq!(data.take_dump(2).expect("readable"), Some(Dump { culprit: None }));
    });
    std::thread::spawn(|| crate::note_panic("no agent here")).join().expect("nothing happens");
}

#[test]
fn what_broke_without_a_call_is_built_again_from_the_facts() {
    let (_dir, dir) = directory();
    let request = with_agent(&dir, &config(), |service| async move {
        let (mut client, _) = Client::attached(&service, 1, false).await;
        let request = granted(&client.ask("x", Lasting::Connection).await);
        crate::note_panic("a timer");
        request
    });
    let data = dir.join("data");
    with_agent(&dir, &config(), |service| async move {
        let (mut client, _) = Client::attached(&service, 1, true).await;
        client.last = 1;
        assert_eq!(client.call(Body::End { request, left: false }).await, Reply::Done);
        assert!(!data.join("broken.json").exists() && data.join("broken-2.json").exists());
    });
}

/// Without room, or when the other host is not ready any more: everybody is listened to again, and what is asked for is granted.
#[test]
fn a_host_that_cannot_hand_over_goes_on() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        let trouble = service.borrow_mut().host.trouble_log();
        trouble.fill(true);
        service.borrow_mut().end = Some(End::HandedOver("lab2".into()));
        assert_eq!(service.borrow_mut().end_by_handing_over("lab2".into()), None);
        assert_eq!(service.borrow().ends(), None, "it does not end");
        assert!(service.borrow().listens);
        trouble.fill(false);
        let mut client = Client::connect(&service, frame::VERSION).await;
        let told = client.ask("x", Lasting::Connection).await;
        assert!(matches!(told, Reply::Granted { .. }), "{told:?}");
    });
}

/// What breaks while it is handed over stays broken, whatever becomes of that.
#[test]
fn a_host_that_breaks_while_it_cannot_hand_over_is_broken() {
    let (_dir, dir) = directory();
    with_agent(&dir, &config(), |service| async move {
        service.borrow_mut().host.trouble_log().fill(true);
        service.borrow_mut().end = Some(End::HandedOver("lab2".into()));
        service.borrow_mut().give_up("an invariant".into());
        assert_eq!(service.borrow_mut().end_by_handing_over("lab2".into()), None);
        assert_eq!(service.borrow().ends(), Some(End::Broken("an invariant".into())));
    });
}
