//! `holdall run` beside an agent that does what a real one does once in a thousand times: a stand-in.

use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use holdall_wire::frame::{self, Incoming};
use holdall_wire::{Answer, Attach, Body, Call, Fault, Reply, RequestNo, Taken};
use rustix::process::{Pid, Signal, kill_process};

/// What the stand-in does with a call.
enum Does {
    /// It replies.
    Reply(Box<Reply>),
    /// It replies, and hangs up.
    LastReply(Box<Reply>),
    Nothing,
    HangUp,
}

/// Decides about a call, which comes with the so many-th connection of the session.
type Decides = Arc<Mutex<dyn FnMut(usize, &Body) -> Does + Send>>;

/// A stand-in, and where it is.
struct StandIn {
    dir: tempfile::TempDir,
    attached: Arc<Mutex<usize>>,
}

impl StandIn {
    /// One that serves every connection in this way.
    fn new(does: impl FnMut(usize, &Body) -> Does + Send + 'static) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(dir.path().join("agent.sock")).expect("free");
        let attached = Arc::new(Mutex::new(0));
        let (does, counted): (Decides, _) = (Arc::new(Mutex::new(does)), attached.clone());
        std::thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                let (does, counted) = (does.clone(), counted.clone());
                std::thread::spawn(move || talk(stream, &does, &counted));
            }
        });
        Self { dir, attached }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// How many connections the session has had.
    fn attached(&self) -> usize {
        *self.attached.lock().expect("no panic")
    }

    /// Runs a command under a lock, in a process that is ended if it hangs.
    fn run(&self, options: &[&str], command: &[&str]) -> Child {
        let mut holdall = Command::new("timeout");
        holdall.args(["-s", "KILL", "60", env!("CARGO_BIN_EXE_holdall"), "run", "a"]);
        holdall.args(options).arg("--").args(command);
        holdall.env("HOLDALL_AGENT", self.file("agent.sock")).env_remove("HOLDALL_GRANT");
        holdall.env("HOLDALL_IDLE_EXIT", "30s").env_remove("HOLDALL_DATA");
        holdall.stdin(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
        holdall.spawn().expect("it starts")
    }

    /// Runs a shell that waits until a file is there, and ends with 7.
    fn run_until(&self, file: &str) -> Child {
        let file = self.file(file);
        let script = format!("while ! test -e {}; do sleep 0.01; done; exit 7", file.display());
        self.run(&[], &["sh", "-c", &script])
    }
}

