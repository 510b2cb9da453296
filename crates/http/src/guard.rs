//! What is done before anything else: every call gets a number, and who calls is found out. Callers
//! that a web page of somebody else's has sent are turned away.
//!
//! - Over TCP the host must be an address, `localhost` or a name from the configuration: a foreign name
//!   that somebody makes point here (DNS rebinding) is none of these.
//! - An origin must be the host itself: other pages have no business here (CSRF). There is no CORS.
//! - Bodies are JSON and say so, which a form cannot.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tracing::Instrument;

use crate::caller::Peer;
use crate::door::{HEAD_BYTES, HEADERS};
use crate::gateway::Shared;
use crate::problem::{Kind, Problem};
use crate::unread;

/// Through which door a call has come.
#[derive(Clone, Debug)]
pub(crate) enum Door {
    /// The Unix socket: the kernel vouches for the peer.
    Unix(Peer),
    /// TCP, encrypted or not.
    Tcp {
        /// Whether it is TLS.
        tls: bool,
        /// The address, as connections are counted by.
        from: IpAddr,
    },
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The content security policy: nothing but our own files, and nothing inline.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

pub(crate) async fn guard(
    State(gateway): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Response {
    static LAST: AtomicU64 = AtomicU64::new(0);
    // There is one: it is closed by nobody.
    let _call = gateway.calls.acquire().await;
    let id = format!("{:x}-{:x}", gateway.start_number, LAST.fetch_add(1, Ordering::Relaxed));
    let span = tracing::info_span!("http", id);
    let (method, path, began) =
        (request.method().clone(), request.uri().path().to_owned(), Instant::now());
    let mut response = async {
        match admit(&gateway, &mut request) {
            Ok(Some(peer)) => {
                let response = tokio::select! {
                    response = next.run(request) => response,
                    () = gateway.tokens.gone(&peer) => no_token().into_response(),
                };
                // What fails with a token that is good no more may have failed for that alone.
                let failed = !response.status().is_success();
                let response = if failed && gateway.tokens.is_gone(&peer) {
                    no_token().into_response()
                } else {
                    response
                };
                unread::count(&gateway.unread, peer.uid, &method, response).await
            }
            // What is told to everybody is part of the program, or short.
            Ok(None) => next.run(request).await,
            Err(problem) => problem.into_response(),
        }
    }
    .instrument(span.clone())
    .await;
    let status = response.status().as_u16();
    let took_ms = began.elapsed().as_millis() as u64;
    if status < 500 {
        tracing::debug!(parent: &span, %method, path, status, took_ms);
    } else {
        tracing::warn!(parent: &span, %method, path, status, took_ms);
    }
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&id) {
        headers.insert(REQUEST_ID, id);
    }
    let fixed = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    ];
    for (name, value) in fixed {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Finds out who calls, as far as that matters, and whether it may be here at all.
fn admit(gateway: &Shared, request: &mut Request) -> Result<Option<Peer>, Problem> {
    let door = request.extensions().get::<Door>().cloned();
    let door = door.ok_or_else(|| Problem::new(Kind::Failed, "a call without a door"))?;
    let headers = request.headers();
    check_size(request.uri(), headers)?;
    if let Door::Tcp { .. } = door {
        check_host(request.uri(), headers, &gateway.names)?;
    }
    check_origin(headers, &door)?;
    let peer = match door {
        Door::Unix(peer) => Some(peer),
        Door::Tcp { .. } => bearer(headers).and_then(|token| gateway.tokens.whose(token)),
    };
    if peer.is_none() && request.uri().path().starts_with("/v1/") {
        return Err(no_token());
    }
    if let Some(peer) = &peer {
        request.extensions_mut().insert(peer.clone());
    }
    Ok(peer)
}

/// Who reads a head bounds what it reads at a time, which may be more than a head may have.
fn check_size(uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let has_few = headers.len() <= HEADERS;
    let lines = headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4);
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    if has_few && path + lines.sum::<usize>() <= HEAD_BYTES {
        return Ok(());
    }
    let text = format!("the head of a call has {HEAD_BYTES} bytes and {HEADERS} lines at most");
    Err(Problem::usage(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, text))
}

fn no_token() -> Problem {
    Problem::new(
        Kind::Unauthenticated,
        "a token is needed here, as `holdall token add` makes them: \
         `Authorization: Bearer TOKEN`",
    )
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
}

fn check_host(uri: &Uri, headers: &HeaderMap, names: &[String]) -> Result<(), Problem> {
    let mut hosts = headers.get_all(header::HOST).iter().map(|host| host.to_str().unwrap_or(""));
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return Err(Problem::new(Kind::Usage, "a call names the host that it is for, once"));
    };
    // Whoever speaks to a proxy names it twice.
    let named = [Some(host), uri.authority().map(Authority::as_str)];
    named.into_iter().flatten().try_for_each(|host| check_name(without_port(host), names))
}

