//! What the machine does, one thing at a time.

use holdall_jobs::{
    Cause, Effect, Force, Input, Limits, Machine, Outcome, Record, RequestIndex, Stage, TaskIndex,
    read,
};

/// A job that has begun, and what it said then.
fn begun(text: &str, limits: Limits) -> (Machine, Vec<Effect>) {
    let mut machine = Machine::new(read(text, "job").expect("a job"), limits);
    let effects = machine.start(0);
    (machine, effects)
}

fn job(text: &str) -> Machine {
    begun(text, Limits::default()).0
}

fn at(machine: &Machine, name: &str) -> TaskIndex {
    let place = machine.plan().tasks.iter().position(|task| task.name == name);
    TaskIndex(place.expect("there is one"))
}

fn request(machine: &Machine, name: &str) -> RequestIndex {
    machine.plan().task(at(machine, name)).request
}

/// Grants what a task asks for, for the so many-th time.
fn grant(machine: &mut Machine, now: u64, name: &str, ask: u32) -> Vec<Effect> {
    machine.step(now, Input::Granted(request(machine, name), ask))
}

fn end(
    machine: &mut Machine,
    now: u64,
    name: &str,
    attempt: u32,
    cause: Option<Cause>,
) -> Vec<Effect> {
    machine.step(now, Input::Ended(at(machine, name), attempt, cause))
}

fn stage<'a>(machine: &'a Machine, name: &str) -> &'a Stage {
    machine.stage(at(machine, name))
}

fn asked(effects: &[Effect]) -> Vec<usize> {
    let ask = |effect: &Effect| match effect {
        Effect::Ask(request, _) => Some(request.0),
        _ => None,
    };
    effects.iter().filter_map(ask).collect()
}

const EXIT: Option<Cause> = Some(Cause::Exit(1));
const UNKNOWN: Option<Cause> = Some(Cause::Unknown);

#[test]
fn a_start_is_noted_before_it_is_done_with_how_long_it_waited() {
    let mut machine = job("[task.a]\nrun='x'\nneeds=['n']");
    let (task, attempt) = (at(&machine, "a"), 1);
    let effects = grant(&mut machine, 700, "a", 1);
    let started = Effect::Record(Record::Started { task, attempt, at: 700, waited: 700 });
    assert_eq!(effects, [started, Effect::Start(task, 1)]);
    let effects = end(&mut machine, 900, "a", 1, None);
    let attempted = Effect::Record(Record::Attempted { task, cause: None, at: 900 });
    let ended = Effect::Record(Record::Ended { task, outcome: Outcome::Succeeded, at: 900 });
    assert_eq!(effects, [attempted, ended, Effect::Release(request(&machine, "a"), 1)]);
    assert!(machine.is_over());
}

#[test]
fn a_failure_is_tried_again_as_often_as_said_after_pauses_that_double() {
    let mut machine = job("[task.a]\nrun='x'\nretries=2\npause='1s'");
    grant(&mut machine, 0, "a", 1);
    let effects = end(&mut machine, 0, "a", 1, EXIT);
    assert!(effects.contains(&Effect::Release(request(&machine, "a"), 1)), "{effects:?}");
    assert_eq!((stage(&machine, "a"), machine.next_alarm()), (&Stage::Pausing, Some(1000)));
    assert!(asked(&machine.step(999, Input::Tick)).is_empty());
    assert_eq!(asked(&machine.step(1000, Input::Tick)).len(), 1);
    grant(&mut machine, 1000, "a", 2);
    assert_eq!(machine.attempts(at(&machine, "a")), 2);
    end(&mut machine, 1000, "a", 2, EXIT);
    assert_eq!(machine.next_alarm(), Some(3000));
    machine.step(3000, Input::Tick);
    grant(&mut machine, 3000, "a", 3);
    end(&mut machine, 3000, "a", 3, EXIT);
    assert_eq!(stage(&machine, "a"), &Stage::Ended(Outcome::Failed(Cause::Exit(1))));
    assert_eq!((machine.summary().failed, machine.is_over()), (1, true));
}

