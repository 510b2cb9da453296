//! Grants of whoever, by their numbers.

use axum::http::StatusCode;
use holdall_wire::Body;
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::{Caller, Gateway, number};
use crate::extract::{Json, Path, Query};
use crate::problem::{Kind, Problem, Told};

/// How long a reservation lasts from now on.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Renewal)]
pub(super) struct Renewal {
    /// So many milliseconds.
    #[schema(minimum = 1)]
    reserve_ms: u64,
}

/// Let a reservation last for some time from now
#[utoipa::path(
    post,
    operation_id = "grants_renew",
    path = "/v1/grants/{number}/renew",
    params(("number" = String, Path, description = "The grant, as the status shows it", pattern = "^[0-9]+-[0-9]+$")),
    request_body = Renewal,
    responses(
        (status = 204, description = "Done"),
        (status = "default", body = Told, content_type = "application/problem+json", description = "It did not work"),
    ),
)]
pub(super) async fn renew(
    gateway: Gateway,
    caller: Caller,
    Path(text): Path<String>,
    Json(renewal): Json<Renewal>,
) -> Result<StatusCode, Problem> {
    if renewal.reserve_ms == 0 {
        return Err(Problem::new(Kind::Usage, "reserve_ms is at least 1"));
    }
    let body = Body::Renew { request: number(&text)?, millis: renewal.reserve_ms };
    caller.link(&gateway).await?.done(body).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// How a grant is released.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct How {
    /// Even if it is somebody else's, or in use. Goes to the audit log.
    #[serde(default)]
    #[param(required = false)]
    force: bool,
    /// Why it is forced, for the audit log.
    #[param(max_length = 500)]
    reason: Option<String>,
}

/// Release a grant
#[utoipa::path(
    delete,
    operation_id = "grants_delete",
    path = "/v1/grants/{number}",
    params(("number" = String, Path, description = "The grant, as the status shows it", pattern = "^[0-9]+-[0-9]+$"), How),
    responses(
        (status = 204, description = "Done"),
        (status = "default", body = Told, content_type = "application/problem+json", description = "It did not work"),
    ),
)]
pub(super) async fn delete(
    gateway: Gateway,
    caller: Caller,
    Path(text): Path<String>,
    Query(how): Query<How>,
) -> Result<StatusCode, Problem> {
    let How { force, reason } = how;
    let body = Body::Release { request: number(&text)?, force, reason };
    caller.link(&gateway).await?.done(body).await?;
    Ok(StatusCode::NO_CONTENT)
}
