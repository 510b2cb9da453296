//! Somebody who is cut off from the guard of what it uses, while somebody else waits there for the same.

use super::strike::Undo;
use super::{LOOK, Torture};
use crate::journal::{self, RunNo, What};
use crate::plan::{Errand, Stranding};

/// Somebody who is, or will be, cut off from the guard of what it uses ([`Fault::Strand`]).
#[derive(Clone, Copy, Debug)]
pub(super) struct Stranded {
    home: usize,
    guard: usize,
    how: Stranding,
    victim: RunNo,
    /// Who waits for the same, once it is cut off.
    rival: Option<RunNo>,
}

impl Torture<'_> {
    pub(super) fn is_spared(&self, cell: usize) -> bool {
        self.stranded.is_some_and(|it| cell == it.home || cell == it.guard)
    }

    /// Whether a run is one of the two.
    pub(super) fn is_stranded(&self, run: RunNo) -> bool {
        self.stranded.is_some_and(|it| it.victim == run || it.rival == Some(run))
    }

    /// Somebody asks for what it is to be cut off from. If another one is at that, it does so later.
    pub(super) fn strand(
        &mut self,
        home: usize,
        guard: usize,
        how: Stranding,
    ) -> anyhow::Result<()> {
        if self.stranded.is_some() {
            self.later(LOOK.as_millis() as u64, Undo::Strand { home, guard, how });
            return Ok(());
        }
        let (needs, works) = (vec![format!("rig@c{guard}")], self.course.lease * 3);
        let victim = self.start(home, &Errand { needs, works, deaf: false, local: false })?;
        self.stranded = Some(Stranded { home, guard, how, victim, rival: None });
        Ok(())
    }

    /// Who uses what it asked for is cut off, as soon as nothing else is wrong there; and is left alone until somebody else has
    /// had the same.
    pub(super) fn look_at_stranded(&mut self) -> anyhow::Result<()> {
        let Some(it) = self.stranded else { return Ok(()) };
        let Stranded { home, guard, how, victim, rival } = it;
        if !self.clients.runs.contains_key(&rival.unwrap_or(victim)) {
            self.stranded = None;
            // It was over before it could be cut off.
            return if rival.is_none() { self.strand(home, guard, how) } else { Ok(()) };
        }
        let uses = self.store.users().contains_key(&victim);
        let is_bad = self.ground.is_bad(home, guard) || self.ground.is_bad(guard, home);
        if rival.is_some() || !uses || is_bad || !self.is_well(home) || !self.is_well(guard) {
            return Ok(());
        }
        let errand = Errand { needs: vec!["rig".into()], works: 50, deaf: false, local: true };
        let rival = Some(self.start(guard, &errand)?);
        self.stranded = Some(Stranded { rival, ..it });
        self.cut_off(home, guard, how)
    }

    fn is_well(&mut self, cell: usize) -> bool {
        !self.frozen.contains(&cell) && !self.agents[cell].paused && self.agents[cell].is_running()
    }

    /// For longer than a lease and a grace.
    fn cut_off(&mut self, home: usize, guard: usize, how: Stranding) -> anyhow::Result<()> {
        let millis = self.course.lease * 2;
        match how {
            Stranding::Killed => {
                self.agents[home].kill();
                self.note(What::Agent { cell: home, how: journal::Agent::Killed });
                self.later(millis, Undo::StartAgent(home));
            }
            Stranding::Paused => {
                self.agents[home].pause(true);
                self.note(What::Agent { cell: home, how: journal::Agent::Paused });
                self.later(millis, Undo::ResumeAgent(home));
            }
            Stranding::Net(weather) => {
                self.spoil(home, guard, weather, millis)?;
                self.spoil(guard, home, weather, millis)?;
            }
        }
        Ok(())
    }
}
