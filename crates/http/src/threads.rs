//! The gateway has one thread, which nothing may keep for long: what waits for the disk, or puts much into words, is
//! done on others.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::looks::Look;
use crate::problem::{Kind, Problem};

/// Does something on a thread that may take its time.
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Problem::new(Kind::Failed, error.to_string()))
}

/// An answer that may be long, made there. Whoever looks has its turn until it is made, even if it does not wait for it:
/// otherwise whoever calls and hangs up keeps as many threads busy as it likes.
pub(crate) async fn long_answer<T: Serialize>(
    turn: Option<Look>,
    make: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<Response, Problem> {
    // Views can always be written.
    let body = off_thread(move || {
        let _turn = turn;
        make().map(|view| serde_json::to_vec(&view).unwrap_or_default())
    });
    Ok(([(header::CONTENT_TYPE, "application/json")], body.await??).into_response())
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::looks::Looks;

    #[tokio::test]
    async fn whoever_hangs_up_keeps_its_turn_until_the_work_is_done() {
        let looks = Looks::new();
        let (go_on, wait) = mpsc::channel::<()>();
        let make = move || Ok(wait.recv().is_ok());
        let mut answer = Box::pin(long_answer(looks.turn(1).await, make));
        assert!(looked_at(answer.as_mut()).await.is_pending());
        drop(answer);
        let next = tokio::time::timeout(Duration::from_millis(50), looks.turn(1)).await;
        assert!(next.is_err(), "its work goes on");
        go_on.send(()).expect("it waits");
        assert!(looks.turn(1).await.is_some());
    }

    /// Looks once whether something is done.
    async fn looked_at<F: Future>(mut work: std::pin::Pin<&mut F>) -> std::task::Poll<F::Output> {
        std::future::poll_fn(|context| std::task::Poll::Ready(work.as_mut().poll(context))).await
    }
}
