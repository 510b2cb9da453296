//! What follows from what has happened.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use super::inside::InUse;
use super::{
    Alarm, Asked, Cause, Counts, Effect, Force, Input, LONGEST_PAUSE, Machine, Millis, Outcome,
    Place, Record, Stage,
};
use crate::plan::{RequestIndex, TaskIndex, When};

impl Machine {
    /// Begins: says what is to be done first. A machine that was made of records has begun.
    pub fn start(&mut self, now: Millis) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.begin(now, &mut effects);
        effects
    }

    /// Takes what has happened, and says what is to be done.
    pub fn step(&mut self, now: Millis, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        let out = &mut effects;
        match input {
            Input::Granted(request, ask) => self.granted(request, ask, now, out),
            Input::Refused(request, ask, cause) => self.refused(request, ask, &cause, now, out),
            Input::Lost(request, ask, cause) => self.lost(request, ask, &cause, out),
            Input::Ended(task, attempt, cause) => self.ended(task, attempt, cause, now, out),
            Input::Cancel(Some(task)) => self.cancel(task, now, out),
            Input::Cancel(None) => self.cancel_all(now, out),
            Input::Retry(task) => self.retry(task, now, out),
            Input::Tick => {}
        }
        self.ring(now, out);
        self.ask(now, out);
        effects
    }

    /// Counts what is missing, and concludes what follows from what has ended already.
    pub(super) fn begin(&mut self, now: Millis, out: &mut Vec<Effect>) {
        self.count();
        let all = (0..self.tasks.len()).map(TaskIndex);
        let waiting: Vec<TaskIndex> =
            all.filter(|task| *self.stage(*task) == Stage::Waiting).collect();
        if self.cancelled {
            for task in waiting {
                self.conclude(task, Outcome::Failed(Cause::Cancelled), now, out);
            }
            return;
        }
        if self.failed {
            self.skip_the_rest(now, out);
        }
        for task in waiting {
            if *self.stage(task) == Stage::Waiting && self.tasks[task.0].missing == 0 {
                self.decide(task, now, out);
            }
        }
        self.ask(now, out);
    }

    fn count(&mut self) {
        let has_ended =
            |machine: &Self, task: TaskIndex| matches!(machine.stage(task), Stage::Ended(_));
        (self.left, self.waiting, self.held) = (0, Counts::default(), 0);
        self.ready.clear();
        self.alarms.clear();
        for request in &mut self.requests {
            (request.missing, request.left, request.state) = (0, 0, Asked::No);
            request.ready.clear();
        }
        for at in 0..self.tasks.len() {
            let task = TaskIndex(at);
            let before = self.plan.tasks[at].after.clone();
            let missing: Vec<TaskIndex> =
                before.into_iter().filter(|before| !has_ended(self, *before)).collect();
            let request = self.plan.tasks[at].request;
            let outside =
                missing.iter().filter(|before| self.plan.task(**before).request != request);
            let outside = outside.count();
            self.tasks[at].missing = missing.len();
            self.requests[request.0].missing += outside;
            if !has_ended(self, task) {
                self.left += 1;
                self.requests[request.0].left += 1;
            }
        }
    }

    /// Asks for as much as may be asked for at a time.
    fn ask(&mut self, now: Millis, out: &mut Vec<Effect>) {
        while self.waiting.all() + self.held < self.limits.jobs {
            let Some(place) = self.next_to_ask() else { return };
            self.ready.remove(&place);
            let (needs_something, _, request) = place;
            *self.waiting.of(needs_something) += 1;
            let asking = &mut self.requests[request.0];
            asking.asks += 1;
            (asking.state, asking.since) = (Asked::Waiting, now);
            let ask = asking.asks;
            if let Some(wait) = self.plan.wait_of(request) {
                self.alarms.insert((later(now, wait), Alarm::Wait(request, ask)));
            }
            out.push(Effect::Ask(request, ask));
        }
    }

    /// The request that is asked for next: the one with most behind it. What needs nothing keeps nobody
    /// waiting, and waits for nobody.
    fn next_to_ask(&self) -> Option<Place> {
        let first_needy = (true, Reverse(usize::MAX), RequestIndex(0));
        let free = self.ready.range(..first_needy).next();
        let needy = self.ready.range(first_needy..).next();
        let needy = needy.filter(|_| self.waiting.needy < self.limits.ahead);
        free.into_iter().chain(needy).min_by_key(|(_, depth, request)| (*depth, *request)).copied()
    }

    /// A request does not wait any more.
    fn stop_waiting(&mut self, request: RequestIndex, state: Asked) {
        self.requests[request.0].state = state;
        *self.waiting.of(!self.plan.requests[request.0].needs.is_empty()) -= 1;
    }

    fn granted(&mut self, request: RequestIndex, ask: u32, now: Millis, out: &mut Vec<Effect>) {
        let asking = &mut self.requests[request.0];
        if asking.state != Asked::Waiting || asking.asks != ask {
            // It was not wanted any more, but that came too late.
            out.push(Effect::Release(request, ask));
            return;
        }
        asking.in_use = InUse::new(&self.plan.requests[request.0].needs);
        asking.waited = now.saturating_sub(asking.since);
        self.stop_waiting(request, Asked::Held);
        self.held += 1;
        self.run_inside(request, now, out);
    }

    /// Runs what can be run of what is granted.
    pub(super) fn run_inside(&mut self, request: RequestIndex, now: Millis, out: &mut Vec<Effect>) {
        let mut passed = BTreeSet::new();
        loop {
            let asking = &mut self.requests[request.0];
            if asking.state != Asked::Held || asking.running >= self.limits.jobs {
                break;
            }
            let Some(first) = asking.ready.pop_first() else { break };
            let task = first.1;
            let needs = &self.plan.tasks[task.0].needs;
            if !asking.in_use.has_room(needs) {
                passed.insert(first);
                continue;
            }
            asking.in_use.take(needs);
            asking.running += 1;
            let waited = asking.waited;
            self.run(task, waited, now, out);
        }
        self.requests[request.0].ready.extend(passed);
    }

    fn run(&mut self, task: TaskIndex, waited: Millis, now: Millis, out: &mut Vec<Effect>) {
        let progress = &mut self.tasks[task.0];
        progress.stage = Stage::Running;
        progress.attempts += 1;
        let attempt = progress.attempts;
        if let Some(timeout) = self.plan.tasks[task.0].timeout {
            self.alarms.insert((later(now, timeout), Alarm::Timeout(task, attempt)));
        }
        out.push(Effect::Record(Record::Started { task, attempt, at: now, waited }));
        out.push(Effect::Start(task, attempt));
    }

    pub(super) fn refused(
        &mut self,
        request: RequestIndex,
        ask: u32,
        cause: &Cause,
        now: Millis,
        out: &mut Vec<Effect>,
    ) {
        let asking = &self.requests[request.0];
        if asking.state != Asked::Waiting || asking.asks != ask {
            return;
        }
        self.stop_waiting(request, Asked::No);
        self.end_all(request, cause, now, out);
    }

    /// What runs is killed; what has not begun is asked for anew.
    fn lost(&mut self, request: RequestIndex, ask: u32, cause: &Cause, out: &mut Vec<Effect>) {
        let asking = &mut self.requests[request.0];
        if asking.state != Asked::Held || asking.asks != ask {
            return;
        }
        asking.state = Asked::Lost;
        for task in self.plan.tasks_of(request).to_vec() {
            match self.stage(task) {
                Stage::Running => self.tasks[task.0].stage = Stage::Stopping(cause.clone()),
                // It was to end for another reason, which stays.
                Stage::Stopping(_) => {}
                _ => continue,
            }
            out.push(Effect::Stop(task, Force::Kill));
        }
        self.give_back_if_done(request, out);
    }

    /// Nothing of a request has begun, and nothing of it will.
    fn end_all(
        &mut self,
        request: RequestIndex,
        cause: &Cause,
        now: Millis,
        out: &mut Vec<Effect>,
    ) {
        for task in self.plan.tasks_of(request).to_vec() {
            self.conclude(task, Outcome::Failed(cause.clone()), now, out);
        }
    }

    fn ended(
        &mut self,
        task: TaskIndex,
        attempt: u32,
        cause: Option<Cause>,
        now: Millis,
        out: &mut Vec<Effect>,
    ) {
        if self.tasks[task.0].attempts != attempt {
            return;
        }
        let cause = match self.stage(task) {
            Stage::Running => cause,
            // It had ended by itself before what it held was lost.
            Stage::Stopping(Cause::GrantLost | Cause::Unknown) if cause != Some(Cause::Unknown) => {
                cause
            }
            Stage::Stopping(why) => Some(why.clone()),
            _ => return,
        };
        let request = self.plan.tasks[task.0].request;
        let asking = &mut self.requests[request.0];
        asking.in_use.give_back(&self.plan.tasks[task.0].needs);
        asking.running -= 1;
        out.push(Effect::Record(Record::Attempted { task, cause: cause.clone(), at: now }));
        match cause {
            None => self.conclude(task, Outcome::Succeeded, now, out),
            Some(cause) if self.may_run_again(task, &cause) => self.pause(task, now, out),
            Some(cause) => self.conclude(task, Outcome::Failed(cause), now, out),
        }
        self.run_inside(request, now, out);
        self.give_back_if_done(request, out);
    }

    pub(super) fn may_run_again(&self, task: TaskIndex, cause: &Cause) -> bool {
        let (plan, progress) = (&self.plan.tasks[task.0], &self.tasks[task.0]);
        match cause {
            _ if self.cancelled => false,
            Cause::Cancelled | Cause::Never(_) | Cause::NotInTime => false,
            Cause::GrantLost | Cause::Unknown => plan.again,
            Cause::Exit(_) | Cause::Signal(_) | Cause::NotStarted(_) | Cause::Timeout => {
                progress.attempts <= plan.retries
            }
        }
    }

    fn pause(&mut self, task: TaskIndex, now: Millis, out: &mut Vec<Effect>) {
        let attempts = self.tasks[task.0].attempts;
        let doubled = self.plan.tasks[task.0].pause.saturating_mul(1 << (attempts - 1).min(20));
        self.tasks[task.0].stage = Stage::Pausing;
        self.alarms.insert((later(now, doubled.min(LONGEST_PAUSE)), Alarm::Pause(task, attempts)));
        let request = self.plan.tasks[task.0].request;
        // A task by itself holds nothing while it pauses; and what is lost has to be asked for anew.
        let alone = self.plan.tasks_of(request).len() == 1;
        if alone || self.requests[request.0].state == Asked::Lost {
            self.give_back(request, out);
        }
    }

    /// Gives a request back if nothing of it is left to be done.
    fn give_back_if_done(&mut self, request: RequestIndex, out: &mut Vec<Effect>) {
        let asking = &self.requests[request.0];
        if asking.running == 0 && (asking.left == 0 || asking.state == Asked::Lost) {
            self.give_back(request, out);
        }
    }

    fn give_back(&mut self, request: RequestIndex, out: &mut Vec<Effect>) {
        let asking = &mut self.requests[request.0];
        if asking.running > 0 {
            return;
        }
        match asking.state {
            Asked::Held => out.push(Effect::Release(request, asking.asks)),
            Asked::Lost => {}
            Asked::No | Asked::Waiting => return,
        }
        asking.state = Asked::No;
        self.held -= 1;
        self.offer(request);
    }

    /// A task has ended for good: so whatever comes after it may run, or not.
    pub(super) fn conclude(
        &mut self,
        task: TaskIndex,
        outcome: Outcome,
        now: Millis,
        out: &mut Vec<Effect>,
    ) {
        // One by one, as a chain of tasks may be longer than a stack is deep.
        let mut concluded = vec![(task, outcome)];
        let mut touched = BTreeSet::new();
        while let Some((task, outcome)) = concluded.pop() {
            if matches!(self.stage(task), Stage::Ended(_)) {
                continue;
            }
            out.push(Effect::Record(Record::Ended { task, outcome: outcome.clone(), at: now }));
            let stops_the_rest = !self.failed && self.stops_the_rest(task, &outcome);
            self.tasks[task.0].stage = Stage::Ended(outcome);
            self.forget(task, out);
            for later in self.behind[task.0].clone() {
                self.tasks[later.0].missing -= 1;
                let (own, its) = (self.plan.task(task).request, self.plan.task(later).request);
                if own != its {
                    self.requests[its.0].missing -= 1;
                }
                if self.tasks[later.0].missing == 0 && *self.stage(later) == Stage::Waiting {
                    concluded.extend(self.weigh(later));
                }
                self.offer(its);
                touched.insert(its);
            }
            if stops_the_rest {
                self.failed = true;
                concluded.extend(self.the_rest());
            }
        }
        for request in touched {
            self.run_inside(request, now, out);
        }
    }

    /// A task that has ended is not asked for and not run any more.
    fn forget(&mut self, task: TaskIndex, out: &mut Vec<Effect>) {
        self.left -= 1;
        let place = (Reverse(self.plan.task(task).depth), task);
        let request = self.plan.task(task).request;
        let asking = &mut self.requests[request.0];
        asking.ready.remove(&place);
        asking.left -= 1;
        if asking.left > 0 {
            return;
        }
        match asking.state {
            Asked::Waiting => {
                out.push(Effect::Withdraw(request, asking.asks));
                self.stop_waiting(request, Asked::No);
            }
            Asked::No => {
                let place = self.place(request);
                self.ready.remove(&place);
            }
            Asked::Held | Asked::Lost => self.give_back(request, out),
        }
    }

    /// Whether a task may run, now that all it comes after has ended. If not, it is skipped.
    fn weigh(&mut self, task: TaskIndex) -> Option<(TaskIndex, Outcome)> {
        let plan = &self.plan.tasks[task.0];
        let well = plan.after.iter().all(|before| self.ended_well(*before));
        let wanted = match plan.when {
            When::Success => well && (!self.failed || self.tasks[task.0].attempts > 0),
            When::Failure => !well,
            When::Always => true,
        };
        if !wanted {
            return Some((task, Outcome::Skipped));
        }
        let (request, place) = (plan.request, (Reverse(plan.depth), task));
        self.tasks[task.0].stage = Stage::Ready;
        self.requests[request.0].ready.insert(place);
        None
    }

    fn decide(&mut self, task: TaskIndex, now: Millis, out: &mut Vec<Effect>) {
        match self.weigh(task) {
            Some((task, outcome)) => self.conclude(task, outcome, now, out),
            None => self.offer(self.plan.tasks[task.0].request),
        }
    }

    fn ended_well(&self, task: TaskIndex) -> bool {
        match self.stage(task) {
            Stage::Ended(Outcome::Succeeded) => true,
            Stage::Ended(Outcome::Failed(cause)) => {
                self.plan.task(task).tolerated && *cause != Cause::Cancelled
            }
            _ => false,
        }
    }

    /// A request can be asked for when none of its tasks waits for another outside, and one can run.
    pub(super) fn offer(&mut self, request: RequestIndex) {
        let asking = &self.requests[request.0];
        if asking.state == Asked::No && asking.missing == 0 && !asking.ready.is_empty() {
            let place = self.place(request);
            self.ready.insert(place);
        }
    }

    fn place(&self, request: RequestIndex) -> Place {
        let depths = self.plan.tasks_of(request).iter().map(|task| self.plan.task(*task).depth);
        let needs_something = !self.plan.requests[request.0].needs.is_empty();
        (needs_something, Reverse(depths.max().unwrap_or(0)), request)
    }

    /// All that wants success and has not begun.
    fn the_rest(&self) -> Vec<(TaskIndex, Outcome)> {
        let waits = |task: &TaskIndex| matches!(self.stage(*task), Stage::Waiting | Stage::Ready);
        let has_begun = |task: &TaskIndex| self.attempts(*task) > 0 || !waits(task);
        let all = (0..self.tasks.len()).map(TaskIndex);
        let rest =
            all.filter(|task| !has_begun(task) && self.plan.task(*task).when == When::Success);
        rest.map(|task| (task, Outcome::Skipped)).collect()
    }

    fn skip_the_rest(&mut self, now: Millis, out: &mut Vec<Effect>) {
        for (task, outcome) in self.the_rest() {
            self.conclude(task, outcome, now, out);
        }
    }
}

pub(super) fn later(now: Millis, span: std::time::Duration) -> Millis {
    now.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}