#[test]
fn a_pause_is_at_most_an_hour() {
    let mut machine = job("[task.a]\nrun='x'\nretries=50\npause='50m'");
    let mut now = 0;
    for attempt in 1..=40 {
        grant(&mut machine, now, "a", attempt);
        end(&mut machine, now, "a", attempt, EXIT);
        let pause = machine.next_alarm().expect("it pauses") - now;
        assert_eq!(pause, if attempt == 1 { 3_000_000 } else { 3_600_000 });
        now += pause;
        machine.step(now, Input::Tick);
    }
}

#[test]
fn what_runs_for_too_long_is_told_to_end_and_then_killed() {
    let mut machine = job("[task.a]\nrun='x'\ntimeout='5s'");
    grant(&mut machine, 0, "a", 1);
    let task = at(&machine, "a");
    assert!(machine.step(4999, Input::Tick).is_empty());
    assert_eq!(machine.step(5000, Input::Tick), [Effect::Stop(task, Force::Ask)]);
    assert_eq!(stage(&machine, "a"), &Stage::Stopping(Cause::Timeout));
    assert!(machine.step(14_999, Input::Tick).is_empty());
    assert_eq!(machine.step(15_000, Input::Tick), [Effect::Stop(task, Force::Kill)]);
    end(&mut machine, 15_001, "a", 1, None);
    assert_eq!(stage(&machine, "a"), &Stage::Ended(Outcome::Failed(Cause::Timeout)));
}

#[test]
fn what_waits_for_too_long_is_withdrawn_and_given_back_if_it_comes_too_late() {
    let mut machine = job("[task.a]\nrun='x'\nneeds=['n']\nwait='5s'\nretries=3");
    let request = request(&machine, "a");
    let effects = machine.step(5000, Input::Tick);
    assert_eq!(effects[0], Effect::Withdraw(request, 1));
    assert_eq!(stage(&machine, "a"), &Stage::Ended(Outcome::Failed(Cause::NotInTime)));
    assert_eq!(machine.step(5001, Input::Granted(request, 1)), [Effect::Release(request, 1)]);
    assert!(machine.is_over());
}

#[test]
fn what_can_never_be_granted_is_not_tried_again() {
    let mut machine = job("[task.a]\nrun='x'\nneeds=['n']\nretries=3");
    let request = request(&machine, "a");
    // What is said of another time counts for nothing.
    machine.step(0, Input::Refused(request, 7, Cause::Never("no".into())));
    assert!(machine.waits(request));
    machine.step(0, Input::Refused(request, 1, Cause::Never("no".into())));
    assert!(!machine.waits(request) && machine.is_over());
}

const DIAMOND: &str = "
[task.first]
run = 'x'
[task.other]
run = 'x'
needs = ['n']
[task.next]
run = 'x'
after = ['first']
[task.told]
run = 'x'
after = ['next']
when = 'failure'
[task.last]
run = 'x'
after = ['next']
when = 'always'
";

#[test]
fn a_failure_stops_what_has_not_begun_and_nothing_else() {
    let mut machine = job(DIAMOND);
    grant(&mut machine, 0, "first", 1);
    let withdrawn = Effect::Withdraw(request(&machine, "other"), 1);
    let effects = end(&mut machine, 0, "first", 1, EXIT);
    assert!(effects.contains(&withdrawn), "{effects:?}");
    for name in ["other", "next"] {
        assert_eq!(stage(&machine, name), &Stage::Ended(Outcome::Skipped), "{name}");
    }
    for name in ["told", "last"] {
        assert_eq!(stage(&machine, name), &Stage::Ready, "{name}");
        grant(&mut machine, 0, name, 1);
        end(&mut machine, 0, name, 1, None);
    }
    let summary = machine.summary();
    assert_eq!((summary.succeeded, summary.failed, summary.skipped), (2, 1, 2));
}

#[test]
fn what_runs_when_another_fails_is_let_run_and_tried_again() {
    let mut machine = job("[task.a]\nrun='x'\n[task.b]\nrun='x'\nretries=1\npause='1s'");
    grant(&mut machine, 0, "a", 1);
    grant(&mut machine, 0, "b", 1);
    end(&mut machine, 0, "a", 1, EXIT);
    assert_eq!(stage(&machine, "b"), &Stage::Running);
    end(&mut machine, 0, "b", 1, EXIT);
    machine.step(1000, Input::Tick);
    grant(&mut machine, 1000, "b", 2);
    end(&mut machine, 1000, "b", 2, None);
    assert_eq!(machine.summary().succeeded, 1);
}

