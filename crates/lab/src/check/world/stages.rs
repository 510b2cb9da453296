//! The stages of a request in which a user may crash: where its client stands, and the word its
//! role has for it ([`Role::stage`](holdall_core::Role::stage)).

use std::sync::{Mutex, PoisonError};

use super::client::Stage;
use crate::check::search::graph::Graph;
use crate::check::search::model::StageNumber;

/// Sets of stages are bit masks. Should a protocol have more words than that, the last stage
/// stands for all the rest.
const STAGES_MAX: usize = 64;

/// All stages seen so far, by number.
#[derive(Default)]
pub(crate) struct Stages {
    seen: boxcar::Vec<(Stage, &'static str)>,
    adding: Mutex<()>,
}

impl Stages {
    pub(crate) fn number(&self, stage: Stage, word: &'static str) -> StageNumber {
        if stage == Stage::Crashed {
            return StageNumber::CRASHED;
        }
        let known = || self.seen.iter().find(|(_, seen)| **seen == (stage, word)).map(|(i, _)| i);
        let add = || {
            let _adding = self.adding.lock().unwrap_or_else(PoisonError::into_inner);
            known().unwrap_or_else(|| match self.seen.count() {
                STAGES_MAX => STAGES_MAX - 1,
                _ => self.seen.push((stage, word)),
            })
        };
        StageNumber(known().unwrap_or_else(add) as u8)
    }

    /// Every stage with its name, in the order of a request; where the client stands the same, in
    /// the order in which the search came upon them.
    pub(crate) fn names(&self, graph: &Graph) -> Vec<(StageNumber, String)> {
        let mut first = [u32::MAX; STAGES_MAX];
        for state in (0..graph.states() as u32).rev() {
            let stage = graph.label(state).stage;
            if !stage.is_crashed() {
                first[usize::from(stage.0)] = state;
            }
        }
        let name = |(stage, word): (Stage, &str)| match word {
            "" => stage.name().into(),
            _ => format!("{}: {word}", stage.name()),
        };
        let all = self.seen.iter().map(|(i, seen)| (seen.0, first[i], i, name(*seen)));
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        all.into_iter().map(|(_, _, i, name)| (StageNumber(i as u8), name)).collect()
    }
}
