//! What there is to see.

use holdall_cell::engine::Walk;
use holdall_cell::session::ConnNo;
use holdall_core::RequestId;
use holdall_holders::stopped;
use holdall_protocols::house::Place;
use holdall_wire::{
    AgentView, Elsewhere, Fault, GrantView, NEEDS_MAX, Name, Outlook, Prospects, Reply, RequestNo,
    Right, State, Status, WaitView,
};

use super::{PROTOCOL, Service};
use crate::clock::clamp;
use crate::history::History;

/// How many of those who wait are followed to explain why another waits.
const EXPLAINED: usize = 64;
/// Why nobody knows when it is somebody's turn.
const NO_HISTORY: &str = "this agent keeps no history to go by";
/// Why that is not known if it waits for another cell that is away.
const IN_VAIN: &str = "a cell that it waits for cannot be reached";
/// How many processes of a grant are told.
const PIDS_MAX: usize = 1000;
/// How many of them are looked at to see whether it is stopped.
const LOOKED_AT: usize = 4;

impl Service {
    pub(super) fn agent_view(&self, conn: ConnNo) -> AgentView {
        let (grants, waiting) = self.engine().load();
        let peer = self.peers.get(&conn);
        AgentView {
            version: env!("CARGO_PKG_VERSION").into(),
            pid: std::process::id(),
            // Fences may be beyond the epoch that it began in.
            epoch: self.cell().epoch(),
            since: self.since,
            data: self.data.dir().path().display().to_string(),
            protocol: PROTOCOL.into(),
            grants: grants as u32,
            waiting: waiting as u32,
            pools: self.engine().declared().len() as u32,
            memory: (self.requests.used() + self.traffic.used()) as u64,
            stopping: self.draining,
            no_cgroups: self.containment.why_not().cloned(),
            you: peer.map_or_else(|| "".into(), |peer| peer.who.user.clone()),
            your_rights: peer.map(|peer| peer.rights.list()).unwrap_or_default(),
            rights: self.config.rights.told(),
            ephemeral: self.config.ephemeral,
            waits_for: self.why_nothing_is_granted(),
            no_http: self.no_http.clone(),
            boottime_millis: Some(clamp(self.clock.reads().boottime)),
        }
    }

    pub(super) fn on_explain(
        &self,
        conn: ConnNo,
        request: RequestNo,
        most: u32,
    ) -> Result<Reply, Fault> {
        self.may(conn, Right::View)?;
        self.explained(request, most)
    }

    /// Why a request waits.
    pub(super) fn explained(&self, request: RequestNo, most: u32) -> Result<Reply, Fault> {
        let most = EXPLAINED.min(most as usize);
        let explanation = self.engine().explain(request, most);
        let mut explanation = explanation.ok_or_else(|| self.unknown(request))?;
        self.show_times(&mut explanation.release, &mut explanation.chain);
        if !explanation.held {
            explanation.outlook = Some(self.outlook(request));
            explanation.elsewhere = self.elsewhere(request, &explanation.chain);
        }
        Ok(Reply::Explanation(explanation))
    }

    /// Where else a request waits, and who is in its way from elsewhere.
    fn elsewhere(&self, request: RequestNo, chain: &[WaitView]) -> Option<Elsewhere> {
        self.engine().cell()?;
        let known_as = self.engine().id_of(request).and_then(encoded).unwrap_or_default();
        let cells = self.engine().elsewhere(request);
        let cells = cells.iter().map(|one| (one.member.name.to_string(), one.is_given));
        let asked_at = chain.iter().flat_map(|wait| self.asked_at(wait.request, request));
        let (cells, asked_at): (Vec<_>, Vec<_>) = (cells.collect(), asked_at.collect());
        let concerns = !cells.is_empty() || !asked_at.is_empty();
        concerns.then_some(Elsewhere { known_as, cells, asked_at })
    }

    /// Where somebody was asked who is in the way of a request: at its home, or of this home, at the cells that it waits for itself.
    fn asked_at(&self, waits: RequestNo, before: RequestNo) -> Vec<(RequestNo, String, Vec<u8>)> {
        let Some(id) = self.engine().id_of(waits) else { return Vec::new() };
        let Some(known_as) = encoded(id) else { return Vec::new() };
        let at = |name: &Name| (waits, name.to_string(), known_as.clone());
        let home = id.user.home().cell;
        if Some(home) != self.engine().cell() {
            let home = self.engine().links().find(|(member, ..)| member.cell == home);
            return home.map(|(member, ..)| at(&member.name)).into_iter().collect();
        }
        let guards = self.engine().elsewhere(waits).into_iter();
        let guards = guards.filter(|one| waits != before && !one.is_given);
        guards.map(|one| at(&one.member.name)).collect()
    }

