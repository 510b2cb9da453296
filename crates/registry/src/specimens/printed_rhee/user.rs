//! Figure 4.

use std::collections::BTreeMap;

use holdall_core::{Addr, Broken, Call, Event, ManagerId, Note, Outbox, Protocol, Request, Role};
use serde::{Deserialize, Serialize};

use super::{FromUser, Position, PrintedRhee, ToManager, ToUser};

/// Where a user is, in the algorithm and in its subroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
enum Region {
    Remainder,
    Trying,
    Critical,
    Exit,
}

/// User i; `U` is the user of the subroutine.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct User<U> {
    inner: U,
    region: Region,
    sub_region: Region,
    req_report: bool,
    /// Whether this request has selected a position. Only the repair of D1 looks at it.
    selected: bool,
    /// The present request, or the last one: its needs are `R_i`.
    request: Option<Request>,
    /// What was received and not yet used, by sender.
    marked: BTreeMap<ManagerId, Vec<Vec<Position>>>,
    grants: BTreeMap<ManagerId, u32>,
    decs: BTreeMap<Position, BTreeMap<ManagerId, u32>>,
}

type Out<U> = Outbox<PrintedRhee<<U as Role>::P>, <U as Role>::Timer>;

impl<U> User<U>
where
    U: Role<Call = Call>,
    U::P: Protocol<User = U, ToUser = U::Msg>,
{
    pub(super) fn new(inner: U) -> Self {
        Self {
            inner,
            region: Region::Remainder,
            sub_region: Region::Remainder,
            req_report: false,
            selected: false,
            request: None,
            marked: BTreeMap::new(),
            grants: BTreeMap::new(),
            decs: BTreeMap::new(),
        }
    }

    /// The managers of `R_i`.
    fn required(&self, cfg: &PrintedRhee<U::P>) -> Vec<ManagerId> {
        let needs = self.request.iter().flat_map(|request| request.needs.iter());
        needs.map(|need| cfg.manager_of(need.pool)).collect()
    }

    fn send_all(&self, cfg: &PrintedRhee<U::P>, msg: FromUser, out: &mut Out<U>) {
        for manager in self.required(cfg) {
            out.to_manager(manager, ToManager::Own(msg));
        }
    }

    /// Executes guarded commands until none is enabled.
    fn run(&mut self, cfg: &PrintedRhee<U::P>, out: &mut Out<U>) {
        loop {
            let again = self.region == Region::Trying && self.sub_region == Region::Remainder;
            if again && !(cfg.rules.d1 && self.selected) {
                self.lines_01_to_03(cfg, out);
            } else if self.sub_region == Region::Critical && !self.req_report {
                self.req_report = true; // 05
                self.send_all(cfg, FromUser::Report, out); // 06
            } else if !self.lines_07_to_15(cfg, out) {
                return;
            }
        }
    }

    fn lines_01_to_03(&mut self, cfg: &PrintedRhee<U::P>, out: &mut Out<U>) {
        self.sub_region = Region::Trying;
        if let Some(request) = self.request.clone() {
            self.step_inner(cfg, Event::Call(Call::Ask(request, None)), out);
        }
    }

    /// Whether something was received that leads on.
    fn lines_07_to_15(&mut self, cfg: &PrintedRhee<U::P>, out: &mut Out<U>) -> bool {
        let required = self.required(cfg);
        if required.is_empty() {
            return false;
        }
        if required.iter().all(|m| self.marked.get(m).is_some_and(|list| !list.is_empty())) {
            let mut union = Vec::new();
            for list in required.iter().filter_map(|m| self.marked.get_mut(m).map(|l| l.remove(0)))
            {
                union.extend(list); // 07
            }
            self.marked.retain(|_, list| !list.is_empty());
            let p = (1..).find(|p| !union.contains(p)).unwrap_or(Position::MAX); // 08
            self.selected = true;
            self.send_all(cfg, FromUser::Select(p), out); // 09
            self.req_report = false; // 10
            self.sub_region = Region::Exit; // 11
            self.step_inner(cfg, Event::Call(Call::Done), out);
            return true;
        }
        if take_one_of_each(&mut self.grants, &required) {
            self.region = Region::Critical; // 13
            if let Some(request) = self.request.clone() {
                out.granted(request);
            }
            return true;
        }
        let mut decs = std::mem::take(&mut self.decs);
        let all =
            decs.iter_mut().find_map(|(p, from)| take_one_of_each(from, &required).then_some(*p));
        decs.retain(|_, from| !from.is_empty());
        self.decs = decs;
        if let Some(p) = all {
            self.send_all(cfg, FromUser::Advance(p), out); // 15
        }
        all.is_some()
    }

    fn step_inner(&mut self, cfg: &PrintedRhee<U::P>, event: Event<U>, out: &mut Out<U>) {
        let mut inner = Outbox::default();
        self.inner.step(&cfg.inner, event, &mut inner);
        for note in out.lift(inner, ToUser::Inner, ToManager::Inner, |timer| timer) {
            self.sub_region = match note {
                Note::Granted(_) => Region::Critical,
                Note::Released(_) | Note::Lost(_) => Region::Remainder,
            };
        }
    }
}

/// Takes one message of each sender, if there is one of each.
fn take_one_of_each(received: &mut BTreeMap<ManagerId, u32>, of: &[ManagerId]) -> bool {
    if !of.iter().all(|m| received.contains_key(m)) {
        return false;
    }
    for manager in of {
        received.entry(*manager).and_modify(|n| *n -= 1);
    }
    received.retain(|_, n| *n > 0);
    true
}

impl<U> Role for User<U>
where
    U: Role<Call = Call>,
    U::P: Protocol<User = U, ToUser = U::Msg>,
{
    type P = PrintedRhee<U::P>;
    type Call = Call;
    type Msg = ToUser<U::Msg>;
    type Timer = U::Timer;

    fn step(&mut self, cfg: &Self::P, event: Event<Self>, out: &mut Out<U>) {
        match event {
            Event::Call(Call::Ask(request, _)) => {
                (self.region, self.selected) = (Region::Trying, false);
                self.request = Some(request);
            }
            Event::Call(Call::Done | Call::Leave) => {
                self.region = Region::Remainder; // 17
                self.send_all(cfg, FromUser::Release, out); // 18
                if let Some(request) = &self.request {
                    out.released(request.id);
                }
            }
            Event::Gone(gone) => self.step_inner(cfg, Event::Gone(gone), out),
            Event::Timer(timer) => self.step_inner(cfg, Event::Timer(timer), out),
            Event::Message { from, msg: ToUser::Inner(msg) } => {
                self.step_inner(cfg, Event::Message { from, msg }, out);
            }
            Event::Message { from: Addr::Manager(from), msg } => match msg {
                ToUser::Dec(p) => *self.decs.entry(p).or_default().entry(from).or_default() += 1,
                ToUser::Grant => *self.grants.entry(from).or_default() += 1,
                ToUser::Marked(list) => self.marked.entry(from).or_default().push(list),
                ToUser::Inner(_) => {}
            },
            Event::Message { from, .. } => out.misbehaved(from, "a user is no resource manager"),
        }
        self.run(cfg, out);
    }

    fn check(&self, cfg: &Self::P) -> Result<(), Broken> {
        self.inner.check(&cfg.inner)
    }

    fn is_idle(&self) -> bool {
        self.region == Region::Remainder && self.inner.is_idle()
    }
}
