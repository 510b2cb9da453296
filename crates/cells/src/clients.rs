//! What clients do: they ask, use what they get, renew and give it back; and operators change pools.

use std::collections::BTreeSet;

use holdall_cell::lease::Given;
use holdall_cell::session::{CallNo, ConnNo};
use holdall_cell::{Input, Rest, Wish};
use holdall_wire::{Change, Drained, Lasting, Leftovers, Name, Need, Reply, RequestNo, Taken};
use rand::RngExt;

use crate::Mutant;
use crate::carry::holder;
use crate::client::{Client, State, me, units};
use crate::late::Told;
use crate::world::{Done, World};

/// What commands, and reservations, leave behind uses what they held under numbers above this.
pub(crate) const GHOSTS: usize = 1 << 20;

impl World<'_> {
    pub(crate) fn client_of(&self, node: usize, conn: ConnNo) -> Option<usize> {
        let is_it = |client: &Client| client.home == node && client.conn == Some(conn);
        self.clients.iter().position(is_it)
    }

    /// Its processes end.
    pub(crate) fn stop_processes(&mut self, node: usize, request: RequestNo) {
        let uses = |client: &Client| {
            client.home == node
                && matches!(&client.state, State::Using { request: used, .. } if *used == request)
        };
        if let Some(client) = self.clients.iter().position(uses) {
            self.bystander.end(client);
            self.clients[client].state = State::Leaving(request, None);
        }
    }

    /// A client has lost its session, and all it had.
    pub(crate) fn lose_all(&mut self, client: usize) {
        self.bystander.end(client);
        let (session, at) = (u128::from(self.draw()), self.at + 200);
        self.clients[client].begin_anew(session, at);
    }

    fn call(&mut self, client: usize, call: CallNo) -> Done {
        let one = &self.clients[client];
        let Some(conn) = one.conn else { return Ok(()) };
        let (wish, heard, node) = (one.calls[call.0 as usize - 1].clone(), one.heard(), one.home);
        self.input(node, Input::Call { conn, call, heard, wish })
    }

    pub(crate) fn welcome(&mut self, client: usize, answers: Vec<(CallNo, Option<Reply>)>) -> Done {
        let told: BTreeSet<CallNo> = answers.iter().map(|(call, _)| *call).collect();
        for (call, reply) in answers {
            if let Some(reply) = reply {
                self.hear(client, call, reply, None)?;
            }
        }
        let one = &self.clients[client];
        let made = (1..=one.calls.len() as u64).map(CallNo);
        let again = made.filter(|call| !told.contains(call) && !one.answered.contains(call));
        for call in again.collect::<Vec<_>>() {
            self.call(client, call)?;
        }
        Ok(())
    }

    /// A client hears a reply; of a grant with until when it may be used.
    pub(crate) fn hear(
        &mut self,
        client: usize,
        call: CallNo,
        reply: Reply,
        told: Option<Told>,
    ) -> Done {
        self.tell(|| format!("client {client} hears {reply:?}"));
        let state = self.clients[client].state.clone();
        match reply {
            Reply::Granted { request, taken, .. } if state == State::Asking(call) => {
                let Some(told) = told else { return Ok(()) };
                return self.begin_use(client, call, request, &taken, told);
            }
            Reply::Lost(request) => match state {
                State::Using { request: used, .. } if used == request => {
                    self.report.lost += 1;
                    self.bystander.end(client);
                    self.clients[client].state = State::Leaving(request, None);
                }
                State::Asking(asked) if asked == call => self.rest(client),
                _ => {}
            },
            Reply::Refused(_) if state == State::Asking(call) => {
                self.report.refused += 1;
                self.rest(client);
            }
            Reply::Done | Reply::Failed(_) | Reply::Leftovers(_) => {
                self.clients[client].answered.insert(call);
                if matches!(state, State::Leaving(_, Some(end)) if end == call) {
                    self.rest(client);
                } else if self.clients[client].renewing == Some(call) {
                    self.is_renewed(client, matches!(reply, Reply::Done));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Its reservation lasts longer, or does not.
    fn is_renewed(&mut self, client: usize, renewed: bool) {
        let one = &mut self.clients[client];
        one.renewing = None;
        if let State::Using { request, reserved, .. } = &mut one.state
            && renewed
        {
            let running = self.nodes[one.home].running.as_ref();
            let entry = running.and_then(|running| running.cell.books().get(*request));
            if let Some(held) = entry.and_then(|entry| entry.held.as_ref()) {
                *reserved = held.until;
                self.report.renewed += 1;
            }
        }
    }

    /// It has nothing, and wants nothing for a while.
    fn rest(&mut self, client: usize) {
        let until = self.at + self.rng.random_range(20..600);
        let one = &mut self.clients[client];
        one.answered = (1..=one.calls.len() as u64).map(CallNo).collect();
        (one.state, one.deadline, one.renewing) = (State::Idle(until), None, None);
    }

    fn begin_use(
        &mut self,
        client: usize,
        call: CallNo,
        request: RequestNo,
        taken: &[Taken],
        Told { until, reserved }: Told,
    ) -> Done {
        let node = self.clients[client].home;
        self.clients[client].deadline = until;
        if self.is_time_over(client, reserved) {
            // It hears of it too late.
            self.clients[client].state = State::Leaving(request, None);
            return Ok(());
        }
        let home = self.nodes[node].member.name.clone();
        let needs = self.clients[client].asked(call).map(|ask| ask.needs.clone());
        let needs = needs.unwrap_or_default();
        self.stop_those_whose_grant_is_over();
        self.end_what_was_left();
        let paused: Vec<bool> = self.clients.iter().map(|client| client.is_out(self.at)).collect();
        let mine = self.settings.mutant == Some(Mutant::FencesAtHome);
        let hostile = self.nodes.iter().find(|node| node.is_hostile);
        let hostile = hostile.map(|node| node.member.name.to_string());
        for (unit, fence, shared) in units(taken, &needs, home.as_str()) {
            if hostile.as_ref().is_some_and(|name| unit.ends_with(&format!("@{name}"))) {
                continue; // Nobody should count on it.
            }
            let fence = if mine { request.0 } else { fence };
            let is_own = unit.ends_with(&format!("@{home}"));
            let unit = (unit.as_str(), fence, shared);
            let is_paused = |other: usize| paused.get(other).copied().unwrap_or_default();
            self.bystander.begin(self.at, client, unit, is_own, is_paused)?;
        }
        let spans = taken.iter().any(|taken| taken.name.cell().is_some());
        self.report.grants += 1;
        self.report.spanning += u64::from(spans);
        self.report.reserved += u64::from(spans && reserved.is_some());
        let long = self.chance(20.0);
        let until = self.at + self.rng.random_range(if long { 2500..15_000 } else { 30..2500 });
        self.clients[client].state = State::Using { request, until, reserved };
        self.push_deadline(client);
        Ok(())
    }

    /// What has no processes that could be stopped is over when its home says so: fences tell the things that are protected.
    fn stop_those_whose_grant_is_over(&mut self) {
        for client in 0..self.clients.len() {
            let one = &self.clients[client];
            let State::Using { request, .. } = one.state else { continue };
            let Some(running) = &self.nodes[one.home].running else { continue };
            let entry = running.cell.books().get(request);
            if entry.is_none_or(|entry| entry.held.is_none()) {
                self.bystander.end(client);
                self.clients[client].state = State::Leaving(request, None);
            }
        }
    }

    /// Whoever uses something is told until when it may.
    fn push_deadline(&mut self, client: usize) {
        let one = &self.clients[client];
        let State::Using { request, reserved: None, .. } = one.state else { return };
        let Some(running) = self.nodes[one.home].running.as_ref().filter(|_| one.conn.is_some())
        else {
            return;
        };
        let clock = self.nodes[one.home].clock(self.at);
        if let Given::Until(deadline) = running.cell.given(&running.leases, request, clock) {
            let one = &mut self.clients[client];
            one.deadline = one.deadline.max(Some(deadline));
        }
    }

    pub(crate) fn act(&mut self, client: usize) -> Done {
        let node = self.clients[client].home;
        if self.nodes[node].is_out_of_use() || self.clients[client].is_paused(self.at) {
            return Ok(());
        }
        if self.clients[client].comes_to()
            && let State::Using { request, reserved, .. } = self.clients[client].state
            && self.is_time_over(client, reserved)
        {
            return self.end_use(client, request, false);
        }
        let stands = self.stopped_until[node] > self.at;
        if self.clients[client].conn.is_none() && self.nodes[node].running.is_some() && !stands {
            let conn = ConnNo(self.draw());
            let hello = self.clients[client].hello(conn);
            return self.input(node, Input::Attach { conn, hello });
        }
        if !stands {
            self.push_deadline(client);
        }
        let can_call = !stands && self.clients[client].conn.is_some();
        match self.clients[client].state.clone() {
            State::Using { request, until, reserved } => {
                let is_over = self.is_time_over(client, reserved);
                if is_over || until <= self.at {
                    return self.end_use(client, request, reserved.is_none() && !is_over);
                }
                if reserved.is_some() && can_call && self.clients[client].renewing.is_none() {
                    return self.perhaps_renew(client, request);
                }
                Ok(())
            }
            State::Idle(_) if self.clients[client].is_operator => match can_call {
                true => self.change_pools(client),
                false => Ok(()),
            },
            State::Idle(until) if until <= self.at && self.is_faulty() && can_call => {
                let (needs, now, lasting) = (self.needs(), self.chance(5.0), self.lasting());
                let call = self.clients[client].ask(needs, lasting, now);
                self.call(client, call)
            }
            State::Leaving(request, None) if can_call => {
                let call = self.clients[client].call(Wish::End { request, rest: None });
                self.clients[client].state = State::Leaving(request, Some(call));
                self.call(client, call)
            }
            _ => Ok(()),
        }
    }

    /// Whether a client must not use what it has any longer.
    fn is_time_over(&self, client: usize, reserved: Option<u64>) -> bool {
        let Client { home, deadline, .. } = self.clients[client];
        let clock = self.nodes[home].clock(self.at);
        deadline.into_iter().chain(reserved).any(|at| clock + 150 >= at)
    }

    /// A client has used what it has for long enough. Perhaps its command leaves something behind, which goes on until it is waited
    /// for, or ended; and ends by itself in time, as the wrapper of a command with leased units sees to.
    fn end_use(&mut self, client: usize, request: RequestNo, may_leave: bool) -> Done {
        let node = self.clients[client].home;
        let can_call = self.clients[client].conn.is_some() && self.stopped_until[node] <= self.at;
        let running = self.nodes[node].running.as_ref();
        let entry = running.and_then(|running| running.cell.books().get(request));
        let leftovers = entry.and_then(holdall_cell::books::Entry::leftovers);
        let boot = running.map(|running| running.cell.clock().boot.clone()).unwrap_or_default();
        if !may_leave || !can_call || leftovers.is_none() || !self.chance(15.0) {
            self.bystander.end(client);
            self.clients[client].state = State::Leaving(request, None);
            return Ok(());
        }
        let ghost = GHOSTS + self.draw() as usize;
        self.bystander.rename(client, ghost);
        self.ghosts.insert((node, request), (ghost, self.clients[client].deadline));
        let rest = Rest { holder: holder(&boot, request), pids: vec![9] };
        let call = self.clients[client].call(Wish::End { request, rest: Some(rest) });
        self.clients[client].state = State::Leaving(request, Some(call));
        self.call(client, call)
    }

    /// What commands have left behind ends before its lease does.
    pub(crate) fn stop_what_is_left_in_time(&mut self, node: usize) {
        let clock = self.nodes[node].clock(self.at);
        let over = self.ghosts.iter().filter(|((at, _), (_, deadline))| {
            *at == node && deadline.is_some_and(|deadline| clock + 150 >= deadline)
        });
        let over: Vec<_> = over.map(|(key, (ghost, _))| (*key, *ghost)).collect();
        for (key, ghost) in over {
            self.ghosts.remove(&key);
            self.bystander.end(ghost);
        }
    }

    fn perhaps_renew(&mut self, client: usize, request: RequestNo) -> Done {
        if !self.chance(8.0) {
            return Ok(());
        }
        let millis = self.rng.random_range(300..9000);
        let wish = Wish::Renew { request, millis, by: me(), may: false };
        let call = self.clients[client].call(wish);
        self.clients[client].renewing = Some(call);
        self.call(client, call)
    }

    fn lasting(&mut self) -> Lasting {
        match self.rng.random_range(0..10) {
            // Where logs are lost, it is about these.
            0..6 if self.loses_logs => Lasting::Reservation(self.rng.random_range(3000..12_000)),
            0 | 1 => Lasting::Reservation(self.rng.random_range(800..9000)),
            2 => Lasting::Connection,
            3 | 4 => Lasting::Command(Leftovers::Kill),
            _ => Lasting::Command(Leftovers::Wait),
        }
    }

    /// An operator drains units, lets them be given out again, and makes pools larger and smaller. In the end everything is
    /// as it was.
    fn change_pools(&mut self, client: usize) -> Done {
        if !self.clients[client].calls_are_answered() {
            return Ok(());
        }
        let name = |text: &str| text.parse::<Name>().expect("a name");
        let changes = if self.is_faulty() {
            if !self.chance(4.0) {
                return Ok(());
            }
            let unit = name(&format!("board/{}", self.rng.random_range(0..2)));
            let until = self.chance(30.0).then(|| self.at + 1_003_000);
            let drained = Drained { reason: "hot".into(), by: "me".into(), until };
            vec![match self.rng.random_range(0..8) {
                0..2 => Change::Drain { name: unit, drained },
                2 => Change::Drain { name: name("board"), drained },
                3..5 => Change::Undrain { name: unit },
                5 => Change::Undrain { name: name("board") },
                _ => Change::Resize { name: name("board"), units: self.rng.random_range(1..4) },
            }]
        } else if self.clients[client].has_tidied {
            return Ok(());
        } else {
            self.clients[client].has_tidied = true;
            let (name, units) = (name("board"), 2);
            vec![Change::Undrain { name: name.clone() }, Change::Resize { name, units }]
        };
        for change in changes {
            let call = self.clients[client].call(Wish::Change { by: me(), change });
            self.call(client, call)?;
        }
        Ok(())
    }

    fn needs(&mut self) -> Vec<Need> {
        let mut needs: Vec<Need> = Vec::new();
        for _ in 0..self.rng.random_range(1..4) {
            let cell = self.rng.random_range(0..self.nodes.len());
            let what = match self.rng.random_range(0..9) {
                0..3 => format!("board@c{cell}"),
                3 => format!("board@c{cell}:2"),
                4 => format!("board/{}@c{cell}", self.rng.random_range(0..2)),
                5 => format!("scope@c{cell}"),
                6 => format!("scope@c{cell}:shared"),
                7 => format!("db@c{cell}"),
                _ => format!("slow@c{cell}"),
            };
            let need: Need = what.parse().expect("a need");
            let (name, cell) = (need.name.here(), need.name.cell().map(str::to_owned));
            let pool = name.as_str().split('/').next().map(str::to_owned);
            let same = |other: &Need| {
                let name = other.name.here();
                other.name.cell().map(str::to_owned) == cell
                    && name.as_str().split('/').next().map(str::to_owned) == pool
            };
            if !needs.iter().any(same) {
                needs.push(need);
            }
        }
        needs
    }
}
