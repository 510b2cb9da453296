//! A search written down, and read back.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::graph::Graph;
use super::known::Known;
use super::model::{Breach, Expander, Model};
use super::{Explored, Level, Search};
use crate::check::Settings;
use crate::check::checkpoint::{RecordReader, RecordWriter, Unread};

/// What there is to say of a search beside its long lists.
#[derive(Serialize, Deserialize)]
struct Notes {
    depth: usize,
    deadlock: Option<u32>,
    residue: Option<u32>,
    stuck: BTreeMap<usize, u32>,
    breaches: Vec<(u32, Breach)>,
    answers: BTreeMap<usize, u32>,
    expanded: usize,
    most_behind: Option<usize>,
}

impl Search {
    pub(super) fn write(&self, to: &mut RecordWriter, model: &dyn Model) -> io::Result<()> {
        let found = &self.found;
        model.write_parts(to)?;
        to.put(&Notes {
            depth: found.depth,
            deadlock: found.deadlock,
            residue: found.residue,
            stuck: found.stuck.clone(),
            breaches: found.breaches.clone(),
            answers: found.answers.clone(),
            expanded: self.expanded,
            most_behind: self.most_behind,
        })?;
        to.put_list(found.gaps.iter())?;
        to.put_list(found.fingerprints.iter())?;
        found.graph.write(to)?;
        self.level.write(to, self.entered)?;
        self.frontier.write(to, 0)?;
        to.put_list(self.behind.iter())
    }

    pub(super) fn read(
        from: &mut RecordReader,
        model: &dyn Model,
        expander: &mut dyn Expander,
        settings: &Settings,
    ) -> Result<Self, Unread> {
        model.read_parts(from)?;
        let notes: Notes = from.get()?;
        let gaps = from.get_list()?;
        let fingerprints = from.get_list()?;
        let graph = Graph::read(from)?;
        let Notes { depth, deadlock, residue, stuck, breaches, answers, expanded, most_behind } =
            notes;
        let found = Explored {
            graph,
            fingerprints,
            cut_off: None,
            gaps,
            depth,
            deadlock,
            residue,
            stuck,
            breaches,
            answers,
        };
        let mut search = Self { found, expanded, most_behind, ..Self::empty(settings) };
        search.level = Arc::new(Level::read(from, &search.found.fingerprints)?);
        search.frontier = Level::read(from, &search.found.fingerprints)?;
        search.behind = from.get_list()?.into_iter().collect();
        if !search.is_whole(model, expander) {
            return Err(Unread::Damaged);
        }
        search.know_all();
        Ok(search)
    }

    /// Whether every state that is named is there, and every one that is to be expanded is what it was.
    fn is_whole(&self, model: &dyn Model, expander: &mut dyn Expander) -> bool {
        let Explored { graph, fingerprints, .. } = &self.found;
        let there = |state: &u32| (*state as usize) < graph.states();
        let found = &self.found;
        let named = found.deadlock.iter().chain(&found.residue).chain(found.stuck.values());
        let named = named.chain(found.answers.values());
        let mut named = named.chain(found.breaches.iter().map(|(state, _)| state));
        let to_expand = |(id, state): (u32, &[u32])| {
            there(&id)
                && !graph.is_expanded(id)
                && model.is_state(state)
                && expander.fingerprint(state) == fingerprints[id as usize]
        };
        let behind = self.behind.iter().map(|(id, state)| (*id, state.as_slice()));
        let waiting = self.level.len() + self.frontier.len() + self.behind.len();
        fingerprints.len() == graph.states()
            && self.expanded.checked_add(waiting) == Some(graph.states())
            && named.all(there)
            && self.level.iter().chain(self.frontier.iter()).chain(behind).all(to_expand)
    }

    /// Finds all states by their fingerprints from now on.
    fn know_all(&mut self) {
        let fingerprints = &self.found.fingerprints;
        self.known = Known::with_room(fingerprints.len());
        for (fingerprint, id) in fingerprints.iter().copied().zip(0..) {
            self.known.insert(fingerprint, id);
        }
    }
}

impl Level {
    fn iter(&self) -> impl Iterator<Item = (u32, &[u32])> {
        self.ids.iter().enumerate().map(|(i, id)| (*id, self.state(i)))
    }

    /// Writes down the states from one on.
    fn write(&self, to: &mut RecordWriter, from: usize) -> io::Result<()> {
        to.put_list((from..self.len()).map(|i| (self.ids[i], self.state(i))))
    }

    fn read(from: &mut RecordReader, fingerprints: &[u64]) -> Result<Self, Unread> {
        let mut level = Self::default();
        from.get_each(|(id, state): (u32, Vec<u32>)| {
            let fingerprint = fingerprints.get(id as usize).ok_or(Unread::Damaged)?;
            level.push(id, *fingerprint, &state);
            Ok(())
        })?;
        Ok(level)
    }
}
