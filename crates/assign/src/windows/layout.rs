//! Which register is where, and how the words in them are packed.

use std::ops::Range;

use thiserror::Error;

/// Registers before the first one that is not read in every operation: a worker's [`Sign`] has
/// the first pair of cache lines for itself.
const APART: usize = 16;

/// The most workers: sets of them are bits of one word.
///
/// ```
/// use holdall_assign::windows::{Layout, WORKERS_MAX};
///
/// assert!(Layout::new(WORKERS_MAX, 16, 1).is_ok());
/// assert!(Layout::new(WORKERS_MAX + 1, 16, 1).is_err());
/// ```
pub const WORKERS_MAX: usize = 64;

/// The largest batch: items are numbered with 64 bits, and their numbers must last.
///
/// ```
/// use holdall_assign::windows::{BATCH_MAX, Layout};
///
/// assert!(Layout::new(2, 16, BATCH_MAX).is_ok());
/// assert!(Layout::new(2, 16, BATCH_MAX + 1).is_err());
/// ```
pub const BATCH_MAX: u64 = 1 << 20;

/// The sizes of an assigner; all its workers must agree on them.
///
/// ```
/// let layout = holdall_assign::windows::Layout::new(3, 16, 10)?;
/// assert_eq!((layout.workers(), layout.ring(), layout.batch()), (3, 16, 10));
/// # Ok::<(), holdall_assign::windows::BadLayout>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    workers: usize,
    ring: usize,
    batch: u64,
    trail: u8,
}

/// Sizes that cannot be.
///
/// ```
/// use holdall_assign::windows::{BadLayout, Layout};
///
/// assert_eq!(Layout::new(0, 16, 1), Err(BadLayout::Workers(0)));
/// assert_eq!(Layout::new(2, 15, 1), Err(BadLayout::Ring(15)));
/// assert_eq!(Layout::new(2, 16, 0), Err(BadLayout::Batch(0)));
/// ```
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum BadLayout {
    /// A batch without items, or too large a one.
    #[error("a batch of {0} items: there must be 1 to {BATCH_MAX}")]
    Batch(u64),
    /// A ring that is no power of two, or too small.
    #[error("a ring of {0} windows: it must be a power of two, at least 2")]
    Ring(usize),
    /// Too few or too many workers.
    #[error("{0} workers: there must be 1 to {WORKERS_MAX}")]
    Workers(usize),
}

impl Layout {
    /// Sizes for `workers` workers that remember `ring` windows and take `batch` items at a time.
    ///
    /// ```
    /// assert!(holdall_assign::windows::Layout::new(3, 16, 10).is_ok());
    /// ```
    ///
    /// # Errors
    /// If a size is out of range.
    pub fn new(workers: usize, ring: usize, batch: u64) -> Result<Self, BadLayout> {
        if !(1..=WORKERS_MAX).contains(&workers) {
            return Err(BadLayout::Workers(workers));
        }
        if !ring.is_power_of_two() || ring < 2 {
            return Err(BadLayout::Ring(ring));
        }
        if !(1..=BATCH_MAX).contains(&batch) {
            return Err(BadLayout::Batch(batch));
        }
        let trail = (ring - 1).min(u8::BITS as usize) as u8;
        Ok(Self { workers, ring, batch, trail })
    }

    /// How many workers share the items.
    ///
    /// ```
    /// let layout = holdall_assign::windows::Layout::new(3, 16, 10)?;
    /// assert_eq!(layout.workers(), 3);
    /// # Ok::<(), holdall_assign::windows::BadLayout>(())
    /// ```
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// How many windows each worker remembers without saving.
    ///
    /// ```
    /// let layout = holdall_assign::windows::Layout::new(3, 16, 10)?;
    /// assert_eq!(layout.ring(), 16);
    /// # Ok::<(), holdall_assign::windows::BadLayout>(())
    /// ```
    pub fn ring(&self) -> usize {
        self.ring
    }

    /// How many items are taken at a time.
    ///
    /// ```
    /// let layout = holdall_assign::windows::Layout::new(3, 16, 10)?;
    /// assert_eq!(layout.batch(), 10);
    /// # Ok::<(), holdall_assign::windows::BadLayout>(())
    /// ```
    pub fn batch(&self) -> u64 {
        self.batch
    }

