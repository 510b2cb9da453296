//! The worlds of the lab keep the contract of `holdall_core::contract`: its probe, driven through
//! every kind of fault, finds nothing to complain about.

use holdall_core::Options;
use holdall_core::contract::Probe;
use holdall_lab::check::{Detector, Scope, Settings, check};
use holdall_lab::registry::Chosen;
use holdall_sim::{Contender, Fault, FaultKind, FaultRate, Spikes, Stage};

/// Explores a scope with probes.
fn explore(pools: &str, users: &str, settings: &Settings) {
    let chosen = Chosen::of::<Probe>("probe", &[]).expect("it has no variants");
    let scope = Scope::parse(pools, users, None).expect("sensible");
    let report = check(&chosen, &scope, settings, &|_| {}).expect("served");
    assert!(report.complete && !report.broken(), "{users}, {settings:?}: {report:?}");
}

#[test]
fn the_checker_keeps_the_contract() {
    let plain = Settings::default();
    let crash = |detector| Settings {
        crash: Some(0),
        crash_amid: true,
        detector: Some(detector),
        ..Settings::default()
    };
    explore("1,1", "0+1,0/1+0,1", &plain);
    explore("1,1", "0+1/1+0", &Settings { departures: true, ..plain.clone() });
    explore("1,1", "0,0+1/1", &Settings { suspect: Some(0), ..plain.clone() });
    explore("1", "0,0/0", &Settings { suspect: Some(0), ..plain.clone() });
    explore("1", "0,0/0", &Settings { suspect: Some(0), ..crash(Detector::Reclaim) });
    for detector in [Detector::Departed, Detector::None, Detector::Reclaim, Detector::Suspect] {
        explore("1,1", "0+1,0/1", &crash(detector));
    }
}

#[test]
fn the_simulator_keeps_the_contract() {
    let probe = Contender::of::<Probe>("probe", Options::default()).expect("it has no variants");
    let fault = |kind, stage| Fault { kind, rate: FaultRate { stage, probability: 0.2 } };
    let settings = holdall_sim::Settings {
        users: 20,
        resources: 30,
        nodes: Some(5),
        ticks: 100_000,
        detect: 1,
        spikes: Some(Spikes { probability: 0.05, factor: 40 }),
        faults: vec![
            fault(FaultKind::Leave, Stage::Asking),
            fault(FaultKind::Leave, Stage::Using),
            fault(FaultKind::Stop, Stage::Waiting),
            fault(FaultKind::Stop, Stage::Using),
        ],
        ..holdall_sim::Settings::default()
    };
    let report = holdall_sim::run_graph(&settings, &probe, 0).expect("no complaint");
    assert!(report.grants > 100 && report.violations == 0, "{report:?}");
}
