//! The program gives the commands of `holdall` for the protocol it defines.

use std::process::{Command, Output};

fn new_protocol(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_new-protocol")).args(args).output().expect("it runs")
}

/// What it prints when all is well.
fn prints(args: &[&str]) -> String {
    let Output { status, stdout, stderr } = new_protocol(args);
    let (out, err) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{args:?}: {status}\n{out}\n{err}");
    out.into_owned()
}

#[test]
fn everything_promised_holds() {
    for users in ["0+1/1+0", "0+1*/1+0*", "0:2+1/1/0*"] {
        let told = prints(&["check", "gate", "--pools", "2,1", "--users", users]);
        assert!(told.contains(", complete\n"), "{told}");
    }
    prints(&["check", "gate", "--pools", "1,1", "--users", "0+1/1+0", "--departures"]);
    prints(&["check", "gate", "--pools", "1,1", "--users", "0+1/1+0", "--crash", "0"]);
    prints(&["fuzz", "gate", "--runs", "20"]);
}

#[test]
fn without_the_gate_two_users_wait_for_each_other() {
    let scope = ["--pools", "1,1", "--users", "0+1/1+0"];
    let without = new_protocol(&[&["check", "gate", "--without", "gate"], &scope[..]].concat());
    let told = String::from_utf8_lossy(&without.stdout);
    assert_eq!(without.status.code(), Some(1), "{told}");
    assert!(told.contains("no-deadlock is violated:"), "{told}");
}

#[test]
fn questions_of_its_own_are_answered() {
    let scope = ["check", "gate", "--pools", "1,1", "--users", "0/1"];
    let told = prints(&scope);
    let answer = |told: &str, question: &str| {
        let line = told.lines().find(|line| line.trim().starts_with(question)).expect("answered");
        line.split_whitespace().next_back().expect("an answer").to_owned()
    };
    assert_eq!(answer(&told, "nobody queues for what is free"), "yes");
    assert_eq!(answer(&told, "two are in the room"), "never");
    assert_eq!(answer(&told, "two use what they have"), "yes");
    let without = prints(&[&scope[..], &["--without", "gate"]].concat());
    assert_eq!(answer(&without, "two are in the room"), "yes");
}

#[test]
fn strangers_wait_for_each_other() {
    let told = prints(&["check", "gate", "--pools", "1,1", "--users", "0!/0/1"]);
    let line = told.lines().find(|line| line.trim().starts_with("concurrency")).expect("decided");
    assert!(line.contains("not promised") && line.contains("violated"), "{told}");
}

#[test]
fn a_crash_in_the_room_is_felt_by_all() {
    let told = prints(&["locality", "gate", "--pools", "1,1", "--users", "0/0+1/1"]);
    assert!(told.contains("failure locality: 2\n"), "{told}");
}

#[test]
fn it_is_simulated_beside_others_and_played() {
    let told = prints(&["sim", "gate,ordered", "--ticks", "20000", "--users", "10"]);
    assert!(told.contains("gate") && told.contains("ordered"), "{told}");
    let told = prints(&["play", "gate", "--seconds", "0.5", "--clients", "4", "--pools", "4"]);
    assert!(told.contains("exclusion was never broken"), "{told}");
}

#[test]
fn a_name_that_is_nearly_right_is_set_right() {
    let Output { status, stderr, .. } =
        new_protocol(&["check", "gat", "--pools", "1", "--users", "0"]);
    let err = String::from_utf8_lossy(&stderr);
    assert_eq!(status.code(), Some(64), "{err}");
    assert!(err.contains("did you mean 'gate'?"), "{err}");
}
