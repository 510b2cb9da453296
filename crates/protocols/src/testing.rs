//! What unit tests of roles have in common.

use alloc::vec::Vec;

use holdall_core::{
    Addr, Effect, Event, ManagerId, Need, Needs, NodeId, Options, Outbox, Pool, PoolId, Protocol,
    Request, RequestId, Role, Topology, UserId,
};

/// The configuration of a protocol for some counted pools, each on a node of its own.
pub(crate) fn config<P: Protocol>(variant: &str, capacities: &[u32]) -> P {
    config_of(variant, capacities, false)
}

/// The same for pools that are all listed, or all counted.
pub(crate) fn config_of<P: Protocol>(variant: &str, capacities: &[u32], listed: bool) -> P {
    let pools = capacities.iter().zip(0..);
    let pools =
        pools.map(|(capacity, node)| Pool { capacity: *capacity, node: NodeId(node), listed });
    let variant = Some(variant).filter(|variant| !variant.is_empty()).map(Into::into);
    let options = Options { variant, ..Options::default() };
    P::new(&Topology::of_pools(pools.collect()), &options).expect("a variant")
}

/// Lets a role take an event; its invariants must hold afterwards.
pub(crate) fn step<R: Role>(
    cfg: &R::P,
    role: &mut R,
    event: Event<R>,
) -> Vec<Effect<R::P, R::Timer>> {
    let mut out = Outbox::default();
    role.step(cfg, event, &mut out);
    assert_eq!(role.check(cfg), Ok(()));
    out.drain().collect()
}

/// A message of a user.
pub(crate) fn by_user<R: Role>(user: UserId, msg: R::Msg) -> Event<R> {
    Event::Message { from: Addr::User(user), msg }
}

/// A message of a manager.
pub(crate) fn by_manager<R: Role>(manager: u64, msg: R::Msg) -> Event<R> {
    Event::Message { from: Addr::Manager(ManagerId(manager)), msg }
}

/// The first request of a user, for so many units of these pools.
pub(crate) fn request(user: UserId, needs: &[(u64, u32)]) -> Request {
    Request { id: RequestId { user, seq: 1 }, needs: self::needs(needs) }
}

/// So many units of these pools.
pub(crate) fn needs(needs: &[(u64, u32)]) -> Needs {
    let need = |(pool, units): &(u64, u32)| Need::any(PoolId(*pool), *units);
    Needs::new(needs.iter().map(need).collect()).expect("sensible needs")
}
