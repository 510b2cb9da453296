//! Protocols among users alone, without managers.

use core::hash::{Hash, Hasher};
use core::marker::PhantomData;

use holdall_core::{Broken, Event, Never, Outbox, Protocol, Role};
use serde::{Deserialize, Serialize};

/// The manager of a protocol that has none: a type without values.
#[derive(Debug, Serialize, Deserialize)]
#[serde(bound = "")]
pub struct NoManager<P> {
    never: Never,
    of: PhantomData<P>,
}

impl<P> Clone for NoManager<P> {
    fn clone(&self) -> Self {
        match self.never {}
    }
}

impl<P> PartialEq for NoManager<P> {
    fn eq(&self, _: &Self) -> bool {
        match self.never {}
    }
}

impl<P> Eq for NoManager<P> {}

impl<P> Hash for NoManager<P> {
    fn hash<H: Hasher>(&self, _: &mut H) {
        match self.never {}
    }
}

impl<P: Protocol<Manager = Self, ToManager = Never>> Role for NoManager<P> {
    type P = P;
    type Call = Never;
    type Msg = Never;
    type Timer = Never;

    fn step(&mut self, _: &P, _: Event<Self>, _: &mut Outbox<P, Never>) {
        match self.never {}
    }

    fn check(&self, _: &P) -> Result<(), Broken> {
        match self.never {}
    }

    fn is_idle(&self) -> bool {
        match self.never {}
    }
}

/// Writes what the protocol says of managers, if it has none.
macro_rules! no_managers {
    () => {
        type ToManager = holdall_core::Never;
        type Manager = $crate::nobody::NoManager<Self>;

        fn managers(&self) -> alloc::vec::Vec<holdall_core::NodeId> {
            alloc::vec::Vec::new()
        }

        fn manager(&self, _: holdall_core::ManagerId) -> Self::Manager {
            unreachable!("there are no managers to make")
        }
    };
}

pub(crate) use no_managers;
