//! One role's ends of its links: what it has sent and keeps, and what it has received.

use alloc::collections::{BTreeMap, BTreeSet};

use holdall_core::{
    Addr, Broken, ChannelStamp, Effect, ManagerId, Outbox, Party, Protocol, Role, UserId,
};
use serde::{Deserialize, Serialize};

use super::{Content, Linked, Out, Packet, Rules, Timer};

/// The links of one role. `U` is what users of P receive, `M` what managers do.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub(super) struct Links<U, M> {
    me: Addr,
    to_users: BTreeMap<UserId, Sent<U>>,
    to_managers: BTreeMap<ManagerId, Sent<M>>,
    received: BTreeMap<Addr, Received>,
    /// Who is sent nothing any more.
    gone: BTreeSet<Party>,
}

/// What goes to one receiver.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Sent<T> {
    next: ChannelStamp,
    /// What is not acknowledged.
    kept: BTreeMap<ChannelStamp, Content<T>>,
}

impl<T> Sent<T> {
    /// Keeps it no more; whether it was ever sent.
    fn acknowledge(&mut self, n: ChannelStamp) -> bool {
        self.kept.remove(&n);
        n < self.next
    }
}

/// What has come from one sender.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Received {
    /// All before this one.
    before: ChannelStamp,
    /// And these.
    beyond: BTreeSet<ChannelStamp>,
}

impl Received {
    fn contains(&self, n: ChannelStamp) -> bool {
        n < self.before || self.beyond.contains(&n)
    }

    /// Notes that one has arrived; whether for the first time.
    fn note(&mut self, n: ChannelStamp) -> bool {
        if self.contains(n) {
            return false;
        }
        self.beyond.insert(n);
        while self.beyond.remove(&self.before) {
            self.before = self.before.next();
        }
        true
    }
}

impl<U: Clone, M: Clone> Links<U, M> {
    pub(super) fn new(me: Addr) -> Self {
        Self {
            me,
            to_users: BTreeMap::new(),
            to_managers: BTreeMap::new(),
            received: BTreeMap::new(),
            gone: BTreeSet::new(),
        }
    }

    /// Whether something is kept because it is not acknowledged.
    pub(super) fn waits(&self) -> bool {
        self.to_users.values().any(|sent| !sent.kept.is_empty())
            || self.to_managers.values().any(|sent| !sent.kept.is_empty())
    }

