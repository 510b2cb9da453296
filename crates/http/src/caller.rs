//! Who calls, and the service that is called for it.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use holdall_wire::Right;

/// Somebody for whom the gateway connects to the service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// The user's number; of a token, a number that no user has.
    pub uid: u32,
    /// The process, or 0 if it is on another machine or cannot be seen.
    pub pid: u32,
    /// The groups of the process.
    pub groups: Vec<u32>,
    /// The name, if it is not that of the user with that number.
    pub name: Option<Arc<str>>,
    /// What it may do, if that does not depend on user and groups.
    pub may: Option<Vec<Right>>,
}

/// The service of an agent, as the gateway sees it.
pub trait Service: Send + Sync + 'static {
    /// The other end of a connection of a Unix socket, as the kernel vouches for it.
    ///
    /// # Errors
    /// If the kernel does not say.
    fn peer(&self, connection: &UnixStream) -> io::Result<Peer>;

    /// A connection over which the service is spoken to as this peer.
    ///
    /// # Errors
    /// If the service has ended, or there are no descriptors left.
    fn connect(&self, peer: &Peer) -> io::Result<UnixStream>;

    /// Which users have a token that is good. What others wait for who had one is withdrawn.
    fn tokens(&self, good: BTreeSet<u32>);

    /// The time since the boot of the machine in milliseconds, by which the service says
    /// [until when](holdall_wire::Reply::Until) something may be used.
    fn boottime(&self) -> u64;

    /// A number that grows whenever something has happened that others may see.
    fn happened(&self) -> u64;
}
