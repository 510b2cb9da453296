//! Questions about a protocol that its promises do not answer: invariants of one's own over all
//! roles, and whether something can happen at all.
//!
//! The checker answers them in every scope, with a shortest way to what breaks an invariant or to
//! what can happen:
//!
//! ```
//! use holdall_protocols::ordered::Ordered;
//! use holdall_registry::Chosen;
//! use holdall_registry::questions::Question;
//!
//! const QUESTIONS: &[Question<Ordered>] = &[
//!     Question::always("queues are short", |_, system| system.to_managers.len() <= 3),
//!     Question::sometime("all at rest", |_, system| system.to_users.is_empty()),
//! ];
//! let chosen = Chosen::asking::<Ordered>("ordered", &[], QUESTIONS)?;
//! # Ok::<(), holdall_registry::BadName>(())
//! ```

use std::fmt;

use holdall_core::Protocol;

/// Something to be found out about a protocol.
pub struct Question<P: Protocol> {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    pub(crate) holds: Holds<P>,
}

/// Whether something holds in a system as it is at one moment.
pub type Holds<P> = fn(&P, &Snapshot<'_, P>) -> bool;

impl<P: Protocol> Question<P> {
    /// Does this hold in every state? The protocol is held to it like to a promise.
    pub const fn always(name: &'static str, holds: Holds<P>) -> Self {
        Self { name, kind: Kind::Always, holds }
    }

    /// Does this hold in some state? Either answer is fine.
    pub const fn sometime(name: &'static str, holds: Holds<P>) -> Self {
        Self { name, kind: Kind::Sometime, holds }
    }
}

impl<P: Protocol> fmt::Debug for Question<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.kind, self.name)
    }
}

/// What kind of question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// [`Question::always`].
    Always,
    /// [`Question::sometime`].
    Sometime,
}

/// A whole system at one moment. Whoever has stopped is left out.
#[derive(Debug)]
pub struct Snapshot<'s, P: Protocol> {
    /// The users, in the order of the scope.
    pub users: Vec<&'s P::User>,
    /// The managers, in the order of their ids.
    pub managers: Vec<&'s P::Manager>,
    /// What is under way to users.
    pub to_users: Vec<&'s P::ToUser>,
    /// What is under way to managers.
    pub to_managers: Vec<&'s P::ToManager>,
}
