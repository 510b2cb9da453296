//! Label l4: which items belong to whom, as far as that is certain.
//!
//! Fig. 3's rule: find the largest frame, two posted snapshots Low and High such that this
//! processor is in High but not in Low and all of High \ Low have posted their items; announce the
//! items of that range. What it looks at is written once, so a plain collect suffices, also for
//! single use. Fig. 2's own rule needs an atomic snapshot of the memory: errata D3. What it looks
//! at, whether a processor takes part and which item it posted, changes once each, so two equal
//! collects in a row are one.

use std::fmt::Debug;
use std::hash::Hash;
use std::marker::PhantomData;

use super::enter::Enter;
use super::growth::Growth;
use super::ids::Ids;
use crate::machine::{Access, Machine};

/// A way to say at l4 who gets what.
///
/// ```
/// use holdall_assign::paper::{AsPrinted, Biggest, Framed, Announcing};
///
/// assert!(Framed::FRAMES && Framed::SMALLEST);
/// assert!(!AsPrinted::FRAMES && !Biggest::SMALLEST);
/// ```
pub trait Announcing: Copy + Debug + Default + Eq + Hash + Send + 'static {
    /// Frames of posted snapshots, as in Fig. 3; or all participants, as in Fig. 2.
    const FRAMES: bool = true;
    /// The i-th free item goes to who posted the i-th smallest item; or the i-th biggest.
    const SMALLEST: bool = true;
    /// Collect until two in a row are equal.
    const ATOMIC: bool = false;
}

/// As it should be: Fig. 3's rule.
///
/// ```
/// use holdall_assign::explore::{AssignmentModel, AssignmentScope, Settings, explore};
/// use holdall_assign::paper::Framed;
///
/// let scope = AssignmentScope { ops: vec![1, 1], growth: None, as_printed: false };
/// let found = explore(&AssignmentModel::<Framed>::new(&scope), &Settings::default());
/// assert!(found.violation.is_none());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Framed;
impl Announcing for Framed {}

/// Fig. 2's rule, on a plain collect: wrong with three processors.
///
/// ```
/// use holdall_assign::explore::{AssignmentModel, AssignmentScope, Settings, explore};
/// use holdall_assign::paper::AsPrinted;
///
/// let scope = AssignmentScope { ops: vec![1, 1, 1], growth: None, as_printed: false };
/// let found = explore(&AssignmentModel::<AsPrinted>::new(&scope), &Settings::default());
/// assert!(found.violation.is_some());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AsPrinted;
impl Announcing for AsPrinted {
    const FRAMES: bool = false;
}

/// Fig. 2 as it is meant, on an atomic snapshot. Used for more than one operation each it is the
/// long-lived version before its optimization: one that stops holds up items without bound.
///
/// ```
/// use holdall_assign::explore::{AssignmentModel, AssignmentScope, Settings, explore};
/// use holdall_assign::paper::Atomic;
///
/// let scope = AssignmentScope { ops: vec![1, 1], growth: None, as_printed: false };
/// let found = explore(&AssignmentModel::<Atomic>::new(&scope), &Settings::default());
/// assert!(found.violation.is_none());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Atomic;
impl Announcing for Atomic {
    const FRAMES: bool = false;
    const ATOMIC: bool = true;
}

/// The rank the paper's text names ("ith biggest"): wrong with three processors.
///
/// ```
/// use holdall_assign::explore::{AssignmentModel, AssignmentScope, Settings, explore};
/// use holdall_assign::paper::Biggest;
///
/// let scope = AssignmentScope { ops: vec![1, 1, 1], growth: None, as_printed: false };
/// let found = explore(&AssignmentModel::<Biggest>::new(&scope), &Settings::default());
/// assert!(found.violation.is_some());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Biggest;
impl Announcing for Biggest {
    const SMALLEST: bool = false;
}

/// One identity's announcement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Announce<S = Framed> {
    ids: Ids,
    growth: Growth,
    me: usize,
    at: At,
    /// By identity: the snapshot posted (Fig. 2: whether it takes part), and the item.
    posted: Vec<u64>,
    items: Vec<u64>,
    /// The collect before, if two in a row must be equal.
    before: Vec<u64>,
    /// The frame found: who had posted. For Fig. 2 the smaller set is empty.
    frame: Option<(u64, u64)>,
    /// What is certain: item and identity, by item.
    said: Vec<(u64, usize)>,
    saying: PhantomData<S>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Ask(usize),
    Posted(usize),
    Item(usize),
    Done,
}

impl<S: Announcing> Announce<S> {
    /// What an identity that has its first item says next.
    pub(crate) fn new(entered: &Enter, ids: Ids, growth: &Growth, me: usize) -> Self {
        let (mut posted, mut items) = (vec![0; ids.all()], vec![0; ids.all()]);
        posted[me] = entered.seen;
        items[me] = entered.item;
        let growth = growth.clone();
        let (at, before, said) = (At::Ask(0), Vec::new(), Vec::new());
        let saying = PhantomData;
        Self { ids, growth, me, at, posted, items, before, frame: None, said, saying }
    }

