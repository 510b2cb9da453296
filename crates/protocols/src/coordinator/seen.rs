//! What the proof of exclusion sees of the roles: who holds what, and who knows (`docs/proof.md`).

use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use holdall_core::{Needs, Request, RequestId};
use serde::Serialize;

use super::manager::Manager;
use super::user::User;

/// The manager as the proof sees it.
#[derive(Debug, Serialize)]
pub struct SeenManager<'a> {
    holders: Vec<(RequestId, &'a Needs)>,
    waiting: &'a [Request],
    early: &'a BTreeSet<RequestId>,
}

/// The request of a user as the proof sees it.
#[derive(Debug, Serialize)]
pub struct SeenRequest<'a> {
    request: &'a Request,
    granted: bool,
}

impl Manager {
    /// What the proof sees of it.
    pub fn seen(&self) -> SeenManager<'_> {
        SeenManager {
            holders: self.holders.iter().map(|(id, needs)| (*id, needs)).collect(),
            waiting: &self.waiting,
            early: self.early.all(),
        }
    }
}

impl User {
    /// What the proof sees of it.
    pub fn seen(&self) -> Option<SeenRequest<'_>> {
        let request = self.request.as_ref()?;
        Some(SeenRequest { request, granted: self.granted })
    }
}
