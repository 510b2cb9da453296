//! Reads a job from a file.

mod fields;
mod flaw;
mod matrix;
mod order;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use holdall_wire::Need;
use toml::de::DeTable;

use self::fields::{Fields, Text, is_name};
use self::flaw::TASKS_MAX;
pub use self::flaw::{Flaw, Problem};
use self::matrix::Values;
use crate::plan::{Command, Plan, When};

const JOB: &[&str] = &["name", "env", "task", "group"];
const TASK: &[&str] = &[
    "after", "when", "needs", "run", "env", "retries", "pause", "wait", "timeout", "continue",
    "again", "matrix",
];
const GROUP: &[&str] = &["needs", "tasks", "wait"];
/// The first pause before a task is run again.
const PAUSE: Duration = Duration::from_secs(1);

/// A task as the file has it: what it comes after is still by name.
#[derive(Clone, Debug)]
struct Draft {
    name: String,
    /// The name in the file, without values of a matrix.
    family: String,
    span: Range<usize>,
    after: Vec<Text>,
    when: When,
    needs: Vec<Need>,
    run: Command,
    env: BTreeMap<String, String>,
    retries: u32,
    pause: Duration,
    wait: Option<Duration>,
    timeout: Option<Duration>,
    tolerated: bool,
    again: bool,
}

/// A group as the file has it.
struct GroupDraft {
    name: Text,
    needs: Vec<Need>,
    tasks: Vec<Text>,
    wait: Option<Duration>,
}

/// Reads a job. It is called as the file says, or else as given.
///
/// # Errors
/// The first flaw of it.
pub fn read(text: &str, name: &str) -> Result<Plan, Flaw> {
    let table = DeTable::parse(text).map_err(|error| {
        let span = error.span().unwrap_or(0..0);
        Flaw::at(text, &span, Problem::Toml(error.message().to_owned()))
    })?;
    let fields = Fields::new(text, table.get_ref(), JOB)?;
    let name = match fields.text("name")? {
        Some(name) if is_name(&name.text) => name.text,
        Some(name) => return Err(fields.flaw(&name.span, Problem::Name(name.text))),
        None => name.to_owned(),
    };
    let env = fields.env("env")?.into_iter().map(|(key, value)| (key, value.text)).collect();
    let mut drafts = Vec::new();
    for (task, table) in fields.tables("task")? {
        drafts.extend(tasks(&task, &Fields::new(text, table, TASK)?)?);
        if drafts.len() > TASKS_MAX {
            return Err(fields.flaw(&task.span, Problem::Many));
        }
    }
    if drafts.is_empty() {
        return Err(fields.flaw(&(0..0), Problem::Empty));
    }
    let groups = fields.tables("group")?;
    let group = |(name, table): (Text, _)| group(name, &Fields::new(text, table, GROUP)?);
    let groups = groups.into_iter().map(group).collect::<Result<Vec<_>, _>>()?;
    order::plan(text, name, env, drafts, groups)
}

/// The task of a table, or those of its matrix.
fn tasks(name: &Text, fields: &Fields<'_>) -> Result<Vec<Draft>, Flaw> {
    let axes = fields.axes("matrix")?;
    if Values::count(&axes).is_none_or(|count| count > TASKS_MAX) {
        return Err(fields.flaw(&name.span, Problem::Many));
    }
    Values::all(&axes).iter().map(|values| task(name, fields, values)).collect()
}

fn task(name: &Text, fields: &Fields<'_>, values: &Values) -> Result<Draft, Flaw> {
    let fill = |text: &Text| values.fill(&text.text).map_err(|bad| fields.flaw(&text.span, bad));
    let (after, when) = (fields.texts("after")?, when(fields)?);
    if when == When::Failure && after.is_empty() {
        return Err(fields.flaw(&name.span, Problem::Never));
    }
    let env = fields.env("env")?;
    let env = env.iter().map(|(key, value)| Ok((key.clone(), fill(value)?)));
    Ok(Draft {
        name: format!("{}{}", name.text, values.suffix()),
        family: name.text.clone(),
        span: name.span.clone(),
        after,
        when,
        needs: needs(fields, &fill)?,
        run: command(name, fields, &fill)?,
        env: env.collect::<Result<_, _>>()?,
        retries: fields.number("retries")?,
        pause: fields.duration("pause")?.unwrap_or(PAUSE),
        wait: fields.duration("wait")?,
        timeout: fields.duration("timeout")?,
        tolerated: fields.flag("continue")?,
        again: fields.flag("again")?,
    })
}

fn when(fields: &Fields<'_>) -> Result<When, Flaw> {
    let Some(word) = fields.text("when")? else { return Ok(When::default()) };
    match word.text.as_str() {
        "success" => Ok(When::Success),
        "failure" => Ok(When::Failure),
        "always" => Ok(When::Always),
        _ => {
            let wanted = "\"success\", \"failure\" or \"always\"";
            Err(fields.flaw(&word.span, Problem::Kind { key: "when".into(), wanted }))
        }
    }
}

fn needs(
    fields: &Fields<'_>,
    fill: &impl Fn(&Text) -> Result<String, Flaw>,
) -> Result<Vec<Need>, Flaw> {
    let mut names = BTreeSet::new();
    let mut needs = Vec::new();
    for text in fields.texts("needs")? {
        let need = fill(&text)?.parse::<Need>();
        let need = need.map_err(|bad| fields.flaw(&text.span, bad.into()))?;
        if need.name.as_str().starts_with('-') {
            return Err(fields.flaw(&text.span, Problem::Dash(need.to_string())));
        }
        if !names.insert(need.name.clone()) {
            return Err(fields.flaw(&text.span, Problem::Twice(need.name.to_string())));
        }
        needs.push(need);
    }
    Ok(needs)
}

fn command(
    name: &Text,
    fields: &Fields<'_>,
    fill: &impl Fn(&Text) -> Result<String, Flaw>,
) -> Result<Command, Flaw> {
    let missing = || {
        let problem = Problem::Missing { whose: format!("[task.{}]", name.text), key: "run" };
        fields.flaw(&name.span, problem)
    };
    if !fields.is_list("run") {
        let line = fields.text("run")?.ok_or_else(missing)?;
        return Ok(Command::Shell(fill(&line)?));
    }
    let words = fields.texts("run")?.iter().map(fill).collect::<Result<Vec<_>, _>>()?;
    if words.is_empty() { Err(missing()) } else { Ok(Command::Words(words)) }
}

fn group(name: Text, fields: &Fields<'_>) -> Result<GroupDraft, Flaw> {
    let (tasks, needs) = (fields.texts("tasks")?, needs(fields, &|text| Ok(text.text.clone()))?);
    for (key, is_missing) in [("tasks", tasks.is_empty()), ("needs", needs.is_empty())] {
        if is_missing {
            let whose = format!("[group.{}]", name.text);
            return Err(fields.flaw(&name.span, Problem::Missing { whose, key }));
        }
    }
    Ok(GroupDraft { needs, tasks, wait: fields.duration("wait")?, name })
}
