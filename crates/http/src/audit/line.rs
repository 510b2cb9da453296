//! Lines of the audit log, and which of them are wanted.

use holdall_wire as wire;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::view::{Taken, Who};

/// A line of the audit log. What does not apply is left out.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub(crate) struct Line {
    /// When, in milliseconds since 1970.
    pub(crate) at: u64,
    /// What happened: `asked`, `granted`, `released`, `pool`, ...
    pub(crate) what: String,
    /// To which request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) request: Option<String>,
    /// Whose it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) who: Option<Who>,
    /// What was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) needs: Vec<String>,
    /// What is held.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) taken: Vec<Taken>,
    /// More about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<String>,
    /// How many needs and units there was no room for.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) left_out: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A line as it is in the file.
#[derive(Deserialize)]
struct Kept {
    at: u64,
    what: String,
    request: Option<String>,
    who: Option<Who>,
    #[serde(default)]
    needs: Vec<String>,
    #[serde(default)]
    taken: Vec<wire::Taken>,
    detail: Option<String>,
    #[serde(default)]
    left_out: u64,
}

impl Line {
    /// None for what is no line: a crash may have cut one off.
    pub(super) fn read(text: &[u8]) -> Option<Self> {
        let kept: Kept = serde_json::from_slice(text).ok()?;
        Some(Self {
            at: kept.at,
            what: kept.what,
            request: kept.request,
            who: kept.who,
            needs: kept.needs,
            taken: kept.taken.iter().map(Into::into).collect(),
            detail: kept.detail,
            left_out: kept.left_out,
        })
    }

    /// The pool or unit that a change of the pools was about.
    fn changed(&self) -> Option<String> {
        let detail = self.detail.as_deref().filter(|_| self.what == "pool")?;
        let change: serde_json::Map<String, serde_json::Value> =
            serde_json::from_str(detail).ok()?;
        Some(change.values().next()?.get("name")?.as_str()?.to_owned())
    }

    /// A line that says what is missing.
    pub(crate) fn missing(at: u64, detail: &str) -> Self {
        Self {
            at,
            what: "left-out".into(),
            request: None,
            who: None,
            needs: Vec::new(),
            taken: Vec::new(),
            detail: Some(detail.into()),
            left_out: 0,
        }
    }
}

/// Who reads the log.
#[derive(Clone, Debug)]
pub(crate) enum Reader {
    /// Somebody who may see everybody's past.
    OfAll,
    /// Somebody who may see its own.
    OfOwn {
        /// Its number.
        uid: u32,
        /// Its name.
        user: String,
    },
}

impl Reader {
    /// A line as it is told to this reader. Of others' requests everybody learns what became of which units and when, as
    /// whoever looks all the time would; not whose they were and what was said of them.
    pub(crate) fn told(&self, line: Line) -> Line {
        let own = |who: &Who| match self {
            Self::OfAll => true,
            Self::OfOwn { uid, user } => who.uid == *uid && who.user == *user,
        };
        let all = matches!(self, Self::OfAll);
        let of_nobody = line.request.is_none() && line.who.is_none();
        if all || of_nobody || line.who.as_ref().is_some_and(own) {
            return line;
        }
        Line { who: None, detail: None, ..line }
    }
}

/// Which lines are wanted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) since: u64,
    pub(crate) until: Option<u64>,
    pub(crate) request: Option<String>,
    pub(crate) pool: Option<String>,
    pub(crate) user: Option<String>,
    pub(crate) text: Option<String>,
}

impl Wanted {
    /// Whether a line is wanted, as it is told: what is not told is not found either.
    pub(super) fn takes(&self, line: &Line) -> bool {
        let is = |wanted: &Option<String>, found: Option<&str>| {
            wanted.as_deref().is_none_or(|wanted| found == Some(wanted))
        };
        let of_pool = |pool: &str| {
            let inside = |name: &str| {
                let rest = name.strip_prefix(pool);
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '/']))
            };
            line.needs.iter().any(|need| inside(need))
                || line.taken.iter().any(|taken| inside(&taken.name))
                || line.changed().is_some_and(|name| inside(&name))
        };
        let has = |wanted: &str| {
            let text = serde_json::to_string(line).unwrap_or_default();
            text.to_lowercase().contains(&wanted.to_lowercase())
        };
        line.at >= self.since
            && self.until.is_none_or(|until| line.at < until)
            && is(&self.request, line.request.as_deref())
            && is(&self.user, line.who.as_ref().map(|who| who.user.as_str()))
            && self.pool.as_deref().is_none_or(of_pool)
            && self.text.as_deref().is_none_or(has)
    }
}
