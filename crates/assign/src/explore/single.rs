//! Figures 2 and 3, explored: processors with a number of operations each.

use std::collections::BTreeMap;

use super::lemmas;
use super::settled::settled;
use super::{Memory, Model, Slotted, World};
use crate::machine::{Access, Machine};
use crate::paper::{Announce, Announcing, Enter, Growth, Ids};

/// How many operations each processor makes, and f.
///
/// ```
/// use holdall_assign::explore::{AssignmentModel, AssignmentScope, Settings, explore};
/// use holdall_assign::paper::Framed;
///
/// let scope = AssignmentScope { ops: vec![1, 1], growth: None, as_printed: false };
/// let found = explore(&AssignmentModel::<Framed>::new(&scope), &Settings::default());
/// assert_eq!((found.states, found.violation.is_none()), (351, true));
/// ```
#[derive(Clone, Debug)]
pub struct AssignmentScope {
    /// Operations of each processor.
    pub ops: Vec<usize>,
    /// f; 2k-1 if not said.
    pub growth: Option<Growth>,
    /// The first item by the paper's formula for general f.
    pub as_printed: bool,
}

/// The processors of a scope.
/// [`AssignmentScope`] has an example.
pub struct AssignmentModel<S> {
    ids: Ids,
    growth: Growth,
    start: Vec<Busy<S>>,
}

/// A processor with its operations.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Busy<S> {
    pub(super) ids: Ids,
    growth: Growth,
    processor: usize,
    pub(super) made: usize,
    pub(super) ops: usize,
    as_printed: bool,
    pub(super) doing: Doing<S>,
    /// What was announced in earlier operations.
    pub(super) said: Vec<(u64, usize)>,
    /// Fig. 2's else branch, if it was taken in the last operation: who took part.
    pub(super) participants: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Doing<S> {
    Enter(Enter),
    Announce(Announce<S>),
    Nothing,
}

impl<S: Announcing> AssignmentModel<S> {
    /// The model of a scope.
    /// [`AssignmentScope`] has an example.
    pub fn new(scope: &AssignmentScope) -> Self {
        let most = scope.ops.iter().copied().max().unwrap_or(1);
        let ids = Ids::new(scope.ops.len(), most);
        let growth = scope.growth.clone().unwrap_or_else(|| Growth::least(ids.all()));
        let busy = |(processor, ops): (usize, &usize)| Busy {
            ids,
            growth: growth.clone(),
            processor,
            made: 0,
            ops: *ops,
            as_printed: scope.as_printed,
            doing: Doing::Nothing,
            said: Vec::new(),
            participants: None,
        };
        Self { ids, start: scope.ops.iter().enumerate().map(busy).collect(), growth }
    }
}

impl<S: Announcing> Busy<S> {
    pub(super) fn id(&self) -> usize {
        self.ids.id(self.processor, self.made)
    }

    /// The first item of the operation under way, announced or not.
    fn item(&self) -> Option<(u64, usize)> {
        let item = match &self.doing {
            Doing::Enter(enter) => enter.item(),
            Doing::Announce(announce) => announce.first(),
            Doing::Nothing => None,
        };
        item.map(|item| (item, self.id()))
    }

    /// Non-Triviality 1 as one processor can tell: its first item is among the first f(|IS|), and
    /// whoever is in a snapshot takes part. (What it announces ends with f(|High|), and High is
    /// such a snapshot.) A reduced search sees every state of each processor, but not whom it
    /// meets in which.
    fn within_its_snapshot(&self) -> Result<(), String> {
        let Doing::Enter(enter) = &self.doing else { return Ok(()) };
        let end = self.growth.at(enter.seen.count_ones() as usize);
        match enter.item() {
            Some(item) if item > end => Err(format!("item {item} is beyond {end}")),
            _ => Ok(()),
        }
    }

    fn end_operation(&mut self, said: &[(u64, usize)]) {
        self.said.extend_from_slice(said);
        self.said.sort_unstable();
        self.said.dedup();
        self.made += 1;
        self.doing = Doing::Nothing;
    }
}

impl<S: Announcing> Machine for Busy<S> {
    fn step(&mut self, read: u64) -> Access {
        loop {
            match &mut self.doing {
                Doing::Nothing if self.made == self.ops => return Access::Done,
                Doing::Nothing => {
                    let enter = Enter::new(self.ids, &self.growth, self.id());
                    let enter = if self.as_printed { enter.with_printed_item() } else { enter };
                    self.doing = Doing::Enter(enter);
                }
                Doing::Enter(enter) => match enter.step(read) {
                    Access::Done => {
                        let enter = enter.clone();
                        let next = Announce::new(&enter, self.ids, &self.growth, self.id());
                        self.doing = Doing::Announce(next);
                    }
                    access => return access,
                },
                Doing::Announce(announce) => match announce.step(read) {
                    Access::Done => {
                        let frame = announce.frame().filter(|_| !S::FRAMES);
                        self.participants = frame.map(|(_, everybody)| everybody);
                        let said = announce.said().to_vec();
                        self.end_operation(&said);
                    }
                    access => return access,
                },
            }
        }
    }
}

