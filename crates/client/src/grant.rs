//! Requests that wait, and grants.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

use holdall_wire::{Ask, Body, Fault, Name, Place, Reply, RequestNo, Taken};

use crate::Error;
use crate::connection::{Connection, Replies};

/// A request under way. Dropping it withdraws the request.
#[derive(Debug)]
pub struct Waiting {
    connection: Arc<Connection>,
    call: u64,
    replies: Option<Replies>,
    number: Option<RequestNo>,
    lock: Option<Arc<OwnedFd>>,
    warn: fn(&str),
}

impl Waiting {
    pub(crate) fn ask(connection: Arc<Connection>, ask: Ask) -> Result<Self, Error> {
        let (call, replies) = connection.call(Body::Ask(ask))?;
        let lock = connection.held_lock();
        Ok(Self { connection, call, replies: Some(replies), number: None, lock, warn: |_| {} })
    }

    /// From now on, what the agent has to say about the request is told.
    pub fn on_warning(&mut self, warn: fn(&str)) {
        self.warn = warn;
    }

    /// The number of the request, if it is known that it has to wait.
    pub fn number(&self) -> Option<RequestNo> {
        self.number
    }

    /// Waits until the request is granted. May be dropped and called again.
    ///
    /// # Errors
    /// If it is refused, or the agent is lost.
    pub async fn granted(&mut self) -> Result<Grant, Error> {
        loop {
            let Some(replies) = &mut self.replies else { return Err(Error::Lost) };
            match replies.recv().await {
                Some(Reply::Queued(number)) => self.number = Some(number),
                Some(Reply::Warning(text)) => (self.warn)(&text),
                Some(Reply::Granted { request, taken, place, variables, limit }) => {
                    let lock = self.lock.take();
                    let connection = self.connection.clone();
                    let replies = self.replies.take();
                    let (call, ended) = (self.call, false);
                    return Ok(Grant {
                        connection,
                        call,
                        request,
                        taken,
                        place,
                        variables,
                        limit: limit.map(Duration::from_millis),
                        replies,
                        ended,
                        lock,
                    });
                }
                Some(Reply::Refused(why)) => {
                    self.replies = None;
                    return Err(why.into());
                }
                Some(Reply::Failed(fault)) => {
                    self.replies = None;
                    return Err(fault.into());
                }
                Some(other) => return Err(Error::Protocol(format!("unexpected reply: {other:?}"))),
                None => {
                    self.replies = None;
                    return Err(Error::Lost);
                }
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.replies.is_some() {
            self.connection.forget(self.call);
            self.connection.tell(Body::Withdraw(self.call));
        }
    }
}

/// What a request holds. Dropping it gives it back.
#[derive(Debug)]
pub struct Grant {
    connection: Arc<Connection>,
    call: u64,
    request: RequestNo,
    taken: Arc<[Taken]>,
    place: Option<Place>,
    variables: Vec<(String, String)>,
    limit: Option<Duration>,
    replies: Option<Replies>,
    ended: bool,
    lock: Option<Arc<OwnedFd>>,
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

    /// Tells the agent the child that is about to use the grant. It must not have been waited for.
    ///
    /// # Errors
    /// If the agent is lost, or does not take it for a child of ours.
    pub async fn child(&self, pid: u32) -> Result<(), Error> {
        let (_, mut replies) = self.connection.call(Body::Child { request: self.request, pid })?;
        match replies.recv().await {
            Some(Reply::Failed(fault)) => Err(fault.into()),
            Some(_) => Ok(()),
            None => Err(Error::Lost),
        }
    }

    /// Waits until the grant is lost: it was taken away, or the agent is gone. Its use must stop
    /// then. The grant itself should be dropped after that, since a new agent waits for it.
    pub async fn lost(&mut self) {
        if let Some(replies) = &mut self.replies {
            loop {
                match replies.recv().await {
                    Some(Reply::Lost(_)) | None => break,
                    Some(_) => {}
                }
            }
            self.replies = None;
        }
    }

    /// Gives everything back, and waits until the agent has it.
    ///
    /// # Errors
    /// If the agent is lost, or had taken it away before.
    pub async fn release(mut self) -> Result<(), Error> {
        self.ended = true;
        self.end(false).await.map(drop)
    }

    /// As [`Grant::release`], for one that a command has used; `left` says whether we still have
    /// children. Returns the processes that the command has left behind.
    ///
    /// # Errors
    /// If the agent is lost, or had taken it away before. If it says that it has failed, the grant
    /// is still held: the agent does not know what was left behind.
    pub async fn end(&mut self, left: bool) -> Result<Vec<u32>, Error> {
        let (_, mut replies) = self.connection.call(Body::End { request: self.request, left })?;
        let reply = replies.recv().await;
        if let Some(Reply::Failed(fault @ Fault::Failed(_))) = reply {
            return Err(fault.into());
        }
        self.ended = true;
        self.connection.forget(self.call);
        match reply {
            Some(Reply::Failed(fault)) => Err(fault.into()),
            Some(Reply::Leftovers(pids)) => Ok(pids),
            Some(_) => Ok(Vec::new()),
            None => Err(Error::Lost),
        }
    }

    /// Lets it last without this program: for reservations.
    pub fn keep(mut self) {
        self.ended = true;
        self.connection.forget(self.call);
    }
}

impl Drop for Grant {
    fn drop(&mut self) {
        if !self.ended {
            self.connection.forget(self.call);
            self.connection.tell(Body::End { request: self.request, left: false });
        }
        // The use is over now, and with it the lock; not before the agent was told.
        self.lock = None;
    }
}