#[test]
fn a_failure_that_is_tolerated_stops_nothing() {
    let mut machine = job("[task.a]\nrun='x'\ncontinue=true\n[task.b]\nrun='x'\nafter=['a']");
    grant(&mut machine, 0, "a", 1);
    end(&mut machine, 0, "a", 1, EXIT);
    assert_eq!(stage(&machine, "b"), &Stage::Ready);
    let summary = machine.summary();
    assert_eq!((summary.failed, summary.tolerated), (1, 1));
}

#[test]
fn a_task_that_is_cancelled_ends_and_what_comes_after_it_is_skipped() {
    let mut machine = job(DIAMOND);
    grant(&mut machine, 0, "first", 1);
    let task = at(&machine, "first");
    let noted = Effect::Record(Record::Cancelled { task: Some(task), at: 0 });
    let effects = machine.step(0, Input::Cancel(Some(task)));
    assert_eq!(effects, [noted, Effect::Stop(task, Force::Ask)]);
    end(&mut machine, 0, "first", 1, None);
    assert_eq!(stage(&machine, "first"), &Stage::Ended(Outcome::Failed(Cause::Cancelled)));
    assert_eq!(stage(&machine, "next"), &Stage::Ended(Outcome::Skipped));
    assert_eq!(stage(&machine, "other"), &Stage::Ready, "it has nothing to do with it");
    assert!(!machine.is_cancelled());
}

#[test]
fn a_job_that_is_cancelled_begins_nothing_more() {
    let mut machine = job(DIAMOND);
    grant(&mut machine, 0, "first", 1);
    let effects = machine.step(0, Input::Cancel(None));
    assert!(effects.contains(&Effect::Record(Record::Cancelled { task: None, at: 0 })));
    assert!(effects.contains(&Effect::Withdraw(request(&machine, "other"), 1)));
    assert!(machine.step(0, Input::Cancel(None)).is_empty());
    assert!(asked(&end(&mut machine, 0, "first", 1, EXIT)).is_empty());
    assert!(machine.is_over() && machine.is_cancelled());
    assert_eq!(machine.summary().failed, 5);
    assert!(machine.step(0, Input::Cancel(None)).is_empty());
}

#[test]
fn what_has_ended_can_be_run_again_with_what_comes_after_it() {
    let mut machine = job("[task.a]\nrun='x'\n[task.b]\nrun='x'\nafter=['a']\n[task.c]\nrun='x'");
    grant(&mut machine, 0, "c", 1);
    end(&mut machine, 0, "c", 1, None);
    assert!(machine.step(0, Input::Retry(None)).is_empty(), "it has not ended");
    grant(&mut machine, 0, "a", 1);
    end(&mut machine, 0, "a", 1, EXIT);
    let effects = machine.step(0, Input::Retry(None));
    let tasks = vec![at(&machine, "a"), at(&machine, "b")];
    assert_eq!(effects[0], Effect::Record(Record::Retried { tasks, at: 0 }));
    assert_eq!(stage(&machine, "c"), &Stage::Ended(Outcome::Succeeded));
    grant(&mut machine, 0, "a", 2);
    end(&mut machine, 0, "a", 1, None);
    assert_eq!(stage(&machine, "b"), &Stage::Ready);
    assert_eq!(machine.attempts(at(&machine, "a")), 1);
}

#[test]
fn those_with_most_behind_them_are_asked_for_first_and_not_too_many() {
    let text = "[task.a]\nrun='x'\nneeds=['n']\n[task.b]\nrun='x'\nneeds=['n']\n\
                [task.c]\nrun='x'\nneeds=['n']\nafter=['b']\n[task.d]\nrun='x'\nneeds=['n']";
    let (mut machine, effects) = begun(text, Limits { ahead: 2, jobs: 3 });
    let of = |machine: &Machine, names: &[&str]| -> Vec<usize> {
        names.iter().map(|name| request(machine, name).0).collect()
    };
    assert_eq!(asked(&effects), of(&machine, &["b", "a"]));
    let effects = grant(&mut machine, 0, "b", 1);
    assert_eq!(asked(&effects), of(&machine, &["d"]));
    assert!(asked(&grant(&mut machine, 0, "a", 1)).is_empty(), "there are three");
    assert_eq!(asked(&end(&mut machine, 0, "b", 1, None)), of(&machine, &["c"]));
}

