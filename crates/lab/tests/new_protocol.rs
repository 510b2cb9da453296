//! What a new protocol takes: its own code and one line in a registry. Here are two, unknown to
//! the rest of the project, and both are checked: one of the usual shape, and one that puts
//! something around any other protocol without knowing it. One more line makes the first the
//! subroutine of Rhee's algorithm.

use holdall_core::{
    About, Broken, Call, Event, ManagerId, Never, NodeId, Note, Options, Outbox, Protocol, Request,
    RequestId, Role, Topology, Unsupported, UserId,
};
use holdall_lab::check::{Outcome, Report, Scope, Settings, check};
use holdall_lab::registry::Chosen;
use holdall_protocols::Visitor;
use holdall_protocols::coordinator::Coordinator;
use holdall_protocols::ordered::Ordered;
use holdall_protocols::rhee::Rhee;
use holdall_protocols::skeen::Skeen;
use serde::{Deserialize, Serialize};

holdall_protocols::registry! {
    solo::Solo,
    noted::Noted<Skeen>,
    Rhee<solo::Solo> as "rhee:solo",
    Rhee<Coordinator> as "rhee:coordinator",
}

/// One grant at a time, whatever it is for.
mod solo {
    use super::*;

    #[derive(Debug)]
    pub(super) struct Solo;

    impl Protocol for Solo {
        const FAMILY: &'static str = "solo";
        const NAMES: &'static [&'static str] = &["solo"];
        type ToUser = RequestId;
        type ToManager = ToManager;
        type User = User;
        type Manager = Manager;

        fn about(variant: Option<&str>) -> Result<About, Unsupported> {
            let like = Ordered::about(variant)?;
            Ok(About { name: "solo".into(), rules: Vec::new(), ..like })
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
            Manager(Vec::new())
        }
    }

    #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub(super) enum ToManager {
        Ask(RequestId),
        Release(RequestId),
    }

    #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub(super) struct User(Option<Request>);

    impl Role for User {
        type P = Solo;
        type Call = Call;
        type Msg = RequestId;
        type Timer = Never;

        fn step(&mut self, _: &Solo, event: Event<Self>, out: &mut Outbox<Solo, Never>) {
            match event {
                Event::Call(Call::Ask(request, _)) => {
                    out.to_manager(ManagerId(0), ToManager::Ask(request.id));
                    self.0 = Some(request);
                }
                Event::Call(Call::Done | Call::Leave) => {
                    let Some(request) = self.0.take() else { return };
                    out.to_manager(ManagerId(0), ToManager::Release(request.id));
                    out.released(request.id);
                }
                Event::Message { msg, .. } => {
                    if let Some(request) = self.0.clone().filter(|request| request.id == msg) {
                        out.granted(request);
                    }
                }
                Event::Gone(_) => {}
                Event::Timer(never) => match never {},
            }
        }

        fn check(&self, _: &Solo) -> Result<(), Broken> {
            Ok(())
        }

        fn is_idle(&self) -> bool {
            self.0.is_none()
        }
    }

    /// The head of the queue is served.
    #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub(super) struct Manager(Vec<RequestId>);

    impl Role for Manager {
        type P = Solo;
        type Call = Never;
        type Msg = ToManager;
        type Timer = Never;

        fn step(&mut self, _: &Solo, event: Event<Self>, out: &mut Outbox<Solo, Never>) {
            let before = self.0.first().copied();
            match event {
                Event::Message { msg: ToManager::Ask(request), .. } => self.0.push(request),
                Event::Message { msg: ToManager::Release(request), .. } => {
                    self.0.retain(|waiting| *waiting != request);
                }
                Event::Gone(gone) => self.0.retain(|r| !gone.who().includes(r.user)),
                Event::Call(never) | Event::Timer(never) => match never {},
            }
            if let Some(head) = self.0.first().filter(|head| Some(**head) != before) {
                out.to_user(head.user, *head);
            }
        }

        fn check(&self, _: &Solo) -> Result<(), Broken> {
            Ok(())
        }

        fn is_idle(&self) -> bool {
            self.0.is_empty()
        }
    }
}

/// Any protocol as a subroutine: its roles and messages unchanged, wrapped; its grants noted.
mod noted {
    use super::*;

    #[derive(Debug)]
    pub(super) struct Noted<S: Protocol>(S);

    #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub(super) struct Wrapped<M>(M);

    impl<S: Protocol> Protocol for Noted<S> {
        const FAMILY: &'static str = "noted";
        const NAMES: &'static [&'static str] = &["noted"];
        type ToUser = Wrapped<S::ToUser>;
        type ToManager = Wrapped<S::ToManager>;
        type User = User<S::User>;
        type Manager = Manager<S::Manager>;

        fn about(variant: Option<&str>) -> Result<About, Unsupported> {
            S::about(variant)
        }

        fn new(topology: &Topology, options: &Options) -> Result<Self, Unsupported> {
            Ok(Self(S::new(topology, options)?))
        }

        fn managers(&self) -> Vec<NodeId> {
            self.0.managers()
        }

        fn user(&self, id: UserId) -> Self::User {
            User { inner: self.0.user(id), granted: false }
        }

