//! What a simulated store tells those who watch it: late, all of one revision together, and sometimes no more.

use std::time::Duration;

use holdall_etcd::messages::{Event, KeyValue};
use holdall_etcd::{Failure, Kind};
use rand::RngExt;
use tokio::time::sleep;

use super::super::kv::Events;
use super::store::{SimulatedStore, Stored, covers};

/// What happens to keys from a revision on.
pub(super) struct SimulatedEvents {
    store: SimulatedStore,
    keys: (Vec<u8>, Vec<u8>),
    revision: i64,
}

impl SimulatedEvents {
    pub(super) fn new(store: SimulatedStore, keys: (Vec<u8>, Vec<u8>), revision: i64) -> Self {
        Self { store, keys, revision }
    }
}

impl Events for SimulatedEvents {
    async fn next(&mut self) -> Result<Vec<Event>, Failure> {
        loop {
            let delay = self.store.lock().random.random_range(1..20);
            sleep(Duration::from_millis(delay)).await;
            self.store.wait_while_still().await;
            let mut stored = self.store.lock();
            if self.revision <= stored.compacted {
                return Err(Failure { kind: Kind::Compacted, what: "compacted".into() });
            }
            let events = stored.since(&self.keys, self.revision);
            self.revision = stored.revision + 1;
            let faults = stored.faults;
            if stored.random.random_range(0..1000) < faults.lost {
                return Err(Failure::unknown("the watch has ended"));
            }
            if !events.is_empty() {
                return Ok(events);
            }
        }
    }
}

impl Stored {
    /// What has happened to keys from a revision on, in order.
    fn since(&self, (first, end): &(Vec<u8>, Vec<u8>), revision: i64) -> Vec<Event> {
        let watched = self.keys.iter().filter(|(key, _)| covers(first, end, key));
        let events = watched.flat_map(|(key, all)| all.iter().map(move |it| (key, it)));
        let events = events.filter(|(_, (at, _))| *at >= revision);
        let event = |(key, (at, found)): (&Vec<u8>, &(i64, Option<KeyValue>))| {
            let gone = KeyValue { key: key.clone(), modified: *at, ..KeyValue::default() };
            let kind = i32::from(found.is_none());
            (*at, Event { kind, found: Some(found.clone().unwrap_or(gone)) })
        };
        let mut events: Vec<_> = events.map(event).collect();
        events.sort_by_key(|(at, _)| *at);
        events.into_iter().map(|(_, event)| event).collect()
    }
}
