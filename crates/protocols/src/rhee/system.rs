//! The lemmas about the queues of all pools together (Section 5).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use holdall_core::{Broken, Protocol, Request, RequestId, System};

use super::{Manager, PoolManager, Rhee, ToManager};
use crate::positions::Move;

/// Where requests stand, queue by queue.
type Positions = BTreeMap<RequestId, Vec<u32>>;

/// R1 to R3. Whoever has stopped is left out: it may have moved in some of its queues only.
pub(super) fn check<S: Protocol>(
    cfg: &Rhee<S>,
    system: &impl System<Rhee<S>>,
) -> Result<(), Broken> {
    let selecting: Vec<&Request> = system
        .users()
        .filter(|user| user.is_selecting())
        .filter_map(|user| user.queued())
        .collect();
    let alone = |(at, request): (usize, &&Request)| {
        let mut later = selecting[at + 1..].iter();
        later.all(|other| !request.needs.share_a_pool_with(&other.needs))
    };
    Broken::unless(
        selecting.iter().enumerate().all(alone),
        "R1: nobody selects while another selects who needs a pool of it",
    )?;
    let present: BTreeSet<RequestId> =
        system.users().filter_map(|user| user.queued()).map(|request| request.id).collect();
    let queues: Vec<Vec<(RequestId, u32)>> = pool_managers(system)
        .map(|pool| pool.queue().positions().filter(|(id, _)| present.contains(id)).collect())
        .collect();
    let mut positions = Positions::new();
    for (request, position) in queues.iter().flatten() {
        positions.entry(*request).or_default().push(*position);
    }
    check_synchrony(&positions, &advancing(system))?;
    let single = cfg.pools.iter().all(|pool| pool.capacity == 1);
    Broken::unless(
        !single || waiting_has_no_cycle(&positions, &queues),
        "R3: waiting has no cycles",
    )
}

fn pool_managers<S: Protocol>(system: &impl System<Rhee<S>>) -> impl Iterator<Item = &PoolManager> {
    system.managers().filter_map(|manager| match manager {
        Manager::Inner(_) => None,
        Manager::Pool(pool) => Some(pool),
    })
}

/// The advances on the way to queues, or put off there: from where, for each request.
fn advancing<S: Protocol>(system: &impl System<Rhee<S>>) -> Positions {
    let sent = system.to_managers().filter_map(|msg| match msg {
        ToManager::Move(step) => Some(step),
        _ => None,
    });
    let deferred = pool_managers(system).flat_map(PoolManager::deferred_moves);
    let mut all = Positions::new();
    for step in sent.chain(deferred) {
        if let Move::Advance { request, from } = step {
            all.entry(*request).or_default().push(*from);
        }
    }
    all
}

/// R2.
fn check_synchrony(positions: &Positions, advancing: &Positions) -> Result<(), Broken> {
    for (request, places) in positions {
        let least = places.iter().min().copied().unwrap_or_default();
        Broken::unless(
            places.iter().all(|place| place - least <= 1),
            "R2: the positions of a request differ by at most one",
        )?;
        let behind = places.iter().filter(|place| **place > least).count();
        let moving = advancing
            .get(request)
            .map_or(0, |all| all.iter().filter(|from| **from == least + 1).count());
        Broken::unless(behind <= moving, "R2: whoever stands one behind is about to advance")?;
    }
    Ok(())
}

/// R3: takes those out, again and again, who wait for nobody who is left.
fn waiting_has_no_cycle(positions: &Positions, queues: &[Vec<(RequestId, u32)>]) -> bool {
    let mut left: BTreeSet<RequestId> = positions.keys().copied().collect();
    loop {
        let waits = |queue: &Vec<(RequestId, u32)>, request: RequestId| {
            let own = queue.iter().find(|(id, _)| *id == request);
            own.is_some_and(|(_, own)| {
                queue.iter().any(|(other, place)| place < own && left.contains(other))
            })
        };
        let free = left.iter().copied().find(|id| !queues.iter().any(|queue| waits(queue, *id)));
        match free {
            Some(id) => left.remove(&id),
            None => return left.is_empty(),
        };
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use holdall_core::UserId;

    use super::*;

    fn request(lane: u32) -> RequestId {
        RequestId { user: UserId::first(lane), seq: 1 }
    }

    #[test]
    fn one_behind_only_while_the_advance_is_on_the_way() {
        let at = |places: &[u32]| Positions::from([(request(0), places.to_vec())]);
        let none = Positions::new();
        assert!(check_synchrony(&at(&[2, 2]), &none).is_ok());
        assert!(check_synchrony(&at(&[2, 3]), &at(&[3])).is_ok());
        assert!(check_synchrony(&at(&[2, 3]), &none).is_err(), "nothing will move it on");
        assert!(check_synchrony(&at(&[2, 3, 3]), &at(&[3])).is_err(), "one of two is not told");
        assert!(check_synchrony(&at(&[2, 4]), &at(&[3, 4])).is_err(), "two behind");
    }

    /// Figure 3: each is before the other in one of two queues.
    #[test]
    fn careless_advancement_is_a_cycle() {
        let waits = |queues: &[Vec<(RequestId, u32)>]| {
            let mut positions = Positions::new();
            for (request, position) in queues.iter().flatten() {
                positions.entry(*request).or_default().push(*position);
            }
            waiting_has_no_cycle(&positions, queues)
        };
        let [i, j, k] = [request(0), request(1), request(2)];
        assert!(waits(&[vec![(i, 1), (j, 3)], vec![(i, 2), (j, 3)]]));
        assert!(!waits(&[vec![(i, 1), (j, 3)], vec![(j, 3), (i, 5)]]));
        let ring = [vec![(i, 1), (j, 2)], vec![(j, 1), (k, 2)], vec![(k, 1), (i, 2)]];
        assert!(!waits(&ring), "a cycle of three, which the paper's proof leaves out");
    }
}
