//! What the protocols there are do not show: timers, links that keep order, and roles that go
//! wrong. A user counts to five to its manager and grants itself its request when a timer rings.

use holdall_core::{
    About, Addr, Broken, Call, Event, ManagerId, Never, NodeId, Options, Order, Outbox, Protocol,
    Request, Role, Topology, Unsupported, UserId,
};
use serde::{Deserialize, Serialize};

use super::{Failure, Network};
use crate::settings::Settings;
use crate::stats::{RunStats, report};

#[derive(Debug)]
struct Counting;

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct User(Option<Request>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Manager(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Alarm {
    Early,
    Right,
}

impl Role for User {
    type P = Counting;
    type Call = Call;
    type Msg = ();
    type Timer = Alarm;

    fn step(&mut self, _: &Counting, event: Event<Self>, out: &mut Outbox<Counting, Alarm>) {
        match event {
            Event::Call(Call::Ask(request, _)) => {
                out.arm(Alarm::Early, 0);
                out.arm(Alarm::Right, 0);
                out.disarm(Alarm::Early);
                out.arm(Alarm::Right, 2);
                (1..=5).for_each(|n| out.to_manager(ManagerId(0), n));
                self.0 = Some(request);
            }
            Event::Timer(Alarm::Right) => self.0.iter().for_each(|r| out.granted(r.clone())),
            Event::Call(Call::Done) => self.0.take().iter().for_each(|r| out.released(r.id)),
            other => out.misbehaved(Addr::Manager(ManagerId(0)), {
                let Event::Timer(Alarm::Early) = other else { return };
                "a disarmed timer rang"
            }),
        }
    }

    fn check(&self, _: &Counting) -> Result<(), Broken> {
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.0.is_none()
    }
}

impl Role for Manager {
    type P = Counting;
    type Call = Never;
    type Msg = u32;
    type Timer = Never;

    fn step(&mut self, _: &Counting, event: Event<Self>, _: &mut Outbox<Counting, Never>) {
        if let Event::Message { msg, .. } = event {
            self.0 = if msg == self.0 % 5 + 1 { msg } else { u32::MAX };
        }
    }

    fn check(&self, _: &Counting) -> Result<(), Broken> {
        Broken::unless(self.0 <= 5, "one comes after the other")
    }

    fn is_idle(&self) -> bool {
        true
    }
}

impl Protocol for Counting {
    const FAMILY: &'static str = "counting";
    const NAMES: &'static [&'static str] = &["counting"];
    type ToUser = ();
    type ToManager = u32;
    type User = User;
    type Manager = Manager;

    fn about(_: Option<&str>) -> Result<About, Unsupported> {
        Err(Unsupported::variant("counting", "", "it in this test only"))
    }

    fn new(_: &Topology, _: &Options) -> Result<Self, Unsupported> {
        Ok(Self)
    }

    fn managers(&self) -> Vec<NodeId> {
        vec![NodeId(0)]
    }

    fn user(&self, _: UserId) -> User {
        User(None)
    }

    fn manager(&self, _: ManagerId) -> Manager {
        Manager(0)
    }
}

fn run(order: Order, one_per_tick: bool) -> Result<RunStats, Box<Failure>> {
    let settings = Settings { users: 1, one_per_tick, ..Settings::default() };
    super::World::new(Counting, &settings, 0, Network { instant: false, hands_over: false, order })
        .run(|_| {})
}

#[test]
fn a_timer_rings_once_after_its_last_arming() {
    let seen = run(Order::Fifo, false).expect("all in order");
    let report = report("counting", &[seen]);
    assert!(report.grants > 50);
    assert_eq!((report.response.p50, report.response.max), (Some(800), Some(800)));
}

#[test]
fn links_keep_order_only_if_told_to() {
    for one_per_tick in [false, true] {
        assert!(run(Order::Fifo, one_per_tick).is_ok());
        let wrong = run(Order::Unordered, one_per_tick).expect_err("five in a row by chance");
        assert_eq!(wrong.who, Addr::Manager(ManagerId(0)));
        assert_eq!(wrong.what, "one comes after the other");
    }
}
