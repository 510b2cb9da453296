//! Random schedules of `house` in which pools grow and shrink, which they do not in the checker: requests
//! are refused that were possible when they were made. Told as the checker's recorder tells its steps
//! (`holdall_lab::check::record`).

use holdall_core::{
    Addr, Call, Capacity, Effect, Event, ManagerId, Need, Needs, NodeId, Options, Outbox, Pool,
    PoolId, Protocol, Request, RequestId, Resize, Role, Topology, UserId,
};
use holdall_lab::registry::roles::mix;
use holdall_protocols::house::{self, House, ToManager, ToUser};
use serde_json::{Value, json};

use crate::seen;

const UNITS: u32 = 2;
const USERS: u32 = 3;
const STEPS: usize = 80;

/// Tells one run.
pub(crate) fn run(seed: u64, tell: &mut dyn FnMut(&Value)) {
    let pool = |node, listed| Pool { capacity: UNITS, node: NodeId(node), listed };
    let pools = vec![pool(0, false), pool(1, true)];
    let topology = Topology::of_pools(pools.clone());
    let cfg = House::new(&topology, &Options::default()).expect("it serves all");
    let client = |lane| Client {
        request: RequestId { user: UserId::first(lane), seq: 0 },
        stage: "Idle",
        needs: None,
        units: Vec::new(),
    };
    let shown =
        |pool: &Pool| json!({ "capacity": UNITS, "node": pool.node, "listed": pool.listed });
    tell(&json!({ "scope": {
        "pools": pools.iter().map(shown).collect::<Vec<_>>(),
        "users": USERS,
        "predecessors": 0,
        "managers": pools.len(),
    }}));
    let mut world = World {
        users: (0..USERS).map(|lane| cfg.user(UserId::first(lane))).collect(),
        managers: (0..pools.len() as u64).map(|id| cfg.manager(ManagerId(id))).collect(),
        clients: (0..USERS).map(client).collect(),
        cfg,
        pools,
        mail: Vec::new(),
        random: mix(seed),
        parts: 0,
        states: 0,
    };
    let mut before = world.tell_state(tell);
    for _ in 0..STEPS {
        let Some(action) = world.act(tell) else { continue };
        let after = world.tell_state(tell);
        tell(&json!({ "step": [before, action, after, false] }));
        before = after;
    }
}

struct World {
    cfg: House,
    pools: Vec<Pool>,
    clients: Vec<Client>,
    users: Vec<house::User>,
    managers: Vec<house::Manager>,
    mail: Vec<Mail>,
    random: u64,
    /// How many parts and states were told.
    parts: u64,
    states: u64,
}

struct Client {
    request: RequestId,
    /// As the checker calls it.
    stage: &'static str,
    needs: Option<Needs>,
    units: Vec<(u64, u32)>,
}

#[derive(Clone)]
struct Mail {
    from: Addr,
    to: Addr,
    msg: Message,
}

#[derive(Clone)]
enum Message {
    ToManager(ToManager),
    ToUser(ToUser),
}

impl World {
    fn draw(&mut self, below: usize) -> usize {
        self.random = mix(self.random);
        ((u128::from(self.random) * below as u128) >> 64) as usize
    }

    /// Lets something happen; nothing if it cannot.
    fn act(&mut self, tell: &mut dyn FnMut(&Value)) -> Option<Value> {
        match self.draw(8) {
            0 => self.resize(),
            1 | 2 => {
                let lane = self.draw(self.clients.len());
                self.call(lane)
            }
            _ => self.deliver(tell),
        }
    }

    fn resize(&mut self) -> Option<Value> {
        let at = self.draw(self.pools.len());
        let units = self.draw(UNITS as usize + 1) as u32;
        let capacity = match self.pools[at].listed {
            true => Capacity::Listed { units: (0..units).collect(), away: [].into() },
            false => Capacity::Counted(units),
        };
        let resize = Resize { pool: PoolId(at as u64), capacity };
        self.step_manager(at, Event::Call(resize));
        Some(json!(["resize", at]))
    }

    fn call(&mut self, lane: usize) -> Option<Value> {
        match self.clients[lane].stage {
            "Idle" => {
                let needs = self.draw_needs();
                let client = &mut self.clients[lane];
                client.request.seq += 1;
                (client.stage, client.needs) = ("Waiting", Some(needs.clone()));
                let request = Request { id: client.request, needs };
                self.step_user(lane, Event::Call(Call::Ask(request, None)));
                Some(json!(["ask", lane]))
            }
            "Using" => {
                self.clients[lane].stage = "Releasing";
                self.step_user(lane, Event::Call(Call::Done));
                Some(json!(["done", lane]))
            }
            _ => None,
        }
    }

