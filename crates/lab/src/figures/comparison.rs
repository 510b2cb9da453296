//! Response times of several protocols in one picture.

use super::chart::{Chart, Panel, Place, Series};

/// The shares of all requests at which a line is drawn, in a thousandth.
const PER_MILLE: [usize; 13] = [10, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 950, 990];

/// What is said beside a picture.
#[derive(Clone, Copy, Debug)]
pub struct Said<'a> {
    /// The title.
    pub title: &'a str,
    /// What was looked at.
    pub note: &'a str,
    /// What the values are counted in.
    pub unit: &'a str,
}

/// Draws how long the quickest so many percent of all requests waited at most: a line for each
/// protocol, of all its response times. `note` says what was simulated.
pub fn comparison(note: &str, protocols: &[(&str, Vec<u64>)]) -> String {
    waits(Said { title: "Response times", note, unit: "ticks" }, protocols, 1.0)
}

/// The same for waits of whatever origin, which are divided by `scale`.
pub fn waits(said: Said<'_>, lines: &[(&str, Vec<u64>)], scale: f64) -> String {
    let series = |(look, (name, times)): (usize, &(&str, Vec<u64>))| {
        let mut times = times.clone();
        times.sort_unstable();
        let place = |per_mille: &usize| {
            let rank = (times.len() * per_mille).div_ceil(1000).checked_sub(1)?;
            let y = *times.get(rank)? as f64 / scale;
            Some(Place { x: *per_mille as f64 / 10.0, y, around: 0.0 })
        };
        let places = PER_MILLE.iter().filter_map(place).collect();
        Series { name: (*name).into(), look, places }
    };
    let chart = Chart {
        title: said.title.into(),
        notes: vec![said.note.into()],
        x_label: "percent of the requests".into(),
        y_label: format!("waited at most, {}", said.unit),
        series: lines.iter().enumerate().map(series).collect(),
    };
    chart.draw_panels(&[Panel::LINEAR, Panel::LOGARITHMIC_UP])
}

/// A line, by its name.
pub type Curve<'a> = (&'a str, Vec<(f64, f64)>);

/// Draws lines through points.
pub fn curves(said: Said<'_>, x_label: &str, lines: &[Curve<'_>]) -> String {
    let series = |(look, (name, points)): (usize, &Curve<'_>)| {
        let places = points.iter().map(|(x, y)| Place { x: *x, y: *y, around: 0.0 }).collect();
        Series { name: (*name).into(), look, places }
    };
    let chart = Chart {
        title: said.title.into(),
        notes: vec![said.note.into()],
        x_label: x_label.into(),
        y_label: said.unit.into(),
        series: lines.iter().enumerate().map(series).collect(),
    };
    chart.draw_panels(&[Panel::ALONE])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_protocol_has_a_line_and_its_name() {
        let times: Vec<u64> = (1..=1000).collect();
        let svg = comparison(
            "of a test",
            &[("one", times.clone()), ("other<&>", times), ("none", Vec::new())],
        );
        let document = roxmltree::Document::parse(&svg).expect("well-formed");
        let texts: Vec<_> = document.descendants().filter_map(|node| node.text()).collect();
        for text in ["one", "other<&>", "none", "of a test"] {
            assert!(texts.contains(&text), "{text}");
        }
    }
}
