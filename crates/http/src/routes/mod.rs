//! The paths: one file for each kind of thing. What a handler says of itself is in `/openapi.json`.

// What utoipa's macros make of the parameters of queries.
#![allow(unused_qualifications)]

mod agent;
mod asked;
mod audit;
mod events;
mod grants;
mod page;
mod pools;
mod requests;
mod status;

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, FromRequestParts};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::routing::get;
use holdall_wire::{Name, RequestNo};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::caller::Peer;
use crate::extract::LONGEST;
use crate::gateway::Shared;
use crate::guard::guard;
use crate::link::Link;
use crate::problem::{Kind, Problem, Told};

/// What all handlers share.
type Gateway = axum::extract::State<Arc<Shared>>;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "holdall",
        description = "Sets of exclusive resources, all or nothing. Spans and times are in \
                       milliseconds, times since 1970. Problems have the words and the exit status \
                       of the command line."
    ),
    components(schemas(Told)),
    modifiers(&Tokens),
    security((), ("token" = [])),
)]
struct Described;

/// Over TCP everything below `/v1` needs a token; over the Unix socket the kernel vouches for the user.
struct Tokens;

impl Modify for Tokens {
    fn modify(&self, openapi: &mut utoipa::openapi::OpenApi) {
        let components = openapi.components.get_or_insert_default();
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        components.add_security_scheme("token", SecurityScheme::Http(bearer));
    }
}

fn described() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::with_openapi(Described::openapi())
        .routes(routes!(requests::post))
        .routes(routes!(requests::put, requests::get, requests::delete))
        .routes(routes!(requests::renew))
        .routes(routes!(status::status))
        .routes(routes!(status::explain))
        .routes(routes!(grants::delete))
        .routes(routes!(grants::renew))
        .routes(routes!(pools::list))
        .routes(routes!(pools::get, pools::put, pools::patch, pools::delete))
        .routes(routes!(pools::drain, pools::undrain))
        .routes(routes!(audit::audit))
        .routes(routes!(events::events))
        .routes(routes!(agent::agent))
        .routes(routes!(agent::stop))
        .routes(routes!(agent::healthz))
        .routes(routes!(agent::readyz))
}

/// The description of the interface.
pub fn openapi() -> utoipa::openapi::OpenApi {
    described().into_openapi()
}

/// All paths, behind the guard.
pub(crate) fn all(shared: Arc<Shared>) -> Router {
    let (router, openapi) = described().split_for_parts();
    // What is made from the code can be written.
    let openapi = Bytes::from(openapi.to_json().unwrap_or_default());
    let json = [(axum::http::header::CONTENT_TYPE, "application/json")];
    router
        .route("/openapi.json", get(|| async move { (json, openapi) }))
        .route("/", get(page::index))
        .route("/{*path}", get(page::file))
        .method_not_allowed_fallback(|| async {
            Problem::usage(StatusCode::METHOD_NOT_ALLOWED, "this path does not take that method")
        })
        .fallback(no_such_path)
        .layer(DefaultBodyLimit::max(LONGEST))
        .layer(axum::middleware::from_fn_with_state(shared.clone(), guard))
        .with_state(shared)
}

async fn no_such_path() -> Problem {
    Problem::usage(StatusCode::NOT_FOUND, "there is no such path; /openapi.json lists them")
}

/// Who calls.
struct Caller(Peer);

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let peer = parts.extensions.get::<Peer>().cloned();
        peer.map(Self).ok_or_else(|| Problem::new(Kind::Unauthenticated, "a token is needed here"))
    }
}

impl Caller {
    /// A connection to the service as this caller.
    async fn link(&self, gateway: &Shared) -> Result<Link, Problem> {
        Link::open(&*gateway.service, &self.0).await
    }
}

/// A request by its number.
fn number(text: &str) -> Result<RequestNo, Problem> {
    text.parse().map_err(|why: String| Problem::new(Kind::Usage, why))
}

fn name(text: &str) -> Result<Name, Problem> {
    text.parse().map_err(|bad: holdall_wire::BadNeed| Problem::new(Kind::Usage, bad.to_string()))
}
