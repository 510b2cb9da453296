//! What Prometheus may see. Without `--metrics` nothing listens, and all of this does nothing.
//!
//! Only declared pools have series of their own: names of locks come and go without bound.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context;
use holdall_core::Protocol;
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};

use holdall_cell::engine::{Engine, Serving};

/// The upper bounds of the wait time histogram, in seconds.
const WAITS: [f64; 12] =
    [0.0001, 0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 30.0, 60.0, 300.0, 1800.0, 7200.0];

static SERVED: AtomicBool = AtomicBool::new(false);

/// Serves metrics at an address, on the present runtime.
///
/// # Errors
/// If the address cannot be listened at.
pub(crate) fn serve(addr: SocketAddr) -> anyhow::Result<()> {
    // The exporter listens only when it is first polled; see now whether it can.
    drop(
        std::net::TcpListener::bind(addr)
            .with_context(|| format!("cannot serve metrics at {addr}"))?,
    );
    let builder = PrometheusBuilder::new()
        .with_http_listener(addr)
        .set_buckets_for_metric(Matcher::Full("holdall_wait_seconds".into()), &WAITS)?;
    let (recorder, exporter) = builder.build().context("cannot serve metrics")?;
    metrics::set_global_recorder(recorder).context("metrics are served already")?;
    SERVED.store(true, Ordering::Relaxed);
    tokio::spawn(exporter);
    describe_counter!("holdall_requests_total", "Requests asked");
    describe_counter!("holdall_refusals_total", "Requests refused or withdrawn");
    describe_counter!("holdall_grants_total", "Requests granted");
    describe_counter!("holdall_releases_total", "Grants ended");
    describe_counter!("holdall_overtakings_total", "Older rivals that grants have passed");
    describe_gauge!("holdall_waiting", "Requests that wait");
    describe_gauge!("holdall_grants", "Grants that are held");
    describe_gauge!("holdall_held_units", "Units that are held, by declared pool");
    describe_gauge!("holdall_cells", "Other cells that are known");
    describe_gauge!("holdall_cells_linked", "Other cells to which there is a link");
    describe_histogram!("holdall_wait_seconds", "Time from asking to the grant");
    Ok(())
}

pub(crate) fn requested() {
    counter!("holdall_requests_total").increment(1);
}

pub(crate) fn refused() {
    counter!("holdall_refusals_total").increment(1);
}

/// A request was granted that has waited for so many milliseconds.
pub(crate) fn granted(waited: u64, overtook: u32) {
    counter!("holdall_grants_total").increment(1);
    counter!("holdall_overtakings_total").increment(overtook.into());
    histogram!("holdall_wait_seconds").record(waited as f64 / 1000.0);
}

pub(crate) fn ended() {
    counter!("holdall_releases_total").increment(1);
}

/// How many other cells there are, and to how many there is a link.
pub(crate) fn observe_cells(known: usize, linked: usize) {
    gauge!("holdall_cells").set(known as f64);
    gauge!("holdall_cells_linked").set(linked as f64);
}

/// The present state of an engine. It is looked at only if somebody may see it.
pub(crate) fn observe<P: Protocol<Manager: Serving>>(engine: &Engine<P>) {
    if !SERVED.load(Ordering::Relaxed) {
        return;
    }
    let (held, waiting) = engine.load();
    gauge!("holdall_waiting").set(waiting as f64);
    gauge!("holdall_grants").set(held as f64);
    for (name, units) in engine.held_units() {
        gauge!("holdall_held_units", "pool" => name.to_string()).set(units);
    }
}
