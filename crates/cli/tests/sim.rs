//! `holdall sim`: what it writes for others to read.

use std::process::{Command, Output};

use serde_json::Value;

fn sim(more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_holdall"))
        .args(["sim", "ordered,skeen", "--users", "10", "--resources", "5", "--ticks", "20000"])
        .args(["--seed", "7"])
        .args(more)
        .output()
        .expect("the command runs")
}

fn text(out: Output) -> String {
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).expect("UTF-8")
}

/// CSV says what JSON says, and both say with which settings.
#[test]
fn results_tell_their_settings() {
    let reports: Vec<Value> = text(sim(&["--json"]))
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let table = text(sim(&["--csv"]));
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split(',').collect()).collect();
    let column = |name: &str| rows[0].iter().position(|column| *column == name).expect("a column");
    assert_eq!((rows.len(), rows[0][0]), (3, "protocol"));
    for (row, report) in rows[1..].iter().zip(&reports) {
        assert_eq!(row.len(), rows[0].len());
        assert_eq!(report["settings"]["seed"], 7);
        for name in ["grants", "response.mean", "settings.seed", "settings.workload"] {
            let value = name.split('.').fold(report, |value, field| &value[field]);
            let value = value.as_str().map_or_else(|| value.to_string(), Into::into);
            assert_eq!(row[column(name)], value, "{name}");
        }
    }
}

/// The samples are all that the mean is made of; the picture has a line for each protocol.
#[test]
fn samples_and_a_picture_are_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str| dir.path().join(name).display().to_string();
    let (samples, svg) = (file("samples.csv"), file("sim.svg"));
    let reports = text(sim(&["--json", "--samples", &samples, "--svg", &svg]));
    let samples = std::fs::read_to_string(samples).expect("samples");
    assert_eq!(samples.lines().next(), Some("protocol,graph,asked,response"));
    for report in reports.lines() {
        let report: Value = serde_json::from_str(report).expect("JSON");
        let name = report["protocol"].as_str().expect("a name");
        let times: Vec<f64> = samples
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.rsplit(',').next()?.parse().ok())
            .collect();
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let told = report["response"]["mean"].as_f64().expect("a mean");
        assert!((mean - told).abs() < 1e-6, "{name}: {mean} and {told}");
    }
    let svg = std::fs::read_to_string(svg).expect("a picture");
    let document = roxmltree::Document::parse(&svg).expect("well-formed");
    for name in ["ordered", "skeen"] {
        assert!(document.descendants().any(|node| node.text() == Some(name)), "{name}");
    }
}

#[test]
fn what_cannot_be_written_is_told() {
    for option in ["--samples", "--svg"] {
        let out = sim(&[option, "/nonexistent/file"]);
        assert_eq!((out.status.code(), out.stdout.len()), (Some(74), 0), "before the work begins");
        assert!(String::from_utf8_lossy(&out.stderr).contains("/nonexistent/file"));
        let out = sim(&[option, "/dev/full", "--csv"]);
        assert_eq!(out.status.code(), Some(74));
        assert_eq!(String::from_utf8_lossy(&out.stdout).lines().count(), 3, "the table is there");
    }
    assert_eq!(sim(&["--csv", "--json"]).status.code(), Some(64));
}

#[test]
fn two_results_are_not_written_to_one_file() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("file").display().to_string();
    let out = sim(&["--samples", &file, "--svg", &file]);
    assert_eq!((out.status.code(), out.stdout.len()), (Some(64), 0));
    assert!(String::from_utf8_lossy(&out.stderr).contains("are one file"));
}

#[test]
fn all_is_all_that_can() {
    let run = |args: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_holdall")).arg("sim").args(args).output();
        out.expect("the command runs")
    };
    let few = ["--users", "6", "--resources", "4", "--ticks", "3000", "--json"];
    let out = run(&[&["all,skeen", "--units", "2"], &few[..]].concat());
    let (said, last) = (String::from_utf8_lossy(&out.stderr).into_owned(), text(out));
    let last = last.lines().last().expect("some can");
    assert!(last.contains(r#""protocol":"skeen""#), "{last}");
    assert!(said.contains("left out: ") && said.contains("takes pools of one unit only"), "{said}");
    let out = run(&[&["ordered", "--without", "manners"], &few[..]].concat());
    assert_eq!(out.status.code(), Some(64));
}
