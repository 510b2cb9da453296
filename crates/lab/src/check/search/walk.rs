//! Random walks, for scopes that no search gets to the end of. What can be seen in a state or a step
//! is seen; what goes on for ever is not.

use std::collections::BTreeMap;

use holdall_registry::roles::mix;
use rustc_hash::FxHashSet;

use super::limits::Limits;
use super::model::{AtRest, Breach, Expander, Model, Successors};
use super::{Progress, Watch};
use crate::check::Settings;

/// The most steps of one walk.
pub(crate) const STEPS_MAX: usize = 10_000;

/// The fingerprints of the states on a walk, from the start.
pub(crate) type Way = Vec<u64>;

/// What was seen on the walks; of several ways to the same, a shortest.
#[derive(Default)]
pub(crate) struct Walked {
    /// How many walks were taken.
    pub(crate) walks: u64,
    /// How many different states were seen.
    pub(crate) states: usize,
    pub(crate) steps: usize,
    /// How many steps the longest walk had.
    pub(crate) longest: usize,
    pub(crate) deadlock: Option<Way>,
    pub(crate) residue: Option<Way>,
    /// By user: where only strangers could move.
    pub(crate) stuck: BTreeMap<usize, Way>,
    /// The breaches of each property, with the way to the state they were committed in.
    pub(crate) breaches: Vec<(Way, Breach)>,
    /// By the number of the question.
    pub(crate) answers: BTreeMap<usize, Way>,
}

/// Takes random walks. Each ends where nothing can happen, where something was broken, or after
/// [`STEPS_MAX`] steps.
pub(crate) fn walk(
    model: &dyn Model,
    settings: &Settings,
    (walks, seed): (u64, u64),
    watch: Watch<'_>,
) -> Walked {
    let limits = Limits::new(settings);
    let mut walker = Walker {
        expander: model.expander(),
        random: mix(seed),
        known: FxHashSet::default(),
        seen: Walked::default(),
    };
    for _ in 0..walks {
        if limits.reached().is_some() || walker.known.len() >= settings.max_states {
            break;
        }
        walker.go(model.start());
        walker.seen.walks += 1;
        watch(Progress { states: walker.known.len(), frontier: 0 });
    }
    Walked { states: walker.known.len(), ..walker.seen }
}

struct Walker<'m> {
    expander: Box<dyn Expander + Send + 'm>,
    random: u64,
    known: FxHashSet<u64>,
    seen: Walked,
}

impl Walker<'_> {
    fn go(&mut self, start: Vec<u32>) {
        let mut way = vec![self.expander.fingerprint(&start)];
        let mut state = start;
        let mut next = Successors::default();
        loop {
            let fingerprint = way[way.len() - 1];
            self.known.insert(fingerprint);
            next.clear();
            self.expander.expand_known(&state, fingerprint, &mut next);
            self.look(&way, &next);
            let taken = way.len() - 1;
            self.seen.longest = self.seen.longest.max(taken);
            let broken = next.steps.iter().any(|step| step.breach.is_some());
            if next.steps.is_empty() || broken || taken == STEPS_MAX {
                return;
            }
            let at = self.draw(next.steps.len());
            way.push(next.steps[at].fingerprint);
            state.clear();
            state.extend_from_slice(next.state(at));
            self.seen.steps += 1;
        }
    }

    /// One of so many, each as likely.
    fn draw(&mut self, many: usize) -> usize {
        self.random = mix(self.random);
        ((u128::from(self.random) * many as u128) >> 64) as usize
    }

    /// What there is to see in a state and its steps.
    fn look(&mut self, way: &Way, next: &Successors) {
        let AtRest { deadlock, residue, stuck } =
            next.states.first().map(|expanded| expanded.rest).unwrap_or_default();
        let seen = &mut self.seen;
        if deadlock {
            shorter(&mut seen.deadlock, way);
        }
        if residue {
            shorter(&mut seen.residue, way);
        }
        for lane in (0..32).filter(|lane| stuck >> lane & 1 == 1) {
            shortest(&mut seen.stuck, lane, way);
        }
        for question in &next.answered {
            shortest(&mut seen.answers, *question, way);
        }
        for breach in next.steps.iter().filter_map(|step| step.breach.as_deref()) {
            match seen.breaches.iter_mut().find(|(_, known)| known.property == breach.property) {
                Some((known, of)) if way.len() < known.len() => {
                    (*known, *of) = (way.clone(), breach.clone());
                }
                Some(_) => {}
                None => seen.breaches.push((way.clone(), breach.clone())),
            }
        }
    }
}

fn shorter(known: &mut Option<Way>, way: &Way) {
    if known.as_ref().is_none_or(|known| way.len() < known.len()) {
        *known = Some(way.clone());
    }
}

fn shortest(known: &mut BTreeMap<usize, Way>, key: usize, way: &Way) {
    let mut way_to = known.remove(&key);
    shorter(&mut way_to, way);
    known.extend(way_to.map(|way| (key, way)));
}