        fn manager(&self, id: ManagerId) -> Self::Manager {
            Manager(self.0.manager(id))
        }
    }

    #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub(super) struct User<U> {
        inner: U,
        granted: bool,
    }

    impl<U> Role for User<U>
    where
        U: Role<Call = Call>,
        U::P: Protocol<User = U, ToUser = U::Msg>,
    {
        type P = Noted<U::P>;
        type Call = Call;
        type Msg = Wrapped<U::Msg>;
        type Timer = Wrapped<U::Timer>;

        fn step(
            &mut self,
            cfg: &Self::P,
            event: Event<Self>,
            out: &mut Outbox<Self::P, Self::Timer>,
        ) {
            let event = match event {
                Event::Call(call) => Event::Call(call),
                Event::Gone(gone) => Event::Gone(gone),
                Event::Message { from, msg } => Event::Message { from, msg: msg.0 },
                Event::Timer(timer) => Event::Timer(timer.0),
            };
            let mut inner = Outbox::default();
            self.inner.step(&cfg.0, event, &mut inner);
            for note in out.lift(inner, Wrapped, Wrapped, Wrapped) {
                self.granted = matches!(note, Note::Granted(_));
                match note {
                    Note::Granted(request) => out.granted(request),
                    Note::Lost(request) => out.lost(request),
                    Note::Released(request) => out.released(request),
                }
            }
        }

        fn check(&self, cfg: &Self::P) -> Result<(), Broken> {
            Broken::unless(!(self.granted && self.inner.is_idle()), "granted means under way")?;
            self.inner.check(&cfg.0)
        }

        fn is_idle(&self) -> bool {
            self.inner.is_idle()
        }
    }

    #[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
    pub(super) struct Manager<M>(M);

    impl<M> Role for Manager<M>
    where
        M: Role,
        M::P: Protocol<Manager = M, ToManager = M::Msg>,
    {
        type P = Noted<M::P>;
        type Call = M::Call;
        type Msg = Wrapped<M::Msg>;
        type Timer = Wrapped<M::Timer>;

        fn step(
            &mut self,
            cfg: &Self::P,
            event: Event<Self>,
            out: &mut Outbox<Self::P, Self::Timer>,
        ) {
            let event = match event {
                Event::Call(call) => Event::Call(call),
                Event::Gone(gone) => Event::Gone(gone),
                Event::Message { from, msg } => Event::Message { from, msg: msg.0 },
                Event::Timer(timer) => Event::Timer(timer.0),
            };
            let mut inner = Outbox::default();
            self.0.step(&cfg.0, event, &mut inner);
            out.lift(inner, Wrapped, Wrapped, Wrapped);
        }

        fn check(&self, cfg: &Self::P) -> Result<(), Broken> {
            self.0.check(&cfg.0)
        }

        fn is_idle(&self) -> bool {
            self.0.is_idle()
        }
    }
}

/// Checks a scope with whatever the registry above finds.
struct CheckIt<'a>(&'a str, &'a str);

impl Visitor for CheckIt<'_> {
    type Out = Report;

    fn visit<P: Protocol>(self) -> Report {
        checked(&Chosen::of::<P>(self.0, &[]).expect("it has no variants"), self.1)
    }
}

fn checked(chosen: &Chosen, users: &str) -> Report {
    let scope = Scope::parse("1,1", users, None).expect("sensible");
    check(chosen, &scope, &Settings::default(), &|_| {}).expect("served")
}

#[test]
fn a_registry_line_is_all_it_takes() {
    assert_eq!(names().collect::<Vec<_>>(), ["solo", "noted", "rhee:solo", "rhee:coordinator"]);
    let report = with("solo", CheckIt("solo", "0+1*/0*/1*")).expect("registered");
    assert!(report.complete && !report.broken(), "{report:?}");
    let report = with("solo", CheckIt("solo", "0/1")).expect("registered");
    assert_eq!(report.verdict("concurrency"), Some(Outcome::Violated), "even strangers wait");
}

#[test]
fn a_protocol_over_a_subroutine_behaves_as_the_subroutine() {
    for users in ["0+1/1+0", "0+1*/1+0*"] {
        let noted = with("noted", CheckIt("noted", users)).expect("registered");
        let plain = checked(&Chosen::new("skeen", &[]).expect("registered"), users);
        assert!(!noted.broken());
        assert_eq!((noted.states, noted.depth), (plain.states, plain.depth), "{users}");
    }
}

#[test]
fn a_protocol_becomes_a_subroutine_of_rhee_by_a_registry_line() {
    for users in ["0+1/1+0/0", "0+1*/1+0*"] {
        let report = with("rhee:solo", CheckIt("rhee:solo", users)).expect("registered");
        assert!(report.complete && !report.broken(), "{users}: {report:?}");
    }
}

#[test]
fn the_variant_of_a_subroutine_is_passed_on() {
    let report = |name| with(name, CheckIt(name, "0+1/1+0")).expect("registered");
    let [fifo, skip] = ["rhee:coordinator:fifo", "rhee:coordinator:skip"].map(report);
    assert!(!fifo.broken() && !skip.broken());
    let promised =
        |report: &Report| report.properties.iter().any(|p| p.promised && p.name == "no-starvation");
    assert_eq!((promised(&fifo), promised(&skip)), (true, false), "as the subroutine promises");
}
