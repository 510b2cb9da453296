//! What has become of requests: lines of the audit log, and how the last of them have ended.

use std::sync::Arc;

use holdall_wire::{Fault, RequestNo, Taken};

use super::Service;
use crate::audit::Line;

/// Of so many requests it is remembered how they have ended.
pub(super) const REMEMBERED: usize = 4096;
/// How they do.
const ENDS: [&str; 9] =
    ["released", "expired", "left", "killed", "lost", "withdrawn", "refused", "forced", "overrun"];

impl Service {
    pub(super) fn log(
        &mut self,
        what: &'static str,
        request: RequestNo,
        taken: Option<&Arc<[Taken]>>,
        detail: Option<String>,
    ) {
        let who = self.known.get(&request).map(|known| known.who.clone());
        let at = self.clock.wall();
        // What is told first is why; the rest follows from it.
        if ENDS.contains(&what) && self.ended.iter().rev().take(8).all(|(one, ..)| *one != request)
        {
            if self.ended.len() == REMEMBERED {
                self.ended.pop_front();
            }
            self.ended.push_back((request, what, at));
        }
        let line = Line::new(at, what).about(request).of(who).detail(detail);
        self.audit.add(match taken {
            Some(taken) => line.taken(taken),
            None => line,
        });
        self.round.begin();
    }

    pub(crate) fn flush_audit(&mut self) {
        self.audit.flush();
    }

    /// A request is not there: how it has ended, if that is remembered.
    pub(super) fn unknown(&self, request: RequestNo) -> Fault {
        let ended = self.ended.iter().rev().find(|(one, ..)| *one == request);
        Fault::Conflict(match ended {
            Some((_, how, at)) => {
                let ago = self.clock.wall().saturating_sub(*at) / 1000;
                format!("{request} has ended, {ago} seconds ago: {how}")
            }
            None => format!("there is no {request}; `holdall status` shows what there is"),
        })
    }
}
