//! Requests that wait, and grants.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use holdall_holders::until_boottime;
use holdall_wire::{Ask, Body, Name, Place, Reply, RequestNo, Taken};
use tokio::sync::watch;

use crate::calls::Replies;
use crate::lease::Until;
use crate::session::{Asked, Session};
use crate::{Error, Presence};

/// A request under way. Dropping it withdraws the request.
#[derive(Debug)]
pub struct Waiting {
    /// Gone when the request is over or granted.
    under_way: Option<(Asked, Replies)>,
    number: Option<RequestNo>,
    /// Until when the agent lends it once it is granted, if that was told before.
    lent: Option<i64>,
    warn: fn(&str),
}

impl Waiting {
    pub(crate) fn ask(session: &Arc<Session>, ask: Ask) -> Result<Self, Error> {
        session.ask(ask).map(Self::of)
    }

    pub(crate) fn of(asked: (Asked, Replies)) -> Self {
        Self { under_way: Some(asked), number: None, lent: None, warn: |_| {} }
    }

    /// From now on, what the agent has to say about the request is told.
    pub fn on_warning(&mut self, warn: fn(&str)) {
        self.warn = warn;
    }

    /// The number of the request, if it is known that it has to wait.
    pub fn number(&self) -> Option<RequestNo> {
        self.number
    }

    /// Waits until the request is granted, whatever becomes of the connection or the agent meanwhile. May
    /// be dropped and called again.
    ///
    /// # Errors
    /// If it is refused; [`Error::Lost`] if the agent has forgotten it.
    pub async fn granted(&mut self) -> Result<Grant, Error> {
        loop {
            if let Some(grant) = self.heard().await? {
                return Ok(grant);
            }
        }
    }

    /// Waits until something is heard of the request: that it waits, and under which number, or that it
    /// is granted. May be dropped and called again.
    ///
    /// # Errors
    /// As [`Waiting::granted`].
    pub async fn heard(&mut self) -> Result<Option<Grant>, Error> {
        let Some((_, replies)) = &mut self.under_way else { return Err(Error::Lost) };
        let error = match replies.recv().await {
            Some(Reply::Queued(number)) => {
                self.number = Some(number);
                return Ok(None);
            }
            Some(Reply::Warning(text)) => {
                (self.warn)(&text);
                return Ok(None);
            }
            Some(Reply::Until { boottime_millis, .. }) => {
                self.lent = Some(millis(boottime_millis));
                return Ok(None);
            }
            Some(Reply::Granted { request, taken, place, variables, limit }) => {
                let lent = self.lent;
                let grant = self.under_way.take().map(|(asked, replies)| Grant {
                    until: asked.until(),
                    lent,
                    asked,
                    request,
                    taken,
                    place,
                    variables,
                    limit: limit.map(Duration::from_millis),
                    replies: Some(replies),
                    told: None,
                    ended: false,
                });
                return Ok(grant);
            }
            Some(Reply::Refused(why)) => why.into(),
            Some(Reply::Failed(fault)) => fault.into(),
            Some(Reply::Lost(_)) => Error::TakenAway,
            Some(other) => Error::Protocol(format!("unexpected reply: {other:?}")),
            None => Error::Lost,
        };
        self.under_way = None;
        Err(error)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some((asked, _)) = &self.under_way {
            asked.withdraw();
        }
    }
}

/// What a request holds. Dropping it gives it back.
#[derive(Debug)]
pub struct Grant {
    asked: Asked,
    request: RequestNo,
    taken: Arc<[Taken]>,
    place: Option<Place>,
    variables: Vec<(String, String)>,
    limit: Option<Duration>,
    replies: Option<Replies>,
    /// Until when the agent lends it, by its clock: units of other cells are among it.
    lent: Option<i64>,
    /// Until when it is held by the lease of the session.
    until: watch::Receiver<Until>,
    /// What the agent has said of it last.
    told: Option<String>,
    ended: bool,
}

/// What may be heard of a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// It is lost. Its use must stop.
    Lost,
    /// [`Grant::deadline`] is another.
    Deadline,
}

/// A time of the agent as one here.
pub(crate) fn millis(boottime: u64) -> i64 {
    i64::try_from(boottime).unwrap_or(i64::MAX)
}

impl Grant {
    /// Its number.
    pub fn number(&self) -> RequestNo {
        self.request
    }

    /// What is held of each pool and lock, in the order they were named.
    pub fn taken(&self) -> &[Taken] {
        &self.taken
    }

    /// The units held, with their fences.
    pub fn units(&self) -> impl Iterator<Item = (&Name, u64)> {
        self.taken.iter().flat_map(|taken| &taken.units).map(|(name, fence)| (name, *fence))
    }

    /// The fences of the units of one pool or lock, in the order of the units.
    pub fn fences(&self, name: &str) -> Vec<u64> {
        let taken = self.taken.iter().find(|taken| taken.name.as_str() == name);
        taken.into_iter().flat_map(|taken| &taken.units).map(|(_, fence)| *fence).collect()
    }

