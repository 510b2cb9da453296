//! `holdall run` beside an agent that does what a real one does once in a thousand times: a stand-in.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use holdall_wire::frame::{self, Incoming};
use holdall_wire::{AgentView, Answer, Body, Call, Fault, Reply, RequestNo};
use rustix::process::{Pid, Signal, kill_process};

/// What the stand-in does with a call: it replies, or does not, or hangs up.
enum Does {
    Reply(Box<Reply>),
    Nothing,
    HangUp,
}

/// A listener of a stand-in, and where it is.
struct StandIn {
    dir: tempfile::TempDir,
    listener: UnixListener,
}

impl StandIn {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(dir.path().join("agent.sock")).expect("free");
        Self { dir, listener }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Runs a command under a lock, in a process that is ended if it hangs.
    fn run(&self, options: &[&str], command: &[&str]) -> std::process::Child {
        let mut holdall = Command::new("timeout");
        holdall.args(["-s", "KILL", "60", env!("CARGO_BIN_EXE_holdall"), "run", "a"]);
        holdall.args(options).arg("--").args(command);
        holdall.env("HOLDALL_AGENT", self.file("agent.sock")).env_remove("HOLDALL_GRANT");
        holdall.stdin(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
        holdall.spawn().expect("it starts")
    }

    /// Serves one connection until it ends.
    fn serve(&self, does: impl FnMut(&Body) -> Does) {
        let (stream, _) = self.listener.accept().expect("somebody comes");
        talk(stream, does);
    }
}

fn talk(mut stream: UnixStream, mut does: impl FnMut(&Body) -> Does) {
    let mut out = Vec::new();
    frame::greet(&mut out, frame::OLDEST);
    stream.write_all(&out).expect("it reads");
    let mut incoming = Incoming::new(frame::FROM_CLIENT_MAX);
    if frame_of(&mut stream, &mut incoming).is_none() {
        return;
    }
    while let Some(content) = frame_of(&mut stream, &mut incoming) {
        let Call { id, body } = frame::read(&content).expect("a call");
        let does = match &body {
            Body::Agent => reply(Reply::Agent(view())),
            body => does(body),
        };
        let reply = match does {
            Does::Reply(reply) => *reply,
            Does::Nothing => continue,
            Does::HangUp => return,
        };
        let mut out = Vec::new();
        frame::write(&Answer { id, reply }, frame::FROM_NODE_MAX, &mut out).expect("small");
        if stream.write_all(&out).is_err() {
            return;
        }
    }
}

fn frame_of(stream: &mut UnixStream, incoming: &mut Incoming) -> Option<Vec<u8>> {
    loop {
        if let Some(content) = incoming.next_frame().expect("short") {
            return Some(content.to_vec());
        }
        let mut bytes = [0; 4096];
        let length = stream.read(&mut bytes).ok().filter(|length| *length > 0)?;
        incoming.buffer().extend(&bytes[..length]);
    }
}

fn reply(reply: Reply) -> Does {
    Does::Reply(Box::new(reply))
}

fn view() -> AgentView {
    AgentView {
        version: String::new(),
        pid: std::process::id(),
        epoch: 1,
        since: 0,
        data: String::new(),
        protocol: String::new(),
        ..AgentView::default()
    }
}

fn granted() -> Does {
    let (request, taken, variables) = (RequestNo(1), [].into(), Vec::new());
    reply(Reply::Granted { request, taken, place: None, variables, limit: None })
}

/// Kills a child of the command that we have started, and waits until it has ended.
fn kill_child(pid: u32) {
    kill_process(Pid::from_raw(pid as i32).expect("a number"), Signal::KILL).expect("it is there");
    let path = format!("/proc/{pid}/stat");
    while std::fs::read_to_string(&path).is_ok_and(|stat| !stat.contains(") Z ")) {
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn ended(child: std::process::Child) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = child.wait_with_output().expect("it ends");
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn an_agent_that_falls_silent_after_the_grant_is_given_up() {
    let agent = StandIn::new();
    let file = agent.file("touched");
    let run = agent.run(&[], &["touch", file.to_str().expect("text")]);
    agent.serve(|body| match body {
        Body::Ask(_) => granted(),
        _ => Does::Nothing,
    });
    let (code, told) = ended(run);
    assert_eq!(code, Some(69), "{told}");
    assert!(told.contains("the agent does not answer"), "{told}");
    assert!(!file.exists(), "nothing runs that the agent does not know");
}

#[test]
fn a_child_that_is_killed_before_it_becomes_the_command_is_noticed() {
    let agent = StandIn::new();
    let run = agent.run(&[], &["sleep", "1000"]);
    agent.serve(|body| match body {
        Body::Ask(_) => granted(),
        Body::Child { pid, .. } => {
            kill_child(*pid);
            reply(Reply::Done)
        }
        _ => reply(Reply::Done),
    });
    let (code, told) = ended(run);
    assert_eq!(code, Some(137), "{told}");
}

#[test]
fn a_command_that_was_ended_because_its_grant_was_taken_away_is_no_command_that_was_killed() {
    let agent = StandIn::new();
    let run = agent.run(&[], &["sleep", "1000"]);
    let mut child = 0;
    agent.serve(|body| match body {
        Body::Ask(_) => granted(),
        Body::Child { pid, .. } => {
            child = *pid;
            let killed = child;
            // When it is the command.
            std::thread::spawn(move || {
                let name = format!("/proc/{killed}/comm");
                while !std::fs::read_to_string(&name).is_ok_and(|name| name == "sleep\n") {
                    std::thread::sleep(Duration::from_millis(2));
                }
                kill_child(killed);
            });
            reply(Reply::Done)
        }
        _ => reply(Reply::Failed(Fault::Wrong("there is no 0-1".into()))),
    });
    let (code, told) = ended(run);
    assert_eq!(code, Some(70), "{told}");
}

#[test]
fn whoever_is_turned_out_again_and_again_asks_at_leisure() {
    let agent = StandIn::new();
    let run = agent.run(&["-w", "2s"], &["true"]);
    let mut asked = 0;
    agent.listener.set_nonblocking(true).expect("a listener");
    let mut run = Some(run);
    while let Some(mut child) = run.take() {
        match agent.listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).expect("a stream");
                asked += 1;
                talk(stream, |_| Does::HangUp);
            }
            Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
        match child.try_wait().expect("ours") {
            None => run = Some(child),
            Some(status) => assert_eq!(status.code(), Some(75)),
        }
    }
    assert!((2..50).contains(&asked), "asked {asked} times in two seconds");
}
