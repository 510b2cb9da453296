//! Plays from the outside: real processes, killed for real.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdall_core::{About, Protocol};
use holdall_protocols::{Visitor, split_name};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// The most that anything here may take.
const LONG: Duration = Duration::from_secs(60);
const FEW: [&str; 6] = ["--nodes", "2", "--clients", "5", "--pools", "4"];
const FAULTS: [&str; 12] = [
    "--leave",
    "asking:0.1",
    "--leave",
    "waiting:0.1",
    "--leave",
    "using:0.1",
    "--stop",
    "asking:0.05",
    "--stop",
    "waiting:0.05",
    "--stop",
    "using:0.05",
];

/// What a protocol says of itself.
struct Says<'a>(&'a str);

impl Visitor for Says<'_> {
    type Out = About;

    fn visit<P: Protocol>(self) -> About {
        P::about(split_name(self.0).1).expect("listed")
    }
}

fn about(name: &str) -> About {
    holdall_protocols::with(name, Says(name)).expect("listed")
}

/// A play with a directory for its lock files, which is empty when it is over.
struct Play {
    child: Child,
    directory: TempDir,
}

impl Play {
    fn start<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let child = Command::new(env!("CARGO_BIN_EXE_holdall-play"))
            .args(arguments)
            .env("TMPDIR", directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        Self { child, directory }
    }

    /// Waits until a client has used something, and returns the processes: nodes first, then clients.
    fn begun(&self) -> Vec<u32> {
        until(|| lock_files(self.directory.path()).any(|text| !text.is_empty()));
        let mut children = children(self.child.id());
        children.sort_unstable();
        children
    }

    fn signal(&self, signal: Signal) {
        send(self.child.id(), signal);
    }

    fn output(self) -> Output {
        let output = self.child.wait_with_output().expect("it ends");
        let left = fs::read_dir(self.directory.path()).expect("the directory").count();
        assert_eq!(left, 0, "lock files are left behind");
        output
    }
}

fn send(process: u32, signal: Signal) {
    let pid = Pid::from_raw(process.try_into().expect("a pid")).expect("a pid");
    kill_process(pid, signal).expect("it is there");
}

fn until(mut happened: impl FnMut() -> bool) {
    let start = Instant::now();
    while !happened() {
        assert!(start.elapsed() < LONG, "nothing happens");
        sleep(Duration::from_millis(5));
    }
}

/// What is written in all lock files of all plays in a directory.
fn lock_files(directory: &Path) -> impl Iterator<Item = String> {
    let plays = fs::read_dir(directory).expect("the directory").flatten();
    let files = plays.flat_map(|play| fs::read_dir(play.path()).into_iter().flatten().flatten());
    files.filter_map(|file| fs::read_to_string(file.path()).ok())
}

/// State and parent of a process, if it is there.
fn stat(process: u32) -> Option<(String, u32)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some((fields.next()?.into(), fields.next()?.parse().ok()?))
}

fn children(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").expect("/proc").flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    ids.filter(|id| stat(*id).is_some_and(|(_, of)| of == parent)).collect()
}

fn is_gone(process: u32) -> bool {
    stat(process).is_none_or(|(state, _)| state == "Z" || state == "X")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().into()
}

/// Plays to the end, and returns what is printed as JSON.
fn outcomes<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Vec<Value> {
    let output = Play::start(arguments.into_iter().chain(["--json"])).output();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    let outcomes = printed.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    outcomes.inspect(|outcome: &Value| assert_eq!(outcome["schema"], 1)).collect()
}

/// Ends with this status, and says on one line what is wrong.
fn failure<'a>(status: i32, arguments: impl IntoIterator<Item = &'a str>) -> String {
    failed(status, &Play::start(arguments).output())
}

fn failed(status: i32, output: &Output) -> String {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(status), "{said}");
    assert!(output.stdout.is_empty() && said.lines().count() == 1, "{said}");
    said
}

#[test]
fn protocols_of_all_kinds() {
    let names =
        ["ordered", "coordinator:reserve=2", "chandy-misra", "datta", "rhee:choy-singh", "walk"];
    let all = outcomes(names.into_iter().chain(FEW).chain(["--seconds", "1"]));
    assert_eq!(all.len(), names.len());
    for (name, outcome) in names.into_iter().zip(&all) {
        assert_eq!(outcome["protocol"], name);
        assert!(outcome["measured"]["grants"].as_u64() > Some(10), "{outcome}");
        assert!(outcome["predicted"]["grants"].as_u64() > Some(10), "{outcome}");
        assert!(outcome["delay"].as_f64() > Some(0.0), "{outcome}");
    }
}

/// Not everybody begins at the same moment, and what is sent to whoever has yet to begin is not lost: a
/// philosopher would wait for its fork for ever.
#[test]
fn nobody_waits_from_beginning_to_end() {
    let table = ["--workload", "ring", "--clients", "30", "--pools", "30", "--think", "0"];
    let all =
        outcomes(["chandy-misra", "--service", "1", "--seconds", "3"].into_iter().chain(table));
    let longest = all[0]["measured"]["unfinished_longest"].as_f64();
    assert!(longest < Some(2000.0), "{all:?}");
}

