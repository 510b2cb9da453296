//! The directory of a member, below that of the agent; making a cluster, and joining one.

use std::net::{TcpListener, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use holdall_cell::books::Ties;
use holdall_cell::lease::Terms;
use holdall_http::token::Tokens;
use holdall_links::join::Unjoined;
use holdall_links::member::Member;
use holdall_links::token::{For, JoinToken};
use holdall_links::{Cell, CellId, CellName, Home, Refusal, home};
use holdall_wire::HostCell;
use tracing::error;

use super::forgotten::Forgotten;
use super::identity::Loss;
use super::{identity, number};
use crate::config::Config;
use crate::directory::Directory;

const DIR: &str = "cluster";
/// The file with the address to listen at.
const LISTEN: &str = "listen";
/// For how many hours the first token of a cluster is good.
pub const TOKEN_HOURS: u64 = 1;
/// And for how many machines.
const MACHINES: u32 = 1000;

/// What is known of a cluster before the agent talks to anybody.
#[derive(Clone)]
pub(crate) struct Known {
    data: PathBuf,
    pub(crate) home: Home,
    pub(crate) terms: Terms,
    pub(crate) members: Vec<(CellId, Member)>,
    pub(crate) forgotten: Forgotten,
    pub(crate) listen: String,
    pub(crate) addresses: Vec<String>,
    /// Who may come from machines that are no members.
    pub(crate) tokens: Arc<Tokens>,
}

/// Why a machine is no member now, if it is not for want of right or reason but of a sensible word.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub(super) String);

/// A member that was just made.
pub struct Made {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub listens: String,
    /// With what others join, if this member lets them.
    pub token: Option<String>,
}

impl Known {
    /// What is known, if the agent with this directory is a member of a cluster.
    ///
    /// # Errors
    /// If something in the directory is missing or damaged.
    pub(crate) fn read(data: &Path, config: &Config) -> anyhow::Result<Option<Self>> {
        let dir = data.join(DIR);
        if !Home::is_in(&dir) {
            return Ok(None);
        }
        let home = Home::open(&dir)?;
        let roster = home.roster()?;
        let members = roster.members().map(|(id, it)| (id, it.clone())).collect();
        let listen = match &config.cluster.listen {
            Some(listen) => listen.clone(),
            None => kept_address(&dir)?,
        };
        let addresses = match &config.cluster.advertise[..] {
            [] => reached_at(&listen),
            advertise => advertise.to_vec(),
        };
        let (terms, forgotten) = (config.cluster.terms(), Forgotten::read(&dir)?);
        let tokens = Arc::new(Tokens::new(data));
        let data = data.to_owned();
        Ok(Some(Self { data, home, terms, members, forgotten, listen, addresses, tokens }))
    }

    /// The same, in line with what the log of the cell says of members that were given up.
    ///
    /// # Errors
    /// If that cannot be kept.
    pub(crate) fn as_logged(&self, ties: &Ties) -> anyhow::Result<Self> {
        let mut known = self.clone();
        for (id, _) in &self.members {
            let cell = number(*id);
            known.forgotten.agree(*id, ties.given_up(cell), ties.met(cell))?;
        }
        Ok(known)
    }

    /// Keeps beside the directory who this member is, for whoever loses it.
    ///
    /// # Errors
    /// If it cannot be kept.
    pub(crate) fn keep_beside(&self, twin: &Path) -> anyhow::Result<()> {
        let patience = Duration::from_millis(self.terms.patience());
        Loss { member: self.home.cell().clone(), patience }.would_be(twin)
    }

    /// Whether this agent can be the member that its directory says. Not if it was another one, on which others count; or may have forgotten
    /// that they do.
    ///
    /// # Errors
    /// If it cannot be told who it was, or cannot be kept who it is.
    pub(crate) fn is_this(&self, ties: &Ties, is_lost: bool) -> anyhow::Result<bool> {
        let own = self.home.cell();
        let before = identity::read(&self.data)?.filter(|before| before.id != own.id);
        let is_counted_on = identity::is_counted_on(ties)
            || is_lost && !ties.known().is_empty()
            || Loss::noted(&self.data)?.is_some();
        if let Some(before) = before.filter(|_| is_counted_on) {
            error!(
                "this agent was the member '{before}' ({}), and something is held across cells as that: it is alone, and not '{own}', until \
                 that is over and it is started again",
                before.id
            );
            return Ok(false);
        }
        identity::note(&self.data, own)?;
        Ok(true)
    }
}

/// Where the agent with this directory listens for its cluster, if it is a member of one.
pub fn listens_at(data: &Path) -> Option<String> {
    let dir = data.join(DIR);
    Home::is_in(&dir).then(|| kept_address(&dir).ok()).flatten()
}

fn kept_address(dir: &Path) -> anyhow::Result<String> {
    let path = dir.join(LISTEN);
    let text = std::fs::read_to_string(&path).with_context(|| {
        format!("{} is missing: write the address to listen at into it", path.display())
    })?;
    Ok(text.trim().to_owned())
}

/// Where others reach whoever listens at an address.
fn reached_at(listen: &str) -> Vec<String> {
    let everywhere = ["0.0.0.0:", "[::]:"].iter().find_map(|any| listen.strip_prefix(any));
    vec![match everywhere {
        Some(port) => format!("{}:{port}", host()),
        None => listen.to_owned(),
    }]
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// The name of a cell: as people want it, or that of the machine.
fn name(wanted: Option<&str>) -> Result<CellName, Refused> {
    let own = || host().split('.').next().unwrap_or_default().to_ascii_lowercase();
    let text = wanted.map_or_else(own, str::to_owned);
    let bad = |why| match wanted {
        Some(_) => Refused(format!("{why}")),
        None => Refused(format!("the name of this machine: {why}; say another with --name")),
    };
    text.parse().map_err(bad)
}

/// An address of this machine with a port: if it is 0, one that is free.
fn settled(listen: &str) -> anyhow::Result<String> {
    let host = without_port(listen);
    if host.contains(':') && !host.starts_with('[') {
        return Err(Refused(format!(
            "'{listen}' is no address to listen at: write [ADDRESS]:PORT"
        ))
        .into());
    }
    let found = listen.to_socket_addrs();
    let found: Vec<_> = found
        .map_err(|why| {
            Refused(format!("'{listen}' is no address to listen at, like lab1:7420: {why}"))
        })?
        .collect();
    match TcpListener::bind(&found[..]) {
        Ok(listener) => Ok(format!("{host}:{}", listener.local_addr()?.port())),
        // Perhaps it is this agent that is there, and will be again.
        Err(why) if why.kind() == std::io::ErrorKind::AddrInUse => Ok(listen.to_owned()),
        Err(why) => Err(Refused(format!(
            "cannot listen at {listen}: {why}; say with --listen an address of this machine"
        ))
        .into()),
    }
}

/// Makes the directory, and keeps the address in it.
fn prepare(data: &Path, listen: &str) -> anyhow::Result<PathBuf> {
    Directory::private(data)?;
    let dir = data.join(DIR);
    match std::fs::create_dir(&dir) {
        Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
            return Err(error).with_context(|| format!("{}", dir.display()));
        }
        _ => {}
    }
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700))?;
    std::fs::write(dir.join(LISTEN), format!("{listen}\n"))?;
    Ok(dir)
}

