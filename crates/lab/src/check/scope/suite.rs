//! Sets of scopes.

use std::collections::BTreeSet;

use holdall_core::{About, CellId, Need, Needs, NodeId, Pool, PoolId};

use super::{BadScope, Scope, Script, Then, Wanted};
use crate::check::{Settings, Timers};
use crate::registry::Chosen;

/// How large a set of scopes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// Seconds.
    Quick,
    /// Minutes.
    Full,
}

/// One line of a suite: pools, users, and what else may happen.
type Line = (&'static str, &'static str, &'static str);

const QUICK: &[Line] = &[
    ("1", "0/0/0", ""),
    ("1,1", "0+1/1+0", ""),
    ("1,1", "0+1,1/1+0,0", ""),
    ("1,1,1", "0+1/1+2/2+0", ""),
    ("2", "0:2/0/0", ""),
    ("2,1", "0:2+1/0+1/0", ""),
    ("1,1", "0+1/1+0/0", "departures"),
    ("2", "0:2/0/0", "departures"),
    ("1,1", "0+1/1+0/0", "crash"),
    ("1", "0*/0*", ""),
    ("1,1", "0+1*/1+0*", ""),
    ("1,1", "0+1^/1+0^", ""),
    ("2", "0:2*/0*/0*", ""),
    ("1,1", "0+1*/0*/1*", ""),
    ("1,1", "1/0+1/0", ""),
    ("1,1", "1!/0+1/0", ""),
    ("1,1", "0,1/0", "one node"),
    ("1,1", "0+1*/0*/1*", "one node"),
    ("1,1", "0!/0+1/1", "one node"),
];

const FULL: &[Line] = &[
    ("1,1,1", "0+1+2/1+2+0/2+0+1", ""),
    ("1,1,1", "0+1/1+2/2+0/0+1", ""),
    ("1,1", "0+1,1+0/1+0,0+1/0,1", ""),
    ("2,2", "0:2+1/0+1:2/0+1", ""),
    ("1,1,1", "0+1/1+2/2+0", "departures"),
    ("1,1", "0+1,1/1+0,0/0", "departures"),
    ("1,1,1", "0+1/1+2/2+0", "crash"),
    ("1,1", "0+1*/1+0*/0*", ""),
    ("1,1,1", "0+1*/1+2*/2+0*", ""),
    ("2,1", "0:2+1*/0+1*/0*", ""),
];

impl Suite {
    /// The scopes of the suite that the protocol serves, and that can be searched. Where patient
    /// timers make a difference, timers are patient.
    pub fn scopes(self, chosen: &Chosen) -> Vec<(Scope, Settings)> {
        let about = &chosen.about;
        let lines = match self {
            Self::Quick => QUICK.to_vec(),
            Self::Full => [QUICK, FULL].concat(),
        };
        let crowded = self == Self::Quick && chosen.stages > STAGES_FEW;
        let serves = |(scope, settings): &(Scope, Settings)| {
            let leaving = settings.departures || settings.crash.is_some();
            scope.suits(about).is_ok()
                && (about.assumes.departures || !leaving)
                && !(crowded && scope.users.len() > 2)
                && !(chosen.drifts && is_uneven(scope))
        };
        let timers = if about.with_patience.is_empty() { Timers::Any } else { Timers::Quiet };
        let scopes = lines.into_iter().map(read).filter(serves);
        scopes.map(|(scope, settings)| (scope, Settings { timers, ..settings })).collect()
    }
}

/// With more stages than this, three users take more than seconds.
const STAGES_FEW: u32 = 2;

/// Whether users ask for ever for different pools.
fn is_uneven(scope: &Scope) -> bool {
    let pools = |user: &Script| -> BTreeSet<PoolId> {
        user.needs().flat_map(|needs| needs.iter().map(|need| need.pool)).collect()
    };
    let mut repeating = scope.users.iter().filter(|user| user.then == Then::Repeat).map(pools);
    let first = repeating.next();
    repeating.any(|pools| Some(pools) != first)
}

fn read((pools, users, faults): Line) -> (Scope, Settings) {
    let nodes = (faults == "one node").then_some("0,0");
    let scope = Scope::parse(pools, users, nodes).expect("the suites are well written");
    let settings = Settings {
        departures: faults == "departures",
        crash: (faults == "crash").then_some(0),
        ..Settings::default()
    };
    (scope, settings)
}

/// Every assignment of one request to each of `clients` over `resources` single units, up to
/// renaming of the clients (`--all 3x3`). Where the order asked makes no difference to the
/// protocol, only requests in ascending order are taken.
///
/// # Errors
/// If the text is not of the form CxR, or it would be too many.
pub fn every_assignment(text: &str, about: &About) -> Result<Vec<Scope>, BadScope> {
    let (clients, resources) = text
        .split_once('x')
        .and_then(|(c, r)| Some((c.parse::<usize>().ok()?, r.parse::<u32>().ok()?)))
        .filter(|(c, r)| (1..=6).contains(c) && (1..=4).contains(r))
        .ok_or_else(|| BadScope::Assignments(text.into()))?;
    let mut requests = Vec::new();
    list_requests(resources, about, &mut Vec::new(), &mut requests);
    let pools = (0..resources)
        .map(|node| Pool { capacity: 1, node: NodeId(node.into()), listed: false })
        .collect();
    let mut scopes = vec![Scope { pools, users: Vec::new() }];
    for _ in 0..clients {
        scopes = scopes.iter().flat_map(|scope| with_one_more(scope, &requests)).collect();
    }
    Ok(scopes)
}

/// All requests that begin with `taken`.
fn list_requests(resources: u32, about: &About, taken: &mut Vec<Need>, all: &mut Vec<Needs>) {
    if let Ok(needs) = Needs::new(taken.clone()) {
        all.push(needs);
    }
    if about.assumes.needs_max.is_some_and(|most| taken.len() >= most as usize) {
        return;
    }
    let from = match taken.last() {
        Some(last) if !about.assumes.order_asked => last.pool.0 + 1,
        _ => 0,
    };
    for pool in (from..resources.into()).map(PoolId) {
        if taken.iter().all(|need| need.pool != pool) {
            taken.push(Need::any(pool, 1));
            list_requests(resources, about, taken, all);
            taken.pop();
        }
    }
}

/// The scope with one client more, whose request is not before the last client's in the list.
fn with_one_more(scope: &Scope, requests: &[Needs]) -> Vec<Scope> {
    let last = scope.users.last().map(|user| &user.requests[0].needs);
    let from = last.and_then(|last| requests.iter().position(|needs| needs == last)).unwrap_or(0);
    let more = |needs: &Needs| {
        let mut scope = scope.clone();
        scope.users.push(Script {
            requests: vec![Wanted { needs: needs.clone(), length: None }],
            then: Then::Stop,
            endless: false,
            cell: CellId(0),
        });
        scope
    };
    requests[from..].iter().map(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn assignments_are_counted_up_to_renaming_clients() {
        let mut about = Chosen::new("ordered", &[]).expect("known").about;
        let count = |text, about: &About| every_assignment(text, about).expect("small").len();
        assert_eq!(count("3x3", &about), 84, "three of the seven sets, with repetition");
        about.assumes.order_asked = true;
        assert_eq!(count("3x3", &about), 680);
        about.assumes.needs_max = Some(2);
        assert_eq!(count("3x3", &about), 165);
        assert!(every_assignment("3", &about).is_err());
        assert!(every_assignment("0x3", &about).is_err());
        assert!(every_assignment("99x99", &about).is_err());
    }
}
