//! Bars beside each other, a row for each name.

use super::chart::{COLOURS, STYLE, number};
use super::scale::Scale;
use crate::svg::{Pixels, Svg};

/// What is to be drawn.
#[derive(Clone, Debug)]
pub struct BarChart {
    /// The title.
    pub title: String,
    /// Lines below the title.
    pub notes: Vec<String>,
    /// What the bars of a row are, one after another.
    pub bars: Vec<String>,
    /// What the values are.
    pub label: String,
    /// The rows, from the top.
    pub rows: Vec<BarRow>,
}

/// A row.
#[derive(Clone, Debug)]
pub struct BarRow {
    /// Its name.
    pub name: String,
    /// A value for each bar, and how it is written.
    pub values: Vec<(f64, String)>,
}

const WIDTH: f64 = 1000.0;
const BAR: f64 = 13.0;
const BETWEEN: f64 = 10.0;
/// How wide a letter is, about.
const LETTER: f64 = 7.0;
const NAME_MAX: usize = 40;

impl BarChart {
    /// Draws it.
    pub fn draw(&self) -> String {
        let short = |name: &str| match name.chars().count() {
            0..=NAME_MAX => name.to_owned(),
            _ => name.chars().take(NAME_MAX - 3).chain("...".chars()).collect(),
        };
        let longest =
            self.rows.iter().map(|row| short(&row.name).chars().count()).max().unwrap_or(0);
        let left = 30.0 + LETTER * longest as f64;
        let legend = 54.0 + 17.0 * self.notes.len() as f64;
        let top = legend + 26.0;
        let height = self.bars.len() as f64 * BAR + BETWEEN;
        let bottom = top + height * self.rows.len() as f64;
        let values: Vec<f64> =
            self.rows.iter().flat_map(|row| row.values.iter().map(|(value, _)| *value)).collect();
        let x = Scale::linear(&values, (left, WIDTH - 110.0));
        let mut svg = Svg::new(WIDTH, bottom + 60.0, &self.title, STYLE);
        svg.text("title", (20.0, 32.0), &self.title);
        for (note, n) in self.notes.iter().zip(0..) {
            svg.text("note", (20.0, 53.0 + 17.0 * f64::from(n)), note);
        }
        let mut at = 20.0;
        for (bar, colour) in self.bars.iter().zip(COLOURS.iter().cycle()) {
            rectangle(&mut svg, (at, legend - 10.0), (14.0, 12.0), colour);
            svg.text("name", (at + 20.0, legend), bar);
            at += 44.0 + LETTER * bar.chars().count() as f64;
        }
        for mark in x.marks() {
            svg.line("grid", (x.place(mark), top), (x.place(mark), bottom));
            svg.text("x", (x.place(mark), bottom + 18.0), &number(mark));
        }
        svg.line("axis", (left, top), (left, bottom));
        svg.text("middle", ((left + WIDTH - 110.0) / 2.0, bottom + 40.0), &self.label);
        for (row, n) in self.rows.iter().zip(0..) {
            let y = top + height * f64::from(n) + BETWEEN / 2.0;
            let middle = y + self.bars.len() as f64 * BAR / 2.0 + 4.0;
            svg.text("y", (left - 8.0, middle), &short(&row.name));
            for (((value, written), colour), n) in
                row.values.iter().zip(COLOURS.iter().cycle()).zip(0..)
            {
                let y = y + BAR * f64::from(n);
                let width = (x.place(*value) - left).max(0.5);
                rectangle(&mut svg, (left, y), (width, BAR - 2.0), colour);
                svg.text("note", (left + width + 5.0, y + 10.0), written);
            }
        }
        svg.finish()
    }
}

fn rectangle(svg: &mut Svg, (x, y): (f64, f64), (width, height): (f64, f64), colour: &str) {
    svg.leaf(
        "rect",
        &[
            ("x", &Pixels(x)),
            ("y", &Pixels(y)),
            ("width", &Pixels(width)),
            ("height", &Pixels(height)),
            ("fill", &colour),
        ],
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_has_its_name_and_values() {
        let row = |name: &str, a: f64, b: f64| BarRow {
            name: name.into(),
            values: vec![(a, format!("{a} h")), (b, format!("{b} h"))],
        };
        let chart = BarChart {
            title: "Usage".into(),
            notes: vec!["of a test".into()],
            bars: vec!["held".into(), "waited".into()],
            label: "hours".into(),
            rows: vec![
                row("anna", 12.5, 0.0),
                row("<ben>", 3.0, 40.0),
                row(&"x".repeat(99), 0.0, 0.0),
            ],
        };
        let svg = chart.draw();
        let document = roxmltree::Document::parse(&svg).expect("well-formed");
        let texts: Vec<_> = document.descendants().filter_map(|node| node.text()).collect();
        for text in ["Usage", "of a test", "anna", "<ben>", "12.5 h", "40 h", "hours", "waited"] {
            assert!(texts.contains(&text), "{text}");
        }
        assert!(roxmltree::Document::parse(&BarChart { rows: Vec::new(), ..chart }.draw()).is_ok());
    }
}
