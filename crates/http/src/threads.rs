//! The gateway has one thread, which nothing may keep for long: what waits for the disk, or puts much into words, is
//! done on others.

use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::problem::{Kind, Problem};

/// Does something on a thread that may take its time.
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Problem::new(Kind::Failed, error.to_string()))
}

/// An answer that may be long, made there.
pub(crate) async fn long_answer<T: Serialize>(
    make: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<Response, Problem> {
    // Views can always be written.
    let body = off_thread(|| make().map(|view| serde_json::to_vec(&view).unwrap_or_default()));
    Ok(([(header::CONTENT_TYPE, "application/json")], body.await??).into_response())
}
