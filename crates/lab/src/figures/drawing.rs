//! From rows to figures.

use super::chart::{Chart, Place, Series};
use super::{Row, SERVICES, Set, Sizes};
use holdall_sim::Settings;

/// A drawing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figure {
    /// What its file is called.
    pub name: String,
    /// The file.
    pub svg: String,
}

/// What is drawn, and its confidence.
type Measured = fn(&Row) -> (Option<f64>, Option<f64>);

/// The service time at which the paper counts messages.
const MESSAGES_AT: u32 = 100;

/// The figures of a set: the response for each service time, and messages. Nothing if there is
/// nothing to draw.
pub fn figures(set: &Set, rows: &[Row]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (service, figure) in SERVICES.into_iter().zip(7..) {
        let chart = Chart {
            title: format!("Mean response, service {service}: {}", set.title),
            notes: vec![
                setting(set, service, figure),
                "Response by Little's law: waiting users divided by grants a tick, so requests \
                 that are never granted count too."
                    .into(),
            ],
            x_label: "conflicting users, mean".into(),
            y_label: "response, ticks".into(),
            series: series(set, rows, service, |row| (row.response, row.response_ci)),
        };
        figures.push((format!("{}-response-{service}.svg", set.name), chart));
    }
    let chart = Chart {
        title: format!("Messages, service {MESSAGES_AT}: {}", set.title),
        notes: vec![setting(set, MESSAGES_AT, 11)],
        x_label: "conflicting users, mean".into(),
        y_label: "messages a grant".into(),
        series: series(set, rows, MESSAGES_AT, |row| (row.messages, row.messages_ci)),
    };
    figures.push((format!("{}-messages.svg", set.name), chart));
    let drawn = figures.into_iter().filter(|(_, chart)| !chart.series.is_empty());
    drawn.map(|(name, chart)| Figure { name, svg: chart.draw() }).collect()
}

fn setting(set: &Set, service: u32, figure: u32) -> String {
    let Settings { users, resources, delay, think, .. } = Settings::default();
    let sizes = match set.sizes {
        Sizes::Fixed => "every user asks for R pools",
        Sizes::Unequal => "users ask for 1 to 2R-1 pools",
    };
    format!(
        "As in Rhee's Figure {figure}: {users} users, {resources} pools; service {service} a pool, \
         delay {delay}, think {think} ticks; {sizes}. Bands: 95 % confidence."
    )
}

fn series(set: &Set, rows: &[Row], service: u32, measured: Measured) -> Vec<Series> {
    let line = |(look, line): (usize, &super::Line)| {
        let on_line = rows.iter().filter(|row| {
            (row.sizes, row.service) == (set.sizes, service) && row.protocol == line.protocol
        });
        let place = |row: &Row| {
            let (y, around) = measured(row);
            Some(Place { x: row.conflicts, y: y?, around: around.unwrap_or(0.0) })
        };
        let mut places: Vec<Place> = on_line.filter_map(place).collect();
        places.sort_by(|a, b| a.x.total_cmp(&b.x));
        let name = if line.short == line.protocol {
            line.short.clone()
        } else {
            format!("{} ({})", line.short, line.protocol)
        };
        Series { name, look, places }
    };
    let all = set.lines.iter().enumerate().map(line);
    all.filter(|series| !series.places.is_empty()).collect()
}
