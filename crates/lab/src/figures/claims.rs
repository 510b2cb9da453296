//! The paper's claims (section 6), each beside what was measured and a verdict that follows from it.

use std::fmt::Write as _;

use super::judge::{Case, Finding, Measured, Says, Value, cases, everywhere, lowest, up_to};
use super::{Row, SERVICES, Set, Sizes};

const CM: &str = "chandy-misra";
const CS: &str = "choy-singh";
const AS: &str = "awerbuch-saks";
const CMR: &str = "rhee:chandy-misra";
const CSR: &str = "rhee:choy-singh";
const BOTH: [(&str, &str); 2] = [("CMR", CMR), ("CSR", CSR)];

/// "small" numbers of conflicting users are below this,
const FEW: f64 = 5.0;
/// "large" ones above this.
const MANY: f64 = 20.0;
/// Response times are comparable if the longest is at most this many times the shortest,
const COMPARABLE: f64 = 1.5;
/// an increase in messages is small if there are at most this many times as many.
const SMALL: f64 = 2.0;
/// Two means part if they differ by more than this share.
const PARTED: f64 = 0.1;

const RESPONSE: Measured = |row| (row.response, row.response_ci);
const GRANTED: Measured = |row| (row.granted, row.granted_ci);
const MESSAGES: Measured = |row| (row.messages, row.messages_ci);

/// A claim and how it is judged.
struct Claim {
    text: &'static str,
    judge: fn(&[Case]) -> Finding,
}

const ON_RESPONSE: &[Claim] = &[
    Claim {
        text: "CMR and CSR show up to 60 % improvement over CS",
        judge: |cases| up_to(cases, BOTH, CS, 60.0),
    },
    Claim {
        text: "... and up to 80 % improvement over CM",
        judge: |cases| up_to(cases, BOTH, CM, 80.0),
    },
    Claim {
        text: "... and are better even than AS, up to 40 %",
        judge: |cases| up_to(cases, BOTH, AS, 40.0),
    },
    Claim {
        text: "CMR and CSR are better than CM, CS and AS when conflicts are many and the service is \
               longer than the delay",
        judge: |cases| everywhere(many(cases, |service| service > 50), both_lowest),
    },
    Claim {
        text: "... and, when conflicts are many, also at service 50 (Figure 8)",
        judge: |cases| everywhere(many(cases, |service| service == 50), both_lowest),
    },
    Claim {
        text: "CM is worst in every case",
        judge: |cases| everywhere(cases, |case| highest(case, CM, &[CS, AS, CMR, CSR])),
    },
    Claim {
        text: "CS is the best of all when conflicts are few",
        judge: |cases| {
            let few = cases.iter().filter(|case| case.conflicts < FEW);
            everywhere(few, |case| Some(lowest(case.get(CS)?, &values(case, &[CM, AS, CMR, CSR])?)))
        },
    },
    Claim {
        text: "With the number of conflicts, CS grows more steeply than CSR, CMR and AS",
        judge: |cases| {
            let services = SERVICES.map(|service| growth(cases, service));
            let grown: Vec<Case> = services.into_iter().flatten().collect();
            everywhere(&grown, |case| highest(case, CS, &[AS, CMR, CSR]))
        },
    },
    Claim {
        text: "At service 25 all but CM are comparable (Figure 7)",
        judge: |cases| everywhere(figure_7(cases), comparable),
    },
    Claim {
        text: "... and CM is slower than they are",
        judge: |cases| everywhere(figure_7(cases), |case| highest(case, CM, &[CS, AS, CMR, CSR])),
    },
    Claim {
        text: "CMR works surprisingly better than CM on average",
        judge: |cases| {
            everywhere(cases, |case| Some(lowest(case.get(CMR)?, &values(case, &[CM])?)))
        },
    },
];

const ON_MESSAGES: &[Claim] = &[
    Claim {
        text: "CMR needs fewer messages than AS (Figure 11)",
        judge: |cases| {
            everywhere(figure_11(cases), |case| Some(lowest(case.get(CMR)?, &values(case, &[AS])?)))
        },
    },
    Claim {
        text: "... and so does CSR",
        judge: |cases| {
            everywhere(figure_11(cases), |case| Some(lowest(case.get(CSR)?, &values(case, &[AS])?)))
        },
    },
    Claim {
        text: "CMR naturally needs more messages than CM",
        judge: |cases| everywhere(figure_11(cases), |case| highest(case, CMR, &[CM])),
    },
    Claim {
        text: "... and CSR than CS",
        judge: |cases| everywhere(figure_11(cases), |case| highest(case, CSR, &[CS])),
    },
    Claim {
        text: "The increase from CM to CMR is small (Figure 11)",
        judge: |cases| everywhere(figure_11(cases), |case| small_increase(case, CMR, CM)),
    },
    Claim {
        text: "... and that from CS to CSR (Figure 11)",
        judge: |cases| everywhere(figure_11(cases), |case| small_increase(case, CSR, CS)),
    },
];

