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
        /// Inside one of its grants: as a part, one that may outlast it, or beside it.
        inside: Option<(Index, u8)>,
    },
    /// A child becomes the command of a grant.
    Child(usize, Index),
    /// A grant is given back, perhaps with something left behind.
    End(usize, Index, bool),
    /// The same with what was asked for, granted or not.
    Withdraw(usize, Index, bool),
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
    Prepare(Index, bool),
    /// What is watched or was killed ends.
    HolderEnds(Index),
    Ring(Index),
    Pass(u16),
    Flush,
    /// The host is killed.
    Kill,
    Snapshot,
    Dismiss,
    /// Somebody tries to get at a session that is not its own.
    Intrude(usize, u8),
    /// The machine is started again.
    Reboot,
    /// The host is started with another configuration.
    Configure(u8),
    /// The clock goes back for a moment.
    Back(u16),
}

pub(crate) fn moves(most: usize) -> impl Strategy<Value = Vec<Move>> {
    let client = || 0..CLIENTS;
    let index = any::<Index>;
    let needs = prop::collection::vec((0..6u8, 0..3u8), 1..3);
    let inside = prop::option::weighted(0.3, (index(), 0..3u8));
    let ask = (client(), needs, 0..6u8, prop::bool::weighted(0.1), inside);
    let one = prop_oneof![
        6 => client().prop_map(Move::Connect),
        10 => ask.prop_map(|(client, needs, lasting, now, inside)| {
            Move::Ask { client, needs, lasting, now, inside }
        }),
        4 => (client(), index()).prop_map(|(c, i)| Move::Child(c, i)),
        7 => (client(), index(), any::<bool>()).prop_map(|(c, i, left)| Move::End(c, i, left)),
        2 => (client(), index(), any::<bool>()).prop_map(|(c, i, left)| Move::Withdraw(c, i, left)),
        3 => (client(), index()).prop_map(|(c, i)| Move::Repeat(c, i)),
        1 => client().prop_map(Move::Hear),
        2 => (client(), index(), any::<bool>()).prop_map(|(c, i, f)| Move::Release(c, i, f)),
        1 => (client(), index()).prop_map(|(c, i)| Move::Renew(c, i)),
        1 => (0..7u8, 1..5u8).prop_map(|(what, units)| Move::Change(what, units)),
        2 => client().prop_map(Move::Disconnect),
        1 => client().prop_map(Move::Die),
        8 => (index(), any::<bool>()).prop_map(|(i, in_cgroup)| Move::Prepare(i, in_cgroup)),
        4 => index().prop_map(Move::HolderEnds),
        1 => index().prop_map(Move::Ring),
        1 => (0..20_000u16).prop_map(Move::Pass),
        20 => Just(Move::Flush),
        2 => Just(Move::Kill),
        1 => Just(Move::Snapshot),
        1 => Just(Move::Dismiss),
        1 => (client(), 0..3u8).prop_map(|(c, kind)| Move::Intrude(c, kind)),
        1 => Just(Move::Reboot),
        1 => (0..5u8).prop_map(Move::Configure),
        1 => (0..3000u16).prop_map(Move::Back),
    ];
    prop::collection::vec(one, 1..most)
}
