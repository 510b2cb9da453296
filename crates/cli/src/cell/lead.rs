//! Who leads a cell: another host, or in a new life whoever is elected then.

use std::time::{Duration, Instant};

use holdall_client::Client;
use holdall_log::etcd::{Address, EtcdStore, Options, WhenLed};
use holdall_log::{Identity, OpenError};
use holdall_wire::{BEING_STARTED, ClusterCall, Fault, HostedView, MemberView, Reply};

use super::{LEADS, LOOK, all, at, id_of, identity, members, unknown};
use crate::failure::{CONFLICT, Failure, UNAVAILABLE};
use crate::{say, show};

/// How long it is waited until a host is started, and after what time that is said.
const STARTS: Duration = Duration::from_secs(10);
const WORD: Duration = Duration::from_secs(1);

/// Lets a host lead, if it is there.
pub(super) async fn move_to(name: &str, heir: &str, client: &Client) -> anyhow::Result<()> {
    let (hosts, members) = once_there(name, heir, client).await?;
    let before = hosts.iter().find(|one| one.leads).map_or(0, |leader| leader.epoch);
    let not_there = hosts.iter().find(|one| one.host == heir && !one.leads);
    if let Some(why) = not_there.and_then(|one| one.trouble.as_ref()) {
        let why = format!("{heir} cannot lead {name} now: {}", show::clean(why));
        return Err(Failure(UNAVAILABLE, why).into());
    }
    if before == 0 && !hosts.is_empty() {
        let why = format!("nobody leads {name}; `holdall cell show {name}` tells more");
        return Err(Failure(UNAVAILABLE, why).into());
    }
    if let Some(leader) = hosts.iter().find(|one| one.leads)
        && let Some(silent) = members.iter().find(|one| one.name == name && !one.up)
    {
        let why = leader.trouble.as_ref().or(silent.why.as_ref()).map(|why| show::clean(why));
        let why = why.unwrap_or_else(|| "it has not been heard of since".into());
        let why = format!("{name} does not answer, which {} leads: {why}", leader.host);
        return Err(Failure(UNAVAILABLE, why).into());
    }
    let told = at(client, name, ClusterCall::HandOver(heir.to_owned())).await;
    // It may be gone before its answer is heard: then it shows who leads.
    let is_unheard = |why: &anyhow::Error| {
        matches!(why.downcast_ref(), Some(holdall_client::Error::Fault(Fault::Failed(_))))
    };
    told.map(drop).or_else(|why| if is_unheard(&why) { Ok(()) } else { Err(why) })?;
    until_led(client, name, Some(heir), before).await.map(drop)
}

