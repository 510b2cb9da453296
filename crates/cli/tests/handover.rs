//! Programs that speak the version without sessions keep their connections when the agent becomes another
//! program, and lose nothing if it cannot.

use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::time::Duration;

use holdall_wire::frame::{self, Incoming};
use holdall_wire::{Answer, Ask, Body, Call, From, Lasting, Reply, RequestNo};

/// How long anything may take.
const LIMIT: &str = "120";

struct Agent {
    dir: tempfile::TempDir,
    process: Child,
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Agent {
    fn start() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let mut command = Command::new(env!("CARGO_BIN_EXE_holdall"));
        let process = in_directory(&mut command, &dir).arg("agent").spawn().expect("it starts");
        let agent = Self { dir, process };
        while !agent.run(&["status"]).status.success() {
            std::thread::sleep(Duration::from_millis(20));
        }
        agent
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs `holdall agent` with something to do, and ends it if it hangs.
    fn run(&self, args: &[&str]) -> Output {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", LIMIT, env!("CARGO_BIN_EXE_holdall"), "agent"]).args(args);
        in_directory(&mut command, &self.dir).output().expect("it starts")
    }

    fn connect(&self) -> Client {
        let stream = UnixStream::connect(self.file("agent.sock")).expect("it listens");
        stream.set_read_timeout(Some(Duration::from_secs(120))).expect("a socket");
        let mut client = Client { stream, incoming: Incoming::new(frame::FROM_NODE_MAX) };
        let mut greeting = Vec::new();
        frame::greet(&mut greeting, frame::OLDEST);
        client.stream.write_all(&greeting).expect("sent");
        let greeted = frame::version(&client.next_frame()).expect("a greeting");
        assert_eq!(greeted, frame::OLDEST);
        client
    }
}

fn in_directory<'a>(command: &'a mut Command, dir: &tempfile::TempDir) -> &'a mut Command {
    let path = |name| dir.path().join(name);
    command.env("HOLDALL_AGENT", path("agent.sock")).env("HOLDALL_DATA", path("data"));
    command.env_remove("HOLDALL_GRANT").env("HOLDALL_IDLE_EXIT", "10m")
}

/// A program without sessions.
struct Client {
    stream: UnixStream,
    incoming: Incoming,
}

impl Client {
    fn send(&mut self, id: u64, body: Body) {
        let mut bytes = Vec::new();
        frame::write(&Call { id, body }, frame::FROM_CLIENT_MAX, &mut bytes).expect("short");
        self.stream.write_all(&bytes).expect("sent");
    }

    fn ask(&mut self) {
        let needs = vec!["x".parse().expect("a need")];
        let (now, lasting, from) = (false, Lasting::Connection, From::default());
        let ask = Ask { needs, now, lasting, from, within: None, limit: None, part: None };
        self.send(1, Body::Ask(ask));
    }

    /// The next reply, which is to the call of this number.
    fn reply(&mut self, to: u64) -> Reply {
        let Answer { id, reply } = frame::read(&self.next_frame()).expect("an answer");
        assert_eq!(id, to, "{reply:?}");
        reply
    }

    fn granted(&mut self) -> RequestNo {
        match self.reply(1) {
            Reply::Granted { request, .. } => request,
            other => panic!("{other:?}"),
        }
    }

    fn next_frame(&mut self) -> Vec<u8> {
        loop {
            if let Some(content) = self.incoming.next_frame().expect("a frame") {
                return content.to_vec();
            }
            let mut bytes = [0; 4096];
            let length = self.stream.read(&mut bytes).expect("it says something in time");
            assert!(length > 0, "the agent has hung up");
            self.incoming.buffer().extend(&bytes[..length]);
        }
    }
}

/// One that holds, and one that waits for it.
fn clients(agent: &Agent) -> (Client, RequestNo, Client) {
    let (mut holder, mut waiter) = (agent.connect(), agent.connect());
    holder.ask();
    let request = holder.granted();
    waiter.ask();
    assert!(matches!(waiter.reply(1), Reply::Queued(_)));
    (holder, request, waiter)
}

/// Both still have what they had, and are told nothing else.
fn notice_nothing(mut holder: Client, request: RequestNo, mut waiter: Client) {
    holder.send(2, Body::End { request, left: false });
    assert_eq!(holder.reply(2), Reply::Done);
    assert!(waiter.granted() > request);
}

#[test]
fn programs_without_sessions_do_not_notice_a_restart() {
    let agent = Agent::start();
    let (holder, request, waiter) = clients(&agent);
    for _ in 0..2 {
        let told = agent.run(&["restart"]);
        assert!(told.status.success(), "{told:?}");
    }
    notice_nothing(holder, request, waiter);
}

/// The program is removed after it was asked.
#[test]
fn a_restart_that_fails_in_the_end_is_told_and_nobody_else_notices() {
    let agent = Agent::start();
    let (holder, request, waiter) = clients(&agent);
    let exe = agent.file("program");
    let text = "#!/bin/sh\nrm \"$0\"\necho 'this holdall understands the log'\n";
    std::fs::write(&exe, text).expect("writable");
    std::fs::set_permissions(&exe, PermissionsExt::from_mode(0o755)).expect("ours");
    let exe = exe.to_str().expect("plain");
    let told = agent.run(&["restart", "--exe", exe]);
    let errors = String::from_utf8_lossy(&told.stderr);
    assert!(errors.contains("goes on as the program it was"), "{told:?}");
    notice_nothing(holder, request, waiter);
}
