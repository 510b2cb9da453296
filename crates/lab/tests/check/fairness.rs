//! Corners of fairness: messages that become worthless before they arrive, and timers that are put
//! off again and again.

use crate::common::{explore, violated};
use holdall_core::{
    About, Addr, Broken, Call, Clock, Event, ManagerId, Never, NodeId, Options, Origin, Outbox,
    Property, Protocol, Request, RequestId, Role, Topology, Unsupported, UserId,
};
use holdall_lab::check::{Scope, Settings, check};
use holdall_lab::registry::Chosen;
use holdall_protocols::ordered::Ordered;
use serde::{Deserialize, Serialize};

/// Users of lane 0 are served at once. Whoever comes from another lane is made an offer, which it
/// must accept; whenever lane 0 has been served, the offer is withdrawn and a new one made. So the
/// other may starve: each offer may be withdrawn before it arrives. But an offer is always under
/// way, and all offers are the same up to a shift of their numbers.
#[derive(Debug)]
struct Offers {
    /// Whoever hears of an offer that was withdrawn, and is therefore stale, accuses the manager.
    accusing: bool,
}

type Out = Outbox<Offers, Never>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum ToManager {
    Accept,
    Ask(RequestId),
    Release(RequestId),
    /// The withdrawal has arrived.
    Seen,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum ToUser {
    Grant,
    Offer(Clock),
    Withdrawn(Clock),
}

impl Protocol for Offers {
    const FAMILY: &'static str = "offers";
    const NAMES: &'static [&'static str] = &["offers"];
    type ToUser = ToUser;
    type ToManager = ToManager;
    type User = User;
    type Manager = Manager;

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        let name = variant.map_or(Self::FAMILY, |_| "offers:accusing").into();
        Ok(About { name, rules: Vec::new(), ..Ordered::about(None)? })
    }

    fn new(_: &Topology, options: &Options) -> Result<Self, Unsupported> {
        Ok(Self { accusing: options.variant.is_some() })
    }

    fn managers(&self) -> Vec<NodeId> {
        vec![NodeId(0)]
    }

    fn user(&self, _: UserId) -> User {
        User { request: None, accepted: false, withdrawn: None }
    }

    fn manager(&self, _: ManagerId) -> Manager {
        Manager { holder: None, first: None, other: None, accepted: false, unseen: false, at: None }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct User {
    request: Option<Request>,
    /// It has accepted an offer; once is enough.
    accepted: bool,
    /// The latest offer that was withdrawn.
    withdrawn: Option<Clock>,
}

impl Role for User {
    type P = Offers;
    type Call = Call;
    type Msg = ToUser;
    type Timer = Never;

    fn step(&mut self, cfg: &Offers, event: Event<Self>, out: &mut Out) {
        let manager = ManagerId(0);
        match event {
            Event::Call(Call::Ask(request, _)) => {
                out.to_manager(manager, ToManager::Ask(request.id));
                self.request = Some(request);
            }
            Event::Call(Call::Done | Call::Leave) => {
                let Some(request) = self.request.take() else { return };
                out.to_manager(manager, ToManager::Release(request.id));
                out.released(request.id);
            }
            Event::Message { msg: ToUser::Grant, .. } => {
                if let Some(request) = self.request.clone() {
                    out.granted(request);
                }
            }
            Event::Message { from, msg: offer @ ToUser::Offer(_) } => {
                let stale = self.is_stale(cfg, from, &offer);
                if stale && cfg.accusing {
                    out.misbehaved(from, "an offer that was withdrawn");
                } else if !self.accepted && !stale {
                    self.accepted = true;
                    out.to_manager(manager, ToManager::Accept);
                }
            }
            Event::Message { msg: ToUser::Withdrawn(at), .. } => {
                self.withdrawn = Some(at);
                out.to_manager(manager, ToManager::Seen);
            }
            Event::Gone(_) => {}
            Event::Timer(never) => match never {},
        }
    }

    fn check(&self, _: &Offers) -> Result<(), Broken> {
        Ok(())
    }

    fn is_stale(&self, _: &Offers, _: Addr, msg: &ToUser) -> bool {
        matches!(msg, ToUser::Offer(at) if self.withdrawn.is_some_and(|last| *at <= last))
    }

    fn is_idle(&self) -> bool {
        self.request.is_none()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Manager {
    holder: Option<RequestId>,
    /// Who waits in lane 0, and who in another.
    first: Option<RequestId>,
    other: Option<RequestId>,
    accepted: bool,
    /// A withdrawal has not been seen yet.
    unseen: bool,
    /// The number of the last offer.
    at: Option<Clock>,
}

impl Manager {
    fn grant(&mut self, out: &mut Out) {
        if self.holder.is_some() || self.unseen {
            return;
        }
        let next = if self.accepted { self.other.take() } else { self.first.take() };
        if let Some(id) = next {
            self.holder = Some(id);
            out.to_user(id.user, ToUser::Grant);
        }
    }
}

impl Role for Manager {
    type P = Offers;
    type Call = Never;
    type Msg = ToManager;
    type Timer = Never;

    fn step(&mut self, _: &Offers, event: Event<Self>, out: &mut Out) {
        match event {
            Event::Message { msg: ToManager::Accept, .. } => self.accepted = self.other.is_some(),
            Event::Message { msg: ToManager::Ask(id), .. } if id.user.lane().index() == 0 => {
                self.first = Some(id);
            }
            Event::Message { msg: ToManager::Ask(id), .. } => {
                let at = self.at.map_or_else(|| Clock::first(Origin::default()), Clock::next);
                (self.other, self.at) = (Some(id), Some(at));
                out.to_user(id.user, ToUser::Offer(at));
            }
            Event::Message { msg: ToManager::Release(id), .. } => {
                self.holder = None;
                self.accepted &= id.user.lane().index() == 0;
                if let (Some(other), Some(at), 0) = (self.other, self.at, id.user.lane().index()) {
                    (self.at, self.unseen) = (Some(at.next()), true);
                    out.to_user(other.user, ToUser::Offer(at.next()));
                    out.to_user(other.user, ToUser::Withdrawn(at));
                }
            }
            Event::Message { msg: ToManager::Seen, .. } => self.unseen = false,
            Event::Gone(_) => {}
            Event::Call(never) | Event::Timer(never) => match never {},
        }
        self.grant(out);
    }

    fn check(&self, _: &Offers) -> Result<(), Broken> {
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.holder.is_none() && self.first.is_none() && self.other.is_none()
    }
}

#[test]
fn a_message_that_became_worthless_counts_as_delivered() {
    let chosen = Chosen::of::<Offers>("offers", &[]).expect("it has no variants");
    let scope = Scope::parse("1", "0*/0", None).expect("sensible");
    let report = check(&chosen, &scope, &Settings::default(), &|_| {});
    let report = report.expect("served");
    assert!(report.complete);
    assert_eq!(violated(&report, true), [("no-starvation", Some(1))]);
}

#[test]
fn a_message_that_is_called_stale_and_accused_of_is_seen() {
    let chosen = Chosen::of::<Offers>("offers:accusing", &[]).expect("a variant");
    let scope = Scope::parse("1", "0*/0", None).expect("sensible");
    let report = check(&chosen, &scope, &Settings::default(), &|_| {});
    let lost = violated(&report.expect("served"), true);
    assert!(lost.contains(&("local", None)), "{lost:?}");
}

/// Offers are made to one user at a time, whatever the pools: whoever shares nothing with one that never
/// ends its use waits for it all the same. Nobody is to be blamed where a user depends on that one, directly or
/// over another who waits.
#[test]
fn waiting_for_ever_without_depending_on_anybody_is_seen() {
    let mut chosen = Chosen::of::<Offers>("offers", &[]).expect("it has no variants");
    chosen.about.promises.push(Property::Independence);
    let lost = |pools: &str, users: &str| {
        let scope = Scope::parse(pools, users, None).expect("sensible");
        let report = check(&chosen, &scope, &Settings::default(), &|_| {}).expect("served");
        violated(&report, true)
    };
    assert_eq!(lost("1,1", "0!/1"), [("independence", Some(1))]);
    assert_eq!(lost("1", "0!/0"), []);
    let between = explore("winkowski --pools 1,1 --users '0!/0+1/1'");
    assert_eq!(violated(&between, true), []);
    assert_eq!(violated(&between, false), [("concurrency", Some(2))]);
}

#[test]
fn a_timer_that_is_put_off_again_and_again_rings_in_the_end() {
    let small = "house:reserve=1,passes=2,bumps=1,parks=1,resend=1";
    for users in ["0*/0*", "0*/0*/0"] {
        let line = format!("{small} --pools 1 --users '{users}' --loss 1 --timers quiet");
        let report = explore(&line);
        assert!(report.complete, "{line}");
        assert_eq!(violated(&report, true), [], "{line}");
    }
}

#[test]
fn going_on_for_ever_without_a_request_is_seen() {
    let report = explore("ping-pong:over --pools 1 --users '0/0'");
    assert_eq!(violated(&report, true), [("no-livelock", None)]);
    let report = explore("ping-pong:held --pools 1 --users '0/0'");
    assert_eq!(violated(&report, true), [("no-livelock", Some(0))]);
}

#[test]
fn what_lies_behind_a_violation_is_seen() {
    let report = explore("datta-token --without acks --pools 1,1 --users '0+1/0+1'");
    let lost: Vec<_> = violated(&report, true).into_iter().map(|(name, _)| name).collect();
    assert_eq!(lost, ["local", "no-deadlock"]);
    assert!(report.complete);
}

#[test]
fn without_managers_nobody_is_told_of_a_crash() {
    let scope = "chandy-misra --pools 1 --users '0/0' --crash 0";
    let [default, none] = ["", " --detector none"].map(|how| explore(&format!("{scope}{how}")));
    assert_eq!(default, none);
    assert!(default.scope.ends_with("--crash 0 --detector none"), "{}", default.scope);
}
