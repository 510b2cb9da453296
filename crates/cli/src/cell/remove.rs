//! `holdall cell remove`: the end of a cell.

use std::time::Instant;

use holdall_client::Client;
use holdall_log::etcd::{Address, Election, EtcdStore, Options};
use holdall_log::{Identity, OpenError};
use holdall_wire::{Body, ClusterCall};

use super::{LEADS, LOOK, all, at, id_of, identity, members, unknown};
use crate::reach::call;
use crate::say;

/// Ends a cell: first whoever leads it, which looks whether it may; then it is deleted in etcd, so that nobody leads it any
/// more; then the cluster forgets it, and so its hosts do.
pub(super) async fn remove(name: &str, is_forced: bool, client: &Client) -> anyhow::Result<()> {
    let hosts = all(client).await?.into_iter().filter(|cell| cell.name == name);
    let store = hosts.map(|host| host.store).next().ok_or_else(|| unknown(name))?;
    let id = id_of(name, &members(client).await?)?;
    let (place, cell) = (place_of(name, &store)?, identity(&id)?);
    // Whoever is elected after this may grant something that nobody has looked for.
    let since = if is_forced { None } else { Some(place.last_election()?) };
    let closed = at(client, name, ClusterCall::Close(is_forced)).await;
    if let Err(error) = closed {
        if !is_forced {
            return Err(error);
        }
        say(format!("nobody who leads {name} was told: {error:#}"));
    }
    if let Err(error) = delete(&place, cell, since).await {
        if !is_forced {
            return Err(error.context(format!("{name} is not removed, and goes on")));
        }
        say(format!("what {store} has of {name} is left there: {error:#}"));
    }
    for what in [ClusterCall::Remove(id.clone()), ClusterCall::Forget(id)] {
        call(client, Body::Cluster(what)).await?;
    }
    let deadline = Instant::now() + LEADS;
    while Instant::now() < deadline
        && let Some(host) = all(client).await?.into_iter().find(|one| one.name == name)
    {
        tracing::debug!(host = host.host, "still hosts it");
        tokio::time::sleep(LOOK).await;
    }
    say(format!(
        "{name} is removed; the fences of a cell that is made under its name in this cluster go on above those of this one"
    ));
    Ok(())
}

/// Where a cell is in etcd.
fn place_of(name: &str, store: &str) -> anyhow::Result<EtcdStore> {
    Ok(EtcdStore::new(Address::parse(store)?, Options::new(name, "-", "-")))
}

/// Deletes it in etcd, as soon as nobody leads it.
async fn delete(place: &EtcdStore, cell: Identity, since: Option<Election>) -> anyhow::Result<()> {
    let deadline = Instant::now() + LEADS;
    loop {
        match place.remove(cell, since) {
            Err(OpenError::InUse(_)) if Instant::now() < deadline => {
                tokio::time::sleep(LOOK).await;
            }
            done => return Ok(done?),
        }
    }
}