#[test]
fn no_more_wait_or_run_than_may() {
    let text = "[task.a]\nrun='x'\n[task.b]\nrun='x'\n[task.c]\nrun='x'";
    let (_, effects) = begun(text, Limits { ahead: 9, jobs: 2 });
    assert_eq!(asked(&effects).len(), 2);
}

#[test]
fn a_failure_before_a_restart_stops_what_has_nothing_to_do_with_it_too() {
    let text = "[task.a]\nrun='x'\n[task.b]\nrun='x'\nneeds=['n']";
    let mut machine = job(text);
    let mut records = noted(&grant(&mut machine, 0, "a", 1));
    records.extend(noted(&end(&mut machine, 0, "a", 1, EXIT)).into_iter().take(1));
    let (machine, _) = Machine::resume(machine.plan().clone(), Limits::default(), &records, 0);
    assert_eq!(stage(&machine, "b"), &Stage::Ended(Outcome::Skipped));
}

const GROUP: &str = "
[task.alone]
run = 'x'
needs = ['lock']
[task.one]
run = 'x'
needs = ['lock:shared']
[task.two]
run = 'x'
needs = ['lock:shared']
[task.last]
run = 'x'
after = ['one', 'two']
[group.g]
needs = ['held']
tasks = ['alone', 'one', 'two', 'last']
";

fn started(machine: &Machine, effects: &[Effect]) -> Vec<String> {
    let start = |effect: &Effect| match effect {
        Effect::Start(task, _) => Some(machine.plan().task(*task).name.clone()),
        _ => None,
    };
    effects.iter().filter_map(start).collect()
}

#[test]
fn tasks_of_a_group_share_what_they_can_share() {
    let mut machine = job(GROUP);
    let effects = grant(&mut machine, 0, "alone", 1);
    assert_eq!(started(&machine, &effects), ["one", "two"]);
    let effects = end(&mut machine, 0, "one", 1, None);
    assert!(started(&machine, &effects).is_empty());
    let effects = end(&mut machine, 0, "two", 1, None);
    assert_eq!(started(&machine, &effects), ["alone", "last"]);
    end(&mut machine, 0, "last", 1, None);
    let effects = end(&mut machine, 0, "alone", 1, None);
    assert_eq!(effects.last(), Some(&Effect::Release(request(&machine, "alone"), 1)));
}

#[test]
fn a_group_has_no_more_running_than_it_may() {
    let (mut machine, _) = begun(GROUP, Limits { ahead: 1, jobs: 1 });
    let effects = grant(&mut machine, 0, "alone", 1);
    assert_eq!(started(&machine, &effects), ["one"]);
    let effects = end(&mut machine, 0, "one", 1, None);
    assert_eq!(started(&machine, &effects), ["two"]);
}

#[test]
fn a_group_goes_on_holding_while_one_of_it_pauses() {
    let mut machine = job("[task.a]\nrun='x'\nretries=1\npause='1s'\n[task.b]\nrun='x'\n\
                           [group.g]\nneeds=['held']\ntasks=['a','b']");
    grant(&mut machine, 0, "a", 1);
    end(&mut machine, 0, "b", 1, None);
    let effects = end(&mut machine, 0, "a", 1, EXIT);
    assert!(!effects.iter().any(|effect| matches!(effect, Effect::Release(..))), "{effects:?}");
    let effects = machine.step(1000, Input::Tick);
    assert_eq!(started(&machine, &effects), ["a"]);
}

