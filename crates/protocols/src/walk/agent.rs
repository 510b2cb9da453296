//! The part of the last manager that acts for requests (`walk:agent`).

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use holdall_core::{Addr, Request, RequestId};
use serde::{Deserialize, Serialize};

use super::manager::Out;
use super::{ToUser, Walking};
use crate::positions::{Move, News, Place, Turn};

/// The places of those who wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Agent {
    places: BTreeMap<RequestId, Place>,
}

impl Agent {
    /// Selects a position for a request that has come to the end of its way. Returns what is to be
    /// told to all its queues.
    pub(super) fn begin(
        &mut self,
        cfg: &Walking,
        request: &Request,
        marked: Vec<u32>,
        out: &mut Out,
    ) -> Option<Move> {
        let mut place = Place::selecting(request.clone());
        let turn = place.on_all_marks(marked, cfg.queues);
        if let Some(Move::Select { position, .. }) = turn.tell {
            out.tally("position", u64::from(position));
        }
        self.places.insert(request.id, place);
        self.take(request.id, turn, out)
    }

    /// Takes the news of a queue. Returns what is to be told to all.
    pub(super) fn on_news(
        &mut self,
        cfg: &Walking,
        from: Addr,
        news: &News,
        out: &mut Out,
    ) -> Result<Option<Move>, &'static str> {
        let place = self.places.get_mut(&news.request()).ok_or("news of one that has entered")?;
        let turn = place.on_news(from, Walking::manager_of, news, cfg.queues, false)?;
        Ok(self.take(news.request(), turn, out))
    }

    /// The user is told only of the end.
    fn take(&mut self, id: RequestId, turn: Turn, out: &mut Out) -> Option<Move> {
        if turn.enter {
            self.places.remove(&id);
            out.to_user(id.user, ToUser::News(News::Grant(id)));
        }
        turn.tell
    }

    pub(super) fn is_idle(&self) -> bool {
        self.places.is_empty()
    }
}
