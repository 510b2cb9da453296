//! What a manager knows of the lanes that requests come from.
//!
//! The requests of a lane follow each other, and so do its users (`holdall_core::contract`): whoever
//! asks again has ended what it asked for before, even if its release is still under way, or never
//! comes. So a manager hears of one request of a lane at a time, the latest; whatever belongs to an
//! earlier one comes late and is void.

use alloc::collections::BTreeMap;
use core::fmt;
use core::hash::{Hash, Hasher};

use holdall_core::{Home, Lane, Party, RequestId, UserId};
use serde::{Deserialize, Serialize};

/// By lane, the latest request heard of. Bounded by the number of lanes, and forgotten with their home.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "BTreeMap<Lane, Latest>", into = "BTreeMap<Lane, Latest>")]
pub(crate) struct Lanes(BTreeMap<Home, BTreeMap<u32, Last>>);

/// The latest request of a lane, as it is kept: the lane is known. There may be a million of them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Current { generation: u64, seq: u64 },
    Gone { generation: u64 },
    Over { generation: u64, seq: u64 },
}

impl Last {
    fn of(latest: Latest) -> Self {
        let generation = latest.user().generation();
        match latest {
            Latest::Current(RequestId { seq, .. }) => Self::Current { generation, seq },
            Latest::Gone(_) => Self::Gone { generation },
            Latest::Over(RequestId { seq, .. }) => Self::Over { generation, seq },
        }
    }

    fn in_lane(self, lane: Lane) -> Latest {
        let user = |generation| UserId::after(lane, generation);
        match self {
            Self::Current { generation, seq } => {
                Latest::Current(RequestId { user: user(generation), seq })
            }
            Self::Gone { generation } => Latest::Gone(user(generation)),
            Self::Over { generation, seq } => {
                Latest::Over(RequestId { user: user(generation), seq })
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(crate) enum Latest {
    /// This request is under way.
    Current(RequestId),
    /// This user was taken for gone: all its requests are over, those that are still to come included.
    Gone(UserId),
    /// This request is over.
    Over(RequestId),
}

impl Latest {
    const fn user(self) -> UserId {
        match self {
            Self::Current(request) | Self::Over(request) => request.user,
            Self::Gone(user) => user,
        }
    }

    /// Whether it is later than a request of the same lane.
    fn overtakes(self, request: RequestId) -> bool {
        match self {
            Self::Current(latest) | Self::Over(latest) => request < latest,
            Self::Gone(user) => request.user < user,
        }
    }

    /// How a request of the same lane stands.
    fn state(self, request: RequestId) -> State {
        match self {
            Self::Gone(user) if request.user == user => State::Gone,
            Self::Current(latest) if request == latest => State::Current,
            Self::Over(latest) if request == latest => State::Over,
            _ if self.overtakes(request) => State::Over,
            _ => State::New,
        }
    }
}

/// How a request stands with a manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It is later than all that was heard of its lane.
    New,
    /// It is the latest of its lane.
    Current,
    /// It is over.
    Over,
    /// It is over, because its user was taken for gone.
    Gone,
}

impl Lanes {
    fn get(&self, lane: Lane) -> Option<Latest> {
        Some(self.0.get(&lane.home)?.get(&lane.number)?.in_lane(lane))
    }

    fn put(&mut self, latest: Latest) -> Option<Latest> {
        let lane = latest.user().lane();
        let before = self.0.entry(lane.home).or_default().insert(lane.number, Last::of(latest));
        before.map(|before| before.in_lane(lane))
    }

    fn all(&self) -> impl Iterator<Item = (Lane, Latest)> + '_ {
        self.0.iter().flat_map(|(home, lanes)| {
            lanes.iter().map(|(number, last)| {
                let lane = Lane { home: *home, number: *number };
                (lane, last.in_lane(lane))
            })
        })
    }

    /// How a request stands.
    pub(crate) fn state(&self, request: RequestId) -> State {
        self.get(request.user.lane()).map_or(State::New, |latest| latest.state(request))
    }

    /// What is known of each lane.
    pub(crate) fn latest(&self) -> impl Iterator<Item = Latest> + '_ {
        self.all().map(|(_, latest)| latest)
    }

    /// Whether a later request of its lane, or the end of a later user, has been heard of.
    pub(crate) fn is_overtaken(&self, request: RequestId) -> bool {
        self.get(request.user.lane()).is_some_and(|latest| latest.overtakes(request))
    }

    /// The request is the latest of its lane from now on. Returns the one before, if that was not
    /// over.
    pub(crate) fn begin(&mut self, request: RequestId) -> Option<RequestId> {
        match self.put(Latest::Current(request))? {
            Latest::Current(before) => Some(before),
            Latest::Gone(_) | Latest::Over(_) => None,
        }
    }

    /// The request is over, and all before it.
    pub(crate) fn end(&mut self, request: RequestId) {
        if matches!(self.state(request), State::New | State::Current) {
            self.put(Latest::Over(request));
        }
    }

    /// A user is gone. False if that says nothing new, because a later user of the lane has been heard of.
    fn end_user(&mut self, user: UserId) -> bool {
        let later = self.get(user.lane()).is_some_and(|latest| latest.user() > user);
        if !later {
            self.put(Latest::Gone(user));
        }
        !later
    }

    /// Remembers that a party is gone; or forgets a home, of which nothing will be heard any more.
    /// False if that says nothing new.
    pub(crate) fn end_all_of(&mut self, who: Party) -> bool {
        match who {
            Party::Home(home) => {
                self.0.remove(&home);
                true
            }
            Party::User(user) => self.end_user(user),
        }
    }
}

/// Whether a report on a party ends a request: those of the party, and of its predecessors.
pub(crate) fn ends_with(request: RequestId, who: Party) -> bool {
    match who {
        Party::Home(_) => who.includes(request.user),
        Party::User(user) => request.user.lane() == user.lane() && request.user <= user,
    }
}

impl From<BTreeMap<Lane, Latest>> for Lanes {
    fn from(all: BTreeMap<Lane, Latest>) -> Self {
        let mut lanes = Self::default();
        for (lane, latest) in all {
            lanes.0.entry(lane.home).or_default().insert(lane.number, Last::of(latest));
        }
        lanes
    }
}

impl From<Lanes> for BTreeMap<Lane, Latest> {
    fn from(lanes: Lanes) -> Self {
        lanes.all().collect()
    }
}

impl Hash for Lanes {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.all().count().hash(state);
        self.all().for_each(|lane| lane.hash(state));
    }
}

