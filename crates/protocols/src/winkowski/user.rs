//! The user: plays the game for its task.

use holdall_core::{Addr, Broken, Call, Event, Request, Role, UserId};
use serde::{Deserialize, Serialize};

use super::task::{Status, Task};
use super::{Level, Out, ToUser, Winkowski};

/// The user's timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Timer {
    /// The alarm clock: a request has waited for a while behind others.
    Alarm,
}

/// Acts for one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User<const COMPLETE: bool> {
    id: UserId,
    task: Option<Task>,
}

impl<const COMPLETE: bool> User<COMPLETE> {
    pub(super) fn new(id: UserId) -> Self {
        Self { id, task: None }
    }

    /// The task under way.
    pub(super) fn task(&self) -> Option<&Task> {
        self.task.as_ref()
    }

    /// What has been confirmed to it everywhere, and as what.
    pub(super) fn confirmed(&self) -> Option<(&Request, Level)> {
        let task = self.task.as_ref()?;
        let level = match task.status {
            Status::Winning if COMPLETE => Level::Ord,
            Status::Accessing => Level::Use,
            _ => return None,
        };
        Some((&task.request, level))
    }

    fn ask(&mut self, cfg: &Winkowski<COMPLETE>, request: Request, out: &mut Out<COMPLETE, Timer>) {
        let mut task = Task::new(request);
        task.play(cfg, out);
        self.task = Some(task);
    }

    /// Plays on, and forgets the task once it has left everywhere.
    fn play(&mut self, cfg: &Winkowski<COMPLETE>, out: &mut Out<COMPLETE, Timer>) {
        let Some(task) = &mut self.task else { return };
        task.play(cfg, out);
        if task.has_left() {
            if task.status == (Status::Leaving { lost: false }) {
                out.released(task.request.id);
            }
            self.task = None;
        }
    }

    fn leave(&mut self, cfg: &Winkowski<COMPLETE>, lost: bool, out: &mut Out<COMPLETE, Timer>) {
        let Some(task) = &mut self.task else { return };
        if matches!(task.status, Status::Leaving { .. }) {
            return;
        }
        task.status = Status::Leaving { lost };
        if lost {
            out.lost(task.request.id);
        }
        self.play(cfg, out);
    }

    fn on_message(
        &mut self,
        cfg: &Winkowski<COMPLETE>,
        from: Addr,
        msg: ToUser,
        out: &mut Out<COMPLETE, Timer>,
    ) {
        let (ToUser::Over(about) | ToUser::View { request: about, .. }) = msg;
        let Some(task) = self.task.as_mut().filter(|task| task.request.id == about) else {
            return; // It crossed our leaving.
        };
        let Some(at) = task.part_of(from) else {
            return out.misbehaved(from, "a view of a pool that was not asked for");
        };
        match msg {
            ToUser::Over(_) => {
                task.put_out(at);
                if !matches!(task.status, Status::Leaving { .. }) {
                    out.tally("evictions", 1);
                }
                self.leave(cfg, true, out);
            }
            ToUser::View { n, version, view, top, .. } => {
                if task.is_old(cfg, at, n, version) {
                    return;
                }
                if task.is_impossible(at, n, view) {
                    return out.misbehaved(from, "a view that no stance of this task can lead to");
                }
                task.see(at, version, view, top);
            }
        }
        self.play(cfg, out);
    }
}

impl<const COMPLETE: bool> Role for User<COMPLETE> {
    type P = Winkowski<COMPLETE>;
    type Call = Call;
    type Msg = ToUser;
    type Timer = Timer;

    fn step(&mut self, cfg: &Self::P, event: Event<Self>, out: &mut Out<COMPLETE, Timer>) {
        match event {
            Event::Call(Call::Ask(request, _)) => self.ask(cfg, request, out),
            Event::Call(Call::Done | Call::Leave) => self.leave(cfg, false, out),
            Event::Gone(_) => {}
            Event::Message { from, msg } => self.on_message(cfg, from, msg, out),
            Event::Timer(Timer::Alarm) => {
                if let Some(task) = &mut self.task {
                    task.on_alarm(cfg, out);
                }
            }
        }
    }

    fn check(&self, _: &Self::P) -> Result<(), Broken> {
        let Some(task) = &self.task else { return Ok(()) };
        Broken::unless(task.request.id.user == self.id, "a user asks for itself")?;
        task.check()
    }

    fn is_stale(&self, cfg: &Self::P, from: Addr, msg: &ToUser) -> bool {
        let (ToUser::Over(about) | ToUser::View { request: about, .. }) = msg;
        let Some(task) = self.task.as_ref().filter(|task| task.request.id == *about) else {
            return true;
        };
        match (msg, task.part_of(from)) {
            (ToUser::Over(_), Some(at)) => task.is_out(at),
            (ToUser::View { n, version, .. }, Some(at)) => task.is_old(cfg, at, *n, *version),
            (_, None) => false,
        }
    }

    /// Whoever has won, or leaves, hears of each pool once more, and goes on when it has heard of all.
    fn is_prompt(&self, cfg: &Self::P, from: Addr, msg: &ToUser, alone: bool) -> bool {
        let ToUser::View { request, n, .. } = msg else { return false };
        let sure = alone && cfg.rules.answer && cfg.rules.latest;
        let task = self.task.as_ref().filter(|task| task.request.id == *request && sure);
        task.is_some_and(|task| task.part_of(from).is_some_and(|at| task.gathers(at, *n)))
    }

    fn stage(&self) -> &'static str {
        self.task.as_ref().map_or("", Task::stage)
    }

    fn is_idle(&self) -> bool {
        self.task.is_none()
    }
}
