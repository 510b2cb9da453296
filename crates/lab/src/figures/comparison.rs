//! Response times of several protocols in one picture.

use super::chart::{Chart, Place, Series};

/// The shares of all requests at which a line is drawn, in a thousandth.
const PER_MILLE: [usize; 13] = [10, 50, 100, 200, 300, 400, 500, 600, 700, 800, 900, 950, 990];

/// Draws how long the quickest so many percent of all requests waited at most: a line for each
/// protocol, of all its response times. `note` says what was simulated.
pub fn comparison(note: &str, protocols: &[(&str, Vec<u64>)]) -> String {
    let series = |(look, (name, times)): (usize, &(&str, Vec<u64>))| {
        let mut times = times.clone();
        times.sort_unstable();
        let place = |per_mille: &usize| {
            let rank = (times.len() * per_mille).div_ceil(1000).checked_sub(1)?;
            let y = *times.get(rank)? as f64;
            Some(Place { x: *per_mille as f64 / 10.0, y, around: 0.0 })
        };
        let places = PER_MILLE.iter().filter_map(place).collect();
        Series { name: (*name).into(), look, places }
    };
    let chart = Chart {
        title: "Response times".into(),
        notes: vec![note.into()],
        x_label: "percent of the requests".into(),
        y_label: "waited at most, ticks".into(),
        series: protocols.iter().enumerate().map(series).collect(),
    };
    chart.draw()
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
