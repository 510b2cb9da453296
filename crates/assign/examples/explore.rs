//! Explores a scope: `cargo run --release -p holdall-assign --example explore -- --help`.

use std::process::ExitCode;
use std::time::Instant;

use holdall_assign::explore::{
    AssignmentModel, AssignmentScope, Buffers, Found, Model, Settings, WindowsModel, WindowsScope,
    explore,
};
use holdall_assign::paper::{AsPrinted, Atomic, Biggest, Framed, Growth};
use holdall_assign::windows::rules;

const HELP: &str = "\
explore windows OPS [OPTIONS]      the practical version; OPS like 1,2,3: operations of each worker
explore assignment OPS [OPTIONS]   Figures 2 and 3 with real snapshots and renaming

  --ring N          windows in the ring [2]
  --rules R         sound, impatient, helpless, or a mutant:
                    overgiving insatiable greedy unfenced unvalidated eager forgetful
  --buffers B       none, stores (of processors), files (puts collected until a fence) [none]
  --crashes N       crashes with restart [0]
  --saying S        framed (Fig. 3's l4), atomic (Fig. 2's l4), printed (the same on a plain
                    collect), biggest [framed]
  --growth F        f(0),f(1),... like 0,2,4,6 [2k-1]; --any-growth lets a bad one pass
  --item-as-printed the first item is f(|IS|) - Name, as the paper's remark says
  --reduce          leave out orders that nobody can tell apart
  --max-states N    [100000000]

Exit status: 0 all seen and nothing wrong, 1 something wrong, 3 cut off, 64 bad usage.";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match run(&args) {
        Ok(code) => code,
        Err(why) => {
            eprintln!("explore: {why}\n\n{HELP}");
            ExitCode::from(64)
        }
    }
}

fn option<'a>(args: &'a [String], name: &str, default: &'a str) -> &'a str {
    let at = args.iter().position(|arg| arg == name);
    at.and_then(|at| args.get(at + 1)).map_or(default, |value| value)
}

fn numbers<T: std::str::FromStr>(text: &str) -> Result<Vec<T>, String> {
    let number = |part: &str| part.parse().map_err(|_| format!("{part:?} is no number"));
    text.split(',').map(number).collect()
}

fn run(args: &[String]) -> Result<ExitCode, String> {
    if args.iter().any(|arg| arg == "--help") {
        println!("{HELP}");
        return Ok(ExitCode::SUCCESS);
    }
    let [what, ops, ..] = args else {
        return Err("name a model and the operations of each worker".into());
    };
    let settings = Settings {
        reduce: args.iter().any(|arg| arg == "--reduce"),
        buffers: match option(args, "--buffers", "none") {
            "none" => Buffers::None,
            "stores" => Buffers::Stores,
            "files" => Buffers::Files,
            other => return Err(format!("no buffers {other:?}")),
        },
        crashes: numbers(option(args, "--crashes", "0"))?[0],
        max_states: numbers(option(args, "--max-states", "100000000"))?[0],
    };
    match what.as_str() {
        "windows" => windows(args, ops, &settings),
        "assignment" => assignment(args, ops, &settings),
        other => Err(format!("no model {other:?}")),
    }
}

fn windows(args: &[String], ops: &str, settings: &Settings) -> Result<ExitCode, String> {
    let ring = numbers(option(args, "--ring", "2"))?[0];
    let scope = WindowsScope { ops: numbers(ops)?, ring };
    macro_rules! with {
        ($($name:literal $rules:ident),+) => {
            match option(args, "--rules", "sound") {
                $($name => Ok(tell(&WindowsModel::<rules::$rules>::new(&scope), settings)),)+
                other => Err(format!("no rules {other:?}")),
            }
        };
    }
    with!("sound" Sound, "impatient" Impatient, "helpless" Helpless, "overgiving" Overgiving,
        "insatiable" Insatiable, "greedy" Greedy, "unfenced" Unfenced, "unvalidated" Unvalidated, "eager" Eager,
        "forgetful" Forgetful)
}

fn assignment(args: &[String], ops: &str, settings: &Settings) -> Result<ExitCode, String> {
    let growth = match option(args, "--growth", "") {
        "" => None,
        values => {
            let growth = Growth::new(numbers::<u64>(values)?).map_err(|bad| bad.to_string())?;
            let any = args.iter().any(|arg| arg == "--any-growth");
            let good = growth.clone().assignable();
            Some(if any { growth } else { good.map_err(|bad| bad.to_string())? })
        }
    };
    let as_printed = args.iter().any(|arg| arg == "--item-as-printed");
    let scope = AssignmentScope { ops: numbers(ops)?, growth, as_printed };
    Ok(match option(args, "--saying", "framed") {
        "framed" => tell(&AssignmentModel::<Framed>::new(&scope), settings),
        "atomic" => tell(&AssignmentModel::<Atomic>::new(&scope), settings),
        "printed" => tell(&AssignmentModel::<AsPrinted>::new(&scope), settings),
        "biggest" => tell(&AssignmentModel::<Biggest>::new(&scope), settings),
        other => return Err(format!("no saying {other:?}")),
    })
}

fn tell<M: Model>(model: &M, settings: &Settings) -> ExitCode {
    let start = Instant::now();
    let Found { states, complete, steps, most, violation } = explore(model, settings);
    let seconds = start.elapsed().as_secs_f32();
    println!("{states} states in {seconds:.1} s, {}", if complete { "all" } else { "cut off" });
    if let Some(violation) = violation {
        println!("{}\nschedule: {}", violation.what, violation.schedule);
        return ExitCode::from(1);
    }
    println!("nothing wrong; most steps of each: {steps:?}");
    println!("most items or lots unassigned because one stopped: {most}");
    ExitCode::from(if complete { 0 } else { 3 })
}
