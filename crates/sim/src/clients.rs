//! Clients that decide themselves when they ask and when they are done, in place of a workload.

use std::collections::BTreeSet;

use holdall_core::{Needs, NodeId, Pool, PoolId};

use crate::contender::Contender;
use crate::random::{Purpose, Stream};
use crate::stats::{self, Report};
use crate::waiting::END_OF_TIME;
use crate::{Error, Settings};

/// What clients want done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// A client asks for its needs.
    Ask(u32),
    /// A client has used what it was granted.
    Done(u32),
    /// A client that waits gives up.
    Leave(u32),
    /// They want to be told when this time has come.
    Wake(u64),
}

/// Clients, by number from 0 on. Whatever they are told, they may answer with deeds, which are done at once.
pub trait Clients: std::fmt::Debug {
    /// How many units each pool has.
    fn capacities(&self) -> &[u32];

    /// Whether the units of a pool have numbers, so that they can be asked for by name.
    fn is_listed(&self, _pool: PoolId) -> bool {
        false
    }

    /// What each client asks for when it asks next. New clients may come up later, one after another,
    /// unless the protocol has to know them.
    fn needs(&self) -> &[Needs];

    /// The pools that each client may ever ask for, for protocols that have to know.
    fn pools_of_each(&self) -> Vec<BTreeSet<PoolId>> {
        let pools = |needs: &Needs| needs.iter().map(|need| need.pool).collect();
        self.needs().iter().map(pools).collect()
    }

    /// A time has come that they have named, or the first.
    fn wake(&mut self, now: u64, out: &mut Vec<Deed>);

    /// A client was granted what it asked for.
    fn granted(&mut self, client: u32, now: u64, out: &mut Vec<Deed>);

    /// All is over with the last request of a client, granted or given up; it may ask again.
    fn released(&mut self, _client: u32, _now: u64, _out: &mut Vec<Deed>) {}

    /// Whether nothing is to be done any more.
    fn is_over(&self) -> bool;
}

/// How much longer than a run of a workload one with such clients may take.
const LONGER: u64 = 1000;

/// The settings for such clients: of those given, what says how messages, nodes and roles are.
pub fn settings_for(clients: &dyn Clients, settings: &Settings) -> Settings {
    let widest = clients.needs().iter().map(|needs| needs.len()).max().unwrap_or(1);
    let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    Settings {
        users: number(clients.needs().len()),
        resources: number(clients.capacities().len()),
        units: clients.capacities().iter().copied().max().unwrap_or(1),
        per_request: number(widest),
        ticks: settings.ticks.saturating_mul(LONGER).min(END_OF_TIME),
        ..settings.clone()
    }
}

/// Simulates one protocol with such clients, until they have done all they want, or until the last
/// tick. The settings are [those for them](settings_for). The report has messages, grants and events;
/// what became of the clients they know themselves.
///
/// # Errors
/// As for [`run`](crate::run).
pub fn run_clients(
    settings: &Settings,
    contender: &Contender,
    clients: &mut dyn Clients,
) -> Result<Report, Error> {
    settings.validate()?;
    contender.supports(settings)?;
    let seen = contender.play(settings, clients)?;
    Ok(stats::report(contender.name(), &[seen]))
}

/// Random numbers for a client: each call draws one below its argument.
pub fn draws(seed: u64, client: u32) -> impl FnMut(u64) -> u64 {
    let mut stream = Stream::new(seed, 0, Purpose::User(client));
    move |n| stream.below(n)
}

/// The pools of such clients.
pub(crate) fn pools(settings: &Settings, clients: &dyn Clients) -> Vec<Pool> {
    let pool = |(number, capacity): (u32, &u32)| {
        let node: NodeId = settings.node(number);
        let listed = clients.is_listed(PoolId(number.into()));
        Pool { capacity: *capacity, node, listed }
    };
    (0..).zip(clients.capacities()).map(pool).collect()
}
