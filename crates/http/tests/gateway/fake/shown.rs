//! What the service shows.

use holdall_wire::{GrantView, PoolView, RequestNo, State, Status, WaitView, Who};

use super::{Model, Request};

impl Model {
    pub(super) fn status(&self) -> Status {
        let who = |it: &Request| Who { uid: it.uid, from: it.from.clone(), ..Who::default() };
        let holders = self.requests.iter().filter(|it| it.taken.is_some()).map(|it| it.number);
        let pool = PoolView {
            name: "gpu".parse().expect("a name"),
            lock: false,
            declared: true,
            removed: false,
            units: Vec::new(),
            free: 0,
            holders: holders.collect(),
            waiting: 0,
        };
        let grant = |it: &Request| {
            Some(GrantView {
                request: it.number,
                needs: it.needs.clone(),
                taken: it.taken.clone()?.to_vec(),
                who: who(it),
                since: 5,
                until: None,
                state: State::Held,
                pids: Vec::new(),
                part_of: None,
                parts: Vec::new(),
            })
        };
        let wait = |it: &Request| WaitView {
            request: it.number,
            needs: it.needs.clone(),
            who: who(it),
            since: 6,
            within: None,
            part_of: None,
            hindrances: Vec::new(),
        };
        let stranger = |n: u64| WaitView {
            request: RequestNo((9 << 32) | n),
            needs: vec!["gpu".parse().expect("a need")],
            who: Who::default(),
            since: 7,
            within: None,
            part_of: None,
            hindrances: Vec::new(),
        };
        let waiting = self.requests.iter().filter(|it| it.taken.is_none()).map(wait);
        Status {
            pools: vec![pool],
            grants: self.requests.iter().filter_map(grant).collect(),
            waiting: waiting.chain((0..self.crowd).map(stranger)).collect(),
            left_out: 0,
        }
    }
}
