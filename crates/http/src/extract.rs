//! Bodies, queries and paths, taken apart as axum does, with problems for what makes no sense.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;

use crate::problem::Problem;

/// How long a body may take to come in.
const BODY: Duration = Duration::from_secs(10);
/// How many bytes a body may have.
pub(crate) const LONGEST: usize = 256 << 10;

/// A body in JSON, which is an object: what stands for one in other places, as a list, does not here.
pub(crate) struct Json<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            let text = "a body is JSON, and says so: `content-type: application/json`";
            return Err(Problem::usage(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
        }
        if request.headers().contains_key(header::CONTENT_ENCODING) {
            let text = "a body comes as it is, without `content-encoding`";
            return Err(Problem::usage(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
        }
        // Whoever asks first is told at once. Others send it all before they read, and would find the connection reset.
        let announced = request.headers().get(header::CONTENT_LENGTH);
        let announced = announced.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        let asks_first = request.headers().contains_key(header::EXPECT);
        if asks_first && announced.is_some_and(|length| length > LONGEST as u64) {
            return Err(too_long());
        }
        let body = tokio::time::timeout(BODY, Bytes::from_request(request, state)).await;
        let body = body.map_err(|_| {
            Problem::usage(StatusCode::REQUEST_TIMEOUT, "the body took too long to come in")
        })?;
        let body = body.map_err(|bad| match bad.status() {
            StatusCode::PAYLOAD_TOO_LARGE => too_long(),
            status => Problem::usage(status, bad.body_text()),
        })?;
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(senseless("the body is one JSON object"));
        }
        // 422 is kept for what can never be granted.
        let value = axum::Json::from_bytes(&body);
        value.map(|axum::Json(value)| Self(value)).map_err(|bad| senseless(&bad.body_text()))
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let told = headers.get(header::CONTENT_TYPE).and_then(|told| told.to_str().ok());
    let kind = told.unwrap_or_default().split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

fn too_long() -> Problem {
    Problem::usage(StatusCode::PAYLOAD_TOO_LARGE, format!("a body has {LONGEST} bytes at most"))
}

/// Something that makes no sense, without the words that only say so, and without those of the code.
fn senseless(text: &str) -> Problem {
    const BEGINNINGS: [&str; 3] = [
        "Failed to parse the request body as JSON: ",
        "Failed to deserialize the JSON body into the target type: ",
        "Failed to deserialize query string: ",
    ];
    const WORDS: [(&str, &str); 5] = [
        ("expected u64", "expected a whole number, not negative"),
        ("expected u32", "expected a whole number, not negative"),
        ("expected a sequence", "expected a list"),
        ("invalid digit found in string", "expected a whole number, not negative"),
        ("unknown variant", "unknown word"),
    ];
    let said = BEGINNINGS.iter().find_map(|beginning| text.strip_prefix(beginning));
    let said = WORDS
        .iter()
        .fold(said.unwrap_or(text).to_owned(), |said, (code, word)| said.replace(code, word));
    Problem::usage(StatusCode::BAD_REQUEST, said)
}

/// What stands after `?`.
pub(crate) struct Query<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = axum::extract::Query::<T>::from_request_parts(parts, state).await;
        let axum::extract::Query(value) = query.map_err(|bad| senseless(&bad.body_text()))?;
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
