//! A protocol that goes wrong, in as many ways as it has variants: each ends the play, which names the
//! role and its process. This program plays it if it is told to, by its environment; else it starts
//! itself to do so, and looks at what comes of it.

use std::process::{Command, ExitCode, Stdio};

use holdall_core::{
    About, Addr, Assumes, Broken, Call, Event, ManagerId, Never, NodeId, Options, Outbox, Property,
    Protocol, Request, Role, Topology, Unsupported, UserId,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

const PLAY: &str = "HOLDALL_TEST_FAULTY";

/// The variant, the role that goes wrong, and what is said of it.
const FAULTS: [(&str, &str, &str); 8] = [
    ("broken", "m0 in node 0", "an invariant is broken: the world is flat"),
    ("panic", "m0 in node 0", "oh dear"),
    ("garbled", "m0 in node 0", "cannot read a message of u"),
    ("accusing", "m0 in node 0", "misbehaved: it smells"),
    ("nowhere", "m0 in node 0", "sends to m7, which there is not"),
    ("unasked", "u", "which nobody waits for"),
    ("endless", "node 0", "does not answer"),
    ("shared", "u", "faulty:shared does not promise exclusion in such a world"),
];

#[derive(Debug)]
struct Faulty(String);

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct User(UserId, Option<Request>);

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Manager {
    flat: bool,
}

/// Can be written and not read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Garbled(bool, UserId);

impl Serialize for Garbled {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (if self.0 { 7u8 } else { 0 }, self.1).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Garbled {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <(bool, UserId)>::deserialize(deserializer).map(|(garbled, user)| Self(garbled, user))
    }
}

impl Role for User {
    type P = Faulty;
    type Call = Call;
    type Msg = ();
    type Timer = Never;

    fn step(&mut self, cfg: &Faulty, event: Event<Self>, out: &mut Outbox<Faulty, Never>) {
        match event {
            Event::Call(Call::Ask(request, _)) => {
                self.1 = Some(request);
                out.to_manager(ManagerId(0), Garbled(cfg.0 == "garbled", self.0));
            }
            Event::Message { .. } => {
                self.1.clone().into_iter().for_each(|request| out.granted(request));
                if cfg.0 == "unasked" {
                    self.1.clone().into_iter().for_each(|request| out.granted(request));
                }
            }
            Event::Call(Call::Done) => self.1.take().iter().for_each(|r| out.released(r.id)),
            _ => {}
        }
    }

    fn check(&self, _: &Faulty) -> Result<(), Broken> {
        Ok(())
    }

    fn is_idle(&self) -> bool {
        self.1.is_none()
    }
}

impl Role for Manager {
    type P = Faulty;
    type Call = Never;
    type Msg = Garbled;
    type Timer = Never;

    fn step(&mut self, cfg: &Faulty, event: Event<Self>, out: &mut Outbox<Faulty, Never>) {
        let Event::Message { msg: Garbled(_, user), .. } = event else { return };
        match cfg.0.as_str() {
            "broken" => self.flat = true,
            "panic" => panic!("oh dear"),
            "accusing" => out.misbehaved(Addr::User(user), "it smells"),
            "nowhere" => out.to_manager(ManagerId(7), Garbled(false, user)),
            "endless" => loop {
                std::thread::yield_now();
            },
            _ => out.to_user(user, ()),
        }
    }

    fn check(&self, _: &Faulty) -> Result<(), Broken> {
        Broken::unless(!self.flat, "the world is flat")
    }

    fn is_idle(&self) -> bool {
        true
    }
}

impl Protocol for Faulty {
    const FAMILY: &'static str = "faulty";
    const NAMES: &'static [&'static str] = &["faulty"];
    type ToUser = ();
    type ToManager = Garbled;
    type User = User;
    type Manager = Manager;

    fn about(variant: Option<&str>) -> Result<About, Unsupported> {
        Ok(About {
            name: variant.map_or_else(|| "faulty".into(), |variant| format!("faulty:{variant}")),
            summary: "goes wrong",
            source: "ours",
            assumes: Assumes::RELIABLE,
            promises: if variant == Some("shared") {
                vec![Property::Local]
            } else {
                Property::sound_and(&[])
            },
            with_patience: Vec::new(),
            rules: Vec::new(),
        })
    }

    fn new(_: &Topology, options: &Options) -> Result<Self, Unsupported> {
        Ok(Self(options.variant.clone().unwrap_or_default()))
    }

    fn managers(&self) -> Vec<NodeId> {
        vec![NodeId(0)]
    }

    fn user(&self, id: UserId) -> User {
        User(id, None)
    }

    fn manager(&self, _: ManagerId) -> Manager {
        Manager { flat: false }
    }
}

fn main() -> ExitCode {
    if std::env::var_os(PLAY).is_some() {
        return holdall_play::main::<Faulty>();
    }
    for (variant, who, what) in FAULTS {
        println!("faulty:{variant} is seen, and the role named");
        let player = std::env::current_exe().expect("this program");
        let output = Command::new(player)
            .args([&format!("faulty:{variant}"), "--seconds", "2", "--pools", "1"])
            .args(["--per-request", "1", "--clients", if variant == "shared" { "9" } else { "1" }])
            .env(PLAY, "1")
            .stdin(Stdio::null())
            .output()
            .expect("it plays");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        let head = format!("faulty:{variant}: {who}");
        assert!(said.starts_with(&head) && said.contains(what), "{said}");
        assert!(said.contains("(process "), "{said}");
    }
    ExitCode::SUCCESS
}
