//! The manager of `house` looks only at what a change can affect. It must do the very same as one
//! that looks at everything (`thorough=1`): both hear the same, side by side, in random schedules.

use std::fmt::Debug;

use holdall_core::{
    About, Broken, Call, Event, ManagerId, NodeId, Note, Options, Outbox, Protocol,
    Role, Topology, Unsupported, UserId,
};
use holdall_fuzz::{Mode, Target};
use holdall_protocols::house::{self, House};
use serde::{Deserialize, Serialize};

/// `house`, with a second opinion at every manager.
#[derive(Debug)]
struct Twins {
    quick: House,
    thorough: House,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct User(house::User);

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Manager {
    quick: house::Manager,
    thorough: house::Manager,
    /// What the two did differently.
    differ: Option<String>,
}

impl Protocol for Twins {
    const FAMILY: &'static str = "twins";
    const NAMES: &'static [&'static str] = &["twins"];
    type ToUser = house::ToUser;
    type ToManager = house::ToManager;
    type User = User;
    type Manager = Manager;

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        House::about(variant)
    }

    fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
        let variant = options.variant.as_deref().unwrap_or_default();
        let thorough = Options { variant: Some(format!("{variant},thorough=1")), ..options.clone() };
        Ok(Self {
            quick: House::new(topology, options)?,
            thorough: House::new(topology, &thorough)?,
        })
    }

    fn managers(&self) -> Vec<NodeId> {
        self.quick.managers()
    }

    fn user(&self, id: UserId) -> User {
        User(self.quick.user(id))
    }

    fn manager(&self, id: ManagerId) -> Manager {
        Manager { quick: self.quick.manager(id), thorough: self.thorough.manager(id), differ: None }
    }
}

fn pass_on<T: Debug>(inner: Outbox<House, T>, out: &mut Outbox<Twins, T>) {
    for note in out.lift(inner, |msg| msg, |msg| msg, |timer| timer) {
        match note {
            Note::Granted(request) => out.granted(request),
            Note::Lost(request) => out.lost(request),
            Note::Released(request) => out.released(request),
        }
    }
}

/// The event as the role inside hears it.
fn inner<Outer: Role, Inner>(event: Event<Outer>) -> Event<Inner>
where
    Inner: Role<Call = Outer::Call, Msg = Outer::Msg, Timer = Outer::Timer>,
{
    match event {
        Event::Call(call) => Event::Call(call),
        Event::Gone(gone) => Event::Gone(gone),
        Event::Message { from, msg } => Event::Message { from, msg },
        Event::Timer(timer) => Event::Timer(timer),
    }
}

impl Role for User {
    type P = Twins;
    type Call = Call;
    type Msg = house::ToUser;
    type Timer = <house::User as Role>::Timer;

    fn step(&mut self, cfg: &Twins, event: Event<Self>, out: &mut Outbox<Twins, Self::Timer>) {
        let mut own = Outbox::default();
        self.0.step(&cfg.quick, inner(event), &mut own);
        pass_on(own, out);
    }

    fn check(&self, cfg: &Twins) -> Result<(), Broken> {
        self.0.check(&cfg.quick)
    }

    fn is_idle(&self) -> bool {
        self.0.is_idle()
    }
}

impl Role for Manager {
    type P = Twins;
    type Call = <house::Manager as Role>::Call;
    type Msg = house::ToManager;
    type Timer = <house::Manager as Role>::Timer;

    fn step(&mut self, cfg: &Twins, event: Event<Self>, out: &mut Outbox<Twins, Self::Timer>) {
        let (mut quick, mut thorough) = (Outbox::default(), Outbox::default());
        self.quick.step(&cfg.quick, inner(event.clone()), &mut quick);
        self.thorough.step(&cfg.thorough, inner(event.clone()), &mut thorough);
        let said = (format!("{quick:?}"), format!("{thorough:?}"));
        if said.0 != said.1 || self.quick != self.thorough {
            self.differ.get_or_insert_with(|| {
                format!("{event:?}: {} {:?} beside {} {:?}", said.0, self.quick, said.1, self.thorough)
            });
        }
        pass_on(quick, out);
    }

    fn check(&self, cfg: &Twins) -> Result<(), Broken> {
        self.quick.check(&cfg.quick)?;
        self.differ.clone().map_or(Ok(()), |differ| Err(Broken(differ)))
    }

    fn is_idle(&self) -> bool {
        self.quick.is_idle()
    }
}

#[test]
fn looking_at_everything_changes_nothing() {
    let variants = ["", "reserve=1,passes=2", "reserve=0,parks=1", "resend=1,bumps=1,passes=1"];
    for variant in variants {
        let options = Options { variant: Some(variant.into()), ..Options::default() };
        let target = Target::of::<Twins>("twins", options).expect("a variant of house");
        for mode in Mode::ALL {
            for seed in 0..250 {
                if let Err(failure) = target.run(mode, seed) {
                    panic!("{variant}: {failure}");
                }
            }
        }
    }
}