#[test]
fn a_lost_grant_ends_what_runs_and_the_rest_is_asked_for_anew() {
    let mut machine = job(GROUP);
    grant(&mut machine, 0, "alone", 1);
    let request = request(&machine, "alone");
    assert!(
        machine.step(0, Input::Lost(request, 9, Cause::GrantLost)).is_empty(),
        "that is another"
    );
    let effects = machine.step(0, Input::Lost(request, 1, Cause::GrantLost));
    assert_eq!(effects.len(), 2, "two run, and are killed: {effects:?}");
    end(&mut machine, 0, "one", 1, UNKNOWN);
    assert_eq!(stage(&machine, "one"), &Stage::Ended(Outcome::Failed(Cause::GrantLost)));
    // That was a failure, and what has not begun is skipped; without it, it goes on.
    let mut machine = job(&GROUP.replace("run = 'x'", "run = 'x'\nagain = true\npause = '1s'"));
    grant(&mut machine, 0, "alone", 1);
    machine.step(0, Input::Lost(request, 1, Cause::GrantLost));
    end(&mut machine, 0, "one", 1, UNKNOWN);
    let effects = end(&mut machine, 0, "two", 1, UNKNOWN);
    assert_eq!(asked(&effects), [request.0], "for what has not begun");
    let effects = machine.step(0, Input::Granted(request, 2));
    assert_eq!(started(&machine, &effects), ["alone"]);
    assert!(machine.step(1000, Input::Tick).is_empty(), "somebody has it alone");
    let effects = end(&mut machine, 1000, "alone", 1, None);
    assert_eq!(started(&machine, &effects), ["one", "two"]);
}

#[test]
fn what_a_user_has_cancelled_is_not_run_again_because_its_grant_is_lost() {
    let mut machine = job("[task.a]\nrun='x'\nagain=true");
    grant(&mut machine, 0, "a", 1);
    machine.step(0, Input::Cancel(Some(at(&machine, "a"))));
    machine.step(0, Input::Lost(request(&machine, "a"), 1, Cause::GrantLost));
    end(&mut machine, 0, "a", 1, None);
    assert_eq!(stage(&machine, "a"), &Stage::Ended(Outcome::Failed(Cause::Cancelled)));
}

fn noted(effects: &[Effect]) -> Vec<Record> {
    let record = |effect: &Effect| match effect {
        Effect::Record(record) => Some(record.clone()),
        _ => None,
    };
    effects.iter().filter_map(record).collect()
}

#[test]
fn what_was_running_at_a_restart_is_lost_or_run_again_as_its_plan_says() {
    for (again, expected) in
        [("true", Stage::Ready), ("false", Stage::Ended(Outcome::Failed(Cause::Unknown)))]
    {
        let text = format!("[task.a]\nrun='x'\nneeds=['n']\nretries=3\nagain={again}");
        let mut machine = job(&text);
        let records = noted(&grant(&mut machine, 0, "a", 1));
        let (plan, limits) = (machine.plan().clone(), Limits::default());
        let (resumed, effects) = Machine::resume(plan, limits, &records, 5);
        assert_eq!((stage(&resumed, "a"), resumed.attempts(at(&resumed, "a"))), (&expected, 1));
        let (task, cause) = (at(&resumed, "a"), Some(Cause::Unknown));
        assert_eq!(effects[0], Effect::Record(Record::Attempted { task, cause, at: 5 }));
    }
}

#[test]
fn retries_failures_and_what_was_cancelled_are_remembered_over_a_restart() {
    let text = "[task.a]\nrun='x'\nretries=1\npause='1s'\n[task.b]\nrun='x'\nafter=['a']\n\
                [task.c]\nrun='x'\nafter=['a']\nwhen='always'";
    let mut machine = job(text);
    let mut records = noted(&grant(&mut machine, 0, "a", 1));
    records.extend(noted(&end(&mut machine, 0, "a", 1, EXIT)));
    let resume = |records: &[Record]| {
        Machine::resume(read(text, "job").expect("a job"), Limits::default(), records, 0)
    };
    // It has one try left.
    let (mut machine, _) = resume(&records);
    records.extend(noted(&grant(&mut machine, 0, "a", 1)));
    // Only that it failed was noted, not what follows.
    records.extend(noted(&end(&mut machine, 0, "a", 2, EXIT)).into_iter().take(1));
    let (mut machine, effects) = resume(&records);
    assert_eq!(stage(&machine, "a"), &Stage::Ended(Outcome::Failed(Cause::Exit(1))));
    assert_eq!(stage(&machine, "b"), &Stage::Ended(Outcome::Skipped));
    assert_eq!(stage(&machine, "c"), &Stage::Ready);
    records.extend(noted(&effects));
    assert!(noted(&resume(&records).1).is_empty(), "nothing is noted twice");
    records.extend(noted(&machine.step(0, Input::Cancel(None))).into_iter().take(1));
    let (mut machine, effects) = resume(&records);
    assert!(machine.is_over() && machine.is_cancelled() && asked(&effects).is_empty());
    records.extend(noted(&effects));
    records.extend(noted(&machine.step(0, Input::Retry(None))));
    let (machine, _) = resume(&records);
    assert_eq!((stage(&machine, "a"), machine.attempts(at(&machine, "a"))), (&Stage::Ready, 0));
    assert!(!machine.is_cancelled());
}

