//! Protocols by name, as a person types them: the sound ones and the [`specimens`]. A [`Chosen`] holds
//! all that is compiled for one protocol; whatever uses it is compiled once.

#![forbid(unsafe_code)]

pub mod questions;
pub mod roles;
pub mod specimens;
mod view;

use std::fmt;
use std::sync::Arc;

use holdall_core::{About, Options, Protocol, Topology, Unsupported};
use holdall_fuzz::Target;
use holdall_play::{Cast, NoCast};
use holdall_protocols::{Unknown, Visitor, split_name, variant_of};
use holdall_sim::Contender;

use self::questions::Question;
use self::roles::{Roles, roles_of};
pub use self::view::View;

/// What the name of a paper's own text begins with. Its rules are the repairs, each named after
/// the defect in `docs/errata.md` that it repairs.
pub const PRINTED: &str = "printed-";

/// A protocol as a person names it.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// The name, with its variant.
    pub name: String,
    /// What it says of itself.
    pub about: About,
    /// How to run it.
    pub options: Options,
    /// [`Protocol::DRIFTS`].
    pub drifts: bool,
    /// [`Protocol::STAGES`].
    pub stages: u32,
    of: Compiled,
    /// The defects named, of a paper's own text.
    as_printed: Option<Vec<String>>,
}

/// What is compiled for a protocol, to be had without its type.
#[derive(Clone)]
struct Compiled {
    cast: fn(&str, &[String], Contender) -> Result<Cast, NoCast>,
    contender: fn(&str, Options) -> Result<Contender, Unsupported>,
    roles: Arc<MakeRoles>,
    target: fn(&str, Options) -> Result<Target, Unsupported>,
}

/// Makes the roles of a protocol for a system.
type MakeRoles = dyn Fn(&Topology, &Options) -> Result<Box<dyn Roles>, Unsupported> + Send + Sync;

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Compiled")
    }
}

/// A name that leads nowhere, or a rule that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// There is no such protocol.
    #[error("no protocol '{name}'; {}", match near {
        Some(near) => format!("did you mean '{near}'?"),
        None => "`holdall protocols` lists them".into(),
    })]
    Unknown {
        /// What was asked for.
        name: String,
        /// What may have been meant.
        near: Option<&'static str>,
    },
    /// The protocol has no such variant.
    #[error(transparent)]
    Variant(#[from] Unsupported),
    /// The protocol has no such rule.
    #[error("{protocol} has no rule '{rule}' to do without; its rules: {}", rules.join(", "))]
    Rule {
        /// The protocol.
        protocol: String,
        /// What was to be taken away.
        rule: String,
        /// What can be.
        rules: Vec<&'static str>,
    },
    /// No such defect is known of the paper's own text.
    #[error("no defect '{defect}' is known of {name} as printed; known are: {}", known.join(", "))]
    Defect {
        /// The protocol.
        name: String,
        /// What was asked for.
        defect: String,
        /// What there is.
        known: Vec<&'static str>,
    },
    /// The paper's own text of it is not kept.
    #[error(
        "no paper's text of '{name}' is kept as it was printed; of these there is: {}",
        kept.join(", ")
    )]
    NotPrinted {
        /// What was asked for.
        name: String,
        /// What there is.
        kept: Vec<&'static str>,
    },
}

impl From<Unknown> for BadName {
    fn from(Unknown { name }: Unknown) -> Self {
        unknown(name, holdall_protocols::names().chain(specimens::names()))
    }
}

/// There is no protocol of that name; one of these may have been meant.
pub fn unknown(name: String, known: impl Iterator<Item = &'static str>) -> BadName {
    let near = known
        .map(|known| (strsim::normalized_damerau_levenshtein(&name, known), known))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .filter(|(likeness, _)| *likeness > 0.3)
        .map(|(_, near)| near);
    BadName::Unknown { name, near }
}

impl Chosen {
    /// Looks a protocol up.
    ///
    /// # Errors
    /// If there is no such protocol, no such variant, or no such rule to do without.
    pub fn new(name: &str, without: &[String]) -> Result<Self, BadName> {
        with(name, Choose { name, without })?
    }

    /// Looks up a paper's own text of a protocol: with all the defects known of it, or with only
    /// those named and everything else repaired.
    ///
    /// # Errors
    /// If that text is not kept, or no such defect is known of it.
    pub fn as_printed(name: &str, defects: &[String]) -> Result<Self, BadName> {
        let printed = format!("{PRINTED}{name}");
        let (family, _) = split_name(&printed);
        if !specimens::names().any(|specimen| split_name(specimen).0 == family) {
            let kept = specimens::names().filter_map(|name| name.strip_prefix(PRINTED)).collect();
            return Err(BadName::NotPrinted { name: name.into(), kept });
        }
        let mut chosen = Self::new(&printed, defects).map_err(|bad| match bad {
            BadName::Rule { rule: defect, rules: known, .. } => {
                BadName::Defect { name: name.into(), defect, known }
            }
            other => other,
        })?;
        if defects.is_empty() {
            let all: Vec<_> = chosen.about.rules.iter().map(|rule| rule.name.into()).collect();
            chosen = Self::new(&printed, &all)?;
        }
        Ok(Self { as_printed: Some(defects.to_vec()), ..chosen })
    }