    /// What is kept for a manager and has not arrived at its end of the link.
    pub(super) fn under_way_to<'a>(
        &'a self,
        to: ManagerId,
        end: &'a Self,
    ) -> impl Iterator<Item = &'a M> {
        let received = end.received.get(&self.me);
        let arrived = move |n| received.is_some_and(|received| received.contains(n));
        let kept = self.to_managers.get(&to).into_iter().flat_map(|sent| &sent.kept);
        kept.filter(move |(n, _)| !arrived(**n)).filter_map(|(_, content)| match content {
            Content::Close => None,
            Content::Message(msg) => Some(msg),
        })
    }

    /// Keeps something for a manager, and sends it.
    pub(super) fn send_to_manager<P, T>(
        &mut self,
        to: ManagerId,
        content: Content<M>,
        out: &mut Outbox<Linked<P>, T>,
    ) where
        P: Protocol<ToManager = M, ToUser = U>,
    {
        let first = ChannelStamp::first(self.me, Addr::Manager(to));
        let sent = self.to_managers.entry(to).or_insert_with(|| Sent::new(first));
        out.to_manager(to, sent.send(content));
    }

    /// Keeps something for a user, and sends it, unless that one is gone.
    fn send_to_user<P, T>(
        &mut self,
        to: UserId,
        content: Content<U>,
        out: &mut Outbox<Linked<P>, T>,
    ) where
        P: Protocol<ToManager = M, ToUser = U>,
    {
        if self.gone.iter().any(|party| party.includes(to)) {
            return;
        }
        let first = ChannelStamp::first(self.me, Addr::User(to));
        let sent = self.to_users.entry(to).or_insert_with(|| Sent::new(first));
        out.to_user(to, sent.send(content));
    }

    /// Sends everything again that is kept.
    pub(super) fn send_again<P, T>(&self, out: &mut Outbox<Linked<P>, T>)
    where
        P: Protocol<ToManager = M, ToUser = U>,
    {
        for (to, sent) in &self.to_users {
            sent.frames().for_each(|frame| out.to_user(*to, frame));
        }
        for (to, sent) in &self.to_managers {
            sent.frames().for_each(|frame| out.to_manager(*to, frame));
        }
        out.tally("resend", 1);
    }

    /// A frame arrives: acknowledges it, and tells whether it is new.
    ///
    /// # Errors
    /// If it is not of this link.
    pub(super) fn on_frame<P, T>(
        &mut self,
        rules: &Rules,
        from: Addr,
        n: ChannelStamp,
        out: &mut Outbox<Linked<P>, T>,
    ) -> Result<bool, &'static str>
    where
        P: Protocol<ToManager = M, ToUser = U>,
    {
        if !n.is_of(from, self.me) {
            return Err("a frame of another link");
        }
        let first = ChannelStamp::first(from, self.me);
        let fresh = || Received { before: first, beyond: BTreeSet::new() };
        let new = self.received.entry(from).or_insert_with(fresh).note(n);
        if new || rules.acks {
            match from {
                Addr::Manager(to) => out.to_manager(to, Packet::Ack(n)),
                Addr::User(to) => out.to_user(to, Packet::Ack(n)),
            }
        }
        Ok(new || !rules.new)
    }

    /// Something has arrived.
    ///
    /// # Errors
    /// If it was never sent.
    pub(super) fn on_ack(&mut self, from: Addr, n: ChannelStamp) -> Result<(), &'static str> {
        let sent = n.is_of(self.me, from)
            && match from {
                Addr::Manager(to) => {
                    self.to_managers.get_mut(&to).is_some_and(|sent| sent.acknowledge(n))
                }
                // To one that is gone, nothing is kept.
                Addr::User(to) => self.to_users.get_mut(&to).is_none_or(|sent| sent.acknowledge(n)),
            };
        if sent { Ok(()) } else { Err("an acknowledgement of what was not sent") }
    }

    /// Whether an acknowledgement changes nothing.
    pub(super) fn is_known(&self, from: Addr, n: ChannelStamp) -> bool {
        let kept = match from {
            Addr::Manager(to) => self.to_managers.get(&to).map(|sent| sent.kept.contains_key(&n)),
            Addr::User(to) => self.to_users.get(&to).map(|sent| sent.kept.contains_key(&n)),
        };
        n.is_of(self.me, from) && kept == Some(false)
    }

    /// Sends somebody nothing any more.
    pub(super) fn close(&mut self, rules: &Rules, who: Party) {
        if rules.close {
            self.to_users.retain(|user, _| !who.includes(*user));
            self.gone.insert(who);
        }
    }

    /// Passes on what a role of P wants done, its messages as frames. Returns whether it has lost its
    /// request.
    pub(super) fn pass_on<R>(&mut self, inner: Outbox<R::P, R::Timer>, out: &mut Out<R>) -> bool
    where
        R: Role,
        R::P: Protocol<ToManager = M, ToUser = U>,
    {
        let (mut inner, mut lost) = (inner, false);
        for effect in inner.drain() {
            match effect {
                Effect::Arm(timer, rung) => out.arm(Timer::Inner(timer), rung),
                Effect::Disarm(timer) => out.disarm(Timer::Inner(timer)),
                Effect::Granted(request) => out.granted(request),
                Effect::Lost(request) => {
                    out.lost(request);
                    lost = true;
                }
                Effect::Misbehaved(who, what) => out.misbehaved(who, what),
                Effect::Released(request) => out.released(request),
                Effect::Tally(what, size) => out.tally(what, size),
                Effect::ToManager(to, msg) => self.send_to_manager(to, Content::Message(msg), out),
                Effect::ToUser(to, msg) => self.send_to_user(to, Content::Message(msg), out),
            }
        }
        lost
    }

    /// Keeps the timer armed while something is not acknowledged. `armed` is whether it is.
    pub(super) fn watch<P: Protocol, T>(
        &self,
        rules: &Rules,
        armed: bool,
        out: &mut Outbox<Linked<P>, Timer<T>>,
    ) {
        match (armed, self.waits() && rules.resend) {
            (false, true) => out.arm(Timer::Resend, 0),
            (true, false) => out.disarm(Timer::Resend),
            _ => {}
        }
    }

    pub(super) fn check(&self) -> Result<(), Broken> {
        let numbered = self.to_users.values().all(Sent::is_sound)
            && self.to_managers.values().all(Sent::is_sound);
        let gap = |r: &Received| r.beyond.iter().all(|n| *n > r.before);
        let statement = "L1: what is kept is numbered, and what came out of turn is beyond a gap";
        Broken::unless(numbered && self.received.values().all(gap), statement)
    }
}

impl<T: Clone> Sent<T> {
    fn new(first: ChannelStamp) -> Self {
        Self { next: first, kept: BTreeMap::new() }
    }

    fn send(&mut self, content: Content<T>) -> Packet<T> {
        let n = self.next;
        self.next = n.next();
        self.kept.insert(n, content.clone());
        Packet::Frame { n, content }
    }

    fn frames(&self) -> impl Iterator<Item = Packet<T>> + '_ {
        self.kept.iter().map(|(n, content)| Packet::Frame { n: *n, content: content.clone() })
    }

    fn is_sound(&self) -> bool {
        self.kept.keys().all(|n| *n < self.next)
    }
}
