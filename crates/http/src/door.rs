//! The doors: where connections come in, how many, and how slow they may be.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::Hash;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::process::{Resource, getrlimit};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tower::Service as _;
use tracing::{debug, warn};

use crate::caller::Service;
use crate::guard::Door;

/// How many connections there may be through one door. One user or address has a quarter of them.
pub(crate) const CONNECTIONS: usize = 1024;
/// Each may take three of the files that this process may open; most of these are for others.
const FILES_FOR_ONE: usize = 8;
/// How long the head of a call may take, from the end of the call before; also a handshake.
const HEAD: Duration = Duration::from_secs(30);
/// How long somebody may not read what it is told.
const UNREAD: Duration = Duration::from_secs(30);
/// How many bytes and lines the head of a call may have.
const HEAD_BYTES: usize = 32 << 10;
const HEADERS: usize = 64;

/// What somebody is told for whom there is no room.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\n\
                      content-length: 0\r\n\r\n";

/// Serves whoever comes to the Unix socket.
pub(crate) async fn unix(
    listener: std::os::unix::net::UnixListener,
    app: Router,
    service: Arc<dyn Service>,
) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    let rooms = Rooms::new();
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                pause(&error).await;
                continue;
            }
        };
        let stream = stream.into_std()?;
        let peer = match service.peer(&stream) {
            Ok(peer) => peer,
            Err(error) => {
                debug!("the kernel does not say who has connected: {error}");
                continue;
            }
        };
        let Ok(stream) = UnixStream::from_std(stream) else { continue };
        let room = rooms.take(peer.uid);
        let app = app.clone();
        tokio::spawn(async move {
            match room {
                Some(_room) => serve(stream, Door::Unix(peer), app).await,
                None => turn_away(stream).await,
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
    let rooms = Rooms::<IpAddr>::new();
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
        let room = rooms.take(from.ip());
        let (app, tls) = (app.clone(), tls.clone());
        tokio::spawn(async move {
            let Some(_room) = room else { return turn_away(stream).await };
            let Some(tls) = tls else { return serve(stream, Door::Tcp { tls: false }, app).await };
            match tokio::time::timeout(HEAD, tls.accept(stream)).await {
                Ok(Ok(stream)) => serve(stream, Door::Tcp { tls: true }, app).await,
                Ok(Err(error)) => debug!(%from, "no TLS: {error}"),
                Err(_) => debug!(%from, "a handshake took too long"),
            }
        });
    }
}

async fn pause(error: &io::Error) {
    warn!("cannot accept: {error}");
    tokio::time::sleep(Duration::from_millis(50)).await;
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Send + 'static, door: Door, app: Router) {
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(UNREAD));
    let service = hyper::service::service_fn(move |mut request: Request<hyper::body::Incoming>| {
        request.extensions_mut().insert(door.clone());
        let answer = app.clone().call(request.map(Body::new));
        async move { answer.await as Result<_, Infallible> }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS)
        .serve_connection(TokioIo::new(Box::pin(stream)), service);
    if let Err(error) = served.await {
        debug!("a connection ends: {error}");
    }
}

async fn turn_away(mut stream: impl AsyncWrite + Unpin) {
    // It is sent away in any case.
    let _ = tokio::time::timeout(Duration::from_secs(1), stream.write_all(FULL)).await;
}

/// How many connections there are, of whom.
#[derive(Clone)]
struct Rooms<K> {
    most: usize,
    taken: Arc<Mutex<HashMap<K, usize>>>,
}

/// One of them.
struct Room<K: Hash + Eq> {
    whose: K,
    rooms: Rooms<K>,
}

impl<K: Hash + Eq + Copy> Rooms<K> {
    fn new() -> Self {
        let files = getrlimit(Resource::Nofile).current.map_or(usize::MAX, |files| files as usize);
        Self::with((files / FILES_FOR_ONE).clamp(16, CONNECTIONS))
    }

    fn with(most: usize) -> Self {
        Self { most, taken: Arc::default() }
    }

    fn take(&self, whose: K) -> Option<Room<K>> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = taken.values().sum();
        let own = taken.get(&whose).copied().unwrap_or_default();
        if all >= self.most || own >= self.most / 4 {
            return None;
        }
        taken.insert(whose, own + 1);
        Some(Room { whose, rooms: self.clone() })
    }
}

impl<K: Hash + Eq> Drop for Room<K> {
    fn drop(&mut self) {
        let mut taken = self.rooms.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = taken.get_mut(&self.whose) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.whose);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_all_the_room_and_it_comes_back() {
        let rooms = Rooms::with(8);
        let mut greedy: Vec<_> = (0..2).map(|_| rooms.take(1).expect("room")).collect();
        assert!(rooms.take(1).is_none());
        assert!(rooms.take(2).is_some());
        greedy.pop();
        assert!(rooms.take(1).is_some());
        drop(greedy);
        assert!(rooms.taken.lock().expect("unpoisoned").is_empty());
    }
}
