//! The simulator as a whole, over all protocols there are.

use holdall_core::Options;
use holdall_protocols::coordinator::Coordinator;
use holdall_protocols::datta::Two;
use holdall_protocols::watched::Watched;
use holdall_sim::{
    Contender, Error, Fault, FaultKind, FaultRate, ORACLE, Report, Sets, Settings, Spikes, Stage,
    Told, Workload, run,
};

fn contenders(names: &[&str]) -> Vec<Contender> {
    names.iter().map(|name| Contender::named(name).expect("a protocol")).collect()
}

/// Everybody that can be put to this.
fn everyone(settings: &Settings) -> Vec<Contender> {
    let mut all = contenders(&holdall_protocols::names().chain([ORACLE]).collect::<Vec<_>>());
    all.retain(|contender| contender.supports(settings).is_ok());
    all
}

fn simulate(settings: &Settings, contenders: &[Contender]) -> Vec<Report> {
    let outcomes = run(settings, contenders, &|_| {}).expect("a sound simulation");
    outcomes.into_iter().map(|outcome| outcome.report).collect()
}

fn small() -> Settings {
    Settings { users: 20, resources: 12, per_request: 3, ticks: 20_000, ..Settings::default() }
}

fn fault(kind: FaultKind, stage: Stage) -> Fault {
    Fault { kind, rate: FaultRate { stage, probability: 0.1 } }
}

fn all_faults() -> Vec<Fault> {
    let stages = [Stage::Asking, Stage::Waiting, Stage::Using];
    stages
        .into_iter()
        .flat_map(|s| [fault(FaultKind::Leave, s), fault(FaultKind::Stop, s)])
        .collect()
}

#[test]
fn a_name_leads_to_a_protocol_or_an_error() {
    assert_eq!(Contender::named("rhee+:skeen").expect("listed").name(), "rhee+:skeen");
    assert_eq!(Contender::named("oracle").expect("the yardstick").name(), "oracle");
    assert!(Contender::named("ideal:fast").is_err());
    let error = Contender::named("orderd").expect_err("no such protocol");
    assert_eq!(error.to_string(), "there is no protocol 'orderd'");
    assert!(Contender::named("coordinator:fast").is_err());
}

#[test]
fn a_seed_is_a_result() {
    let settings = Settings { graphs: 3, ..small() };
    for faults in [all_faults(), Vec::new()] {
        let settings = Settings { faults, ..settings.clone() };
        let everyone = everyone(&settings);
        let once = simulate(&settings, &everyone);
        assert_eq!(once, simulate(&settings, &everyone));
        assert_ne!(once, simulate(&Settings { seed: 2, ..settings }, &everyone));
    }
}

/// Where time is kept, heartbeats find out who has stopped, and nobody else is taken for dead.
#[test]
fn heartbeats_are_a_perfect_detector_where_time_is_kept() {
    let rate = FaultRate { stage: Stage::Using, probability: 0.02 };
    let settings = Settings {
        per_request: 2,
        think: 2000,
        ticks: 200_000,
        faults: vec![Fault { kind: FaultKind::Stop, rate }],
        detect: u32::MAX, // The world tells nobody.
        ..small()
    };
    let options = Options { variant: Some("datta".into()), ..Options::default() };
    let watched = Contender::of::<Watched<Two>>("watched:datta", options).expect("a variant");
    let [plain] = contenders(&["datta"]).try_into().expect("one");
    let reports = simulate(&settings, &[plain, watched]);
    let [plain, watched] = &reports[..] else { panic!("two protocols, two reports") };
    assert!(watched.grants > 2 * plain.grants, "{} and {}", watched.grants, plain.grants);
    assert_eq!(watched.violations, 0);
    assert!(watched.tallies["reported"].number > 0);
}

/// On one node nothing is sent between machines, and nothing takes time.
#[test]
fn who_lives_where_its_pools_are_sends_nothing() {
    let settings = Settings { nodes: Some(1), colocated: true, per_request: 2, ..small() };
    for report in simulate(&settings, &everyone(&settings)) {
        assert_eq!(report.messages_per_grant, Some(0.0), "{}", report.protocol);
        assert!(report.grants > 0, "{}", report.protocol);
    }
}

