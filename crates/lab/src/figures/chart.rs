//! Lines with bands, mostly drawn twice side by side: on linear axes, where large differences show, and
//! on logarithmic ones, where the small values show as well. Lines differ by colour, dashes and
//! marks, so that they can be told apart without colour.

use super::scale::Scale;
use crate::svg::{Pixels, Svg, path};

/// What is to be drawn.
#[derive(Clone, Debug)]
pub(super) struct Chart {
    pub(super) title: String,
    /// Lines below the title.
    pub(super) notes: Vec<String>,
    pub(super) x_label: String,
    pub(super) y_label: String,
    pub(super) series: Vec<Series>,
}

/// A line.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    /// Which of the looks it has.
    pub(super) look: usize,
    /// From left to right.
    pub(super) places: Vec<Place>,
}

/// A value with its confidence.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) x: f64,
    pub(super) y: f64,
    /// Half the width of the band.
    pub(super) around: f64,
}

struct Look {
    colour: &'static str,
    dashes: &'static str,
    mark: Mark,
    filled: bool,
}

#[derive(Clone, Copy)]
enum Mark {
    Circle,
    Cross,
    Diamond,
    Down,
    Square,
    Up,
}

const fn look(colour: &'static str, dashes: &'static str, mark: Mark, filled: bool) -> Look {
    Look { colour, dashes, mark, filled }
}

/// Colours by Okabe and Ito, which those who see few colours can tell apart too.
const LOOKS: [Look; 9] = [
    look("#d55e00", "", Mark::Circle, true),
    look("#0072b2", "7 3", Mark::Square, true),
    look("#009e73", "2 3", Mark::Up, true),
    look("#000000", "", Mark::Diamond, false),
    look("#b0568c", "9 3 2 3", Mark::Down, false),
    look("#e69f00", "5 2", Mark::Circle, false),
    look("#3b95cf", "", Mark::Square, false),
    look("#777777", "2 2", Mark::Cross, false),
    look("#444444", "12 4", Mark::Diamond, true),
];

/// The same colours, for what has no lines.
pub(super) const COLOURS: [&str; 4] = ["#0072b2", "#d55e00", "#009e73", "#777777"];

/// The axes between which lines are drawn.
#[derive(Clone, Copy)]
pub(super) struct Panel {
    x: NewScale,
    y: NewScale,
    /// What is said of them.
    name: &'static str,
}

impl Panel {
    pub(super) const LINEAR: Self = Self { x: Scale::linear, y: Scale::linear, name: " (linear)" };
    pub(super) const LOGARITHMIC: Self =
        Self { x: Scale::logarithmic, y: Scale::logarithmic, name: " (both axes logarithmic)" };
    /// Shares of a hundred need no logarithm.
    pub(super) const LOGARITHMIC_UP: Self =
        Self { x: Scale::linear, y: Scale::logarithmic, name: " (logarithmic)" };
    /// If there is only this one, nothing need be said of it.
    pub(super) const ALONE: Self = Self { name: "", ..Self::LINEAR };
}

const LEFT: f64 = 72.0;
const PANEL: (f64, f64) = (400.0, 330.0);
const BETWEEN: f64 = 100.0;
const LEGEND_ROW: f64 = 22.0;
pub(super) const STYLE: &str = "\
text { font-family: Helvetica, Arial, 'DejaVu Sans', sans-serif; fill: #222; font-size: 12px } \
.title { font-size: 18px; font-weight: bold } .note { fill: #555 } \
.x { text-anchor: middle } .y { text-anchor: end } .label { font-weight: bold } \
.middle { font-weight: bold; text-anchor: middle } \
.grid { stroke: #e4e4e4; fill: none } .axis { stroke: #444; fill: none }";

impl Chart {
    pub(super) fn draw(&self) -> String {
        self.draw_panels(&[Panel::LINEAR, Panel::LOGARITHMIC])
    }

    pub(super) fn draw_panels(&self, panels: &[Panel]) -> String {
        let width = (PANEL.0 + BETWEEN) * panels.len() as f64;
        let longest = self.series.iter().map(|series| series.name.len()).max().unwrap_or(0);
        let columns = ((width - 40.0) / (70.0 + 7.0 * longest as f64)).floor().max(1.0) as usize;
        let legend = 54.0 + 17.0 * self.notes.len() as f64;
        let rows = self.series.len().div_ceil(columns) as f64;
        let top = legend + LEGEND_ROW * rows + 30.0;
        let mut svg = Svg::new(width, top + PANEL.1 + 50.0, &self.title, STYLE);
        svg.text("title", (20.0, 32.0), &self.title);
        for (note, n) in self.notes.iter().zip(0..) {
            svg.text("note", (20.0, 53.0 + 17.0 * f64::from(n)), note);
        }
        for (series, n) in self.series.iter().zip(0..) {
            let (row, column) = (n / columns, n % columns);
            let x = 20.0 + column as f64 * (width - 40.0) / columns as f64;
            series.draw_legend(&mut svg, (x, legend + LEGEND_ROW * row as f64));
        }
        for (panel, n) in panels.iter().zip(0..) {
            self.draw_panel(&mut svg, (LEFT + f64::from(n) * (PANEL.0 + BETWEEN), top), panel);
        }
        svg.finish()
    }

