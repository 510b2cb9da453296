//! `holdall run NEED... -- CMD...` without options, as it is mostly typed. It is read here: to build the parser of all
//! options takes longer than everything else that is done before the agent is asked.

use std::ffi::OsString;

use super::{After, Args, AtEnd, Wanted};
use crate::failure::NOT_NOW;
use crate::reach::Reach;

impl Args {
    /// What was typed after `run`, if there are needs and a command, and no option; otherwise the parser reads it, and
    /// says what is wrong.
    pub(crate) fn plain(words: impl IntoIterator<Item = OsString>) -> Option<Self> {
        let mut words = words.into_iter();
        let mut needs = Vec::new();
        loop {
            let word = words.next()?.into_string().ok()?;
            match word.as_str() {
                "--" => break,
                option if option.starts_with('-') => return None,
                _ => needs.push(word),
            }
        }
        let command: Vec<_> = words.collect();
        let is_all = !needs.is_empty() && !command.is_empty();
        let reach = Reach::default();
        let (no_wait, wait, by, reason, name) = Default::default();
        let conflict_exit_code = NOT_NOW;
        let wanted = Wanted { needs, no_wait, wait, by, conflict_exit_code, reason, name, reach };
        is_all.then(|| Self {
            wanted,
            leftovers: After::default(),
            limit: None,
            quiet: false,
            part_of: None,
            at_end: AtEnd::default(),
            command,
        })
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Parsed {
        #[command(flatten)]
        args: Args,
    }

    /// What the parser makes of it, if it is sound.
    fn parsed(words: &[&str]) -> Option<String> {
        let read = Parsed::try_parse_from(["run"].iter().chain(words)).ok()?;
        Some(format!("{:?}", read.args))
    }

    #[test]
    fn what_is_plain_is_read_as_the_parser_reads_it() {
        let plain: [&[&str]; 5] = [
            &["x", "--", "true"],
            &["gpu:2", "db:shared", "--", "make", "-j8", "--", "-n"],
            &["help", "--", "--", "run", "-n"],
            &["", "--", ""],
            &["a@b", "--", "-w"],
        ];
        for words in plain {
            let read = Args::plain(words.iter().map(Into::into));
            let read = read.map(|args| format!("{args:?}"));
            assert!(read.is_some() && read == parsed(words), "{words:?}: {read:?}");
        }
        let others: [&[&str]; 8] = [
            &[],
            &["x"],
            &["x", "--"],
            &["--", "true"],
            &["-n", "x", "--", "true"],
            &["x", "--wait=1s", "--", "true"],
            &["-", "--", "true"],
            &["x", "--help", "--", "true"],
        ];
        for words in others {
            assert!(Args::plain(words.iter().map(Into::into)).is_none(), "{words:?}");
        }
    }
}
