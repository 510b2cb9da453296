//! What the agent before has left: reservations, and grants whose holders still live.
//!
//! They are put in force as they were, whatever has become of the pools since: a pool is first made
//! as large as they need it, and then what it is meant to be, so that fewer units take effect as
//! units come back.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use holdall_holders::Holder;
use holdall_wire::{Change, Kind, Name};
use tracing::{info, warn};

use super::{Known, Service};
use crate::clock::moved;
use crate::data::Kept;
use crate::engine::{Effect, Input, Reservation};
use crate::journal::Journal;

/// What is to become of a pool: how it begins, and what is changed when everything is in force.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    begins: Vec<Change>,
    then: Vec<Change>,
}

impl Service {
    /// Builds the pools, and puts in force again what is on disk.
    pub(super) fn load(&mut self, kept: Kept, shift: i64) -> anyhow::Result<()> {
        let configured = self.config.pools()?;
        self.configured = configured.iter().filter_map(added).map(|(name, _)| name).collect();
        let wanted = configured.into_iter().chain(kept.pools);
        let in_time = |time: u64| moved(time, shift);
        let mut living = Vec::new();
        for mut held in Journal::read(self.data.dir())? {
            held.grant.since = in_time(held.grant.since);
            if let Some(holder) = self.containment.again(&held.holder, self.data.dir()) {
                living.push((held, Rc::new(holder)));
            }
        }
        let mut reservations = kept.reservations;
        for reservation in &mut reservations {
            reservation.since = in_time(reservation.since);
            reservation.until = reservation.until.map(in_time);
        }
        let now = self.clock.now();
        reservations.retain(|reservation| reservation.until.is_none_or(|until| until > now));

        let grants = living.iter().map(|(held, _)| &held.grant).chain(&reservations);
        let plan = Plan::new(wanted.filter_map(|change| added(&change)).collect(), grants);
        for change in plan.begins {
            self.change_pool(change)?;
        }
        for (held, holder) in &living {
            let (request, pids) = (held.grant.request, holder.pids());
            warn!(%request, ?pids, "processes of a grant of the agent before still run");
            self.restore(held.grant.clone(), Some(holder.clone()));
            anyhow::ensure!(
                self.known.contains_key(&request),
                "{request} of the agent before is still in use by {pids:?}, and does not fit the \
                 pools; end that, or change the configuration back"
            );
        }
        let on_disk: Vec<_> = living.into_iter().map(|(held, _)| held).collect();
        self.journal = Some(Journal::begin(self.data.dir(), &on_disk)?);
        self.remove_old_locks(&on_disk)?;
        let before = reservations.len();
        for reservation in reservations {
            self.restore(reservation, None);
        }
        for change in plan.then {
            let told = format!("{change:?}");
            if let Err(error) = self.change_pool(change) {
                warn!("{error:#}: not done before what is held comes back: {told}");
            }
        }
        if self.engine.reservations().len() < before {
            self.keep()?; // What was lost does not come back.
        }
        Ok(())
    }

    fn change_pool(&mut self, change: Change) -> anyhow::Result<()> {
        let mut effects = self.step(Input::Change(change));
        let done = effects.iter().position(|effect| matches!(effect, Effect::Changed(_)));
        let done = done.map(|at| effects.remove(at));
        self.carry_out(effects);
        match done {
            Some(Effect::Changed(Err(wrong))) => anyhow::bail!("the pools: {wrong}"),
            _ => Ok(()),
        }
    }

    /// Puts a grant of a former agent in force again: a reservation, or what processes hold that
    /// are left of it.
    fn restore(&mut self, grant: Reservation, holder: Option<Rc<Holder>>) {
        let request = grant.request;
        let who = Arc::new(grant.who.clone());
        let size = super::size(&who, &holdall_wire::From::default(), &grant.needs);
        self.requests.take_anyway(who.uid, size);
        let known = Known {
            who,
            size,
            files: 0,
            asked: None,
            at: std::time::Instant::now(),
            reserved: holder.is_none(),
            leftovers: None,
            holder: holder.clone(),
            ending: holder.is_some(),
        };
        self.known.insert(request, known);
        self.input(Input::Restore(grant));
        let Some(holder) = holder.filter(|_| self.known.contains_key(&request)) else { return };
        if let Holder::Family(family) = &*holder
            && family.abandoned()
        {
            info!(%request, pids = ?holder.pids(), "its client was killed: killing its processes");
            let killed = holder.clone();
            tokio::task::spawn_local(async move { killed.kill().await });
            return self.end_with(request, holder, "killed");
        }
        self.end_with(request, holder, "released");
    }
}

fn added(change: &Change) -> Option<(Name, Kind)> {
    match change {
        Change::Add { name, kind } => Some((name.clone(), kind.clone())),
        _ => None,
    }
}

