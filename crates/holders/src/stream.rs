//! A connection between a client and an agent.
//!
//! Only what is there to be read is waited for as a rule. Whoever also waits for room to write, as
//! long as nothing is stuck, is woken each time the other side reads: and it is woken by that side,
//! whose time it costs.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt};
use rustix::buffer::spare_capacity;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use tokio::io::Interest;
use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};

use crate::{passing, raw};

/// How long to wait for room to write if there is no descriptor left to wait with.
const PAUSE: Duration = Duration::from_millis(10);

/// One end of a connection.
#[derive(Debug)]
pub struct Stream {
    socket: AsyncFd<UnixStream>,
}

impl Stream {
    /// An end that somebody has connected.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self { socket: raw::watch(socket, Interest::READABLE)? })
    }

    /// Connects to whoever listens at a path.
    ///
    /// # Errors
    /// If nobody does; [`io::ErrorKind::WouldBlock`] if it has no room for one more now.
    pub fn connect(path: &Path) -> io::Result<Self> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Self::new(socket.into())
    }

    /// The process that connected, or zero if we do not see it, and its user.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn peer(&self) -> io::Result<(u32, u32)> {
        let peer = getsockopt(&self.socket, sockopt::PeerCredentials)?;
        Ok((peer.pid().unsigned_abs(), peer.uid()))
    }

    /// The groups of the process that connected, as they were then.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn groups(&self) -> io::Result<Vec<u32>> {
        let own = getsockopt(&self.socket, sockopt::PeerCredentials)?.gid();
        let mut groups = raw::peer_groups(self.as_fd())?;
        groups.push(own);
        Ok(groups)
    }

    /// Waits until there is something to read, or the connection has ended.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub async fn readable(&self) -> io::Result<Readable<'_>> {
        Ok(Readable(self.socket.readable().await?))
    }

    /// Writes as much as there is room for.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if that is nothing; otherwise if the connection has ended.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(&self.socket, bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
    }

    /// Waits until there may be room to write.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub async fn writable(&self) -> io::Result<()> {
        let again = self.socket.get_ref().try_clone();
        match again.and_then(|socket| raw::watch(socket, Interest::WRITABLE)) {
            Ok(socket) => drop(socket.writable().await?),
            // Perhaps one is free by then; it is tried whether there is room in any case.
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
        Ok(())
    }
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.get_ref().as_fd()
    }
}

/// There may be something to read.
#[derive(Debug)]
pub struct Readable<'a>(AsyncFdReadyGuard<'a, UnixStream>);

impl Readable<'_> {
    /// Reads to the end of a buffer, up to its capacity: none if there is nothing, zero bytes if the
    /// connection has ended. A descriptor that comes along is closed.
    ///
    /// # Errors
    /// If the connection is broken.
    pub fn read(mut self, bytes: &mut Vec<u8>) -> io::Result<Option<usize>> {
        let room = bytes.capacity() - bytes.len();
        match recv(self.0.get_inner(), spare_capacity(bytes), RecvFlags::DONTWAIT) {
            Ok((read, _)) => {
                if read < room {
                    self.0.clear_ready(); // All of it was read.
                }
                Ok(Some(read))
            }
            Err(error) => self.unless_nothing(error.into()),
        }
    }

    /// The same, but keeps the last descriptor that comes along.
    ///
    /// # Errors
    /// If the connection is broken.
    pub fn receive(
        self,
        bytes: &mut Vec<u8>,
        handle: &mut Option<OwnedFd>,
    ) -> io::Result<Option<usize>> {
        // What comes after a descriptor is not read along with it: there may be more.
        match passing::receive(self.0.get_inner(), bytes, handle) {
            Ok(read) => Ok(Some(read)),
            Err(error) => self.unless_nothing(error),
        }
    }

    fn unless_nothing(mut self, error: io::Error) -> io::Result<Option<usize>> {
        match error.kind() {
            io::ErrorKind::WouldBlock => {
                self.0.clear_ready();
                Ok(None)
            }
            io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(stream: &Stream, bytes: &mut Vec<u8>) -> usize {
        loop {
            let ready = stream.readable().await.expect("a socket");
            if let Some(read) = ready.read(bytes).expect("unbroken") {
                return read;
            }
        }
    }

    #[tokio::test]
    async fn what_is_stuck_goes_on_when_the_other_side_reads() {
        let (here, there) = UnixStream::pair().expect("a pair");
        let (here, there) = (Stream::new(here).expect("ours"), Stream::new(there).expect("ours"));
        let sent: Vec<u8> = (0..1_000_000u32).map(|n| n as u8).collect();
        let writing = async {
            let mut rest = &sent[..];
            while !rest.is_empty() {
                match here.write(rest) {
                    Ok(n) => rest = &rest[n..],
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        here.writable().await.expect("a socket");
                    }
                    Err(error) => panic!("{error}"),
                }
            }
        };
        let reading = async {
            let mut bytes = Vec::new();
            while bytes.len() < sent.len() {
                bytes.reserve(1000);
                read(&there, &mut bytes).await;
            }
            bytes
        };
        let ((), bytes) = tokio::join!(writing, reading);
        assert!(bytes == sent);
        drop(here);
        assert_eq!(read(&there, &mut Vec::with_capacity(1)).await, 0, "it has ended");
    }

    #[tokio::test]
    async fn what_comes_after_a_descriptor_is_read() {
        let (here, there) = UnixStream::pair().expect("a pair");
        let (here, there) = (Stream::new(here).expect("ours"), Stream::new(there).expect("ours"));
        here.write(b"one").expect("room");
        passing::send(&here, b"two", here.as_fd()).expect("room");
        here.write(b"three").expect("room");
        let (mut bytes, mut handle) = (Vec::with_capacity(100), None);
        while bytes.len() < 11 {
            bytes.reserve(100);
            let ready = there.readable().await.expect("a socket");
            ready.receive(&mut bytes, &mut handle).expect("unbroken");
        }
        assert_eq!((&bytes[..], handle.is_some()), (&b"onetwothree"[..], true));
    }
}
