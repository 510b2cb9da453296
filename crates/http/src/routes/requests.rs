//! Requests, by the id that their client has picked.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use holdall_wire::Ask;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::asked::{Asked, WAIT_MAX};
use super::{Caller, Gateway};
use crate::extract::{self, Path, Query};
use crate::gateway::Shared;
use crate::guard::Door;
use crate::lease::{Lease, PATIENCE, Standing, State};
use crate::mark::Mark;
use crate::problem::{Kind, Problem, Told};
use crate::rooms::{Full, Room};
use crate::unread::ToldAgain;
use crate::view::Taken;

/// How long it may take to find out how it stands with something: less than clients wait for what is done at once.
const SOON: Duration = Duration::from_secs(5);

/// How it stands with a request.
#[derive(Serialize, ToSchema)]
pub(super) struct Request {
    /// The id that its client has picked.
    id: String,
    /// How it stands.
    state: Stands,
    /// Its number, as others see it.
    #[schema(example = "3-17")]
    request: Option<String>,
    /// Whoever is not heard of for so long from now loses it; unknown of what was asked for before an upgrade of the agent.
    ttl_ms: Option<u64>,
    /// If it is held: for so long it may be used, counted from when this call was *sent*, unless another answer says more. The
    /// lesser of `ttl_ms` and `lent_ms`. Nothing that is reserved ends with it.
    valid_ms: Option<u64>,
    /// If other cells guard something of it: for so long they keep it without hearing from this agent, whoever renews it here.
    lent_ms: Option<u64>,
    /// What is held, in the order asked for.
    taken: Vec<Taken>,
    /// It is taken away after so long from its grant.
    limit_ms: Option<u64>,
    /// What its client should know.
    warnings: Vec<String>,
}

/// It waits, is held, or was given back by its owner.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Stands {
    Waiting,
    Granted,
    Released,
}

/// The id of a request: picked by the client, known to it and to the agent.
fn check_id(id: &str) -> Result<(), Problem> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '~' | '-');
    // Dots alone mean something else in a path.
    let is_path = matches!(id, "." | "..");
    if (1..=128).contains(&id.len()) && id.chars().all(plain) && !is_path {
        return Ok(());
    }
    let text = "an id has 1 to 128 letters, digits and `. _ ~ -`, not dots alone; take a UUID";
    Err(Problem::new(Kind::Usage, text))
}

/// Ask for a set of things, under an id that the agent picks
#[utoipa::path(
    post,
    operation_id = "requests_post",
    path = "/v1/requests",
    request_body = Asked,
    responses(
        (status = 200, body = Request, description = "Granted"),
        (status = 202, body = Request, description = "It waits"),
        (status = "default", body = Told, content_type = "application/problem+json", description = "It did not work"),
    ),
)]
pub(super) async fn post(
    gateway: Gateway,
    caller: Caller,
    extract::Json(asked): extract::Json<Asked>,
) -> Result<Response, Problem> {
    let mut id = [0; 16];
    getrandom::fill(&mut id).map_err(|_| Problem::new(Kind::Failed, "no random numbers"))?;
    let id = format!("{:032x}", u128::from_le_bytes(id));
    ask(&gateway, &caller, id, &asked).await
}

/// Ask for a set of things, under an id that the client has picked
///
/// Asking again with the same id and body is the same request.
#[utoipa::path(
    put,
    operation_id = "requests_put",
    path = "/v1/requests/{id}",
    params(("id" = String, Path, description = "Picked by the client, a UUID for example",
        pattern = "^[A-Za-z0-9._~-]{1,128}$")),
    request_body = Asked,
    responses(
        (status = 200, body = Request, description = "Granted, or given back before"),
        (status = 202, body = Request, description = "It waits"),
        (status = "default", body = Told, content_type = "application/problem+json", description = "It did not work"),
    ),
)]
pub(super) async fn put(
    gateway: Gateway,
    caller: Caller,
    Path(id): Path<String>,
    extract::Json(asked): extract::Json<Asked>,
) -> Result<Response, Problem> {
    check_id(&id)?;
    ask(&gateway, &caller, id, &asked).await
}