    /// The name with the options that choose it, as they are typed.
    pub fn as_typed(&self) -> String {
        match &self.as_printed {
            Some(defects) => {
                let name = self.name.strip_prefix(PRINTED).unwrap_or(&self.name);
                format!("{name} --as-printed {}", defects.join(",")).trim_end().into()
            }
            None => {
                let without = self.options.without.iter();
                without.fold(self.name.clone(), |name, rule| format!("{name} --without {rule}"))
            }
        }
    }

    /// A protocol that need not be in any registry.
    ///
    /// # Errors
    /// If there is no such variant, or no such rule to do without.
    pub fn of<P: Protocol>(name: &str, without: &[String]) -> Result<Self, BadName> {
        Self::asking::<P>(name, without, &[])
    }

    /// The same, with questions that the checker is to answer.
    ///
    /// # Errors
    /// If there is no such variant, or no such rule to do without.
    pub fn asking<P: Protocol>(
        name: &str,
        without: &[String],
        questions: &'static [Question<P>],
    ) -> Result<Self, BadName> {
        Self::compiled(name, without, questions, None)
    }

    /// The same, with a view of its roles.
    ///
    /// # Errors
    /// If there is no such variant, or no such rule to do without.
    pub fn viewed<P: Protocol>(
        name: &str,
        without: &[String],
        view: View<P>,
    ) -> Result<Self, BadName> {
        Self::compiled(name, without, &[], Some(view))
    }

    fn compiled<P: Protocol>(
        name: &str,
        without: &[String],
        questions: &'static [Question<P>],
        view: Option<View<P>>,
    ) -> Result<Self, BadName> {
        let variant = variant_of::<P>(name);
        let about = P::about(variant)?;
        let is_rule = |name: &&String| about.rules.iter().any(|rule| rule.name == **name);
        if let Some(rule) = without.iter().find(|name| !is_rule(name)) {
            let rules = about.rules.iter().map(|rule| rule.name).collect();
            return Err(BadName::Rule { protocol: name.into(), rule: rule.clone(), rules });
        }
        let options = Options { variant: variant.map(Into::into), without: without.to_vec() };
        Ok(Self {
            name: name.into(),
            about,
            options,
            drifts: P::DRIFTS,
            stages: P::STAGES,
            as_printed: None,
            of: Compiled {
                cast: Cast::beside::<P>,
                contender: Contender::of::<P>,
                roles: Arc::new(move |topology, options| {
                    roles_of::<P>(topology, options, questions, view)
                }),
                target: Target::of::<P>,
            },
        })
    }

    /// It, to be simulated.
    ///
    /// # Errors
    /// Never, since its variant is known.
    pub fn contender(&self) -> Result<Contender, Unsupported> {
        (self.of.contender)(&self.name, self.options.clone())
    }

    /// It, to be played.
    ///
    /// # Errors
    /// Never, since its variant and its rules are known.
    pub fn cast(&self) -> Result<Cast, NoCast> {
        (self.of.cast)(&self.name, &self.options.without, self.contender()?)
    }

    /// It, to be run at random.
    ///
    /// # Errors
    /// Never, since its variant is known.
    pub fn target(&self) -> Result<Target, Unsupported> {
        (self.of.target)(&self.name, self.options.clone())
    }

    /// Its roles in a system, for the checker.
    ///
    /// # Errors
    /// If it cannot serve such a system.
    pub fn roles(&self, topology: &Topology) -> Result<Box<dyn Roles>, Unsupported> {
        (self.of.roles)(topology, &self.options)
    }
}

struct Choose<'a> {
    name: &'a str,
    without: &'a [String],
}

impl Visitor for Choose<'_> {
    type Out = Result<Chosen, BadName>;

    fn visit<P: Protocol>(self) -> Self::Out {
        Chosen::of::<P>(self.name, self.without)
    }
}

/// Looks up a protocol to be simulated; a yardstick ([`Contender::yardstick`]) is accepted as well.
///
/// # Errors
/// If there is no such protocol, or no such variant.
pub fn contender(name: &str) -> Result<Contender, BadName> {
    if let Some(yardstick) = Contender::yardstick(name) {
        return Ok(yardstick?);
    }
    Ok(Chosen::new(name, &[])?.contender()?)
}

/// Every sound protocol that is worth listing.
pub fn all_chosen() -> Vec<Chosen> {
    let chosen = |name| Chosen::new(name, &[]).expect("the registry knows its own names");
    holdall_protocols::names().map(chosen).collect()
}

/// Visits the protocol of that name, sound or specimen.
///
/// # Errors
/// If there is none.
pub fn with<V: Visitor>(name: &str, visitor: V) -> Result<V::Out, Unknown> {
    let (family, _) = split_name(name);
    if specimens::names().any(|specimen| split_name(specimen).0 == family) {
        specimens::with(name, visitor)
    } else {
        holdall_protocols::with(name, visitor)
    }
}
