//! Jobs of many tasks: what is done for each does not grow with their number.

use std::fmt::Write;

use holdall_jobs::{Effect, Input, Limits, Machine, read};

/// Runs a job in which everything is granted and goes well, and tells how much the machine said in all and
/// the most that was asked for at a time.
fn run(text: &str) -> (usize, usize) {
    let mut machine = Machine::new(read(text, "large").expect("a job"), Limits::default());
    let mut effects = machine.start(0);
    let (mut steps, mut said, mut asked, mut most) = (0, 0, 0_usize, 0);
    let mut inputs = std::collections::VecDeque::new();
    loop {
        said += effects.len();
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
    (said, most)
}

/// So many tasks beside each other, one before and one after them.
fn wide(tasks: usize) -> String {
    let values: Vec<String> = (0..tasks).map(|n| n.to_string()).collect();
    format!(
        "[task.a]\nrun='x'\n[task.b]\nafter=['a']\nrun='x'\nneeds=['n{{v}}']\nmatrix={{v=[{}]}}\n\
         [task.c]\nafter=['b']\nrun='x'",
        values.join(",")
    )
}

/// So many tasks one after another.
fn chain(tasks: usize) -> String {
    let mut chain = String::from("[task.t0]\nrun='x'\n");
    for n in 1..tasks {
        writeln!(chain, "[task.t{n}]\nrun='x'\nafter=['t{}']", n - 1).expect("text");
    }
    chain
}

#[test]
fn what_is_done_for_each_of_ten_thousand_tasks_is_what_is_done_for_each_of_a_hundred() {
    let (of_many, most) = run(&wide(9_998));
    assert!(most <= Limits::default().ahead, "{most}");
    assert_eq!(of_many, 100 * run(&wide(98)).0);
    let (of_many, most) = run(&chain(10_000));
    assert_eq!((of_many, most), (100 * run(&chain(100)).0, 1));
}

#[test]
fn a_failure_ends_a_long_chain_at_once() {
    let mut machine =
        Machine::new(read(&chain(10_000), "large").expect("a job"), Limits::default());
    let Some(Effect::Ask(request, ask)) = machine.start(0).pop() else {
        panic!("nothing is asked for")
    };
    let started = machine.step(1, Input::Granted(request, ask));
    let Some(Effect::Start(task, 1)) = started.last() else { panic!("nothing starts") };
    machine.step(2, Input::Ended(*task, 1, Some(holdall_jobs::Cause::Exit(1))));
    assert!(machine.is_over());
    assert_eq!(machine.summary().skipped, 9_999);
}
