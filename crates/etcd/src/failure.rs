//! Why a call did not succeed, and what that says about whether it was carried out.

use std::error::Error as _;

use tonic::{Code, Status};

/// What is known of a call that was not answered as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It may have been carried out, or be carried out later: it took too long, the connection
    /// broke, the members have no leader. Everything that is not known better is this.
    Unknown,
    /// There is no room (the alarm `NOSPACE`). It was not carried out, unless it was what took the last of it; it is not later.
    Full,
    /// The user is not known, or may not do that. It was not carried out.
    Refused,
    /// The lease is over. It was not carried out.
    LeaseOver,
    /// The revision that was asked for is forgotten.
    Compacted,
    /// etcd does not take such a request at all: a defect. It was not carried out.
    Wrong,
}

/// A call that was not answered as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Failure {
    /// What is known of it.
    pub kind: Kind,
    /// What was said, and by whom.
    pub what: String,
}

impl Failure {
    /// It is not known whether the call was carried out.
    pub fn unknown(what: impl Into<String>) -> Self {
        Self { kind: Kind::Unknown, what: what.into() }
    }

    /// What etcd says; `from` is the member that was asked.
    pub(crate) fn told(status: &Status, from: &str) -> Self {
        let said = status.message();
        let is = |words: &str| said.contains(words);
        let kind = match status.code() {
            Code::ResourceExhausted if is("database space exceeded") => Kind::Full,
            Code::NotFound if is("lease not found") => Kind::LeaseOver,
            Code::OutOfRange if is("compacted") => Kind::Compacted,
            Code::PermissionDenied | Code::Unauthenticated => Kind::Refused,
            Code::InvalidArgument if is("authentication failed") => Kind::Refused,
            Code::InvalidArgument if is("user name") || is("permission denied") => Kind::Refused,
            Code::InvalidArgument if is("etcdserver:") => Kind::Wrong,
            _ => Kind::Unknown,
        };
        let why = cause(status).map_or_else(String::new, |why| format!(" ({why})"));
        Self { kind, what: format!("etcd at {from}: {said}{why}") }
    }
}

/// What is behind it, if that is not said: of a connection that fails, what was wrong with it.
fn cause(status: &Status) -> Option<String> {
    let mut cause = status.source()?;
    while let Some(next) = cause.source() {
        cause = next;
    }
    Some(cause.to_string())
}

/// Whether a token was not taken, so that another one helps. Nothing was carried out then.
pub(crate) fn is_stale_token(status: &Status) -> bool {
    let said = status.message();
    said.contains("invalid auth token") || said.contains("auth store is old")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_better_may_have_been_carried_out() {
        let kind = |code, said: &str| Failure::told(&Status::new(code, said), "a").kind;
        assert_eq!(kind(Code::Unavailable, "etcdserver: request timed out"), Kind::Unknown);
        assert_eq!(kind(Code::Unavailable, "etcdserver: no leader"), Kind::Unknown);
        assert_eq!(kind(Code::Unknown, "transport error"), Kind::Unknown);
        assert_eq!(kind(Code::ResourceExhausted, "etcdserver: too many requests"), Kind::Unknown);
        let full = "etcdserver: mvcc: database space exceeded";
        assert_eq!(kind(Code::ResourceExhausted, full), Kind::Full);
        let denied = "etcdserver: permission denied";
        assert_eq!(kind(Code::PermissionDenied, denied), Kind::Refused);
        let nobody = "etcdserver: authentication failed, invalid user ID or password";
        assert_eq!(kind(Code::InvalidArgument, nobody), Kind::Refused);
        assert_eq!(kind(Code::InvalidArgument, "etcdserver: user name is empty"), Kind::Refused);
        let gone = "etcdserver: requested lease not found";
        assert_eq!(kind(Code::NotFound, gone), Kind::LeaseOver);
        let old = "etcdserver: mvcc: required revision has been compacted";
        assert_eq!(kind(Code::OutOfRange, old), Kind::Compacted);
        let large = "etcdserver: request is too large";
        assert_eq!(kind(Code::InvalidArgument, large), Kind::Wrong);
    }
}
