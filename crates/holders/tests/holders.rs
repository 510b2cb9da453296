//! Holders as real processes: what escapes, what is taken for an end, who is killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command as Program, Stdio};
use std::time::Duration;

use holdall_holders::{
    Cgroup, Cgroups, Child, Command, Ended, Family, Holder, NotAHolder, Peer, Process, Start,
};
use nix::sys::signal::SigSet;

/// Nothing here takes that long, unless it hangs.
const LONG: Duration = Duration::from_secs(20);

fn command(words: &[&str]) -> Command {
    command_with(words, true, SigSet::empty())
}

fn command_with(words: &[&str], stands_still: bool, mask: SigSet) -> Command {
    Command {
        words: words.iter().map(Into::into).collect(),
        variables: vec![("HOLDALL_TEST".into(), "here".into())],
        mask,
        own_group: true,
        dies_with_us: true,
        stands_still,
    }
}

/// Cgroups, where they can be had. Where everything is to be tried, they must be had.
fn cgroups() -> Option<Cgroups> {
    let name = format!("{}-trial", std::process::id());
    let found = Cgroups::find().and_then(|cgroups| cgroups.trial(&name).map(|()| cgroups));
    match found {
        Ok(cgroups) => Some(cgroups),
        Err(why) => {
            assert!(std::env::var_os("HOLDALL_TRY_ALL").is_none(), "cannot be tried: {why}");
            // Not captured, so that it is seen.
            writeln!(std::io::stderr(), "NOT TRIED: {why}").expect("open");
            None
        }
    }
}

fn make(cgroups: &Cgroups, name: &str) -> Cgroup {
    let own = cgroups.of(std::process::id()).expect("we are somewhere");
    cgroups.make(&own, &format!("{name}-{}", std::process::id())).expect("we may")
}

fn enter(cgroups: &Cgroups, cgroup: &Cgroup) -> OwnedFd {
    Cgroup::enter(&cgroups.place(cgroup), cgroup.id().inode).expect("it is there")
}

/// This process as its own peer.
fn peer() -> Peer {
    let (here, _there) = UnixStream::pair().expect("a pair");
    Peer::of(&here).expect("we are there")
}

fn family(child: &Child) -> Family {
    Family::child(child.pid(), &peer()).expect("our child")
}

fn until_it_has_children(pid: u32) {
    let path = format!("/proc/{pid}/task/{pid}/children");
    while std::fs::read_to_string(&path).expect("it runs").is_empty() {
        std::thread::sleep(Duration::from_millis(2));
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, future).await.expect("it does not hang")
}

