//! `holdall explore` with its choices piped in.

use std::io::Write;
use std::process::{Command, Stdio};

fn explore(args: &[&str], choices: &str) -> (Option<i32>, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_holdall"))
        .arg("explore")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let written = child.stdin.take().expect("piped").write_all(choices.as_bytes());
    drop(written); // It may have refused to start.
    let out = child.wait_with_output().expect("it ends");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (out.status.code(), text(out.stdout), text(out.stderr))
}

const SCOPE: [&str; 5] = ["ordered", "--pools", "1", "--users", "0/0"];

#[test]
fn steps_are_chosen_and_taken_back() {
    let (code, at_once, _) = explore(&SCOPE, "");
    assert_eq!(code, Some(0), "the end of the input is the end");
    let choices = |text: &str| text.lines().filter(|line| line.contains("asks for")).count();
    assert_eq!(choices(&at_once), 2, "either may ask: {at_once}");
    let (code, there_and_back, _) = explore(&SCOPE, "1\nb\nb\n");
    assert_eq!(code, Some(0));
    assert_eq!(choices(&there_and_back), 2 + 1 + 1 + 2, "{there_and_back}");
    assert!(there_and_back.contains("this is the start"), "{there_and_back}");
}

#[test]
fn one_user_alone_is_followed_to_its_grant_and_the_end() {
    let alone = ["ordered", "--pools", "1", "--users", "0"];
    let (code, text, _) = explore(&alone, &format!("{}c\nq\n", "1\n".repeat(20)));
    assert_eq!(code, Some(0));
    assert!(text.contains("nothing can happen any more"), "{text}");
    assert!(text.contains("is none of these"), "there were fewer than 20 steps: {text}");
    let chart = text.split("is none of these").last().expect("something follows");
    assert!(chart.contains("asks") && chart.contains("[granted]"), "{chart}");
}

#[test]
fn nonsense_is_answered_and_not_repeated_raw() {
    let long = "9".repeat(1 << 20);
    let (code, text, err) = explore(&SCOPE, &format!("\u{1b}[2J\n{long}\nq\n"));
    assert_eq!((code, err.as_str()), (Some(0), ""));
    assert_eq!(text.matches("is none of these").count(), 2);
    assert!(text.contains(r"'\u{1b}[2J'") && text.len() < 2000, "{text}");
}

#[test]
fn bad_input_is_one_line_and_status_64() {
    let none = ["ordered", "--pools", "1", "--users", "0", "--threads", "0"];
    for args in [
        &["orderd", "--pools", "1", "--users", "0"][..],
        &["ordered", "--pools", "0", "--users", "0"],
        &none,
    ] {
        let (code, out, err) = explore(args, "1\n");
        assert_eq!((code, out.as_str(), err.lines().count()), (Some(64), "", 1), "{err}");
    }
}
