//! The queue of one pool, kept by its manager.

use alloc::vec::Vec;
use core::fmt;

use holdall_core::{Addr, Broken, Outbox, Party, Protocol, RequestId, UserId};
use serde::{Deserialize, Serialize};

use super::{Move, News, QueueRules};
use crate::early::EarlyReleases;
use crate::pool::Share;

/// Positions, who stands at them, and who is selecting one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) struct Queue {
    capacity: u32,
    /// By position; at one position in the order they came to it.
    standing: Vec<Standing>,
    /// Who was told which positions are marked, and has not selected yet.
    selecting: Vec<Share>,
    early: EarlyReleases,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Standing {
    share: Share,
    position: u32,
    /// It was told of room before it, which is kept for it.
    told: bool,
    /// It has moved since the selection that is open began.
    moved: bool,
}

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = if self.told { "-" } else { "" };
        write!(f, "{}:{:?}{told}{}", self.position, self.share, if self.moved { "'" } else { "" })
    }
}

/// What a queue has to say after a step.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) news: Vec<News>,
    /// Who did what no honest user does.
    pub(crate) wrong: Vec<(UserId, &'static str)>,
}

impl Answers {
    /// Passes everything on to users.
    pub(crate) fn send<P: Protocol, T>(
        self,
        wrap: impl Fn(News) -> P::ToUser,
        out: &mut Outbox<P, T>,
    ) {
        for news in self.news {
            if let News::Marked { positions, .. } = &news {
                out.tally("marked", positions.len() as u64);
            }
            out.to_user(news.request().user, wrap(news));
        }
        for (user, what) in self.wrong {
            out.misbehaved(Addr::User(user), what);
        }
    }
}

impl Queue {
    pub(crate) fn new(capacity: u32) -> Self {
        Self {
            capacity,
            standing: Vec::new(),
            selecting: Vec::new(),
            early: EarlyReleases::default(),
        }
    }

    pub(crate) fn is_selecting(&self) -> bool {
        !self.selecting.is_empty()
    }

    pub(crate) fn is_selected_by(&self, request: RequestId) -> bool {
        self.selecting.iter().any(|share| share.request == request)
    }

    pub(crate) fn stands(&self, request: RequestId) -> bool {
        self.place_of(request).is_some()
    }

    /// Whether a request may come to this queue: it fits into the pool, and is not there already.
    pub(crate) fn admits(&self, share: Share) -> bool {
        let there = |request| self.is_selected_by(request) || self.stands(request);
        (1..=self.capacity).contains(&share.units) && !there(share.request)
    }

    /// Whether the request that comes now was released before; that is then forgotten.
    pub(crate) fn was_released(&mut self, request: RequestId) -> bool {
        self.early.take(request)
    }

    /// Whether a move came after the release of its request, and will never change anything: whoever
    /// selects or advances was told before that it may, and is here until it is released.
    pub(crate) fn is_over(&self, step: &Move) -> bool {
        let here = |request| self.requests().any(|other| other == request);
        !matches!(step, Move::Release(_)) && !here(step.request())
    }

    /// Figure 5, lines 02 to 04: opens a selection and tells which positions are marked, unless the
    /// request was released before.
    pub(crate) fn open(&mut self, rules: QueueRules, share: Share, answers: &mut Answers) {
        if self.was_released(share.request) {
            return;
        }
        let full = |position: &u32| {
            let behind = if rules.behind { self.standing_at(*position + 1) } else { 0 };
            self.standing_at(*position) + behind + u64::from(share.units) > self.room()
        };
        let near = self.standing.iter().flat_map(|s| [s.position - 1, s.position]);
        let mut positions: Vec<u32> = near.filter(|p| *p > 0).filter(full).collect();
        positions.sort_unstable();
        positions.dedup();
        answers.news.push(News::Marked { request: share.request, positions });
        self.selecting.push(share);
    }

    /// Figure 5, lines 05 to 15. `granting` is whether position 1 is told of.
    pub(crate) fn make(
        &mut self,
        rules: QueueRules,
        granting: bool,
        step: &Move,
        answers: &mut Answers,
    ) {
        let done = match *step {
            Move::Select { request, position } => self.select(request, position),
            Move::Advance { request, from } => self.advance(request, from),
            Move::Release(request) => {
                self.release(rules, request);
                Ok(0)
            }
        };
        match done {
            Ok(1) if granting => answers.news.push(News::Grant(step.request())),
            Ok(_) => {}
            Err(what) => answers.wrong.push((step.request().user, what)),
        }
        self.sweep(rules, &mut answers.news);
    }