    fn draw_panel(&self, svg: &mut Svg, (left, top): (f64, f64), panel: &Panel) {
        let (right, bottom) = (left + PANEL.0, top + PANEL.1);
        let places = || self.series.iter().flat_map(|series| &series.places);
        let x = (panel.x)(&places().map(|place| place.x).collect::<Vec<_>>(), (left, right));
        let values: Vec<f64> = places().flat_map(|p| [p.y, p.y + p.around]).collect();
        let y = (panel.y)(&values, (bottom, top));
        svg.text("label", (left - 52.0, top - 14.0), &format!("{}{}", self.y_label, panel.name));
        for mark in y.marks() {
            svg.line("grid", (left, y.place(mark)), (right, y.place(mark)));
            svg.text("y", (left - 8.0, y.place(mark) + 4.0), &number(mark));
        }
        for mark in x.marks() {
            svg.line("grid", (x.place(mark), top), (x.place(mark), bottom));
            svg.text("x", (x.place(mark), bottom + 18.0), &number(mark));
        }
        svg.line("axis", (left, bottom), (right, bottom));
        svg.line("axis", (left, top), (left, bottom));
        svg.text("middle", ((left + right) / 2.0, bottom + 39.0), &self.x_label);
        for series in &self.series {
            series.draw_band(svg, &x, &y);
        }
        for series in &self.series {
            series.draw_line(svg, &x, &y);
        }
    }
}

type NewScale = fn(&[f64], (f64, f64)) -> Scale;

impl Series {
    fn draw_legend(&self, svg: &mut Svg, (x, y): (f64, f64)) {
        let look = &LOOKS[self.look % LOOKS.len()];
        look.stroke(svg, [(x, y), (x + 44.0, y)]);
        look.mark(svg, (x + 22.0, y));
        svg.text("name", (x + 52.0, y + 4.0), &self.name);
    }

    fn shown(&self, x: &Scale, y: &Scale) -> impl DoubleEndedIterator<Item = &Place> {
        self.places.iter().filter(|place| x.shows(place.x) && y.shows(place.y))
    }

    fn draw_band(&self, svg: &mut Svg, x: &Scale, y: &Scale) {
        let over = self.shown(x, y).map(|p| (x.place(p.x), y.place(p.y + p.around)));
        let under = self.shown(x, y).rev().map(|p| (x.place(p.x), y.place(p.y - p.around)));
        let colour = LOOKS[self.look % LOOKS.len()].colour;
        let band = path(over.chain(under), true);
        svg.leaf("path", &[("d", &band), ("fill", &colour), ("fill-opacity", &0.16)]);
    }

    fn draw_line(&self, svg: &mut Svg, x: &Scale, y: &Scale) {
        let look = &LOOKS[self.look % LOOKS.len()];
        let places: Vec<_> = self.shown(x, y).map(|p| (x.place(p.x), y.place(p.y))).collect();
        look.stroke(svg, places.iter().copied());
        for place in places {
            look.mark(svg, place);
        }
    }
}

impl Look {
    fn stroke(&self, svg: &mut Svg, places: impl IntoIterator<Item = (f64, f64)>) {
        svg.leaf(
            "path",
            &[
                ("d", &path(places, false)),
                ("fill", &"none"),
                ("stroke", &self.colour),
                ("stroke-width", &1.8),
                ("stroke-linejoin", &"round"),
                ("stroke-dasharray", &if self.dashes.is_empty() { "none" } else { self.dashes }),
            ],
        );
    }

    fn mark(&self, svg: &mut Svg, (x, y): (f64, f64)) {
        let fill = if self.filled { self.colour } else { "#fff" };
        let paint: [(&str, &dyn std::fmt::Display); 3] =
            [("fill", &fill), ("stroke", &self.colour), ("stroke-width", &1.4)];
        if let Mark::Circle = self.mark {
            let round: [(&str, &dyn std::fmt::Display); 3] =
                [("cx", &Pixels(x)), ("cy", &Pixels(y)), ("r", &3.6)];
            return svg.leaf("circle", &[round, paint].concat());
        }
        let corners = self.mark.corners().iter().map(|(dx, dy)| (x + dx, y + dy));
        svg.leaf("path", &[&[("d", &path(corners, true) as _)], &paint[..]].concat());
    }
}

impl Mark {
    /// Around the origin.
    const fn corners(self) -> &'static [(f64, f64)] {
        match self {
            Self::Circle => &[],
            Self::Cross => &[
                (-4.0, -4.0),
                (0.0, -1.0),
                (4.0, -4.0),
                (1.0, 0.0),
                (4.0, 4.0),
                (0.0, 1.0),
                (-4.0, 4.0),
                (-1.0, 0.0),
            ],
            Self::Diamond => &[(0.0, -5.0), (5.0, 0.0), (0.0, 5.0), (-5.0, 0.0)],
            Self::Down => &[(-4.6, -3.6), (4.6, -3.6), (0.0, 4.8)],
            Self::Square => &[(-3.5, -3.5), (3.5, -3.5), (3.5, 3.5), (-3.5, 3.5)],
            Self::Up => &[(-4.6, 3.6), (4.6, 3.6), (0.0, -4.8)],
        }
    }
}

/// As people write it: 0.5, 20, 50,000.
pub(super) fn number(value: f64) -> String {
    if value.fract().abs() > 1e-9 {
        return format!("{}", (value * 1000.0).round() / 1000.0);
    }
    let digits = format!("{value:.0}");
    let mut written = String::new();
    for (digit, left) in digits.chars().zip((0..digits.len()).rev()) {
        written.push(digit);
        if left > 0 && left % 3 == 0 {
            written.push(',');
        }
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_people_write_them() {
        assert_eq!([0.5, 0.0, 999.0, 50_000.0].map(number), ["0.5", "0", "999", "50,000"]);
    }
}
