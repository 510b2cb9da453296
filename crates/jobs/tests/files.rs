//! Files: what is read of good ones, and what is said of bad ones.

use holdall_jobs::{Command, Plan, Problem, Requester, When, read};

const NIGHT: &str = r#"
name = "night"
env = { BUILD = "release" }

[task.build]
needs = ["cpu:4"]
run = "make -j4"

[task.flash]
after = ["build"]
needs = ["board", "usb:shared"]
run = "./flash.sh $HOLDALL_UNITS_BOARD"
retries = 2
timeout = "10m"

[task.suite]
after = ["flash"]
matrix = { part = ["smoke", "radio", "power"] }
needs = ["board", "license/vector"]
run = ["pytest", "tests/{part}"]

[task.report]
after = ["suite"]
when = "always"
run = "./report.sh"
"#;

fn names(plan: &Plan) -> Vec<&str> {
    plan.tasks.iter().map(|task| task.name.as_str()).collect()
}

#[test]
fn a_night_of_tests_is_read() {
    let plan = read(NIGHT, "file").expect("a job");
    assert_eq!(plan.name, "night");
    assert_eq!(plan.env["BUILD"], "release");
    let all = ["build", "flash", "suite[smoke]", "suite[radio]", "suite[power]", "report"];
    assert_eq!(names(&plan), all);
    assert_eq!(plan.tasks[3].run, Command::Words(vec!["pytest".into(), "tests/radio".into()]));
    assert_eq!(plan.tasks[5].after.len(), 3);
    assert_eq!(plan.tasks[5].when, When::Always);
    assert_eq!(plan.tasks[1].timeout.map(|t| t.as_secs()), Some(600));
    let depths: Vec<usize> = plan.tasks.iter().map(|task| task.depth).collect();
    assert_eq!(depths, [4, 3, 2, 2, 2, 1]);
}

#[test]
fn a_file_is_in_order_whatever_order_it_is_written_in() {
    let text = "[task.c]\nafter=['b']\nrun='c'\n[task.b]\nafter=['a']\nrun='b'\n[task.a]\nrun='a'";
    assert_eq!(names(&read(text, "x").expect("a job")), ["a", "b", "c"]);
}

#[test]
fn a_group_asks_for_what_its_tasks_can_need_at_the_same_time() {
    let text = "
[task.a]
run = 'a'
needs = ['gpu:2', 'db', 'doc:shared']
[task.b]
run = 'b'
after = ['a']
needs = ['gpu:3', 'doc:shared']
[task.c]
run = 'c'
needs = ['gpu:1', 'db', 'disk:all']
[task.d]
run = 'd'
needs = ['disk']
[group.g]
needs = ['board']
tasks = ['a', 'b', 'c', 'd']
";
    let plan = read(text, "x").expect("a job");
    let [request] = &plan.requests[..] else { panic!("one request") };
    assert_eq!(request.by, Requester::Group(0));
    let mut needs: Vec<String> = request.needs.iter().map(ToString::to_string).collect();
    needs.sort();
    assert_eq!(needs, ["board", "db", "disk:all", "doc:shared", "gpu:4"]);
}

/// What is said of a file, with its place.
fn flaw(text: &str) -> String {
    read(text, "x").expect_err("a flaw").to_string()
}

#[test]
fn what_is_wrong_is_said_with_its_place() {
    let task = |more: &str| format!("[task.a]\nrun = 'x'\n{more}");
    let cases = [
        (task("aftr = ['b']"), "line 3, column 1: there is no 'aftr' here; 'after' is meant?"),
        (task("nonsense = 1"), "line 3, column 1: there is no 'nonsense' here; there are after"),
        (task("after = ['suit']\n[task.suite]\nrun = 'x'"), "there is no task 'suit'; 'suite' is meant?"),
        (task("after = ['a']"), "these tasks wait for each other: a after a"),
        (
            "[task.a]\nrun='x'\nafter=['c']\n[task.b]\nrun='x'\nafter=['a']\n[task.c]\nrun='x'\nafter=['b']".into(),
            "these tasks wait for each other: a after c after b after a",
        ),
        (task("matrix = { part = [] }"), "line 3, column 19: the axis 'part' has no values"),
        (task("matrix = { part = ['x', 'x'] }"), "there are two tasks 'a[x]'"),
        (task("needs = ['gpu:0']"), "line 3, column 10: 'gpu:0': zero units"),
        (task("needs = ['gpu', 'gpu:2']"), "line 3, column 17: gpu is asked for twice"),
        (task("needs = 'gpu'"), "'needs' is a list of texts"),
        (task("timeout = 'soon'"), "'timeout' is a span of time"),
        (task("retries = -1"), "'retries' is a number from 0 on"),
        (task("retries = 1.5"), "'retries' is a number from 0 on"),
        (task("when = 'never'"), "'when' is \"success\", \"failure\" or \"always\""),
        (task("when = 'failure'"), "has to come after something"),
        (task("env = { 'A=B' = 'x' }"), "'env' is a table of texts"),
        ("[task.a]".into(), "line 1, column 7: [task.a] has no 'run'"),
        ("[task.a]\nrun = []".into(), "[task.a] has no 'run'"),
        ("[task.'a b']\nrun = 'x'".into(), "'a b' cannot be a name"),
        (format!("[task.{}]\nrun = 'x'", "x".repeat(101)), "cannot be a name"),
        ("name = 'x'".into(), "there is no task"),
        (String::new(), "there is no task"),
        ("name = 'ä'\n[task.a]\nrun='x'".into(), "'ä' cannot be a name"),
        ("[task.a]\nrun = 'x'\n[task.a]\nrun = 'y'".into(), "line 3"),
        ("[task.a\n".into(), "line 1"),
        ("task = 3".into(), "'task' is a table of tables"),
        (task("[group.g]\nneeds = ['x']\ntasks = []"), "[group.g] has no 'tasks'"),
        (task("[group.g]\ntasks = ['a']"), "[group.g] has no 'needs'"),
        (
            task("needs = ['x']\n[group.g]\nneeds = ['x:shared']\ntasks = ['a']"),
            "the group 'g' holds x for 'a' already",
        ),
        (
            task("[group.g]\nneeds = ['x']\ntasks = ['a']\n[group.h]\nneeds = ['x']\ntasks = ['a']"),
            "'a' is in two groups, 'g' and 'h'",
        ),
    ];
    for (text, expected) in cases {
        let told = flaw(&text);
        assert!(told.contains(expected), "{text}\n{told}\n{expected}");
        assert!(!told.contains('\n'), "{told}");
    }
}