    /// The cgroup in which its command starts, if it was asked for a command and may start there.
    pub fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// What the administrator wants a command to find in its environment.
    pub fn variables(&self) -> &[(String, String)] {
        &self.variables
    }

    /// How long after it was granted it is taken away.
    pub fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// Tells the agent the child that is about to use the grant. It must not have been waited for. When
    /// this returns, the agent knows it for good: agents that come later do, too.
    ///
    /// # Errors
    /// If the grant is lost, or the agent does not take it for a child of ours.
    pub async fn child(&self, pid: u32) -> Result<(), Error> {
        let mut replies = self.asked.call(Body::Child { request: self.request, pid })?;
        match replies.recv().await {
            Some(Reply::Failed(fault)) => Err(fault.into()),
            Some(_) => Ok(()),
            None => Err(Error::Lost),
        }
    }

    /// Until when it may be used, if it may not be used as long as the agent is away: in milliseconds since the machine
    /// booted ([`holdall_holders::boottime`]). It moves on as long as all is well, which [`Grant::news`] tells. Whoever
    /// uses the grant must have stopped by then, whether or not anything is heard.
    pub fn deadline(&self) -> Option<i64> {
        self.until.borrow().of(self.lent)
    }

    /// The other cells that guard some of it, if the agent is there and its deadline is theirs: when that comes near, one of them
    /// was not heard of.
    pub fn lenders(&self) -> BTreeSet<&str> {
        let is_theirs = self.deadline().is_some_and(|end| {
            let own = self.until.borrow().of(None);
            own.is_none_or(|own| end < own)
        });
        let is_here = *self.asked.presence().borrow() == Presence::Here;
        let cells = self.taken.iter().filter_map(|taken| taken.name.cell());
        cells.filter(|_| is_theirs && is_here).collect()
    }

    /// Why it is lost, if the agent has said so.
    pub fn why_lost(&self) -> Option<&str> {
        self.told.as_deref().filter(|_| self.replies.is_none())
    }

    /// Waits until the grant is lost, or its deadline moves. May be dropped and called again.
    pub async fn news(&mut self) -> News {
        let Self { replies: Some(replies), lent, until, told, .. } = self else {
            return News::Lost;
        };
        loop {
            tokio::select! {
                biased;
                reply = replies.recv() => match reply {
                    Some(Reply::Until { boottime_millis, .. }) => {
                        *lent = Some(millis(boottime_millis));
                        return News::Deadline;
                    }
                    Some(Reply::Lost(_)) | None => break,
                    Some(Reply::Warning(text)) => *told = Some(text),
                    Some(_) => {}
                },
                Ok(()) = until.changed() => return News::Deadline,
            }
        }
        self.replies = None;
        News::Lost
    }

    /// What was heard of the grant meanwhile and not taken note of, without waiting.
    pub fn heard(&mut self) -> Option<News> {
        let news = std::pin::pin!(self.news());
        match news.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
            std::task::Poll::Ready(news) => Some(news),
            std::task::Poll::Pending => None,
        }
    }

    /// Waits until the grant is lost: it was taken away, or the agent has lost its memory, or its
    /// [deadline](Grant::deadline) or, for a client with a lease, that is over. Its use must stop then. An agent that is
    /// away for a while takes nothing from anybody.
    pub async fn lost(&mut self) {
        loop {
            let deadline = self.deadline();
            let over = async {
                match deadline {
                    Some(deadline) => until_boottime(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                news = self.news() => if news == News::Lost { return },
                () = over => return,
            }
        }
    }

    /// Gives everything back, and waits until the agent has it.
    ///
    /// # Errors
    /// If the grant was lost before.
    pub async fn release(mut self) -> Result<(), Error> {
        self.end(false).await.map(drop)
    }

    /// As [`Grant::release`], for one that a command has used; `left` says whether we still have
    /// children. Returns the processes that the command has left behind. May be dropped and called again.
    ///
    /// # Errors
    /// If the grant was lost before. If the agent says that it has failed, the grant is still held: the
    /// agent does not know what was left behind. Whatever it says, a grant that it did not take back is given
    /// back once more when it is dropped.
    pub async fn end(&mut self, left: bool) -> Result<Vec<u32>, Error> {
        let mut replies = self.asked.call(Body::End { request: self.request, left })?;
        let reply = replies.recv().await;
        if let Some(Reply::Failed(fault)) = reply {
            return Err(fault.into());
        }
        self.ended = true;
        self.asked.forget();
        match reply {
            Some(Reply::Leftovers(pids)) => Ok(pids),
            Some(_) => Ok(Vec::new()),
            None => Err(Error::Lost),
        }
    }

    /// Lets it last without this program: for reservations.
    pub fn keep(mut self) {
        self.ended = true;
        self.asked.forget();
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if !self.ended {
            self.asked.give_back(self.request);
        }
    }
}