/// Serves one connection until it ends.
fn talk(mut stream: UnixStream, does: &Decides, attached: &Mutex<usize>) -> Option<()> {
    let mut incoming = Incoming::new(frame::FROM_CLIENT_MAX);
    frame_of(&mut stream, &mut incoming)?;
    let mut out = Vec::new();
    frame::greet(&mut out, frame::VERSION);
    stream.write_all(&out).ok()?;
    let mut connection = 0;
    while let Some(content) = frame_of(&mut stream, &mut incoming) {
        let Call { id, body } = frame::read(&content).expect("a call");
        if matches!(body, Body::Attach(_)) {
            let mut attached = attached.lock().expect("no panic");
            *attached += 1;
            connection = *attached;
        }
        let does = match &body {
            Body::Agent => reply(Reply::Agent(Box::default())),
            Body::Attach(Attach { returns: false, .. }) => known(0, Vec::new()),
            Body::Leave => reply(Reply::Done),
            Body::Heard(_) => Does::Nothing,
            body => does.lock().expect("no panic")(connection, body),
        };
        let (reply, is_last) = match does {
            Does::Reply(reply) => (reply, false),
            Does::LastReply(reply) => (reply, true),
            Does::Nothing => continue,
            Does::HangUp => return None,
        };
        let mut out = Vec::new();
        frame::write(&Answer { id, reply: *reply }, frame::FROM_NODE_MAX, &mut out).expect("small");
        stream.write_all(&out).ok().filter(|()| !is_last)?;
    }
    None
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

/// The session is known, up to a call.
fn known(last: u64, answers: Vec<(u64, Option<Reply>)>) -> Does {
    reply(Reply::Attached { life: 1, last, answers })
}

fn grant() -> Reply {
    let (request, taken, variables) = (RequestNo(1), [].into(), Vec::new());
    Reply::Granted { request, taken, place: None, variables, limit: None }
}

/// Kills a child of the command that we have started, and waits until it has ended.
fn kill_child(pid: u32) {
    kill_process(Pid::from_raw(pid as i32).expect("a number"), Signal::KILL).expect("it is there");
    let path = format!("/proc/{pid}/stat");
    while std::fs::read_to_string(&path).is_ok_and(|stat| !stat.contains(") Z ")) {
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn ended(child: Child) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = child.wait_with_output().expect("it ends");
    (status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

fn until(mut is_so: impl FnMut() -> bool) {
    while !is_so() {
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn an_agent_that_falls_silent_after_the_grant_is_given_up() {
    let agent = StandIn::new(|_, body| match body {
        Body::Ask(_) => reply(grant()),
        _ => Does::Nothing,
    });
    let file = agent.file("touched");
    let (code, told) = ended(agent.run(&[], &["touch", file.to_str().expect("text")]));
    assert_eq!(code, Some(69), "{told}");
    assert!(told.contains("the agent does not answer"), "{told}");
    assert!(!file.exists(), "nothing runs that the agent does not know");
}

#[test]
fn a_child_that_is_killed_before_it_becomes_the_command_is_noticed() {
    let agent = StandIn::new(|_, body| match body {
        Body::Ask(_) => reply(grant()),
        Body::Child { pid, .. } => {
            kill_child(*pid);
            reply(Reply::Done)
        }
        _ => reply(Reply::Done),
    });
    let (code, told) = ended(agent.run(&[], &["sleep", "1000"]));
    assert_eq!(code, Some(137), "{told}");
}

#[test]
fn a_command_that_was_ended_because_its_grant_was_taken_away_is_no_command_that_was_killed() {
    let agent = StandIn::new(|_, body| match body {
        Body::Ask(_) => reply(grant()),
        Body::Child { pid, .. } => {
            let killed = *pid;
            // When it is the command.
            std::thread::spawn(move || {
                let name = format!("/proc/{killed}/comm");
                until(|| std::fs::read_to_string(&name).is_ok_and(|name| name == "sleep\n"));
                kill_child(killed);
            });
            reply(Reply::Done)
        }
        _ => reply(Reply::Failed(Fault::Wrong("there is no 0-1".into()))),
    });
    let (code, told) = ended(agent.run(&[], &["sleep", "1000"]));
    assert_eq!(code, Some(70), "{told}");
}

#[test]
fn whoever_is_turned_out_again_and_again_asks_at_leisure() {
    let agent = StandIn::new(|_, _| Does::HangUp);
    let (code, told) = ended(agent.run(&["-w", "2s"], &["true"]));
    assert_eq!(code, Some(75), "{told}");
    let asked = agent.attached();
    assert!((2..50).contains(&asked), "asked {asked} times in two seconds");
}

/// The agent goes when the command is known, and comes back: the end is told once, to the next one.
#[test]
fn a_command_goes_on_while_the_agent_is_away() {
    let ends = Arc::new(Mutex::new(Vec::new()));
    let noted = ends.clone();
    let agent = StandIn::new(move |connection, body| match body {
        Body::Ask(_) => reply(grant()),
        Body::Child { .. } => Does::LastReply(Box::new(Reply::Done)),
        Body::Attach(_) => known(2, vec![(1, Some(grant()))]),
        Body::End { .. } => {
            noted.lock().expect("no panic").push(connection);
            reply(Reply::Done)
        }
        other => panic!("{other:?}"),
    });
    let run = agent.run_until("go");
    until(|| agent.attached() == 2);
    std::fs::write(agent.file("go"), "").expect("written");
    let (code, told) = ended(run);
    assert_eq!((code, &*told), (Some(7), ""));
    assert_eq!(*ends.lock().expect("no panic"), [2]);
}

#[test]
fn a_command_that_left_nothing_behind_ends_without_the_agent() {
    let agent = StandIn::new(|_, body| match body {
        Body::Ask(_) => reply(grant()),
        Body::Child { .. } => Does::LastReply(Box::new(Reply::Done)),
        _ => Does::Nothing,
    });
    let run = agent.run_until("go");
    until(|| agent.attached() == 2);
    // Long enough to be worth mentioning.
    std::thread::sleep(Duration::from_millis(1500));
    std::fs::write(agent.file("go"), "").expect("written");
    let (code, told) = ended(run);
    assert_eq!(code, Some(7), "{told}");
    assert!(told.contains("the agent is away; the command goes on"), "{told}");
}

/// What the command has left behind would be killed by an agent that finds its wrapper gone.
#[test]
fn a_command_that_left_something_behind_is_given_back_to_the_next_agent() {
    let ends = Arc::new(Mutex::new(Vec::new()));
    let (noted, come) = (ends.clone(), Arc::new(Mutex::new(false)));
    let comes = come.clone();
    let agent = StandIn::new(move |_, body| match body {
        Body::Ask(_) => reply(grant()),
        Body::Child { .. } => Does::LastReply(Box::new(Reply::Done)),
        Body::Attach(_) if *comes.lock().expect("no panic") => known(2, vec![(1, Some(grant()))]),
        Body::Attach(_) => Does::HangUp,
        Body::End { left, .. } => {
            noted.lock().expect("no panic").push(*left);
            reply(Reply::Leftovers(vec![4711]))
        }
        other => panic!("{other:?}"),
    });
    let (go, left) = (agent.file("go"), agent.file("left"));
    let script = format!(
        "touch {1}; (while test -e {1} && ! test -e {0}; do sleep 0.01; done) </dev/null >/dev/null 2>&1 &",
        go.display(),
        left.display()
    );
    let mut run = agent.run(&[], &["sh", "-c", &script]);
    until(|| left.exists());
    std::thread::sleep(Duration::from_millis(1500));
    assert!(run.try_wait().expect("ours").is_none(), "it has something to tell");
    *come.lock().expect("no panic") = true;
    let (code, told) = ended(run);
    std::fs::write(&go, "").expect("written");
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("4711"), "{told}");
    assert_eq!(*ends.lock().expect("no panic"), [true]);
}

#[test]
fn nothing_starts_before_an_agent_knows_it() {
    let file = Arc::new(Mutex::new(PathBuf::new()));
    let touched = file.clone();
    let agent = StandIn::new(move |connection, body| match body {
        Body::Ask(_) => reply(grant()),
        Body::Child { .. } if connection == 1 => Does::HangUp,
        Body::Attach(_) => {
            assert!(!touched.lock().expect("no panic").exists(), "it has started");
            known(1, vec![(1, Some(grant()))])
        }
        _ => reply(Reply::Done),
    });
    *file.lock().expect("no panic") = agent.file("touched");
    let path = agent.file("touched");
    let (code, told) = ended(agent.run(&[], &["touch", path.to_str().expect("text")]));
    assert_eq!((code, &*told), (Some(0), ""));
    assert!(path.exists());
    assert_eq!(agent.attached(), 2);
}

#[test]
fn a_command_whose_agent_has_lost_its_memory_is_stopped() {
    let agent = StandIn::new(|_, body| match body {
        Body::Ask(_) => reply(grant()),
        Body::Child { .. } => Does::LastReply(Box::new(Reply::Done)),
        Body::Attach(_) => reply(Reply::Failed(Fault::Forgotten)),
        other => panic!("{other:?}"),
    });
    let (code, told) = ended(agent.run(&[], &["sleep", "1000"]));
    assert_eq!(code, Some(70), "{told}");
}

#[test]
fn whoever_waits_asks_an_agent_that_has_lost_its_memory_again() {
    let agent = StandIn::new(|connection, body| match body {
        Body::Ask(_) if connection == 1 => Does::LastReply(Box::new(Reply::Queued(RequestNo(1)))),
        Body::Ask(_) => reply(grant()),
        Body::Attach(_) => reply(Reply::Failed(Fault::Forgotten)),
        _ => reply(Reply::Done),
    });
    let (code, told) = ended(agent.run(&[], &["true"]));
    assert_eq!(code, Some(0), "{told}");
    assert!(told.contains("asking again"), "{told}");
}

#[test]
fn a_deadline_ends_waiting_also_while_the_agent_is_away() {
    let agent = StandIn::new(|_, body| match body {
        Body::Ask(_) => Does::LastReply(Box::new(Reply::Queued(RequestNo(1)))),
        _ => Does::Nothing,
    });
    let (code, told) = ended(agent.run(&["-w", "2s", "-E", "9"], &["true"]));
    assert_eq!(code, Some(9), "{told}");
    assert!(told.contains("not granted in time: the agent is away"), "{told}");
}

/// The agent has lost its memory, and the next one is started by the wrapper itself: as its child, and not as
/// something that the command has left behind.
#[test]
fn an_agent_that_was_started_again_is_nothing_that_the_command_has_left_behind() {
    let socket = Arc::new(Mutex::new(PathBuf::new()));
    let gone = socket.clone();
    let agent = StandIn::new(move |_, body| match body {
        Body::Ask(_) => reply(grant()),
        Body::Child { .. } => reply(Reply::Done),
        Body::End { left: true, .. } => {
            std::fs::remove_file(&*gone.lock().expect("no panic")).expect("it was there");
            Does::HangUp
        }
        other => panic!("{other:?}"),
    });
    *socket.lock().expect("no panic") = agent.file("agent.sock");
    let left = "sleep 1000 </dev/null >/dev/null 2>&1 & exit 7";
    let (code, told) = ended(agent.run(&[], &["sh", "-c", left]));
    let about = |what: &str| {
        let mut holdall = Command::new(env!("CARGO_BIN_EXE_holdall"));
        holdall.args(["agent", what]).env("HOLDALL_AGENT", agent.file("agent.sock"));
        holdall.output().expect("it runs")
    };
    let mark = agent.file("agent.sock.stopped").exists();
    let (status, stop) = (about("status"), about("stop"));
    assert_eq!(code, Some(7), "{told}");
    assert!(told.contains("the grant was lost; stopping"), "{told}");
    assert!(!mark, "the agent was told to stop: {told}");
    assert!(status.status.success() && stop.status.success(), "{status:?} {stop:?}");
}

/// Whoever is not to use what it was granted does not wait until that is given back.
#[test]
fn what_cannot_be_used_is_given_back_without_waiting_for_the_agent() {
    let agent = StandIn::new(|_, body| match body {
        Body::Ask(_) => {
            let taken = ["a.b", "a_b"]
                .map(|name| Taken { name: name.parse().expect("a name"), units: Vec::new() });
            let (request, variables) = (RequestNo(1), Vec::new());
            let (taken, place, limit) = (taken.into(), None, None);
            reply(Reply::Granted { request, taken, place, variables, limit })
        }
        _ => Does::Nothing,
    });
    let (code, told) = ended(agent.run(&[], &["true"]));
    assert_eq!(code, Some(64), "{told}");
}

/// The agent has it, and could not do what was needed: nothing was taken away.
#[test]
fn a_command_that_was_killed_is_not_told_as_lost_because_its_agent_has_failed() {
    let agent = StandIn::new(|_, body| match body {
        Body::Ask(_) => reply(grant()),
        Body::Child { .. } => reply(Reply::Done),
        _ => reply(Reply::Failed(Fault::Failed("no room".into()))),
    });
    let (code, told) = ended(agent.run(&[], &["sh", "-c", "kill -9 $$"]));
    assert_eq!(code, Some(137), "{told}");
}