async fn ask(
    gateway: &Arc<Shared>,
    caller: &Caller,
    id: String,
    asked: &Asked,
) -> Result<Response, Problem> {
    asked.check()?;
    let wire = asked.wire()?;
    let until = Instant::now() + Duration::from_millis(asked.wait_ms);
    loop {
        if let Some(known) = gateway.released.find(&caller.0, &id) {
            same(known, asked.mark())?;
            return answer(gateway, caller, id, State::released(known)).await;
        }
        let lease = gateway.leases.find_or_begin(&caller.0, &id, asked.ttl_ms).await;
        let lease = lease.map_err(|problem| match problem.kind() {
            Kind::Unreachable | Kind::Limit => problem.ask_again(&id),
            _ => problem,
        })?;
        let is_known = !matches!(lease.state().standing, Standing::New);
        match wait(&lease, asked, &wire, until, is_known).await? {
            // Others with less patience have ended it.
            Waited::Another => gateway.leases.leave(&lease).await,
            Waited::TooLong => {
                gateway.leases.leave(&lease).await;
                return Err(asked.not_in_time());
            }
            // It may wait, or be held by now: whoever asks again is told.
            Waited::Until(State { standing: Standing::Away(problem), .. }) => {
                return Err(problem.ask_again(&id));
            }
            Waited::Until(State { standing: Standing::Over(problem), .. }) => {
                // Nothing is held, so it can be asked for again; but what was taken away may be used until its owner says otherwise.
                if problem.kind() != Kind::Lost {
                    gateway.leases.leave(&lease).await;
                }
                return Err(limit_or_end(gateway, caller, problem).await);
            }
            Waited::Until(state) => {
                let told = answer(gateway, caller, id, state).await?;
                return Ok(if is_known { again(told) } else { told });
            }
        }
    }
}

/// What came of waiting.
enum Waited {
    /// This is how it stands.
    Until(State),
    /// Nobody waits for it any more, and it is withdrawn.
    TooLong,
    /// It was ended by others who did not want to wait for it as long.
    Another,
}

/// Asks, if that was not done, and waits for as long as it may take.
async fn wait(
    lease: &Lease,
    asked: &Asked,
    wire: &Ask,
    until: Instant,
    is_known: bool,
) -> Result<Waited, Problem> {
    let mark = asked.mark();
    if let Some(known) = lease.ask(wire.clone(), mark).await {
        same(known, mark)?;
    }
    let Some(waiter) = lease.waiters.join() else { return Ok(Waited::Another) };
    let mut state = lease.settled(until.saturating_duration_since(Instant::now())).await;
    if matches!(state.standing, Standing::New | Standing::Asked) {
        state = lease.heard(PATIENCE).await;
    }
    match &state.standing {
        Standing::Over(problem) if problem.kind() == Kind::Busy && !wire.now => Ok(Waited::Another),
        // It may be held since long ago.
        Standing::New | Standing::Asked if is_known => Ok(Waited::Until(state)),
        Standing::New | Standing::Asked | Standing::Waiting(_) if !asked.queue => {
            if !waiter.give_up() {
                return Err(asked.not_in_time());
            }
            Ok(match lease.give_back().await {
                away @ State { standing: Standing::Away(_), .. } => Waited::Until(away),
                _ => Waited::TooLong,
            })
        }
        _ => Ok(Waited::Until(state)),
    }
}

/// An id is that of one request.
fn same(known: Mark, asked: Mark) -> Result<(), Problem> {
    if known.fits(asked) {
        return Ok(());
    }
    let text = "this id is that of another request; take a new one";
    Err(Problem::new(Kind::Conflict, text))
}

/// An answer of which nothing is lost if it is not told.
fn again(mut answer: Response) -> Response {
    answer.extensions_mut().insert(ToldAgain);
    answer
}

