//! The parts states are made of, each kept once and named by a number.
//!
//! A state is a short list of such numbers. Most steps of a protocol are taken over and over
//! again in different surroundings; with numbered parts their outcome can be remembered, and
//! making a successor is copying a few words.

use std::hash::Hash;
use std::sync::{Mutex, PoisonError};

use hashbrown::HashTable;
use holdall_core::{Addr, Call, Gone, ManagerId, Protocol, Role, UserId};

use super::client::Client;
use super::fingerprint::Fingerprint;

/// A table that only grows. Reading takes no lock.
pub(crate) struct Interner<T> {
    ids: Mutex<HashTable<(u64, u32)>>,
    rows: boxcar::Vec<Interned<T>>,
}

pub(crate) struct Interned<T> {
    pub(crate) value: T,
    pub(crate) fingerprint: Fingerprint,
}

impl<T> Default for Interner<T> {
    fn default() -> Self {
        Self { ids: Mutex::default(), rows: boxcar::Vec::new() }
    }
}

impl<T: Eq + Hash> Interner<T> {
    /// The number of a value, a new one if it is new.
    pub(crate) fn number(&self, value: T) -> u32 {
        let fingerprint = Fingerprint::of(&value);
        let hash = fingerprint.plain;
        // A thread that panicked left at worst a row that no number points to.
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |(other, id): &(u64, u32)| *other == hash && self.row(*id).value == value;
        if let Some((_, id)) = ids.find(hash, same) {
            return *id;
        }
        let id = u32::try_from(self.rows.push(Interned { value, fingerprint }))
            .expect("fewer than 2^32 parts");
        ids.insert_unique(hash, (hash, id), |(hash, _)| *hash);
        id
    }

    pub(crate) fn row(&self, id: u32) -> &Interned<T> {
        &self.rows[id as usize]
    }

    pub(crate) fn fingerprint(&self, id: u32) -> &Fingerprint {
        &self.row(id).fingerprint
    }

    pub(crate) fn value(&self, id: u32) -> &T {
        &self.row(id).value
    }
}

/// Something that may happen to a role: a call, or what is under way to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Item<ToUser, ToManager, UserTimer, ManagerTimer> {
    Call {
        to: UserId,
        call: Call,
    },
    Gone {
        to: ManagerId,
        gone: Gone,
    },
    /// One more message may be lost.
    LossToken,
    /// The lease of a suspected user runs out.
    Lapse {
        who: UserId,
    },
    /// `copy`: it was delivered once already, and is a duplicate.
    ToManager {
        from: Addr,
        to: ManagerId,
        msg: ToManager,
        copy: bool,
    },
    ToUser {
        from: Addr,
        to: UserId,
        msg: ToUser,
        copy: bool,
    },
    ManagerTimer {
        at: ManagerId,
        timer: ManagerTimer,
    },
    UserTimer {
        at: UserId,
        timer: UserTimer,
    },
}

pub(crate) type ItemOf<P> = Item<
    <P as Protocol>::ToUser,
    <P as Protocol>::ToManager,
    <<P as Protocol>::User as Role>::Timer,
    <<P as Protocol>::Manager as Role>::Timer,
>;

impl<A: Clone, B: Clone, C: Clone, D: Clone> Item<A, B, C, D> {
    pub(crate) fn to(&self) -> Addr {
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
    pub(crate) fn from(&self) -> Option<Addr> {
        match self {
            Self::ToManager { from, .. } | Self::ToUser { from, .. } => Some(*from),
            _ => None,
        }
    }

    pub(crate) fn is_timer(&self) -> bool {
        matches!(self, Self::ManagerTimer { .. } | Self::UserTimer { .. })
    }

    /// Whether it came from this user, goes to it, or speaks of it.
    pub(crate) fn involves(&self, user: UserId) -> bool {
        let about = matches!(self, Self::Gone { gone, .. } if gone.who().includes(user));
        about || self.to() == Addr::User(user) || self.from() == Some(Addr::User(user))
    }

    /// The duplicate of a message, unless it is one itself.
    pub(crate) fn duplicate(&self) -> Option<Self> {
        let mut twin = self.clone();
        match &mut twin {
            Self::ToManager { copy, .. } | Self::ToUser { copy, .. } if !*copy => *copy = true,
            _ => return None,
        }
        Some(twin)
    }
}

/// All the tables.
pub(crate) struct Parts<P: Protocol> {
    pub(crate) items: Interner<ItemOf<P>>,
    pub(crate) managers: Interner<P::Manager>,
    pub(crate) clients: Interner<Client>,
    pub(crate) users: Interner<P::User>,
}

impl<P: Protocol> Default for Parts<P> {
    fn default() -> Self {
        Self {
            items: Interner::default(),
            managers: Interner::default(),
            clients: Interner::default(),
            users: Interner::default(),
        }
    }
}