    /// Ends a selection; returns where it led, or 0 if the request has left already.
    fn select(&mut self, request: RequestId, position: u32) -> Result<u32, &'static str> {
        let Some(at) = self.selecting.iter().position(|share| share.request == request) else {
            return Ok(0); // Its release overtook it.
        };
        if position == 0 || position == u32::MAX {
            return Err("select: there is no such position");
        }
        let units = u64::from(self.selecting[at].units);
        if self.taken_at(position) + units > self.room() {
            return Err("select: a position that was marked");
        }
        let share = self.close(at);
        self.stand(Standing { share, position, told: false, moved: false });
        Ok(position)
    }

    /// Moves a request up; returns where to, or 0 if it has left already.
    fn advance(&mut self, request: RequestId, from: u32) -> Result<u32, &'static str> {
        let Some(at) = self.place_of(request) else {
            return Ok(0); // Its release overtook it.
        };
        let standing = self.standing[at];
        if standing.position != from || !standing.told {
            return Err("Q3: advance only from where one stands and was told");
        }
        self.standing.remove(at);
        let moved = self.is_selecting();
        self.stand(Standing { position: from - 1, told: false, moved, ..standing });
        Ok(from - 1)
    }

    fn release(&mut self, rules: QueueRules, request: RequestId) {
        if let Some(at) = self.selecting.iter().position(|share| share.request == request) {
            self.close(at);
        } else if let Some(at) = self.place_of(request) {
            self.standing.remove(at);
        } else if rules.early {
            self.early.remember(request);
        }
    }

    /// Whoever is certainly gone loses its place.
    pub(crate) fn forget(&mut self, rules: QueueRules, who: Party, answers: &mut Answers) {
        while let Some(at) = self.selecting.iter().position(|s| who.includes(s.request.user)) {
            self.close(at);
        }
        self.standing.retain(|s| !who.includes(s.share.request.user));
        self.early.forget(who);
        self.sweep(rules, &mut answers.news);
    }

    fn close(&mut self, at: usize) -> Share {
        self.standing.iter_mut().for_each(|standing| standing.moved = false);
        self.selecting.remove(at)
    }

    fn stand(&mut self, new: Standing) {
        let at = self.standing.partition_point(|s| s.position <= new.position);
        self.standing.insert(at, new);
    }

    /// Figure 5, lines 16 to 24 and 31 to 33.
    fn sweep(&mut self, rules: QueueRules, news: &mut Vec<News>) {
        while let Some(at) = self.next_to_tell(rules) {
            let standing = &mut self.standing[at];
            standing.told = true;
            news.push(News::Dec { request: standing.share.request, from: standing.position });
        }
    }

    /// The first who is to be told of room before it. Whoever waits at a position keeps those who
    /// came there later from passing.
    fn next_to_tell(&self, rules: QueueRules) -> Option<usize> {
        let mut held_up = 0;
        for (at, standing) in self.standing.iter().enumerate() {
            let Standing { share, position, told, moved } = *standing;
            if told || position < 2 && rules.front || position == held_up {
                continue;
            }
            let fits = self.taken_at(position - 1) + u64::from(share.units) <= self.room();
            if fits && !(moved && rules.frozen) {
                return Some(at);
            }
            if rules.turn {
                held_up = position;
            }
        }
        None
    }

    /// The units of those at a position.
    fn standing_at(&self, position: u32) -> u64 {
        self.at(position).map(|s| u64::from(s.share.units)).sum()
    }

    /// The units of those at a position, and of those for whom room is kept there.
    fn taken_at(&self, position: u32) -> u64 {
        let kept = self.at(position + 1).filter(|s| s.told).map(|s| u64::from(s.share.units));
        self.standing_at(position) + kept.sum::<u64>()
    }

    fn at(&self, position: u32) -> impl Iterator<Item = &Standing> {
        let from = self.standing.partition_point(|s| s.position < position);
        self.standing[from..].iter().take_while(move |s| s.position == position)
    }

    fn room(&self) -> u64 {
        u64::from(self.capacity)
    }

    fn place_of(&self, request: RequestId) -> Option<usize> {
        self.standing.iter().position(|s| s.share.request == request)
    }

    /// Who stands where.
    pub(crate) fn positions(&self) -> impl Iterator<Item = (RequestId, u32)> {
        self.standing.iter().map(|s| (s.share.request, s.position))
    }

    /// Who is in the queue, or selects.
    pub(crate) fn requests(&self) -> impl Iterator<Item = RequestId> {
        self.selecting.iter().chain(self.standing.iter().map(|s| &s.share)).map(|s| s.request)
    }

    pub(crate) fn check(&self, rules: QueueRules) -> Result<(), Broken> {
        let fits = |standing: &Standing| self.taken_at(standing.position) <= self.room();
        Broken::unless(self.standing.iter().all(fits), "Q1: a position has room for all at it")?;
        let kept = |s: &Standing| s.position < 2 || self.taken_at(s.position - 1) <= self.room();
        Broken::unless(self.standing.iter().all(kept), "Q2: room is kept for whoever was told")?;
        let told = self.next_to_tell(rules).is_none();
        Broken::unless(told, "Q2: whoever has room before it is told")?;
        Broken::unless(self.standing.iter().all(|s| s.position > 0), "there is no position 0")
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.standing.is_empty() && self.selecting.is_empty() && self.early.is_empty()
    }
}