/// The agent takes no requests because of a limit, unless it is about to end.
async fn limit_or_end(gateway: &Shared, caller: &Caller, problem: Problem) -> Problem {
    if problem.kind() != Kind::Limit {
        return problem;
    }
    let agent = match caller.link(gateway).await {
        Ok(mut link) => link.agent().await,
        Err(problem) => Err(problem),
    };
    match agent {
        Ok(agent) if !agent.stopping => problem,
        Err(other) if other.kind() == Kind::Limit => problem,
        _ => problem.instead_of(Kind::Limit, Kind::Unreachable),
    }
}

/// The agent has not said how it stands, and it may be held.
fn not_known(id: &str) -> Problem {
    let text = "the agent does not know yet how it stands with this, and may have to hear from other cells";
    Problem::new(Kind::Unreachable, text).ask_again(id)
}

/// How it stands, in words.
async fn answer(
    gateway: &Shared,
    caller: &Caller,
    id: String,
    state: State,
) -> Result<Response, Problem> {
    let mut told = Request {
        id,
        state: Stands::Waiting,
        request: None,
        ttl_ms: state.mark.and_then(Mark::ttl),
        valid_ms: None,
        lent_ms: None,
        taken: Vec::new(),
        limit_ms: None,
        warnings: state.warnings,
    };
    let mut status = StatusCode::OK;
    match state.standing {
        Standing::New | Standing::Asked => return Err(not_known(&told.id)),
        Standing::Waiting(request) => {
            status = StatusCode::ACCEPTED;
            told.request = Some(request.to_string());
        }
        Standing::Granted(granted) => {
            told.state = Stands::Granted;
            let now = gateway.service.boottime();
            told.lent_ms = state.lent_until.map(|until| until.saturating_sub(now));
            told.valid_ms = [told.ttl_ms, told.lent_ms].into_iter().flatten().min();
            told.request = Some(granted.request.to_string());
            told.taken = granted.taken.iter().map(Into::into).collect();
            told.limit_ms = granted.limit;
        }
        Standing::Released => told.state = Stands::Released,
        Standing::Over(problem) | Standing::Away(problem) => {
            return Err(limit_or_end(gateway, caller, problem).await);
        }
    }
    let location = HeaderValue::from_str(&format!("/v1/requests/{}", told.id));
    let mut response = (status, Json(told)).into_response();
    if let Ok(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// How long an answer may take.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Patience {
    /// Answer after so long, if what is waited for has not come before.
    #[serde(default)]
    #[param(minimum = 0, maximum = 300_000, required = false)]
    wait_ms: u64,
    /// What is waited for: that it is granted or over, or that it is over.
    #[serde(default)]
    #[param(inline, required = false)]
    until: Until,
}

/// What an answer waits for.
#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Until {
    /// That it is granted, or over.
    #[default]
    Granted,
    /// That it is over: how whoever holds something learns at once that it was taken away.
    Ended,
}

/// How it stands with a request; this also renews it
///
/// Whoever holds something learns with `until=ended` at once when it is taken away.
#[utoipa::path(
    get,
    operation_id = "requests_get",
    path = "/v1/requests/{id}",
    params(("id" = String, Path, description = "As it was asked for", pattern = "^[A-Za-z0-9._~-]{1,128}$"), Patience),
    responses(
        (status = 200, body = Request, description = "Granted, or given back"),
        (status = 202, body = Request, description = "It waits"),
        (status = "default", body = Told, content_type = "application/problem+json", description = "It did not work"),
    ),
)]
pub(super) async fn get(
    gateway: Gateway,
    caller: Caller,
    Extension(door): Extension<Door>,
    Path(id): Path<String>,
    Query(patience): Query<Patience>,
) -> Result<Response, Problem> {
    if patience.wait_ms > WAIT_MAX {
        return Err(Problem::new(Kind::Usage, format!("wait_ms is {WAIT_MAX} at most")));
    }
    let _room = match patience {
        Patience { until: Until::Ended, wait_ms: 1.. } => {
            Some(room_for_one(&gateway, &caller, &door)?)
        }
        _ => None,
    };
    let state = look(&gateway, &caller, &id, patience).await?;
    answer(&gateway, &caller, id, state).await.map(again)
}

