//! Other servers that people take locks from, each with the idiom of it that did best for sets of
//! locks, and a connection for each client.

mod etcd;
mod postgres;
mod program;
mod redis;
mod zookeeper;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use self::program::Program;
use crate::Options;
use crate::case::Case;
use crate::figures::Figures;
use crate::load::heed;
use crate::process::Process;
use crate::target::measured;

/// A server of another kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Peer {
    Etcd,
    EtcdLocks,
    Postgres,
    Redis,
    Zookeeper,
}

const ALL: [Peer; 5] = [Peer::Etcd, Peer::EtcdLocks, Peer::Postgres, Peer::Redis, Peer::Zookeeper];

/// What they are called.
pub(crate) const NAMES: [&str; 5] = ["etcd", "etcd-locks", "postgres", "redis", "zookeeper"];

/// Nothing is missing.
pub(crate) const REMEDY: &str = "";

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(NAMES[*self as usize])
    }
}

/// Those that run. They are started once, so that what they know by then of their work serves them.
#[derive(Default)]
pub(crate) struct Peers {
    running: BTreeMap<Peer, Program>,
    /// How often one was measured. It is part of what the locks are called, as clients that are
    /// ended in the middle of their work leave locks behind.
    measured: usize,
}

impl Peers {
    /// Measures a peer, if the name is that of one.
    pub(crate) async fn measure(
        &mut self,
        name: &str,
        case: &Case,
        options: &Options,
        seed: u64,
    ) -> Option<anyhow::Result<Figures>> {
        let peer = *ALL.iter().find(|peer| peer.to_string() == name)?;
        Some(self.measure_peer(peer, case, options, seed).await)
    }

    async fn measure_peer(
        &mut self,
        peer: Peer,
        case: &Case,
        options: &Options,
        seed: u64,
    ) -> anyhow::Result<Figures> {
        self.measured += 1;
        let (clients, run) = (case.clients, self.measured);
        let is_etcd = matches!(peer, Peer::Etcd | Peer::EtcdLocks);
        if is_etcd && !options.etcd.is_empty() {
            return measure_etcd(peer, case, options, seed, (&options.etcd, run, None)).await;
        }
        let server = if is_etcd { Peer::Etcd } else { peer };
        let program = match self.running.entry(server) {
            Entry::Vacant(vacant) => vacant.insert(Program::start(server)?),
            Entry::Occupied(running) => running.into_mut(),
        };
        let (port, process) = (program.port, Some(program.process()));
        match peer {
            Peer::Etcd | Peer::EtcdLocks => {
                let member = [format!("127.0.0.1:{port}")];
                measure_etcd(peer, case, options, seed, (&member, run, process)).await
            }
            Peer::Postgres => {
                let sessions = connected(clients, async |_| postgres::connect(port).await).await?;
                measured(case, &sessions, options, seed, process).await
            }
            Peer::Redis => {
                let sessions =
                    connected(clients, async |mark| redis::connect(port, run, mark).await).await?;
                measured(case, &sessions, options, seed, process).await
            }
            Peer::Zookeeper => {
                let sessions =
                    connected(clients, async |_| zookeeper::connect(port, run).await).await?;
                measured(case, &sessions, options, seed, process).await
            }
        }
    }
}

/// Measures an etcd, over whose members the clients are dealt.
async fn measure_etcd(
    peer: Peer,
    case: &Case,
    options: &Options,
    seed: u64,
    (members, run, process): (&[String], usize, Option<Process>),
) -> anyhow::Result<Figures> {
    let connect = async |number: usize| etcd::connect(&members[number % members.len()], run).await;
    let sessions = connected(case.clients, connect).await?;
    if peer == Peer::Etcd {
        return measured(case, &sessions, options, seed, process).await;
    }
    let sessions: Vec<_> = sessions.into_iter().map(etcd::Queues).collect();
    measured(case, &sessions, options, seed, process).await
}

/// A connection for each client.
async fn connected<S>(
    clients: usize,
    connect: impl AsyncFn(usize) -> anyhow::Result<S>,
) -> anyhow::Result<Vec<S>> {
    let mut sessions = Vec::with_capacity(clients);
    for number in 0..clients {
        heed()?;
        sessions.push(connect(number).await?);
    }
    Ok(sessions)
}
