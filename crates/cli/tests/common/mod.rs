//! Runs `holdall check` and its like for a test.

use std::process::Command;

use serde_json::Value;

/// Runs `holdall check`; returns its exit status and the JSON objects it printed.
pub(crate) fn check(args: &[&str]) -> (i32, Vec<Value>) {
    json("check", args)
}

/// The same for any command that prints JSON objects, one a line.
pub(crate) fn json(command: &str, args: &[&str]) -> (i32, Vec<Value>) {
    let out = Command::new(env!("CARGO_BIN_EXE_holdall"))
        .arg(command)
        .args(args)
        .arg("--json")
        .output()
        .expect("the command runs");
    let lines = String::from_utf8(out.stdout).expect("JSON is UTF-8");
    let objects = lines.lines().map(|line| serde_json::from_str(line).expect("one object a line"));
    (out.status.code().expect("it ended by itself"), objects.collect())
}

/// The names of the violated properties, promised or not.
pub(crate) fn violated(report: &Value, promised: bool) -> Vec<(String, Option<u64>)> {
    let properties = report["properties"].as_array().expect("a list");
    properties
        .iter()
        .filter(|p| p["verdict"] == "violated" && p["promised"] == promised)
        .map(|p| (p["name"].as_str().expect("a name").into(), p["user"].as_u64()))
        .collect()
}
