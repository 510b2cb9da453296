//! Which protocols the commands know.

use holdall_core::Protocol;
use holdall_lab::registry::{self, BadName, Chosen};
use holdall_lab::specimens;
use holdall_play::{Cast, NoCast};
use holdall_protocols::{Visitor, is_named};
use holdall_sim::{Contender, ORACLE};

/// The protocols that the commands know by name: those that holdall comes with, and others.
#[derive(Clone, Debug, Default)]
pub struct Protocols {
    others: Vec<Other>,
}

/// A protocol that holdall does not come with, to be had without its type.
#[derive(Clone, Copy, Debug)]
struct Other {
    family: &'static str,
    names: &'static [&'static str],
    choose: fn(&str, &[String]) -> Result<Chosen, BadName>,
    cast: fn(&str, &[String], Contender) -> Result<Cast, NoCast>,
}

impl Protocols {
    /// Those that holdall comes with.
    pub fn known() -> Self {
        Self::default()
    }

    /// And this one.
    #[must_use]
    pub fn and<P: Protocol>(mut self) -> Self {
        self.others.push(Other {
            family: P::FAMILY,
            names: P::NAMES,
            choose: Chosen::of::<P>,
            cast: Cast::beside::<P>,
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

    /// Looks up a protocol to be simulated; the oracle is accepted as well.
    pub(crate) fn contender(&self, name: &str, without: &[String]) -> Result<Contender, BadName> {
        match name {
            ORACLE => Ok(Contender::oracle()?),
            _ => Ok(self.choose(name, without)?.contender()?),
        }
    }

    /// Looks up a protocol to be played.
    pub(crate) fn cast(&self, name: &str, without: &[String]) -> Result<Cast, NotPlayed> {
        let contender = self.choose(name, without)?.contender().map_err(NoCast::from)?;
        if let Some(other) = self.other(name) {
            return Ok((other.cast)(name, without, contender)?);
        }
        match Cast::named(name, without) {
            Err(NoCast::Unknown(_)) => {
                let visitor = Specimen { name, without, contender };
                Ok(specimens::with(name, visitor).map_err(NoCast::from)??)
            }
            found => Ok(found?),
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
            BadName::Unknown { name, .. } => {
                registry::unknown(name, self.names().chain(specimens::names()))
            }
            bad => bad,
        }
    }
}

/// Why a protocol cannot be played.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotPlayed {
    #[error(transparent)]
    Name(#[from] BadName),
    #[error(transparent)]
    Cast(#[from] NoCast),
}

struct Specimen<'a> {
    name: &'a str,
    without: &'a [String],
    contender: Contender,
}

impl Visitor for Specimen<'_> {
    type Out = Result<Cast, NoCast>;

    fn visit<P: Protocol>(self) -> Self::Out {
        Cast::beside::<P>(self.name, self.without, self.contender)
    }
}
