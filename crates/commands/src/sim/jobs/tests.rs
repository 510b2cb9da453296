//! Jobs through protocols: nothing is used twice, and all comes to its end.

use super::*;

const JOB: &str = "
[task.first]
run = 'x'
needs = ['board', 'lock:shared']
[task.free]
run = 'x'
after = ['first']
[task.pair]
run = 'x'
after = ['first']
needs = ['board:2', 'lock']
[task.last]
run = 'x'
after = ['free', 'pair']
needs = ['lock']
";

fn jobs(text: &str, copies: u32, pools: &[&str]) -> Jobs {
    let plan = holdall_jobs::read(text, "job").expect("a job");
    let sizes: Vec<Size> = pools.iter().map(|size| size.parse().expect("a size")).collect();
    let pools = Pools::of(&plan, &sizes, copies as usize * plan.requests.len()).expect("pools");
    Jobs { plan, pools, copies, every: 30 }
}

fn played(jobs: &Jobs, protocol: &str, settings: &Settings) -> (Summary, u64) {
    let settings = jobs.settings(settings);
    let mut players = jobs.players(&settings);
    let contender = holdall_registry::contender(protocol).expect("a protocol");
    run_clients(&settings, &contender, &mut players).expect("played");
    (players.summary(), players.violations())
}

#[test]
fn jobs_end_and_exclude_each_other_under_any_protocol() {
    let jobs = jobs(JOB, 12, &["board:3"]);
    for protocol in
        ["oracle", "winkowski", "house", "ordered", "coordinator:fifo", "coordinator:skip"]
    {
        let (summary, violations) = played(&jobs, protocol, &Settings::default());
        assert!(summary.ended.is_some(), "{protocol}: a job has not ended");
        assert_eq!(violations, 0, "{protocol}");
        assert!(summary.wait_longest > 0 && summary.job_mean > 0.0, "{protocol}");
        assert!(summary.pools["board"] > 0.0 && summary.pools["board"] <= 1.0, "{protocol}");
    }
}

#[test]
fn jobs_that_did_not_end_in_time_or_never_arrived_are_counted_and_not_measured() {
    let jobs = Jobs { every: 10_000, ..jobs(JOB, 5, &["board:3"]) };
    let settings = Settings { ticks: 10, ..Settings::default() };
    let (summary, _) = played(&jobs, "house", &settings);
    assert!(summary.unfinished > 0 && summary.ended.is_none(), "some never arrived");
    assert!(summary.job_longest < 10_000, "of those that have ended");
}

/// With one lock and messages that take no time, the lock is never free until all is over.
#[test]
fn what_there_is_one_of_is_used_all_the_time() {
    let chain = "[task.a]\nrun='x'\nneeds=['l']\n[task.b]\nafter=['a']\nrun='x'\nneeds=['l']";
    let jobs = Jobs { every: 0, ..jobs(chain, 5, &[]) };
    let settings = Settings { delay: 0, ..Settings::default() };
    for protocol in ["oracle", "house"] {
        let (summary, _) = played(&jobs, protocol, &settings);
        let players = jobs.players(&settings);
        assert_eq!(summary.ended, Some(players.work()), "{protocol}");
        assert!((summary.pools["l"] - 1.0).abs() < 1e-9, "{protocol}");
    }
}

#[test]
fn what_a_pool_is_has_to_be_said_and_fit() {
    let plan = holdall_jobs::read(JOB, "job").expect("a job");
    let said = |sizes: &[&str]| {
        let sizes: Vec<Size> = sizes.iter().map(|size| size.parse().expect("a size")).collect();
        Pools::of(&plan, &sizes, 4).expect_err("it makes no sense")
    };
    assert_eq!(said(&[]), "say how many units 'board' has: --pool board:N");
    assert_eq!(said(&["board:1"]), "'board' has 1 units, and the job needs 2");
    assert_eq!(said(&["board:2", "lock:3"]), "'lock' is shared by the job, so it is a lock");
    assert_eq!(said(&["board:2", "gpu:3"]), "the job does not need 'gpu'");
    assert!("board".parse::<Size>().is_err());
}