    /// How many registers each worker needs.
    ///
    /// ```
    /// use holdall_assign::registers::Atomics;
    ///
    /// let layout = holdall_assign::windows::Layout::new(3, 16, 10)?;
    /// let memory = Atomics::new(layout.workers(), layout.slots());
    /// # Ok::<(), holdall_assign::windows::BadLayout>(())
    /// ```
    pub fn slots(&self) -> usize {
        self.saved(0) + self.saved_len()
    }

    /// What a worker shows to everybody: its [`Sign`].
    pub(crate) const SIGN: usize = 0;

    /// The last window given away to `to`.
    pub(crate) fn gift(&self, to: usize) -> usize {
        APART + to
    }

    /// The last window taken from `from`.
    pub(crate) fn taken(&self, from: usize) -> usize {
        APART + self.workers + from
    }

    /// Windows entered of which the absent ones are not all known.
    pub(crate) fn open(&self, k: usize) -> usize {
        APART + 2 * self.workers + k
    }

    /// After an operation at most n+1 windows are open: those before the last one of which its
    /// look left some open (each other worker holds up one at most), that last one, and the new
    /// one. An operation adds one, or two if it gives one away, and reuses no place that it has
    /// itself marked closed.
    pub(crate) fn open_len(&self) -> usize {
        self.workers + 3
    }

    /// That a window was entered: its number, in the place it has in the ring.
    ///
    /// ```
    /// use holdall_assign::registers::{Atomics, Memory, Registers};
    ///
    /// let layout = holdall_assign::windows::Layout::new(2, 16, 1)?;
    /// let memory = Atomics::new(2, layout.slots());
    /// holdall_assign::Assigner::over(layout, memory.clone()).worker(1)?.next();
    /// assert_eq!(memory.handle(0)?.get(1, layout.record(1)), Ok(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn record(&self, window: u64) -> usize {
        self.open(self.open_len()) + self.place(window)
    }

    /// How many windows before its own a sign tells of: those whose places in the ring nothing
    /// later has taken, so that a worker that starts again knows them too.
    #[inline]
    pub(crate) fn trail(&self) -> u64 {
        self.trail.into()
    }

    /// The place of a window in the ring.
    pub(crate) fn place(&self, window: u64) -> usize {
        // The remainder is below `ring`, which is a usize.
        (window & (self.ring as u64 - 1)) as usize
    }

    /// Windows entered long ago that somebody still has open.
    pub(crate) fn saved(&self, k: usize) -> usize {
        self.open(self.open_len()) + self.ring + k
    }

    /// What the others can need: the window on each one's sign, and its open ones.
    pub(crate) fn saved_len(&self) -> usize {
        (self.workers - 1) * (1 + self.open_len())
    }

    /// The number of the lot that worker `seat` has in a window.
    pub(crate) fn lot(&self, window: u64, seat: usize) -> u64 {
        (window - 1) * self.workers as u64 + seat as u64
    }

    /// The items of a lot.
    pub(crate) fn items(&self, lot: u64) -> Range<u64> {
        lot * self.batch..(lot + 1) * self.batch
    }

    /// The items of a window.
    pub(crate) fn window_items(&self, window: u64) -> Range<u64> {
        self.items(self.lot(window, 0)).start..self.items(self.lot(window + 1, 0)).start
    }
}

/// What a worker does about the window on its sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It entered that window, and no later one.
    Entered,
    /// It wants to enter it; the window before is the last it entered.
    Next,
    /// It wants to enter it, having seen that somebody did; what it entered last is older.
    Jump,
}

/// The register every worker reads of every other in every operation: a window, what is done
/// about it, whether help is wanted, and which windows just before it were entered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Sign(pub(crate) u64);

impl Sign {
    const NEXT: u64 = 1;
    const JUMP: u64 = 2;
    const HUNGRY: u64 = 4;
    const TRAIL: u32 = 3;
    const WINDOW: u32 = Self::TRAIL + u8::BITS;

    #[inline]
    pub(crate) fn new(window: u64, doing: Doing, hungry: bool, trail: u8) -> Self {
        let doing = match doing {
            Doing::Entered => 0,
            Doing::Next => Self::NEXT,
            Doing::Jump => Self::JUMP,
        };
        let hungry = if hungry { Self::HUNGRY } else { 0 };
        Self(window << Self::WINDOW | u64::from(trail) << Self::TRAIL | hungry | doing)
    }

    #[inline]
    pub(crate) fn window(self) -> u64 {
        self.0 >> Self::WINDOW
    }

