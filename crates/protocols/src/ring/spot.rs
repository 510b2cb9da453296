//! A request at one of its resources.

use core::fmt;

use holdall_core::{Addr, ManagerId, Request, RequestId};
use serde::{Deserialize, Serialize};

use super::manager_of;

/// A request at one of its resources, counted in the order asked. Place 0 is its *home*. A request
/// comes to the last place first, from its client, and goes on from there to its home; so does
/// whatever its client says of it later.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Spot {
    /// The request.
    pub request: Request,
    /// Which of its resources.
    pub place: u32,
}

impl Spot {
    /// Where the client is heard.
    pub(crate) fn last(request: Request) -> Self {
        let place = request.needs.len() as u32 - 1;
        Self { request, place }
    }

    pub(crate) fn id(&self) -> RequestId {
        self.request.id
    }

    pub(crate) fn is_home(&self) -> bool {
        self.place == 0
    }

    pub(crate) fn is_last(&self) -> bool {
        self.next().is_none()
    }

    /// The manager at any of its places.
    pub(crate) fn manager(&self, place: u32) -> Option<ManagerId> {
        self.request.needs.get(place as usize).map(|need| manager_of(need.pool))
    }

    /// The manager at the place before this one.
    pub(crate) fn previous(&self) -> Option<ManagerId> {
        self.manager(self.place.checked_sub(1)?)
    }

    /// The manager at the place after this one.
    pub(crate) fn next(&self) -> Option<ManagerId> {
        self.manager(self.place.checked_add(1)?)
    }

    /// Who speaks for the request here: the next manager, or at the last place the client.
    pub(crate) fn speaker(&self) -> Addr {
        self.next().map_or_else(|| Addr::User(self.id().user), Addr::Manager)
    }

    /// Whether an honest sender would ask a manager for this.
    pub(crate) fn is_honest(&self, me: ManagerId, from: Addr) -> bool {
        let single = self.request.needs.iter().all(|need| need.units == 1);
        single && self.manager(self.place) == Some(me) && self.speaker() == from
    }

    /// The place before this one.
    pub(crate) fn before(&self) -> Option<(ManagerId, Self)> {
        let place = self.place.checked_sub(1)?;
        Some((self.manager(place)?, Self { request: self.request.clone(), place }))
    }
}

impl fmt::Debug for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {}", self.request, self.place)
    }
}