impl Plan {
    /// From the pools that are wanted, the first of a name counting, and the grants there are.
    fn new<'a>(wanted: Vec<(Name, Kind)>, grants: impl Iterator<Item = &'a Reservation>) -> Self {
        let mut plan = Self::default();
        let mut pools: BTreeMap<Name, Kind> = BTreeMap::new();
        for (name, kind) in wanted {
            pools.entry(name).or_insert(kind);
        }
        let mut used: BTreeMap<&Name, BTreeSet<&Name>> = BTreeMap::new();
        for taken in grants.flat_map(|grant| &grant.taken) {
            let units = taken.units.iter().map(|(unit, _)| unit);
            used.entry(&taken.name).or_default().extend(units);
        }
        for (name, units) in &used {
            plan.make_room(name, units, pools.remove(*name).as_ref());
        }
        plan.begins.extend(pools.into_iter().map(|(name, kind)| Change::Add { name, kind }));
        plan
    }

    /// A pool of which units are held.
    fn make_room(&mut self, name: &Name, units: &BTreeSet<&Name>, wanted: Option<&Kind>) {
        let named_so = matches!(wanted, Some(Kind::Named(all)) if all.contains(name));
        let is_lock = !named_so && units.iter().all(|unit| *unit == name);
        let begins = match wanted {
            None if is_lock => return, // It is made on first use.
            Some(Kind::Named(all)) if !is_lock => {
                let more =
                    units.iter().filter(|unit| !all.contains(unit)).map(|unit| (*unit).clone());
                Kind::Named(all.iter().cloned().chain(more).collect())
            }
            _ if is_lock => Kind::Lock,
            _ => match (numbers(name, units), wanted) {
                (Some(most), Some(Kind::Numbered(n))) => Kind::Numbered(most.max(*n)),
                (Some(most), _) => Kind::Numbered(most),
                (None, _) => Kind::Named(units.iter().map(|unit| (*unit).clone()).collect()),
            },
        };
        let add = |kind: &Kind| Change::Add { name: name.clone(), kind: kind.clone() };
        self.begins.push(add(&begins));
        let resize = |units: usize| Change::Resize { name: name.clone(), units: units as u32 };
        match (&begins, wanted) {
            (_, Some(wanted)) if *wanted == begins => {}
            (Kind::Numbered(_), Some(Kind::Numbered(n))) => self.then.push(resize(*n as usize)),
            (Kind::Named(_), Some(Kind::Named(all))) => self.then.push(resize(all.len())),
            (_, wanted) => {
                self.then.push(Change::Remove { name: name.clone(), force: true });
                self.then.extend(wanted.map(add));
            }
        }
    }
}

/// How many units a numbered pool has at least that has these; none if it is no such pool.
fn numbers(name: &Name, units: &BTreeSet<&Name>) -> Option<u32> {
    let number = |unit: &&Name| {
        let rest = unit.as_str().strip_prefix(name.as_str())?.strip_prefix('/')?;
        rest.parse::<u32>().ok()?.checked_add(1)
    };
    units.iter().map(number).collect::<Option<Vec<_>>>()?.into_iter().max()
}

#[cfg(test)]
mod tests {
    use holdall_wire::{RequestNo, Taken, Who};

    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn names(texts: &[&str]) -> Vec<Name> {
        texts.iter().map(|text| name(text)).collect()
    }

    fn holds(pool: &str, units: &[&str]) -> Reservation {
        let units = names(units).into_iter().map(|unit| (unit, 1)).collect();
        Reservation {
            request: RequestNo(1),
            who: Who::default(),
            needs: Vec::new(),
            taken: vec![Taken { name: name(pool), units }],
            since: 0,
            until: None,
        }
    }

    fn plan(wanted: Option<Kind>, grant: &Reservation) -> (Vec<Change>, Vec<Change>) {
        let wanted = wanted.map(|kind| (name("p"), kind)).into_iter().collect();
        let Plan { begins, then } = Plan::new(wanted, [grant].into_iter());
        (begins, then)
    }

    #[test]
    fn a_pool_begins_as_large_as_it_is_used_and_becomes_what_it_is_meant_to_be() {
        let add = |kind: Kind| vec![Change::Add { name: name("p"), kind }];
        let resize = |units| vec![Change::Resize { name: name("p"), units }];
        let remove = || vec![Change::Remove { name: name("p"), force: true }];
        let four = holds("p", &["p/0", "p/3"]);
        let numbered = |n| Some(Kind::Numbered(n));
        assert_eq!(plan(numbered(5), &four), (add(Kind::Numbered(5)), vec![]));
        assert_eq!(plan(numbered(2), &four), (add(Kind::Numbered(4)), resize(2)));
        assert_eq!(plan(None, &four), (add(Kind::Numbered(4)), remove()));
        let lock = [remove(), add(Kind::Lock)].concat();
        assert_eq!(plan(Some(Kind::Lock), &four), (add(Kind::Numbered(4)), lock));
        let red = holds("p", &["red"]);
        let (two, three) = (names(&["blue", "green"]), names(&["blue", "green", "red"]));
        assert_eq!(plan(Some(Kind::Named(two)), &red), (add(Kind::Named(three)), resize(2)));
        let held = holds("p", &["p"]);
        assert_eq!(plan(Some(Kind::Lock), &held), (add(Kind::Lock), vec![]));
        assert_eq!(plan(None, &held), (vec![], vec![]));
        let two = [remove(), add(Kind::Numbered(2))].concat();
        assert_eq!(plan(numbered(2), &held), (add(Kind::Lock), two));
    }
}
