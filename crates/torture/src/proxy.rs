//! The network between each two agents: a proxy before each of them, which knows who connects and treats each direction of each
//! pair of cells as it is told.
//!
//! Agents know one address of each other, whoever asks, so the proxy must find out who has made a connection: on one machine the
//! kernel says which process a connection belongs to (`/proc`). A connection of nobody known, such as that of somebody who
//! joins, is carried as it is.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::plan::Weather;

/// How often everything looks whether something has changed.
const LOOK: Duration = Duration::from_millis(10);
/// How often it is looked whose a connection is.
const LOOKS: usize = 3;

/// What goes on between all cells.
pub struct Network {
    cells: usize,
    /// For each direction of each pair: 0 fine, 1 stalled, 2 cut, otherwise a delay in milliseconds, plus 3.
    weather: Vec<AtomicU64>,
    /// The process of each agent; 0 if there is none.
    agents: Vec<AtomicU32>,
    over: AtomicBool,
}

impl Network {
    /// One of so many cells.
    pub fn new(cells: usize) -> Arc<Self> {
        let weather = (0..cells * cells).map(|_| AtomicU64::new(0)).collect();
        let agents = (0..cells).map(|_| AtomicU32::new(0)).collect();
        Arc::new(Self { cells, weather, agents, over: AtomicBool::new(false) })
    }

    /// What goes from one cell to another is treated so from now on.
    pub fn set(&self, from: usize, to: usize, weather: Option<Weather>) {
        let code = match weather {
            None => 0,
            Some(Weather::Stalled) => 1,
            Some(Weather::Cut) => 2,
            Some(Weather::Slow(millis)) => millis + 3,
        };
        self.weather[from * self.cells + to].store(code, Ordering::Relaxed);
    }

    /// Whether something is wrong from one cell to another.
    pub fn is_bad(&self, from: usize, to: usize) -> bool {
        self.code(from, to) != 0
    }

    /// The agent of a cell is this process now.
    pub fn know(&self, cell: usize, pid: u32) {
        self.agents[cell].store(pid, Ordering::Relaxed);
    }

    fn code(&self, from: usize, to: usize) -> u64 {
        self.weather[from * self.cells + to].load(Ordering::Relaxed)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Whose the other end of a connection is.
    fn owner(&self, peer: SocketAddr) -> Option<usize> {
        let inode = inode_of(&std::fs::read_to_string("/proc/net/tcp").ok()?, peer)?;
        let name = format!("socket:[{inode}]");
        (0..self.cells).find(|cell| {
            let pid = self.agents[*cell].load(Ordering::Relaxed);
            let open = std::fs::read_dir(format!("/proc/{pid}/fd"));
            open.is_ok_and(|open| {
                let mut links = open.flatten().filter_map(|it| std::fs::read_link(it.path()).ok());
                links.any(|link| link.as_os_str() == name.as_str())
            })
        })
    }
}

/// The inode of the socket with this own address, in what the kernel tells of all of them.
fn inode_of(table: &str, address: SocketAddr) -> Option<u64> {
    let SocketAddr::V4(address) = address else { return None };
    let (ip, port) = (u32::from_le_bytes(address.ip().octets()), address.port());
    let local = format!("{ip:08X}:{port:04X}");
    // A port may have been used before, by a connection of which nothing but its number is left.
    table.lines().find_map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let is_it = words.get(1).is_some_and(|word| *word == local);
        words.get(9).filter(|_| is_it)?.parse().ok().filter(|inode| *inode != 0)
    })
}

