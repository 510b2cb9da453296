//! Jobs: work made of tasks, each run when everything it needs is granted.
//!
//! After Winkowski: an agent performs a job by indivisible tasks; a task has a plan that names what
//! it needs from which pools; the agent gets the resources, executes the task, releases them, and
//! goes on. Here a [`Plan`] is read from a file, and a [`Machine`] goes through it: it is told what
//! has happened and says what is to be done. Nothing here does anything itself, so the same code runs
//! real commands, is tried with random schedules, and can be simulated.
//!
//! What is asked for at once is called a *request* here as everywhere: that of a task, or that of a
//! group of tasks, which is held through all of them. Nobody waits for others while holding
//! something: a file in which somebody would is refused.

#![forbid(unsafe_code)]

mod file;
mod machine;
mod most;
mod peak;
mod plan;

pub use self::file::{Flaw, Problem, read};
pub use self::machine::{
    Cause, Effect, Force, Input, Limits, Machine, Millis, Outcome, Record, Stage, Summary,
};
pub use self::plan::{
    Command, Group, Plan, Request, RequestIndex, Requester, Task, TaskIndex, When,
};
