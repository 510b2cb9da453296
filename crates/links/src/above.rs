//! What the links ask of those above them.

use crate::cell::Cell;

/// Those above the links. They are asked on the links' own thread and must not block it.
pub trait Above: Send + Sync + 'static {
    /// The first words to a peer, made anew for each link.
    fn greeting(&self, peer: &Cell) -> Vec<u8>;

    /// Whether a peer with these first words is wanted.
    ///
    /// # Errors
    /// Why it is not; the peer is told.
    fn welcome(&self, peer: &Cell, greeting: &[u8]) -> Result<(), String>;

    /// The name of a client's token, if it is known and good.
    fn client(&self, token: &str) -> Option<String>;
}
