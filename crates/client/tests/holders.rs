//! Whom an agent takes for the user of a grant, and whom it kills.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use holdall_client::wire::frame::{self, Incoming};
use holdall_client::wire::{Answer, Ask, Body, Call, From as About, Lasting, Leftovers, Reply};
use holdall_client::{Client, Error, Grant};
use holdall_node::{Config, Settings};

/// An agent without cgroups on a thread, and a client of it.
async fn agent() -> (tempfile::TempDir, Client) {
    let dir = tempfile::tempdir().expect("a directory");
    let socket = dir.path().join("agent.sock");
    let settings = Settings {
        socket: socket.clone(),
        data: dir.path().join("data"),
        config: Config { cgroups: false, ..Config::default() },
        configured: false,
        metrics: None,
        idle_exit: None,
        background: false,
        hosted: None,
        adopt: false,
    };
    std::thread::spawn(move || holdall_node::run(&settings).expect("the agent runs"));
    loop {
        match Client::connect(&socket).await {
            Ok(client) => return (dir, client),
            Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
        }
    }
}

fn asked() -> Ask {
    let needs = vec!["a".parse().expect("a need")];
    let lasting = Lasting::Command(Leftovers::Wait);
    Ask {
        needs,
        now: false,
        lasting,
        from: About::default(),
        within: None,
        limit: None,
        part: None,
    }
}

async fn for_a_command(client: &Client) -> Grant {
    client.enqueue(asked()).expect("small").granted().await.expect("free")
}

fn sleeper() -> Child {
    let mut command = Command::new("sleep");
    command.arg("1000").stdin(Stdio::null()).process_group(0).spawn().expect("it starts")
}

/// A process that has a number which another had before; none if the kernel does not let us.
fn with_number(pid: u32) -> Option<Child> {
    for _ in 0..200 {
        std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).ok()?;
        let mut child = sleeper();
        if child.id() == pid {
            return Some(child);
        }
        child.kill().expect("ours");
        child.wait().expect("it ends");
    }
    None
}

/// A client that can end without a word.
struct Rude {
    stream: UnixStream,
    incoming: Incoming,
}

impl Rude {
    fn connect(socket: &Path) -> Self {
        let stream = UnixStream::connect(socket).expect("it listens");
        let mut rude = Self { stream, incoming: Incoming::new(frame::FROM_NODE_MAX) };
        let mut greeting = Vec::new();
        frame::greet(&mut greeting, frame::OLDEST);
        rude.stream.write_all(&greeting).expect("it reads");
        rude.read_frame();
        rude
    }

    fn read_frame(&mut self) -> Vec<u8> {
        loop {
            if let Some(content) = self.incoming.next_frame().expect("short") {
                return content.to_vec();
            }
            let mut bytes = [0; 4096];
            let length = self.stream.read(&mut bytes).expect("it answers");
            self.incoming.buffer().extend(&bytes[..length]);
        }
    }

    fn call(&mut self, body: Body) -> Reply {
        let mut call = Vec::new();
        frame::write(&Call { id: 1, body }, frame::FROM_CLIENT_MAX, &mut call).expect("small");
        self.stream.write_all(&call).expect("it reads");
        let content = self.read_frame();
        frame::read::<Answer>(&content).expect("an answer").reply
    }
}

#[tokio::test]
async fn whoever_has_the_number_later_is_not_killed() {
    let (dir, client) = agent().await;
    let mut rude = Rude::connect(&dir.path().join("agent.sock"));
    let Reply::Granted { request, .. } = rude.call(Body::Ask(asked())) else {
        panic!("it is free");
    };
    let mut child = sleeper();
    let known = rude.call(Body::Child { request, pid: child.id() });
    assert_eq!(known, Reply::Done, "our child");
    child.kill().expect("ours");
    child.wait().expect("it ends");
    let Some(mut stranger) = with_number(child.id()) else {
        assert!(std::env::var_os("HOLDALL_TRY_ALL").is_none(), "numbers cannot be chosen here");
        writeln!(std::io::stderr(), "NOT TRIED: numbers cannot be chosen here").expect("open");
        return;
    };
    drop(rude);
    // Whoever gets it next comes after whatever was done to the processes of the one before.
    for_a_command(&client).await.release().await.expect("it is over");
    assert_eq!(stranger.try_wait().expect("ours"), None, "a stranger was killed");
    stranger.kill().expect("ours");
    stranger.wait().expect("it ends");
}

#[tokio::test]
async fn strangers_cannot_be_named() {
    let (_dir, client) = agent().await;
    let grant = for_a_command(&client).await;
    for pid in [0, 1, std::process::id(), u32::MAX] {
        let named = grant.child(pid).await;
        assert!(matches!(named, Err(Error::Fault(_))), "{pid}: {named:?}");
    }
    let mut child = sleeper();
    grant.child(child.id()).await.expect("our child");
    let again = grant.child(child.id()).await;
    assert!(matches!(again, Err(Error::Fault(_))), "one is enough: {again:?}");
    child.kill().expect("ours");
    child.wait().expect("it ends");
    grant.release().await.expect("it is over");
}
