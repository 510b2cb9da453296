//! Pools and locks, and what of them is drained.

use axum::http::StatusCode;
use axum::response::Response;
use holdall_wire::{Body, Change, Kind as PoolKind};
use serde::Deserialize;
use utoipa::{IntoParams, ToSchema};

use super::{Caller, Gateway, name};
use crate::extract::{Json, Path, Query};
use crate::problem::{Kind, Problem, Told};
use crate::threads::long_answer;
use crate::view::Pool;

/// All pools and locks
#[utoipa::path(
    get,
    operation_id = "pools_list",
    path = "/v1/pools",
    responses(
        (status = 200, body = Vec<Pool>, description = "By name"),
        (status = "default", body = Told, content_type = "application/problem+json", description = "It did not work"),
    ),
)]
pub(super) async fn list(gateway: Gateway, caller: Caller) -> Result<Response, Problem> {
    let turn = gateway.looks.turn(caller.0.uid).await;
    let status = caller.link(&gateway).await?.status(&[]).await?;
    long_answer(turn, || Ok(status.pools.into_iter().map(Pool::from).collect::<Vec<_>>())).await
}

/// A pool or lock
#[utoipa::path(
    get,
    operation_id = "pools_get",
    path = "/v1/pools/{name}",
    params(("name" = String, Path, description = "Its name; a `/` in it is written `%2F`", pattern = "^[A-Za-z0-9._/-]{1,200}$")),
    responses(
        (status = 200, body = Pool, description = "How it stands with it"),
        (status = "default", body = Told, content_type = "application/problem+json", description = "It did not work"),
    ),
)]
pub(super) async fn get(
    gateway: Gateway,
    caller: Caller,
    Path(text): Path<String>,
) -> Result<axum::Json<Pool>, Problem> {
    let name = name(&text)?;
    let _turn = gateway.looks.turn(caller.0.uid).await;
    let status = caller.link(&gateway).await?.status(std::slice::from_ref(&name)).await?;
    let found = status.pools.into_iter().find(|pool| pool.name == name);
    let found =
        found.ok_or_else(|| Problem::new(Kind::Unknown, format!("there is no pool {name}")));
    Ok(axum::Json(found?.into()))
}

/// What a pool is made of.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewPool)]
pub(super) struct New {
    /// So many units, numbered from 0, or units with names.
    units: Option<Units>,
    /// It is a lock, and has no units.
    #[serde(default)]
    lock: bool,
}

#[derive(Deserialize, ToSchema)]
#[serde(untagged, expecting = "expected a number of units, at least 1, or a list of their names")]
enum Units {
    /// So many.
    Number(u32),
    /// These.
    Names(Vec<String>),
}

/// Add a pool or a lock
#[utoipa::path(
    put,
    operation_id = "pools_put",
    path = "/v1/pools/{name}",
    params(("name" = String, Path, description = "Its name; a `/` in it is written `%2F`", pattern = "^[A-Za-z0-9._/-]{1,200}$")),
    request_body = New,
    responses(
        (status = 204, description = "Done"),
        (status = "default", body = Told, content_type = "application/problem+json", description = "It did not work"),
    ),
)]
pub(super) async fn put(
    gateway: Gateway,
    caller: Caller,
    Path(text): Path<String>,
    Json(new): Json<New>,
) -> Result<StatusCode, Problem> {
    let kind = match (new.units, new.lock) {
        (None, true) => PoolKind::Lock,
        (Some(Units::Number(units)), false) => PoolKind::Numbered(units),
        (Some(Units::Names(names)), false) => {
            let names = names.iter().map(|unit| name(unit));
            PoolKind::Named(names.collect::<Result<_, _>>()?)
        }
        _ => {
            let text = "either `units` are named or counted, or `lock` is true";
            return Err(Problem::new(Kind::Usage, text));
        }
    };
    change(&gateway, &caller, Change::Add { name: name(&text)?, kind }).await
}

/// How large a pool is to be.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Size)]
pub(super) struct Size {
    /// So many units.
    #[schema(minimum = 1, maximum = 65536)]
    units: u32,
}

/// Give a pool another number of units
#[utoipa::path(
    patch,
    operation_id = "pools_patch",
    path = "/v1/pools/{name}",
    params(("name" = String, Path, description = "Its name; a `/` in it is written `%2F`", pattern = "^[A-Za-z0-9._/-]{1,200}$")),
    request_body = Size,
    responses(
        (status = 204, description = "Done"),
        (status = "default", body = Told, content_type = "application/problem+json", description = "It did not work"),
    ),
)]
pub(super) async fn patch(
    gateway: Gateway,
    caller: Caller,
    Path(text): Path<String>,
    Json(size): Json<Size>,
) -> Result<StatusCode, Problem> {
    let resize = Change::Resize { name: name(&text)?, units: size.units };
    change(&gateway, &caller, resize).await
}

/// How a pool is removed.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct How {
    /// Even if some of it is held: that comes back later.
    #[serde(default)]
    #[param(required = false)]
    force: bool,
}

/// Remove a pool or a lock
#[utoipa::path(
    delete,
    operation_id = "pools_delete",
    path = "/v1/pools/{name}",
    params(("name" = String, Path, description = "Its name; a `/` in it is written `%2F`", pattern = "^[A-Za-z0-9._/-]{1,200}$"), How),
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
    let remove = Change::Remove { name: name(&text)?, force: how.force };
    change(&gateway, &caller, remove).await
}

/// Why, and for how long.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Drain)]
pub(super) struct Drain {
    /// The reason, in a few words.
    #[schema(max_length = 200)]
    reason: String,
    /// For so long, or until it is undone.
    #[schema(minimum = 1)]
    for_ms: Option<u64>,
}

/// Give a unit, or all units of a pool, to nobody any more
#[utoipa::path(
    put,
    operation_id = "pools_drain",
    path = "/v1/drains/{name}",
    params(("name" = String, Path, description = "The unit or pool; a `/` in it is written `%2F`", pattern = "^[A-Za-z0-9._/-]{1,200}$")),
    request_body = Drain,
    responses(
        (status = 204, description = "Done"),
        (status = "default", body = Told, content_type = "application/problem+json", description = "It did not work"),
    ),
)]
pub(super) async fn drain(
    gateway: Gateway,
    caller: Caller,
    Path(text): Path<String>,
    Json(drain): Json<Drain>,
) -> Result<StatusCode, Problem> {
    let Drain { reason, for_ms } = drain;
    if for_ms == Some(0) {
        return Err(Problem::new(Kind::Usage, "for_ms is at least 1"));
    }
    let body = Body::Drain { name: name(&text)?, reason, millis: for_ms };
    caller.link(&gateway).await?.done(body).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Give a unit, or all units of a pool, to people again
#[utoipa::path(
    delete,
    operation_id = "pools_undrain",
    path = "/v1/drains/{name}",
    params(("name" = String, Path, description = "The unit or pool; a `/` in it is written `%2F`", pattern = "^[A-Za-z0-9._/-]{1,200}$")),
    responses(
        (status = 204, description = "Done"),
        (status = "default", body = Told, content_type = "application/problem+json", description = "It did not work"),
    ),
)]
pub(super) async fn undrain(
    gateway: Gateway,
    caller: Caller,
    Path(text): Path<String>,
) -> Result<StatusCode, Problem> {
    change(&gateway, &caller, Change::Undrain { name: name(&text)? }).await
}

async fn change(gateway: &Gateway, caller: &Caller, change: Change) -> Result<StatusCode, Problem> {
    caller.link(gateway).await?.done(Body::Change(change)).await?;
    Ok(StatusCode::NO_CONTENT)
}
