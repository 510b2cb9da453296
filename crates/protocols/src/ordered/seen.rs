//! What the proof of exclusion sees of the roles: who holds what, and who knows (`docs/proof.md`).

use alloc::collections::{BTreeSet, VecDeque};

use holdall_core::{Needs, Picked, Request, RequestId};
use serde::Serialize;

use super::manager::{Manager, Share};
use super::user::User;

/// A manager as the proof sees it.
#[derive(Debug, Serialize)]
pub struct SeenManager<'a> {
    holders: &'a [Share],
    queue: &'a VecDeque<Share>,
    early: &'a BTreeSet<RequestId>,
}

/// The request of a user as the proof sees it.
#[derive(Debug, Serialize)]
pub struct SeenClimb<'a> {
    request: &'a Request,
    ladder: &'a Needs,
    held: usize,
    units: &'a Picked,
}

impl Manager {
    /// What the proof sees of it.
    pub fn seen(&self) -> SeenManager<'_> {
        SeenManager { holders: &self.holders, queue: &self.queue, early: self.early.all() }
    }
}

impl User {
    /// What the proof sees of it.
    pub fn seen(&self) -> Option<SeenClimb<'_>> {
        let climb = self.climb.as_ref()?;
        Some(SeenClimb {
            request: &climb.request,
            ladder: &climb.ladder,
            held: climb.held,
            units: &climb.units,
        })
    }
}
