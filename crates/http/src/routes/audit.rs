//! The audit log.

use axum::response::Response;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::events::may_view;
use super::{Caller, Gateway};
use crate::audit::{Line, Wanted, unreadable};
use crate::extract::Query;
use crate::problem::{Kind, Problem, Told};
use crate::threads::long_answer;

/// How many lines are told at most.
const LINES_MAX: usize = 10_000;

/// Which lines are wanted.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Which {
    /// From this time on, in milliseconds since 1970.
    since_ms: Option<u64>,
    /// Before this time.
    until_ms: Option<u64>,
    /// About this request.
    #[param(max_length = 40)]
    request: Option<String>,
    /// About this pool or lock.
    #[param(max_length = 200)]
    pool: Option<String>,
    /// Of this user.
    #[param(max_length = 200)]
    user: Option<String>,
    /// With this text in it, in upper or lower case.
    #[param(max_length = 500)]
    text: Option<String>,
    /// How many at most.
    #[param(minimum = 1, maximum = 10_000)]
    limit: Option<usize>,
    /// Where the last page ended.
    #[param(max_length = 60)]
    cursor: Option<String>,
}

/// A page of the audit log.
#[derive(Serialize, ToSchema)]
pub(super) struct Page {
    /// The lines, newest first.
    lines: Vec<Line>,
    /// Where the next page begins, if there is one.
    cursor: Option<String>,
}

/// Who asked for, got, gave back and lost what, and when; newest first
///
/// Whoever may not see everybody's past (`admin`, or what `[history]` says) is told of others' requests without `who` and
/// `detail`.
#[utoipa::path(
    get,
    operation_id = "audit",
    path = "/v1/audit",
    params(Which),
    responses(
        (status = 200, body = Page, description = "A page of it"),
        (status = "default", body = Told, content_type = "application/problem+json", description = "It did not work"),
    ),
)]
pub(super) async fn audit(
    gateway: Gateway,
    caller: Caller,
    Query(which): Query<Which>,
) -> Result<Response, Problem> {
    let wrong = |text: &str| Problem::new(Kind::Usage, text);
    let limit = which.limit.unwrap_or(100);
    if !(1..=LINES_MAX).contains(&limit) {
        return Err(wrong(&format!("limit is from 1 to {LINES_MAX}")));
    }
    let place = which.cursor.map(|cursor| cursor.parse()).transpose();
    let place = place.map_err(|()| wrong("this cursor is none that the agent has told"))?;
    let agent = may_view(&gateway, &caller).await?;
    let reader = gateway.reader(&caller.0, &agent);
    let wanted = Wanted {
        since: which.since_ms.unwrap_or_default(),
        until: which.until_ms,
        request: which.request,
        pool: which.pool,
        user: which.user,
        text: which.text,
    };
    let turn = gateway.looks.turn(caller.0.uid).await;
    let audit = gateway.audit.clone();
    let read = move || {
        let (lines, next) =
            audit.before(place, &wanted, &reader, limit).map_err(|error| unreadable(&error))?;
        Ok(Page { lines, cursor: next.map(|place| place.to_string()) })
    };
    long_answer(turn, read).await
}
