//! `holdall figures`: small runs, interruptions, and verdicts that follow from the data.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const TINY: &[&str] =
    &["--protocols", "ordered,oracle", "--graphs", "2", "--ticks", "3000", "--per-request", "1,3"];

fn figures(out: &Path, threads: &str, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_holdall"))
        .env("RAYON_NUM_THREADS", threads)
        .arg("figures")
        .arg("--out")
        .arg(out)
        .args(args)
        .output()
        .expect("the command runs")
}

fn works(out: &Path, threads: &str, args: &[&str]) {
    let done = figures(out, threads, args);
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
}

fn refused(out: &Path, args: &[&str], why: &str) {
    let done = figures(out, "1", args);
    assert_eq!(done.status.code(), Some(64), "{args:?}");
    let told = String::from_utf8_lossy(&done.stderr);
    assert!(told.contains(why), "{args:?}: {told}");
}

fn read(dir: &Path, name: &str) -> String {
    fs::read_to_string(dir.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn threads_and_interruptions_leave_no_trace() {
    let dir = tempfile::tempdir().expect("a directory");
    let (whole, broken) = (dir.path().join("whole"), dir.path().join("broken"));
    works(&whole, "2", TINY);
    let table = read(&whole, "figures.csv");
    assert_eq!(table.lines().count(), 1 + 4 * 2 * 2, "a row for every point");

    let lines: Vec<_> = table.split_inclusive('\n').collect();
    let half = &lines[9][..20];
    fs::create_dir(&broken).expect("a new directory");
    let left = [lines[0], lines[14], lines[3], half].concat();
    fs::write(broken.join("figures.csv"), left).expect("a part of the table");
    works(&broken, "1", TINY);
    for name in ["figures.csv", "claims.md", "own-response-75.svg", "own-messages.svg"] {
        assert_eq!(read(&whole, name), read(&broken, name), "{name}");
    }

    refused(&whole, &[TINY, &["--seed", "2"]].concat(), "--seed 1 --ticks 3000 --graphs 2");
    assert_eq!(table, read(&whole, "figures.csv"), "a refusal changes nothing");
    works(
        &whole,
        "2",
        &["--protocols", "ordered", "--from", &format!("{}/figures.csv", broken.display())],
    );
}

#[test]
fn figures_are_well_formed_and_show_every_line() {
    let dir = tempfile::tempdir().expect("a directory");
    works(dir.path(), "2", TINY);
    for name in ["response-25", "response-50", "response-75", "response-100", "messages"] {
        let svg = read(dir.path(), &format!("own-{name}.svg"));
        let document = roxmltree::Document::parse(&svg).expect("well-formed XML");
        let texts: Vec<_> = document.descendants().filter_map(|node| node.text()).collect();
        for text in ["ordered", "oracle", "conflicting users, mean"] {
            assert!(texts.contains(&text), "{name} does not say {text}");
        }
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name} has places that are none");
    }
}

#[test]
fn bad_input_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    refused(dir.path(), &["--protocols", "orderd"], "did you mean 'ordered'");
    refused(dir.path(), &["--only", "all"], "no set 'all'; there are: fixed, unequal, today");
    refused(dir.path(), &["--protocols", "ordered", "--graphs", "0"], "at least one graph");
    refused(dir.path(), &["--protocols", "ordered", "--ticks", "0"], "ticks is 0");
    refused(dir.path(), &["--from", "no/such.csv"], "no/such.csv");
    let sizes = ["--protocols", "datta", "--per-request", "3"];
    refused(dir.path(), &sizes, "datta: takes at most 2 pools a request, not 3");
    let empty = dir.path().join("empty.csv");
    fs::write(&empty, "").expect("a file");
    refused(dir.path(), &["--from", empty.to_str().expect("UTF-8")], "empty.csv has no rows");
    let odd = dir.path().join("odd.csv");
    fs::write(&odd, "a,b\n1,2\n").expect("a file");
    refused(dir.path(), &["--from", odd.to_str().expect("UTF-8")], "missing field");
}

/// Response and messages of a protocol with few conflicts, and response with many.
type Figures<'a> = (&'a str, f64, f64, f64);

