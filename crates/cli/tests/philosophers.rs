//! Protocols among known neighbours, at random where a scope is too large to explore.

use std::process::Command;

use serde_json::Value;

/// Scopes too large to explore are played through at random: few users and pools, hardly any
/// thinking, and messages that overtake each other by far.
#[test]
fn random_schedules_of_six_users_are_sound() {
    let protocols = "awerbuch-saks,chandy-misra,chandy-misra-drinking,choy-singh,ordered:coloured";
    let workload = ["--users", "6", "--resources", "5", "--of", "3", "--think", "1"];
    let disorder = ["--service", "10", "--spikes", "0.2:10", "--graphs", "200", "--ticks", "30000"];
    let out = Command::new(env!("CARGO_BIN_EXE_holdall"))
        .args(["sim", protocols, "--json"])
        .args(workload)
        .args(disorder)
        .output()
        .expect("the command runs");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let reports = String::from_utf8(out.stdout).expect("UTF-8");
    assert_eq!(reports.lines().count(), 5);
    for report in reports.lines() {
        let report: Value = serde_json::from_str(report).expect("JSON");
        let [granted, longest] = ["grants", "unfinished_longest"].map(|name| report[name].as_u64());
        assert_eq!(report["violations"], 0, "{report}");
        assert!(granted > Some(5_000) && longest < Some(15_000), "nobody is stuck: {report}");
    }
}
