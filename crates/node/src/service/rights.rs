//! What whoever is connected may do.

use holdall_cell::session::ConnNo;
use holdall_wire::{Body, ClusterCall, Fault, RequestNo, Right};

use super::{Peer, Service};

impl Service {
    /// Whether whoever is connected has a right.
    pub(super) fn may(&self, conn: ConnNo, right: Right) -> Result<(), Fault> {
        match self.peers.get(&conn) {
            Some(peer) if peer.rights.has(right) => Ok(()),
            Some(peer) => Err(Fault::Denied(lacks(&peer.who.user, right))),
            None => Err(Fault::Denied("nobody is connected".into())),
        }
    }
}

/// The right that a call needs, whatever it is about.
pub(super) fn needed(body: &Body) -> Option<Right> {
    match body {
        Body::Change(_) | Body::Drain { .. } => Some(Right::Pools),
        Body::Renew { .. } => Some(Right::Reserve),
        Body::Status { .. } | Body::Prospects | Body::History { .. } => Some(Right::View),
        Body::At { question, .. } if is_change(question) => needed(question),
        Body::At { .. } | Body::ExplainAs { .. } => Some(Right::View),
        Body::Cluster(ClusterCall::Members | ClusterCall::Hosted) => Some(Right::View),
        Body::Cluster(_) => Some(Right::Admin),
        Body::Stop { .. } | Body::Shutdown(_) | Body::Restart { .. } => Some(Right::Admin),
        _ => None,
    }
}

/// Whether something that is said to another cell is no question.
pub(super) fn is_change(said: &Body) -> bool {
    matches!(said, Body::Change(_) | Body::Drain { .. } | Body::Cluster(_))
}

/// Why somebody can do nothing to what another has. Whose it is, only those are told who may look.
pub(super) fn of_another(peer: &Peer, request: RequestNo, owner: &str) -> Fault {
    let why = lacks(&peer.who.user, Right::Force);
    Fault::Denied(match peer.rights.has(Right::View) {
        true => format!("{request} belongs to {owner}; {why}"),
        false => format!("{request} is not yours; {why}"),
    })
}

pub(super) fn lacks(user: &str, right: Right) -> String {
    let given = match user.starts_with("token:") {
        true => "a token has those it was made with: `holdall token add NAME --may ...`",
        false => {
            "[rights] in the agent's configuration; `holdall agent status` shows who has which"
        }
    };
    format!("{user} lacks the right '{right}' ({given})")
}
