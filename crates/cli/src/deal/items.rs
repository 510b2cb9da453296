//! What is dealt: lines of a file, or numbers.

use std::fs;
use std::path::Path;

use crate::usage;

/// The items, by number.
pub(super) enum Items {
    Lines(Vec<String>),
    Numbers(u64),
}

impl Items {
    pub(super) fn of(file: Option<&Path>, count: Option<u64>) -> anyhow::Result<Self> {
        let Some(path) = file else {
            return Ok(Self::Numbers(count.unwrap_or(0)));
        };
        let read = fs::read_to_string(path);
        let text = read.map_err(|error| usage(format!("--items {}: {error}", path.display())))?;
        Ok(Self::Lines(text.lines().filter(|line| !line.is_empty()).map(Into::into).collect()))
    }

    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Lines(lines) => lines.len() as u64,
            Self::Numbers(count) => *count,
        }
    }

    pub(super) fn name(&self, item: u64) -> String {
        match self {
            Self::Lines(lines) => lines[item as usize].clone(),
            Self::Numbers(_) => item.to_string(),
        }
    }

    /// Tells lists apart: workers that deal different ones must not share a store.
    pub(super) fn fingerprint(&self) -> u64 {
        let mut sum = 0xcbf2_9ce4_8422_2325_u64;
        if let Self::Lines(lines) = self {
            for byte in lines.iter().flat_map(|line| line.bytes().chain([b'\n'])) {
                sum = (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
        sum
    }
}
