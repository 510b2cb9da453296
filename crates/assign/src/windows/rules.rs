//! The rules of the algorithm that can be taken away, to see what each is for.
//!
//! [`Sound`] has them all, and is what runs. The others exist for the tests: each must be caught.

use std::fmt::Debug;
use std::hash::Hash;

/// Which rules are kept. All of them are, unless said otherwise.
///
/// ```
/// use holdall_assign::windows::rules::{Rules, Sound, Unfenced};
///
/// assert!(Sound::FENCE && !Unfenced::FENCE);
/// ```
pub trait Rules: Copy + Debug + Default + Eq + Hash + Send + 'static {
    /// Give a gift only into an empty box.
    const ACKNOWLEDGE: bool = true;
    /// What a look won is enough for an operation.
    const ENOUGH: bool = true;
    /// Fence between the intent and the look at the others.
    const FENCE: bool = true;
    /// Help at all.
    const HELP: bool = true;
    /// Close a window only after somebody has entered a later one.
    const LEAVE_FIRST: bool = true;
    /// After giving a lot away, do not keep it.
    const PART_WITH: bool = true;
    /// Failed tries after which help is asked for.
    const PATIENCE: u32 = 2;
    /// Save what somebody needs before its place is used again.
    const SAVE: bool = true;
    /// Give up a window that somebody has left behind.
    const VALIDATE: bool = true;
}

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident $({ $($rule:ident: $type:ty = $value:expr),+ })?;)+) => {$(
        $(#[$doc])*
        ///
        /// ```
        #[doc = concat!("use holdall_assign::windows::rules::", stringify!($name), ";")]
        ///
        /// let assigner = holdall_assign::Assigner::builder(2).threads()?;
        #[doc = concat!("let mut worker = assigner.worker_with::<", stringify!($name), ">(0)?;")]
        /// assert_eq!(worker.next(), 0, "alone none of them makes a difference");
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub struct $name;
        impl Rules for $name { $($(const $rule: $type = $value;)+)? }
    )+};
}

rules! {
    /// All rules: what runs.
    Sound;
    /// All rules, asking for help at the first failure: more of it in small scopes.
    Impatient { PATIENCE: u32 = 1 };
    /// Nobody helps: lock-free, not wait-free.
    Helpless { HELP: bool = false };
    /// A mutant that gives into a full box: the help given before is lost.
    Overgiving { ACKNOWLEDGE: bool = false, PATIENCE: u32 = 1 };
    /// A mutant that goes on after it won something: if it is killed, it forgets a gift.
    Insatiable { ENOUGH: bool = false, PATIENCE: u32 = 1 };
    /// A mutant that keeps what it gave.
    Greedy { PART_WITH: bool = false, PATIENCE: u32 = 1 };
    /// A mutant without the fence.
    Unfenced { FENCE: bool = false };
    /// A mutant that enters windows others may have closed.
    Unvalidated { VALIDATE: bool = false };
    /// A mutant that closes the window it entered last: others may still enter it.
    Eager { LEAVE_FIRST: bool = false };
    /// A mutant that overwrites what others need.
    Forgetful { SAVE: bool = false };
}
