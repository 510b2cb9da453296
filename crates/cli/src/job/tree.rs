//! A job as a tree of its tasks, for people.

use std::fmt::Write;

use super::view::{Line, State, View, span};
use crate::show::clean;

/// The tasks, each under the last in the file of those that it comes after.
pub(super) fn tree(view: &View) -> String {
    let mut below = vec![Vec::new(); view.tasks.len()];
    let mut roots = Vec::new();
    for (at, task) in view.plan.tasks.iter().enumerate() {
        match task.after.last() {
            Some(last) => below[last.0].push(at),
            None => roots.push(at),
        }
    }
    let mut text = format!("{} ({})\n", view.id, view.state);
    let mut open: Vec<(usize, usize)> = roots.into_iter().rev().map(|root| (root, 1)).collect();
    while let Some((at, depth)) = open.pop() {
        // Writing to a text does not fail.
        let _ = writeln!(text, "{}{}", "  ".repeat(depth.min(20)), told(&view.tasks[at]));
        open.extend(below[at].iter().rev().map(|next| (*next, depth + 1)));
    }
    text.pop();
    text
}

fn told(line: &Line) -> String {
    let mut text = format!("{}: {}", clean(&line.task), line.state.word());
    if line.attempts > 0 && line.state != State::Waiting {
        let _ = write!(text, " after {}", span(line.ran_ms));
    }
    if line.waited_ms >= 1000 {
        let _ = write!(text, ", waited {}", span(line.waited_ms));
    }
    if line.attempts > 1 {
        let _ = write!(text, ", run {} times", line.attempts);
    }
    if let Some(cause) = &line.cause {
        let _ = write!(text, " ({})", clean(cause));
    }
    if let (State::Failed, Some(log)) = (line.state, &line.log) {
        let _ = write!(text, ", log {}", log.display());
    }
    text
}
