//! Carries bytes between a client's connection over TLS and a Unix socket of the same process, so that either end
//! speaks over a socket of one kind, whoever is at the other end.

use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};

use crate::client::ClientStream;

/// How long the other end may take to hear the last words and to close.
const LAST_WORDS: Duration = Duration::from_secs(5);
const ROOM: usize = 1 << 14;

/// Carries bytes both ways until either side ends, or the far one is silent for so long: nobody may be there any
/// more. What was said until then has arrived.
pub async fn carry(far: ClientStream, near: UnixStream, silence: Option<Duration>) {
    let ((far_in, far_out), (near_in, near_out)) = (split(far), split(near));
    let mut inward = pin!(pour(far_in, near_out, silence));
    let mut outward = pin!(pour(near_in, far_out, None));
    // Why it ended makes no difference: both ends see that it has.
    tokio::select! {
        _ = &mut inward => {
            // Whoever is near may still say something; the far end does not listen for long.
            let _ = timeout(LAST_WORDS, outward).await;
        }
        _ = &mut outward => drop(timeout(LAST_WORDS, inward).await),
    }
}

/// Carries bytes one way to the end.
async fn pour(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    silence: Option<Duration>,
) -> io::Result<()> {
    let mut bytes = vec![0; ROOM];
    loop {
        let silent = async {
            match silence {
                Some(silence) => sleep(silence).await,
                None => std::future::pending().await,
            }
        };
        let read = tokio::select! {
            read = from.read(&mut bytes) => read?,
            () = silent => 0,
        };
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&bytes[..read]).await?;
        to.flush().await?;
    }
}
