//! A log in a real etcd.

mod members;

use std::path::Path;
use std::time::Duration;

use holdall_etcd::messages::Range;
use holdall_etcd::{Client, Settings};
use holdall_log::conformance::check;
use holdall_log::etcd::{Address, EtcdStore, Options, WhenLed};
use holdall_log::{Class, Entry, Error, Index, Log, Lost, Memory, OpenError, Store};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use self::members::{Files, Members};

fn options(cell: &str) -> Options {
    let mut options = Options::new(cell, "here", "127.0.0.1:1");
    (options.create, options.when_led) = (true, WhenLed::Refuse);
    options.lease = Duration::from_secs(6);
    options
}

fn store(members: &Members, cell: &str) -> EtcdStore {
    EtcdStore::new(members.address(cell), options(cell))
}

fn append(log: &mut dyn Log, payload: &[u8]) -> Index {
    let entry = Entry { class: Class::Must, logic: 1, payload, sync: false };
    let index = log.append(entry).expect("it is taken");
    log.flush().expect("it is handed over");
    index
}

/// Has `etcdctl` do something.
fn ctl(members: &Members, words: &[&str]) {
    let done = members.ctl().args(words).output().expect("etcdctl");
    assert!(done.status.success(), "{words:?}: {}", String::from_utf8_lossy(&done.stderr));
}

#[tokio::test]
async fn it_keeps_the_promises_of_every_log() {
    if !members::is_there() {
        return;
    }
    let members = Members::start(3, &[]);
    let mut made = 0;
    let mut fresh = || {
        made += 1;
        Box::new(store(&members, &format!("cell-{made}"))) as Box<dyn Store>
    };
    let checked = tokio::time::timeout(Duration::from_secs(120), check(&mut fresh)).await;
    checked.expect("it ends");
}

/// The second has appended nothing yet: nothing but the leader's key tells them apart.
#[tokio::test]
async fn of_two_that_believe_to_lead_one_counts() {
    if !members::is_there() {
        return;
    }
    let members = Members::start(3, &[]);
    let (mut first, _) = store(&members, "two").open_etcd().expect("opened");
    ctl(&members, &["del", "holdall/two/meta/leader"]);
    let (mut second, opened) = store(&members, "two").open_etcd().expect("opened");
    let late = append(&mut first, b"late");
    let told = first.watch().reached(late).await;
    assert!(matches!(told, Err(Error::Deposed(_))), "{told:?}");
    let index = append(&mut second, b"in time");
    second.watch().reached(index).await.expect("it leads");
    drop((first, second));
    let (_, again) = store(&members, "two").open_etcd().expect("opened");
    assert_eq!(again.records.len(), 1);
    assert_eq!(again.records[0].payload, "in time");
    assert!(again.epoch > opened.epoch);
}

/// Whichever member is named first, the one is asked that leads the others.
#[tokio::test]
async fn the_leader_of_the_members_is_asked() {
    if !members::is_there() {
        return;
    }
    let members = Members::start(3, &[]);
    let mut ports = members.ports();
    let mut asked = Vec::new();
    for _ in 0..ports.len() {
        ports.rotate_left(1);
        let address = members::address(&ports, "any");
        let client = Client::new(&Settings { address, timeout: Duration::from_secs(5) });
        let client = client.expect("a client");
        client.seek_leader().await;
        let answer = client.range(Range { key: b"any".into(), ..Range::default() }).await;
        asked.push(answer.expect("it answers").header.expect("a header").member);
    }
    assert!(asked.iter().all(|member| *member == asked[0] && *member != 0), "{asked:?}");
}

#[tokio::test]
async fn no_room_is_said_and_passes() {
    if !members::is_there() {
        return;
    }
    let members = Members::start(1, &["--quota-backend-bytes", "4000000"]);
    let (mut log, _) = store(&members, "full").open_etcd().expect("opened");
    let mut watch = log.watch();
    let (last, trouble) = loop {
        let last = append(&mut log, &[7; 500_000]);
        tokio::select! {
            told = watch.reached(last) => told.expect("it leads"),
            () = tokio::time::sleep(Duration::from_secs(20)) => panic!("{:?}", watch.progress()),
            trouble = said(log.watch()) => break (last, trouble),
        }
    };
    assert!(matches!(trouble, Error::Full(_)), "{trouble:?}");
    assert!(log.admit(1).is_err() && watch.may_leave() < last);
    // What took the room goes, as etcd's documentation has it.
    ctl(&members, &["del", "--prefix", "holdall/full/log/"]);
    let head = members.ctl().args(["get", "x", "-w", "fields"]).output().expect("etcdctl");
    let head = String::from_utf8_lossy(&head.stdout).into_owned();
    let revision = head.lines().find_map(|line| line.strip_prefix("\"Revision\" : "));
    ctl(&members, &["compact", revision.expect("a revision")]);
    ctl(&members, &["defrag"]);
    ctl(&members, &["alarm", "disarm"]);
    watch.reached(last).await.expect("it passes");
    while watch.progress().trouble.is_some() {
        watch.changed().await.expect("it goes on");
    }
    log.admit(1).expect("something new is let in");
}

