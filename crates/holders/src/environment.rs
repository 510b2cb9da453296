//! Processes that are known by what is in their environment: what was started under a grant has the
//! grant in it, and hands it on to all that it starts. It is how they are found when nothing else is
//! left that tells of them.

use std::io;

use crate::process::Process;

/// The processes, but for this one, whose environment satisfies a question. Those that may not be
/// looked at are left out.
///
/// # Errors
/// If there is no telling which processes there are.
pub fn with_environment(asked: impl Fn(&Environment) -> bool) -> io::Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        if pid == std::process::id() {
            continue;
        }
        // First the pidfd, then the look: if it lives after that, it was the one that was looked at.
        let Ok(Some(process)) = Process::open(pid) else { continue };
        let Ok(content) = std::fs::read(format!("/proc/{pid}/environ")) else { continue };
        if asked(&Environment(content)) && !process.ended() {
            found.push(process);
        }
    }
    Ok(found)
}

/// The environment that a process was started with.
pub struct Environment(Vec<u8>);

impl Environment {
    /// The value of a variable, if it is there.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut lines = self.0.split(|byte| *byte == 0);
        let value =
            lines.find_map(|line| line.strip_prefix(name.as_bytes())?.strip_prefix(b"="))?;
        std::str::from_utf8(value).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_found_by_what_they_inherited() {
        let mark = format!("mark-{}", std::process::id());
        let mut child = std::process::Command::new("sleep")
            .arg("1000")
            .env("HOLDALL_TEST_MARK", &mark)
            .spawn()
            .expect("it starts");
        let marked = |all: &Environment| all.get("HOLDALL_TEST_MARK") == Some(&mark);
        let found = loop {
            // It has our environment until it becomes the command.
            let found = with_environment(marked).expect("there is a table");
            if !found.is_empty() {
                break found;
            }
        };
        assert_eq!(found.iter().map(|one| one.id().pid).collect::<Vec<_>>(), [child.id()]);
        child.kill().expect("ours");
        child.wait().expect("ours");
        assert!(with_environment(marked).expect("there is a table").is_empty());
    }

    #[test]
    fn a_name_is_not_taken_for_another_that_begins_so() {
        let all = Environment(b"AB=1\0A=2\0C\0A=3\0".to_vec());
        assert_eq!((all.get("A"), all.get("AB"), all.get("C")), (Some("2"), Some("1"), None));
    }
}
