//! What is asked for over HTTP, and what that is for the service.

use hmac_sha256::Hash;
use holdall_wire::{self as wire, Ask, Lasting, Need};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::number;
use crate::mark::Mark;
use crate::problem::{Kind, Problem};

/// How long an answer may take at most.
pub(super) const WAIT_MAX: u64 = 300_000;
/// The shortest and the longest lease.
const TTL: std::ops::RangeInclusive<u64> = 1000..=3_600_000;

/// What is asked for.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Ask)]
pub(super) struct Asked {
    /// What is needed, all or nothing: `gpu`, `gpu:2`, `gpu:all`, `gpu/3`, `db`, `db:shared`.
    #[schema(min_items = 1, max_items = 1000, example = json!(["gpu:2", "license/maya"]))]
    needs: Vec<String>,
    /// Whoever is not heard of for so long loses the request.
    #[serde(default = "half_a_minute")]
    #[schema(minimum = 1000, maximum = 3_600_000)]
    pub(super) ttl_ms: u64,
    /// How long the answer may take.
    #[serde(default)]
    #[schema(minimum = 0, maximum = 300_000)]
    pub(super) wait_ms: u64,
    /// Whether the request goes on waiting if it is not granted by then. Otherwise it is withdrawn.
    #[serde(default)]
    pub(super) queue: bool,
    /// It is reserved for so long, from its grant on, whatever becomes of the lease.
    #[schema(minimum = 1)]
    reserve_ms: Option<u64>,
    /// It is taken away after so long.
    #[schema(minimum = 1)]
    limit_ms: Option<u64>,
    /// The number of the grant inside which this is asked: its holder waits for this.
    #[schema(pattern = "^[0-9]+-[0-9]+$")]
    within: Option<String>,
    /// A name for the request, for people to read.
    #[schema(max_length = 4096)]
    name: Option<String>,
    /// The reason for it, for people to read.
    #[schema(max_length = 4096)]
    reason: Option<String>,
    /// The program that asks, for people to read.
    #[schema(max_length = 4096)]
    command: Option<String>,
}

fn half_a_minute() -> u64 {
    30_000
}

impl Asked {
    pub(super) fn check(&self) -> Result<(), Problem> {
        let wrong = |text: String| Err(Problem::new(Kind::Usage, text));
        if !TTL.contains(&self.ttl_ms) {
            return wrong(format!("ttl_ms is from {} to {}", TTL.start(), TTL.end()));
        }
        if self.wait_ms > WAIT_MAX {
            return wrong(format!("wait_ms is {WAIT_MAX} at most; ask again to wait longer"));
        }
        if self.needs.is_empty() {
            return wrong("a request has at least one need".into());
        }
        if self.reserve_ms == Some(0) || self.limit_ms == Some(0) {
            return wrong("reserve_ms and limit_ms are at least 1".into());
        }
        Ok(())
    }

    /// What tells it from other requests: not how long one waits for the answer.
    pub(super) fn mark(&self) -> Mark {
        let Self { needs, reserve_ms, limit_ms, within, .. } = self;
        let text = serde_json::to_string(&(needs, reserve_ms, limit_ms, within));
        Mark::new(self.ttl_ms, Hash::hash(text.unwrap_or_default().as_bytes()))
    }

    pub(super) fn not_in_time(&self) -> Problem {
        Problem::new(Kind::Timeout, format!("not granted within {} ms", self.wait_ms))
    }

    pub(super) fn wire(&self) -> Result<Ask, Problem> {
        let need = |text: &String| {
            text.parse().map_err(|bad: wire::BadNeed| Problem::new(Kind::Usage, bad.to_string()))
        };
        Ok(Ask {
            needs: self.needs.iter().map(need).collect::<Result<Vec<Need>, _>>()?,
            now: self.wait_ms == 0 && !self.queue,
            lasting: self.reserve_ms.map_or(Lasting::Connection, Lasting::Reservation),
            from: wire::From {
                command: self.command.clone().unwrap_or_default(),
                name: self.name.clone(),
                reason: self.reason.clone(),
            },
            within: self.within.as_deref().map(number).transpose()?,
            limit: self.limit_ms,
            part: None,
        })
    }
}
