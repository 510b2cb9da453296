//! A network that delays and cuts, one way or both: a proxy before a member.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::listen;

/// What the network does.
#[derive(Default)]
pub(super) struct Weather {
    /// Nothing arrives at the member.
    pub(super) cut_in: AtomicBool,
    /// Nothing comes from the member.
    pub(super) cut_out: AtomicBool,
    /// How long everything takes, in milliseconds.
    pub(super) delay: AtomicU64,
}

pub(super) struct Proxy {
    pub(super) address: String,
    pub(super) weather: Arc<Weather>,
    _tasks: JoinSet<()>,
}

impl Proxy {
    /// Before the member that listens at this address.
    pub(super) async fn before(member: String) -> Self {
        let (listener, address) = listen().await;
        let weather = Arc::new(Weather::default());
        let mut tasks = JoinSet::new();
        tasks.spawn(carry_all(listener, member, weather.clone()));
        Self { address, weather, _tasks: tasks }
    }

    pub(super) fn cut(&self, inwards: bool, outwards: bool) {
        self.weather.cut_in.store(inwards, Ordering::Relaxed);
        self.weather.cut_out.store(outwards, Ordering::Relaxed);
    }
}

async fn carry_all(listener: TcpListener, member: String, weather: Arc<Weather>) {
    let mut tasks = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let Ok(inner) = TcpStream::connect(&member).await else { continue };
        let (from, to) = (stream.into_split(), inner.into_split());
        let (inwards, outwards) = (weather.clone(), weather.clone());
        tasks.spawn(async move { carry(from.0, to.1, &inwards, &inwards.cut_in).await });
        tasks.spawn(async move { carry(to.0, from.1, &outwards, &outwards.cut_out).await });
    }
}

/// A cut network holds back even the end of a connection.
async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    weather: &Weather,
    cut: &AtomicBool,
) {
    let mut buffer = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut buffer).await.unwrap_or(0);
        sleep(Duration::from_millis(weather.delay.load(Ordering::Relaxed))).await;
        while cut.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(5)).await;
        }
        if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
}
