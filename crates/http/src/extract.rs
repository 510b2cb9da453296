//! Bodies, queries and paths, taken apart as axum does, with problems for what makes no sense.

use std::time::Duration;

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::de::DeserializeOwned;

use crate::problem::Problem;

/// How long a body may take to come in.
const BODY: Duration = Duration::from_secs(10);

/// A body in JSON.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let body = axum::Json::<T>::from_request(request, state);
        let body = tokio::time::timeout(BODY, body).await.map_err(|_| {
            Problem::usage(StatusCode::REQUEST_TIMEOUT, "the body took too long to come in")
        })?;
        let axum::Json(value) =
            body.map_err(|bad| Problem::usage(plain(bad.status()), bad.body_text()))?;
        Ok(Self(value))
    }
}

/// What is well written and means nothing is no better than what is not: 422 is kept for what can never be granted.
fn plain(status: StatusCode) -> StatusCode {
    if status == StatusCode::UNPROCESSABLE_ENTITY { StatusCode::BAD_REQUEST } else { status }
}

/// What stands after `?`.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        let axum::extract::Query(value) =
            query.map_err(|bad| Problem::usage(StatusCode::BAD_REQUEST, bad.body_text()))?;
        Ok(Self(value))
    }
}

/// The part of the path that has a name.
pub(crate) struct Path<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = axum::extract::Path::<T>::from_request_parts(parts, state).await;
        let axum::extract::Path(value) =
            path.map_err(|bad| Problem::usage(StatusCode::BAD_REQUEST, bad.body_text()))?;
        Ok(Self(value))
    }
}
