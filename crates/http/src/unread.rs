//! Answers that are not read yet. Each counts against its user until the network has taken it, so that
//! somebody who calls and does not read cannot fill the agent's memory.
//!
//! An answer leaves in pieces, of which the connection takes one after the other: what it has taken and cannot
//! send is little, and the rest counts here.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{Method, Response};
use axum::response::IntoResponse;
use hyper::body::{Frame, SizeHint};

use crate::problem::{Kind, Problem};
use crate::rooms::{Room, Rooms};

/// How much of an answer a connection takes at a time.
const PIECE: usize = 16 << 10;

/// What all users have not read.
pub(crate) type Unread = Rooms<u32>;

/// Bytes that count against a user as long as any of them are there.
struct Counted {
    bytes: Bytes,
    _room: Room<u32>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Bytes for a user, unless it has too much unread.
pub(crate) fn counted(unread: &Unread, uid: u32, bytes: Bytes) -> Result<Bytes, Problem> {
    let room = unread.take(uid, bytes.len()).map_err(|_| {
        let text = "the answers that this user has not read take as much memory as they may \
                    (limits.unread_bytes): read them, or close their connections";
        Problem::new(Kind::Limit, text)
    })?;
    Ok(Bytes::from_owner(Counted { bytes, _room: room }))
}

/// An answer that tells once more what is known: it can be asked for again.
#[derive(Clone, Copy)]
pub(crate) struct ToldAgain;

/// The same for an answer. One that tells what has just been done is told in any case: whoever made the call
/// must know. How many of those there are is limited by what a user may have.
pub(crate) async fn count(
    unread: &Unread,
    uid: u32,
    method: &Method,
    response: Response<Body>,
) -> Response<Body> {
    // What has no length is a stream, and counts by itself.
    let Some(length) = response.body().size_hint().exact() else { return response };
    let (head, body) = response.into_parts();
    // It is there as a whole.
    let bytes = axum::body::to_bytes(body, length as usize).await.unwrap_or_default();
    let again = *method == Method::GET || head.extensions.get::<ToldAgain>().is_some();
    let bytes = if again {
        match counted(unread, uid, bytes) {
            Ok(bytes) => bytes,
            Err(problem) => return problem.into_response(),
        }
    } else {
        let room = unread.take_anyway(uid, bytes.len());
        Bytes::from_owner(Counted { bytes, _room: room })
    };
    Response::from_parts(head, Body::new(Pieces(bytes)))
}

/// Bytes, piece by piece.
pub(crate) struct Pieces(pub(crate) Bytes);

impl Iterator for Pieces {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        let length = self.0.len().min(PIECE);
        (length > 0).then(|| self.0.split_to(length))
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.next().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use axum::http::StatusCode;

    use super::*;

    #[tokio::test]
    async fn only_what_has_just_been_done_is_told_in_any_case() {
        let unread = Unread::new(100);
        let long = || Response::new(Body::from(vec![b'x'; 80]));
        let _unread = count(&unread, 1, &Method::GET, long()).await;
        let mut again = long();
        again.extensions_mut().insert(ToldAgain);
        let again = count(&unread, 1, &Method::POST, again).await;
        assert_eq!(again.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(count(&unread, 1, &Method::POST, long()).await.status(), StatusCode::OK);
    }
}
