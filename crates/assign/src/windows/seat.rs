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
use crate::machine::{Do, Machine};

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

/// Where in an operation a worker is: what it does next, or waits to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum At {
    Rest,
    Settle,
    Publish,
    Intend,
    Fence,
    Ask,
    Seen,
    Recorded,
    Scanned,
    Boxed,
    Close,
    Judge,
    Needs,
    NeedsSign,
    NeedsOpen,
    Save,
    Choose,
    Chosen,
    List,
    Record,
    Give,
    Show,
}

/// One worker: what it remembers between and within operations.
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
    pub(super) at: At,
    /// Whom this worker looks at; and, while it looks at more than that one's sign: the sign, the
    /// open window in question, and which of several registers. 0 when they have no meaning.
    pub(super) q: usize,
    pub(super) sign: Sign,
    pub(super) i: usize,
    pub(super) k: usize,
    /// The last window entered; 0 at first. And which of those before it were, as bits.
    pub(super) last: u64,
    pub(super) trail: u8,
    /// The newest window known to have been entered, by anybody: at least `last`.
    pub(super) newest: u64,
    /// The window this operation wants.
    pub(super) want: u64,
    /// A window that somebody had entered, and shown, before this look began.
    pub(super) floor: u64,
    /// Whether this operation takes nothing new.
    pub(super) only_learn: bool,
    /// Looks of this try that did not do.
    pub(super) fails: u32,
    pub(super) hungry: bool,
    /// The newest window seen in this look.
    pub(super) reached: u64,
    /// Who asks for help, by this look.
    pub(super) asking: u64,
    /// Whom this lot goes to.
    pub(super) to: Option<usize>,
    /// Whether this operation has given already.
    pub(super) gave: bool,
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
    /// Windows others need and this worker entered, as far as looked.
    pub(super) needs: Vec<u64>,
    /// Windows entered and not closed, oldest first; and how many of them were left behind before
    /// this look began: who wants one of those now gives it up.
    pub(super) open: Vec<Open>,
    pub(super) left: usize,
    /// Places of windows closed in this operation: kept until the caller has what they gave.
    pub(super) closed: u128,
    /// Lots obtained and not yet collected by the caller.
    pub(super) won: Vec<u64>,
    /// Lots that may have been used before this worker stopped and started again.
    pub(super) doubts: Vec<u64>,
    /// Places of the table of open windows to clear first.
    pub(super) stale: Vec<usize>,
    pub(super) rules: V,
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
            at: At::Rest,
            q: 0,
            sign: Sign(0),
            i: 0,
            k: 0,
            last: 0,
            trail: 0,
            newest: 0,
            want: 0,
            floor: 0,
            only_learn: false,
            fails: 0,
            hungry: false,
            reached: 0,
            asking: 0,
            to: None,
            gave: false,
            turn: me,
            watch: 0,
            given: vec![0; layout.workers()],
            taken: vec![0; layout.workers()],
            ring: vec![0; layout.ring()],
            saved: vec![0; layout.saved_len()],
            passed: 0,
            needs: Vec::new(),
            open: Vec::new(),
            left: 0,
            closed: 0,
            won: Vec::new(),
            doubts: Vec::new(),
            stale: Vec::new(),
            rules: V::default(),
        }
    }

    /// Starts an operation that takes at least one lot.
    ///
    /// ```
    /// use holdall_assign::machine::{Do, Machine};
    /// use holdall_assign::windows::{Layout, Seat};
    ///
    /// let mut seat: Seat = Seat::new(Layout::new(2, 16, 1)?, 0);
    /// seat.acquire();
    /// assert!(matches!(seat.step(0), Do::Put { .. }), "it shows what it wants");
    /// # Ok::<(), holdall_assign::windows::BadLayout>(())
    /// ```
    #[inline]
    pub fn acquire(&mut self) {
        debug_assert_eq!(self.at, At::Rest, "one operation at a time");
        self.only_learn = false;
        self.gave = false;
        self.closed = 0;
        self.begin_try();
    }

    /// Starts an operation that learns of lots won already, and takes none.
    ///
    /// ```
    /// use holdall_assign::machine::{Do, Machine};
    /// use holdall_assign::windows::{Layout, Seat};
    ///
    /// let mut seat: Seat = Seat::new(Layout::new(2, 16, 1)?, 0);
    /// seat.poll();
    /// assert_eq!(seat.step(0), Do::Fence);
    /// # Ok::<(), holdall_assign::windows::BadLayout>(())
    /// ```
    #[inline]
    pub fn poll(&mut self) {
        debug_assert_eq!(self.at, At::Rest, "one operation at a time");
        self.closed = 0;
        self.begin_poll();
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

    #[inline]
    pub(super) fn begin_poll(&mut self) {
        self.only_learn = true;
        self.fails = 0;
        self.at = At::Fence;
    }

    #[inline]
    pub(super) fn begin_try(&mut self) {
        self.fails = 0;
        self.to = None;
        self.want = self.newest.max(self.last + 1);
        self.at = At::Intend;
    }

    #[inline]
    pub(super) fn others(&self) -> u64 {
        (u64::MAX >> (64 - self.layout.workers())) & !(1 << self.me)
    }

    #[inline]
    fn put_sign(&self, window: u64, doing: Doing) -> Do {
        let trail = trail(self.last, self.trail, window);
        Do::Put { slot: Layout::SIGN, value: Sign::new(window, doing, self.hungry, trail).0 }
    }

    /// Shows the last window entered.
    #[inline]
    pub(super) fn show_last(&self) -> Do {
        self.put_sign(self.last, Doing::Entered)
    }

    /// Shows what is wanted. Having *seen* that somebody entered it says more than `Next`.
    #[inline]
    fn intend(&mut self) -> Do {
        self.at = if V::FENCE { At::Fence } else { self.first_look() };
        let jump = self.newest > self.last;
        self.put_sign(self.want, if jump { Doing::Jump } else { Doing::Next })
    }

    #[inline]
    fn first_look(&mut self) -> At {
        self.floor = self.newest;
        let left = |open: &&Open| open.window < self.floor || !V::LEAVE_FIRST;
        self.left = self.open.iter().take_while(left).count();
        self.reached = 0;
        self.asking = 0;
        At::Ask
    }

    /// Looks at the next worker.
    #[inline(always)]
    pub(super) fn ask(&mut self) -> Option<Do> {
        if self.q == self.me {
            self.q += 1;
        }
        if self.q == self.layout.workers() {
            self.q = 0;
            self.at = At::Close;
            return None;
        }
        self.at = At::Seen;
        Some(Do::Get { owner: self.q, slot: Layout::SIGN })
    }

    #[inline(always)]
    fn seen(&mut self, word: u64) -> Option<Do> {
        let sign = Sign(word);
        self.reached = self.reached.max(sign.reached());
        if sign.hungry() {
            self.asking |= 1 << self.q;
        }
        self.learn(sign, 0)
    }
}

