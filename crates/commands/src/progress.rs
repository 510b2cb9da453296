//! How far it is, for whoever waits at a terminal: how much was read, and how many requests are played, which may take minutes.

use std::time::Duration;

use holdall_history::whatif::Watch;
use holdall_sim::Progress;
use indicatif::{ProgressBar, ProgressStyle};

/// On stderr, and only if that is a terminal. It is gone when it is dropped.
#[derive(Debug)]
pub struct RequestsBar(ProgressBar);

/// How often it is drawn though nothing has moved.
const TICK: Duration = Duration::from_secs(1);

impl Default for RequestsBar {
    fn default() -> Self {
        let style =
            "{bar:30} {human_pos} of {human_len} requests, {prefix}, after {elapsed}: {wide_msg}";
        let style = ProgressStyle::with_template(style);
        let bar = ProgressBar::no_length();
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self(bar)
    }
}

impl Watch for RequestsBar {
    fn begins(&self, how: &str, requests: usize) {
        self.0.reset();
        self.0.set_length(requests as u64);
        self.0.set_message(how.to_owned());
        self.0.set_prefix("0 wait");
        self.0.enable_steady_tick(TICK);
    }

    fn sees(&self, Progress { waiting, left, .. }: Progress) {
        let over = self.0.length().unwrap_or(0).saturating_sub(left as u64);
        self.0.set_position(over);
        self.0.set_prefix(format!("{waiting} wait"));
    }
}

impl Drop for RequestsBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// How much was read of something. On stderr, and only if that is a terminal. It is gone when it is dropped.
#[derive(Debug)]
pub struct BytesBar(ProgressBar);

impl BytesBar {
    /// Nothing was so far.
    pub fn new(what: &str) -> Self {
        let style = ProgressStyle::with_template("{wide_msg}: {bytes} read, after {elapsed}");
        let bar = ProgressBar::no_length();
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.set_message(what.to_owned());
        Self(bar)
    }

    /// So many bytes were read.
    pub fn sees(&self, bytes: u64) {
        self.0.set_position(bytes);
    }
}

impl Drop for BytesBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

/// How many estimates were made again. On stderr, and only if that is a terminal. It is gone when it is dropped.
#[derive(Debug)]
pub struct EstimatesBar(ProgressBar);

impl Default for EstimatesBar {
    fn default() -> Self {
        let style =
            "{bar:30} {human_pos} of {human_len} requests that waited looked at, after {elapsed}";
        let style = ProgressStyle::with_template(style);
        let bar = ProgressBar::no_length();
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(TICK);
        Self(bar)
    }
}

impl EstimatesBar {
    /// So many of so many were.
    pub fn sees(&self, done: usize, of: usize) {
        self.0.set_length(of as u64);
        self.0.set_position(done as u64);
    }
}

impl Drop for EstimatesBar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