/// Whoever says that messages may be lost, or arrive twice, serves all the same.
#[test]
fn lost_and_doubled_messages_are_made_up_for() {
    let links = Settings { loss: 0.2, duplicates: 0.2, per_request: 2, think: 1000, ..small() };
    let everyone = everyone(&links);
    assert!(!everyone.is_empty());
    for faults in [Vec::new(), all_faults()] {
        let settings = Settings { faults, ..links.clone() };
        let able: Vec<_> =
            everyone.iter().filter(|one| one.supports(&settings).is_ok()).cloned().collect();
        for report in simulate(&settings, &able) {
            assert_eq!(report.violations, 0, "{}", report.protocol);
            assert!(report.grants > 40, "{}: {} grants", report.protocol, report.grants);
        }
    }
}

#[test]
fn the_number_of_threads_does_not_matter() {
    let settings = Settings { graphs: 4, ..small() };
    let with = |threads| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool");
        pool.install(|| simulate(&settings, &everyone(&settings)))
    };
    assert_eq!(with(1), with(4));
}

#[test]
fn neither_company_nor_order_matters() {
    let together = simulate(&small(), &contenders(&["ordered", "skeen"]));
    let mut turned = simulate(&small(), &contenders(&["skeen", "ordered"]));
    turned.reverse();
    assert_eq!(together, turned);
}

/// Exclusion, the roles' own invariants, and progress, in all kinds of circumstances.
#[test]
fn nobody_goes_wrong() {
    let workloads = [Workload::Uniform, Workload::Ring, Workload::Hot, Workload::Mix];
    let circumstances = [
        small(),
        Settings { sets: Sets::Fresh, ..small() },
        Settings { of: Some(6), ..small() },
        Settings { units: 3, nodes: Some(1), ..small() },
        Settings { units: 3, named: 0.5, sets: Sets::Fresh, faults: all_faults(), ..small() },
        Settings { units: 2, named: 0.3, nodes: Some(1), ..small() },
        Settings { nodes: Some(4), one_per_tick: true, ..small() },
        Settings { delay: 0, detect: 0, faults: all_faults(), ..small() },
        Settings { faults: all_faults(), one_per_tick: true, units: 2, ..small() },
        Settings {
            faults: all_faults(),
            spikes: Some(Spikes { probability: 0.05, factor: 30 }),
            // Whoever breaks loops one after another takes long with such messages.
            ticks: 5 * small().ticks,
            ..small()
        },
    ];
    for workload in workloads {
        for circumstance in &circumstances {
            let sets = if workload == Workload::Ring { Sets::Fixed } else { circumstance.sets };
            let of = circumstance.of.filter(|_| workload == Workload::Uniform);
            let settings = Settings { workload, sets, of, ..circumstance.clone() };
            for report in simulate(&settings, &everyone(&settings)) {
                assert_eq!(report.violations, 0, "{report:?} {workload:?} {circumstance:?}");
                assert!(report.grants > 10, "{report:?} {workload:?} {circumstance:?}");
                assert!(report.utilisation > 0.0 && report.utilisation <= 1.0, "{report:?}");
            }
        }
    }
}

/// When nobody competes, what is lost to failures comes back: nobody waits for long.
#[test]
fn nothing_stays_with_the_gone() {
    let faults = all_faults();
    let settings = Settings { users: 1, resources: 3, faults, ..Settings::default() };
    for report in simulate(&settings, &everyone(&settings)) {
        assert!(report.response.max < Some(2_000), "{report:?}");
        assert!(report.unfinished_longest < Some(2_000), "{report:?}");
    }
}

#[test]
fn a_wrong_protocol_is_seen() {
    let options = Options { variant: Some("skip".into()), without: vec!["room".into()] };
    let wrong = Contender::of::<Coordinator>("no room", options).expect("a variant");
    let report = &simulate(&small(), &[wrong])[0];
    assert!(report.violations > 0);
}

#[test]
fn unequal_sizes_and_several_units() {
    let one = &simulate(&small(), &contenders(&["ordered"]))[0];
    let unequal = &simulate(&Settings { unequal: true, ..small() }, &contenders(&["ordered"]))[0];
    assert_ne!(one.degree, unequal.degree);
    let four = &simulate(&Settings { units: 4, ..small() }, &contenders(&["ordered"]))[0];
    assert!(four.response.mean < one.response.mean);
}

