//! A view of a protocol's roles that leaves out what does not matter for some purpose, such as a proof.

use std::fmt;

use holdall_core::Protocol;
use serde_json::Value;

/// What is to be seen of each role.
pub struct View<P: Protocol> {
    /// Of a user.
    pub user: fn(&P::User) -> Value,
    /// Of a manager.
    pub manager: fn(&P::Manager) -> Value,
}

impl<P: Protocol> Clone for View<P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: Protocol> Copy for View<P> {}

impl<P: Protocol> fmt::Debug for View<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("View")
    }
}