#[test]
fn a_group_that_would_wait_while_it_holds_is_refused() {
    let text = "
[task.a]
run = 'a'
[task.out]
run = 'x'
after = ['a']
[task.further]
run = 'x'
after = ['out']
[task.b]
run = 'b'
after = ['further']
[group.g]
needs = ['board']
tasks = ['a', 'b']
";
    let told = flaw(text);
    assert!(
        told.contains("the group 'g' would hold what it has while it waits for 'further'"),
        "{told}"
    );
}

#[test]
fn too_many_tasks_are_refused_before_they_are_made() {
    let values: Vec<String> = (0..1000).map(|n| n.to_string()).collect();
    let axis = values.join(",");
    let text =
        format!("[task.a]\nrun='x'\nmatrix = {{ a = [{axis}], b = [{axis}], c = [{axis}] }}");
    let flaw = read(&text, "x").expect_err("too many");
    assert_eq!(flaw.problem, Problem::Many);
}

#[test]
fn groups_that_come_after_each_other_are_refused() {
    let text = "
[task.a1]
run = 'x'
[task.b1]
run = 'x'
[task.a2]
run = 'x'
after = ['b1']
[task.b2]
run = 'x'
after = ['a1']
[group.one]
needs = ['x']
tasks = ['a1', 'a2']
[group.two]
needs = ['y']
tasks = ['b1', 'b2']
";
    let told = flaw(text);
    assert!(told.contains("these groups wait for each other"), "{told}");
    assert!(told.ends_with("one after two after one"), "{told}");
}

#[test]
fn what_would_take_too_much_memory_is_refused() {
    let values: Vec<String> = (0..3000).map(|n| n.to_string()).collect();
    let axis = values.join(",");
    let matrix = |name: &str| format!("[task.{name}]\nrun='x'\nmatrix={{v=[{axis}]}}\n");
    let two = format!("{}{}after=['a']", matrix("a"), matrix("b"));
    assert!(matches!(read(&two, "x").map_err(|flaw| flaw.problem), Err(Problem::Edges)));
    let group = format!("{}[group.g]\nneeds=['x']\ntasks=['a']", matrix("a"));
    assert!(matches!(read(&group, "x").map_err(|flaw| flaw.problem), Err(Problem::LargeGroup)));
}

#[test]
fn what_cannot_be_asked_for_is_refused_with_the_place() {
    let said = |text: &str| read(text, "x").expect_err("a flaw").to_string();
    let option = said("[task.a]\nrun='x'\nneeds=['--name']");
    assert_eq!(
        option,
        "line 3, column 8: '--name' cannot be asked for, as it begins like an option"
    );
    let alike = said("[task.a]\nrun='x'\nneeds=['a-b', 'a_b']");
    assert!(alike.starts_with("line 1, column 7: 'a-b' and 'a_b' would both be"), "{alike}");
    let inside = "[task.a]\nrun='x'\nneeds=['a-b']\n[group.g]\ntasks=['a']\nneeds=['a_b']";
    assert!(said(inside).contains("would both be HOLDALL_UNITS_A_B"));
    let many: Vec<String> = (0..1001).map(|n| format!("'n{n}'")).collect();
    let many = said(&format!("[task.a]\nrun='x'\nneeds=[{}]", many.join(",")));
    assert!(many.ends_with("it would ask for 1001 things at once; a request has at most 1000"));
    for name in ["[task.'.a']\nrun='x'", "name='-a'\n[task.a]\nrun='x'"] {
        assert!(said(name).contains("cannot be a name"), "{name}");
    }
}

#[test]
fn what_a_job_holds_at_most_counts_what_may_run_at_the_same_time() {
    let most = |text: &str| -> Vec<String> {
        read(text, "x").expect("a job").most().iter().map(ToString::to_string).collect()
    };
    assert_eq!(most(NIGHT), ["board:3", "cpu:4", "license/vector:3", "usb:shared"]);
    let chain = "[task.a]\nrun='x'\nneeds=['p:2']\n[task.b]\nafter=['a']\nrun='x'\nneeds=['p:3']";
    assert_eq!(most(chain), ["p:3"]);
    // A task that comes after one of a group may run while the group still holds.
    let group = "[task.a]\nrun='x'\n[task.b]\nrun='x'\n[group.g]\ntasks=['a','b']\nneeds=['p:2']\n\
                 [task.c]\nafter=['a']\nrun='x'\nneeds=['p']\n\
                 [task.d]\nafter=['a','b']\nrun='x'\nneeds=['p:2']";
    assert_eq!(most(group), ["p:3"]);
}

#[test]
fn the_critical_path_is_the_longest_chain() {
    let plan = read(NIGHT, "x").expect("a job");
    let path: Vec<&str> =
        plan.critical_path().iter().map(|task| plan.task(*task).name.as_str()).collect();
    assert_eq!(path, ["build", "flash", "suite[smoke]", "report"]);
}