fn refuse_member(data: &Path) -> anyhow::Result<()> {
    let dir = data.join(DIR);
    if Home::is_in(&dir) {
        let own = Home::open(&dir).map(|home| home.cell().to_string()).unwrap_or_default();
        return Err(Refused(format!(
            "this agent is a member of a cluster already, as '{own}'; to leave it, stop the agent and move {} away",
            dir.display()
        ))
        .into());
    }
    Ok(())
}

/// Which cell this agent is to be: the one that it was, if it ever was one and no other name is wanted.
fn own_cell(data: &Path, wanted: Option<&str>) -> anyhow::Result<Cell> {
    match identity::read(data)? {
        Some(before) if wanted.is_none_or(|wanted| wanted == before.name.as_str()) => Ok(before),
        Some(before) => another_cell(data, &before, wanted),
        None => Ok(Cell { id: CellId::random()?, name: name(wanted)? }),
    }
}

/// A cell that nobody was, for an agent that was one.
fn another_cell(data: &Path, before: &Cell, wanted: Option<&str>) -> anyhow::Result<Cell> {
    identity::refuse_another(data, before)?;
    Ok(Cell { id: CellId::random()?, name: name(wanted)? })
}

/// Makes a cluster, with the agent of this directory as its first member; or another certificate, if that is what it has lost.
///
/// # Errors
/// If it is a member already, or the directory cannot be written.
pub fn init(data: &Path, wanted: Option<&str>, listen: &str) -> anyhow::Result<Made> {
    refuse_member(data)?;
    let (cell, listens) = (own_cell(data, wanted)?, settled(listen)?);
    let dir = prepare(data, &listens)?;
    let home = match Home::init(&dir, &cell, &reached_at(&listens)) {
        // It has the key, and has lost its own certificate.
        Err(home::Error::Begun(_)) => Home::certify(&dir, &cell)?,
        made => made?,
    };
    let good = Duration::from_secs(TOKEN_HOURS * 3600);
    let token = home.add_token(good, For::New(MACHINES))?.to_string();
    Ok(Made { name: cell.name.to_string(), listens, token: Some(token) })
}

