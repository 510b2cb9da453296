//! The queue as it is, from what happens in an agent: who waits and who holds what, and what came of those before.
//!
//! It follows the events of the agent, on any thread, and asks it nothing. What it remembers is bounded, but for those who wait
//! and hold, which the agent bounds.

mod outset;
mod pools;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use holdall_wire::event::What as Happened;
use holdall_wire::{Ask, Change, Lasting, Need, RequestNo, Taken, Who};
use rustc_hash::FxHashSet;

pub use self::outset::{Outset, Unknown};
use self::pools::Pools;
use super::backtest::LEAD_MAX;
use super::past::{Kind, Past};
use crate::clock::{from_to, was_set_back};
use crate::line::{Line, What};

/// A request that waits, as the books have it. There may be a million: of these nothing is copied.
#[derive(Clone, Debug)]
struct Waiting {
    who: Arc<Who>,
    ask: Arc<Ask>,
    /// When, in milliseconds since 1970.
    asked: u64,
}

/// A request that holds, or whatever is to be played. Times are milliseconds since 1970.
#[derive(Clone, Debug)]
struct Open {
    needs: Arc<[Need]>,
    kind: Arc<Kind>,
    asked: u64,
    /// When it was granted, and what.
    held: Option<(u64, Arc<[Taken]>)>,
    /// How long it lasts from its grant on, if that is known, and how long at most.
    lasts: Option<u64>,
    limit: Option<u64>,
}

/// A request that is over.
#[derive(Clone, Debug)]
struct Over {
    open: Open,
    ended: u64,
}

/// The queue, and what came before.
#[derive(Clone, Debug, Default)]
pub struct Live {
    anonymous: bool,
    pools: Pools,
    waiting: BTreeMap<RequestNo, Waiting>,
    /// Whoever has asked last, who may be granted at once.
    newest: Option<(RequestNo, Open)>,
    held: BTreeMap<RequestNo, Open>,
    /// Those who wait and were told when to expect their grants.
    told: BTreeSet<RequestNo>,
    /// Those that ended last, in that order, and when the last one ended that is forgotten.
    recent: VecDeque<Over>,
    forgotten: u64,
    /// Something happened that is not known: who waits and holds may do so no more.
    lost_track: bool,
    past: Past<Arc<[Need]>>,
    /// Requests of former times that had not ended, while these are read, and the time of the last line.
    former: BTreeMap<RequestNo, (Arc<Kind>, Option<u64>)>,
    line: u64,
    /// How often the clock was set.
    clock_sets: u64,
    /// What requests were called lately: most are called alike.
    labels: FxHashSet<Arc<str>>,
}

/// So many of those are kept.
const LABELS: usize = 1000;

/// Of so many requests of former times it is not forgotten that they have not ended.
const FORMER: usize = 100_000;

impl Live {
    /// One that tells nobody apart, or does.
    pub fn new(anonymous: bool) -> Self {
        Self { anonymous, ..Self::default() }
    }

    /// Whether somebody waits.
    pub fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes in a line of former times; they come in order, after what [stands](Live::stands), and before anything happens
    /// ([`Live::has_remembered`]).
    pub fn remember(&mut self, line: Line) {
        // What is told with them may be that the clock was set before.
        if matches!(line.what, What::Begin { .. } | What::Mark(_)) {
            return;
        }
        // Agents of former versions did not tell that the clock was set. A leap forward that is taken back stays one here: what
        // was before it only seems to be longer ago.
        if was_set_back(self.line, line.at) && !matches!(line.what, What::Clock { .. }) {
            self.move_former(from_to(self.line, line.at));
        }
        self.line = line.at;
        match line.what {
            What::Clock { by } => self.move_former(by),
            What::Ask(ask) if ask.part_of.is_none() => {
                let label = ask.name.or(ask.command).map(Into::into);
                let pools = self.pools.of_all(&ask.needs);
                let kind = Arc::new(Kind { label, user: ask.user.map(Into::into), pools });
                // As what happens: whoever was turned away, or would not wait, does not come in what is played.
                let Some(r) = ask.r else { return };
                if !ask.now {
                    self.past.ask(line.at, ask.needs.into(), kind.clone());
                }
                if self.former.len() < FORMER {
                    self.former.insert(r, (kind, None));
                }
            }
            What::Grant(grant) => {
                if let Some((_, granted)) = self.former.get_mut(&grant.r) {
                    *granted = Some(line.at);
                }
            }
            What::End { r, .. } => {
                if let Some((kind, Some(granted))) = self.former.remove(&r) {
                    self.past.add(&kind, line.at.saturating_sub(granted));
                }
            }
            What::Expect(expect) if self.waiting.contains_key(&expect.r) => {
                self.told.insert(expect.r);
            }
            _ => {}
        }
    }

