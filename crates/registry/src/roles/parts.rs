//! The parts states are made of, each kept once and named by a number.
//!
//! A state is a short list of such numbers. Most steps of a protocol are taken over and over
//! again in different surroundings; with numbered parts their outcome can be remembered, and
//! making a successor is copying a few words.
//!
//! What only the protocol can read (roles, messages, timers) is kept by [`Roles`](super::Roles);
//! what the world needs to know of it is here. So the world is compiled once, not once for each
//! protocol.

use std::hash::{Hash, Hasher};
use std::sync::{Mutex, PoisonError};

use hashbrown::HashTable;
use holdall_core::{Addr, Call, Gone, ManagerId, UserId};
use serde::{Deserialize, Serialize};

use super::fingerprint::Fingerprint;

/// All that the world knows of the parts.
#[derive(Debug, Default)]
pub struct Parts {
    /// What may happen to roles.
    pub items: Interner<Item>,
    /// By the numbers that [`Roles`](super::Roles) gives them.
    pub managers: boxcar::Vec<RoleFacts>,
    /// The same.
    pub users: boxcar::Vec<RoleFacts>,
}

/// What is to be known of a role without reading it.
#[derive(Debug)]
pub struct RoleFacts {
    /// Its fingerprint.
    pub fingerprint: Fingerprint,
    /// [`Role::is_idle`](holdall_core::Role::is_idle).
    pub idle: bool,
    /// [`Role::stage`](holdall_core::Role::stage).
    pub stage: &'static str,
}

/// A table that only grows. Reading takes no lock.
#[derive(Debug)]
pub struct Interner<T> {
    ids: Mutex<HashTable<(u64, u32)>>,
    rows: boxcar::Vec<Interned<T>>,
}

#[derive(Debug)]
struct Interned<T> {
    value: T,
    fingerprint: Fingerprint,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { ids: Mutex::default(), rows: boxcar::Vec::new() }
    }
}

impl<T: Eq> Interner<T> {
    /// The number of a value, a new one if it is new.
    pub fn number(&self, value: T) -> u32
    where
        T: Hash,
    {
        let fingerprint = Fingerprint::of(&value);
        self.number_as(value, fingerprint, |_| ())
    }

    /// The same, with a fingerprint that says more than the value's own. If the value is new,
    /// `added` is called with its number before anybody else can come by it.
    pub fn number_as(&self, value: T, fingerprint: Fingerprint, added: impl FnOnce(u32)) -> u32 {
        let hash = fingerprint.plain;
        // A thread that panicked left at worst a row that nobody knows the number of.
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |(other, id): &(u64, u32)| *other == hash && *self.value(*id) == value;
        if let Some((_, id)) = ids.find(hash, same) {
            return *id;
        }
        let id = u32::try_from(self.rows.push(Interned { value, fingerprint }))
            .expect("fewer than 2^32 parts");
        added(id);
        insert(&mut ids, hash, id);
        id
    }

    /// How many values there are. Their numbers are those below.
    pub fn count(&self) -> u32 {
        let ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        u32::try_from(ids.len()).expect("fewer than 2^32 parts")
    }

    /// The fingerprint of the value of a number.
    pub fn fingerprint(&self, id: u32) -> &Fingerprint {
        &self.rows[id as usize].fingerprint
    }

    /// The value of a number.
    pub fn value(&self, id: u32) -> &T {
        &self.rows[id as usize].value
    }
}

/// By itself, because growing a hash table is much code, and need not be compiled for every `T`.
fn insert(ids: &mut HashTable<(u64, u32)>, hash: u64, id: u32) {
    ids.insert_unique(hash, (hash, id), |(hash, _)| *hash);
}

/// Something that may happen to a role: a call, or what is under way to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[allow(missing_docs, reason = "from, to and at say who; the rest is said of the variant")]
pub enum Item {
    /// A client calls its user.
    Call { to: UserId, call: Call },
    /// The detector tells of somebody.
    Gone { to: ManagerId, gone: Gone },
    /// One more message may be lost.
    LossToken,
    /// The lease of a suspected user runs out.
    Lapse { who: UserId },
    /// A message. `copy`: it was delivered once already, and is a duplicate.
    ToManager { from: Addr, to: ManagerId, msg: Content, copy: bool },
    /// The same.
    ToUser { from: Addr, to: UserId, msg: Content, copy: bool },
    /// A timer that is armed.
    ManagerTimer { at: ManagerId, timer: Content },
    /// The same.
    UserTimer { at: UserId, timer: Content },
}

/// The number of a message or a timer, by which its role knows what it says. Numbers depend on who
/// came first, so none goes into a fingerprint: what it stands for does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content(pub u32);

impl Hash for Content {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl Item {
    /// The role it is for.
    #[inline]
    pub fn to(&self) -> Addr {
        match self {
            Self::Call { to, .. }
            | Self::Lapse { who: to }
            | Self::ToUser { to, .. }
            | Self::UserTimer { at: to, .. } => Addr::User(*to),
            // It is for nobody.
            Self::LossToken => Addr::Manager(ManagerId(u64::MAX)),
            Self::Gone { to, .. }
            | Self::ToManager { to, .. }
            | Self::ManagerTimer { at: to, .. } => Addr::Manager(*to),
        }
    }

    /// Who sent it, if it is a message.
    #[inline]
    pub fn from(&self) -> Option<Addr> {
        match self {
            Self::ToManager { from, .. } | Self::ToUser { from, .. } => Some(*from),
            _ => None,
        }
    }

    /// Whether it is a timer.
    #[inline]
    pub fn is_timer(&self) -> bool {
        matches!(self, Self::ManagerTimer { .. } | Self::UserTimer { .. })
    }

    /// Whether it came from this user, goes to it, or speaks of it.
    #[inline]
    pub fn involves(&self, user: UserId) -> bool {
        let about = matches!(self, Self::Gone { gone, .. } if gone.who().includes(user));
        about || self.to() == Addr::User(user) || self.from() == Some(Addr::User(user))
    }

    /// Whether it is a message that is not a duplicate itself.
    pub fn can_be_duplicated(&self) -> bool {
        matches!(self, Self::ToManager { copy: false, .. } | Self::ToUser { copy: false, .. })
    }
}

impl Parts {
    /// The number of a message or a timer that says this. Its fingerprint is that of what it says; a
    /// duplicate has one of its own.
    pub(super) fn number_saying(&self, item: Item, says: &impl Hash) -> u32 {
        let mut first = item.clone();
        let copy = match &mut first {
            Item::ToManager { copy, .. } | Item::ToUser { copy, .. } => std::mem::take(copy),
            _ => false,
        };
        let fingerprint = Fingerprint::of(&(&first, says));
        let fingerprint = if copy { fingerprint.duplicate() } else { fingerprint };
        self.items.number_as(item, fingerprint, |_| ())
    }

    /// The duplicate of a message.
    pub fn duplicate(&self, message: u32) -> u32 {
        let mut twin = self.items.value(message).clone();
        if let Item::ToManager { copy, .. } | Item::ToUser { copy, .. } = &mut twin {
            *copy = true;
        }
        let fingerprint = self.items.fingerprint(message).duplicate();
        self.items.number_as(twin, fingerprint, |_| ())
    }
}