    fn draw_needs(&mut self) -> Needs {
        let mut list = Vec::new();
        for (pool, Pool { listed, .. }) in self.pools.clone().into_iter().enumerate() {
            if self.draw(3) > 0 || pool == self.pools.len() - 1 && list.is_empty() {
                let units = 1 + self.draw(UNITS as usize) as u32;
                let mut need = Need::any(PoolId(pool as u64), units);
                if listed && self.draw(2) == 0 {
                    need.named.insert(self.draw(UNITS as usize) as u32);
                }
                list.push(need);
            }
        }
        Needs::new(list).expect("at least one pool, and none twice")
    }

    /// Some message arrives; it may stay under way, to arrive again.
    fn deliver(&mut self, tell: &mut dyn FnMut(&Value)) -> Option<Value> {
        if self.mail.is_empty() {
            return None;
        }
        let at = self.draw(self.mail.len());
        let mail = self.mail[at].clone();
        if self.draw(8) > 0 {
            self.mail.swap_remove(at);
        }
        let number = self.tell_part("item", &item(&mail), tell);
        match (mail.msg, mail.to) {
            (Message::ToManager(msg), Addr::Manager(to)) => {
                self.step_manager(to.index(), Event::Message { from: mail.from, msg });
            }
            (Message::ToUser(msg), Addr::User(to)) => {
                self.step_user(to.lane().index(), Event::Message { from: mail.from, msg });
            }
            _ => unreachable!("users and managers are sent what is for them"),
        }
        Some(json!(["deliver", number]))
    }

    fn step_manager(&mut self, at: usize, event: Event<house::Manager>) {
        let mut out = Outbox::default();
        self.managers[at].step(&self.cfg, event, &mut out);
        let from = Addr::Manager(ManagerId(at as u64));
        for effect in out.drain() {
            self.send(from, effect);
        }
    }

    fn step_user(&mut self, lane: usize, event: Event<house::User>) {
        let mut out = Outbox::default();
        self.users[lane].step(&self.cfg, event, &mut out);
        let from = Addr::User(self.clients[lane].request.user);
        for effect in out.drain() {
            let client = &mut self.clients[lane];
            match effect {
                Effect::Granted(request) => {
                    client.stage = "Using";
                    let units = |need: &Need| {
                        let pool = need.pool.0;
                        need.named.iter().map(move |unit| (pool, *unit)).collect::<Vec<_>>()
                    };
                    client.units = request.needs.iter().flat_map(units).collect();
                }
                Effect::Lost(_) => (client.stage, client.units) = ("Lost", Vec::new()),
                Effect::Released(_) => (client.stage, client.units) = ("Idle", Vec::new()),
                effect => self.send(from, effect),
            }
        }
    }

    fn send<T>(&mut self, from: Addr, effect: Effect<House, T>) {
        let (to, msg) = match effect {
            Effect::ToManager(to, msg) => (Addr::Manager(to), Message::ToManager(msg)),
            Effect::ToUser(to, msg) => (Addr::User(to), Message::ToUser(msg)),
            _ => return,
        };
        self.mail.push(Mail { from, to, msg });
    }

    /// Tells the present state, and returns its number.
    fn tell_state(&mut self, tell: &mut dyn FnMut(&Value)) -> u64 {
        let client = |client: &Client| {
            let busy = ["Waiting", "Using", "Releasing"].contains(&client.stage);
            json!({
                "request": client.request,
                "stage": client.stage,
                "needs": client.needs.as_ref().filter(|_| busy),
                "units": client.units,
                "predecessor": null,
            })
        };
        let clients: Vec<_> = self.clients.iter().map(|one| ("client", client(one))).collect();
        let users = self.users.iter().map(|user| ("user", seen(user.seen())));
        let managers = self.managers.iter().map(|one| ("manager", seen(one.seen())));
        let items = self.mail.iter().map(|mail| ("item", item(mail)));
        let parts: Vec<_> = clients.into_iter().chain(users).chain(managers).chain(items).collect();
        let told: Vec<u64> =
            parts.into_iter().map(|(kind, part)| self.tell_part(kind, &part, tell)).collect();
        self.states += 1;
        tell(&json!({ "state": [self.states, told] }));
        self.states
    }

    fn tell_part(&mut self, kind: &str, part: &Value, tell: &mut dyn FnMut(&Value)) -> u64 {
        self.parts += 1;
        tell(&json!({ kind: [self.parts, part] }));
        self.parts
    }
}

fn item(mail: &Mail) -> Value {
    let Mail { from, to, msg } = mail;
    match (msg, to) {
        (Message::ToManager(msg), Addr::Manager(to)) => {
            json!({ "kind": "to-manager", "from": from, "to": to, "message": msg })
        }
        (Message::ToUser(msg), Addr::User(to)) => {
            json!({ "kind": "to-user", "from": from, "to": to, "message": msg })
        }
        _ => unreachable!("users and managers are sent what is for them"),
    }
}