    /// The clock was set when these lines were written: former times are as long ago as before.
    fn move_former(&mut self, by: i64) {
        self.past.clock_set(by);
        let granted = self.former.values_mut().filter_map(|(_, granted)| granted.as_mut());
        granted.for_each(|at| *at = at.saturating_add_signed(by));
    }

    /// The clock was set: everything is as long ago as before.
    fn clock_set(&mut self, by: i64) {
        self.clock_sets += 1;
        self.past.clock_set(by);
        let over = self.recent.iter_mut().map(|over| {
            over.ended = over.ended.saturating_add_signed(by);
            &mut over.open
        });
        self.waiting.values_mut().for_each(|one| one.asked = one.asked.saturating_add_signed(by));
        let newest = self.newest.iter_mut().map(|(_, open)| open);
        for open in over.chain(newest).chain(self.held.values_mut()) {
            open.asked = open.asked.saturating_add_signed(by);
            if let Some((granted, _)) = &mut open.held {
                *granted = granted.saturating_add_signed(by);
            }
        }
        self.forgotten = self.forgotten.saturating_add_signed(by);
        self.pools.clock_set(by);
    }

    /// This stands already: it happened before, and is remembered or not.
    pub fn stands(&mut self, at: u64, what: &Happened) {
        self.take(at, what);
    }

    /// How often the clock was set: what was told before then is of another clock.
    pub fn clock_sets(&self) -> u64 {
        self.clock_sets
    }

    /// There are no more lines of former times. If it is earlier now than they say, the clock was set back since. Who has held
    /// something before now, and does so no more, is not known: only what is asked for from now on is played as it was.
    pub fn has_remembered(&mut self, now: u64) {
        self.forgotten = self.forgotten.max(now);
        if was_set_back(self.line, now) {
            self.move_former(from_to(self.line, now));
        }
        self.former = BTreeMap::new();
    }

    /// Something happened that nobody can tell: nothing is said of who waits until that is [known](Live::find_again).
    pub fn lose_track(&mut self) {
        self.lost_track = true;
        self.pools = Pools::default();
        (self.waiting, self.newest, self.held) = Default::default();
        self.recent = VecDeque::new();
    }

    /// This is how it stands now. What happened just before may still be told.
    pub fn find_again(&mut self, now: u64, standing: &[(u64, Happened)]) {
        self.lose_track();
        (self.lost_track, self.forgotten) = (false, now);
        standing.iter().for_each(|(at, what)| self.stands(*at, what));
        self.told.retain(|request| self.waiting.contains_key(request));
    }

    /// Something happens.
    pub fn happens(&mut self, at: u64, what: &Happened) {
        // The past is known all the same.
        if let Happened::ClockSet { by } = what {
            return self.clock_set(*by);
        }
        if self.lost_track {
            return;
        }
        if let Happened::Asked { request, who, ask } = what
            && !ask.now
            && ask.part.is_none()
        {
            self.know_label(who);
            self.take(at, what);
            if let Some(open) = self.waiting.get(request).map(|waiting| self.open_of(waiting)) {
                self.past.ask(at, open.needs.clone(), open.kind.clone());
                self.newest = Some((*request, open));
            }
            return;
        }
        if let Some((kind, length)) = self.take(at, what) {
            self.past.add(&kind, length);
        }
    }

