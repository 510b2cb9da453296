//! The load generator, for a moment.

use std::process::{Command, Output};

fn bench(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdall-bench"));
    command.args(args).output().expect("it starts")
}

#[test]
fn every_case_is_measured_on_both_and_nothing_is_left() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdall-bench"));
    let args = ["peers", "--seconds", "0.1", "--rounds", "2", "--json"];
    let done = command.args(args).env("TMPDIR", dir.path()).output().expect("it starts");
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{told}");
    let text = String::from_utf8(done.stdout).expect("text");
    let rows: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(rows.len(), 2 * 7);
    for row in &rows {
        assert_eq!(row["violations"], 0, "{row}");
        assert!(row["per_second"].as_f64().is_some_and(|rate| rate >= 0.0), "{row}");
        assert!(row["wide"] == 0 || row["case"]["name"] == "mixed", "{row}");
    }
    let left = std::fs::read_dir(dir.path()).expect("readable").count();
    assert_eq!(left, 0, "its directories are gone");
}

#[test]
fn many_clients_share_a_few_connections() {
    let args = ["--clients", "500", "--connections", "3", "--resources", "20", "--seconds", "0.2"];
    let done = bench(&args);
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(text.contains("500x20") && text.contains("yardstick"), "{text}");
}

#[test]
fn nonsense_is_refused() {
    for args in [
        &["nothing"][..],
        &["--on", "nobody"],
        &["--clients", "0"],
        &["--seconds", "-1"],
        &["--seconds", "NaN"],
        &["--sets", "hot:2"],
        &["--sets", "zipf"],
        &["--per-request", "65"],
        &["--rounds", "0"],
        &["--hold", "1e99"],
        &["scale", "--clients", "3"],
        &["--agent", "/nonexistent/socket"],
    ] {
        let done = bench(args);
        assert!(!done.status.success(), "{args:?}");
        assert!(!String::from_utf8_lossy(&done.stderr).contains("panicked"), "{args:?}");
    }
}

#[test]
fn whoever_interrupts_it_finds_nothing_left() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(env!("CARGO_BIN_EXE_holdall-bench"));
    let mut bench =
        command.args(["--seconds", "60"]).env("TMPDIR", dir.path()).spawn().expect("it");
    let count = || std::fs::read_dir(dir.path()).expect("readable").count();
    while count() == 0 && bench.try_wait().expect("ours").is_none() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let pid = rustix::process::Pid::from_child(&bench);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it lives");
    assert_eq!(bench.wait().expect("it ends").code(), Some(130));
    assert_eq!(count(), 0);
}
