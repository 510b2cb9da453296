//! How a cell goes on after its host has started: with the engine as it was, or with one that is
//! built again from the books.

use holdall_protocols::house::House;
use holdall_wire::{Change, Kind, Name, Who};

use super::{Cell, Defect};
use crate::engine::{self, Engine, Reservation};
use crate::facts::Fact;
use crate::input::{Effect, Start};
use crate::plan::Plan;
use crate::session::Means;

pub(super) fn engine(epoch: u32, ephemeral: bool) -> Result<Engine<House>, Defect> {
    Engine::new(None, epoch, ephemeral).map_err(|why| Defect::None(why.to_string()))
}

impl Cell {
    /// The host has started.
    pub(super) fn start(&mut self, start: Start) -> Result<(), Defect> {
        let is_other_boot = *self.books.boot() != start.boot;
        self.note(Fact::Started { epoch: start.epoch, boot: start.boot })?;
        let mut unfit = if start.rebuilt {
            self.rebuild(start.epoch, start.ephemeral, &start.pools)?
        } else {
            self.engine.start(start.epoch, start.ephemeral);
            self.configure(&start.pools)?
        };
        self.note_drained()?;
        let mut over = self.books.sessions.detach_all(self.now);
        if is_other_boot {
            let processes = self.books.sessions.means();
            let gone = processes.filter(|(_, means)| matches!(means, Means::Process { .. }));
            over.extend(gone.map(|(session, _)| session));
        }
        over.into_iter().try_for_each(|session| self.close(session))?;
        self.look_at_deadlines()?;
        // Nobody is there to be told anything, and all else is told once.
        self.out.effects = self.resume();
        self.out.effects.append(&mut unfit);
        Ok(())
    }

    /// Brings the pools to what the configuration says now. Returns what could not be done.
    fn configure(&mut self, wanted: &[(Name, Kind)]) -> Result<Vec<Effect>, Defect> {
        let mut changes = Vec::new();
        let known = self.books.pools();
        for (name, _) in known.filter(|(_, pool)| pool.configured) {
            if !wanted.iter().any(|(other, _)| other == name) {
                changes.push(Change::Remove { name: name.clone(), force: true });
            }
        }
        for (name, kind) in wanted {
            let before = self.books.pools().find(|(other, _)| *other == name);
            let add = Change::Add { name: name.clone(), kind: kind.clone() };
            match (before.map(|(_, pool)| &pool.kind), kind) {
                (None, _) => changes.push(add),
                (Some(before), kind) if before == kind => {}
                (Some(Kind::Numbered(_)), Kind::Numbered(units)) => {
                    changes.push(Change::Resize { name: name.clone(), units: *units });
                }
                (Some(_), _) => {
                    changes.push(Change::Remove { name: name.clone(), force: true });
                    changes.push(add);
                }
            }
        }
        self.change_all(changes, wanted)
    }

    fn change_all(
        &mut self,
        changes: Vec<Change>,
        wanted: &[(Name, Kind)],
    ) -> Result<Vec<Effect>, Defect> {
        let mut unfit = Vec::new();
        for change in changes {
            let name = super::calls::name_of(&change).clone();
            let configured = wanted.iter().any(|(other, _)| *other == name);
            if let Err(why) = self.change(change, configured)? {
                unfit.push(Effect::Unfit(name, why.to_string()));
            }
        }
        Ok(unfit)
    }

    /// Builds the engine again from the books: grants as they were, pools as large as these need them
    /// and then as they are meant to be, and then who waits asked again in the order of asking. Returns
    /// what could not be done.
    fn rebuild(
        &mut self,
        epoch: u32,
        ephemeral: bool,
        configured: &[(Name, Kind)],
    ) -> Result<Vec<Effect>, Defect> {
        self.engine = engine(epoch, ephemeral)?;
        self.engine.go_above(self.books.highest());
        let own = self.books.pools().filter(|(_, pool)| !pool.configured);
        let own = own.map(|(name, pool)| (name.clone(), pool.kind.clone()));
        let wanted: Vec<_> = configured.iter().cloned().chain(own).collect();
        let before: Vec<Name> = self.books.pools().map(|(name, _)| name.clone()).collect();
        let grants: Vec<_> = self.books.grants().map(|(request, ..)| request).collect();
        let taken = self.books.grants().flat_map(|(.., held)| held.taken.iter());
        let plan = Plan::new(wanted, taken);
        let mut unfit = self.change_all(plan.begins, configured)?;
        for request in grants {
            self.restore(request)?;
        }
        unfit.extend(self.change_all(plan.then, configured)?);
        // Whoever holds what is drained keeps it.
        let drained = self.books.drained().iter().cloned();
        let drain = drained.map(|(name, drained)| Change::Drain { name, drained });
        unfit.extend(self.change_all(drain.collect(), configured)?);
        let waiting: Vec<_> = self.books.waiting().map(|(request, _)| request).collect();
        for request in waiting {
            let Some(entry) = self.books.get(request) else { continue };
            let (who, ask) = (entry.who.clone(), entry.ask.clone());
            let effects = self.engine.ask_again(self.now, request, who, ask)?;
            self.take_effects(effects)?;
        }
        for name in before {
            if self.engine.kind(&name).is_some() {
                continue;
            }
            self.note(Fact::Pool { name, kind: None, configured: false })?;
        }
        Ok(unfit)
    }

    fn restore(&mut self, request: holdall_wire::RequestNo) -> Result<(), Defect> {
        let Some(entry) = self.books.get(request) else { return Ok(()) };
        let Some(held) = entry.held.clone() else { return Ok(()) };
        let within = entry.ask.within;
        let reservation = Reservation {
            request,
            who: Who::clone(&entry.who),
            needs: entry.ask.needs.clone(),
            taken: held.taken.to_vec(),
            since: held.since,
            until: held.until,
            part_of: entry.ask.part.map(|part| part.of),
        };
        self.run(engine::Input::Restore(reservation))?;
        self.engine.put_within(request, within);
        Ok(())
    }
}