    /// When a request that waits will probably be granted.
    fn outlook(&self, request: RequestNo) -> Outlook {
        let part_of = self.books().get(request).and_then(|entry| entry.ask.part);
        let awaited = self.awaited_members();
        match &self.history {
            _ if part_of.is_some() => Outlook::Unknown("it waits for a part of a grant".into()),
            _ if awaited.is_some() => Outlook::Unknown(awaited.unwrap_or_default()),
            _ if self.waits_in_vain(request) => Outlook::Unknown(IN_VAIN.into()),
            Some(history) => history.outlook(request),
            None => Outlook::Unknown(NO_HISTORY.into()),
        }
    }

    /// What everybody who waits can expect.
    pub(super) fn prospects(&self) -> Prospects {
        let none = || Prospects { unknown: NO_HISTORY.into(), ..Prospects::default() };
        let mut prospects = self.history.as_ref().map_or_else(none, History::prospects);
        let before = prospects.expected.len();
        prospects.expected.retain(|one| !self.waits_in_vain(one.request));
        if prospects.expected.len() < before && prospects.unknown.is_empty() {
            prospects.unknown = IN_VAIN.into();
        }
        prospects
    }

    /// Whether a request waits for a cell that cannot be reached.
    fn waits_in_vain(&self, request: RequestNo) -> bool {
        self.engine().elsewhere(request).iter().any(|one| !one.is_up && !one.is_given)
    }

    /// People have only the clock on the wall.
    fn show_times(&self, grants: &mut [GrantView], waiting: &mut [WaitView]) {
        for grant in grants {
            grant.since = self.clock.shown(grant.since);
            grant.until = grant.until.map(|until| self.clock.shown(until));
        }
        for wait in waiting {
            wait.since = self.clock.shown(wait.since);
            let hindrances = wait.hindrances.iter_mut();
            for (_, drained) in hindrances.flat_map(|hindrance| &mut hindrance.drained) {
                drained.until = drained.until.map(|until| self.clock.shown(until));
            }
        }
    }

    pub(super) fn on_status(
        &mut self,
        conn: ConnNo,
        names: Vec<Name>,
        more: bool,
    ) -> Result<Reply, Fault> {
        if names.len() > NEEDS_MAX {
            return Err(Fault::Wrong(format!("a status is for {NEEDS_MAX} names at most")));
        }
        let peer = self.peers.get_mut(&conn);
        let last = peer.and_then(|peer| peer.walk.take()).filter(|_| more);
        let mut walk = last.unwrap_or_else(|| Box::new(Walk::new(names)));
        let page = self.status(&mut walk);
        let more = !walk.is_over();
        if let Some(peer) = self.peers.get_mut(&conn).filter(|_| more) {
            peer.walk = Some(walk);
        }
        Ok(Reply::Status { page, more })
    }

    /// What the cell knows, and how it stands with the processes.
    pub(super) fn status(&self, walk: &mut Walk<Place>) -> Status {
        let mut status = self.engine().look(walk);
        self.show_times(&mut status.grants, &mut status.waiting);
        let units = status.pools.iter_mut().flat_map(|pool| &mut pool.units);
        for drained in units.filter_map(|unit| unit.drained.as_mut()) {
            drained.until = drained.until.map(|until| self.clock.shown(until));
        }
        for grant in &mut status.grants {
            let Some(entry) = self.books().get(grant.request) else { continue };
            let limit = entry.held.as_ref().and_then(|held| held.limit_at);
            grant.until = grant.until.or_else(|| limit.map(|limit| self.clock.shown(limit)));
            let lost_at = self.lost_at(grant.request).filter(|_| !entry.is_reserved());
            grant.until = grant.until.into_iter().chain(lost_at).min();
            let holder = self.holders.get(&grant.request);
            grant.pids = holder.map(|holder| holder.pids()).unwrap_or_default();
            grant.pids.truncate(PIDS_MAX);
            let mut looked_at = grant.pids.iter().take(LOOKED_AT).copied();
            // Numbers of processes on other machines mean nothing here.
            let is_here = self.books().ties().foreign(grant.request).is_none();
            if entry.left.is_some() || entry.closing.is_some() {
                grant.state = State::Ending;
            } else if !entry.is_reserved()
                && (is_here && stopped(grant.who.pid) || looked_at.any(stopped))
            {
                grant.state = State::Stopped;
            }
        }
        status
    }
}

impl Service {
    /// When a grant will be lost if a cell that has lent something of it goes on to be out of reach.
    fn lost_at(&self, request: RequestNo) -> Option<u64> {
        let cells = self.cells.as_ref()?;
        let away = self.engine().leased_by(request).into_iter();
        let away = away.filter(|guard| cells.link(*guard).is_none());
        let at = away.filter_map(|guard| cells.leases.deadline(guard)).min()?;
        let left = at.saturating_sub(cells.terms.stopping).saturating_sub(self.boottime());
        Some(self.clock.wall().saturating_add(left))
    }
}

/// An id, as it is told.
fn encoded(id: RequestId) -> Option<Vec<u8>> {
    postcard::to_stdvec(&id).ok()
}
