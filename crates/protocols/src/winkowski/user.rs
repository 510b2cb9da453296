//! The user: plays the game for its task.

use holdall_core::{Addr, Broken, Call, Event, Request, Role, UserId};
use serde::{Deserialize, Serialize};

use super::quest::{Quest, Status};
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
    quest: Option<Quest>,
}

impl<const COMPLETE: bool> User<COMPLETE> {
    pub(super) fn new(id: UserId) -> Self {
        Self { id, quest: None }
    }

    /// The task under way.
    pub(super) fn quest(&self) -> Option<&Quest> {
        self.quest.as_ref()
    }

    /// What has been confirmed to it everywhere, and as what.
    pub(super) fn confirmed(&self) -> Option<(&Request, Level)> {
        let quest = self.quest.as_ref()?;
        let level = match quest.status {
            Status::Winning if COMPLETE => Level::Ord,
            Status::Accessing => Level::Use,
            _ => return None,
        };
        Some((&quest.request, level))
    }

    fn ask(&mut self, cfg: &Winkowski<COMPLETE>, request: Request, out: &mut Out<COMPLETE, Timer>) {
        let mut quest = Quest::new(request);
        quest.play(cfg, out);
        self.quest = Some(quest);
    }

    /// Plays on, and forgets the task once it has left everywhere.
    fn play(&mut self, cfg: &Winkowski<COMPLETE>, out: &mut Out<COMPLETE, Timer>) {
        let Some(quest) = &mut self.quest else { return };
        quest.play(cfg, out);
        if quest.has_left() {
            if quest.status == (Status::Leaving { lost: false }) {
                out.released(quest.request.id);
            }
            self.quest = None;
        }
    }

    fn leave(&mut self, cfg: &Winkowski<COMPLETE>, lost: bool, out: &mut Out<COMPLETE, Timer>) {
        let Some(quest) = &mut self.quest else { return };
        if matches!(quest.status, Status::Leaving { .. }) {
            return;
        }
        quest.status = Status::Leaving { lost };
        if lost {
            out.lost(quest.request.id);
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
        let Some(quest) = self.quest.as_mut().filter(|quest| quest.request.id == about) else {
            return; // It crossed our leaving.
        };
        let Some(at) = quest.part_of(from) else {
            return out.misbehaved(from, "a view of a pool that was not asked for");
        };
        match msg {
            ToUser::Over(_) => {
                quest.put_out(at);
                if !matches!(quest.status, Status::Leaving { .. }) {
                    out.tally("evictions", 1);
                }
                self.leave(cfg, true, out);
            }
            ToUser::View { n, version, view, top, .. } => {
                if quest.is_old(cfg, at, n, version) {
                    return;
                }
                if quest.is_impossible(at, n, view) {
                    return out.misbehaved(from, "a view that no stance of this task can lead to");
                }
                quest.see(at, version, view, top);
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
            Event::Call(Call::Ask(request)) => self.ask(cfg, request, out),
            Event::Call(Call::Done | Call::Leave) => self.leave(cfg, false, out),
            Event::Gone(_) => {}
            Event::Message { from, msg } => self.on_message(cfg, from, msg, out),
            Event::Timer(Timer::Alarm) => {
                if let Some(quest) = &mut self.quest {
                    quest.on_alarm(cfg, out);
                }
            }
        }
    }

    fn check(&self, _: &Self::P) -> Result<(), Broken> {
        let Some(quest) = &self.quest else { return Ok(()) };
        Broken::unless(quest.request.id.user == self.id, "a user asks for itself")?;
        quest.check()
    }

    fn is_stale(&self, cfg: &Self::P, from: Addr, msg: &ToUser) -> bool {
        let (ToUser::Over(about) | ToUser::View { request: about, .. }) = msg;
        let Some(quest) = self.quest.as_ref().filter(|quest| quest.request.id == *about) else {
            return true;
        };
        match (msg, quest.part_of(from)) {
            (ToUser::Over(_), Some(at)) => quest.is_out(at),
            (ToUser::View { n, version, .. }, Some(at)) => quest.is_old(cfg, at, *n, *version),
            (_, None) => false,
        }
    }

    fn stage(&self) -> &'static str {
        self.quest.as_ref().map_or("", Quest::stage)
    }

    fn is_idle(&self) -> bool {
        self.quest.is_none()
    }
}
