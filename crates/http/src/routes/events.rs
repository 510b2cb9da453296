//! What happens, told as it happens (server-sent events).

use std::borrow::Cow;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use holdall_wire::Right;
use serde::Deserialize;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use utoipa::IntoParams;

use super::{Caller, Gateway};
use crate::audit::Place;
use crate::extract::Query;
use crate::gateway::Shared;
use crate::problem::{Kind, Problem, Told};
use crate::unread::{Pieces, counted};
use crate::view::Agent;

/// How often something is said in any case, and whoever listens must still be allowed to.
const PING: Duration = Duration::from_secs(15);
/// How long somebody may not read before it is dropped.
const SLOW: Duration = Duration::from_secs(10);

/// Where to begin.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct From {
    /// The id of the last event that was heard, for those who cannot send the header `Last-Event-ID`.
    #[param(max_length = 60)]
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
    let listener = gateway.listeners.take(caller.0.uid, 1).map_err(|_| {
        Problem::new(Kind::Limit, "as many listen to what happens as may, of this user or of all")
    })?;
    let agent = may_view(&gateway, &caller).await?;
    let reader = gateway.reader(&caller.0, &agent);
    // What is no text is no id of ours: something was missed.
    let last = headers.get("last-event-id").map(|last| String::from_utf8_lossy(last.as_bytes()));
    let last = last.map(Cow::into_owned).or(from.last_event_id);
    // One that is not known is as one that is not known any more.
    let last = last.map(|last| last.parse::<Place>().unwrap_or(Place::NOWHERE));
    let (turn, feed) = (gateway.looks.turn(caller.0.uid).await, gateway.feed.clone());
    // By itself: whoever hangs up meanwhile has its turn until it is done.
    let listen = tokio::spawn(async move {
        let _turn = turn;
        feed.listen(agent, reader, last).await
    });
    let failed = |error: tokio::task::JoinError| Problem::new(Kind::Failed, error.to_string());
    let (first, receiver) = listen.await.map_err(failed)??;
    let first = counted(&gateway.unread, caller.0.uid, first)?;
    let (sender, sent) = mpsc::channel(4);
    let gateway = gateway.0.clone();
    tokio::spawn(async move {
        let _listener = listener;
        tokio::select! {
            () = tell(&gateway, &caller, first, receiver, &sender) => {}
            () = gateway.tokens.gone(&caller.0) => {}
            () = sender.closed() => {}
        }
    });
    let body = Body::from_stream(ReceiverStream::new(sent).map(Ok::<_, std::io::Error>));
    let kind = [(header::CONTENT_TYPE, "text/event-stream")];
    Ok((kind, body).into_response())
}

/// Whoever may not look may not listen either, and is told so in the agent's words.
pub(super) async fn may_view(gateway: &Shared, caller: &Caller) -> Result<Agent, Problem> {
    let agent: Agent = caller.link(gateway).await?.agent().await?.into();
    if agent.may(Right::View) {
        return Ok(agent);
    }
    let text = format!("{} has no right to view (`holdall agent status` tells who has)", agent.you);
    Err(Problem::new(Kind::Denied, text))
}

/// Tells one who listens, until it does not keep up or may not look any more.
async fn tell(
    gateway: &Shared,
    caller: &Caller,
    first: Bytes,
    mut receiver: Receiver<Bytes>,
    sender: &mpsc::Sender<Bytes>,
) {
    let mut message = first;
    let mut ping = tokio::time::interval_at(Instant::now() + PING, PING);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        for piece in Pieces(message) {
            if sender.send_timeout(piece, SLOW).await.is_err() {
                return;
            }
        }
        message = tokio::select! {
            biased;
            _ = ping.tick() => match may_view(gateway, caller).await {
                Ok(_) => Bytes::from_static(b":\n\n"),
                Err(_) => return,
            },
            heard = receiver.recv() => match heard {
                Ok(message) => message,
                Err(RecvError::Lagged(_) | RecvError::Closed) => return,
            },
        };
    }
}
