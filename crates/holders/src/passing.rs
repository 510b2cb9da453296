//! Descriptors that go over a socket, and who is at its other end.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{getsockopt, sockopt};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::raw;

/// How many bytes are received at once at most.
const AT_ONCE: usize = 1 << 16;

/// From now on nobody can send descriptors to those who connect to a listener: to close one may take
/// as long as its sender likes. Since Linux 6.16.
pub fn take_no_descriptors(listener: impl AsFd) {
    // An older kernel has no such option.
    let _ = raw::take_no_descriptors(listener.as_fd());
}

/// A descriptor that the program whose place this one has taken has left open, by its number. It is for
/// this process alone from now on.
///
/// # Errors
/// If it is not open.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    // Those of input, output and errors are everybody's.
    if number > 2 { raw::inherited(number) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// Sends bytes, and a descriptor along with the first of them. Returns how many bytes went.
///
/// # Errors
/// If the socket takes nothing.
pub fn send(socket: impl AsFd, bytes: &[u8], handle: BorrowedFd<'_>) -> io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let handles = [handle];
    control.push(SendAncillaryMessage::ScmRights(&handles));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    Ok(sendmsg(socket, &[IoSlice::new(bytes)], &mut control, flags)?)
}

/// Receives bytes at the end of a buffer, up to its capacity, and the last descriptor that came
/// along, if any: nobody has a use for two. Returns how many bytes came.
///
/// # Errors
/// If there are none, as the socket says.
pub fn receive(
    socket: impl AsFd,
    bytes: &mut Vec<u8>,
    handle: &mut Option<OwnedFd>,
) -> io::Result<usize> {
    let start = bytes.len();
    bytes.resize(bytes.capacity().min(start + AT_ONCE), 0);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let mut slices = [IoSliceMut::new(&mut bytes[start..])];
    let received = recvmsg(socket, &mut slices, &mut control, flags);
    bytes.truncate(start + received.as_ref().map_or(0, |received| received.bytes));
    let count = received?.bytes;
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(handles) = message {
            *handle = handles.last().or_else(|| handle.take());
        }
    }
    Ok(count)
}

/// The process at the other end of a socket.
#[derive(Debug)]
pub struct Peer {
    /// Zero if it is in a pid namespace of which we see nothing.
    pub(crate) pid: u32,
    pub(crate) handle: OwnedFd,
}

impl Peer {
    /// Who connected a socket.
    ///
    /// # Errors
    /// If it is gone, or cannot be seen from here.
    pub fn of(socket: impl AsFd) -> io::Result<Self> {
        let pid = getsockopt(&socket, sockopt::PeerCredentials)?.pid().unsigned_abs();
        let handle = match (raw::peer_handle(socket.as_fd()), Pid::from_raw(pid as i32)) {
            // An older kernel: whoever has that number now. If the peer has ended, it is another.
            (Err(error), Some(pid)) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => {
                pidfd_open(pid, PidfdFlags::empty())?
            }
            (handle, _) => handle?,
        };
        Ok(Self { pid, handle })
    }
}
