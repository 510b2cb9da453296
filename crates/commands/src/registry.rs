//! Which protocols the commands know.

use std::fmt;
use std::sync::Arc;

use holdall_core::Protocol;
use holdall_protocols::is_named;
use holdall_registry::questions::Question;
use holdall_registry::{BadName, Chosen, specimens, unknown};
use holdall_sim::Contender;

/// The protocols that the commands know by name: those that holdall comes with, and others.
#[derive(Clone, Debug, Default)]
pub struct Protocols {
    others: Vec<Other>,
}

/// A protocol that holdall does not come with, to be had without its type.
#[derive(Clone)]
struct Other {
    family: &'static str,
    names: &'static [&'static str],
    choose: Arc<Choose>,
}

type Choose = dyn Fn(&str, &[String]) -> Result<Chosen, BadName>;

impl fmt::Debug for Other {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.family)
    }
}

impl Protocols {
    /// Those that holdall comes with.
    pub fn known() -> Self {
        Self::default()
    }

    /// And this one.
    #[must_use]
    pub fn and<P: Protocol>(self) -> Self {
        self.and_asking::<P>(&[])
    }

    /// And this one, of which the checker is to answer questions.
    #[must_use]
    pub fn and_asking<P: Protocol>(mut self, questions: &'static [Question<P>]) -> Self {
        self.others.push(Other {
            family: P::FAMILY,
            names: P::NAMES,
            choose: Arc::new(move |name, without| Chosen::asking::<P>(name, without, questions)),
        });
        self
    }

    /// Looks a protocol up.
    pub(crate) fn choose(&self, name: &str, without: &[String]) -> Result<Chosen, BadName> {
        match self.other(name) {
            Some(other) => (other.choose)(name, without),
            None => Chosen::new(name, without).map_err(|bad| self.suggest(bad)),
        }
    }

    /// Looks up a protocol to be simulated, without some of its rules; a yardstick is accepted as well.
    ///
    /// # Errors
    /// If there is no such protocol, or no such rule.
    pub fn contender(&self, name: &str, without: &[String]) -> Result<Contender, BadName> {
        match Contender::yardstick(name) {
            Some(yardstick) => Ok(yardstick?),
            None => Ok(self.choose(name, without)?.contender()?),
        }
    }

    /// The names of all that are worth listing; specimens are not.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'static str> {
        let others = self.others.iter().flat_map(|other| other.names.iter().copied());
        others.chain(holdall_protocols::names())
    }

    /// All that are worth listing.
    pub(crate) fn all(&self) -> Result<Vec<Chosen>, BadName> {
        self.names().map(|name| self.choose(name, &[])).collect()
    }

    fn other(&self, name: &str) -> Option<&Other> {
        self.others.iter().find(|other| is_named(name, other.family))
    }

    /// Somebody may have meant one of the others.
    fn suggest(&self, bad: BadName) -> BadName {
        match bad {
            BadName::Unknown { name, .. } => unknown(name, self.names().chain(specimens::names())),
            bad => bad,
        }
    }
}