/// Not the paper's: what our own repair of its algorithm is to be measured by.
const OURS: Claim = Claim {
    text: "`skr` is below CMR",
    judge: |cases| everywhere(cases, |case| Some(lowest(case.get("skr")?, &[case.get(CMR)?]))),
};

fn values(case: &Case, protocols: &[&str]) -> Option<Vec<Value>> {
    protocols.iter().map(|protocol| case.get(protocol)).collect()
}

fn highest(case: &Case, one: &str, others: &[&str]) -> Option<Says> {
    let turned = |value: Value| Value { mean: -value.mean, ..value };
    let others: Vec<Value> = values(case, others)?.into_iter().map(turned).collect();
    Some(lowest(turned(case.get(one)?), &others))
}

/// Whether one is at most so many times another, as far as chance lets it be told.
fn at_most(one: Value, times: f64, other: Value) -> Says {
    lowest(one, &[Value { mean: times * other.mean, around: times * other.around }])
}

/// Whether all but CM take about as long.
fn comparable(case: &Case) -> Option<Says> {
    let mut values = values(case, &[CS, AS, CMR, CSR])?;
    values.sort_by(|a, b| a.mean.total_cmp(&b.mean));
    Some(at_most(*values.last()?, COMPARABLE, *values.first()?))
}

fn small_increase(case: &Case, one: &str, subroutine: &str) -> Option<Says> {
    Some(at_most(case.get(one)?, SMALL, case.get(subroutine)?))
}

/// Whether each of Rhee's is below each of the others.
fn both_lowest(case: &Case) -> Option<Says> {
    let others = values(case, &[CM, CS, AS])?;
    Some(match [CMR, CSR].map(|one| Some(lowest(case.get(one)?, &others))) {
        [Some(Says::Yes), Some(Says::Yes)] => Says::Yes,
        [Some(Says::No), Some(_)] | [Some(_), Some(Says::No)] => Says::No,
        [None, _] | [_, None] => return None,
        _ => Says::Unsure,
    })
}

fn many(cases: &[Case], service: fn(u32) -> bool) -> impl Iterator<Item = &Case> {
    cases.iter().filter(move |case| case.conflicts > MANY && service(case.service))
}

fn figure_7(cases: &[Case]) -> impl Iterator<Item = &Case> {
    cases.iter().filter(|case| case.service == 25)
}

fn figure_11(cases: &[Case]) -> impl Iterator<Item = &Case> {
    cases.iter().filter(|case| case.service == 100)
}

/// How much everything grows from the fewest conflicts to the most.
fn growth(cases: &[Case], service: u32) -> Option<Case> {
    let at_service = || cases.iter().filter(|case| case.service == service);
    let first = at_service().min_by(|a, b| a.conflicts.total_cmp(&b.conflicts))?;
    let last = at_service().max_by(|a, b| a.conflicts.total_cmp(&b.conflicts))?;
    (first.conflicts < last.conflicts).then(|| last.since(first))
}

/// The claims, the verdicts and the numbers behind them, as Markdown.
pub fn claims(sets: &[Set], rows: &[Row]) -> String {
    let mut text = String::from("# What the paper claims, and what was measured\n\n");
    text += &preface(rows);
    for (sizes, name) in [(Sizes::Fixed, "one size"), (Sizes::Unequal, "unequal sizes")] {
        if rows.iter().any(|row| row.sizes == sizes && row.protocol == CMR) {
            text += &format!("\n## Requests of {name}\n\n{HEADER}");
            text += &judged(rows, sizes, ON_RESPONSE, RESPONSE, Some(GRANTED));
            text += &judged(rows, sizes, ON_MESSAGES, MESSAGES, None);
        }
    }
    if rows.iter().any(|row| row.protocol == "skr") {
        text += &format!("\n## Our own\n\n{HEADER}");
        let ours = [(" in response", RESPONSE, Some(GRANTED)), (" in messages", MESSAGES, None)];
        for (what, measured, granted) in ours {
            let claim = Claim { text: OURS.text, ..OURS };
            let line = judged(rows, Sizes::Fixed, &[claim], measured, granted);
            text += &line.replacen(OURS.text, &format!("{}{what}", OURS.text), 1);
        }
    }
    text += &parted(rows);
    for set in sets {
        text += &numbers(set, rows);
    }
    text
}

const HEADER: &str = "| claim | measured | by the granted alone | verdict |\n|---|---|---|---|\n";