#[test]
fn every_protocol_there_is() {
    let names: Vec<&str> = holdall_protocols::names().collect();
    let all = outcomes(["all", "--seconds", "0.5"].into_iter().chain(FEW));
    assert_eq!(all.len(), names.len());
    assert!(all.iter().all(|outcome| outcome["measured"]["grants"].as_u64() > Some(0)));
}

#[test]
fn clients_leave_and_die_where_the_protocol_allows_it() {
    let names = holdall_protocols::names().filter(|name| about(name).assumes.departures);
    let all = outcomes(names.chain(FEW).chain(FAULTS).chain(["--seconds", "0.5"]));
    let sum = |what: &str| all.iter().filter_map(|outcome| outcome[what].as_u64()).sum::<u64>();
    assert!(sum("left") > 0 && sum("stopped") > 0);
}

/// It complains, as a broken invariant, of a world that breaks the contract.
#[test]
fn the_probe_has_nothing_to_complain_of() {
    for units in ["1", "2"] {
        let arguments =
            ["probe", "--seconds", "2", "--units", units, "--think", "2", "--service", "1"];
        let all = outcomes(arguments.into_iter().chain(FEW).chain(FAULTS));
        let count = |what: &str| all[0][what].as_u64();
        assert!(count("left") > Some(0) && count("stopped") > Some(0), "{all:?}");
    }
}

#[test]
fn who_breaks_exclusion_is_caught_and_both_are_named() {
    let mutant = ["coordinator:skip", "--without", "room", "--seconds", "30"];
    let said = failure(1, mutant.into_iter().chain(FEW));
    assert!(said.contains("exclusion is broken"), "{said}");
    assert_eq!(said.matches("process").count(), 3, "{said}");
}

#[test]
fn a_signal_ends_it_with_what_was_seen() {
    for signal in [Signal::INT, Signal::TERM] {
        let play = Play::start(["ordered", "--seconds", "600", "--json"].into_iter().chain(FEW));
        let processes = play.begun();
        play.signal(signal);
        let output = play.output();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let outcome: Value = serde_json::from_str(&text(&output.stdout)).expect("JSON");
        assert!(outcome["early"] == true && outcome["measured"]["grants"].as_u64() > Some(0));
        assert!(processes.into_iter().all(is_gone));
    }
}

/// A terminal sends Ctrl-C to everybody, at whatever moment.
#[test]
fn a_signal_ends_it_before_it_begins_and_its_processes_do_not_hear_of_it() {
    let many = ["house", "--seconds", "600", "--clients", "40", "--json"];
    let play = Play::start(many);
    until(|| !children(play.child.id()).is_empty());
    let first = children(play.child.id())[0];
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        send(first, signal);
    }
    sleep(Duration::from_millis(20));
    assert!(!is_gone(first));
    play.signal(Signal::INT);
    let output = play.output();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[test]
fn a_signal_after_a_play_ends_the_plays_behind_it() {
    let busy = ["--think", "0.002", "--service", "0.001", "--seconds", "1", "--json"];
    let play = Play::start(["ordered", "skeen", "house"].into_iter().chain(busy).chain(FEW));
    let first = play.begun();
    until(|| first.iter().all(|process| is_gone(*process)));
    play.signal(Signal::TERM);
    let output = play.output();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout).lines().count(), 1, "{}", text(&output.stdout));
}

#[test]
fn each_outcome_is_printed_as_it_comes() {
    let names = ["ordered", "skeen", "house", "walk", "skr", "--seconds", "3", "--json"];
    let mut play = Play::start(names.into_iter().chain(FEW));
    let mut out = BufReader::new(play.child.stdout.take().expect("a pipe"));
    let mut lines = String::new();
    out.read_line(&mut lines).expect("a line");
    play.signal(Signal::INT);
    out.read_to_string(&mut lines).expect("the rest");
    assert!(play.output().status.success());
    assert!(lines.lines().count() < 5, "{lines}");
}

#[test]
fn nothing_more_is_played_when_nobody_reads() {
    let mut play = Play::start(["ordered", "skeen", "--seconds", "1"].into_iter().chain(FEW));
    drop(play.child.stdout.take());
    let first = play.begun();
    let mut others = Vec::new();
    while play.child.try_wait().expect("a child").is_none() {
        others.extend(children(play.child.id()).into_iter().filter(|id| !first.contains(id)));
        sleep(Duration::from_millis(2));
    }
    assert!(play.output().status.success() && others.is_empty());
}

/// Also one that was stopped, and cannot see that it has no parent any more.
#[test]
fn nobody_outlives_a_killed_parent() {
    let mut play = Play::start(["skeen", "--seconds", "600"].into_iter().chain(FEW));
    let processes = play.begun();
    assert_eq!(processes.len(), 7);
    send(processes[3], Signal::STOP);
    play.child.kill().expect("it is there");
    play.child.wait().expect("it ends");
    until(|| processes.iter().all(|process| is_gone(*process)));
}

