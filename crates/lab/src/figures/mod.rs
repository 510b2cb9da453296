//! The study: mean response and messages against the number of conflicting users.
//!
//! Source: I. Rhee, "A modular algorithm for resource allocation", section 6, Figures 7 to 11: 100
//! users and 100 resources, requirements drawn once for each run, delay 50, think 25, service 25
//! to 100; each point is run until its 95 % confidence interval is under 5 % of the mean.
//!
//! A [`Study`] says how much is run, a [`Set`] which protocols are drawn together, [`points`] what
//! has to be measured for that. [`measure`] measures points side by side; a [`Row`] is what came of
//! one. [`Table`] is the file of all rows, from which alone [`figures`] draws and [`claims`] judges.
//!
//! # Invariants
//! - A row is a function of the study and its point: neither threads nor interruptions change it.
//! - A row tells all its settings, so that rows of different studies never get mixed.

mod bars;
mod chart;
mod claims;
mod comparison;
mod drawing;
mod judge;
mod point;
mod scale;
mod sets;
mod table;

pub use self::bars::{BarChart, BarRow};
pub use self::claims::claims;
pub use self::comparison::{Curve, Said, comparison, curves, waits};
pub use self::drawing::{Figure, figures};
pub use self::point::{Failed, Point, Row, Sizes, can_be_measured, measure, points};
pub use self::sets::{Line, Set, paper_and_today};
pub use self::table::{BadTable, FILE, Table, missing};

/// Mean times of use for each pool that the paper looks at, in ticks.
pub const SERVICES: [u32; 4] = [25, 50, 75, 100];

/// How much is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Study {
    /// How many pools requests name, on average: one point of every line for each.
    pub per_request: Vec<u32>,
    /// The most graphs for a point, whatever its confidence interval.
    pub graphs: u32,
    /// How long a run is; the first fifth is warm-up.
    pub ticks: u64,
    /// Where all chance comes from.
    pub seed: u64,
}

impl Study {
    /// What the published figures are made of: about 300 graphs for each kind of request.
    pub fn full() -> Self {
        Self { per_request: vec![1, 2, 3, 4, 5, 6, 8, 10], graphs: 40, ticks: 600_000, seed: 1 }
    }

    /// Enough to see the shape of things.
    pub fn quick() -> Self {
        Self { per_request: vec![1, 2, 4, 6, 8], graphs: 5, ticks: 60_000, seed: 1 }
    }
}
