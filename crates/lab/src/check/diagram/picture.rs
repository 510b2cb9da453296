//! As a picture: a row for each number of steps from the start, in each row the states in the order of
//! those that lead to them, which keeps most lines apart.

use super::{Edge, Mark, StateGraph};
use crate::svg::{Svg, path};

const STYLE: &str = "text{font:11px sans-serif;fill:#222}.title{font-size:15px}\
    .number{text-anchor:middle}.what{font-size:9px;fill:#555;text-anchor:middle}\
    .step{stroke:#1f5fa8;fill:none}.back{stroke:#999;fill:none;stroke-dasharray:4 3}\
    .breaks{stroke:#b3261e}.plain{fill:#eef3fa;stroke:#1f5fa8}\
    .end{fill:#e6f4ea;stroke:#1b7f3b;stroke-width:2}.wrong{fill:#fce8e6;stroke:#b3261e;stroke-width:2}";
const COLUMN: f64 = 110.0;
const ROW: f64 = 78.0;
const TOP: f64 = 70.0;
const RADIUS: f64 = 13.0;

type Place = (f64, f64);

impl StateGraph {
    /// The graph as an SVG document. Steps to a state that is not farther from the start are dashed. What
    /// is in a state, the tooltip of its circle says.
    pub fn svg(&self) -> String {
        let places = self.places();
        let right = places.iter().map(|(x, _)| *x).fold(7.0 * self.title.len() as f64, f64::max);
        let bottom = places.iter().map(|(_, y)| *y).fold(0.0, f64::max);
        let mut svg = Svg::new(right + COLUMN, bottom + ROW / 2.0, &self.title, STYLE);
        svg.text("title", (20.0, 24.0), &self.title);
        for edge in &self.edges {
            self.draw_edge(&mut svg, edge, &places);
        }
        for (number, (node, (x, y))) in self.nodes.iter().zip(&places).enumerate() {
            let class = match node.mark {
                Mark::Plain => "plain",
                Mark::End => "end",
                Mark::Wrong => "wrong",
            };
            svg.circle(class, (*x, *y), RADIUS, &node.state);
            svg.text("number", (*x, *y + 4.0), &number.to_string());
        }
        svg.finish()
    }

    /// Where each state is drawn.
    fn places(&self) -> Vec<Place> {
        let depth = self.nodes.iter().map(|node| node.depth).max().unwrap_or(0);
        let mut rows = vec![Vec::new(); depth + 1];
        for (number, node) in self.nodes.iter().enumerate() {
            rows[node.depth].push(number);
        }
        let widest = rows.iter().map(Vec::len).max().unwrap_or(1) as f64;
        let mut places = vec![(0.0, 0.0); self.nodes.len()];
        for (depth, row) in rows.iter_mut().enumerate() {
            let mut leading: Vec<(f64, usize)> =
                row.iter().map(|number| (self.mean_before(*number, &places), *number)).collect();
            leading.sort_by(|a, b| a.0.total_cmp(&b.0));
            let left = COLUMN * (0.5 + (widest - leading.len() as f64) / 2.0);
            for (column, (_, number)) in leading.into_iter().enumerate() {
                places[number] = (left + COLUMN * column as f64, TOP + ROW * depth as f64);
            }
        }
        places
    }

    /// How far to the right those are, on the average, that lead to a state from the row above.
    fn mean_before(&self, number: usize, places: &[Place]) -> f64 {
        let above = |edge: &&Edge| self.is_down(edge) && edge.to == number;
        let before = || self.edges.iter().filter(above).map(|edge| places[edge.from].0);
        before().sum::<f64>() / before().count().max(1) as f64
    }

    fn is_down(&self, edge: &Edge) -> bool {
        self.nodes[edge.from].depth < self.nodes[edge.to].depth
    }

    fn draw_edge(&self, svg: &mut Svg, edge: &Edge, places: &[Place]) {
        let (from, to) = (places[edge.from], places[edge.to]);
        let down = self.is_down(edge);
        // A line up, or to the side, goes round what lies between.
        let aside = if down { 0.0 } else { COLUMN / 2.0 };
        let bend = ((from.0 + to.0) / 2.0 + aside, (from.1 + to.1) / 2.0);
        let colour = if edge.breaks { " breaks" } else { "" };
        let class = format!("{}{colour}", if down { "step" } else { "back" });
        let (start, end) = (towards(from, bend), towards(to, bend));
        svg.leaf("path", &[("class", &class), ("d", &path([start, bend, end], false))]);
        let middle = ((start.0 + bend.0) / 2.0, (start.1 + bend.1) / 2.0);
        svg.text("what", middle, &edge.what);
        svg.leaf("path", &[("class", &class), ("d", &path(head(bend, end), true))]);
    }
}

/// The place on the edge of a circle that lies towards another place.
fn towards((x, y): Place, (to_x, to_y): Place) -> Place {
    let (dx, dy) = (to_x - x, to_y - y);
    let length = dx.hypot(dy).max(1.0);
    (x + dx / length * RADIUS, y + dy / length * RADIUS)
}

/// The head of an arrow.
fn head((x, y): Place, tip: Place) -> [Place; 3] {
    let (dx, dy) = (tip.0 - x, tip.1 - y);
    let length = dx.hypot(dy).max(1.0);
    let (ux, uy) = (dx / length * 6.0, dy / length * 6.0);
    [
        (tip.0 - ux - uy * 0.5, tip.1 - uy + ux * 0.5),
        tip,
        (tip.0 - ux + uy * 0.5, tip.1 - uy - ux * 0.5),
    ]
}
