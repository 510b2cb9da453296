//! The algorithm of one worker: a [`Machine`] whose value is the worker's whole local state.
//!
//! # The algorithm
//! The stream is cut into windows of n lots; lot p of a window belongs to worker p if p *enters*
//! that window. To enter, p shows on its sign the window it wants (the newest it knows of, or the
//! one after its own last), fences, and looks at all signs. If somebody has reached a later
//! window, p wants that one instead and looks again; otherwise the lot is p's: p lists the window
//! as open, records that it entered, and shows it. The same look closes older windows: of every
//! worker q its sign, or else its record, tells that q entered, or that it did not and never will,
//! or q's sign still shows that window and q has not recorded it; then q holds the window up. Once all are
//! known, the lots of the absent ones are dealt out among the present ones in turn.
//!
//! # Invariants
//! - **I1, the sign tells.** `reached` of a sign is at least the last window its worker entered,
//!   and somebody has entered it.
//! - **I2, closers agree.** Who closes window u knew that somebody had entered a later one, and
//!   fenced, before it looks. Who has entered a window shows it, or a later one, for ever. So if
//!   q's look at u misses that, the closer sees u on q's sign; otherwise q gives u up.
//! - **I3, sealed by the record.** A worker records a window only after a look that found nobody
//!   beyond it, with the window still on its sign; from then on the lot is its own for ever, also
//!   if it stops and starts again.
//! - **I4, needed records survive.** A record is overwritten only if no sign and no table of open
//!   windows names its window, or after it was copied to the saved ones. Needs of windows left
//!   behind only shrink, because nobody can enter those any more; but they must have been left
//!   behind before the first need was read.
//! - **I5, one unread gift.** A worker gives to q only after q took what it gave before.
//!
//! # Wait-freedom
//! A try fails only if somebody entered a later window. After [`Rules::PATIENCE`] failures p
//! raises a flag on its sign. Whoever seals a window while it sees flags gives that lot to the
//! next hungry worker in turn, and enters once more for itself, unless its look won something. The
//! gift is written before the entry is shown, so the look that fails because of it finds it. In
//! flight when the flag goes up is at most one entry of each worker, and the turn comes round after
//! n-1 operations: at most about 2n^2 failed tries, whatever the others do.

use super::layout::{Doing, Layout, Sign, trail};
use super::rules::{Rules, Sound};
use crate::machine::{Access, Machine};

/// A window that this worker entered and has not closed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Open {
    pub(super) window: u64,
    /// Its place in the table of open windows.
    pub(super) place: usize,
    /// Workers known to have entered it.
    pub(super) present: u64,
    /// Workers of which nothing is known.
    pub(super) unknown: u64,
    /// It was closed before this worker stopped and started again: what it gave may be used.
    pub(super) doubt: bool,
}

impl Open {
    /// It is known whether the worker with this bit entered.
    #[inline]
    pub(super) fn learned(&mut self, bit: u64, entered: bool) {
        self.unknown &= !bit;
        if entered {
            self.present |= bit;
        }
    }
}

/// One worker: what it remembers between operations, and where it is in one.
///
/// ```
/// use holdall_assign::machine::drive;
/// use holdall_assign::registers::{Atomics, Memory};
/// use holdall_assign::windows::{Layout, Seat};
///
/// let layout = Layout::new(2, 16, 1)?;
/// let mut regs = Atomics::new(2, layout.slots()).handle(1)?;
/// let mut seat: Seat = Seat::new(layout, 1);
/// seat.acquire();
/// drive(&mut seat, &mut regs)?;
/// assert_eq!(*seat.won(), [1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Seat<V = Sound> {
    pub(super) layout: Layout,
    pub(super) me: usize,
    /// The last window entered; 0 at first. And which of those before it were, as bits.
    pub(super) last: u64,
    pub(super) trail: u8,
    /// The newest window known to have been entered, by anybody: at least `last`.
    pub(super) newest: u64,
    /// Whom this worker gave to last.
    pub(super) turn: usize,
    /// Who may have seen this worker's flag and not yet given.
    pub(super) watch: u64,
    /// Own registers, remembered: gifts to and from each worker, the ring, the saved windows.
    pub(super) given: Vec<u64>,
    pub(super) taken: Vec<u64>,
    pub(super) ring: Vec<u64>,
    pub(super) saved: Vec<u64>,
    /// Records older than this are saved if anybody needs them.
    pub(super) passed: u64,
    /// Room for what a pass finds that others need and this worker entered; empty outside of one.
    pub(super) needs: Vec<u64>,
    /// Windows entered and not closed, oldest first; and how many of them were left behind before
    /// the last look began: who wants one of those after that gives it up.
    pub(super) open: Vec<Open>,
    pub(super) left: usize,
    /// Lots obtained and not yet collected by the caller.
    pub(super) won: Vec<u64>,
    /// Lots that may have been used before this worker stopped and started again.
    pub(super) doubts: Vec<u64>,
    /// The operation under way, and its last look; nothing at rest.
    pub(super) op: Op,
    pub(super) look: Look,
    pub(super) at: At,
    rules: V,
}

