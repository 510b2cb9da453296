//! A crash at every operation, and within every write at every byte: of the process, and of the
//! machine. Afterwards the log must say what it must, and go on.

mod world;

use holdall_log::Class::{May, Must};
use holdall_log::disk::simulated::{Fault, FaultKind, SimulatedDisk};
use holdall_log::file::{Durability, Options, Syncing};
use proptest::prelude::*;
use world::{Step, World};

fn options(durability: Durability, syncing: Syncing, segment: u64) -> Options {
    Options { durability, syncing, segment, adopt: false }
}

fn append(length: usize) -> Step {
    Step::Append { length, class: May, sync: false }
}

/// Everything a log can do, in short segments.
fn story() -> Vec<Step> {
    use Step::{BeginSnapshot, DropSnapshot, Flush, KeepSnapshot, Kill, RaiseEpoch, Seal, Sync};
    let synced = Step::Append { length: 20, class: Must, sync: true };
    let mut story = vec![
        append(0),
        Flush,
        append(9),
        append(40),
        Flush,
        synced.clone(),
        Flush,
        Sync,
        append(100),
        Flush,
        RaiseEpoch,
        append(3),
        Flush,
        Sync,
        Kill,
        append(1),
        BeginSnapshot,
        append(2),
        Flush,
        KeepSnapshot,
        append(60),
        Flush,
        Sync,
        BeginSnapshot,
        DropSnapshot,
        append(5),
        Flush,
    ];
    for _ in 0..4 {
        story.extend([append(90), append(10), Flush]);
    }
    story.extend([BeginSnapshot, synced, Flush, KeepSnapshot, append(7), Flush, Seal, Kill]);
    story.extend([append(0), Flush, Sync, append(30)]);
    story
}

/// The same where what is written while something is to be synced is put off, and done some time
/// later.
fn put_off(story: Vec<Step>) -> Vec<Step> {
    let writes = |at: usize| std::iter::repeat_n(Step::Write, at * 7 % 4);
    let steps = story.into_iter().enumerate();
    steps.flat_map(|(at, step)| std::iter::once(step).chain(writes(at))).collect()
}

fn story_for(options: Options) -> Vec<Step> {
    if options.syncing == Syncing::Steps { put_off(story()) } else { story() }
}