    /// The frame in which all had posted, once it has looked.
    pub(crate) fn frame(&self) -> Option<(u64, u64)> {
        self.frame
    }

    /// Whether this collect is as the one before; if not, there is to be another.
    fn same_twice(&mut self) -> bool {
        let takes_part = |posted: &u64| u64::from(*posted != 0);
        let now = self.posted.iter().map(takes_part).chain(self.items.iter().copied()).collect();
        let before = std::mem::replace(&mut self.before, now);
        before == self.before
    }

    /// The items that are certain, with the identity each belongs to.
    pub(crate) fn said(&self) -> &[(u64, usize)] {
        &self.said
    }

    /// This identity's own first item.
    pub(crate) fn first(&self) -> Option<u64> {
        self.items.get(self.me).copied()
    }

    /// Whose posts it is about to read.
    pub(crate) fn asks(&self) -> Option<usize> {
        match self.at {
            At::Posted(q) | At::Item(q) => Some(q),
            At::Ask(_) | At::Done => None,
        }
    }

    /// Whether it may yet look at what `id` posts.
    pub(crate) fn may_look(&self, id: usize) -> bool {
        self.asks().is_some_and(|q| q <= id)
    }

    fn conclude(&mut self) {
        if S::ATOMIC && !self.same_twice() {
            self.at = At::Ask(0);
            return;
        }
        let frame = if S::FRAMES { self.largest_frame() } else { self.participants() };
        self.said = match frame {
            Some((low, high)) => self.assign(low, high),
            None => vec![(self.items[self.me], self.me)],
        };
        self.frame = frame;
        // Only what was said matters from here on.
        self.posted.clear();
        self.items.clear();
        self.before.clear();
        self.at = At::Done;
    }

    fn largest_frame(&self) -> Option<(u64, u64)> {
        let mut chain: Vec<u64> = self.posted.clone();
        chain.push(0);
        chain.sort_unstable_by_key(|seen| seen.count_ones());
        chain.dedup();
        let mut best = None;
        for &low in chain.iter().filter(|low| **low >> self.me & 1 == 0) {
            for &high in chain.iter().filter(|high| **high >> self.me & 1 == 1) {
                let between = high & !low;
                let size = between.count_ones();
                if self.all_posted(between) && best.is_none_or(|(most, _)| size > most) {
                    best = Some((size, (low, high)));
                }
            }
        }
        best.map(|(_, frame)| frame)
    }

    /// Fig. 2: everybody who takes part, if all have posted.
    fn participants(&self) -> Option<(u64, u64)> {
        let part = |set: u64, q: usize| set | u64::from(self.posted[q] != 0) << q;
        let all = (0..self.ids.all()).fold(0, part);
        self.all_posted(all).then_some((0, all))
    }

    fn all_posted(&self, set: u64) -> bool {
        (0..self.ids.all()).all(|q| set >> q & 1 == 0 || self.items[q] != 0)
    }

    /// The operator Assign. An item posted belongs to who posted it. The free ones are counted
    /// through from the very first item: all up to f(|Low|) but |Low| are free, whoever took which.
    /// Positions whose rank is within Low belong to members of Low, and are not said here.
    fn assign(&self, low: u64, high: u64) -> Vec<(u64, usize)> {
        let members = (0..self.ids.all()).filter(|q| (high & !low) >> q & 1 == 1);
        let mut posters: Vec<_> = members.map(|q| (self.items[q], q)).collect();
        posters.sort_unstable();
        let ranked: Vec<_> = match S::SMALLEST {
            true => posters.clone(),
            false => posters.iter().rev().copied().collect(),
        };
        let before = low.count_ones() as usize;
        let start = self.growth.at(before);
        let mut position = start - before as u64;
        let mut said = Vec::new();
        for item in start + 1..=self.growth.at(high.count_ones() as usize) {
            if let Some(poster) = posters.iter().find(|(posted, _)| *posted == item) {
                said.push(*poster);
                continue;
            }
            position += 1;
            let rank = self.growth.rank(position);
            let within = rank.checked_sub(before + 1).and_then(|r| ranked.get(r));
            said.extend(within.map(|(_, q)| (item, *q)));
        }
        said
    }
}

impl<S: Announcing> Machine for Announce<S> {
    fn step(&mut self, read: u64) -> Access {
        loop {
            match self.at {
                At::Ask(q) if q == self.ids.all() => self.conclude(),
                At::Ask(q) if q == self.me => self.at = At::Ask(q + 1),
                At::Ask(q) => {
                    self.at = At::Posted(q);
                    let part = self.ids.level(q, 0);
                    let slot = if S::FRAMES { self.ids.posted(q) } else { part };
                    return Access::Get { owner: self.ids.owner(q), slot };
                }
                // Who has not posted a snapshot has not posted an item.
                At::Posted(q) if read == 0 => self.at = At::Ask(q + 1),
                At::Posted(q) => {
                    self.posted[q] = read;
                    self.at = At::Item(q);
                    return Access::Get { owner: self.ids.owner(q), slot: self.ids.item(q) };
                }
                At::Item(q) => {
                    self.items[q] = read;
                    self.at = At::Ask(q + 1);
                }
                At::Done => return Access::Done,
            }
        }
    }
}
