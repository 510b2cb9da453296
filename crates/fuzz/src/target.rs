//! A protocol to be tried, with its type forgotten.

use holdall_core::{About, Options, Protocol, Unsupported};
use holdall_protocols::{Unknown, Visitor, variant_of};

use crate::plan::Plan;
use crate::random::Random;
use crate::roles::{MakeRoles, roles_of};
use crate::world::World;
use crate::{Failure, Mode, Summary};

/// How many of the last events a failure shows.
const SHOWN: usize = 40;

/// A protocol to be tried. Whoever makes one chooses where it comes from.
#[derive(Clone, Debug)]
pub struct Target {
    name: String,
    about: About,
    options: Options,
    make: MakeRoles,
}

impl Target {
    /// Any protocol.
    ///
    /// # Errors
    /// If there is no such variant of it.
    pub fn of<P: Protocol>(name: &str, options: Options) -> Result<Self, Unsupported> {
        let about = P::about(options.variant.as_deref())?;
        Ok(Self { name: name.into(), about, options, make: roles_of::<P> })
    }

    /// The protocol that `holdall-protocols` lists under this name, without some of its rules.
    ///
    /// # Errors
    /// If there is none, or no such variant.
    pub fn named(name: &str, without: &[&str]) -> Result<Self, NoTarget> {
        let without = without.iter().map(|rule| (*rule).into()).collect();
        Ok(holdall_protocols::with(name, Named(name, without))??)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Makes one run.
    ///
    /// # Errors
    /// If it goes wrong.
    pub fn run(&self, mode: Mode, seed: u64) -> Result<Summary, Box<Failure>> {
        self.run_showing(mode, seed, 0).or_else(|_| self.run_showing(mode, seed, SHOWN))
    }

    /// Makes one run, and keeps all that happened if it goes wrong.
    ///
    /// # Errors
    /// If it goes wrong.
    pub fn run_traced(&self, mode: Mode, seed: u64) -> Result<Summary, Box<Failure>> {
        self.run_showing(mode, seed, usize::MAX)
    }

    /// Makes one run, and keeps so many of the last events if it goes wrong. A run is made again to
    /// see what happened, because telling it takes longer than making it.
    fn run_showing(&self, mode: Mode, seed: u64, shown: usize) -> Result<Summary, Box<Failure>> {
        let mut random = Random::new(seed);
        let plan = Plan::draw(&self.about.assumes, mode, &mut random);
        let roles = (self.make)(&plan.topology, &self.options);
        let roles = roles.expect("the variant is known by now");
        let mut world = World::new(roles, &self.about, plan, mode, random, shown);
        world.run().map_err(|problem| {
            Box::new(Failure {
                protocol: self.name.clone(),
                without: self.options.without.clone(),
                mode,
                seed,
                step: world.now(),
                problem,
                trace: world.trace(),
            })
        })
    }
}

/// A name that leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoTarget {
    /// There is no such protocol.
    #[error(transparent)]
    Unknown(#[from] Unknown),
    /// The protocol has no such variant.
    #[error(transparent)]
    Variant(#[from] Unsupported),
}

struct Named<'a>(&'a str, Vec<String>);

impl Visitor for Named<'_> {
    type Out = Result<Target, Unsupported>;

    fn visit<P: Protocol>(self) -> Self::Out {
        let variant = variant_of::<P>(self.0).map(Into::into);
        Target::of::<P>(self.0, Options { variant, without: self.1 })
    }
}
