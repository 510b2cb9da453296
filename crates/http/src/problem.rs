//! What went wrong, as RFC 9457 has it: with the words and the exit status of the command line.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use holdall_wire::{Fault, Refusal};
use serde::Serialize;
use utoipa::ToSchema;

const JSON: &str = "application/problem+json";

/// The kinds of problems; `urn:holdall:problem:` stands before their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Usage,
    Unauthenticated,
    Denied,
    Unknown,
    Conflict,
    Busy,
    Timeout,
    Lost,
    Never,
    Limit,
    Unreachable,
    Failed,
}

impl Kind {
    /// Its name, the status of HTTP, the exit status of the command line, and a title.
    fn facts(self) -> (&'static str, StatusCode, u8, &'static str) {
        match self {
            Self::Usage => ("usage", StatusCode::BAD_REQUEST, 64, "makes no sense"),
            Self::Unauthenticated => {
                ("unauthenticated", StatusCode::UNAUTHORIZED, 77, "a token is needed")
            }
            Self::Denied => ("denied", StatusCode::FORBIDDEN, 77, "no right to it"),
            Self::Unknown => ("unknown", StatusCode::NOT_FOUND, 65, "there is no such thing"),
            Self::Conflict => ("conflict", StatusCode::CONFLICT, 65, "does not fit what there is"),
            Self::Busy => ("busy", StatusCode::CONFLICT, 75, "not free"),
            Self::Timeout => ("timeout", StatusCode::CONFLICT, 75, "not granted in time"),
            Self::Lost => ("lost", StatusCode::GONE, 70, "not held any more"),
            Self::Never => ("never", StatusCode::UNPROCESSABLE_ENTITY, 78, "can never be granted"),
            Self::Limit => ("limit", StatusCode::TOO_MANY_REQUESTS, 69, "too many at once"),
            Self::Unreachable => {
                ("unreachable", StatusCode::SERVICE_UNAVAILABLE, 69, "the agent takes no calls")
            }
            Self::Failed => {
                ("failed", StatusCode::SERVICE_UNAVAILABLE, 71, "the agent could not do it")
            }
        }
    }
}

/// What went wrong.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    kind: Kind,
    status: StatusCode,
    detail: String,
}

impl Problem {
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, status: kind.facts().1, detail: detail.into() }
    }

    /// Something that makes no sense, with a status of its own.
    pub(crate) fn usage(status: StatusCode, detail: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, status, detail: detail.into() }
    }

    pub(crate) fn lost(detail: impl Into<String>) -> Self {
        Self::new(Kind::Lost, detail)
    }

    /// The agent does not answer, or not as it should, or has no room for one more connection of this user.
    pub(crate) fn unreachable(why: &std::io::Error) -> Self {
        let full = why.kind() == std::io::ErrorKind::QuotaExceeded;
        let kind = if full { Kind::Limit } else { Kind::Unreachable };
        Self::new(kind, format!("the agent takes no calls now: {why}"))
    }

    /// The same words as a problem of another kind, if it is of this one.
    pub(crate) fn instead_of(self, this: Kind, other: Kind) -> Self {
        if self.kind == this { Self::new(other, self.detail) } else { self }
    }

    /// How to go on with a request of which it is not known how it stands.
    pub(crate) fn ask_again(self, id: &str) -> Self {
        let detail = format!("{}; PUT /v1/requests/{id} asks again for the same", self.detail);
        Self { detail, ..self }
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }
}

impl From<Refusal> for Problem {
    fn from(why: Refusal) -> Self {
        let kind = match why {
            Refusal::Busy(_) => Kind::Busy,
            Refusal::Withdrawn => Kind::Lost,
            Refusal::Never(_) => Kind::Never,
            Refusal::Senseless(_) => Kind::Usage,
            // As a rule a limit; if the agent ends, whoever asked finds that out.
            Refusal::Closed(_) => Kind::Limit,
            Refusal::Denied(_) => Kind::Denied,
            Refusal::Conflict(_) => Kind::Conflict,
        };
        Self::new(kind, why.to_string())
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        let kind = match &fault {
            Fault::Wrong(_) => Kind::Usage,
            // The command line ends alike with both; over HTTP they have statuses of their own.
            Fault::Conflict(_) if fault.is_unknown() => Kind::Unknown,
            Fault::Conflict(_) => Kind::Conflict,
            Fault::Denied(_) => Kind::Denied,
            Fault::Failed(_) => Kind::Failed,
            Fault::Forgotten => Kind::Lost,
        };
        Self::new(kind, fault.to_string())
    }
}

/// What went wrong (RFC 9457).
#[derive(Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct Told {
    /// Which kind of problem: `urn:holdall:problem:` and `usage`, `unauthenticated`, `denied`, `unknown`,
    /// `conflict`, `busy`, `timeout`, `lost`, `never`, `limit`, `unreachable` or `failed`.
    #[serde(rename = "type")]
    #[schema(example = "urn:holdall:problem:never")]
    kind: String,
    /// The kind in words.
    title: &'static str,
    /// The status of HTTP.
    #[schema(minimum = 400, maximum = 599)]
    status: u16,
    /// What the command line would say.
    detail: String,
    /// The exit status that the command line would have.
    exit: u8,
}

impl Problem {
    /// Its body.
    fn told(&self) -> String {
        let (name, _, exit, title) = self.kind.facts();
        let told = Told {
            kind: format!("urn:holdall:problem:{name}"),
            title,
            status: self.status.as_u16(),
            detail: self.detail.clone(),
            exit,
        };
        // Texts and numbers can always be written.
        serde_json::to_string(&told).unwrap_or_default()
    }

    /// All that somebody is told who is sent away at the door.
    pub(crate) fn before_any_call(&self) -> String {
        let body = self.told();
        format!(
            "HTTP/1.1 {}\r\ncontent-type: {JSON}\r\nretry-after: 1\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            self.status,
            body.len(),
        )
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, self.told()).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(JSON));
        match self.kind {
            Kind::Unauthenticated => {
                let scheme = HeaderValue::from_static("Bearer realm=\"holdall\"");
                headers.insert(header::WWW_AUTHENTICATE, scheme);
            }
            Kind::Unreachable | Kind::Failed | Kind::Limit => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            _ => {}
        }
        response
    }
}