/// How it stands with the hosts of a cell and with all members, when it answers and the host that is to lead it has been started: who has just
/// led it is in a moment.
async fn once_there(
    name: &str,
    heir: &str,
    client: &Client,
) -> anyhow::Result<(Vec<HostedView>, Vec<MemberView>)> {
    let (begun, mut is_told) = (Instant::now(), false);
    loop {
        let mut hosts = all(client).await?;
        hosts.retain(|one| one.name == name);
        let mut members = members(client).await?.members;
        members.retain(|one| !one.removed);
        let starts = |why: &String| why.starts_with(BEING_STARTED);
        let mut heirs = hosts.iter().filter(|one| one.host == heir);
        let is_starting = heirs.any(|one| one.trouble.as_ref().is_some_and(starts));
        let is_well_led = hosts.iter().any(|one| one.leads && one.trouble.is_none());
        let is_silent = members.iter().any(|one| one.name == name && !one.up);
        if begun.elapsed() > STARTS || !(is_starting || is_silent && is_well_led) {
            return Ok((hosts, members));
        }
        if !is_told && begun.elapsed() > WORD {
            let whom = if is_starting { heir } else { name };
            say(format!("waiting until {whom} is there"));
            is_told = true;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Begins a new life of a cell, also if somebody leads it whose log is not all that there was.
pub(super) async fn begin_a_new_life(name: &str, client: &Client) -> anyhow::Result<()> {
    let mut hosts = all(client).await?;
    hosts.retain(|one| one.name == name);
    let known = hosts.first().ok_or_else(|| unknown(name))?;
    let cell = identity(&id_of(name, &members(client).await?)?)?;
    // What is in etcd counts: what hosts say of it may be some seconds old.
    match adopt(name, &known.store, &known.host, cell, Duration::ZERO) {
        Err(why) if is_led(&why) => {
            let is_wrong = |one: &&HostedView| one.leads && one.trouble.is_some();
            let Some(leader) = hosts.iter().find(is_wrong) else {
                let why =
                    format!("{why}, and nothing is wrong with that: there is nothing to adopt");
                return Err(Failure(CONFLICT, why).into());
            };
            adopt_from(leader, cell).await?;
        }
        done => done?,
    }
    until_led(client, name, None, 0).await.map(drop)
}

/// Begins a new life instead of whoever leads, and of any other host that is elected meanwhile.
async fn adopt_from(leader: &HostedView, cell: Identity) -> anyhow::Result<()> {
    let HostedView { name, store, host, .. } = leader;
    let options = Options::new(name, host, "-");
    let place = EtcdStore::new(Address::parse(store)?, options.clone());
    let deadline = Instant::now() + LEADS;
    loop {
        place.depose(cell)?;
        // Whoever led may tell others something until its lease would have been over.
        match adopt(name, store, host, cell, options.lease) {
            Err(why) if is_led(&why) && Instant::now() < deadline => {
                tokio::time::sleep(LOOK).await;
            }
            done => return done,
        }
    }
}

fn is_led(why: &anyhow::Error) -> bool {
    matches!(why.downcast_ref(), Some(OpenError::InUse(_)))
}

/// Begins a new life of a cell in etcd, if it is there, and nobody leads it. Nobody does for so long.
pub(super) fn adopt(
    name: &str,
    store: &str,
    host: &str,
    cell: Identity,
    pause: Duration,
) -> anyhow::Result<()> {
    let address = Address::parse(store)?;
    let mut options = Options::new(name, host, "-");
    (options.when_led, options.identity) = (WhenLed::Refuse, Some(cell));
    let there = EtcdStore::new(address.clone(), options.clone()).identity()?;
    if there != Some(cell) {
        let why = match there {
            None => format!("{store} has nothing of {name}, and there is nothing to adopt"),
            Some(other) => format!(
                "{store} has the log of another cell, {other}, and not of {name}, which is {cell}; look whose it is, and delete it \
                 (`etcdctl del --prefix`) only if nobody wants it"
            ),
        };
        let remedy = format!(
            "put a copy there with `holdall cell import {name} FILE --store {store} --hosts NAME,...`; or, without one, end the cell with `holdall cell remove \
             --force {name}`, and make it anew with `holdall cell add`"
        );
        return Err(Failure(CONFLICT, format!("{why}; {remedy}")).into());
    }
    // Its hosts know of more than is there; how much more, they say themselves.
    options.seen.epoch = EtcdStore::new(address.clone(), options.clone()).look()?.epoch + 1;
    options.adopt = true;
    let (mut log, _) = EtcdStore::new(address, options).open_etcd()?;
    std::thread::sleep(pause);
    Ok(log.resign(None)?)
}

/// Waits until a host leads a cell: a certain one, or any; or until another one than that leads after this epoch.
pub(super) async fn until_led(
    client: &Client,
    name: &str,
    by: Option<&str>,
    after: u32,
) -> anyhow::Result<HostedView> {
    let deadline = Instant::now() + LEADS;
    let why = loop {
        let asked = at(client, name, ClusterCall::Hosted).await;
        let is_late = Instant::now() > deadline;
        match asked {
            Ok(Reply::Hosted(views)) => match views.into_iter().find(|view| view.leads) {
                Some(view) if by.is_none_or(|by| view.host == by) => return Ok(view),
                Some(view) if is_late || view.epoch > after => {
                    break format!("{} does", view.host);
                }
                _ if is_late => break "nobody does".to_owned(),
                _ => {}
            },
            Err(error) if is_late => break format!("{error:#}"),
            _ => {}
        }
        tokio::time::sleep(LOOK).await;
    };
    let told = by
        .map_or_else(|| format!("nobody leads {name}"), |by| format!("{by} does not lead {name}"));
    let why = format!("{told}: {why}; `holdall cell show {name}` tells more");
    Err(Failure(UNAVAILABLE, why).into())
}