impl fmt::Debug for Lanes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.latest()).finish()
    }
}

#[cfg(test)]
mod tests {
    use holdall_core::CellId;

    use super::*;

    fn request(user: UserId, seq: u64) -> RequestId {
        RequestId { user, seq }
    }

    #[test]
    fn the_latest_of_a_lane_decides() {
        let mut lanes = Lanes::default();
        let user = UserId::first(0);
        let next = user.next_generation().expect("another");
        assert_eq!(lanes.state(request(user, 1)), State::New);
        assert_eq!(lanes.begin(request(user, 1)), None);
        assert_eq!(lanes.state(request(user, 1)), State::Current);
        assert!(!lanes.is_overtaken(request(user, 1)));
        assert_eq!(lanes.begin(request(user, 2)), Some(request(user, 1)), "it was not over");
        assert_eq!(lanes.state(request(user, 1)), State::Over);
        assert!(lanes.is_overtaken(request(user, 1)));
        lanes.end(request(user, 1));
        assert_eq!(lanes.state(request(user, 2)), State::Current, "what comes late ends nothing");
        lanes.end(request(user, 2));
        assert_eq!(lanes.state(request(user, 2)), State::Over);
        assert!(!lanes.is_overtaken(request(user, 2)));
        assert_eq!(lanes.begin(request(next, 1)), None);
        assert_eq!(lanes.state(request(user, 3)), State::Over, "its user has a successor");
        assert_eq!(lanes.state(request(UserId::first(1), 1)), State::New, "another lane");
    }

    #[test]
    fn whoever_is_gone_is_not_heard_but_its_successor_is() {
        let mut lanes = Lanes::default();
        let user = UserId::first(0);
        let next = user.next_generation().expect("another");
        lanes.begin(request(user, 1));
        assert!(lanes.end_all_of(Party::User(user)));
        for seq in 1..3 {
            assert_eq!(lanes.state(request(user, seq)), State::Gone);
            assert!(!lanes.is_overtaken(request(user, seq)), "by nobody");
        }
        assert_eq!(lanes.state(request(next, 1)), State::New);
        assert_eq!(lanes.begin(request(next, 1)), None);
        assert!(!lanes.end_all_of(Party::User(user)), "no news of a lane that has gone on");
        assert_eq!(lanes.state(request(next, 1)), State::Current);
        assert!(lanes.end_all_of(Party::User(next)));
        assert!(lanes.is_overtaken(request(user, 1)), "by the end of its successor");
        assert_eq!(lanes.state(request(user, 1)), State::Over);
    }

    #[test]
    fn a_home_is_forgotten_as_a_whole_and_alone() {
        let mut lanes = Lanes::default();
        let other = Home { cell: CellId(1), ..Home::default() };
        let (here, there) = (UserId::first(0), UserId::first_at(other, 1));
        lanes.begin(request(here, 1));
        lanes.begin(request(there, 1));
        assert!(lanes.end_all_of(Party::Home(Home::default())));
        assert_eq!(lanes.state(request(here, 1)), State::New);
        assert_eq!(lanes.state(request(there, 1)), State::Current);
    }
}