/// Plays a story until the disk dies; a failed step or start otherwise is an error.
fn play(
    disk: &mut SimulatedDisk,
    world: &mut World,
    options: Options,
    story: &[Step],
) -> Result<(), String> {
    let mut process = match world.start(disk, options) {
        Ok(started) => started?,
        Err(error) => return Err(format!("it cannot be opened: {error}")),
    };
    for step in story {
        if matches!(step, Step::Kill) {
            *disk = disk.killed();
            process = match world.start(disk, options) {
                Ok(started) => started?,
                Err(error) => return Err(format!("it cannot be opened: {error}")),
            };
        } else {
            world.step(&mut process, step).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// Plays the story with a crash, then looks at what is left, twice, after each kind of end.
fn crash(
    fault: Fault,
    unplugged: Option<u64>,
    options: Options,
    lies: Option<&str>,
) -> Result<(), String> {
    let mut disk = SimulatedDisk::new(7);
    let mut world = World::default();
    if let Some(prefix) = lies {
        disk.lie_about(prefix);
        world.twin.lie_about(prefix);
    }
    disk.set_fault(Some(fault));
    // The story contains kills, which take the fault away: so it is told in parts.
    for part in story_for(options).split(|step| matches!(step, Step::Kill)) {
        disk.set_fault(Some(fault));
        if play(&mut disk, &mut world, options, part).is_err() {
            break;
        }
        disk = disk.killed();
    }
    disk = match unplugged {
        None => disk.killed(),
        Some(seed) => world.unplug(&disk, seed),
    };
    let more = [append(4), append(50), Step::Flush, Step::Sync, append(1), Step::Flush];
    play(&mut disk, &mut world, options, &more)?;
    disk = disk.killed();
    play(&mut disk, &mut world, options, &[Step::BeginSnapshot, Step::KeepSnapshot, append(6)])?;
    disk = world.unplug(&disk, fault.at);
    play(&mut disk, &mut world, options, &[append(5), Step::Flush])
}

/// All places where it can crash.
fn faults(options: Options) -> Vec<Fault> {
    let mut disk = SimulatedDisk::new(7);
    let story = story_for(options);
    play(&mut disk, &mut World::default(), options, &story).expect("without a fault it is well");
    let writes = disk.writes();
    let cuts = |at: u64| {
        let most = writes.get(&at).copied().unwrap_or(0);
        (0..=most).map(move |bytes| Fault { at, kind: FaultKind::Crash { bytes } })
    };
    (1..=disk.operations()).flat_map(cuts).collect()
}

fn all_crashes(options: Options, lies: Option<&str>) -> Result<usize, String> {
    let faults = faults(options);
    for fault in &faults {
        for unplugged in [None, Some(1), Some(2), Some(3)] {
            crash(*fault, unplugged, options, lies)
                .map_err(|wrong| format!("{fault:?}, power lost {unplugged:?}: {wrong}"))?;
        }
    }
    Ok(faults.len())
}

#[test]
fn nothing_is_lost_that_was_told_wherever_it_crashes() {
    for durability in [Durability::Written, Durability::Synced] {
        for syncing in [Syncing::Caller, Syncing::Steps] {
            let tried = all_crashes(options(durability, syncing, 600), None);
            let tried = tried.unwrap_or_else(|wrong| panic!("{syncing:?}: {wrong}"));
            assert!(tried > 3000, "{tried} places");
        }
    }
}

/// Two snapshots, with segments that are begun before they are kept, and after it.
fn snapshots() -> Vec<Step> {
    use Step::{BeginSnapshot, Flush, KeepSnapshot, Sync};
    let segment = [append(200), append(200), Flush, append(200), Flush];
    let snapshot = [&[BeginSnapshot], &segment[..], &[KeepSnapshot], &segment, &[Sync]].concat();
    [&[append(0), Flush][..], &snapshot, &snapshot].concat()
}

/// Plays some steps although an operation fails; then the power does.
fn fail_and_unplug(at: u64, steps: &[Step], seed: u64, options: Options) -> Result<(), String> {
    let mut disk = SimulatedDisk::new(7);
    let mut world = World::default();
    world.may_fail = true;
    disk.set_fault(Some(Fault { at, kind: FaultKind::Fails }));
    let mut process = world.start(&disk, options).ok().transpose()?;
    for step in steps {
        if process.is_none() {
            disk = disk.killed();
            process = world.start(&disk, options).ok().transpose()?;
        }
        let done = process.as_mut().map_or(Ok(()), |process| world.step(process, step));
        if done.is_err_and(|error| !error.passes()) {
            process = None;
        }
    }
    drop(process);
    world.may_fail = false;
    let mut disk = world.unplug(&disk, seed);
    play(&mut disk, &mut world, options, &[append(3), Step::Flush])
}

#[test]
fn nothing_is_lost_that_was_told_whatever_fails_before_the_power_does() {
    let options = options(Durability::Written, Syncing::Caller, 600);
    let (story, mut disk) = (snapshots(), SimulatedDisk::new(7));
    play(&mut disk, &mut World::default(), options, &story).expect("without a fault it is well");
    for at in 1..=disk.operations() {
        for steps in (1..=story.len()).map(|length| &story[..length]) {
            for seed in 1..=32 {
                let played = fail_and_unplug(at, steps, seed, options);
                played.unwrap_or_else(|wrong| {
                    panic!("operation {at} failed, power lost {seed} after {steps:?}: {wrong}")
                });
            }
        }
    }
}

/// What these tests rest on: that a disk which does not sync is found out, file by file.
#[test]
fn a_disk_that_lies_is_found_out() {
    for lie in ["epoch", "segment", "snapshot"] {
        let found = all_crashes(options(Durability::Synced, Syncing::Caller, 600), Some(lie));
        assert!(found.is_err(), "nobody has noticed that {lie} was not synced");
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let sizes = prop_oneof![4 => 0..60usize, 1 => 200..900usize];
    let append = (sizes, any::<bool>(), any::<bool>()).prop_map(|(length, must, sync)| {
        Step::Append { length, class: if must { Must } else { May }, sync }
    });
    let step = prop_oneof![
        8 => append,
        6 => Just(Step::Flush),
        6 => Just(Step::Write),
        3 => Just(Step::Sync),
        1 => Just(Step::RaiseEpoch),
        1 => Just(Step::BeginSnapshot),
        1 => Just(Step::KeepSnapshot),
        1 => Just(Step::DropSnapshot),
        1 => Just(Step::Seal),
        1 => Just(Step::Kill),
        1 => any::<u64>().prop_map(Step::Unplug),
    ];
    prop::collection::vec(step, 1..60)
}

#[derive(Clone, Debug)]
enum Trouble {
    Crash(usize),
    Fails,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// Any story, with any number of crashes and failing operations, on disks of any size.
    #[test]
    fn any_story(
        story in steps(),
        synced in any::<bool>(),
        put_off in any::<bool>(),
        segment in 300..3000u64,
        capacity in prop::option::of(2000..12_000u64),
        troubles in prop::collection::vec(
            (1..60u64, prop_oneof![(0..300usize).prop_map(Trouble::Crash), Just(Trouble::Fails)]),
            0..4,
        ),
    ) {
        let durability = if synced { Durability::Synced } else { Durability::Written };
        let syncing = if put_off { Syncing::Steps } else { Syncing::Caller };
        let options = options(durability, syncing, segment);
        let mut disk = SimulatedDisk::new(3);
        let mut world = World::default();
        world.full = capacity.is_some();
        let mut troubles = troubles.into_iter();
        let mut process = None;
        disk.set_capacity(capacity);
        for step in story {
            match step {
                Step::Kill => (process, disk) = (None, disk.killed()),
                Step::Unplug(seed) => (process, disk) = (None, world.unplug(&disk, seed)),
                _ => {}
            }
            if process.is_none() {
                world.may_fail = false;
                if let Some((after, trouble)) = troubles.next() {
                    let kind = match trouble {
                        Trouble::Crash(bytes) => FaultKind::Crash { bytes },
                        Trouble::Fails => FaultKind::Fails,
                    };
                    world.may_fail = matches!(kind, FaultKind::Fails);
                    disk.set_fault(Some(Fault { at: disk.operations() + after, kind }));
                }
                process = match world.start(&disk, options) {
                    Ok(started) => Some(started.map_err(TestCaseError::fail)?),
                    Err(_) => None, // Full, or a fault; looked at in the end.
                };
            }
            let Some(running) = &mut process else {
                disk = disk.killed();
                continue;
            };
            if world.step(running, &step).is_err_and(|error| !error.passes()) {
                (process, disk) = (None, disk.killed());
            }
        }
        drop(process);
        let mut disk = disk.killed();
        disk.set_capacity(None);
        world.may_fail = false;
        play(&mut disk, &mut world, options, &[append(3), Step::Flush]).map_err(TestCaseError::fail)?;
        let mut disk = disk.killed();
        play(&mut disk, &mut world, options, &[]).map_err(TestCaseError::fail)?;
    }
}
