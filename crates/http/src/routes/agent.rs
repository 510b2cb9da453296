//! The agent itself, and its health.

use axum::Json;
use axum::http::StatusCode;
use holdall_wire::{Body, Shutdown};
use serde::Deserialize;
use utoipa::ToSchema;

use super::{Caller, Gateway};
use crate::extract;
use crate::link::Link;
use crate::problem::{Kind, Problem, Told};
use crate::view::Agent;

/// About the agent, who you are to it, and what you may do
#[utoipa::path(
    get,
    operation_id = "agent",
    path = "/v1/agent",
    responses(
        (status = 200, body = Agent, description = "What it is, and how much it holds"),
        (status = "default", body = Told, content_type = "application/problem+json", description = "It did not work"),
    ),
)]
pub(super) async fn agent(gateway: Gateway, caller: Caller) -> Result<Json<Agent>, Problem> {
    Ok(Json(caller.link(&gateway).await?.agent().await?.into()))
}

/// How an agent ends.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Stop)]
pub(super) struct Stop {
    how: How,
}

/// At once, and what is held stays held; at once, after those who wait were told to go; or when
/// nothing is held any more.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "kebab-case")]
enum How {
    AtOnce,
    Dismiss,
    Drain,
}

/// End the agent
#[utoipa::path(
    post,
    operation_id = "agent_stop",
    path = "/v1/agent/stop",
    request_body = Stop,
    responses(
        (status = 204, description = "It ends"),
        (status = "default", body = Told, content_type = "application/problem+json", description = "It did not work"),
    ),
)]
pub(super) async fn stop(
    gateway: Gateway,
    caller: Caller,
    extract::Json(stop): extract::Json<Stop>,
) -> Result<StatusCode, Problem> {
    let shutdown = match stop.how {
        How::AtOnce => Shutdown::AtOnce,
        How::Dismiss => Shutdown::Dismiss,
        How::Drain => Shutdown::Drain,
    };
    // The last who holds something may take days to give it back.
    caller.link(&gateway).await?.begun(Body::Shutdown(shutdown)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Whether the process runs
#[utoipa::path(get, operation_id = "healthz", path = "/healthz", responses((status = 200, body = String, content_type = "text/plain", description = "It does")))]
pub(super) async fn healthz() -> &'static str {
    "ok\n"
}

/// Whether the agent answers, at all doors where it should
#[utoipa::path(
    get,
    operation_id = "readyz",
    path = "/readyz",
    responses(
        (status = 200, body = String, content_type = "text/plain", description = "It does"),
        (status = "default", body = Told, content_type = "application/problem+json", description = "It does not"),
    ),
)]
pub(super) async fn readyz(gateway: Gateway) -> Result<&'static str, Problem> {
    let agent = Link::open(&*gateway.service, &gateway.own).await?.agent().await?;
    match agent.no_http {
        None => Ok("ready\n"),
        Some(why) => Err(Problem::new(Kind::Unreachable, why)),
    }
}
