//! Rules of a protocol that can be taken away, to see what each is for.

use serde::Serialize;

use crate::about::Options;

/// A rule of a protocol that can be taken away for study.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// Its name, for `--without`.
    pub name: &'static str,
    /// What it says.
    pub says: &'static str,
}

impl Options {
    /// Whether a rule is in force.
    pub fn keeps(&self, rule: &str) -> bool {
        self.without.iter().all(|name| name != rule)
    }
}

/// Writes a struct with a `bool` for each rule that tells whether it is in force, the list `ALL` of the
/// rules with their names, and `new`, which makes the struct of [`Options`].
///
/// ```
/// holdall_core::rules! {
///     /// The rules in force.
///     struct Rules {
///         sorted "sorted": "pools are asked for in their global order",
///         both_ends "both-ends": "whoever comes first is served first",
///     }
/// }
/// let options = holdall_core::Options { without: vec!["both-ends".into()], ..Default::default() };
/// let rules = Rules::new(&options);
/// assert!(rules.sorted && !rules.both_ends);
/// assert_eq!(Rules::ALL[1].name, "both-ends");
/// ```
#[macro_export]
macro_rules! rules {
    (
        $(#[$meta:meta])*
        $vis:vis struct $name:ident { $($rule:ident $called:literal: $says:literal),+ $(,)? }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug)]
        $vis struct $name {
            $($vis $rule: bool,)+
        }

        impl $name {
            /// What there is, by name.
            $vis const ALL: &'static [$crate::Rule] =
                &[$($crate::Rule { name: $called, says: $says }),+];

            /// Which of them are in force.
            $vis fn new(options: &$crate::Options) -> Self {
                Self { $($rule: options.keeps($called),)+ }
            }
        }
    };
}