fn preface(rows: &[Row]) -> String {
    let Some(Row { seed, ticks, graphs_max, .. }) = rows.first() else {
        return "There are no data.\n".into();
    };
    let (points, capped) = (rows.len(), rows.iter().filter(|row| row.capped).count());
    format!(
        "Computed by `holdall figures` from its table alone: seed {seed}, {ticks} ticks a run, at \
         most {graphs_max} graphs a point. Of {points} points, {capped} stopped there with a 95 % \
         confidence interval of the response or of the messages beyond ± 5 %.\n\n\
         Two values differ if their confidence intervals say so (the difference is more than the \
         root of the sum of the squares of their half widths); otherwise they are too close to \
         tell. A claim about all cases holds if no case says no and some say yes, fails if none \
         says yes. A claim of \"up to\" holds if the best case comes as far within its confidence, \
         and holds in part if it is better at all. Conflicts are few below {FEW} and many above \
         {MANY} conflicting users on average; responses are comparable up to {COMPARABLE} times the \
         shortest, and an increase in messages is small up to {SMALL} times as many; \"service 100 at 31.4\" is a service time and that \
         number. Responses are by Little's law, with requests that were never granted; the \
         third column has the same by the mean of the granted requests.\n"
    )
}

fn judged(
    rows: &[Row],
    sizes: Sizes,
    claims: &[Claim],
    measured: Measured,
    other: Option<Measured>,
) -> String {
    let line = |claim: &Claim| {
        let finding = (claim.judge)(&cases(rows, sizes, measured));
        let other = other.map(|other| (claim.judge)(&cases(rows, sizes, other)));
        let other = other.map_or_else(
            || "-".into(),
            |other| match other.measured == finding.measured {
                true => "the same".into(),
                false => {
                    format!("{}: {}", other.verdict.to_string().replace('*', ""), other.measured)
                }
            },
        );
        format!("| {} | {} | {other} | {} |\n", claim.text, finding.measured, finding.verdict)
    };
    claims.iter().map(line).collect()
}

/// Where the mean of the granted requests is not that of all: somebody waits beyond the end.
fn parted(rows: &[Row]) -> String {
    let mut text = String::from(
        "\n## Where the two means part\n\nBy more than 10 %: somebody waits to the end of the run \
         and beyond, and the mean of the granted alone deceives.\n\n\
         | protocol | points | granted alone / all, least | unfinished longest, ticks |\n\
         |---|---|---|---|\n",
    );
    let protocols: std::collections::BTreeSet<_> = rows.iter().map(|row| &row.protocol).collect();
    for protocol in protocols {
        let share = |row: &&Row| Some(row.granted? / row.response.filter(|all| *all > 0.0)?);
        let own: Vec<&Row> = rows.iter().filter(|row| row.protocol == *protocol).collect();
        let shares = own.iter().filter_map(share);
        let apart = shares.clone().filter(|share| (share - 1.0).abs() > PARTED).count();
        let least = shares.fold(f64::INFINITY, f64::min);
        let longest = own.iter().filter_map(|row| row.unfinished_longest).max().unwrap_or(0);
        writeln!(text, "| `{protocol}` | {apart} of {} | {least:.2} | {longest} |", own.len())
            .expect("a string takes everything");
    }
    text
}

/// The tables behind the figures of a set.
fn numbers(set: &Set, rows: &[Row]) -> String {
    let of_set = |row: &&Row| {
        row.sizes == set.sizes && set.lines.iter().any(|line| line.protocol == row.protocol)
    };
    let rows: Vec<&Row> = rows.iter().filter(of_set).collect();
    if rows.is_empty() {
        return String::new();
    }
    let mut text = format!("\n## Numbers: {}\n", set.title);
    for service in SERVICES {
        text += &format!("\nResponse in ticks, service {service}:\n\n");
        text += &numbers_at(set, &rows, service, RESPONSE);
    }
    text + "\nMessages a grant, service 100:\n\n" + &numbers_at(set, &rows, 100, MESSAGES)
}

fn numbers_at(set: &Set, rows: &[&Row], service: u32, measured: Measured) -> String {
    let sizes: std::collections::BTreeSet<u32> = rows.iter().map(|row| row.per_request).collect();
    let mut text = String::from("| pools a request | conflicts |");
    text.extend(set.lines.iter().map(|line| format!(" {} |", line.short)));
    text += "\n|---|---|";
    text += &"---|".repeat(set.lines.len());
    for size in sizes {
        let at = || rows.iter().filter(|row| (row.service, row.per_request) == (service, size));
        let conflicts = at().map(|row| row.conflicts).next().unwrap_or(0.0);
        text += &format!("\n| {size} | {conflicts:.1} |");
        for line in &set.lines {
            let row = at().find(|row| row.protocol == line.protocol);
            text += &match row.map(|row| measured(row)) {
                Some((Some(mean), around)) => {
                    let digits = usize::from(mean < 100.0);
                    format!(" {mean:.digits$} ± {:.digits$} |", around.unwrap_or(0.0))
                }
                _ => " - |".into(),
            };
        }
    }
    text + "\n"
}
