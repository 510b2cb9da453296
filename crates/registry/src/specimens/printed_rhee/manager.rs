//! Figure 5.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use holdall_core::{Addr, Broken, Event, Outbox, Protocol, Role, UserId};
use serde::{Deserialize, Serialize};

use super::{FromUser, Position, PrintedRhee, ToManager, ToUser};

/// One of the subroutine's managers, or a resource manager.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Manager<M> {
    /// Of the subroutine.
    Inner(M),
    /// Of a resource.
    Resource(PoolManager),
}

/// Resource manager `rm_k`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PoolManager {
    rm_critical: bool,
    occupant: BTreeMap<Position, UserId>,
    has_dec_sent: BTreeSet<Position>,
    has_received_advance: BTreeSet<Position>,
    /// What was received and not yet handled.
    buffer: VecDeque<(UserId, FromUser)>,
}

/// What is sent, and to whom.
type Sent<M> = Vec<(UserId, ToUser<M>)>;

impl PoolManager {
    /// Handles what was received, in its order, as far as guards allow.
    fn run<S: Protocol>(&mut self, cfg: &PrintedRhee<S>, sent: &mut Sent<S::ToUser>) {
        let enabled =
            |this: &Self, msg: &FromUser| this.rm_critical == matches!(msg, FromUser::Select(_));
        while let Some(at) = self.buffer.iter().position(|(_, msg)| enabled(self, msg)) {
            let Some((i, msg)) = self.buffer.remove(at) else { return };
            self.handle(cfg, i, msg, sent);
        }
    }

    fn handle<S: Protocol>(
        &mut self,
        cfg: &PrintedRhee<S>,
        i: UserId,
        msg: FromUser,
        sent: &mut Sent<S::ToUser>,
    ) {
        match msg {
            FromUser::Report => {
                let marked = self.occupant.keys().flat_map(|j| [j - 1, *j]).collect(); // 02
                sent.push((i, ToUser::Marked(marked))); // 03
                self.rm_critical = true; // 04
            }
            FromUser::Select(p) => {
                self.rm_critical = false; // 06
                self.occupant.insert(p, i); // 07
                if p == 1 {
                    sent.push((i, ToUser::Grant)); // 08
                }
                if !(cfg.rules.d2 && p == 1) {
                    self.adjust_queue(cfg, p, sent); // 09
                }
            }
            FromUser::Advance(p) => {
                self.has_received_advance.insert(p); // 11
                self.adjust_queue(cfg, p, sent); // 12
            }
            FromUser::Release => {
                self.occupant.remove(&1); // 14
                self.adjust_queue(cfg, 2, sent); // 15
            }
        }
    }

    /// Lines 16 to 24.
    fn adjust_queue<S: Protocol>(
        &mut self,
        cfg: &PrintedRhee<S>,
        mut p: Position,
        sent: &mut Sent<S::ToUser>,
    ) {
        while let Some(i) = self.occupant.get(&p).copied() {
            if self.occupant.contains_key(&(p - 1)) {
                return; // 17
            }
            if self.has_dec_sent.insert(p) {
                sent.push((i, ToUser::Dec(p))); // 18 to 20
            }
            if self.has_received_advance.contains(&p) {
                self.advance_one_position(cfg, p, i, sent); // 22
            }
            p += 1; // 23
        }
    }

    /// Lines 25 to 33, of the occupant of p.
    fn advance_one_position<S: Protocol>(
        &mut self,
        cfg: &PrintedRhee<S>,
        p: Position,
        i: UserId,
        sent: &mut Sent<S::ToUser>,
    ) {
        self.occupant.insert(p - 1, i); // 26
        self.occupant.remove(&p); // 27
        self.has_received_advance.remove(&p); // 28
        self.has_dec_sent.remove(&p); // 29
        if p - 1 == 1 {
            sent.push((i, ToUser::Grant)); // 30
        }
        let free = !self.has_dec_sent.contains(&(p - 1)) && !self.occupant.contains_key(&(p - 2));
        if free && !(cfg.rules.d3 && p - 1 == 1) {
            self.has_dec_sent.insert(if cfg.rules.d4 { p - 1 } else { p }); // 32
            sent.push((i, ToUser::Dec(p - 1))); // 33
        }
    }
}

impl<M> Role for Manager<M>
where
    M: Role,
    M::P: Protocol<Manager = M, ToManager = M::Msg>,
{
    type P = PrintedRhee<M::P>;
    type Call = M::Call;
    type Msg = ToManager<M::Msg>;
    type Timer = M::Timer;

    fn step(&mut self, cfg: &Self::P, event: Event<Self>, out: &mut Outbox<Self::P, Self::Timer>) {
        match (self, event) {
            (
                Self::Resource(rm),
                Event::Message { from: Addr::User(i), msg: ToManager::Own(msg) },
            ) => {
                rm.buffer.push_back((i, msg));
                let mut sent = Vec::new();
                rm.run(cfg, &mut sent);
                sent.into_iter().for_each(|(to, msg)| out.to_user(to, msg));
            }
            (Self::Inner(inner), event) => {
                let event = match event {
                    Event::Call(call) => Event::Call(call),
                    Event::Gone(gone) => Event::Gone(gone),
                    Event::Message { from, msg: ToManager::Inner(msg) } => {
                        Event::Message { from, msg }
                    }
                    Event::Message { from, .. } => {
                        return out.misbehaved(from, "a message for a resource manager");
                    }
                    Event::Timer(timer) => Event::Timer(timer),
                };
                let mut inner_out = Outbox::default();
                inner.step(&cfg.inner, event, &mut inner_out);
                out.lift(inner_out, ToUser::Inner, ToManager::Inner, |timer| timer);
            }
            (Self::Resource(_), Event::Message { from, .. }) => {
                out.misbehaved(from, "a message for a manager of the subroutine");
            }
            (Self::Resource(_), _) => {}
        }
    }

    /// Lemma 5.1 needs no check: a position has one occupant, and who is put where somebody
    /// stands takes its place; what follows from that is seen.
    fn check(&self, cfg: &Self::P) -> Result<(), Broken> {
        match self {
            Self::Inner(inner) => inner.check(&cfg.inner),
            Self::Resource(_) => Ok(()),
        }
    }

    fn is_idle(&self) -> bool {
        match self {
            Self::Inner(inner) => inner.is_idle(),
            Self::Resource(rm) => rm.occupant.is_empty() && rm.buffer.is_empty(),
        }
    }
}
