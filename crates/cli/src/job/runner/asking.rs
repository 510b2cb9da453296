//! The processes that wait for requests, and then hold them.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use holdall_holders::set_mask;
use holdall_jobs::{Cause, Input, RequestIndex};
use holdall_wire::Need;
use rustix::process::{Pid, Signal, kill_process};

use super::units::Units;
use super::{Answers, Runner};
use crate::failure::{DENIED, LOST, NEVER, NOT_NOW, OVER_LIMIT, UNAVAILABLE};

/// How often it is tried to start a process that waits for a request.
const TRIES: u32 = 8;
/// The pause before a request is asked for a second time; each is twice as long as the one before.
const PAUSE: Duration = Duration::from_millis(250);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(16);
/// When it is said that a request is asked for again and again.
const SAID_AT: u32 = 4;

/// A request, asked for the so many-th time.
pub(super) type Asked = (RequestIndex, u32);

/// A request that is waited for, or held.
#[derive(Debug, Default)]
pub(super) struct Asking {
    /// The process that does so, but for a pause between two of them.
    pid: Option<Pid>,
    /// How often it was tried to start one.
    tries: u32,
    /// How often that did not work.
    failures: u32,
    held: Option<Held>,
}

/// A request that is held.
#[derive(Debug)]
pub(super) struct Held {
    /// Where its holder gets its orders. It goes when there is none.
    pub(super) orders: Answers,
    pub(super) units: Units,
}

impl Asking {
    /// Everything is granted; tells whether that is believed. A process that was started for another
    /// one before it may say so, too.
    pub(super) fn hold(
        &mut self,
        orders: Answers,
        variables: &BTreeMap<String, String>,
        needs: &[Need],
    ) -> bool {
        let expected = self.pid.is_some() && self.held.is_none();
        if expected {
            self.held = Some(Held { orders, units: Units::granted(variables, needs) });
        }
        expected
    }
}

/// The holder of a request, if it is held.
pub(super) fn holding(
    asking: &mut BTreeMap<Asked, Asking>,
    request: RequestIndex,
) -> Option<&mut Held> {
    let mut all = asking.range_mut((request, 0)..=(request, u32::MAX));
    all.find_map(|(_, asking)| asking.held.as_mut())
}

impl Runner<'_> {
    pub(super) fn ask(&mut self, asked: Asked) {
        let asking = self.asking.entry(asked).or_default();
        asking.tries += 1;
        match self.start_asking(asked) {
            Ok(pid) => {
                self.children.insert(pid.as_raw_nonzero().get(), asked);
                if let Some(asking) = self.asking.get_mut(&asked) {
                    asking.pid = Some(pid);
                }
            }
            Err(error) => self.failed(asked, format!("{error:#}")),
        }
    }

    fn start_asking(&self, (request, ask): Asked) -> anyhow::Result<Pid> {
        let mut command = self.waiting(request, ask)?;
        let log = File::create(self.store.waiting_log(&self.life, request.0, ask));
        let log = log.with_context(|| format!("cannot write in {}", self.store.dir.display()))?;
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
        set_mask(&mut command, self.mask);
        let child = command.spawn().context("cannot start a process that asks")?;
        Ok(Pid::from_child(&child))
    }

    /// The command that waits for a request and then holds it; what needs nothing does not wait.
    fn waiting(&self, request: RequestIndex, ask: u32) -> anyhow::Result<Command> {
        let (plan, program) = (self.machine.plan(), std::env::current_exe()?);
        let needs = &plan.requests[request.0].needs;
        let mut command = Command::new(&program);
        if !needs.is_empty() {
            command.args(["job", "ask", &std::process::id().to_string(), "--"]);
            command.args(["run", "--leftovers", "kill", "--name"]);
            command.arg(format!("{}/{}", self.store.id(), plan.name_of(request)));
            if let Some(socket) = &self.about.agent {
                command.arg("--agent").arg(socket);
            }
            command.args(needs.iter().map(ToString::to_string)).arg("--").arg(&program);
        }
        command.args(["job", "holder"]).arg(&self.store.dir).arg(&self.life);
        command.args([request.0.to_string(), ask.to_string()]);
        Ok(command)
    }

    pub(super) fn withdraw(&mut self, asked: Asked) {
        if let Some(Asking { pid: Some(pid), .. }) = self.asking.remove(&asked) {
            // It has not been waited for, so the number is its own.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// A process that waited or held has ended.
    pub(super) fn gone(&mut self, asked: Asked, status: ExitStatus) {
        let log = self.store.waiting_log(&self.life, asked.0.0, asked.1);
        let words = fs::read_to_string(&log).unwrap_or_default();
        let _ = fs::remove_file(&log);
        let Some(asking) = self.asking.get_mut(&asked) else { return };
        asking.pid = None;
        let last = words.lines().last().map_or_else(|| status.to_string(), str::to_owned);
        let last = last.strip_prefix("holdall: ").unwrap_or(&last).to_owned();
        if asking.held.is_some() {
            self.asking.remove(&asked);
            let name = self.machine.plan().name_of(asked.0);
            self.watcher.say(&format!("{name}: what it held is lost: {last}"));
            let over_limit = status.code() == Some(OVER_LIMIT.into());
            return self.lost(asked, if over_limit { Cause::Timeout } else { Cause::GrantLost });
        }
        let code = status.code().map(|code| u8::try_from(code).unwrap_or(u8::MAX));
        match code {
            Some(NEVER | DENIED | crate::USAGE) => {
                self.asking.remove(&asked);
                self.tell(Input::Refused(asked.0, asked.1, Cause::Never(last)));
            }
            // The agent cannot be reached or does not take more, or somebody has killed the process:
            // no verdict on the request.
            None | Some(UNAVAILABLE | NOT_NOW | LOST) => self.ask_later(asked, &last),
            Some(_) => self.failed(asked, last),
        }
    }

    fn ask_later(&mut self, asked: Asked, why: &str) {
        let tries = self.asking.get(&asked).map_or(1, |asking| asking.tries);
        if tries == SAID_AT {
            let name = self.machine.plan().name_of(asked.0);
            self.watcher.say(&format!("{name}: {why}; it is asked for again and again"));
        }
        let pause = PAUSE.saturating_mul(1 << (tries - 1).min(20)).min(LONGEST_PAUSE);
        self.again.insert((Instant::now() + pause, asked));
    }

    /// A request cannot be asked for.
    fn failed(&mut self, asked: Asked, why: String) {
        let Some(asking) = self.asking.get_mut(&asked) else { return };
        asking.failures += 1;
        if asking.failures < TRIES {
            return self.ask_later(asked, &why);
        }
        self.asking.remove(&asked);
        self.tell(Input::Refused(asked.0, asked.1, Cause::NotStarted(why)));
    }

    /// Asks again for what is due, unless it is not wanted any more.
    pub(super) fn ask_again(&mut self) {
        while let Some((at, asked)) = self.again.first().copied()
            && at <= Instant::now()
        {
            self.again.pop_first();
            if self.asking.get(&asked).is_some_and(|asking| asking.pid.is_none()) {
                self.ask(asked);
            }
        }
    }
}
