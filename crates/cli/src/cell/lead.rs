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
/// How often all members are asked meanwhile.
const ASK: Duration = Duration::from_millis(200);

/// Lets a host lead, if it is there.
pub(super) async fn move_to(name: &str, heir: &str, client: &Client) -> anyhow::Result<()> {
    let (hosts, members) = once_there(name, heir, client).await?;
    let before = hosts.iter().find(|one| one.leads);
    let not_there = hosts.iter().find(|one| one.host == heir && !one.leads);
    if let Some(why) = not_there.and_then(|one| one.trouble.as_ref()) {
        let why = format!("{heir} cannot lead {name} now: {}", show::clean(why));
        return Err(Failure(UNAVAILABLE, why).into());
    }
    if before.is_none_or(|leader| leader.epoch == 0) && !hosts.is_empty() {
        let why = format!("nobody leads {name}; `holdall cell show {name}` tells more");
        return Err(Failure(UNAVAILABLE, why).into());
    }
    if let Some(leader) = before
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
        let asked = async { anyhow::Ok((all(client).await?, members(client).await?.members)) };
        let asked = tokio::time::timeout(STARTS, asked).await;
        let silent =
            |_| Failure(UNAVAILABLE, format!("not all who may host {name} answer in time"));
        let (mut hosts, mut members) = asked.map_err(silent)??;
        hosts.retain(|one| one.name == name);
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
        tokio::time::sleep(ASK).await;
    }
}

/// Begins a new life of a cell, also if somebody leads it of whom it is known that its log is not all that there was.
pub(super) async fn begin_a_new_life(name: &str, client: &Client) -> anyhow::Result<()> {
    let mut hosts = all(client).await?;
    hosts.retain(|one| one.name == name);
    let known = hosts.first().ok_or_else(|| unknown(name))?;
    let cell = identity(&id_of(name, &members(client).await?)?)?;
    let behind = hosts.iter().find(|one| one.is_put_back());
    // What is in etcd counts: what hosts say of it may be some seconds old.
    let done = adopt(name, &known.store, &known.host, cell, behind.map(|one| one.host.as_str()));
    done.map_err(|why| match why.downcast_ref() {
        Some(OpenError::InUse(_)) => {
            let why = format!(
                "{why}, and no member has said that it knows more than the log of that one tells: there is nothing to adopt"
            );
            Failure(CONFLICT, why).into()
        }
        _ => why,
    })?;
    until_led(client, name, None, None).await.map(drop)
}

/// Begins a new life of a cell in etcd, if it is there, and nobody leads it, or this host does. From the moment that it is taken over from
/// nobody else is elected before that host can tell nothing more, also if this is killed.
pub(super) fn adopt(
    name: &str,
    store: &str,
    host: &str,
    cell: Identity,
    instead_of: Option<&str>,
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
    let (epoch, leader) = EtcdStore::new(address.clone(), options.clone()).reign()?;
    let behind = leader.filter(|leader| instead_of == Some(leader.host.as_str()));
    if let Some(leader) = &behind {
        options.when_led = WhenLed::TakeOver(leader.term);
    }
    // Its hosts know of more than is there; how much more, they say themselves.
    options.seen.epoch = epoch.saturating_add(1);
    options.adopt = true;
    let lease = options.lease;
    let (mut log, _) = EtcdStore::new(address, options).open_etcd()?;
    if let Some(leader) = behind {
        let left = lease.as_secs();
        say(format!(
            "{} leads {name} no longer; waiting {left} s until it knows that",
            leader.host
        ));
        std::thread::sleep(lease);
    }
    Ok(log.resign(None)?)
}

/// Waits until a host leads a cell: a certain one, or any; or until neither that one does nor the one before.
pub(super) async fn until_led(
    client: &Client,
    name: &str,
    by: Option<&str>,
    before: Option<&HostedView>,
) -> anyhow::Result<HostedView> {
    let deadline = Instant::now() + LEADS;
    // Its own epoch may grow while it leads.
    let is_after = |view: &HostedView| {
        before.is_none_or(|before| view.epoch > before.epoch && view.host != before.host)
    };
    let why = loop {
        let asked = at(client, name, ClusterCall::Hosted).await;
        let is_late = Instant::now() > deadline;
        match asked {
            Ok(Reply::Hosted(views)) => match views.into_iter().find(|view| view.leads) {
                Some(view) if by.is_none_or(|by| view.host == by) => return Ok(view),
                Some(view) if is_late || is_after(&view) => {
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
