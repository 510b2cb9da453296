//! Who holds, who waits, and why.

use axum::Json;
use axum::response::Response;
use holdall_wire::{Body, Reply};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{Caller, Gateway, name, number};
use crate::extract::{Path, Query};
use crate::link::unexpected;
use crate::problem::{Kind, Problem, Told};
use crate::threads::long_answer;
use crate::view::{Explanation, Status};

/// What a status is about.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct About {
    /// Only what concerns these pools and locks, separated by commas.
    #[param(example = "gpu,db", max_length = 2000)]
    pool: Option<String>,
}

/// Who holds what, since when and why, and who waits, in the order of service
#[utoipa::path(
    get,
    operation_id = "status",
    path = "/v1/status",
    params(About),
    responses(
        (status = 200, body = Status, description = "Pools, grants and those who wait"),
        (status = "default", body = Told, content_type = "application/problem+json", description = "It did not work"),
    ),
)]
pub(super) async fn status(
    gateway: Gateway,
    caller: Caller,
    Query(about): Query<About>,
) -> Result<Response, Problem> {
    let names = about.pool.as_deref().unwrap_or_default().split(',').filter(|one| !one.is_empty());
    let names = names.map(name).collect::<Result<Vec<_>, _>>()?;
    let turn = gateway.looks.turn(caller.0.uid).await;
    let status = caller.link(&gateway).await?.status(&names).await?;
    long_answer(turn, || Ok(Status::from(status))).await
}

/// The chain of waiting from a request to whoever it ends at
#[utoipa::path(
    get,
    operation_id = "explain",
    path = "/v1/explain/{number}",
    params(("number" = String, Path, description = "The request, as the status shows it", pattern = "^[0-9]+-[0-9]+$")),
    responses(
        (status = 200, body = Explanation, description = "Whom it waits for"),
        (status = "default", body = Told, content_type = "application/problem+json", description = "It did not work"),
    ),
)]
pub(super) async fn explain(
    gateway: Gateway,
    caller: Caller,
    Path(text): Path<String>,
) -> Result<Json<Explanation>, Problem> {
    let body = Body::Explain { request: number(&text)?, most: u32::MAX };
    let _turn = gateway.looks.turn(caller.0.uid).await;
    match caller.link(&gateway).await?.call(body).await {
        Ok(Reply::Explanation(explanation)) => Ok(Json(explanation.into())),
        Ok(other) => Err(unexpected(&other)),
        Err(problem) => Err(problem.instead_of(Kind::Conflict, Kind::Unknown)),
    }
}
