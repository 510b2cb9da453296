//! What is told of a job while it runs here: on a terminal a live tree, elsewhere a line for each event.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use holdall_jobs::{Machine, Outcome, Record, Stage, TaskIndex};
use indicatif::{ProgressBar, ProgressStyle};

use super::runner::Watcher;
use super::view::{span, why};
use crate::show::{clean, shorten};

/// How often the tree is drawn again.
const EVERY: Duration = Duration::from_millis(500);
/// The shortest time between two drawings.
const PAUSE: Duration = Duration::from_millis(50);

/// A line for each event.
#[derive(Default)]
pub(super) struct Lines {
    done: usize,
}

impl Lines {
    /// What is said of a record, if anything.
    fn told(&mut self, machine: &Machine, record: &Record) -> Option<String> {
        let name = |task: &TaskIndex| clean(&machine.plan().task(*task).name);
        let text = match record {
            Record::Started { task, attempt: 1, waited, .. } if *waited >= 1000 => {
                format!("{} starts, after {} of waiting", name(task), span(*waited))
            }
            Record::Started { task, attempt: 1, .. } => format!("{} starts", name(task)),
            Record::Started { task, attempt, .. } => {
                format!("{} starts again, attempt {attempt}", name(task))
            }
            Record::Attempted { task, cause: Some(cause), .. } => {
                format!("{} has failed: {}", name(task), clean(&why(cause)))
            }
            Record::Ended { task, outcome, .. } => {
                self.done += 1;
                match outcome {
                    Outcome::Succeeded => format!("{} has succeeded", name(task)),
                    Outcome::Skipped => format!("{} is skipped", name(task)),
                    // One that ran was told of above.
                    Outcome::Failed(_) if machine.attempts(*task) > 0 => return None,
                    Outcome::Failed(cause) => {
                        format!("{} has failed: {}", name(task), clean(&why(cause)))
                    }
                }
            }
            _ => return None,
        };
        Some(format!("[{}/{}] {text}", self.done, machine.plan().tasks.len()))
    }
}

impl Watcher for Lines {
    fn noted(&mut self, machine: &Machine, record: &Record, _: u64) {
        if let Some(line) = self.told(machine, record) {
            crate::say(line);
        }
    }
}

/// A tree that is drawn again and again.
pub(super) struct Tree {
    bar: ProgressBar,
    lines: Lines,
    /// When tasks that run have started.
    since: BTreeMap<TaskIndex, u64>,
    drawn: Instant,
}

impl Tree {
    /// If standard error is a terminal that can draw.
    pub(super) fn on_terminal() -> Option<Self> {
        let can_draw = std::env::var("TERM").is_ok_and(|term| !term.is_empty() && term != "dumb");
        let terminal = can_draw && rustix::termios::isatty(rustix::stdio::stderr());
        let style = ProgressStyle::with_template("{msg}").ok()?;
        terminal.then(|| Self {
            bar: ProgressBar::new_spinner().with_style(style),
            lines: Lines::default(),
            since: BTreeMap::new(),
            drawn: Instant::now(),
        })
    }

    fn draw(&self, machine: &Machine, now: u64) -> String {
        let size = rustix::termios::tcgetwinsize(rustix::stdio::stderr());
        let (rows, columns) = size.map_or((24, 80), |size| (size.ws_row, size.ws_col));
        let (rows, columns) = (usize::from(rows).max(4), usize::from(columns).max(20));
        let plan = machine.plan();
        let mut all: Vec<(u8, TaskIndex)> = (0..plan.tasks.len())
            .map(|at| (urgency(machine, TaskIndex(at)), TaskIndex(at)))
            .collect();
        if all.len() > rows - 2 {
            // What there is no room for is what will have to wait, and what went well.
            all.sort();
            all.truncate(rows - 2);
            all.sort_by_key(|(_, task)| *task);
        }
        let mut lines = vec![format!(
            "{}: {} of {} tasks done, {} running",
            plan.name,
            self.lines.done,
            plan.tasks.len(),
            self.since.len()
        )];
        for (_, task) in all {
            let depth = plan.tasks[0].depth.max(plan.task(task).depth) - plan.task(task).depth;
            let line = format!("{}{}", "  ".repeat(depth.min(10)), self.line(machine, task, now));
            lines.push(shorten(&line, columns - 1));
        }
        lines.join("\n")
    }

    fn line(&self, machine: &Machine, task: TaskIndex, now: u64) -> String {
        let own = machine.plan().task(task);
        let what = match machine.stage(task) {
            Stage::Waiting => "waits for others".into(),
            Stage::Ready => match &machine.plan().requests[own.request.0].needs {
                needs if machine.waits(own.request) && !needs.is_empty() => {
                    format!("waits for {}", crate::show::needs(needs))
                }
                _ => "ready".into(),
            },
            Stage::Pausing => "pauses before it is run again".into(),
            Stage::Running => {
                let since = self.since.get(&task).copied().unwrap_or(now);
                format!("runs, {}", span(now.saturating_sub(since)))
            }
            Stage::Stopping(cause) => format!("is stopped ({})", why(cause)),
            Stage::Ended(Outcome::Succeeded) => "succeeded".into(),
            Stage::Ended(Outcome::Skipped) => "skipped".into(),
            Stage::Ended(Outcome::Failed(cause)) => format!("failed ({})", why(cause)),
        };
        format!("{}: {what}", own.name)
    }
}

/// What is shown rather than others.
fn urgency(machine: &Machine, task: TaskIndex) -> u8 {
    match machine.stage(task) {
        Stage::Running | Stage::Stopping(_) => 0,
        Stage::Ended(Outcome::Failed(_)) => 1,
        Stage::Pausing => 2,
        Stage::Ready => 3,
        Stage::Waiting => 4,
        Stage::Ended(_) => 5,
    }
}

impl Watcher for Tree {
    fn noted(&mut self, machine: &Machine, record: &Record, now: u64) {
        // Counts, too.
        let told = self.lines.told(machine, record);
        match record {
            Record::Started { task, .. } => {
                self.since.insert(*task, now);
            }
            Record::Attempted { task, cause, .. } => {
                self.since.remove(task);
                if let (Some(_), Some(line)) = (cause, told) {
                    self.say(&line);
                }
            }
            _ => {}
        }
    }

    fn look(&mut self, machine: &Machine, now: u64) {
        if machine.is_over() {
            return self.bar.finish_and_clear();
        }
        if self.drawn.elapsed() >= PAUSE {
            self.drawn = Instant::now();
            self.bar.set_message(self.draw(machine, now));
            self.bar.tick();
        }
    }

    fn say(&mut self, text: &str) {
        self.bar.suspend(|| crate::say(text));
    }

    fn every(&self) -> Option<Duration> {
        Some(EVERY)
    }
}
