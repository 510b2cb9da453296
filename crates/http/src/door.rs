//! The doors: where connections come in, how many, and how slow they may be.

use std::convert::Infallible;
use std::hash::Hash;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody as _};
use axum::http::Request;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, getrlimit};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tower::Service as _;
use tracing::{debug, warn};

use crate::caller::Service;
use crate::guard::Door;
use crate::problem::{Kind, Problem};
use crate::rooms::{Full, Rooms};

/// How many connections there may be through one door; one user or address has a quarter of them ([`Rooms`]).
pub(crate) const CONNECTIONS: usize = 1024;
/// Each may take three of the files that this process may open; most of these are for others.
const FILES_FOR_ONE: usize = 8;
/// How long the head of a call may take, from the end of the call before; also a handshake.
const HEAD: Duration = Duration::from_secs(30);
/// How many bytes are heard of whoever has been answered and goes on: more than the body of a call may have.
const HEARD_OUT: u64 = 1 << 20;
/// How long somebody may not read what it is told.
const UNREAD: Duration = Duration::from_secs(30);
/// How many bytes and lines the head of a call may have.
pub(crate) const HEAD_BYTES: usize = 32 << 10;
pub(crate) const HEADERS: usize = 64;
/// With up to so many lines it is told in words of ours what is wrong.
const HEADERS_READ: usize = 100;

/// How long whoever is sent away may take to hear it.
const SENT_AWAY: Duration = Duration::from_secs(1);
/// How many are sent away with a word at the same time; others are without one.
const WORDS: usize = 64;

/// Serves whoever comes to the Unix socket.
pub(crate) async fn unix(
    listener: std::os::unix::net::UnixListener,
    app: Router,
    service: Arc<dyn Service>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let (rooms, words) = (rooms(), Arc::new(Semaphore::new(WORDS)));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                pause(&error).await;
                continue;
            }
        };
        let Ok(stream) = stream.into_std() else { continue };
        let peer = match service.peer(&stream) {
            Ok(peer) => peer,
            Err(error) => {
                debug!("the kernel does not say who has connected: {error}");
                continue;
            }
        };
        let Ok(stream) = UnixStream::from_std(stream) else { continue };
        let room = rooms.take(peer.uid, 1);
        let (app, words) = (app.clone(), words.clone());
        tokio::spawn(async move {
            match room {
                Ok(_room) => serve(stream, Door::Unix(peer), app).await,
                Err(full) => turn_away(stream, full, &words).await,
            }
        });
    }
}

/// Serves whoever comes over TCP.
pub(crate) async fn tcp(
    listener: std::net::TcpListener,
    app: Router,
    tls: Option<Arc<ServerConfig>>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let tls = tls.map(TlsAcceptor::from);
    let (rooms, words) = (rooms::<IpAddr>(), Arc::new(Semaphore::new(WORDS)));
    loop {
        let (stream, from) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                pause(&error).await;
                continue;
            }
        };
        // Answers are short.
        let _ = stream.set_nodelay(true);
        let network = network(from.ip());
        let room = rooms.take(network, 1);
        let (app, tls, words) = (app.clone(), tls.clone(), words.clone());
        tokio::spawn(async move {
            let _room = match room {
                Ok(room) => room,
                Err(full) if tls.is_none() => return turn_away(stream, full, &words).await,
                // A handshake costs more than others should pay for it.
                Err(_) => return,
            };
            let door = Door::Tcp { tls: tls.is_some(), from: network };
            let Some(tls) = tls else { return serve(stream, door, app).await };
            match tokio::time::timeout(HEAD, tls.accept(stream)).await {
                Ok(Ok(stream)) => serve(stream, door, app).await,
                Ok(Err(error)) => debug!(%from, "no TLS: {error}"),
                Err(_) => debug!(%from, "a handshake took too long"),
            }
        });
    }
}

/// Whose connections are counted together: whoever has one address of IPv6 has the 2^64 of its network.
fn network(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

async fn pause(error: &io::Error) {
    warn!("cannot accept: {error}");
    tokio::time::sleep(Duration::from_millis(50)).await;
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Send + 'static, door: Door, app: Router) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(UNREAD));
    let has_body = Arc::new(AtomicBool::new(false));
    let last_has_body = has_body.clone();
    let service = hyper::service::service_fn(move |mut request: Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(door.clone());
        has_body.store(!request.body().is_end_stream(), Ordering::Relaxed);
        let answer = app.clone().call(request.map(Body::new));
        Box::pin(async move { answer.await as Result<_, Infallible> })
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS_READ)
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    match connection.without_shutdown().await {
        Ok(parts) => close(parts.io.into_inner(), last_has_body.load(Ordering::Relaxed)).await,
        Err(error) => debug!("a connection ends: {error}"),
    }
}

/// Closes. If the last call has a body, what is still said is heard for a while: who is answered before it has said everything
/// finds the connection broken otherwise, and the answer gone. Nobody else is waited for, and takes room meanwhile.
async fn close(mut stream: impl AsyncRead + AsyncWrite + Unpin, has_body: bool) {
    let closed = async {
        stream.shutdown().await?;
        if has_body {
            tokio::io::copy(&mut stream.take(HEARD_OUT), &mut tokio::io::sink()).await?;
        }
        Ok::<_, io::Error>(())
    };
    // It is closed in any case.
    let _ = tokio::time::timeout(HEAD, closed).await;
}

/// Says why there is no room, and closes. Some are waited for until they have heard it: whoever is still
/// saying something finds the connection reset otherwise, and the answer gone.
async fn turn_away(mut stream: impl AsyncRead + AsyncWrite + Unpin, full: Full, words: &Semaphore) {
    let problem = match full {
        Full::Own => Problem::new(Kind::Limit, "you have as many connections here as you may"),
        Full::All => Problem::new(Kind::Unreachable, "there are as many connections as may be"),
    };
    let tell = async {
        stream.write_all(problem.before_any_call().as_bytes()).await?;
        stream.shutdown().await?;
        if let Ok(_one_of_few) = words.try_acquire() {
            tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
        }
        Ok::<_, io::Error>(())
    };
    // It is sent away in any case.
    let _ = tokio::time::timeout(SENT_AWAY, tell).await;
}

/// How many connections there may be through one door, with the files that this process may open.
pub(crate) fn connections() -> usize {
    let files = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| files as usize);
    (files / FILES_FOR_ONE).clamp(16, CONNECTIONS)
}

fn rooms<K: Hash + Eq + Copy>() -> Rooms<K> {
    Rooms::new(connections())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_counts_as_one() {
        let of = |text: &str| network(text.parse().expect("an address"));
        assert_eq!(of("2001:db8:1:2:3:4:5:6"), of("2001:db8:1:2::9"));
        assert_ne!(of("2001:db8:1:2::9"), of("2001:db8:1:3::9"));
        assert_ne!(of("10.0.0.1"), of("10.0.0.2"));
        assert_eq!(of("::ffff:10.0.0.1"), of("10.0.0.1"));
    }
}
