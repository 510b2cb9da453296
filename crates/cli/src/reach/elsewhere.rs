//! Agents on other machines: `tls://lab1:7420`, with a token.

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use holdall_client::Remote;
use holdall_wire::span;

use super::place::variable;
use crate::usage;

/// The variables that hold the token, or the name of a file with it.
const TOKEN: &str = "HOLDALL_TOKEN";
const TOKEN_FILE: &str = "HOLDALL_TOKEN_FILE";
/// The variable that says for how long the agent may be out of reach until what is held is lost.
const LEASE: &str = "HOLDALL_LEASE";
/// How long that is if nothing is said; as between members of a cluster.
const USUAL: Duration = Duration::from_secs(60);
/// A shorter lease would be over by accident.
const SHORTEST: Duration = Duration::from_secs(5);

/// An agent on another machine, and for how long it may be out of reach.
#[derive(Clone, Debug)]
pub(crate) struct Elsewhere {
    pub(crate) remote: Remote,
    pub(crate) lease: Duration,
}

impl Elsewhere {
    /// The agent that an address means; none if it is a path.
    pub(super) fn of(address: &OsStr) -> anyhow::Result<Option<Self>> {
        let Some(address) = address.to_str().filter(|text| Remote::is_meant(text)) else {
            return Ok(None);
        };
        Remote::check(address).map_err(usage)?;
        let token = token(address)?;
        let remote = Remote::new(address, &token).map_err(usage)?;
        Ok(Some(Self { remote, lease: lease()? }))
    }
}

fn token(address: &str) -> anyhow::Result<String> {
    let no_text = |name: &str| usage(format!("{name} is no text"));
    match (variable(TOKEN), variable(TOKEN_FILE)) {
        (Some(_), Some(_)) => {
            Err(usage(format!("both {TOKEN} and {TOKEN_FILE} are set; unset one")))
        }
        (Some(token), None) => token.into_os_string().into_string().map_err(|_| no_text(TOKEN)),
        (None, Some(file)) => read(&file),
        (None, None) => Err(usage(format!(
            "{address} needs a token: `holdall token add NAME --may view,ask --client` on its machine prints one; \
             put it into {TOKEN}, or into a file that {TOKEN_FILE} names"
        ))),
    }
}

fn read(file: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(file)
        .map_err(|error| usage(format!("{TOKEN_FILE}: {}: {error}", file.display())))?;
    Ok(text.trim().to_owned())
}

fn lease() -> anyhow::Result<Duration> {
    let Some(text) = variable(LEASE) else { return Ok(USUAL) };
    let bad = |why: String| usage(format!("{LEASE}: {why}"));
    let lease = span(&text.to_string_lossy()).map_err(|why| bad(why.to_string()))?;
    if lease < SHORTEST {
        return Err(bad(format!("{} is too short; at least 5s", text.display())));
    }
    Ok(lease)
}