impl<S: Announcing> Model for AssignmentModel<S> {
    type Process = Busy<S>;

    fn slots(&self) -> usize {
        self.ids.slots()
    }

    fn start(&self) -> Vec<Busy<S>> {
        self.start.clone()
    }

    /// Consistency and Non-Triviality 1 in every state, and what the paper's lemmas claim;
    /// Fairness, Non-Triviality 2 and the limit
    /// of two items for each operation whenever nobody is in an operation; once all but one are
    /// done, the items that are unassigned because of that one.
    fn check(&self, world: &World<'_, Busy<S>>) -> Result<u32, String> {
        let mut owners = BTreeMap::new();
        for Slotted { process, .. } in world.processes() {
            for (item, owner) in process.said.iter().copied().chain(process.item()) {
                let other = *owners.entry(item).or_insert(owner);
                if other != owner {
                    return Err(format!("item {item} was said to be {other}'s and {owner}'s"));
                }
            }
            process.within_its_snapshot()?;
        }
        lemmas::check(world, self.ids, &self.growth)?;
        // Whose first write is in memory takes part.
        let begun = |id: usize| world.memory().get(self.ids.owner(id), self.ids.level(id, 0)) != 0;
        let part = (0..self.ids.all()).filter(|id| begun(*id)).count();
        let last = owners.last_key_value().map_or(0, |(item, _)| *item);
        if last > self.growth.at(part) {
            return Err(format!("item {last} was assigned with {part} participants"));
        }
        let between = |p: &Slotted<Busy<S>>| p.buffer.is_empty() && !begun(p.process.id());
        if world.processes().all(|p| p.done() || between(p)) {
            self.complete(&owners, &begun)?;
            lemmas::check_end(world, self.ids)?;
        }
        match world.processes().filter(|p| !p.done()).count() {
            1 => Ok((1..=last).filter(|item| !owners.contains_key(item)).count() as u32),
            _ => Ok(0),
        }
    }

    fn restart(&self, _: usize, process: &Busy<S>, _: &Memory) -> Busy<S> {
        // The paper's processors do not come back.
        process.clone()
    }

    fn settled(&self, world: &World<'_, Busy<S>>, who: usize) -> bool {
        settled(world, who)
    }

    fn rest(&self, process: &Busy<S>) -> Option<Busy<S>> {
        let Doing::Enter(enter) = &process.doing else { return None };
        let rested = || Busy { ops: process.made, doing: Doing::Nothing, ..process.clone() };
        enter.fresh().then(rested)
    }
}

impl<S: Announcing> AssignmentModel<S> {
    fn complete(
        &self,
        owners: &BTreeMap<u64, usize>,
        begun: &dyn Fn(usize) -> bool,
    ) -> Result<(), String> {
        let part: Vec<usize> = (0..self.ids.all()).filter(|id| begun(*id)).collect();
        let end = self.growth.at(part.len());
        if let Some(item) = (1..=end).find(|item| !owners.contains_key(item)) {
            return Err(format!("item {item} of {end} was not announced"));
        }
        for id in part {
            let has = owners.values().filter(|owner| **owner == id).count();
            if has == 0 {
                return Err(format!("operation {id} has no item"));
            }
            if has > 2 && self.growth == Growth::least(self.ids.all()) {
                return Err(format!("operation {id} has {has} items"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::paper::{Atomic, Framed};

    /// One processor begins and stops; the other makes so many operations: the items that are
    /// nobody's, among those up to the last that is somebody's.
    fn held_up<S: Announcing>(operations: usize) -> usize {
        let scope = AssignmentScope { ops: vec![1, operations], growth: None, as_printed: false };
        let model = AssignmentModel::<S>::new(&scope);
        let (mut processors, mut memory) = (model.start(), Memory::new(2, model.slots()));
        let Access::Put { slot, value } = processors[0].step(0) else { panic!("it takes part") };
        memory.put(0, slot, value);
        memory.drive(1, &mut processors[1]);
        let said = &processors[1].said;
        let last = said.iter().map(|(item, _)| *item).max().unwrap_or(0);
        last as usize - said.len()
    }

    /// Without the frames of posted snapshots the delay grows with every operation; with them it
    /// does not.
    #[test]
    fn long_lived_without_frames_delays_without_bound() {
        let ops = [2, 4, 8, 16, 32];
        assert_eq!(ops.map(held_up::<Atomic>), [1, 3, 7, 15, 31]);
        assert_eq!(ops.map(held_up::<Framed>), [0; 5]);
    }
}
