//! Deadlines of the cell, and the clock on the wall.

use std::time::Duration;

use holdall_cell::Input;

use super::Service;

/// By how many milliseconds the wall may differ from what is kept of it.
const DRIFT: u64 = 1000;

impl Service {
    /// Wakes whoever looks after deadlines if there is an earlier one.
    pub(super) fn look_ahead(&mut self) {
        let next = self.cell().next_due();
        if next != self.deadline {
            self.deadline = next;
            self.changed.notify_one();
        }
    }

    /// Lets the cell look at its deadlines if one has come, and says when the next one does.
    pub(crate) fn look_at_deadlines(&mut self) -> Option<Duration> {
        if self.cell().next_due().is_some_and(|due| due <= self.clock.now()) {
            self.input(Input::Due);
        }
        self.deadline = self.cell().next_due();
        let now = self.clock.now();
        self.deadline.map(|due| Duration::from_millis(due.saturating_sub(now)))
    }

    /// Time goes on while the machine sleeps, and the clock on the wall may be set: wakes whoever looks
    /// after deadlines if one has come, and keeps what the wall says now.
    pub(crate) fn look_at_clock(&mut self) {
        if self.deadline.is_some_and(|deadline| deadline <= self.clock.now()) {
            self.changed.notify_one();
        }
        let ahead = self.clock.ahead();
        if ahead.abs_diff(self.books().clock().ahead) > DRIFT {
            self.input(Input::Clock { ahead });
        }
    }

    /// Whether the agent's files are still where other agents would look for them. Without them it cannot
    /// keep another from starting, and must not go on granting.
    pub(crate) fn look_at_files(&mut self) {
        if !self.data.in_place() {
            let path = self.data.dir().path().display().to_string();
            self.give_up(format!("{path} was removed or replaced under this agent"));
        } else if let Err(error) = self.host.look()
            && !error.passes()
        {
            self.give_up(error.to_string());
        }
    }
}