/// A proxy before an agent.
pub struct Proxy {
    /// Where others reach the agent.
    pub address: SocketAddr,
    network: Arc<Network>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Before the agent of a cell, which listens there.
    ///
    /// # Errors
    /// If it cannot listen.
    pub fn before(network: &Arc<Network>, cell: usize, agent: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let (address, own) = (listener.local_addr()?, network.clone());
        let serve = move || {
            while !own.is_over() {
                match listener.accept() {
                    Ok((stream, peer)) => {
                        let network = own.clone();
                        std::thread::spawn(move || {
                            drop(carry(&network, cell, agent, &stream, peer));
                        });
                    }
                    Err(_) => std::thread::sleep(LOOK),
                }
            }
        };
        Ok(Self { address, network: network.clone(), thread: Some(std::thread::spawn(serve)) })
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.network.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

/// Carries a connection to the agent of a cell, until one end closes it or it is cut.
fn carry(
    network: &Network,
    to: usize,
    agent: SocketAddr,
    stream: &TcpStream,
    peer: SocketAddr,
) -> io::Result<()> {
    // The kernel tells of its connections in pieces, and may leave one out while others come and go.
    let from = (0..LOOKS).find_map(|_| {
        network.owner(peer).or_else(|| {
            std::thread::sleep(LOOK);
            None
        })
    });
    stream.set_nonblocking(false)?;
    let inner = TcpStream::connect(agent)?;
    for end in [stream, &inner] {
        end.set_nodelay(true)?;
        end.set_read_timeout(Some(LOOK))?;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| one_way(network, from.map(|from| (from, to)), stream, &inner));
        one_way(network, from.map(|from| (to, from)), &inner, stream);
    });
    Ok(())
}

/// Carries one direction. A stalled one holds back even the end of a connection.
fn one_way(
    network: &Network,
    way: Option<(usize, usize)>,
    mut from: &TcpStream,
    mut to: &TcpStream,
) {
    let weather = || way.map_or(0, |(from, to)| network.code(from, to));
    let mut bytes = vec![0; 16 << 10];
    loop {
        let read = match from.read(&mut bytes) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                None
            }
            read => Some(read.unwrap_or(0)),
        };
        while weather() == 1 && !network.is_over() {
            std::thread::sleep(LOOK);
        }
        let slow = weather().saturating_sub(3);
        if weather() == 2 || network.is_over() {
            break;
        }
        let Some(read) = read else { continue };
        std::thread::sleep(Duration::from_millis(slow));
        if read == 0 || to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    drop(from.shutdown(Shutdown::Both));
    drop(to.shutdown(Shutdown::Both));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_connection_is_found() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("there");
        let (_accepted, peer) = listener.accept().expect("a connection");
        assert_eq!(peer, stream.local_addr().expect("connected"));
        let network = Network::new(3);
        assert_eq!(network.owner(peer), None);
        network.know(1, std::process::id());
        assert_eq!(network.owner(peer), Some(1));
        drop(stream);
        assert_eq!(network.owner(peer), None);
    }

    /// An agent that says back what it hears.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("bound");
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let mut bytes = [0; 64];
                    while let Ok(count @ 1..) = (&stream).read(&mut bytes) {
                        if (&stream).write_all(&bytes[..count]).is_err() {
                            return;
                        }
                    }
                });
            }
        });
        address
    }

    #[test]
    fn each_direction_is_stalled_and_cut_by_itself() {
        let network = Network::new(2);
        network.know(0, std::process::id());
        let proxy = Proxy::before(&network, 1, echo()).expect("a port");
        let mut stream = TcpStream::connect(proxy.address).expect("there");
        let hears = |stream: &mut TcpStream, expected: &[u8]| {
            let patience = if expected.is_empty() { 100 } else { 5000 };
            stream.set_read_timeout(Some(Duration::from_millis(patience))).expect("set");
            let mut bytes = [0; 64];
            let got = stream.read(&mut bytes).unwrap_or(0);
            assert_eq!(&bytes[..got], expected);
        };
        stream.write_all(b"one").expect("sent");
        hears(&mut stream, b"one");
        for way in [(0, 1), (1, 0)] {
            network.set(way.0, way.1, Some(Weather::Stalled));
            assert!(network.is_bad(way.0, way.1) && !network.is_bad(way.1, way.0));
            stream.write_all(b"two").expect("sent");
            hears(&mut stream, b"");
            network.set(way.0, way.1, None);
            hears(&mut stream, b"two");
        }
        network.set(1, 0, Some(Weather::Cut));
        let mut rest = Vec::new();
        drop(stream.read_to_end(&mut rest));
        assert_eq!(rest, b"");
    }
}
