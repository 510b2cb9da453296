//! What is printed while protocols are played.

use std::io::{self, Write};

use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::bill::Bill;
use crate::cast::Cast;
use crate::options::Options;
use crate::settings::Settings;
use crate::table::{Overview, details};
use crate::{Audience, Outcome};

/// Prints each outcome as it comes, and how far the present play is.
pub(crate) struct Printer<'a> {
    settings: &'a Settings,
    json: bool,
    /// The table of several protocols.
    overview: Option<Overview>,
    /// How many outcomes were printed.
    printed: usize,
    bar: ProgressBar,
}

#[derive(Serialize)]
struct Line<'a> {
    schema: u32,
    #[serde(flatten)]
    outcome: &'a Outcome,
}

impl<'a> Printer<'a> {
    pub(crate) fn new(bill: &Bill, options: &Options, settings: &'a Settings) -> Self {
        let several = bill.casts.len() > 1;
        let names = bill.casts.iter().map(Cast::name);
        let overview = several.then(|| Overview::of(names));
        Self { settings, json: options.json, overview, printed: 0, bar: progress_bar() }
    }

    fn text(&self, outcome: &Outcome) -> io::Result<String> {
        if self.json {
            return Ok(serde_json::to_string(&Line { schema: 1, outcome })? + "\n");
        }
        let headline = self.headline();
        Ok(match &self.overview {
            None => format!("{headline}{UNBROKEN}\n{}", details(outcome)),
            Some(table) if self.printed == 0 => {
                format!("{headline}\n{}{}", table.head(), table.row(outcome))
            }
            Some(table) => table.row(outcome),
        })
    }

    fn headline(&self) -> String {
        let workload = &self.settings.workload;
        let holdall_sim::Settings { users, resources, seed, .. } = workload;
        format!("clients {users}, pools {resources}, seed {seed}")
    }

    /// What there is to say when all protocols were played.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.bar.finish_and_clear();
        if self.json || self.overview.is_none() || self.printed == 0 {
            return Ok(());
        }
        write(&format!("{}\n", UNBROKEN.trim_start_matches("; ")))
    }
}

const UNBROKEN: &str = "; exclusion was never broken";

impl Audience for Printer<'_> {
    fn progress(&mut self, protocol: &str, share: f64, grants: u64) {
        self.bar.set_position((share * 1000.0) as u64);
        self.bar.set_message(format!("of {protocol}: {grants} grants"));
    }

    fn played(&mut self, outcome: &Outcome) -> io::Result<()> {
        let text = self.text(outcome)?;
        self.bar.suspend(|| write(&text))?;
        self.printed += 1;
        Ok(())
    }
}

impl Drop for Printer<'_> {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn write(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// On stderr, and only if that is a terminal.
fn progress_bar() -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {percent} % {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(1000).with_style(style)
}
