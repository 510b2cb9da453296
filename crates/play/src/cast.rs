//! A protocol to be played, with its type forgotten.

use holdall_core::{About, Options, Protocol, Topology, Unsupported};
use holdall_protocols::{Unknown, Visitor, variant_of};
use holdall_sim::Contender;

use crate::roles::{Assembled, assemble};

/// A protocol to be played. Whoever makes one chooses where the protocol comes from: [`Cast::of`]
/// takes any, [`Cast::named`] one that `holdall-protocols` lists.
#[derive(Clone, Debug)]
pub struct Cast {
    name: String,
    about: About,
    options: Options,
    contender: Contender,
    assemble: fn(&Topology, &Options) -> Assembled,
}

/// There is no such cast.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NoCast {
    /// There is no such protocol.
    #[error(transparent)]
    Unknown(#[from] Unknown),
    /// The protocol has no such variant.
    #[error(transparent)]
    Variant(#[from] Unsupported),
    /// The protocol cannot be simulated.
    #[error(transparent)]
    Simulated(#[from] holdall_sim::Error),
    /// The protocol has no such rule.
    #[error("{protocol} has no rule '{rule}' to do without; its rules: {}", rules.join(", "))]
    Rule {
        /// Its name.
        protocol: String,
        /// What was to be taken away.
        rule: String,
        /// What can be.
        rules: Vec<&'static str>,
    },
}

impl Cast {
    /// Any protocol, under its full name, without some of its rules.
    ///
    /// # Errors
    /// If there is no such variant of it, or no such rule.
    pub fn of<P: Protocol>(name: &str, without: &[String]) -> Result<Self, NoCast> {
        let options =
            Options { variant: variant_of::<P>(name).map(Into::into), without: without.to_vec() };
        let contender = Contender::of::<P>(name, options)?;
        Self::beside::<P>(name, without, contender)
    }

    /// The protocol that `holdall-protocols` lists under this name, without some of its rules.
    ///
    /// # Errors
    /// If there is no such protocol, no such variant, or no such rule.
    #[inline] // so that it is compiled, for every protocol there is, only where it is used
    pub fn named(name: &str, without: &[String]) -> Result<Self, NoCast> {
        holdall_protocols::with(name, Named { name, without })?
    }

    /// Any protocol, under its full name, without some of its rules, to be compared with what the simulator
    /// says of this contender.
    ///
    /// # Errors
    /// If there is no such variant of it, or no such rule.
    pub fn beside<P: Protocol>(
        name: &str,
        without: &[String],
        contender: Contender,
    ) -> Result<Self, NoCast> {
        let variant = variant_of::<P>(name);
        let about = P::about(variant)?;
        let is_rule = |name: &&String| about.rules.iter().any(|rule| rule.name == **name);
        if let Some(rule) = without.iter().find(|name| !is_rule(name)) {
            let rules = about.rules.iter().map(|rule| rule.name).collect();
            return Err(NoCast::Rule { protocol: name.into(), rule: rule.clone(), rules });
        }
        let options = Options { variant: variant.map(Into::into), without: without.to_vec() };
        Ok(Self { name: name.into(), about, options, contender, assemble: assemble::<P> })
    }

    /// What it is called in the report.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it says of itself.
    pub fn about(&self) -> &About {
        &self.about
    }

    pub(crate) fn contender(&self) -> &Contender {
        &self.contender
    }

    /// The protocol in a system, with no role in it yet.
    pub(crate) fn assemble(&self, topology: &Topology) -> Assembled {
        (self.assemble)(topology, &self.options)
    }
}

struct Named<'a> {
    name: &'a str,
    without: &'a [String],
}

impl Visitor for Named<'_> {
    type Out = Result<Cast, NoCast>;

    fn visit<P: Protocol>(self) -> Self::Out {
        // The simulator has its own copy of every listed protocol; another would only take time to compile.
        let contender = Contender::named(self.name)?.without(self.without);
        Cast::beside::<P>(self.name, self.without, contender)
    }
}
