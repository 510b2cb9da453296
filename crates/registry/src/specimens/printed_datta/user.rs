//! Algorithm 1: the client.

use holdall_core::{Addr, Broken, Call, Event, ManagerId, Never, Outbox, Request, Role};
use serde::{Deserialize, Serialize};

use super::{PrintedDatta, ToManager, ToUser};

/// A client.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User {
    /// `D`, and for whom it was.
    asked: Option<Request>,
}

impl User {
    /// `D[1]` and `D[2]`.
    fn resources(request: &Request) -> (ManagerId, Option<ManagerId>) {
        let at = |place: usize| request.needs.get(place).map(|need| ManagerId(need.pool.0));
        (at(0).expect("a request names a pool"), at(1))
    }
}

impl Role for User {
    type P = PrintedDatta;
    type Call = Call;
    type Msg = ToUser;
    type Timer = Never;

    fn step(
        &mut self,
        _: &PrintedDatta,
        event: Event<Self>,
        out: &mut Outbox<PrintedDatta, Never>,
    ) {
        match (event, &self.asked) {
            // 3-12
            (Event::Call(Call::Ask(request, _)), _) => {
                let (first, second) = Self::resources(&request);
                let msg = match second {
                    Some(_) => ToManager::NewRequest(request.id, 2, Some(first)),
                    None => ToManager::NewRequest(request.id, 1, None),
                };
                out.to_manager(second.unwrap_or(first), msg);
                self.asked = Some(request);
            }
            // 13-14
            (Event::Message { msg: ToUser::Allowed, .. }, Some(request)) => {
                out.granted(request.clone());
            }
            // 15-19
            (Event::Call(Call::Done | Call::Leave), Some(request)) => {
                let (first, second) = Self::resources(request);
                out.to_manager(second.unwrap_or(first), ToManager::Done);
            }
            // 22-24
            (Event::Message { msg: ToUser::End, .. }, Some(request)) => {
                out.released(request.id);
                self.asked = None;
            }
            (Event::Message { from: from @ Addr::Manager(_), .. }, None) => {
                out.misbehaved(from, "allowed or ended what nobody asked for");
            }
            _ => {}
        }
    }

    fn check(&self, _: &PrintedDatta) -> Result<(), Broken> {
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.asked.is_none()
    }
}
