//! How a claim is judged: by what was measured, with its confidence, and by nothing else.

use std::collections::BTreeMap;
use std::fmt;

use super::{Row, Sizes};

/// What data say of a claim, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verdict {
    Holds,
    InPart,
    /// The data do not tell.
    Open,
    Fails,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Holds => "**holds**",
            Self::InPart => "**in part**",
            Self::Open => "open",
            Self::Fails => "**fails**",
        })
    }
}

/// A verdict, and what it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Finding {
    pub(super) measured: String,
    pub(super) verdict: Verdict,
}

/// A mean with half the width of its confidence interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Value {
    pub(super) mean: f64,
    pub(super) around: f64,
}

impl Value {
    /// Whether it is below the other by more than chance explains.
    pub(super) fn below(self, other: Self) -> bool {
        other.mean - self.mean > self.around.hypot(other.around)
    }
}

/// Which figure of a row is looked at.
pub(super) type Measured = fn(&Row) -> (Option<f64>, Option<f64>);

/// All protocols under the same conditions.
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub(super) service: u32,
    /// The mean number of conflicting users.
    pub(super) conflicts: f64,
    values: BTreeMap<String, Value>,
}

impl Case {
    /// The value of a protocol, if there is one.
    pub(super) fn get(&self, protocol: &str) -> Option<Value> {
        self.values.get(protocol).copied()
    }

    /// How much everything has grown since another case.
    pub(super) fn since(&self, first: &Self) -> Self {
        let grown = |(protocol, last): (&String, &Value)| {
            let first = first.get(protocol)?;
            let mean = last.mean - first.mean;
            Some((protocol.clone(), Value { mean, around: last.around.hypot(first.around) }))
        };
        Self { values: self.values.iter().filter_map(grown).collect(), ..*self }
    }
}

/// The conditions that were measured, those with few conflicts first.
pub(super) fn cases(rows: &[Row], sizes: Sizes, measured: Measured) -> Vec<Case> {
    let mut cases: BTreeMap<(u32, u32), Case> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.sizes == sizes) {
        let (Some(mean), around) = measured(row) else { continue };
        let case = cases.entry((row.service, row.per_request)).or_insert_with(|| Case {
            service: row.service,
            conflicts: row.conflicts,
            values: BTreeMap::new(),
        });
        let value = Value { mean, around: around.unwrap_or(0.0) };
        case.values.insert(row.protocol.clone(), value);
    }
    cases.into_values().collect()
}

/// Claim: some of these are better than another by up to so many percent. It holds if the best case
/// is better beyond chance and comes as far, within its confidence.
pub(super) fn up_to(cases: &[Case], these: [(&str, &str); 2], than: &str, claimed: f64) -> Finding {
    let (mut told, mut verdict) = (Vec::new(), None);
    for (short, protocol) in these {
        let pairs = cases.iter().filter_map(|case| {
            Some((case, case.get(protocol)?, case.get(than).filter(|than| than.mean > 0.0)?))
        });
        let gain = |(_, a, b): &(&Case, Value, Value)| 100.0 * (1.0 - a.mean / b.mean);
        let Some(best) = pairs.max_by(|a, b| gain(a).total_cmp(&gain(b))) else { continue };
        let (case, a, b) = best;
        // The errors of a quotient add up like the sides of a right angle.
        let error = (a.around / b.mean).hypot(a.mean * b.around / b.mean.powi(2));
        let reached = gain(&best) + 100.0 * error >= claimed;
        let found = match (a.below(b), reached) {
            (true, true) => Verdict::Holds,
            (true, false) => Verdict::InPart,
            (false, true) => Verdict::Open,
            (false, false) => Verdict::Fails,
        };
        verdict = Some(verdict.map_or(found, |verdict: Verdict| verdict.min(found)));
        told.push(if gain(&best) > 0.0 {
            let (service, conflicts) = (case.service, case.conflicts);
            format!("{short} up to {:.0} % (service {service} at {conflicts:.1})", gain(&best))
        } else {
            format!("{short} nowhere better")
        });
    }
    Finding { measured: or_nothing(told.join("; ")), verdict: verdict.unwrap_or(Verdict::Open) }
}

/// What one case says of a claim about all cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    Yes,
    No,
    /// Too close to tell.
    Unsure,
}

/// Says yes if one is below all others beyond chance, no if some other is below it.
pub(super) fn lowest(one: Value, others: &[Value]) -> Says {
    if others.iter().any(|other| other.below(one)) {
        Says::No
    } else if others.iter().all(|other| one.below(*other)) {
        Says::Yes
    } else {
        Says::Unsure
    }
}

/// Claim: so it is in every case. A case that says nothing is left out.
pub(super) fn everywhere<'a>(
    cases: impl IntoIterator<Item = &'a Case>,
    says: impl Fn(&Case) -> Option<Says>,
) -> Finding {
    let (mut yes, mut all) = (0, 0);
    let mut against: BTreeMap<u32, Vec<String>> = BTreeMap::new();
    for case in cases {
        let Some(says) = says(case) else { continue };
        all += 1;
        match says {
            Says::Yes => yes += 1,
            Says::No => {
                against.entry(case.service).or_default().push(format!("{:.1}", case.conflicts));
            }
            Says::Unsure => {}
        }
    }
    let no: usize = against.values().map(Vec::len).sum();
    let verdict = match (yes, no) {
        (0, 0) => Verdict::Open,
        (0, _) => Verdict::Fails,
        (_, 0) => Verdict::Holds,
        _ => Verdict::InPart,
    };
    if all == 0 {
        return Finding { measured: or_nothing(String::new()), verdict };
    }
    let mut measured = format!("yes {yes}, no {no}, too close {}", all - yes - no);
    if no > 0 && no < all {
        let told = against.iter().map(|(service, at)| format!("{service} at {}", at.join(", ")));
        measured += &format!("; not for service {}", told.collect::<Vec<_>>().join("; "));
    }
    Finding { measured, verdict }
}

fn or_nothing(text: String) -> String {
    if text.is_empty() { "no data".into() } else { text }
}
