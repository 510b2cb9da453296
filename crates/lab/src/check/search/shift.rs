//! Whether states that differ only by a shift of their stamps behave alike.
//!
//! The search takes such states for one. That is right only if stepping commutes with shifting:
//! if from both, the same steps lead to states that again differ only by a shift. Here the states
//! are told apart, and whenever a second one of a class is expanded, its steps are compared with
//! those of the first.

use std::collections::{HashMap, HashSet, VecDeque};

use super::model::{Class, Expander, Model, Successors};

/// What a comparison found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shifted {
    /// How many states there are, or were looked at.
    pub states: usize,
    /// How many there are up to a shift.
    pub classes: usize,
    /// Whether every state was looked at.
    pub complete: bool,
    /// Two states that differ only by a shift, and whose steps do not.
    pub unlike: Option<[String; 2]>,
}

/// The steps out of a state, up to a shift: what is done, where it leads, whether it is a breach.
type Steps = Vec<(Class, u64, bool)>;

/// Looks at states one by one, at most `max_states` of them. `show` puts a state into words.
pub(crate) fn compare(
    model: &dyn Model,
    max_states: usize,
    show: &dyn Fn(&[u32]) -> String,
) -> Shifted {
    let mut expander = model.expander();
    let start = model.start();
    let mut known = HashSet::from([expander.fingerprint(&start)]);
    let mut open = VecDeque::from([start]);
    let mut first_of: HashMap<u64, (Vec<u32>, Steps)> = HashMap::new();
    let mut found = Shifted { states: 0, classes: 0, complete: true, unlike: None };
    while let Some(state) = open.pop_front() {
        if found.states == max_states {
            found.complete = false;
            break;
        }
        found.states += 1;
        let mut out = Successors::default();
        expander.expand(&state, &mut out);
        let steps = steps(&mut *expander, &out);
        for (i, step) in out.steps.iter().enumerate() {
            if known.insert(step.fingerprint) {
                open.push_back(out.state(i).to_vec());
            }
        }
        let class = expander.fingerprint_up_to_shift(&state);
        match first_of.get(&class) {
            Some((first, first_steps)) if *first_steps != steps => {
                found.unlike.get_or_insert_with(|| [show(first), show(&state)]);
            }
            Some(_) => {}
            None => {
                first_of.insert(class, (state, steps));
            }
        }
    }
    found.classes = first_of.len();
    found
}

fn steps(expander: &mut dyn Expander, out: &Successors) -> Steps {
    let mut step = |(i, step): (usize, &super::model::Step)| {
        (step.class, expander.fingerprint_up_to_shift(out.state(i)), step.breach.is_some())
    };
    let mut steps: Steps = out.steps.iter().enumerate().map(&mut step).collect();
    steps.sort_unstable();
    steps
}
