//! What people are told of facts: one event for each that matters to them ([`What`]).

use std::sync::Arc;

use holdall_wire::event::{Ending, What};
use holdall_wire::{Ask, Change, Need, Refusal, RequestNo, Taken, Who};

use crate::books::{Books, Entry};
use crate::facts::{Clock, Fact, How};

/// What is to be told of a fact, with the time on the wall. The books are those before it is entered.
pub fn project(books: &Books, at: u64, fact: &Fact) -> Option<(u64, What)> {
    let set = match fact {
        Fact::Clock { ahead } => Some(Clock { ahead: *ahead, ..books.clock().clone() }),
        _ => None,
    };
    let clock = match fact {
        Fact::Started { clock, .. } => clock,
        _ => set.as_ref().unwrap_or_else(|| books.clock()),
    };
    let wall = |at: u64| clock.wall(at);
    let when = match fact {
        Fact::Started { at, .. } => *at,
        _ => at,
    };
    let what = match fact {
        Fact::Started { epoch, .. } => What::Started { epoch: *epoch },
        Fact::Asked { request, who, ask, .. } => asked(*request, who, ask),
        Fact::Queued { request } => What::Queued { request: *request },
        Fact::Granted { request, taken, until, limit_at, overtook, .. } => {
            let entry = books.get(*request)?;
            What::Granted {
                request: *request,
                who: entry.who.clone(),
                taken: taken.clone(),
                asked: wall(entry.asked),
                until: until.map(wall),
                limit: limit_at.map(wall),
                overtook: *overtook,
            }
        }
        Fact::Used { request, holder } => What::Runs {
            request: *request,
            who: books.get(*request)?.who.clone(),
            pid: holder.leader.map(|(leader, _)| leader.pid),
        },
        Fact::Renewed { request, until } => {
            let (who, taken) = held(books, *request)?;
            What::Renewed { request: *request, who, taken, until: wall(*until) }
        }
        Fact::Forced { request, by } => {
            let (who, taken) = held(books, *request)?;
            What::Forced { request: *request, who, taken, by: by.clone() }
        }
        Fact::TakenAway { request, how, .. } => {
            let (who, taken) = held(books, *request)?;
            What::TakenAway { request: *request, who, taken, how: ending(how, true)? }
        }
        Fact::Left { request, how, .. } => {
            let (who, taken) = held(books, *request)?;
            What::Ending { request: *request, who, taken, how: ending(how, true)? }
        }
        Fact::Closing { request, how } => {
            let (who, taken) = held(books, *request)?;
            let is_left = books.get(*request).is_some_and(|entry| entry.left.is_some());
            What::Ending { request: *request, who, taken, how: ending(how, is_left)? }
        }
        Fact::Ended { request, how } => ended(*request, books.get(*request)?, how, wall)?,
        Fact::Changed { by, change } => {
            What::Changed { by: by.clone(), change: on_the_wall(change.clone(), wall) }
        }
        Fact::Pool { name, kind, configured } => {
            What::Pool { name: name.clone(), kind: kind.clone(), configured: *configured }
        }
        Fact::Imported(grant) => What::Restored {
            request: grant.request,
            who: grant.who.clone(),
            needs: grant.ask.needs.as_slice().into(),
            taken: grant.taken.clone(),
            since: wall(grant.since),
            until: grant.until.map(wall),
        },
        Fact::HeldFor(given) => What::Granted {
            request: given.request,
            who: given.who.clone(),
            taken: given.taken.clone(),
            asked: wall(given.since),
            until: given.until.map(wall),
            limit: None,
            overtook: 0,
        },
        Fact::Clock { ahead } => What::ClockSet { by: ahead.saturating_sub(books.clock().ahead) },
        Fact::Peer { .. }
        | Fact::Met { .. }
        | Fact::NotLeased { .. }
        | Fact::Keeping { .. }
        | Fact::GivenUp { .. }
        | Fact::Begun { .. }
        | Fact::Agreed { .. }
        | Fact::CameTo { .. }
        | Fact::Recovery { .. }
        | Fact::Spans { .. }
        | Fact::Session { .. }
        | Fact::SessionOver(_)
        | Fact::Answered { .. }
        | Fact::Heard { .. }
        | Fact::Ready { .. }
        | Fact::Drained(_)
        | Fact::Overtime { .. } => return None,
    };
    Some((wall(when), what))
}

/// What would have been told of all that stands: pools, what is drained, and who waits and holds. In no order but
/// this, and that each request is asked for before it is granted.
pub fn standing(books: &Books) -> Vec<(u64, What)> {
    let wall = |at: u64| books.clock().wall(at);
    let mut told = Vec::new();
    for (name, pool) in books.pools() {
        let (name, kind) = (name.clone(), Some(pool.kind.clone()));
        told.push((0, What::Pool { name, kind, configured: pool.configured }));
    }
    for (name, drained) in books.drained() {
        let change = Change::Drain { name: name.clone(), drained: drained.clone() };
        told.push((0, What::Changed { by: None, change: on_the_wall(change, wall) }));
    }
    for (request, entry) in books.waiting() {
        told.push((wall(entry.asked), asked(request, &entry.who, &entry.ask)));
    }
    for (request, entry, held) in books.grants() {
        told.push((wall(entry.asked), asked(request, &entry.who, &entry.ask)));
        let granted = What::Granted {
            request,
            who: entry.who.clone(),
            taken: held.taken.clone(),
            asked: wall(entry.asked),
            until: held.until.map(wall),
            limit: held.limit_at.map(wall),
            overtook: 0,
        };
        told.push((wall(held.since), granted));
    }
    told
}

fn asked(request: RequestNo, who: &Arc<Who>, ask: &Arc<Ask>) -> What {
    What::Asked { request, who: who.clone(), ask: ask.clone() }
}

fn on_the_wall(mut change: Change, wall: impl Fn(u64) -> u64) -> Change {
    if let Change::Drain { drained, .. } = &mut change {
        drained.until = drained.until.map(wall);
    }
    change
}

fn held(books: &Books, request: RequestNo) -> Option<(Arc<Who>, Arc<[Taken]>)> {
    let entry = books.get(request)?;
    Some((entry.who.clone(), entry.held.as_ref()?.taken.clone()))
}

fn ended(request: RequestNo, entry: &Entry, how: &How, wall: impl Fn(u64) -> u64) -> Option<What> {
    let who = entry.who.clone();
    if let Some(held) = &entry.held {
        let (taken, since) = (held.taken.clone(), wall(held.since));
        let how = ending(how, entry.left.is_some())?;
        return Some(What::Ended { request, who, taken, since, how });
    }
    let why = match how {
        How::Refused(why) => why.clone(),
        _ => Refusal::Withdrawn,
    };
    let needs: Arc<[Need]> = entry.ask.needs.as_slice().into();
    Some(What::Refused { request, who, needs, asked: wall(entry.asked), why })
}

/// How a grant ends; none if only what waits can end so.
fn ending(how: &How, with_processes: bool) -> Option<Ending> {
    Some(match how {
        How::Released => Ending::Released,
        How::Expired => Ending::Expired,
        How::Gone if with_processes => Ending::Killed,
        How::Gone => Ending::Left,
        How::Lost => Ending::Lost,
        How::Overrun => Ending::Overrun,
        How::WithItsGrant => Ending::WithItsGrant,
        How::Unrestored => Ending::Unrestored,
        How::Refused(_) | How::Withdrawn => return None,
    })
}