/// The runner hears of both at once: that a task of a group has ended, and that what it held is lost.
#[test]
fn an_end_that_is_known_stands_although_the_grant_is_lost_and_the_group_goes_on() {
    let text = "[task.a]\nrun='x'\n[task.b]\nafter=['a']\nrun='x'\n\
                [group.g]\nneeds=['n']\ntasks=['a','b']";
    let mut machine = job(text);
    grant(&mut machine, 0, "a", 1);
    let request = request(&machine, "a");
    machine.step(1, Input::Lost(request, 1, Cause::GrantLost));
    let effects = end(&mut machine, 1, "a", 1, None);
    assert_eq!(stage(&machine, "a"), &Stage::Ended(Outcome::Succeeded));
    assert_eq!(asked(&effects), [request.0], "what is left of it is asked for anew");
    grant(&mut machine, 2, "b", 2);
    end(&mut machine, 3, "b", 1, None);
    assert!(machine.is_over());
}

#[test]
fn a_time_limit_of_what_is_held_counts_as_a_timeout() {
    let mut machine = job("[task.a]\nrun='x'\nneeds=['n']\nagain=true");
    grant(&mut machine, 0, "a", 1);
    machine.step(1, Input::Lost(request(&machine, "a"), 1, Cause::Timeout));
    end(&mut machine, 1, "a", 1, Some(Cause::Unknown));
    assert_eq!(stage(&machine, "a"), &Stage::Ended(Outcome::Failed(Cause::Timeout)));
}

/// Its end is not noted yet when the machine is lost.
#[test]
fn a_task_that_was_cancelled_while_it_ran_is_not_run_again_by_the_next_machine() {
    for cause in [Cause::Unknown, Cause::Signal(15)] {
        let text = "[task.a]\nrun='x'\nagain=true\nretries=3\n[task.b]\nrun='x'";
        let mut machine = job(text);
        let (task, mut records) = (at(&machine, "a"), Vec::new());
        let mut effects = grant(&mut machine, 0, "a", 1);
        effects.extend(machine.step(1, Input::Cancel(Some(task))));
        for effect in effects {
            if let Effect::Record(record) = effect {
                records.push(record);
            }
        }
        if cause != Cause::Unknown {
            records.push(Record::Attempted { task, cause: Some(cause), at: 2 });
        }
        let plan = machine.plan().clone();
        let (mut machine, _) = Machine::resume(plan, Limits::default(), &records, 3);
        assert_eq!(stage(&machine, "a"), &Stage::Ended(Outcome::Failed(Cause::Cancelled)));
        grant(&mut machine, 4, "b", 1);
        end(&mut machine, 4, "b", 1, None);
        machine.step(5, Input::Retry(Some(task)));
        assert_eq!(stage(&machine, "a"), &Stage::Ready, "that was then");
    }
}

#[test]
fn what_needs_nothing_does_not_wait_behind_what_does() {
    let text = "[task.a]\nrun='x'\nneeds=['n']\n[task.b]\nrun='x'\nneeds=['n']\n[task.c]\nrun='x'";
    let (machine, effects) = begun(text, Limits { ahead: 1, jobs: 3 });
    let first = [request(&machine, "a").0, request(&machine, "c").0];
    assert_eq!(asked(&effects), first, "b waits until a is granted");
}

#[test]
fn tasks_of_a_group_have_waited_as_long_as_their_group() {
    let text = "[task.a]\nrun='x'\n[task.b]\nafter=['a']\nrun='x'\n\
                [group.g]\nneeds=['n']\ntasks=['a','b']";
    let mut machine = job(text);
    grant(&mut machine, 50, "a", 1);
    let effects = end(&mut machine, 900, "a", 1, None);
    let (task, attempt) = (at(&machine, "b"), 1);
    let started = Effect::Record(Record::Started { task, attempt, at: 900, waited: 50 });
    assert!(effects.contains(&started), "{effects:?}");
}