/// What is held is renewed over connections that are left over by those who wait for its end: of a user, and of all behind one address.
fn room_for_one(
    gateway: &Shared,
    caller: &Caller,
    door: &Door,
) -> Result<(Room<u32>, Option<Room<IpAddr>>), Problem> {
    let full = |_: Full| {
        let text = "as many calls wait for the end of something as may, of this user, from this address or of all; \
                    what is not held any more is told with the next renewal, too";
        Problem::new(Kind::Limit, text)
    };
    let own = gateway.endings.take(caller.0.uid, 1).map_err(full)?;
    let shared = match door {
        Door::Tcp { from, .. } => Some(gateway.endings_from.take(*from, 1).map_err(full)?),
        Door::Unix(_) => None,
    };
    Ok((own, shared))
}

/// Renew the lease of a request
#[utoipa::path(
    post,
    operation_id = "requests_renew",
    path = "/v1/requests/{id}/renew",
    params(("id" = String, Path, description = "As it was asked for", pattern = "^[A-Za-z0-9._~-]{1,128}$")),
    responses(
        (status = 200, body = Request, description = "Granted"),
        (status = 202, body = Request, description = "It waits"),
        (status = "default", body = Told, content_type = "application/problem+json", description = "It did not work"),
    ),
)]
pub(super) async fn renew(
    gateway: Gateway,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let at_once = Patience { wait_ms: 0, until: Until::Granted };
    let state = look(&gateway, &caller, &id, at_once).await?;
    if let Standing::Released = state.standing {
        return Err(Problem::lost("it was given back"));
    }
    answer(&gateway, &caller, id, state).await.map(again)
}

/// How it stands with a request, now or when that has come for which one waits.
async fn look(
    gateway: &Shared,
    caller: &Caller,
    id: &str,
    Patience { wait_ms, until }: Patience,
) -> Result<State, Problem> {
    check_id(id)?;
    if let Some(mark) = gateway.released.find(&caller.0, id) {
        return Ok(State::released(mark));
    }
    let lease = gateway.leases.find(&caller.0, id).await?;
    if let Standing::New = lease.state().standing {
        return Err(Problem::lost("nothing was asked for under this id"));
    }
    // Whoever only looks keeps nothing waiting.
    let waiter = if wait_ms == 0 { None } else { lease.waiters.join() };
    if lease.waiters.have_given_up() {
        return Err(Problem::lost("it was not granted in time, and is withdrawn"));
    }
    let patience = Duration::from_millis(wait_ms);
    let state = match until {
        Until::Granted => lease.settled(patience).await,
        Until::Ended => lease.over(patience).await,
    };
    drop(waiter);
    if let Standing::Asked = state.standing {
        return Ok(lease.heard(SOON).await);
    }
    Ok(state)
}

/// Give back what a request holds, or withdraw it
#[utoipa::path(
    delete,
    operation_id = "requests_delete",
    path = "/v1/requests/{id}",
    params(("id" = String, Path, description = "As it was asked for", pattern = "^[A-Za-z0-9._~-]{1,128}$")),
    responses(
        (status = 200, body = Request, description = "Given back"),
        (status = "default", body = Told, content_type = "application/problem+json", description = "It did not work"),
    ),
)]
pub(super) async fn delete(
    gateway: Gateway,
    caller: Caller,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    check_id(&id)?;
    if let Some(mark) = gateway.released.find(&caller.0, &id) {
        return answer(&gateway, &caller, id, State::released(mark)).await;
    }
    let lease = gateway.leases.find(&caller.0, &id).await?;
    let state = lease.give_back().await;
    match (&state.standing, state.mark) {
        (Standing::Released, Some(mark)) => {
            gateway.released.add(&caller.0, &id, mark);
            gateway.leases.leave(&lease).await;
        }
        // It was taken away, and kept until whoever has used it says that it does not any more.
        (Standing::Over(_), _) => gateway.leases.leave(&lease).await,
        _ => {}
    }
    answer(&gateway, &caller, id, state).await
}
