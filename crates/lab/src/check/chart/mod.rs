//! A trace as a message sequence chart: a lifeline for each party, time runs downwards, and an
//! arrow for each message.

mod picture;
mod text;

use serde_json::Value;

use super::{StepKind, Trace, TraceStep, Who};

impl Trace {
    /// The chart in plain text; an arrow stands where its message arrives.
    pub fn chart(&self) -> String {
        text::draw(&Chart::new(self))
    }

    /// The chart as an SVG document; an arrow begins where its message was sent.
    pub fn chart_svg(&self, title: &str) -> String {
        picture::draw(&Chart::new(self), title)
    }
}

/// What is drawn.
struct Chart<'t> {
    /// The parties, each with a lifeline.
    parties: Vec<Who>,
    rows: Vec<Row>,
    /// The row with which the part begins that is repeated for ever.
    repeats_from: Option<usize>,
    end: &'t str,
}

/// One step.
struct Row {
    /// The lifeline on which it happens.
    at: usize,
    /// The lifeline that the message comes from, and the row in which it was sent, if known.
    from: Option<(usize, Option<usize>)>,
    lost: bool,
    label: String,
    /// The lifelines of those whose requests it grants.
    granted: Vec<usize>,
}

impl<'t> Chart<'t> {
    fn new(trace: &'t Trace) -> Self {
        let steps: Vec<&TraceStep> = trace.steps.iter().chain(&trace.cycle).collect();
        let seen = steps.iter().flat_map(|step| step.from.into_iter().chain([step.at]));
        let mut parties: Vec<Who> = seen.collect();
        parties.sort_unstable();
        parties.dedup();
        let lifeline =
            |who: Who| parties.iter().position(|party| *party == who).unwrap_or_default();
        let mut under_way: Vec<(usize, Who, Who, &Option<Value>)> = Vec::new();
        let mut rows = Vec::new();
        for (row, step) in steps.iter().enumerate() {
            let is_it = |(_, from, to, content): &(usize, Who, Who, &Option<Value>)| {
                (Some(*from), *to, *content) == (step.from, step.at, &step.content)
            };
            let sent = under_way.iter().position(is_it).map(|at| match step.kind {
                StepKind::Duplicate => under_way[at].0,
                _ => under_way.remove(at).0,
            });
            under_way.extend(step.sent.iter().map(|s| (row, step.at, s.to, &s.content)));
            rows.push(Row {
                at: lifeline(step.at),
                from: step.from.map(|from| (lifeline(from), sent)),
                lost: step.kind == StepKind::Lose,
                label: label(step),
                granted: step.granted.iter().map(|user| lifeline(Who::User(*user))).collect(),
            });
        }
        let repeats_from = (!trace.cycle.is_empty()).then_some(trace.steps.len());
        Self { parties, rows, repeats_from, end: &trace.end }
    }
}

/// A step in a word or two.
pub(super) fn label(step: &TraceStep) -> String {
    let content = step.content.as_ref().map(word).unwrap_or_default();
    match step.kind {
        StepKind::Ask => "asks".into(),
        StepKind::Crash => "stops".into(),
        StepKind::Deliver | StepKind::Duplicate | StepKind::Lose => content,
        StepKind::Done => "is done".into(),
        StepKind::Lapse => "lease ends".into(),
        StepKind::Leave => "leaves".into(),
        StepKind::Reboot => "restarts".into(),
        StepKind::Return => "is another".into(),
        StepKind::Ring => format!("rings {content}"),
        StepKind::Suspect => "is suspected".into(),
        StepKind::Tell => format!("told {content}"),
    }
}

/// The name of a message: of a variant, the name of it.
fn word(content: &Value) -> String {
    match content {
        Value::Object(fields) if fields.len() == 1 => fields.keys().next().cloned(),
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
    .unwrap_or_else(|| "message".into())
}