#[test]
fn a_killed_client_is_replaced_where_clients_may_stop() {
    let arguments = ["house", "--seconds", "2", "--json", "--leave", "waiting:0.2"];
    let play = Play::start(arguments.into_iter().chain(FEW));
    let processes = play.begun();
    for client in &processes[2..5] {
        send(*client, Signal::KILL);
    }
    let output = play.output();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let outcome: Value = serde_json::from_str(&text(&output.stdout)).expect("JSON");
    assert_eq!((&outcome["stopped"], &outcome["processes"]), (&3.into(), &7.into()));
}

#[test]
fn whoever_must_not_die_and_does_is_named() {
    for (protocol, victim, named) in [("choy-singh", 1, "client 1"), ("house", 1, "node 1")] {
        let play = Play::start([protocol, "--seconds", "600"].into_iter().chain(FEW));
        let processes = play.begun();
        send(processes[victim], Signal::KILL);
        let said = failed(1, &play.output());
        assert!(said.contains(&format!("{named} (process {})", processes[victim])), "{said}");
        assert!(processes.into_iter().all(is_gone));
    }
}

/// Whoever is killed while others are still started was not killed by the protocol's leave.
#[test]
fn nobody_may_die_before_it_begins() {
    let play = Play::start(["house", "--seconds", "600", "--clients", "60", "--nodes", "1"]);
    let mut processes = Vec::new();
    until(|| {
        processes = children(play.child.id());
        processes.len() > 3
    });
    let last = processes.iter().max().expect("some");
    send(*last, Signal::KILL);
    let said = failed(1, &play.output());
    assert!(said.contains("it was killed before the play began"), "{said}");
}

#[test]
fn nobody_complains_of_a_parent_that_was_killed() {
    for _ in 0..5 {
        let mut play = Play::start(["ordered", "--seconds", "600"]);
        until(|| !children(play.child.id()).is_empty());
        play.child.kill().expect("it is there");
        let output = play.child.wait_with_output().expect("it ends");
        assert_eq!(text(&output.stderr), "");
    }
}

#[test]
fn all_is_all_that_can() {
    let arguments = ["all", "skeen", "--stop", "using:0.5", "--seconds", "0.1", "--json"];
    let output = Play::start(arguments.into_iter().chain(FEW)).output();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let (said, printed) = (text(&output.stderr), text(&output.stdout));
    let can = holdall_protocols::names().filter(|name| about(name).assumes.departures);
    assert_eq!(printed.lines().count(), can.count());
    assert!(printed.lines().last().is_some_and(|line| line.contains("skeen")), "{printed}");
    assert!(said.starts_with("left out: ") && said.contains("choy-singh"), "{said}");
    let nobody = Play::start(["all", "--without", "manners"]).output();
    assert_eq!(nobody.status.code(), Some(64));
    assert!(text(&nobody.stderr).ends_with("has no such rule\nno protocol is left to be played"));
}

#[test]
fn what_was_played_before_a_failure_is_printed() {
    let names = ["ordered", "choy-singh", "--seconds", "2", "--json"];
    let play = Play::start(names.into_iter().chain(FEW));
    let (first, mut second) = (play.begun(), Vec::new());
    until(|| {
        second = children(play.child.id());
        !second.is_empty() && second.iter().all(|process| !first.contains(process))
    });
    send(second[0], Signal::KILL);
    let output = play.output();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let outcome: Value = serde_json::from_str(&text(&output.stdout)).expect("one line of JSON");
    assert_eq!(outcome["protocol"], "ordered");
}

#[test]
fn what_makes_no_sense_is_refused() {
    let refused = |arguments: &[&str]| failure(64, arguments.iter().copied());
    assert!(refused(&["orderd"]).contains("no protocol 'orderd'"));
    assert!(refused(&["ordered", "--clients", "0"]).contains("at least 1"));
    assert!(refused(&["ordered", "--nodes", "21"]).contains("21 nodes for 20 pools"));
    assert!(refused(&["ordered", "--nodes", "0"]).contains("at least 1"));
    assert!(refused(&["ordered", "--pools", "0"]).contains("pools is 0"));
    assert!(refused(&["ordered", "--clients", "99999999"]).contains("clients is 99999999"));
    assert!(refused(&["ordered", "--units", "100000"]).contains("at most 100000 units"));
    assert!(refused(&["ordered", "--seconds", "0"]).contains("seconds"));
    assert!(refused(&["ordered", "--clients", "16000000"]).contains("open files"));
    assert!(refused(&["ordered", "--per-request", "21"]).contains("at most 20"));
    assert!(refused(&["ordered", "--without", "manners"]).contains("no rule 'manners'"));
    assert!(refused(&["choy-singh", "--stop", "using:0.1"]).contains("nobody leaves"));
    assert!(refused(&["choy-singh", "--units", "2"]).contains("one unit"));
}

#[test]
fn the_mark_of_a_process_alone_makes_none() {
    let output = Command::new(env!("CARGO_BIN_EXE_holdall-play"))
        .args(["ordered"])
        .env("HOLDALL_PLAY", "1")
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    assert!(failed(64, &output).contains("no process of a play"));
}
