//! What one thread knows of parts: lists of its own, which are quicker to read than the tables that all
//! threads share.

use holdall_core::{Addr, Order, UserId};

use super::World;
use super::client::Client;
use crate::check::search::model::{Class, Label};
use holdall_registry::roles::Item;

#[derive(Default)]
pub(super) struct KnownParts {
    items: Vec<KnownItem>,
    clients: Vec<Client>,
}

/// What is asked of an item at every step.
#[derive(Clone, Copy)]
pub(super) struct KnownItem {
    pub(super) to: Receiver,
    /// Where it stands who it is for, and which role that has.
    pub(super) looks_at: Places,
    pub(super) class: Class,
    pub(super) is_timer: bool,
    pub(super) is_message: bool,
    /// Whether it may arrive whatever else is under way.
    pub(super) is_free: bool,
}

/// The role that an item is for, and where it would stand in a state.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Receiver {
    Manager { place: usize },
    Nobody,
    User { lane: usize, user: UserId },
}

impl Receiver {
    fn of(world: &World<'_>, to: Addr) -> Self {
        match to {
            Addr::Manager(m) if m.index() >= world.managers => Self::Nobody,
            Addr::Manager(m) => Self::Manager { place: world.manager_at(m.index()) },
            Addr::User(user) => match user.lane().index() {
                lane if lane < world.scope.users.len() => Self::User { lane, user },
                _ => Self::Nobody,
            },
        }
    }
}

impl Receiver {
    /// The places in a state on which it depends which role is meant, and what it is.
    fn looks_at(self, world: &World<'_>) -> Places {
        match self {
            Self::Nobody => Places::default(),
            Self::Manager { place } => Places::one(place),
            Self::User { lane, .. } => {
                let present = Places::one(lane).and(Places::one(world.user_at(lane)));
                world.predecessor_at(lane).map_or(present, |at| present.and(Places::one(at)))
            }
        }
    }
}

/// Some places in a state: those that are a multiple of 64 apart count as the same.
#[derive(Clone, Copy, Default)]
pub(super) struct Places(u64);

impl Places {
    pub(super) fn one(place: usize) -> Self {
        Self(1 << (place % 64))
    }

    pub(super) fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    pub(super) fn meets(self, others: Self) -> bool {
        self.0 & others.0 != 0
    }
}

impl KnownParts {
    pub(super) fn item(&mut self, world: &World<'_>, id: u32) -> KnownItem {
        read(&mut self.items, id, |id| {
            let item = world.parts.items.value(id);
            let is_message = matches!(item, Item::ToManager { .. } | Item::ToUser { .. });
            let to = Receiver::of(world, item.to());
            KnownItem {
                to,
                looks_at: to.looks_at(world),
                class: world.class_of(id),
                is_timer: item.is_timer(),
                is_message,
                is_free: is_message && world.settings.order != Some(Order::Fifo),
            }
        })
    }

    pub(super) fn client(&mut self, world: &World<'_>, id: u32) -> &Client {
        fill(&mut self.clients, id, |id| *world.client_table.value(id));
        &self.clients[id as usize]
    }

    pub(super) fn label(&mut self, world: &World<'_>, state: &[u32]) -> Label {
        world.label_with(state, |client| self.client(world, client).stage)
    }
}

/// What is kept under a number.
pub(super) fn read<T: Copy>(kept: &mut Vec<T>, id: u32, of: impl Fn(u32) -> T) -> T {
    fill(kept, id, of);
    kept[id as usize]
}

/// Numbers are given one after another, so whoever has one finds all below.
fn fill<T>(kept: &mut Vec<T>, id: u32, of: impl Fn(u32) -> T) {
    if kept.len() <= id as usize {
        kept.extend((kept.len() as u32..=id).map(of));
    }
}
