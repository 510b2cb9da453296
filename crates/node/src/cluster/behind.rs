//! That the log of this member is not all that there was of it, as another member has said who has known more.
//!
//! A directory may be put back from a copy, or its log cut off in place, so that nothing of it can be seen at the start. Whoever has known
//! more of it does not let it in, and says so. From then on, also at later starts, the agent gives nothing to anybody, not even to its own
//! clients, and talks to no other member: what it does not know of may be in use, and whoever knows less of it than has been known would
//! believe it. That ends with the life that was refused: when the log was moved away, or the machine restarted, memory is lost, and others
//! say what they hold. Or somebody removes the file.
//!
//! Only a member can bring that about, and one that is wrong, or hostile, brings this agent to a halt by it, and nothing worse.

use std::path::Path;

use anyhow::Context;
use holdall_cell::greeting::Stranger;
use serde::{Deserialize, Serialize};

use crate::directory::Directory;

const FILE: &str = "behind.json";

/// For how many milliseconds it is waited for what others hold: until somebody has seen to it. More than anybody configures.
pub(crate) const FOREVER: u64 = 1 << 45;

/// What another member has said of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Behind {
    /// The life of which it is true, in hexadecimal digits.
    life: String,
    /// The name of the member.
    by: String,
    why: Stranger,
}

impl Behind {
    pub(crate) fn new(life: u128, by: &str, why: Stranger) -> Self {
        Self { life: written(life), by: by.into(), why }
    }

    /// What is noted of this life. What was noted of another one is over.
    ///
    /// # Errors
    /// If it cannot be read or removed.
    pub(crate) fn noted(dir: &Directory, life: u128) -> anyhow::Result<Option<Self>> {
        let Some(bytes) = dir.read(FILE)? else { return Ok(None) };
        let noted: Self = serde_json::from_slice(&bytes).with_context(|| {
            format!(
                "{} is damaged: it says that another member has known more of this one than its log tells; move segment-* and \
                 snapshot-* away with it",
                dir.path_of(FILE).display()
            )
        })?;
        if noted.life != written(life) {
            dir.remove(FILE)?;
            return Ok(None);
        }
        Ok(Some(noted))
    }

    /// Keeps it.
    ///
    /// # Errors
    /// If the disk does not take it.
    pub(crate) fn note(&self, dir: &Directory) -> anyhow::Result<()> {
        Ok(dir.replace(FILE, &serde_json::to_vec(self)?)?)
    }

    /// Why nothing is granted, for people.
    pub(crate) fn told(&self, data: &Path) -> String {
        let Self { by, why, .. } = self;
        format!(
            "the member '{by}' knows more of this one than its log tells ({why}), and what it does not know of may be in use: it grants \
             nothing, and talks to no other member; {}. If '{by}' is wrong, say `holdall cluster remove {by}`, stop this agent and remove {}: \
             that says that nobody uses anything that its log does not tell",
            why.remedy(),
            data.join(FILE).display()
        )
    }

    /// What other members are told, and what is told of them here.
    pub(crate) fn told_to_others(own: &str) -> String {
        format!(
            "the log of '{own}' is not all that there was of it: it grants nothing, and talks to no other member, until somebody has seen to \
             that; `holdall agent status` at '{own}' says how"
        )
    }
}

fn written(life: u128) -> String {
    format!("{life:032x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_over_with_the_life_that_was_refused() {
        let above = tempfile::tempdir().expect("a directory");
        let dir = Directory::private(&above.path().join("data")).expect("ours");
        assert_eq!(Behind::noted(&dir, 7).expect("nothing yet"), None);
        let behind = Behind::new(7, "lab1", Stranger::Shorter { length: 5, known: 9 });
        behind.note(&dir).expect("kept");
        assert_eq!(Behind::noted(&dir, 7).expect("kept"), Some(behind.clone()));
        let told = behind.told(dir.path());
        for word in
            ["'lab1'", "has 5 records, and had 9", "segment-*", "behind.json", "remove lab1"]
        {
            assert!(told.contains(word), "{told}");
        }
        assert_eq!(Behind::noted(&dir, 8).expect("another life"), None);
        assert!(!dir.has(FILE));
        std::fs::write(dir.path().join(FILE), "{").expect("ours");
        let why = Behind::noted(&dir, 7).expect_err("half of it").to_string();
        assert!(why.contains("is damaged"), "{why}");
    }
}
