//! In place of the other servers, where this program was built without their clients.

use crate::Options;
use crate::case::Case;
use crate::figures::Figures;

/// There are none.
pub(crate) const NAMES: [&str; 0] = [];
/// How to have some.
pub(crate) const REMEDY: &str =
    "; etcd, etcd-locks, postgres, redis and zookeeper can with `--features peers`";

/// None.
#[derive(Default)]
pub(crate) struct Peers(());

impl Peers {
    /// Measures nothing, as no name is that of a peer.
    pub(crate) async fn measure(
        &mut self,
        _name: &str,
        _case: &Case,
        _options: &Options,
        _seed: u64,
    ) -> Option<anyhow::Result<Figures>> {
        None
    }
}