impl<V: Rules> Machine for Seat<V> {
    #[inline]
    fn step(&mut self, read: u64) -> Do {
        // Most steps go from one sign to the next: apart from the others they are short.
        if self.at == At::Seen
            && let Some(get) = self.seen(read)
        {
            return get;
        }
        self.step_on(read)
    }
}

impl<V: Rules> Seat<V> {
    #[inline(always)]
    fn step_on(&mut self, read: u64) -> Do {
        loop {
            let access = match self.at {
                At::Rest => Some(Do::Done),
                At::Settle => Some(self.settle()),
                At::Publish => {
                    self.at = At::Rest;
                    Some(Do::Publish)
                }
                At::Intend => Some(self.intend()),
                At::Fence => {
                    self.at = self.first_look();
                    Some(Do::Fence)
                }
                At::Ask => self.ask(),
                At::Seen => self.seen(read),
                At::Recorded => self.recorded(read),
                At::Scanned => self.scanned(read),
                At::Boxed => self.boxed(read),
                At::Close => self.close(),
                At::Judge => self.judge(),
                At::Needs | At::NeedsSign | At::NeedsOpen | At::Save => self.save(read),
                At::Choose => self.choose(),
                At::Chosen => {
                    self.chosen(read);
                    None
                }
                At::List => Some(self.list()),
                At::Record => Some(self.record()),
                At::Give => {
                    let to = self.to.expect("only a lot that has a taker is given");
                    Some(self.give(to))
                }
                At::Show => Some(self.show()),
            };
            if let Some(access) = access {
                return access;
            }
        }
    }
}
