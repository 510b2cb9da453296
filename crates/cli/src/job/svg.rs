//! A picture of a run: what had each unit when.

use std::collections::BTreeMap;
use std::fmt::Write;

use holdall_jobs::Cause;

use super::junit::escaped;
use super::runner::now;
use super::view::{Attempt, View, span, why};

const LABELS: f64 = 150.0;
const WIDTH: f64 = 850.0;
const ROW: f64 = 22.0;
const TOP: f64 = 44.0;
/// How wide a letter is, about.
const LETTER: f64 = 6.2;

/// A row for each unit, and as many as it takes for tasks that need none.
pub(super) fn svg(view: &View) -> String {
    let end = now();
    let start = view.attempts.iter().map(|attempt| attempt.from).min().unwrap_or(end);
    let last = view.attempts.iter().map(|attempt| attempt.to.unwrap_or(end)).max().unwrap_or(end);
    let scale = Scale { start, length: last.saturating_sub(start).max(1) };
    let rows = rows(&view.attempts, last);
    let height = TOP + ROW * rows.len() as f64 + 30.0;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"10\" y=\"20\" font-size=\"14\">{}: {}, {}</text>\n",
        LABELS + WIDTH + 20.0,
        escaped(&view.id),
        view.state,
        span(scale.length),
    );
    scale.draw(&mut text, height);
    for (at, (label, attempts)) in rows.iter().enumerate() {
        let y = TOP + ROW * at as f64;
        // Writing to a text does not fail.
        let _ = writeln!(
            text,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
            LABELS - 8.0,
            y + 15.0,
            escaped(label)
        );
        for attempt in attempts {
            bar(&mut text, view, attempt, &scale, y, end);
        }
    }
    text + "</svg>"
}

struct Scale {
    start: u64,
    length: u64,
}

impl Scale {
    fn place(&self, at: u64) -> f64 {
        LABELS + WIDTH * at.saturating_sub(self.start) as f64 / self.length as f64
    }

    /// Lines at round times, at most ten.
    fn draw(&self, text: &mut String, height: f64) {
        let steps = [1, 2, 5].into_iter().cycle().zip((0..).flat_map(|power| [power; 3]));
        let mut steps = steps.map(|(digit, power): (u64, u32)| digit * 10_u64.pow(power.min(17)));
        let step = steps.find(|step| self.length / step <= 10).unwrap_or(self.length);
        for at in (0..=self.length).step_by(usize::try_from(step).unwrap_or(usize::MAX)) {
            let x = self.place(self.start + at);
            let _ = writeln!(
                text,
                "<line x1=\"{x:.1}\" y1=\"{}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"#ddd\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"#666\">{}</text>",
                TOP - 6.0,
                height - 24.0,
                height - 10.0,
                seconds(at),
            );
        }
    }
}

fn seconds(ms: u64) -> String {
    if ms.is_multiple_of(1000) { format!("{} s", ms / 1000) } else { format!("{} ms", ms) }
}

/// What ran when, by unit; then what had none, in as many rows as needed.
fn rows(attempts: &[Attempt], last: u64) -> Vec<(String, Vec<&Attempt>)> {
    let mut by_unit: BTreeMap<(String, u64, &str), Vec<&Attempt>> = BTreeMap::new();
    let mut free: Vec<(u64, Vec<&Attempt>)> = Vec::new();
    for attempt in attempts {
        for unit in &attempt.units {
            by_unit.entry(sorted(unit)).or_default().push(attempt);
        }
        if attempt.units.is_empty() {
            let until = attempt.to.unwrap_or(last);
            match free.iter_mut().find(|(busy, _)| *busy <= attempt.from) {
                Some((busy, row)) => {
                    *busy = until;
                    row.push(attempt);
                }
                None => free.push((until, vec![attempt])),
            }
        }
    }
    let units = by_unit.into_iter().map(|((.., unit), attempts)| (unit.to_owned(), attempts));
    units.chain(free.into_iter().map(|(_, row)| ("(needs nothing)".into(), row))).collect()
}

/// `gpu/10` comes after `gpu/9`.
fn sorted(unit: &str) -> (String, u64, &str) {
    let digits = unit.len() - unit.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (name, number) = unit.split_at(unit.len() - digits);
    (name.to_owned(), number.parse().unwrap_or(0), unit)
}

fn bar(text: &mut String, view: &View, attempt: &Attempt, scale: &Scale, y: f64, end: u64) {
    let name = &view.plan.task(attempt.task).name;
    let to = attempt.to.unwrap_or(end);
    let (from, width) = (scale.place(attempt.from), scale.place(to) - scale.place(attempt.from));
    let (colour, how) = match (&attempt.cause, attempt.to) {
        (_, None) => ("#7aa6d8", "runs".into()),
        (None, _) => ("#7fbf7b", "succeeded".into()),
        (Some(cause @ (Cause::GrantLost | Cause::Unknown | Cause::Cancelled)), _) => {
            ("#bbbbbb", why(cause))
        }
        (Some(cause), _) => ("#e08070", why(cause)),
    };
    let (ran, waited) = (span(to.saturating_sub(attempt.from)), span(attempt.waited));
    let _ = writeln!(
        text,
        "<rect x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{}\" fill=\"{colour}\" \
         stroke=\"white\"><title>{}: {}, ran {ran}, waited {waited}</title></rect>",
        y + 2.0,
        width.max(1.0),
        ROW - 4.0,
        escaped(name),
        escaped(&how),
    );
    if name.chars().count() as f64 * LETTER < width {
        let (x, y) = (from + width / 2.0, y + 15.0);
        let _ = writeln!(
            text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\" pointer-events=\"none\">{}</text>",
            escaped(name)
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_in_the_order_of_their_numbers() {
        let mut units = ["gpu/10", "gpu/9", "board", "gpu/1"];
        units.sort_by_key(|unit| sorted(unit));
        assert_eq!(units, ["board", "gpu/1", "gpu/9", "gpu/10"]);
    }
}
