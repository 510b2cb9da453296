//! Where an agent is: at a socket of this machine, or at an address of another one.
//!
//! Over TLS the bytes are those of the socket. A task carries them between the connection and one end of a pair of
//! sockets, whose other end is used as if the agent were here: so nothing of the rest knows the difference, and
//! who is on the machine pays nothing for it.

use std::fmt;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

use holdall_holders::Stream;
use holdall_links::client::{Unserved, connect};
use holdall_links::token::ClientToken;
use tokio::sync::watch;

/// What addresses of agents on other machines begin with.
const SCHEME: &str = "tls://";

/// An agent of another machine, and the token that it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    address: String,
    token: ClientToken,
}

/// An address or token that cannot be one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadRemote(String);

impl Remote {
    /// Whether this is meant to be the address of an agent on another machine.
    pub fn is_meant(address: &str) -> bool {
        address.starts_with(SCHEME)
    }

    /// An agent at an address, like `tls://lab1:7420`, and the token for it, which begins with `HC1-`.
    ///
    /// # Errors
    /// If it is no such address, or the token is none, or cut off or mistyped.
    pub fn new(address: &str, token: &str) -> Result<Self, BadRemote> {
        Self::check(address)?;
        let token = token.parse().map_err(|bad| BadRemote(format!("{address}: {bad}")))?;
        Ok(Self { address: address[SCHEME.len()..].to_owned(), token })
    }

    /// Looks at an address alone.
    ///
    /// # Errors
    /// If it is none.
    pub fn check(address: &str) -> Result<(), BadRemote> {
        let is_good = |rest: &str| {
            let (host, port) = rest.rsplit_once(':')?;
            let host = match host.strip_prefix('[') {
                Some(six) => six.strip_suffix(']').filter(|six| six.contains(':'))?,
                None => Some(host).filter(|host| !host.contains(':'))?,
            };
            let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%');
            let is_host = !host.is_empty() && host.chars().all(plain);
            let is_port = port.parse::<u16>().is_ok_and(|port| port != 0);
            (is_host && is_port).then_some(())
        };
        address.strip_prefix(SCHEME).and_then(is_good).ok_or_else(|| {
            let short: String = address.chars().take(100).collect();
            BadRemote(format!(
                "'{short}' is no address of an agent; write it with its port, like tls://lab1:7420"
            ))
        })
    }

    /// Connects, and has the bytes carried.
    async fn connect(&self) -> io::Result<Stream> {
        let far = connect(&self.address, &self.token).await.map_err(|unserved| match unserved {
            Unserved::Unreachable(_, why) => io::Error::new(io::ErrorKind::NotConnected, why),
            refused @ Unserved::Refused(..) => {
                io::Error::new(io::ErrorKind::PermissionDenied, refused.to_string())
            }
        })?;
        let (ours, near) = UnixStream::pair()?;
        near.set_nonblocking(true)?;
        let near = tokio::net::UnixStream::from_std(near)?;
        let carrying = Carrying::begin();
        tokio::spawn(async move {
            holdall_links::carry(far, near, None).await;
            drop(carrying);
        });
        Stream::new(ours)
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.address)
    }
}

/// How many connections bytes are carried for.
static CARRYING: LazyLock<watch::Sender<usize>> = LazyLock::new(watch::Sender::default);

struct Carrying;

impl Carrying {
    fn begin() -> Self {
        CARRYING.send_modify(|count| *count += 1);
        Self
    }
}

impl Drop for Carrying {
    fn drop(&mut self) {
        CARRYING.send_modify(|count| *count -= 1);
    }
}

/// Waits until agents on other machines have heard the last words of clients that were dropped, for so long at most. A
/// program says this before it ends; with agents of its own machine there is nothing to wait for.
pub async fn heard_out(patience: Duration) {
    let Some(carrying) = LazyLock::get(&CARRYING) else { return };
    let mut carrying = carrying.subscribe();
    if *carrying.borrow() > 0 {
        let _ = tokio::time::timeout(patience, carrying.wait_for(|count| *count == 0)).await;
    }
}

/// Where an agent is.
#[derive(Clone, Debug)]
pub(crate) enum At {
    /// At a socket of this machine.
    Socket(PathBuf),
    /// On another one.
    Remote(Remote),
}

impl At {
    pub(crate) async fn connect(&self) -> io::Result<Stream> {
        match self {
            Self::Socket(path) => connected(path).await,
            Self::Remote(remote) => Box::pin(remote.connect()).await, // It is large, and rare.
        }
    }

    pub(crate) fn is_remote(&self) -> bool {
        matches!(self, Self::Remote(_))
    }

    /// Whether it was stopped on purpose, as far as that can be seen from here.
    pub(crate) fn is_stopped(&self) -> bool {
        match self {
            Self::Socket(path) => crate::is_stopped(path),
            Self::Remote(_) => false,
        }
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Socket(path) => path.display().fmt(f),
            Self::Remote(remote) => remote.fmt(f),
        }
    }
}

/// Connects. The kernel has no way to wait until a listener has room for one more but to try again.
async fn connected(path: &Path) -> io::Result<Stream> {
    let mut pause = Duration::from_millis(1);
    loop {
        match Stream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_millis(100));
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_host_and_a_port() {
        for good in ["tls://lab1:7420", "tls://127.0.0.1:1", "tls://[::1]:7420", "tls://a_b.c-d:80"]
        {
            assert_eq!(Remote::check(good), Ok(()), "{good}");
        }
        let bad = [
            "tls://",
            "tls://lab1",
            "tls://:7420",
            "tls://lab1:0",
            "tls://lab1:70000",
            "tls://a:b:1",
            "tls://lab1:7420/",
            "tls://me@lab1:7420",
            "tls://[lab1]:1",
            "tls://::1:7420",
            "lab1:7420",
            "tls://lab 1:7420",
        ];
        for bad in bad {
            let told = Remote::check(bad).expect_err(bad).to_string();
            assert!(told.contains("like tls://lab1:7420"), "{told}");
        }
    }

    #[test]
    fn a_token_of_another_kind_is_told_from_one_that_is_mistyped() {
        let told = |token| Remote::new("tls://lab1:7420", token).expect_err("no token").to_string();
        assert!(told("hat_0123").contains("HC1-"), "{}", told("hat_0123"));
        assert!(told("HC1-abc").contains("mistyped"), "{}", told("HC1-abc"));
        assert!(!told("hat_0123").contains("0123"), "secrets are not shown");
    }
}
