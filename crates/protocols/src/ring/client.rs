//! The client (the paper's Algorithm 1): it sends its request to the resource it named last, is
//! granted everything at once, says when it is done, and may ask again when it hears that its
//! request has left all queues; or at once, if it is told to be brief.
//!
//! The paper's `RequestProvider`, the oracle that finds out which resources there are, is whoever
//! calls the user: the workload in the simulator, the script of a scope in the checker.

use holdall_core::{Addr, Broken, Call, Need, Never, Outbox, Protocol, Request, RequestId, UserId};
use serde::{Deserialize, Serialize};

use super::manager_of;

/// What a client says to a manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum FromClient {
    /// Queue this (`NewRequest`, line 7).
    Ask(Request),
    /// The use is over (`Done`, line 16).
    Done(RequestId),
    /// The client departs without having been granted its request.
    Leave(RequestId),
}

impl FromClient {
    /// What it is about.
    pub(crate) fn id(&self) -> RequestId {
        match self {
            Self::Ask(request) => request.id,
            Self::Done(id) | Self::Leave(id) => *id,
        }
    }

    /// Whether an honest client says this: of a request of its own.
    pub(crate) fn is_honest(&self, from: Addr) -> bool {
        from == Addr::User(self.id().user)
    }
}

/// What a user may receive.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ToUser {
    /// Everything may be used (`resAllowed`).
    Grant(RequestId),
    /// The request has left all queues (`endACK`).
    Ended(RequestId),
}

/// One client's state.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Client {
    id: UserId,
    /// Whether it may ask again as soon as it is done.
    brief: bool,
    stage: Stage,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Stage {
    Idle,
    Waiting(Request),
    Using(Request),
    Ending(Request),
}

impl Client {
    pub(crate) fn new(id: UserId, brief: bool) -> Self {
        Self { id, brief, stage: Stage::Idle }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.stage == Stage::Idle
    }

    /// What the client may use at the moment.
    pub(crate) fn uses(&self) -> Option<&Request> {
        match &self.stage {
            Stage::Using(request) => Some(request),
            _ => None,
        }
    }

    /// The request under way.
    fn request(&self) -> Option<&Request> {
        match &self.stage {
            Stage::Idle => None,
            Stage::Waiting(request) | Stage::Using(request) | Stage::Ending(request) => {
                Some(request)
            }
        }
    }

    pub(crate) fn check(&self) -> Result<(), Broken> {
        let own = self.request().is_none_or(|request| request.id.user == self.id);
        Broken::unless(own, "a client asks for itself")
    }

    pub(crate) fn on_call<P: Protocol<ToManager: From<FromClient>>>(
        &mut self,
        call: Call,
        out: &mut Outbox<P, Never>,
    ) {
        let stage = core::mem::replace(&mut self.stage, Stage::Idle);
        let leaves = call == Call::Leave;
        match (stage, call) {
            (_, Call::Ask(request, _)) => {
                tell(&request, FromClient::Ask(request.clone()), out);
                self.stage = Stage::Waiting(request);
            }
            (Stage::Using(request), Call::Done | Call::Leave) => {
                tell(&request, FromClient::Done(request.id), out);
                if !leaves && self.brief {
                    out.released(request.id);
                } else if !leaves {
                    self.stage = Stage::Ending(request);
                }
            }
            (Stage::Waiting(request), Call::Leave) => {
                tell(&request, FromClient::Leave(request.id), out);
            }
            (_, Call::Leave) => {}
            (stage, Call::Done) => self.stage = stage,
        }
    }

    /// A message arrives; `granting` tells the need whose manager grants.
    pub(crate) fn on_message<P: Protocol>(
        &mut self,
        from: Addr,
        msg: &ToUser,
        granting: fn(&[Need]) -> Option<&Need>,
        out: &mut Outbox<P, Never>,
    ) {
        if self.is_stale(msg) {
            return; // It crossed the departure.
        }
        let stage = core::mem::replace(&mut self.stage, Stage::Idle);
        let is_from = |need: Option<&Need>| {
            need.map(|need| Addr::Manager(manager_of(need.pool))) == Some(from)
        };
        match (stage, msg) {
            (Stage::Waiting(request), ToUser::Grant(_)) if is_from(granting(&request.needs)) => {
                out.granted(request.clone());
                self.stage = Stage::Using(request);
            }
            (Stage::Ending(request), ToUser::Ended(_)) if is_from(request.needs.first()) => {
                out.released(request.id);
            }
            (stage, _) => {
                self.stage = stage;
                out.misbehaved(from, "a grant or an end that is not its to tell, or out of turn");
            }
        }
    }

    /// Whether this is about a request that is no more.
    pub(crate) fn is_stale(&self, msg: &ToUser) -> bool {
        let (ToUser::Grant(id) | ToUser::Ended(id)) = msg;
        self.request().is_none_or(|request| request.id != *id)
    }
}

/// Says something to the manager of the resource named last.
fn tell<P: Protocol<ToManager: From<FromClient>>>(
    request: &Request,
    message: FromClient,
    out: &mut Outbox<P, Never>,
) {
    if let Some(need) = request.needs.last() {
        out.to_manager(manager_of(need.pool), message.into());
    }
}
