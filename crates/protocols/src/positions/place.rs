//! A request's place in the queues of all its pools, kept by whoever acts for it.

use alloc::vec::Vec;

use holdall_core::{Addr, ManagerId, Need, PoolId, Request};
use serde::{Deserialize, Serialize};

use super::{Move, News, QueueRules};

/// What a request waits for: the marks of all its queues, then at each position word from all of
/// them that it may go on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Place {
    request: Request,
    /// 0 while a position is being selected.
    position: u32,
    /// The queues heard of since the last move.
    heard: Vec<bool>,
    /// What no position may be selected from, of the queues heard of.
    marked: Vec<u32>,
}

/// What a piece of news leads to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// This is to be told to all queues.
    pub(crate) tell: Option<Move>,
    /// The request stands at position 1 everywhere.
    pub(crate) enter: bool,
}

impl Place {
    pub(crate) fn selecting(request: Request) -> Self {
        let heard = alloc::vec![false; request.needs.len()];
        Self { request, position: 0, heard, marked: Vec::new() }
    }

    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    /// Whether no position is selected yet.
    pub(crate) fn is_selecting(&self) -> bool {
        self.position == 0
    }

    /// Takes the news of one of its queues. If `granting`, queues tell when position 1 is reached;
    /// if not, room kept at position 1 in all of them is enough.
    pub(crate) fn on_news(
        &mut self,
        from: Addr,
        manager_of: impl Fn(PoolId) -> ManagerId,
        news: &News,
        rules: QueueRules,
        granting: bool,
    ) -> Result<Turn, &'static str> {
        let guards = |need: &Need| Addr::Manager(manager_of(need.pool)) == from;
        let queue = self.request.needs.iter().position(guards);
        let queue = queue.ok_or("news of a queue from a stranger")?;
        let fits = match news {
            News::Dec { from, .. } => *from == self.position && self.position > 1,
            News::Grant(_) => self.position == 1,
            News::Marked { .. } => self.position == 0,
        };
        if !fits || core::mem::replace(&mut self.heard[queue], true) {
            return Err("Q3: news twice, or not of the position");
        }
        if let News::Marked { positions, .. } = news {
            self.marked.extend(positions);
            self.marked.sort_unstable();
            self.marked.dedup();
        }
        let hasty = !rules.align && self.position > 1;
        if !hasty && self.heard.iter().any(|heard| !heard) {
            return Ok(Turn::default());
        }
        Ok(match news {
            News::Dec { from, .. } => {
                let request = self.request.id;
                self.go_to(from - 1, Move::Advance { request, from: *from }, granting)
            }
            News::Grant(_) => Turn { tell: None, enter: true },
            News::Marked { .. } => self.select(rules, granting),
        })
    }

    /// Whether it makes no difference when these news come among those of its other queues: it waits for
    /// all of them, and moves up then, or there are others missing. Where the last of them may lead to a
    /// grant or to the end of a selection, that is not said.
    pub(crate) fn gathers(&self, news: &News, rules: QueueRules) -> bool {
        let missing = self.heard.iter().filter(|heard| !**heard).count();
        rules.align && (missing > 1 || matches!(news, News::Dec { from, .. } if *from > 2))
    }

    /// With all marks at once: see [`Place::select`].
    pub(crate) fn on_all_marks(&mut self, marked: Vec<u32>, rules: QueueRules) -> Turn {
        self.marked = marked;
        self.select(rules, false)
    }

    /// Figure 4, line 08: the least position that is marked nowhere. Without the rule, the end of all its
    /// queues, against which Figure 1 warns.
    fn select(&mut self, rules: QueueRules, granting: bool) -> Turn {
        let marked = core::mem::take(&mut self.marked);
        let end = marked.iter().max().map_or(1, |last| last.saturating_add(1));
        let hole = (1..end).find(|position| !marked.contains(position));
        let position = hole.filter(|_| rules.hole).unwrap_or(end);
        self.go_to(position, Move::Select { request: self.request.id, position }, granting)
    }

    fn go_to(&mut self, position: u32, step: Move, granting: bool) -> Turn {
        self.position = position;
        self.heard.fill(false);
        Turn { tell: Some(step), enter: position == 1 && !granting }
    }
}
