//! What happens, told as it happens (server-sent events).

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::IntoParams;

use super::{Caller, Gateway};
use crate::audit::Place;
use crate::extract::Query;
use crate::gateway::Shared;
use crate::problem::{Kind, Problem, Told};
use crate::view::{Agent, Right};

/// How many may listen.
const READERS: usize = 64;
/// How often something is said in any case, and whoever listens must still be known.
const PING: Duration = Duration::from_secs(15);
/// How long somebody may not read before it is dropped.
const SLOW: Duration = Duration::from_secs(10);

/// Where to begin.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct From {
    /// The id of the last event that was heard, for those who cannot send the header `Last-Event-ID`.
    #[param(max_length = 40)]
    last_event_id: Option<String>,
}

/// Everything there is, and then what changes
///
/// Events: `snapshot` (a status and the agent), `change` (what is new, another or gone since), `audit` (a line of the
/// audit log). After a `Last-Event-ID` the lines that were missed are told after the snapshot.
#[utoipa::path(
    get,
    operation_id = "events",
    path = "/v1/events",
    params(From),
    responses(
        (status = 200, body = String, content_type = "text/event-stream", description = "Without an end"),
        (status = "default", body = Told, content_type = "application/problem+json", description = "It did not work"),
    ),
)]
pub(super) async fn events(
    gateway: Gateway,
    caller: Caller,
    headers: HeaderMap,
    Query(from): Query<From>,
) -> Result<Response, Problem> {
    let reader = Reader::new()?;
    let agent = may_view(&gateway, &caller).await?;
    let last = headers.get("last-event-id").and_then(|last| last.to_str().ok());
    let last = last.map(ToOwned::to_owned).or(from.last_event_id);
    // One that is not known is as one that is not known any more.
    let last = last.map(|last| last.parse::<Place>().unwrap_or_default());
    let (first, receiver) = gateway.feed.listen(&agent, last).await?;
    let (sender, sent) = mpsc::channel(4);
    tokio::spawn(tell(gateway.0.clone(), caller, first, receiver, sender, reader));
    let body = Body::from_stream(ReceiverStream::new(sent).map(Ok::<_, std::io::Error>));
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    Ok((kind, body).into_response())
}

/// Whoever may not look may not listen either, and is told so in the agent's words.
pub(super) async fn may_view(gateway: &Shared, caller: &Caller) -> Result<Agent, Problem> {
    let agent: Agent = caller.link(gateway).await?.agent().await?.into();
    if agent.your_rights.contains(&Right::View) {
        return Ok(agent);
    }
    let text = format!("{} has no right to view (`holdall agent status` tells who has)", agent.you);
    Err(Problem::new(Kind::Denied, text))
}

/// Tells one who listens, until it is gone or does not keep up.
async fn tell(
    gateway: Arc<Shared>,
    caller: Caller,
    first: Vec<Bytes>,
    mut receiver: Receiver<Bytes>,
    sender: mpsc::Sender<Bytes>,
    _reader: Reader,
) {
    for message in first {
        if sender.send_timeout(message, SLOW).await.is_err() {
            return;
        }
    }
    loop {
        let message = tokio::select! {
            message = tokio::time::timeout(PING, receiver.recv()) => message,
            () = sender.closed() => return,
        };
        let message = match message {
            Ok(Ok(message)) => message,
            Ok(Err(RecvError::Lagged(_) | RecvError::Closed)) => return,
            Err(_) if may_view(&gateway, &caller).await.is_ok() => Bytes::from_static(b":\n\n"),
            Err(_) => return,
        };
        if sender.send_timeout(message, SLOW).await.is_err() {
            return;
        }
    }
}

/// One of those who listen.
struct Reader;

static LISTENING: AtomicUsize = AtomicUsize::new(0);

impl Reader {
    fn new() -> Result<Self, Problem> {
        if LISTENING.fetch_add(1, Ordering::SeqCst) >= READERS {
            LISTENING.fetch_sub(1, Ordering::SeqCst);
            let text =
                format!("{READERS} listen to what happens, which is as many as there may be");
            return Err(Problem::new(Kind::Limit, text));
        }
        Ok(Self)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        LISTENING.fetch_sub(1, Ordering::SeqCst);
    }
}
