//! Which protocols are drawn together.

use super::Sizes;

/// A line in the figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// What it is called there.
    pub short: String,
    /// The protocol, as the registry knows it, or the oracle.
    pub protocol: String,
}

impl Line {
    /// A line with a name of its own.
    pub fn new(short: &str, protocol: &str) -> Self {
        Self { short: short.into(), protocol: protocol.into() }
    }
}

/// Figures with the same lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// Part of the names of its files.
    pub name: String,
    /// What it shows.
    pub title: String,
    /// How large the requests are.
    pub sizes: Sizes,
    /// What is compared.
    pub lines: Vec<Line>,
}

impl Set {
    /// Any protocols, compared on requests of one size.
    pub fn own(protocols: &[String]) -> Self {
        Self {
            name: "own".into(),
            title: "a comparison".into(),
            sizes: Sizes::Fixed,
            lines: protocols.iter().map(|name| Line::new(name, name)).collect(),
        }
    }
}

/// The paper's abbreviations.
const PAPER: [(&str, &str); 5] = [
    ("CM", "chandy-misra"),
    ("CS", "choy-singh"),
    ("AS", "awerbuch-saks"),
    ("CMR", "rhee:chandy-misra"),
    ("CSR", "rhee:choy-singh"),
];

/// What we would use today, and the paper's for comparison.
const TODAY: [(&str, &str); 9] = [
    ("house", "house"),
    ("skr", "skr"),
    ("walk", "walk"),
    ("ordered", "ordered"),
    ("coordinator:fifo", "coordinator:fifo"),
    ("coordinator:skip", "coordinator:skip"),
    ("coordinator:reserve=2", "coordinator:reserve=2"),
    ("oracle", holdall_sim::ORACLE),
    ("CMR", "rhee:chandy-misra"),
];

/// The paper's five with requests of one size and of unequal sizes, and what we would use today.
pub fn paper_and_today() -> [Set; 3] {
    let set = |name: &str, title: &str, sizes, lines: &[(&str, &str)]| Set {
        name: name.into(),
        title: title.into(),
        sizes,
        lines: lines.iter().map(|(short, protocol)| Line::new(short, protocol)).collect(),
    };
    [
        set("fixed", "the paper's five, requests of one size", Sizes::Fixed, &PAPER),
        set("unequal", "the paper's five, requests of unequal sizes", Sizes::Unequal, &PAPER),
        set("today", "what we would use today", Sizes::Fixed, &TODAY),
    ]
}
