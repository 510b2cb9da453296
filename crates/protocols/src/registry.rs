//! From a name to a protocol, without a type parameter in the caller's hands.

use alloc::format;
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown(pub String);

/// The family and the variant of a name: `coordinator:skip` is `coordinator` and `skip`.
pub fn split_name(name: &str) -> (&str, Option<&str>) {
    match name.split_once(':') {
        Some((family, variant)) => (family, Some(variant)),
        None => (name, None),
    }
}

/// Writes a registry: `with`, which finds a protocol by name, and `names`, which lists them.
/// A new protocol is one more line.
#[macro_export]
macro_rules! registry {
    ($($protocol:ty),+ $(,)?) => {
        /// Visits the protocol of that name; the variant after the colon is the visitor's to pass on.
        ///
        /// # Errors
        /// If no protocol has that name.
        pub fn with<V: $crate::Visitor>(name: &str, visitor: V) -> Result<V::Out, $crate::Unknown> {
            let (family, _) = $crate::split_name(name);
            $(
                if family == <$protocol as ::holdall_core::Protocol>::FAMILY {
                    return Ok(visitor.visit::<$protocol>());
                }
            )+
            Err($crate::Unknown(name.into()))
        }

        /// Every name worth listing.
        pub fn names() -> impl Iterator<Item = &'static str> {
            [$(<$protocol as ::holdall_core::Protocol>::NAMES),+].into_iter().flatten().copied()
        }
    };
}

/// For a family without variants: an error if one is named.
pub(crate) fn plain(family: &str, variant: Option<&str>) -> Result<(), Unsupported> {
    match variant {
        None => Ok(()),
        Some(v) => Err(Unsupported(format!("{family} has no variants, so no '{v}': use {family}"))),
    }
}