fn check_name(name: &str, names: &[String]) -> Result<(), Problem> {
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
    let known = names.iter().map(String::as_str).chain(["localhost"]);
    if address || known.into_iter().any(|known| known.eq_ignore_ascii_case(name)) {
        return Ok(());
    }
    let short: String = name.chars().take(80).collect();
    Err(Problem::usage(
        StatusCode::MISDIRECTED_REQUEST,
        format!("this agent is not known as '{short}'; `names` in [http] says what it is known as"),
    ))
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        _ => host,
    }
}

fn check_origin(headers: &HeaderMap, door: &Door) -> Result<(), Problem> {
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let scheme = if matches!(door, Door::Tcp { tls: true, .. }) { "https" } else { "http" };
    // A proxy may speak TLS where we do not.
    let own = [format!("{scheme}://{host}"), format!("https://{host}")];
    let is_own = |origin: &HeaderValue| {
        own.iter().any(|own| origin.as_bytes().eq_ignore_ascii_case(own.as_bytes()))
    };
    if headers.get_all(header::ORIGIN).iter().all(is_own) {
        return Ok(());
    }
    Err(Problem::usage(StatusCode::FORBIDDEN, "pages of other origins may not call the agent"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(host: &str, origin: Option<&str>) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().expect("a host"));
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().expect("an origin"));
        }
        headers
    }

    #[test]
    fn foreign_names_that_point_here_are_not_served() {
        let names = ["lab.example".to_owned()];
        let here = Uri::from_static("/");
        let check = |host| check_host(&here, &headers(host, None), &names).is_ok();
        for good in [
            "127.0.0.1:7421",
            "localhost",
            "LOCALHOST:1",
            "[::1]:7421",
            "[::1]",
            "lab.example:7421",
        ] {
            assert!(check(good), "{good}");
        }
        for bad in [
            "evil.example",
            "localhost.evil.example",
            "lab.example.evil",
            "127.0.0.1.evil",
            "",
            "localhost:",
            "[::1]:99999",
            "127.0.0.1:1, evil",
        ] {
            assert!(!check(bad), "{bad}");
        }
        let elsewhere = Uri::from_static("http://evil.example/v1/agent");
        assert!(check_host(&elsewhere, &headers("localhost", None), &names).is_err());
        let mut two = headers("localhost", None);
        two.append(header::HOST, HeaderValue::from_static("evil.example"));
        assert!(check_host(&here, &two, &names).is_err());
        assert!(check_host(&here, &HeaderMap::new(), &names).is_err());
    }

    fn tcp(tls: bool) -> Door {
        Door::Tcp { tls, from: IpAddr::from([127, 0, 0, 1]) }
    }

    #[test]
    fn pages_of_others_are_turned_away() {
        let check =
            |origin, tls| check_origin(&headers("localhost:7421", Some(origin)), &tcp(tls)).is_ok();
        assert!(check("http://localhost:7421", false) && check("https://localhost:7421", true));
        assert!(check("https://localhost:7421", false), "a proxy speaks TLS");
        assert!(!check("http://localhost:7421", true));
        for bad in ["http://localhost", "http://evil.example", "null", "http://localhost:7421.evil"]
        {
            assert!(!check(bad, false), "{bad}");
        }
        let mut two = headers("localhost:7421", Some("http://localhost:7421"));
        two.append(header::ORIGIN, HeaderValue::from_static("http://evil.example"));
        assert!(check_origin(&two, &tcp(false)).is_err());
    }
}