/// A table by hand, the same for all service times but the shortest, in which responses differ as little
/// as `short` says: from 0, not at all, to 1, as much as in the others. `around` is the confidence, a share of
/// the mean.
fn table(protocols: &[Figures<'_>], short: f64, around: f64) -> String {
    let mut table = String::from(
        "sizes,service,per_request,protocol,seed,ticks,graphs_max,graphs,capped,conflicts,response,\
         response_ci,granted,granted_ci,granted_p99,messages,messages_ci,grants,unfinished,\
         unfinished_longest\n",
    );
    for service in [25, 50, 75, 100] {
        for (protocol, messages, few, many) in protocols {
            for (size, conflicts, response) in [(1, 1.0, few), (8, 50.0, many)] {
                let response = if service == 25 { response.powf(short) } else { *response };
                let (response_ci, messages_ci) = (response * around, messages * around);
                table += &format!(
                    "fixed,{service},{size},{protocol},1,1000,9,9,false,{conflicts},{response},\
                     {response_ci},{response},{response_ci},{response},{messages},{messages_ci},9,0,\n"
                );
            }
        }
    }
    table
}

/// The verdicts on the paper's claims, in order.
fn verdicts(table: &str) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a directory");
    let csv = dir.path().join("table.csv");
    fs::write(&csv, table).expect("a table");
    works(dir.path(), "1", &["--from", csv.to_str().expect("UTF-8")]);
    let claims = read(dir.path(), "claims.md");
    let judged = claims.lines().skip_while(|line| !line.starts_with("## Requests of one size"));
    let judged = judged.skip(4).take_while(|line| line.starts_with('|'));
    let verdict = |line: &str| line.rsplit('|').nth(1).map(|verdict| verdict.trim().to_owned());
    judged.map(|line| verdict(line).expect("a last column")).collect()
}

#[test]
fn verdicts_follow_from_the_data() {
    let as_claimed = [
        ("chandy-misra", 40.0, 100.0, 1000.0),
        ("choy-singh", 50.0, 10.0, 500.0),
        ("awerbuch-saks", 100.0, 20.0, 340.0),
        ("rhee:chandy-misra", 50.0, 30.0, 200.0),
        ("rhee:choy-singh", 60.0, 30.0, 210.0),
    ];
    assert_eq!(verdicts(&table(&as_claimed, 0.1, 0.01)), ["**holds**"; 17]);
    let parted = verdicts(&table(&as_claimed, 1.0, 0.01));
    assert_eq!(parted[8], "**fails**", "comparable at service 25");
    let mut chatty = as_claimed;
    chatty[3].1 = 90.0;
    assert_eq!(verdicts(&table(&chatty, 0.1, 0.01))[15], "**fails**", "a small increase");

    let turned_round = [
        ("chandy-misra", 100.0, 10.0, 200.0),
        ("choy-singh", 200.0, 40.0, 210.0),
        ("awerbuch-saks", 10.0, 20.0, 340.0),
        ("rhee:chandy-misra", 50.0, 50.0, 1000.0),
        ("rhee:choy-singh", 60.0, 50.0, 1100.0),
    ];
    let mut turned = verdicts(&table(&turned_round, 1.0, 0.01));
    assert_eq!(turned.split_off(15), ["**holds**"; 2], "fewer messages are no great increase");
    assert_eq!(turned, ["**fails**"; 15]);

    let mut less = as_claimed;
    less[1].3 = 300.0; // CS: CMR is better by a third only, and AS grows more steeply.
    less[0].2 = 25.0; // CM is not the worst with few conflicts.
    let verdicts_on_less = verdicts(&table(&less, 1.0, 0.01));
    assert_eq!(verdicts_on_less[0], "**in part**", "up to 60 % over CS");
    assert_eq!(verdicts_on_less[5], "**in part**", "CM worst");
    assert_eq!(verdicts_on_less[7], "**fails**", "CS grows more steeply");

    let unsure = verdicts(&table(&as_claimed, 1.0, 1.0));
    assert_eq!(unsure, ["open"; 17], "nothing can be told apart");
}

#[test]
fn the_committed_figures_are_those_of_the_committed_table() {
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/study");
    let dir = tempfile::tempdir().expect("a directory");
    let table = kept.join("figures.csv");
    works(dir.path(), "1", &["--from", table.to_str().expect("UTF-8")]);
    for entry in fs::read_dir(dir.path()).expect("a directory") {
        let name = entry.expect("readable").file_name().into_string().expect("UTF-8");
        assert_eq!(read(dir.path(), &name), read(&kept, &name), "{name}");
    }
}
