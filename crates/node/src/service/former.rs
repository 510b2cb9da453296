//! What the agent before has left: reservations, and grants whose holders still live.
//!
//! They are put in force as they were, whatever has become of the pools since ([`Plan`]).

use std::rc::Rc;
use std::sync::Arc;

use holdall_cell::plan::Plan;
use holdall_holders::Holder;
use holdall_wire::{Change, Kind, Name};
use tracing::{info, warn};

use super::{Known, Service};
use crate::clock::moved;
use crate::data::Kept;
use crate::engine::{Effect, Input, Reservation};
use crate::journal::{Held, Journal};

impl Service {
    /// Builds the pools, and puts in force again what is on disk.
    pub(super) fn load(&mut self, kept: Kept, shift: i64) -> anyhow::Result<()> {
        let configured = self.config.pools()?;
        self.configured = configured.iter().filter_map(added).map(|(name, _)| name).collect();
        let wanted = configured.into_iter().chain(kept.pools);
        let in_time = |time: u64| moved(time, shift);
        let mut living = Vec::new();
        for mut held in Journal::read(self.data.dir())? {
            held.grant.since = in_time(held.grant.since);
            if let Some(holder) = self.containment.again(&held.holder, self.data.dir()) {
                living.push((held, Rc::new(holder)));
            }
        }
        let mut reservations = kept.reservations;
        for reservation in &mut reservations {
            reservation.since = in_time(reservation.since);
            reservation.until = reservation.until.map(in_time);
        }
        let now = self.clock.now();
        reservations.retain(|reservation| reservation.until.is_none_or(|until| until > now));

        let mut drained = kept.drained;
        for change in &mut drained {
            if let Change::Drain { drained, .. } = change {
                drained.until = drained.until.map(in_time);
            }
        }
        let grants = living.iter().map(|(held, _)| &held.grant).chain(&reservations);
        let held = grants.flat_map(|grant| &grant.taken);
        let before = reservations.len();
        let plan = Plan::new(wanted.filter_map(|change| added(&change)).collect(), held);
        for change in plan.begins.into_iter().chain(plan.unused) {
            self.change_pool(change)?;
        }
        // Parts come after what they are parts of.
        living.sort_by_key(|(held, _)| held.grant.part_of.is_some());
        let whole = living.iter().filter(|(held, _)| held.grant.part_of.is_none()).count();
        self.restore_living(&living[..whole])?;
        for reservation in reservations {
            self.restore(reservation, None);
        }
        self.restore_living(&living[whole..])?;
        let on_disk: Vec<_> = living.into_iter().map(|(held, _)| held).collect();
        self.journal = Some(Journal::begin(self.data.dir(), &on_disk)?);
        self.remove_old_locks(&on_disk)?;
        for change in plan.then {
            let told = format!("{change:?}");
            if let Err(error) = self.change_pool(change) {
                warn!("{error:#}: not done before what is held comes back: {told}");
            }
        }
        // After everything is in force: whoever holds what is drained keeps it.
        for change in drained {
            if let Err(error) = self.change_pool(change) {
                warn!("{error:#}: what was drained is not there any more");
            }
        }
        self.note_drained();
        if self.engine.reservations().len() < before {
            self.keep()?; // What was lost does not come back.
        }
        Ok(())
    }

    /// Puts in force again what processes hold that still run.
    fn restore_living(&mut self, living: &[(Held, Rc<Holder>)]) -> anyhow::Result<()> {
        for (held, holder) in living {
            let (request, pids) = (held.grant.request, holder.pids());
            warn!(%request, ?pids, "processes of a grant of the agent before still run");
            self.restore(held.grant.clone(), Some(holder.clone()));
            anyhow::ensure!(
                self.known.contains_key(&request),
                "{request} of the agent before is still in use by {pids:?}, and does not fit the \
                 pools; end that, or change the configuration back"
            );
        }
        Ok(())
    }

    fn change_pool(&mut self, change: Change) -> anyhow::Result<()> {
        let mut effects = self.step(Input::Change(change));
        let done = effects.iter().position(|effect| matches!(effect, Effect::Changed(_)));
        let done = done.map(|at| effects.remove(at));
        self.carry_out(effects);
        match done {
            Some(Effect::Changed(Err(wrong))) => anyhow::bail!("the pools: {wrong}"),
            _ => Ok(()),
        }
    }

    /// Puts a grant of a former agent in force again: a reservation, or what processes hold that
    /// are left of it.
    fn restore(&mut self, grant: Reservation, holder: Option<Rc<Holder>>) {
        let request = grant.request;
        let who = Arc::new(grant.who.clone());
        let size = super::size(&who, &holdall_wire::From::default(), &grant.needs);
        self.requests.take_anyway(who.uid, size);
        let known = Known {
            who,
            size,
            files: 0,
            asked: None,
            at: std::time::Instant::now(),
            reserved: holder.is_none(),
            leftovers: None,
            holder: holder.clone(),
            ending: holder.is_some(),
            waits: false,
            part: None,
            limit: None,
            over: None,
        };
        self.known.insert(request, known);
        self.input(Input::Restore(grant));
        let Some(holder) = holder.filter(|_| self.known.contains_key(&request)) else { return };
        if let Holder::Family(family) = &*holder
            && family.abandoned()
        {
            info!(%request, pids = ?holder.pids(), "its client was killed: killing its processes");
            let killed = holder.clone();
            tokio::task::spawn_local(async move { killed.kill().await });
            return self.end_with(request, holder, "killed");
        }
        self.end_with(request, holder, "released");
    }
}

fn added(change: &Change) -> Option<(Name, Kind)> {
    match change {
        Change::Add { name, kind } => Some((name.clone(), kind.clone())),
        _ => None,
    }
}