    /// Keeps up with what happens. Returns the kind and the length of the use that is over by it.
    fn take(&mut self, at: u64, what: &Happened) -> Option<(Arc<Kind>, u64)> {
        match what {
            Happened::Asked { request, who, ask } if ask.part.is_none() => {
                let waiting = Waiting { who: who.clone(), ask: ask.clone(), asked: at };
                self.waiting.insert(*request, waiting);
            }
            Happened::Granted { request, taken, until, limit, .. } => {
                let mut open = self.waits_no_more(*request)?;
                open.held = Some((at, taken.clone()));
                open.lasts = until.map(|until| until.saturating_sub(at));
                open.limit = limit.map(|limit| limit.saturating_sub(at));
                self.held.insert(*request, open);
            }
            Happened::Restored { request, who, needs, taken, since, until } => {
                let lasts = until.map(|until| until.saturating_sub(*since));
                let mut open = self.open(*since, who, needs, lasts, None);
                open.held = Some((*since, taken.clone()));
                self.held.insert(*request, open);
            }
            Happened::Renewed { request, until, .. } => {
                let open = self.held.get_mut(request)?;
                let (granted, _) = open.held.as_ref()?;
                open.lasts = Some(until.saturating_sub(*granted));
            }
            Happened::Ended { request, .. } => {
                let open = self.held.remove(request)?;
                return self.is_over(open, at);
            }
            Happened::Refused { request, .. } => {
                let open = self.waits_no_more(*request)?;
                return self.is_over(open, at);
            }
            Happened::Pool { name, kind, .. } => self.pools.tell(name, kind.as_ref()),
            Happened::Changed { change: Change::Drain { name, drained }, .. } => {
                self.pools.drain(name, drained.until);
            }
            Happened::Changed { change: Change::Undrain { name }, .. } => self.pools.undrain(name),
            _ => {}
        }
        None
    }

    /// What somebody calls its request, if it calls it something.
    fn label<'a>(&self, who: &'a Who) -> Option<&'a str> {
        let command = Some(who.from.command.as_str()).filter(|command| !command.is_empty());
        who.from.name.as_deref().or(command).filter(|_| !self.anonymous)
    }

    /// From now on all who call their requests like this share the text.
    fn know_label(&mut self, who: &Who) {
        let Some(label) = self.label(who).filter(|label| !self.labels.contains(*label)) else {
            return;
        };
        if self.labels.len() >= LABELS {
            self.labels.clear();
        }
        self.labels.insert(label.into());
    }

    fn open_of(&self, Waiting { who, ask, asked }: &Waiting) -> Open {
        self.open_asked(*asked, who, ask)
    }

    fn open_asked(&self, asked: u64, who: &Who, ask: &Ask) -> Open {
        let lasts = match ask.lasting {
            Lasting::Reservation(millis) => Some(millis),
            _ => None,
        };
        self.open(asked, who, &ask.needs.as_slice().into(), lasts, ask.limit)
    }

    fn open(
        &self,
        asked: u64,
        who: &Who,
        needs: &Arc<[Need]>,
        lasts: Option<u64>,
        limit: Option<u64>,
    ) -> Open {
        let pools = self.pools.of_all(needs);
        let shared = |label: &str| self.labels.get(label).cloned().unwrap_or_else(|| label.into());
        let label = self.label(who).map(shared);
        let user = Some(who.user.clone()).filter(|_| !self.anonymous);
        let kind = Arc::new(Kind { label, user, pools });
        Open { needs: needs.clone(), kind, asked, held: None, lasts, limit }
    }

    fn waits_no_more(&mut self, request: RequestNo) -> Option<Open> {
        self.told.remove(&request);
        let waiting = self.waiting.remove(&request)?;
        let newest = self.newest.take_if(|(newest, _)| *newest == request);
        Some(newest.map_or_else(|| self.open_of(&waiting), |(_, open)| open))
    }

    fn is_over(&mut self, open: Open, ended: u64) -> Option<(Arc<Kind>, u64)> {
        if self.recent.len() == LEAD_MAX {
            let forgotten = self.recent.pop_front().map_or(0, |over| over.ended);
            self.forgotten = self.forgotten.max(forgotten);
        }
        let used = open.held.as_ref();
        let used = used.map(|(granted, _)| (open.kind.clone(), ended.saturating_sub(*granted)));
        self.recent.push_back(Over { open, ended });
        used
    }

    /// How long the use will probably take of what somebody asks for of several cells, and how long such a use does on average.
    /// If former ones do not tell, a reservation takes as long as it lasts, and all else as long as any: a request that says
    /// nothing counts in another measure.
    pub fn foresees(&self, who: &Who, ask: &Ask) -> Option<(u64, u64)> {
        let Open { kind, lasts, limit, .. } = self.open_asked(0, who, ask);
        if !kind.spans_cells() {
            return None;
        }
        let typical = self.past.typical()?;
        let most = lasts.unwrap_or(u64::MAX).min(limit.unwrap_or(u64::MAX));
        Some((self.past.usual(&kind).or(lasts).unwrap_or(typical).min(most), typical))
    }

    /// Whether this is the first time that a request that waits is told when to expect its grant; and whose it is.
    pub fn is_told_first(&mut self, request: RequestNo) -> Option<&str> {
        let waiting = self.waiting.get(&request)?;
        self.told.insert(request).then_some(&*waiting.who.user)
    }
}
