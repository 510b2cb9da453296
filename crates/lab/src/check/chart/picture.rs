//! As a picture.

use super::Chart;
use crate::svg::{Svg, path};

const STYLE: &str = "text{font:12px sans-serif;fill:#222}.title{font-size:15px}\
    .party{font-weight:bold;text-anchor:middle}.label{text-anchor:middle}.number{fill:#888}\
    .life{stroke:#bbb}.message{stroke:#1f5fa8;stroke-width:1.4}.lost{stroke:#b3261e;\
    stroke-dasharray:4 3}.granted{fill:#1b7f3b;font-weight:bold;text-anchor:middle}\
    .end{fill:#b3261e}.repeat{stroke:#888;stroke-dasharray:6 4}";
const LEFT: f64 = 90.0;
const WIDTH: f64 = 150.0;
const TOP: f64 = 70.0;
const HEIGHT: f64 = 34.0;
const HEAD: f64 = 7.0;

pub(super) fn draw(chart: &Chart<'_>, title: &str) -> String {
    let right = LEFT + WIDTH * chart.parties.len() as f64;
    let bottom = row_at(chart.rows.len());
    let width = right.max(7.0 * title.chars().count().max(chart.end.chars().count()) as f64 + 40.0);
    let mut svg = Svg::new(width, bottom + 40.0, title, STYLE);
    svg.text("title", (20.0, 24.0), title);
    for (i, who) in chart.parties.iter().enumerate() {
        svg.text("party", (lifeline(i), TOP - 18.0), &who.to_string());
        svg.line("life", (lifeline(i), TOP - 10.0), (lifeline(i), bottom));
    }
    if let Some(first) = chart.repeats_from {
        let y = row_at(first) - HEIGHT / 2.0;
        svg.line("repeat", (20.0, y), (right, y));
        svg.text("number", (20.0, y - 4.0), "and then, over and over:");
    }
    for (i, row) in chart.rows.iter().enumerate() {
        let (x, y) = (lifeline(row.at), row_at(i));
        svg.text("number", (20.0, y + 4.0), &(i + 1).to_string());
        match row.from.filter(|(from, _)| *from != row.at) {
            Some((from, sent)) => {
                let start = (lifeline(from), sent.map_or(y, row_at));
                let class = if row.lost { "message lost" } else { "message" };
                arrow(&mut svg, class, start, (x, y));
                let middle = ((start.0 + x) / 2.0, (start.1 + y) / 2.0 - 4.0);
                svg.text("label", middle, &row.label);
            }
            None => svg.text("label", (x, y + 4.0), &row.label),
        }
        for lifeline_of in &row.granted {
            svg.text("granted", (lifeline(*lifeline_of), y + 16.0), "granted");
        }
    }
    svg.text("end", (20.0, bottom + 22.0), chart.end);
    svg.finish()
}

fn arrow(svg: &mut Svg, class: &str, from: (f64, f64), to: (f64, f64)) {
    svg.line(class, from, to);
    let (dx, dy) = (to.0 - from.0, to.1 - from.1);
    let length = dx.hypot(dy).max(1.0);
    let (ux, uy) = (dx / length * HEAD, dy / length * HEAD);
    let wing = |side: f64| (to.0 - ux - side * uy * 0.5, to.1 - uy + side * ux * 0.5);
    let head = path([wing(1.0), to, wing(-1.0)], true);
    svg.leaf("path", &[("class", &class), ("d", &head)]);
}

fn lifeline(number: usize) -> f64 {
    LEFT + WIDTH * number as f64
}

fn row_at(number: usize) -> f64 {
    TOP + HEIGHT * (number as f64 + 0.5)
}
