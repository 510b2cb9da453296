//! `holdall cell export` and `import`: a cell in one file.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;
use holdall_client::Client;
use holdall_log::etcd::{Address, CellCopy, EtcdStore, Options};

use super::lead::adopt;
use super::{all, have_hosted, may_add, unknown};
use crate::failure::{CONFLICT, Failure};
use crate::{say, usage};

/// Copies a cell into a file.
pub(super) async fn export(name: &str, file: &Path, client: &Client) -> anyhow::Result<()> {
    let known = all(client).await?.into_iter().find(|cell| cell.name == *name);
    let known = known.ok_or_else(|| unknown(name))?;
    let store = EtcdStore::new(Address::parse(&known.store)?, Options::new(name, "-", "-"));
    let content = store.copy()?.write();
    let cannot = || format!("cannot write {}", file.display());
    let mut out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)
        .with_context(cannot)?;
    out.write_all(&content).and_then(|()| out.sync_all()).with_context(cannot)?;
    sync_directory_of(file).with_context(cannot)
}

/// What was made in a directory is there after a crash when the directory is synced.
fn sync_directory_of(file: &Path) -> std::io::Result<()> {
    let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty());
    File::open(dir.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

/// Puts a copy into an etcd, adopts it, and has it hosted.
pub(super) async fn import(
    name: &str,
    file: &Path,
    store: &str,
    hosts: &[String],
    client: &Client,
) -> anyhow::Result<()> {
    let content = std::fs::read(file);
    let content = content.map_err(|error| usage(format!("{}: {error}", file.display())))?;
    let copy = CellCopy::read(content.into());
    let damaged = || usage(format!("{} is damaged, or no copy of a cell", file.display()));
    let copy = copy.ok_or_else(damaged)?;
    let (view, address) = may_add(name, store, hosts, client).await?;
    let id = copy.identity.to_string();
    // Nobody comes back under an id that was removed: what was granted by that has ended with it.
    let is_removed = view.members.iter().any(|one| one.removed && one.id == id);
    let copy = if is_removed { holdall_node::another(&copy)? } else { copy };
    let id = copy.identity.to_string();
    let conflict = |why: String| anyhow::Error::from(Failure(CONFLICT, why));
    let mut members = view.members.iter().filter(|one| !one.removed);
    if let Some(other) = members.clone().find(|one| (one.name == name) != (one.id == id)) {
        let why = format!("{} is a cell of the cluster, and not the one of the copy", other.name);
        return Err(conflict(why));
    }
    // Of two that lead the same cell, each would grant what the other has granted.
    let hosted: Vec<_> = all(client).await?.into_iter().filter(|one| one.name == name).collect();
    let is_unknown = hosted.is_empty() && members.any(|one| one.name == name);
    if is_unknown || hosted.iter().any(|host| host.store != store) {
        let why = "is a cell of the cluster: a copy of it can only be put back where its log was";
        return Err(conflict(format!("{name} {why}; `holdall cell show {name}` tells where")));
    }
    let options = Options::new(name, &view.name, "-");
    let cell = copy.identity;
    let prefix = if address.prefix.is_empty() { name } else { address.prefix.as_str() };
    let prefix = prefix.to_owned();
    EtcdStore::new(address, options).put_copy(copy)?;
    adopt(name, store, &view.name, cell, None).with_context(|| {
        format!("the copy was put into {store}, and not adopted; before this is said again, delete it with `etcdctl del --prefix holdall/{prefix}/`")
    })?;
    let what = match is_removed {
        true => "as a new cell with its pools, since the one of the copy was removed",
        false => "and what was granted since the copy is forgotten",
    };
    say(format!(
        "{name} was put into {store}, {what}; nothing may lead the cell of the copy elsewhere any more"
    ));
    have_hosted(name, id, store, hosts, &view, client).await.with_context(|| {
        let hosts = hosts.join(",");
        format!("{name} is in {store}, and to have it hosted say `holdall cell add {name} --store '{store}' --hosts {hosts}`")
    })
}
