//! A copy of the workspace with the changes in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::rewrite::{Mutant, Rewriter};

/// What each switch asks.
const SWITCH: &str = r#"//! Which change is in force.

use std::sync::LazyLock;

static ON: LazyLock<usize> = LazyLock::new(|| {
    std::env::var("HOLDALL_MUTANT").ok().and_then(|number| number.parse().ok()).unwrap_or(0)
});

/// Whether a change is in force.
#[inline]
pub fn is(number: usize) -> bool {
    *ON == number
}
"#;

/// Where each executable that was built is, by name.
pub(crate) type Built = BTreeMap<String, PathBuf>;

/// A copy of the workspace.
pub(crate) struct Copy<'a> {
    root: &'a Path,
    /// The files to change, from the root.
    files: Vec<String>,
    /// What they were.
    texts: Vec<String>,
}

impl<'a> Copy<'a> {
    /// Copies all files that git knows, and puts the switch into the crate of these paths.
    pub(crate) fn make(root: &'a Path, paths: &[PathBuf]) -> Result<Self> {
        let known = git_files(Path::new("."))?;
        let is_meant = |file: &&String| {
            let path = Path::new(file);
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let left_out = ["lib.rs", "tests.rs", "testing.rs"].contains(&name)
                || path.components().any(|part| part.as_os_str() == "tests");
            name.ends_with(".rs") && !left_out && paths.iter().any(|meant| path.starts_with(meant))
        };
        let files: Vec<String> = known.iter().filter(is_meant).cloned().collect();
        ensure!(!files.is_empty(), "no files to change in {paths:?}");
        let crates: BTreeSet<_> =
            files.iter().filter_map(|file| file.split_once("/src/")).collect();
        let crates: BTreeSet<&str> = crates.into_iter().map(|(of, _)| of).collect();
        let [of] = crates.into_iter().collect::<Vec<_>>()[..] else {
            bail!("the files to change must be of one crate");
        };
        let lib = format!("{of}/src/lib.rs");
        remove_strangers(root, &known)?;
        for file in known.iter().filter(|file| !files.contains(file) && **file != lib) {
            put(&root.join(file), &fs::read(file).with_context(|| file.clone())?)?;
        }
        put(&root.join(of).join("src/mutant.rs"), SWITCH.as_bytes())?;
        put(&root.join(&lib), with_switch(&fs::read_to_string(&lib)?)?.as_bytes())?;
        let read = |file: &String| fs::read_to_string(file).with_context(|| file.clone());
        let texts = files.iter().map(read).collect::<Result<_>>()?;
        Ok(Self { root, files, texts })
    }

    /// Puts all changes in but these.
    pub(crate) fn put_in(&self, skip: &[usize]) -> Result<Vec<Mutant>> {
        let mut rewriter = Rewriter::new(skip);
        for (file, text) in self.files.iter().zip(&self.texts) {
            let new = rewriter.rewrite(file, text).with_context(|| file.clone())?;
            put(&self.root.join(file), new.as_bytes())?;
        }
        Ok(rewriter.mutants)
    }

    /// Puts all changes in and builds; those that do not compile are left out, until it does.
    pub(crate) fn build(&self, builds: &[String]) -> Result<(Vec<Mutant>, Built)> {
        let mut skip = Vec::new();
        loop {
            let mutants = self.put_in(&skip)?;
            match self.try_build(builds)? {
                Ok(built) => return Ok((mutants, built)),
                Err(culprits) => {
                    eprintln!("{} of {} changes do not compile", culprits.len(), mutants.len());
                    skip.extend(culprits);
                }
            }
        }
    }

    /// What was built; or else which changes do not compile.
    fn try_build(&self, builds: &[String]) -> Result<Result<Built, BTreeSet<usize>>> {
        let mut built = Built::new();
        for args in builds {
            let mut cargo = Command::new("cargo");
            cargo.current_dir(self.root).args(args.split(' ')).arg("--message-format=json");
            // Nowhere else: cargo takes the crates of the copy for those of the workspace.
            cargo.env("CARGO_TARGET_DIR", std::path::absolute(self.root.join("target"))?);
            if args.starts_with("test") {
                cargo.arg("--no-run");
            }
            let output = cargo.stderr(std::process::Stdio::inherit()).output()?;
            let text = String::from_utf8_lossy(&output.stdout);
            let messages: Vec<Value> =
                text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
            if !output.status.success() {
                let culprits = self.culprits(&messages)?;
                ensure!(!culprits.is_empty(), "does not build: cargo {args}");
                return Ok(Err(culprits));
            }
            for message in &messages {
                if let (Some(name), Some(path)) =
                    (message["target"]["name"].as_str(), message["executable"].as_str())
                {
                    built.insert(name.into(), path.into());
                }
            }
        }
        Ok(Ok(built))
    }

    /// The changes nearest to the errors, from there upwards; and from what else the compiler points to,
    /// downwards: where a borrow begins that a change makes too long.
    fn culprits(&self, messages: &[Value]) -> Result<BTreeSet<usize>> {
        let mut culprits = BTreeSet::new();
        let errors = messages.iter().map(|message| &message["message"]);
        for error in errors.filter(|error| error["level"] == "error") {
            for span in error["spans"].as_array().into_iter().flatten() {
                let (Some(file), Some(line)) =
                    (span["file_name"].as_str(), span["line_start"].as_u64())
                else {
                    continue;
                };
                let text = fs::read_to_string(self.root.join(file)).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                let (above, below) = lines.split_at(lines.len().min(line as usize));
                culprits.extend(above.iter().rev().find_map(|line| switch_in(line)));
                if span["is_primary"] == false {
                    culprits.extend(below.iter().find_map(|line| switch_in(line)));
                }
            }
        }
        Ok(culprits)
    }
}

/// The last switch on a line.
fn switch_in(line: &str) -> Option<usize> {
    let (_, number) = line.rsplit_once("crate::mutant::is(")?;
    number.split_once("usize")?.0.parse().ok()
}

/// Adds the switch to a crate, and the standard library for its sake.
fn with_switch(lib: &str) -> Result<String> {
    let mut parsed = syn::parse_file(lib)?;
    parsed.items.insert(
        0,
        syn::parse_quote!(
            pub mod mutant;
        ),
    );
    if lib.contains("#![no_std]") {
        parsed.items.insert(
            0,
            syn::parse_quote!(
                extern crate std;
            ),
        );
    }
    Ok(prettyplease::unparse(&parsed))
}

/// Writes a file, but not if it is so already: what is not touched is not built again.
/// Removes the Rust files of an earlier copy that git knows no more: cargo would find them by itself.
fn remove_strangers(root: &Path, known: &[String]) -> Result<()> {
    let folders: BTreeSet<&Path> =
        known.iter().filter_map(|file| Path::new(file).parent()).collect();
    for folder in folders {
        let Ok(entries) = fs::read_dir(root.join(folder)) else { continue };
        for entry in entries {
            let name = folder.join(entry?.file_name());
            let rust = name.extension().is_some_and(|extension| extension == "rs");
            let ours = name.ends_with("src/mutant.rs");
            if rust && !ours && !known.iter().any(|file| Path::new(file) == name) {
                fs::remove_file(root.join(&name))?;
            }
        }
    }
    Ok(())
}

fn put(path: &Path, bytes: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == bytes) {
        return Ok(());
    }
    fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
    fs::write(path, bytes).with_context(|| path.display().to_string())
}

fn git_files(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git").current_dir(root).arg("ls-files").output()?;
    ensure!(output.status.success(), "not a repository: {}", root.display());
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().filter(|file| root.join(file).is_file()).map(Into::into).collect())
}
