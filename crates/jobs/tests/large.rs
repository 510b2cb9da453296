//! Jobs of many tasks: what is done for each does not grow with their number.

use std::fmt::Write;

use holdall_jobs::{Effect, Input, Limits, Machine, read};

/// Runs a job in which everything is granted and goes well, and tells how many steps it took and the
/// most that was asked for at a time.
fn run(text: &str) -> (usize, usize) {
    let mut machine = Machine::new(read(text, "large").expect("a job"), Limits::default());
    let mut effects = machine.start(0);
    let (mut steps, mut asked, mut most) = (0, 0_usize, 0);
    let mut inputs = std::collections::VecDeque::new();
    loop {
        for effect in effects.drain(..) {
            match effect {
                Effect::Ask(request, ask) => {
                    asked += 1;
                    inputs.push_back(Input::Granted(request, ask));
                }
                Effect::Start(task, attempt) => inputs.push_back(Input::Ended(task, attempt, None)),
                _ => {}
            }
        }
        most = most.max(asked);
        let Some(input) = inputs.pop_front() else { break };
        asked -= usize::from(matches!(input, Input::Granted(..)));
        steps += 1;
        effects = machine.step(steps as u64, input);
    }
    assert!(machine.is_over());
    let summary = machine.summary();
    assert_eq!(summary.succeeded, summary.tasks);
    (steps, most)
}

#[test]
fn ten_thousand_tasks_beside_each_other_and_one_after_another() {
    let values: Vec<String> = (0..10_000).map(|n| n.to_string()).collect();
    let wide = format!(
        "[task.a]\nrun='x'\n[task.b]\nafter=['a']\nrun='x'\nneeds=['n{{v}}']\nmatrix={{v=[{}]}}\n\
         [task.c]\nafter=['b']\nrun='x'",
        values.join(",")
    );
    let (steps, most) = run(&wide);
    assert_eq!(steps, 2 * 10_002);
    assert!(most <= Limits::default().ahead, "{most}");
    let mut chain = String::from("[task.t0]\nrun='x'\n");
    for n in 1..10_000 {
        writeln!(chain, "[task.t{n}]\nrun='x'\nafter=['t{}']", n - 1).expect("text");
    }
    assert_eq!(run(&chain), (2 * 10_000, 1));
}

#[test]
fn a_failure_ends_a_long_chain_at_once() {
    let mut chain = String::from("[task.t0]\nrun='x'\n");
    for n in 1..10_000 {
        writeln!(chain, "[task.t{n}]\nrun='x'\nafter=['t{}']", n - 1).expect("text");
    }
    let mut machine = Machine::new(read(&chain, "large").expect("a job"), Limits::default());
    let Some(Effect::Ask(request, ask)) = machine.start(0).pop() else {
        panic!("nothing is asked for")
    };
    let started = machine.step(1, Input::Granted(request, ask));
    let Some(Effect::Start(task, 1)) = started.last() else { panic!("nothing starts") };
    machine.step(2, Input::Ended(*task, 1, Some(holdall_jobs::Cause::Exit(1))));
    assert!(machine.is_over());
    assert_eq!(machine.summary().skipped, 9_999);
}
