//! From a name to a protocol, without a type parameter in the caller's hands.

use alloc::string::String;

use holdall_core::{Protocol, Unsupported};

/// Something to be done with a protocol that is known only by name.
pub trait Visitor {
    /// What comes of it.
    type Out;

    /// Does it.
    fn visit<P: Protocol>(self) -> Self::Out;
}

/// There is no protocol of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no protocol '{name}'")]
pub struct Unknown {
    /// The name.
    pub name: String,
}

/// The family and the variant of a name: `coordinator:skip` is `coordinator` and `skip`.
pub fn split_name(name: &str) -> (&str, Option<&str>) {
    match name.split_once(':') {
        Some((family, variant)) => (family, Some(variant)),
        None => (name, None),
    }
}

/// The variant of the protocol `P` in the variant of one that is built over it: `linked:datta:brief` has
/// the variant `datta:brief`, and that of `datta` in it is `brief`.
pub(crate) fn inner_variant<Outer: Protocol, P: Protocol>(
    variant: Option<&str>,
) -> Result<Option<&str>, Unsupported> {
    match split_name(variant.unwrap_or_default()) {
        (family, variant) if family == P::FAMILY => Ok(variant),
        (other, _) => {
            Err(Unsupported::variant(Outer::FAMILY, other, "a protocol it is built over"))
        }
    }
}

/// The variant in the name of a protocol: what follows its family, without the colon. `reserve=2`
/// in `coordinator:reserve=2`; `skeen` in `rhee:skeen`, and `+:skeen` in `rhee+:skeen`.
pub fn variant_of<P: Protocol>(name: &str) -> Option<&str> {
    let rest = name.strip_prefix(P::FAMILY)?;
    Some(rest.strip_prefix(':').unwrap_or(rest)).filter(|variant| !variant.is_empty())
}

/// Whether a name is this one, or this one with a variant.
pub fn is_named(name: &str, this: &str) -> bool {
    name.strip_prefix(this).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
}

/// Writes a registry: `with`, which finds a protocol by name, and `names`, which lists them.
/// A new protocol is one more line: its type, found by its family and listed under its names; or,
/// for one of several types of a family, the type and its own names, `Rhee<Skeen> as "rhee:skeen"`.
#[macro_export]
macro_rules! registry {
    (@names [$default:expr]) => { $default };
    (@names [$default:expr] $($name:literal)|+) => { &[$($name),+] };
    ($($protocol:ty $(as $($name:literal)|+)?),+ $(,)?) => {
        /// Visits the protocol of that name; the variant after the colon is the visitor's to pass on.
        ///
        /// # Errors
        /// If no protocol has that name.
        pub fn with<V: $crate::Visitor>(name: &str, visitor: V) -> Result<V::Out, $crate::Unknown> {
            $(
                let known: &[&str] = $crate::registry!(
                    @names [&[<$protocol as ::holdall_core::Protocol>::FAMILY]] $($($name)|+)?
                );
                if known.iter().any(|known| $crate::is_named(name, known)) {
                    return Ok(visitor.visit::<$protocol>());
                }
            )+
            Err($crate::Unknown { name: name.into() })
        }

        /// Every name worth listing.
        pub fn names() -> impl Iterator<Item = &'static str> {
            let lists: &[&[&str]] = &[$($crate::registry!(
                @names [<$protocol as ::holdall_core::Protocol>::NAMES] $($($name)|+)?
            )),+];
            lists.iter().copied().flatten().copied()
        }
    };
}

/// For a family without variants: an error if one is named.
pub(crate) fn plain(family: &'static str, variant: Option<&str>) -> Result<(), Unsupported> {
    match variant {
        None => Ok(()),
        Some(v) => Err(Unsupported::NoVariants { family, variant: v.into() }),
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use holdall_core::{NodeId, Options, Pool, Topology};

    use super::*;
    use crate::datta::Two;
    use crate::linked::Linked;
    use crate::rhee::Rhee;
    use crate::skeen::Skeen;

    /// Whether a variant that there is not is refused, by whoever is asked first.
    struct Refuses;

    impl Visitor for Refuses {
        type Out = bool;

        fn visit<P: Protocol>(self) -> bool {
            let variant = Some("no-such-variant");
            let topology =
                Topology::of_pools(vec![Pool { capacity: 1, node: NodeId(0), listed: false }]);
            let options = Options { variant: variant.map(Into::into), ..Options::default() };
            P::about(variant).is_err() && P::new(&topology, &options).is_err()
        }
    }

    #[test]
    fn names_have_a_family_and_a_variant() {
        assert_eq!(split_name("linked:datta:brief"), ("linked", Some("datta:brief")));
        assert_eq!(split_name("ordered"), ("ordered", None));
        assert_eq!(variant_of::<Two>("datta"), None);
        assert_eq!(variant_of::<Two>("datta:brief"), Some("brief"));
        assert_eq!(variant_of::<Rhee<Skeen>>("rhee+:skeen"), Some("+:skeen"));
        assert_eq!(variant_of::<Two>("ordered"), None);
        assert!(is_named("datta", "datta") && is_named("datta:brief", "datta"));
        assert!(!is_named("datta-token", "datta") && !is_named("dat", "datta"));
    }

    #[test]
    fn a_protocol_over_another_knows_that_by_name() {
        let inner = inner_variant::<Linked<Two>, Two>;
        assert_eq!(inner(Some("datta:brief")), Ok(Some("brief")));
        assert_eq!(inner(Some("datta")), Ok(None));
        assert!(inner(Some("skeen")).is_err() && inner(None).is_err());
    }

    #[test]
    fn variants_that_there_are_not_are_refused() {
        for name in crate::names() {
            assert_eq!(crate::with(name, Refuses), Ok(true), "{name}");
        }
    }
}