/// What an operation keeps from look to look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Op {
    /// Whether it takes nothing new; then of what follows only `fails` and `closed` have a meaning.
    pub(super) only_learn: bool,
    /// The window it wants.
    pub(super) want: u64,
    /// Looks that did not do.
    pub(super) fails: u32,
    /// Whether it asks for help.
    pub(super) hungry: bool,
    /// Whether it has given a lot away already.
    pub(super) gave: bool,
    /// Places of windows closed in it: kept until the caller has what they gave.
    pub(super) closed: u128,
}

/// A look at all others, as far as it has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Look {
    /// Whom it has come to.
    pub(super) q: usize,
    /// A window that somebody had entered, and shown, before it began.
    pub(super) floor: u64,
    /// The newest window seen in it.
    pub(super) reached: u64,
    /// Who asks for help, by it.
    pub(super) asking: u64,
}

/// Where a worker is: what it does next, or waits to be told, and what it has to remember for that
/// alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum At {
    Rest,
    /// Started again: these places of the table of open windows, as bits, are to be cleared first.
    Settle {
        stale: u128,
    },
    Publish,
    Intend,
    Fence,
    /// A look: whom to look at next; its sign; its record in the place of the i-th open window, of
    /// which the sign does not tell; the k-th of its saved windows, for the same; its box.
    Ask,
    Seen,
    Recorded {
        sign: Sign,
        i: usize,
    },
    Scanned {
        sign: Sign,
        i: usize,
        k: usize,
    },
    Boxed {
        sign: Sign,
    },
    Close,
    Judge,
    /// A pass over what the others need: whom to look at next; its sign; the k-th of its open
    /// windows; to copy.
    Needs {
        q: usize,
    },
    NeedsSign {
        q: usize,
    },
    NeedsOpen {
        q: usize,
        k: usize,
    },
    Save,
    /// An entry: whether the lot is for somebody who is hungry, and then for whom.
    Choose,
    Chosen,
    List {
        to: Option<usize>,
    },
    Record {
        to: Option<usize>,
    },
    Give {
        to: usize,
    },
    Show {
        given: bool,
    },
}

impl<V: Rules> Seat<V> {
    /// A worker at the beginning of time.
    ///
    /// ```
    /// use holdall_assign::windows::{Layout, Seat};
    ///
    /// let seat: Seat = Seat::new(Layout::new(2, 16, 1)?, 0);
    /// assert_eq!(seat.last(), 0);
    /// # Ok::<(), holdall_assign::windows::BadLayout>(())
    /// ```
    pub fn new(layout: Layout, me: usize) -> Self {
        assert!(me < layout.workers(), "worker {me} of {}", layout.workers());
        Self {
            layout,
            me,
            last: 0,
            trail: 0,
            newest: 0,
            turn: me,
            watch: 0,
            given: vec![0; layout.workers()],
            taken: vec![0; layout.workers()],
            ring: vec![0; layout.ring()],
            saved: vec![0; layout.saved_len()],
            passed: 0,
            open: Vec::new(),
            left: 0,
            needs: Vec::new(),
            won: Vec::new(),
            doubts: Vec::new(),
            op: Op::default(),
            look: Look::default(),
            at: At::Rest,
            rules: V::default(),
        }
    }

    /// Starts an operation that takes at least one lot.
    ///
    /// ```
    /// use holdall_assign::machine::{Access, Machine};
    /// use holdall_assign::windows::{Layout, Seat};
    ///
    /// let mut seat: Seat = Seat::new(Layout::new(2, 16, 1)?, 0);
    /// seat.acquire();
    /// assert!(matches!(seat.step(0), Access::Put { .. }), "it shows what it wants");
    /// # Ok::<(), holdall_assign::windows::BadLayout>(())
    /// ```
    #[inline]
    pub fn acquire(&mut self) {
        debug_assert_eq!(self.at, At::Rest, "one operation at a time");
        self.op = Op { want: self.next_window(), ..Op::default() };
        self.at = At::Intend;
    }