/// The directory of a member, below that of its agent.
pub(crate) fn directory(data: &Path) -> PathBuf {
    data.join(DIR)
}

/// Joins as a cell that several machines host. It listens where their agent does, at a port of its own, which it keeps. Says where, and
/// where others reach it.
///
/// # Errors
/// If it is not let in.
pub(crate) async fn join_as(
    data: &Path,
    cell: &Cell,
    listens: &str,
    addresses: &[String],
    what: &HostCell,
) -> anyhow::Result<(String, Vec<String>)> {
    let token: JoinToken = what.token.parse()?;
    let listens = match listens_at(data) {
        Some(kept) => kept,
        None => settled(&format!("{}:0", without_port(listens)))?,
    };
    let port = listens.rsplit_once(':').map_or("", |(_, port)| port);
    let at = |address: &String| format!("{}:{port}", without_port(address));
    let addresses: Vec<_> = addresses.iter().map(at).collect();
    let dir = prepare(data, &listens)?;
    holdall_links::join(&dir, cell, &addresses, &what.at, &token).await?;
    Ok((listens, addresses))
}

fn without_port(address: &str) -> &str {
    address.rsplit_once(':').map_or(address, |(host, _)| host)
}

/// Joins the cluster of the member at an address. A member whose certificate was lost or has expired joins again.
///
/// # Errors
/// If it is not reached, or refuses; or if this agent is a member already and its certificate is good.
pub async fn join(
    data: &Path,
    wanted: Option<&str>,
    listen: Option<&str>,
    at: &str,
    token: &str,
) -> anyhow::Result<Made> {
    let token: JoinToken = token.parse().map_err(|bad| Refused(format!("--token: {bad}")))?;
    if at.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
        return Err(Refused(format!("'{at}' is no address of a member, like lab1:7420")).into());
    }
    let dir = data.join(DIR);
    let before = Home::is_in(&dir).then(|| Home::open(&dir)).transpose()?;
    let cell = match &before {
        // Whether the token is good for it, the member that made it says.
        Some(home) if home.pin() == token.pin() => {
            let own = home.cell().clone();
            if wanted.is_some_and(|wanted| wanted != own.name.as_str()) {
                refuse_member(data)?;
            }
            own
        }
        Some(_) => {
            refuse_member(data)?;
            anyhow::bail!("this agent has just left its cluster; try again");
        }
        None => own_cell(data, wanted)?,
    };
    let listens = match listen {
        Some(listen) => settled(listen)?,
        None => match listens_at(data) {
            Some(kept) => kept,
            None => settled(&format!("{}:{PORT}", host()))?,
        },
    };
    let (dir, addresses) = (prepare(data, &listens)?, reached_at(&listens));
    match holdall_links::join(&dir, &cell, &addresses, at, &token).await {
        // Nobody is let in again as one that was removed.
        Err(Unjoined::Refused(_, Refusal::Removed)) if before.is_none() => {
            let cell = another_cell(data, &cell, Some(cell.name.as_str()))?;
            holdall_links::join(&dir, &cell, &addresses, at, &token).await?;
        }
        joined => drop(joined?),
    }
    Ok(Made { name: cell.name.to_string(), listens, token: None })
}

/// The port of a member, if nothing is said.
const PORT: u16 = 7420;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_listens_at_an_address_of_this_machine() {
        let port =
            |listen: &str| settled(listen).map(|at| at.rsplit_once(':').map(|it| it.1 != "0"));
        assert_eq!(port("127.0.0.1:0").expect("here"), Some(true));
        // That of an example, which is nobody's; no port; and one that could be part of the address.
        for elsewhere in ["203.0.113.1:7000", "localhost", "::1:33"] {
            let why = settled(elsewhere).expect_err(elsewhere);
            assert!(why.is::<Refused>() && why.to_string().contains(elsewhere), "{why}");
        }
    }
}
