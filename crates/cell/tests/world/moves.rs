//! What may happen, at random.

use proptest::prelude::*;
use proptest::sample::Index;

use super::CLIENTS;

/// What may happen.
#[derive(Clone, Debug)]
pub(crate) enum Move {
    Connect(usize),
    Ask {
        client: usize,
        needs: Vec<(u8, u8)>,
        lasting: u8,
        now: bool,
    },
    /// A child becomes the command of a grant.
    Child(usize, Index),
    /// A grant is given back, perhaps with something left behind.
    End(usize, Index, bool),
    Withdraw(usize, Index),
    /// A call is made again that may have been answered.
    Repeat(usize, Index),
    Hear(usize),
    Release(usize, Index, bool),
    Renew(usize, Index),
    Change(u8, u8),
    Disconnect(usize),
    /// The process of a client ends; another takes its place.
    Die(usize),
    /// What was to be made for a grant is made.
    Prepare(Index),
    /// What is watched or was killed ends.
    HolderEnds(Index),
    Ring(Index),
    Pass(u16),
    Flush,
    /// The host is killed.
    Kill,
    Snapshot,
    Dismiss,
}

pub(crate) fn moves(most: usize) -> impl Strategy<Value = Vec<Move>> {
    let client = || 0..CLIENTS;
    let index = any::<Index>;
    let needs = prop::collection::vec((0..6u8, 0..3u8), 1..3);
    let ask = (client(), needs, 0..6u8, prop::bool::weighted(0.1));
    let one = prop_oneof![
        6 => client().prop_map(Move::Connect),
        10 => ask.prop_map(|(client, needs, lasting, now)| Move::Ask { client, needs, lasting, now }),
        4 => (client(), index()).prop_map(|(c, i)| Move::Child(c, i)),
        7 => (client(), index(), any::<bool>()).prop_map(|(c, i, left)| Move::End(c, i, left)),
        2 => (client(), index()).prop_map(|(c, i)| Move::Withdraw(c, i)),
        3 => (client(), index()).prop_map(|(c, i)| Move::Repeat(c, i)),
        1 => client().prop_map(Move::Hear),
        2 => (client(), index(), any::<bool>()).prop_map(|(c, i, f)| Move::Release(c, i, f)),
        1 => (client(), index()).prop_map(|(c, i)| Move::Renew(c, i)),
        1 => (0..7u8, 1..5u8).prop_map(|(what, units)| Move::Change(what, units)),
        2 => client().prop_map(Move::Disconnect),
        1 => client().prop_map(Move::Die),
        8 => index().prop_map(Move::Prepare),
        4 => index().prop_map(Move::HolderEnds),
        1 => index().prop_map(Move::Ring),
        1 => (0..20_000u16).prop_map(Move::Pass),
        20 => Just(Move::Flush),
        2 => Just(Move::Kill),
        1 => Just(Move::Snapshot),
        1 => Just(Move::Dismiss),
    ];
    prop::collection::vec(one, 1..most)
}