#[tokio::test(flavor = "current_thread")]
async fn nothing_leaves_a_cgroup_and_all_of_it_is_killed() {
    let Some(cgroups) = cgroups() else { return };
    let cgroup = make(&cgroups, "escape");
    let dir = enter(&cgroups, &cgroup);
    let script = "setsid sh -c 'sleep 1000 & sleep 1000' >/dev/null 2>&1 & exit 3";
    let child = command(&["sh", "-c", script]).start(Start::In(&dir)).expect("it starts");
    assert_eq!(wait(&child), Ended::Code(3));
    let holder = Holder::Cgroup(cgroup);
    assert!(!holder.ended(), "its leftovers hold");
    while holder.pids().len() < 3 {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let left: Vec<_> =
        holder.pids().into_iter().filter_map(|pid| Process::open(pid).ok()?).collect();
    within(holder.kill()).await;
    assert!(left.iter().all(Process::ended), "all of it is killed");
    assert!(holder.ended() && holder.pids().is_empty());
    let late = command(&["true"]).start(Start::In(&dir));
    assert!(late.is_err(), "nothing starts in a grant that is over");
}

/// The kernel takes the thread that has started it for whoever has.
#[test]
fn a_command_dies_with_whoever_has_started_it_whether_or_not_that_stands_still() {
    let Some(cgroups) = cgroups() else { return };
    let cgroup = make(&cgroups, "dies");
    let dir = enter(&cgroups, &cgroup);
    for stands_still in [true, false] {
        let start = || {
            let command = command_with(&["sleep", "1000"], stands_still, SigSet::empty());
            let child = command.start(Start::In(&dir)).expect("it starts");
            let name = format!("/proc/{}/comm", child.pid());
            while std::fs::read_to_string(&name).expect("it runs") != "sleep\n" {
                std::thread::sleep(Duration::from_millis(2));
            }
            child
        };
        let child = std::thread::scope(|scope| scope.spawn(start).join().expect("it starts"));
        assert_eq!(wait(&child), Ended::Signal(9), "standing still: {stands_still}");
    }
    while !cgroup.remove() {
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_command_begins_alike_whether_or_not_we_stand_still() {
    let Some(cgroups) = cgroups() else { return };
    let cgroup = make(&cgroups, "alike");
    let dir = enter(&cgroups, &cgroup);
    let told = tempfile::NamedTempFile::new().expect("writable");
    let usr1 = SigSet::from(nix::sys::signal::Signal::SIGUSR1);
    let mask = || Vec::from_iter(&SigSet::thread_get_mask().expect("known"));
    let before = mask();
    let started = |stands_still, words: &[&str]| {
        command_with(words, stands_still, usr1).start(Start::In(&dir)).expect("it starts")
    };
    for stands_still in [true, false] {
        let script = "read stat </proc/$$/stat; set -- $stat; echo $HOLDALL_TEST $1 $5 >$0; \
                      while read name value; do case $name in \
                      SigBlk:|SigIgn:) echo $value;; esac; done \
                      </proc/$$/status >>$0; cat /proc/$$/cgroup >>$0; exit 5";
        let path = told.path().to_str().expect("text");
        let child = started(stands_still, &["sh", "-c", script, path]);
        let pid = child.pid();
        assert_eq!(wait(&child), Ended::Code(5));
        let told = std::fs::read_to_string(told.path()).expect("written");
        let lines: Vec<_> = told.lines().collect();
        assert_eq!(lines[..2], [format!("here {pid} {pid}"), "0000000000000200".into()]);
        let ignored = u64::from_str_radix(lines[2], 16).expect("a mask");
        assert_eq!(ignored & 1 << (libc::SIGPIPE - 1), 0, "as everybody has it");
        assert!(lines.contains(&&*format!("0::/{}", cgroup.id().path)), "{told}");
        assert_eq!(wait(&started(stands_still, &["no-such-command"])), Ended::Code(127));
        assert_eq!(wait(&started(stands_still, &["/"])), Ended::Code(126));
        assert_eq!(wait(&started(stands_still, &["sh", "-c", "kill -TERM $$"])), Ended::Signal(15));
    }
    assert_eq!(mask(), before, "ours is as it was");
    while !cgroup.remove() {
        std::thread::sleep(Duration::from_millis(2));
    }
    for stands_still in [true, false] {
        let late = command_with(&["true"], stands_still, usr1).start(Start::In(&dir));
        assert!(late.is_err(), "nothing starts in what is gone");
    }
}

#[test]
fn empty_cgroups_are_swept_away_and_others_left_alone() {
    let Some(cgroups) = cgroups() else { return };
    let (empty, used) = (make(&cgroups, "sweep"), make(&cgroups, "sweep"));
    let other = make(&cgroups, "other");
    let dir = enter(&cgroups, &used);
    let mut child = command(&["sleep", "1000"]).start(Start::In(&dir)).expect("it starts");
    let name = format!("sweep-{}", std::process::id());
    assert_eq!(cgroups.sweep(&name, |path| path == empty.id().path), 0, "it may be used yet");
    assert_eq!(cgroups.sweep(&name, |_| false), 1);
    assert!(cgroups.again(empty.id()).expect("known").is_none());
    assert!(cgroups.again(used.id()).expect("known").is_some());
    assert!(cgroups.again(other.id()).expect("known").is_some());
    child.end();
    while !used.remove() {
        std::thread::sleep(Duration::from_millis(2));
    }
    assert!(other.remove());
}

#[tokio::test(flavor = "current_thread")]
async fn a_record_finds_the_same_holder_and_no_other() {
    let Some(cgroups) = cgroups() else { return };
    let cgroup = make(&cgroups, "again");
    let dir = enter(&cgroups, &cgroup);
    let mut child = command(&["sleep", "1000"]).start(Start::In(&dir)).expect("it starts");
    let holder = Holder::Cgroup(cgroup);
    let record = holder.record();
    let again = Holder::again(&record, Some(&cgroups)).expect("it runs");
    assert_eq!(again.pids(), [child.pid()]);
    let mut other = record.clone();
    other.boot.push('x');
    assert!(Holder::again(&other, Some(&cgroups)).is_none(), "another boot has ended all of it");
    let mut other = record.clone();
    other.boot.clear();
    assert!(
        Holder::again(&other, Some(&cgroups)).is_some(),
        "a boot that is not known is no other"
    );
    let mut other = record.clone();
    other.cgroup.as_mut().expect("one").inode += 1;
    assert!(Holder::again(&other, Some(&cgroups)).is_none(), "another cgroup of that name");
    let blind = Holder::again(&record, None).expect("what cannot be told is alive");
    assert!(!blind.ended());
    child.end();
    within(again.until_ended()).await;
    assert!(Holder::again(&record, Some(&cgroups)).is_none());
}

#[tokio::test(flavor = "current_thread")]
async fn a_group_is_gone_when_all_of_it_is() {
    let mut child = command(&["sh", "-c", "sleep 1000 & sleep 1000"]);
    child.dies_with_us = false;
    let mut child = child.start(Start::Gated).expect("it starts");
    let family = family(&child);
    child.let_go();
    until_it_has_children(child.pid());
    rustix::process::pidfd_send_signal(child.handle(), rustix::process::Signal::KILL)
        .expect("ours");
    assert_eq!(wait(&child), Ended::Signal(9));
    assert!(!family.ended(), "the leader has ended, the group has not");
    family.signal(rustix::process::Signal::KILL);
    within(family.until_ended()).await;
    assert!(family.ended());
}

#[tokio::test(flavor = "current_thread")]
async fn a_leader_whose_main_thread_has_ended_is_alive() {
    let program = "import threading, time, ctypes\n\
                   threading.Thread(target=time.sleep, args=(1000,)).start()\n\
                   ctypes.CDLL(None).pthread_exit(None)";
    let mut child = command(&["python3", "-c", program]).start(Start::Gated).expect("it starts");
    let family = family(&child);
    child.let_go();
    let state = || {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", child.pid())).expect("it is there");
        stat.rsplit_once(") ").expect("a state").1.chars().next()
    };
    while state() != Some('Z') {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    assert!(!family.ended(), "a thread of it runs");
    let record = Holder::Family(family).record();
    let again = Holder::again(&record, None).expect("a thread of it runs");
    assert!(again.pids().contains(&child.pid()));
    child.end();
    assert!(again.ended() && again.pids().is_empty(), "nothing of it is left");
}

#[test]
fn only_children_can_be_named() {
    let refused = |pid: u32| Family::child(pid, &peer()).expect_err("refused");
    for pid in [0, 1, std::process::id(), u32::MAX, 1 << 31] {
        assert!(matches!(refused(pid), NotAHolder::Stranger(..)), "{pid} is no child of ours");
    }
    let mut shell = Program::new("sh")
        .args(["-c", "sleep 1000 & echo $!; wait"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a shell");
    let mut line = String::new();
    BufReader::new(shell.stdout.take().expect("piped")).read_line(&mut line).expect("a number");
    let grandchild: u32 = line.trim().parse().expect("a number");
    assert!(matches!(refused(grandchild), NotAHolder::Stranger(..)), "a child of another");
    assert!(Family::child(shell.id(), &peer()).is_ok());
    let grandchild = Process::open(grandchild).expect("known").expect("it runs");
    grandchild.signal(rustix::process::Signal::KILL);
    shell.wait().expect("it ends");
    assert!(matches!(refused(shell.id()), NotAHolder::Stranger(..)), "it was waited for");
}

#[test]
fn a_gate_that_ends_lets_nothing_through() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("touched");
    let path = file.to_str().expect("text");
    let child = command(&["touch", path]).start(Start::Gated).expect("it starts");
    let handle = child.handle().try_clone_to_owned().expect("a copy");
    drop(child);
    let ended = rustix::process::waitid(
        rustix::process::WaitId::PidFd(handle.as_fd()),
        rustix::process::WaitIdOptions::EXITED,
    );
    assert_eq!(ended.expect("it ends").and_then(|status| status.exit_status()), Some(1));
    assert!(!file.exists());
}

fn wait(child: &Child) -> Ended {
    let ended = rustix::process::waitpid(
        rustix::process::Pid::from_raw(child.pid() as i32),
        rustix::process::WaitOptions::empty(),
    );
    let (_, status) = ended.expect("it ends").expect("it has ended");
    status
        .exit_status()
        .map_or_else(|| Ended::Signal(status.terminating_signal().expect("a signal")), Ended::Code)
}

#[test]
fn a_command_is_found_and_run_as_a_shell_does_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("script");
    std::fs::write(&script, "test \"$1$HOLDALL_TEST\" = xhere && exit 9\n").expect("writable");
    let run = |words: &[&str]| {
        let mut child = command(words).start(Start::Gated).expect("it starts");
        child.let_go();
        wait(&child)
    };
    let path = script.to_str().expect("text");
    assert_eq!(run(&[path, "x"]), Ended::Code(126), "it is not executable");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("ours");
    assert_eq!(run(&[path, "x"]), Ended::Code(9), "a script without an interpreter");
    assert_eq!(run(&["no-such-command"]), Ended::Code(127));
    assert_eq!(run(&["/"]), Ended::Code(126));
    assert_eq!(run(&["sh", "-c", "kill -TERM $$"]), Ended::Signal(15));
}

#[test]
fn a_descriptor_goes_over_a_socket() {
    let (here, there) = UnixStream::pair().expect("a pair");
    let (mut reads, writes) = std::io::pipe().expect("a pipe");
    assert_eq!(holdall_holders::send(&here, b"abc", writes.as_fd()).expect("sent"), 3);
    drop(writes);
    let (mut bytes, mut handle) = (Vec::with_capacity(8), None);
    assert_eq!(holdall_holders::receive(&there, &mut bytes, &mut handle).expect("received"), 3);
    assert_eq!(bytes, b"abc");
    let mut file = std::fs::File::from(handle.expect("it came"));
    file.write_all(b"through").expect("open");
    drop(file);
    let mut text = String::new();
    reads.read_to_string(&mut text).expect("readable");
    assert_eq!(text, "through");
}
