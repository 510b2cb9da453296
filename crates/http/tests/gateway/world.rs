//! A gateway before a fake service.

use std::os::unix::net::UnixListener;
use std::sync::Arc;

use holdall_http::{Config, Doors, Gateway, Settings, start};
use holdall_wire::Right;
use serde_json::json;

use crate::client::Client;
use crate::fake::Fake;

/// How much of their answers users may leave unread.
pub(crate) const UNREAD: usize = 1 << 20;

/// A gateway before a fake service, in a directory of its own.
pub(crate) struct World {
    pub(crate) fake: Arc<Fake>,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) config: Config,
    pub(crate) tcp: Option<std::net::SocketAddr>,
    gateway: Option<Gateway>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    /// A gateway that also listens at a port of loopback.
    pub(crate) fn with_tcp(config: Config) -> Self {
        Self::with(Config { listen: Some(([127, 0, 0, 1], 0).into()), ..config })
    }

    fn with(config: Config) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let fake = Arc::new(Fake::default());
        let mut world = Self { fake, dir, config, tcp: None, gateway: None };
        world.start();
        world
    }

    pub(crate) fn start(&mut self) {
        self.gateway = None;
        let path = self.dir.path().join("agent.http.sock");
        let _ = std::fs::remove_file(&path);
        let unix = UnixListener::bind(path).expect("a socket");
        let tcp = self.config.open().expect("a port");
        self.tcp = tcp.as_ref().map(|tcp| tcp.at().expect("bound"));
        let settings = Settings {
            data: self.dir.path().to_owned(),
            config: self.config.clone(),
            unread_bytes: UNREAD,
            everybodys_past: Right::Admin,
        };
        let gateway = start(&settings, Doors { unix: Some(unix), tcp }, self.fake.clone());
        self.gateway = Some(gateway.expect("it starts"));
    }

    pub(crate) fn client(&self) -> Client {
        Client::Unix(self.dir.path().join("agent.http.sock"))
    }

    pub(crate) fn remote(&self) -> Client {
        Client::Tcp(self.tcp.expect("it listens"))
    }

    /// A line for the audit log.
    pub(crate) fn log(&self, at: u64) {
        self.log_all(&[at]);
    }

    /// A line about a request of somebody.
    pub(crate) fn log_of(&self, at: u64, uid: u32, user: &str) {
        let from = json!({"command": "make", "name": null, "reason": "secret"});
        let who = json!({"uid": uid, "user": user, "host": "h", "pid": 7, "from": from});
        let line = json!({"at": at, "what": "asked", "request": format!("1-{at}"), "who": who});
        self.append(&format!("{line}\n"));
    }

    /// Lines, at once.
    pub(crate) fn log_all(&self, times: &[u64]) {
        let line =
            |at: &u64| format!("{{\"at\":{at},\"what\":\"asked\",\"request\":\"1-{at}\"}}\n");
        self.append(&times.iter().map(line).collect::<String>());
    }

    fn append(&self, lines: &str) {
        use std::io::Write;
        let file = std::fs::File::options()
            .append(true)
            .create(true)
            .open(self.dir.path().join("audit.jsonl"));
        file.and_then(|mut file| file.write_all(lines.as_bytes())).expect("written");
    }
}
