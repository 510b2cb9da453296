//! What the agents stand on: loopback, with a proxy before each; or network namespaces, one for each, joined by a bridge.
//!
//! In namespaces there is a real network between the agents, and what goes wrong with it is that the link of a cell is set
//! down: nothing arrives any more from or at that cell, in both directions, and nobody is told. Which is asked for by the plan makes no
//! difference then.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, ensure};

use crate::plan::Weather;
use crate::proxy::{Network, Proxy};

/// Where agents listen in a namespace of their own.
const PORT: u16 = 7420;
/// Where what all of them reach is, on the bridge.
const BESIDE: Ipv4Addr = Ipv4Addr::new(10, 231, 0, 250);

/// What the agents stand on.
#[derive(Clone)]
pub enum Ground {
    /// All on loopback.
    Loopback(Arc<Network>),
    /// Each in a namespace of its own.
    Namespaces(Arc<Namespaces>),
}

/// Where an agent is.
pub struct Site {
    /// Where it listens.
    pub listens: SocketAddr,
    /// Where others reach it.
    pub reached: SocketAddr,
    /// What is put before each of its commands.
    pub inside: Vec<String>,
    /// Carries what others say to it.
    _proxy: Option<Proxy>,
}

impl Ground {
    /// For so many cells.
    ///
    /// # Errors
    /// If there can be no namespaces.
    pub fn new(cells: usize, namespaces: bool) -> anyhow::Result<Self> {
        Ok(match namespaces {
            true => Self::Namespaces(Arc::new(Namespaces::new(cells)?)),
            false => Self::Loopback(Network::new(cells)),
        })
    }

    /// Makes a place for an agent.
    ///
    /// # Errors
    /// If there is none.
    pub fn site(&self, cell: usize) -> anyhow::Result<Site> {
        match self {
            Self::Loopback(network) => {
                // Free now, and hardly anybody takes it until it is used.
                let listens = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
                let proxy = Proxy::before(network, cell, listens)?;
                let reached = proxy.address;
                Ok(Site { listens, reached, inside: Vec::new(), _proxy: Some(proxy) })
            }
            Self::Namespaces(all) => {
                let listens = SocketAddr::from((address(cell), PORT));
                let inside = format!("--net=/run/netns/{}", all.name(cell));
                let inside = vec!["nsenter".into(), inside];
                Ok(Site { listens, reached: listens, inside, _proxy: None })
            }
        }
    }

    /// A place beside all agents, which each of them reaches as it reaches the others: its address, and what is put before a command.
    ///
    /// # Errors
    /// If there is none.
    pub fn beside(&self) -> anyhow::Result<(Ipv4Addr, Vec<String>)> {
        match self {
            Self::Loopback(_) => Ok((Ipv4Addr::LOCALHOST, Vec::new())),
            Self::Namespaces(all) => {
                let net = all.name(all.cells);
                ip(&format!("-n {net} link set lo up"))?;
                ip(&format!("-n {net} addr add {BESIDE}/24 dev bridge"))?;
                Ok((BESIDE, vec!["nsenter".into(), format!("--net=/run/netns/{net}")]))
            }
        }
    }

    /// The agent of a cell is this process now.
    pub fn know(&self, cell: usize, pid: u32) {
        if let Self::Loopback(network) = self {
            network.know(cell, pid);
        }
    }

    /// Whether something is wrong from one cell to another.
    pub fn is_bad(&self, from: usize, to: usize) -> bool {
        match self {
            Self::Loopback(network) => network.is_bad(from, to),
            Self::Namespaces(all) => all.broken().contains(&(from, to)),
        }
    }

    /// What goes from one cell to another is treated so from now on.
    ///
    /// # Errors
    /// If a link cannot be changed.
    pub fn set(&self, from: usize, to: usize, weather: Option<Weather>) -> anyhow::Result<()> {
        match self {
            Self::Loopback(network) => network.set(from, to, weather),
            Self::Namespaces(all) => all.set(from, to, weather.is_some())?,
        }
        Ok(())
    }
}

/// Namespaces, which end with this.
pub struct Namespaces {
    cells: usize,
    broken: Mutex<BTreeSet<(usize, usize)>>,
}

fn address(cell: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 231, 0, 1 + cell as u8)
}

/// Runs `ip` with some words.
fn ip(words: &str) -> anyhow::Result<()> {
    let done = Command::new("ip").args(words.split(' ')).output();
    let done = done.context("`ip` of iproute2 is needed for network namespaces")?;
    let why = String::from_utf8_lossy(&done.stderr);
    ensure!(done.status.success(), "there can be no network namespaces: ip {words}: {why}");
    Ok(())
}

impl Namespaces {
    fn new(cells: usize) -> anyhow::Result<Self> {
        let all = Self { cells, broken: Mutex::default() };
        let net = all.name(cells);
        ip(&format!("netns add {net}"))?;
        ip(&format!("-n {net} link add bridge type bridge"))?;
        ip(&format!("-n {net} link set bridge up"))?;
        for cell in 0..cells {
            let (own, at) = (all.name(cell), address(cell));
            ip(&format!("netns add {own}"))?;
            ip(&format!("-n {own} link set lo up"))?;
            ip(&format!("-n {net} link add cell{cell} type veth peer name veth netns {own}"))?;
            ip(&format!("-n {net} link set cell{cell} master bridge up"))?;
            ip(&format!("-n {own} addr add {at}/24 dev veth"))?;
            ip(&format!("-n {own} link set veth up"))?;
        }
        Ok(all)
    }

    /// That of a cell; the last one is what joins the others.
    fn name(&self, cell: usize) -> String {
        format!("holdall-{}-{cell}", std::process::id())
    }

    fn broken(&self) -> std::sync::MutexGuard<'_, BTreeSet<(usize, usize)>> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, from: usize, to: usize, is_broken: bool) -> anyhow::Result<()> {
        let mut broken = self.broken();
        match is_broken {
            true => broken.insert((from, to)),
            false => broken.remove(&(from, to)),
        };
        let is_down = broken.iter().any(|(cell, _)| *cell == from);
        let state = if is_down { "down" } else { "up" };
        ip(&format!("-n {} link set cell{from} {state}", self.name(self.cells)))
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for cell in 0..=self.cells {
            drop(ip(&format!("netns del {}", self.name(cell))));
        }
    }
}