    /// Starts an operation that learns of lots won already, and takes none.
    ///
    /// ```
    /// use holdall_assign::machine::{Access, Machine};
    /// use holdall_assign::windows::{Layout, Seat};
    ///
    /// let mut seat: Seat = Seat::new(Layout::new(2, 16, 1)?, 0);
    /// seat.poll();
    /// assert_eq!(seat.step(0), Access::Fence);
    /// # Ok::<(), holdall_assign::windows::BadLayout>(())
    /// ```
    #[inline]
    pub fn poll(&mut self) {
        debug_assert_eq!(self.at, At::Rest, "one operation at a time");
        self.op = Op::learn();
        self.at = At::Fence;
    }

    /// The lots obtained so far, for the caller to take.
    /// [`Seat`] has an example.
    #[inline]
    pub fn won(&mut self) -> &mut Vec<u64> {
        &mut self.won
    }

    /// The lots that may have been used before a restart, for the caller to take.
    /// [`Seat::resume`] has an example.
    pub fn doubts(&mut self) -> &mut Vec<u64> {
        &mut self.doubts
    }

    /// The last window entered.
    /// [`Seat::new`] has an example.
    pub fn last(&self) -> u64 {
        self.last
    }
}

impl Op {
    /// One that takes nothing.
    #[inline]
    pub(super) fn learn() -> Self {
        Self { only_learn: true, ..Self::default() }
    }
}

impl<V: Rules> Seat<V> {
    /// The window that a new try wants: the newest it knows of, or the one after its own last.
    #[inline]
    pub(super) fn next_window(&self) -> u64 {
        self.newest.max(self.last + 1)
    }

    #[inline]
    pub(super) fn others(&self) -> u64 {
        (u64::MAX >> (64 - self.layout.workers())) & !(1 << self.me)
    }

    #[inline]
    fn put_sign(&self, window: u64, doing: Doing, hungry: bool) -> Access {
        let trail = trail(self.last, self.trail, window);
        Access::Put { slot: Layout::SIGN, value: Sign::new(window, doing, hungry, trail).0 }
    }

    /// Shows the last window entered.
    #[inline]
    pub(super) fn show_last(&self) -> Access {
        self.put_sign(self.last, Doing::Entered, false)
    }

    /// Shows what is wanted. Having *seen* that somebody entered it says more than `Next`.
    #[inline]
    fn intend(&self) -> Access {
        let jump = self.newest > self.last;
        self.put_sign(self.op.want, if jump { Doing::Jump } else { Doing::Next }, self.op.hungry)
    }
}

impl<V: Rules> Machine for Seat<V> {
    #[inline]
    fn step(&mut self, read: u64) -> Access {
        // Most steps go from one sign to the next: apart from the others they are short.
        if matches!(self.at, At::Seen)
            && let Some(get) = self.seen(read)
        {
            return get;
        }
        self.step_on(read)
    }
}

impl<V: Rules> Seat<V> {
    #[inline(always)]
    fn step_on(&mut self, read: u64) -> Access {
        loop {
            let access = match self.at {
                At::Rest => Some(Access::Done),
                At::Settle { stale } => Some(self.settle(stale)),
                At::Publish => {
                    (self.op, self.look, self.at) = (Op::default(), Look::default(), At::Rest);
                    Some(Access::Publish)
                }
                At::Intend => {
                    self.at = if V::FENCE { At::Fence } else { self.first_look() };
                    Some(self.intend())
                }
                At::Fence => {
                    self.at = self.first_look();
                    Some(Access::Fence)
                }
                At::Ask => self.ask(),
                At::Seen => self.seen(read),
                At::Recorded { sign, i } => self.recorded(sign, i, read),
                At::Scanned { sign, i, k } => self.scanned(sign, i, k, read),
                At::Boxed { sign } => self.boxed(sign, read),
                At::Close => self.close(),
                At::Judge => self.judge(),
                At::Needs { q } => self.needs(q),
                At::NeedsSign { q } => Some(self.needs_sign(q, read)),
                At::NeedsOpen { q, k } => self.needs_open(q, k, read),
                At::Save => self.save(),
                At::Choose => self.choose(),
                At::Chosen => {
                    self.chosen(read);
                    None
                }
                At::List { to } => Some(self.list(to)),
                At::Record { to } => Some(self.record(to)),
                At::Give { to } => Some(self.give(to)),
                At::Show { given } => Some(self.show(given)),
            };
            if let Some(access) = access {
                return access;
            }
        }
    }
}