/// What users say of their uses is no part of what they do.
#[test]
fn what_is_said_of_a_use_changes_only_those_who_listen() {
    let told = |one, other| Settings { told: Some(Told { one, other }), apart: true, ..small() };
    let silent = Settings { apart: true, ..small() };
    let waits = |settings: &Settings, name| {
        let report = simulate(settings, &contenders(&[name])).remove(0);
        (report.grants, report.response.mean)
    };
    for said in [told(1.0, 1.0), told(0.5, 2.0)] {
        assert_eq!(waits(&said, "ordered"), waits(&silent, "ordered"));
        assert_ne!(waits(&said, "house"), waits(&silent, "house"));
        assert_eq!(waits(&said, "house"), waits(&said, "house"));
    }
    assert_ne!(waits(&silent, "ordered"), waits(&small(), "ordered"), "uses take another time");
}

#[test]
fn the_yardsticks_are_where_they_belong() {
    let names = ["oracle", "coordinator:skip", "coordinator:fifo", "ordered", "skeen"];
    let settings = Settings { ticks: 50_000, per_request: 4, ..Settings::default() };
    let reports = simulate(&settings, &contenders(&names));
    for other in &reports[1..] {
        assert!(reports[0].response.mean < other.response.mean, "{}", other.protocol);
    }
    let [_, skip, fifo, ..] = &reports[..] else { unreachable!("five reports") };
    assert!(10 * fifo.overtaken_max < skip.overtaken_max);
    assert!(fifo.jain > skip.jain);
    let messages: Vec<_> = reports.iter().flat_map(|report| report.messages_per_grant).collect();
    let expected = [0.0, 3.0, 3.0, 12.0, 20.0];
    for (messages, expected) in messages.into_iter().zip(expected) {
        assert!((expected..=expected * 1.1).contains(&messages), "{messages} for {expected}");
    }
}

#[test]
fn without_a_grant_there_is_no_figure() {
    let report = &simulate(&Settings { ticks: 1, ..small() }, &contenders(&["ordered"]))[0];
    assert_eq!((report.grants, report.response.mean, report.jain), (0, None, None));
    let json = serde_json::to_value(report).expect("it can be written");
    assert!(json["response"]["mean"].is_null() && json["messages_per_grant"].is_null());
}

#[test]
fn settings_without_sense_are_refused() {
    let bad = [
        Settings { users: 0, ..small() },
        Settings { users: 1 << 24, ..small() },
        Settings { resources: 0, ..small() },
        Settings { resources: u32::MAX, ..small() },
        Settings { per_request: 0, ..small() },
        Settings { per_request: 13, ..small() },
        Settings { of: Some(2), ..small() },
        Settings { of: Some(13), ..small() },
        Settings { of: Some(4), workload: Workload::Hot, ..small() },
        Settings { of: Some(4), sets: Sets::Fresh, ..small() },
        Settings { units: 0, ..small() },
        Settings { nodes: Some(0), ..small() },
        Settings { ticks: 0, ..small() },
        Settings { ticks: u64::MAX, ..small() },
        Settings { graphs: 0, ..small() },
        Settings { think: 0, service: 0, ..small() },
        Settings { unequal: true, workload: Workload::Mix, ..small() },
        Settings { sets: Sets::Fresh, workload: Workload::Ring, ..small() },
        Settings { told: Some(Told { one: 1.0, other: 0.0 }), ..small() },
        Settings { told: Some(Told { one: f64::NAN, other: 1.0 }), ..small() },
        Settings { spikes: Some(Spikes { probability: f64::NAN, factor: 2 }), ..small() },
        Settings { spikes: Some(Spikes { probability: 0.5, factor: 0 }), ..small() },
        Settings {
            faults: vec![Fault {
                kind: FaultKind::Stop,
                rate: FaultRate { stage: Stage::Using, probability: 1.1 },
            }],
            ..small()
        },
    ];
    for settings in bad {
        let error = run(&settings, &everyone(&small()), &|_| {}).expect_err("no sense");
        assert!(matches!(error, Error::Settings(_)), "{error}");
        assert!(!error.to_string().contains('\n'));
    }
}

#[test]
fn the_largest_numbers_do_no_harm() {
    let settings = Settings {
        users: 3,
        units: u32::MAX,
        service: u32::MAX,
        delay: u32::MAX,
        think: u32::MAX,
        detect: u32::MAX,
        seed: u64::MAX,
        ticks: 1 << 40,
        faults: all_faults(),
        spikes: Some(Spikes { probability: 0.5, factor: u32::MAX }),
        ..Settings::default()
    };
    for report in simulate(&settings, &everyone(&settings)) {
        assert_eq!(report.violations, 0);
    }
}