/// What is wrong, when something is.
async fn said(mut watch: holdall_log::Watch) -> Error {
    loop {
        if let Some(trouble) = watch.progress().trouble {
            return trouble;
        }
        watch.changed().await.expect("it goes on");
    }
}

/// Who signs, and a certificate for this machine, in files.
fn certificates(dir: &Path) -> Files {
    let ca_key = KeyPair::generate().expect("a key");
    let mut ca = CertificateParams::new(Vec::new()).expect("no names");
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let signed = ca.self_signed(&ca_key).expect("signed").pem();
    let issuer = Issuer::new(ca, ca_key);
    let key = KeyPair::generate().expect("a key");
    let own = CertificateParams::new(vec!["127.0.0.1".into()]).expect("an address");
    let cert = own.signed_by(&key, &issuer).expect("signed").pem();
    let write = |name: &str, content: String| {
        let path = dir.join(name);
        std::fs::write(&path, content).expect("written");
        path
    };
    Files {
        ca: write("ca", signed),
        cert: write("cert", cert),
        key: write("key", key.serialize_pem()),
    }
}

#[tokio::test]
async fn it_speaks_tls_and_says_who_it_is() {
    if !members::is_there() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let files = certificates(dir.path());
    let members = Members::start_secure(files.clone());
    for words in [
        "user add root:top",
        "user grant-role root root",
        "role add cells",
        "role grant-permission cells --prefix=true readwrite holdall/mine/",
        "user add me:secret",
        "user grant-role me cells",
        "auth enable",
    ] {
        ctl(&members, &words.split(' ').collect::<Vec<_>>());
    }
    let password = dir.path().join("password");
    std::fs::write(&password, "secret\n").expect("written");
    let address = |cell: &str, user: &str| {
        let Files { ca, cert, key } = &files;
        let (ca, cert, key) = (ca.display(), cert.display(), key.display());
        let port = members.ports()[0];
        let text = format!(
            "etcds://127.0.0.1:{port}/{cell}?ca={ca}&cert={cert}&key={key}&user={user}&\
             password-file={}",
            password.display()
        );
        Address::parse(&text).expect("an address")
    };
    let opened = EtcdStore::new(address("mine", "me"), options("mine")).open_etcd();
    let (mut log, _) = opened.expect("opened");
    let index = append(&mut log, b"one");
    log.watch().reached(index).await.expect("it may leave");
    // Another token is needed, and asked for.
    ctl(&members, &["--user", "root:top", "user", "add", "you:pass"]);
    let index = append(&mut log, b"two");
    log.watch().reached(index).await.expect("it may leave");
    let refused = |address| {
        let opened = EtcdStore::new(address, options("mine")).open_etcd();
        opened.err().expect("refused").to_string()
    };
    let told = refused(address("yours", "me"));
    assert!(told.contains("permission denied"), "{told}");
    let told = refused(address("mine", "you"));
    assert!(told.contains("authentication failed"), "{told}");
    // Who may no longer is told so, nothing leaves, and it passes when they may again.
    ctl(&members, &["--user", "root:top", "user", "revoke-role", "me", "cells"]);
    let index = append(&mut log, b"three");
    let trouble = said(log.watch()).await;
    assert!(trouble.passes() && trouble.to_string().contains("permission denied"), "{trouble}");
    assert!(log.watch().may_leave() < index);
    ctl(&members, &["--user", "root:top", "user", "grant-role", "me", "cells"]);
    log.watch().reached(index).await.expect("it passes");
}

#[tokio::test]
async fn what_comes_from_a_backup_is_refused_until_it_is_adopted() {
    if !members::is_there() {
        return;
    }
    let dir = tempfile::tempdir().expect("a directory");
    let backup = dir.path().join("backup");
    let backup = backup.to_str().expect("a name");
    let (life, epoch) = {
        let members = Members::start(1, &[]);
        let (mut log, opened) = store(&members, "mine").open_etcd().expect("opened");
        let index = append(&mut log, b"one");
        log.watch().reached(index).await.expect("it may leave");
        log.resign(None).expect("sealed");
        ctl(&members, &["snapshot", "save", backup]);
        (opened.life, opened.epoch)
    };
    let members = Members::restored(backup);
    let refused = store(&members, "mine").open_etcd().err();
    assert!(matches!(refused, Some(OpenError::Restored(_))), "{refused:?}");
    let mut options = options("mine");
    options.adopt = true;
    let store = EtcdStore::new(members.address("mine"), options);
    let (_log, opened) = store.open_etcd().expect("adopted");
    assert_eq!((opened.memory, opened.records.len()), (Memory::Lost(Lost::Adopted), 1));
    assert!(opened.life != life && opened.epoch > epoch + 1000);
}
