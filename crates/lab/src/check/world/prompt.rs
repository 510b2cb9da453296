//! Messages that may as well be received at once: they are, with the step that sends them (`--reduce`).
//!
//! Of such a message the protocol says that receiving it commutes with whatever else may happen to its
//! receiver ([`Role::is_prompt`](holdall_core::Role::is_prompt)); with what happens to others it commutes
//! anyway, since a step changes one role and what is under way. So in every run its arrival can be moved to
//! the front, up to the step that sent it, and nothing else changes: every state in which no such message is
//! under way stays reachable, and a way to go on for ever stays one. In the states that are left out somebody
//! could still move, so none of them is at rest.
//!
//! Where a role may be ended from outside, only messages are received at once that make it send nothing: what
//! it would have sent otherwise could have stayed unsent. Where messages may be lost or doubled, or must keep
//! their order, none are.

use holdall_core::Property;
use holdall_registry::roles::{Item, Outcome, StepEffect};

use super::World;
use super::executor::Executor;

/// More messages than this do not follow from one step.
const MOST: usize = 1000;

impl World<'_> {
    pub(super) fn receives_at_once(&self) -> bool {
        self.settings.reduce && !self.settings.is_order_seen()
    }
}

impl Executor<'_> {
    /// Lets everything arrive that may as well arrive now. For what was under way in the state `before`, that
    /// is a delivery.
    pub(super) fn receive_prompt(&mut self, before: &[u32]) {
        for _ in 0..MOST {
            let Some(at) = self.next_prompt(before) else { return };
            let id = self.next[at];
            self.take_out(at);
            if self.world.items(before).contains(&id) {
                self.dropped.push(self.known.item(self.world, id).class);
            }
            self.feed(id);
            self.drop_stale(before);
        }
        let what = "there is no end of messages that are received at once".into();
        self.breach(Property::Local, None, what);
    }

    /// Where the next such message stands.
    fn next_prompt(&mut self, before: &[u32]) -> Option<usize> {
        let changed = self.changed(before);
        (self.world.items_at()..self.next.len()).find(|at| {
            let item = self.known.item(self.world, self.next[*at]);
            let was_looked_at = *at < self.fresh_at && !item.looks_at.meets(changed);
            item.is_message && !was_looked_at && self.is_prompt(*at)
        })
    }

    fn is_prompt(&mut self, at: usize) -> bool {
        let (world, id) = (self.world, self.next[at]);
        let to = self.known.item(world, id).to;
        let Some(place) = self.place_of(to) else { return false };
        let role = self.next[place];
        let (item, items) = (world.parts.items.value(id), &world.parts.items);
        let from_the_same = |other: &Item| other.from() == item.from() && other.to() == item.to();
        let others = world.items(&self.next).iter().filter(|id| from_the_same(items.value(**id)));
        if !world.roles.is_prompt(role, item, others.count() == 1) {
            return false;
        }
        let Outcome { effects, .. } = self.steps.outcome(world, role, id);
        let sends = |effect: &StepEffect| matches!(effect, StepEffect::Send(_));
        if !effects.iter().all(sends) {
            let what = "a message was called prompt that does more than it may".into();
            self.breach(Property::Local, None, what);
            return false;
        }
        effects.is_empty() || !world.settings.has_faults()
    }
}
