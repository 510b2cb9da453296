//! Which other cells there are: who joins, is removed, or is given up; and what they are told of the pools here.

use holdall_cell::Input;
use holdall_links as links;
use tracing::{error, info, warn};

use super::Service;
use crate::cluster::greeter::Word;
use crate::cluster::{as_member, number};

impl Service {
    /// What is known of other cells from before.
    pub(super) fn remember_cells(&self) {
        let Some(cells) = &self.cells else { return };
        for (cell, id) in &cells.ids {
            cells.greeter.know(*id, self.books().ties().met(*cell).copied());
        }
    }

    /// The log says how a cell was given up that was not known by its whole id before: another host has heard it.
    pub(super) fn remember_word(&self, id: links::CellId) {
        let (Some(cells), ties) = (&self.cells, self.books().ties()) else { return };
        let cell = number(id);
        if cells.ids.contains_key(&cell) {
            return;
        }
        cells.greeter.know(id, ties.met(cell).copied());
        if let Err(error) = cells.greeter.agree(id, ties.given_up(cell), ties.met(cell)) {
            error!("that a cell is forgotten is not kept: {error}");
        }
    }

    /// These are the members there are, and were.
    pub(super) fn on_members(&mut self, members: &[(links::CellId, links::member::Member)]) {
        let now = self.boottime();
        members.iter().for_each(|(id, _)| self.remember_word(*id));
        let Some(cells) = &mut self.cells else { return };
        let Some(own) = cells.running.as_ref().map(|running| running.links.own().id) else {
            return;
        };
        let (mut known, mut removed) = (Vec::new(), Vec::new());
        // Nobody talks to a cell that was removed itself.
        let is_cut_off = members.iter().any(|(id, it)| *id == own && it.removed);
        for (id, it) in members.iter().filter(|(id, _)| *id != own) {
            let cell = number(*id);
            let is_other = cells.ids.get(&cell).is_some_and(|other| other != id);
            if is_other || cells.greeter.is_away(*id) {
                continue;
            }
            cells.ids.insert(cell, *id);
            cells.greeter.know_of(*id);
            cells.leases.add(now, cell);
            match it.removed || is_cut_off {
                true => removed.push(cell),
                false => known.extend(as_member(*id, it)),
            }
        }
        // It is told of all of them whenever one changes.
        removed.retain(|cell| self.engine().is_member(*cell));
        removed.into_iter().for_each(|cell| self.input(Input::Removed(cell)));
        self.input(Input::Members(known));
        self.host_none_removed();
    }

    /// Somebody has said that a member is gone for good.
    pub(super) fn on_forget(&mut self, id: links::CellId, word: &[u8]) {
        let cell = number(id);
        let Some(cells) = &mut self.cells else { return };
        let Some(running) = &cells.running else { return };
        if id == running.links.own().id {
            return warn!("others were told to forget what this cell holds");
        }
        let (what, kept) = cells.greeter.forget(id, word);
        if let Err(error) = kept {
            error!("what was said of a forgotten cell is not kept: {error}");
        }
        let life = match what {
            Word::Meant(life) => life,
            Word::Known => return,
            Word::NotMeant => {
                return warn!(
                    cell = %id, "it was to be forgotten in another life, or by somebody who knew none of it; \
                     if it does not run, say `holdall cluster forget` here"
                );
            }
        };
        info!(cell = %id, "what it holds is forgotten");
        // What it guards nobody guards any more: when it comes back, it knows nothing of who uses it.
        self.lease_over(cell, "was forgotten");
        let Some(cells) = &mut self.cells else { return };
        cells.leases.remove(cell);
        if let Some(meeting) = cells.meetings.remove(&cell) {
            meeting.way().end("it was forgotten");
            cells.greeter.unlinked(id);
        }
        if let Some(link) = cells.links.remove(&cell) {
            link.way.end("it was forgotten");
            cells.greeter.unlinked(id);
            self.input(Input::Unlinked(cell));
        }
        self.input(Input::Forget { cell, life, word: word.to_vec() });
    }

    /// Tells all members what the pools are, if they are others than they know.
    pub(super) fn tell_pools(&mut self) {
        let Some(cells) = self.cells.as_mut().filter(|cells| cells.pools_changed) else { return };
        if cells.running.is_none() {
            return;
        }
        cells.pools_changed = false;
        let about = super::questions::about(self.engine());
        let Some(cells) = &self.cells else { return };
        let said = cells.running.as_ref().map(|running| running.links.set_about(about));
        if let Some(Err(error)) = said {
            error!("the pools are not told to others: {error}");
        }
    }
}