    /// Whether it is not in the middle of entering.
    #[inline]
    pub(crate) fn entered(self) -> bool {
        self.0 & (Self::NEXT | Self::JUMP) == 0
    }

    /// Whether the worker entered a window, if the sign alone says so.
    #[inline]
    pub(crate) fn tells(self, window: u64, layout: &Layout) -> Option<bool> {
        let shown = self.window();
        if shown <= window {
            // A sign never shows less than the last window entered.
            return (shown < window || self.entered()).then_some(shown == window);
        }
        let back = shown - window;
        let entered = || self.0 >> (u64::from(Self::TRAIL) + back - 1) & 1 == 1;
        (back <= layout.trail()).then(entered)
    }

    #[inline]
    pub(crate) fn hungry(self) -> bool {
        self.0 & Self::HUNGRY != 0
    }

    /// A window that somebody has entered: at least the last one this worker entered. With
    /// `Next` that is the one before its window.
    #[inline]
    pub(crate) fn reached(self) -> u64 {
        self.window() - (self.0 & Self::NEXT)
    }
}

/// Of the eight windows before `to`, those entered, as bits, the latest lowest: by one who entered
/// `from` last (none if that is 0), and before that as `trail` says.
#[inline]
pub(crate) fn trail(from: u64, trail: u8, to: u64) -> u8 {
    match to - from {
        0 => trail,
        gap if from > 0 && gap <= u64::from(u8::BITS) => (trail << 1 | 1) << (gap - 1),
        _ => 0,
    }
}

/// An entry of the table of open windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) window: u64,
    /// All is known of it; the place may be used again.
    pub(crate) closed: bool,
}

impl Entry {
    #[inline]
    pub(crate) fn pack(self) -> u64 {
        self.window << 1 | u64::from(self.closed)
    }

    #[inline]
    pub(crate) fn unpack(word: u64) -> Self {
        Self { window: word >> 1, closed: word & 1 != 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_do_not_overlap() {
        let l = Layout::new(3, 4, 1).expect("good sizes");
        let mut all = vec![Layout::SIGN];
        all.extend((0..3).map(|q| l.gift(q)));
        all.extend((0..3).map(|q| l.taken(q)));
        all.extend((0..l.open_len()).map(|k| l.open(k)));
        all.extend((4..8).map(|w| l.record(w)));
        all.extend((0..l.saved_len()).map(|k| l.saved(k)));
        let len = all.len();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), len);
        assert_eq!(all.last(), Some(&(l.slots() - 1)));
    }

    #[test]
    fn words_come_back() {
        let layout = Layout::new(2, 4, 1).expect("good sizes");
        for (doing, reached, tells) in
            [(Doing::Entered, 77, Some(true)), (Doing::Next, 76, None), (Doing::Jump, 77, None)]
        {
            for hungry in [false, true] {
                let sign = Sign::new(77, doing, hungry, 0b101);
                assert_eq!((sign.window(), sign.hungry(), sign.reached()), (77, hungry, reached));
                assert_eq!(sign.entered(), doing == Doing::Entered);
                let told = [1, 73, 74, 75, 76, 77, 78].map(|window| sign.tells(window, &layout));
                let (yes, no) = (Some(true), Some(false));
                assert_eq!(told, [None, None, yes, no, yes, tells, no]);
            }
        }
        let entry = Entry { window: 5, closed: true };
        assert_eq!(Entry::unpack(entry.pack()), entry);
    }

    #[test]
    fn the_trail_goes_on() {
        // Windows 3 and 5 were entered, then 6, then 9.
        assert_eq!(trail(5, 0b10, 6), 0b101);
        assert_eq!(trail(6, 0b101, 6), 0b101);
        assert_eq!(trail(6, 0b101, 9), 0b10_1100);
        assert_eq!((trail(6, 0b101, 14), trail(6, 0b101, 15)), (0b1000_0000, 0));
        assert_eq!(trail(0, 0, 1), 0);
    }

    #[test]
    fn sizes_out_of_range_are_refused() {
        assert_eq!(Layout::new(0, 4, 1), Err(BadLayout::Workers(0)));
        assert_eq!(Layout::new(65, 4, 1), Err(BadLayout::Workers(65)));
        assert_eq!(Layout::new(2, 3, 1), Err(BadLayout::Ring(3)));
        assert_eq!(Layout::new(2, 1, 1), Err(BadLayout::Ring(1)));
        assert_eq!(Layout::new(2, 2, 0), Err(BadLayout::Batch(0)));
    }
}
