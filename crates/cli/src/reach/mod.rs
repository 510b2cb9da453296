//! Reaching the agent: which one is meant ([`place`], or [`elsewhere`] than on this machine), whether it answers, and how
//! it comes to life if it is ours to start ([`start`]).
//!
//! Nothing here waits without bound, and everything may be dropped while it waits, so callers can
//! listen to signals and deadlines meanwhile.

mod elsewhere;
mod place;
mod start;

use std::cell::{Cell, OnceCell};
use std::convert::Infallible;
use std::mem::ManuallyDrop;
use std::path::PathBuf;
use std::pin::pin;
use std::time::{Duration, Instant};

use holdall_client::{Client, Error, Presence, Waiting, heard_out, is_stopped};
use holdall_node::LastAgent;
use holdall_wire::{Ask, Body, Name, Reply, Status};
use tokio::runtime::Runtime;

pub(crate) use self::elsewhere::Elsewhere;
pub(crate) use self::place::{
    MACHINE_CONFIG, MACHINE_DATA, MACHINE_SOCKET, MACHINE_UNIT, Place, own_home, own_state, served,
};
pub(crate) use self::start::{reap, started};
use crate::failure::{Failure, UNAVAILABLE};
use crate::usage;

/// How long an agent may take to answer.
pub(crate) const ANSWER: Duration = Duration::from_secs(10);
/// The longest pause between attempts to connect to somebody who hangs up.
const LONGEST: Duration = Duration::from_secs(1);
/// How often it is looked whether an agent that is away has to be started again.
const LOOK: Duration = Duration::from_millis(100);
/// How long an agent that we cannot start may be away before it is said why.
const RETURN: Duration = Duration::from_secs(2);

/// How long an agent on another machine may take to hear that we do not want anything any more.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Which agent to talk to.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Reach {
    /// The agent's socket, or tls://HOST:PORT [default: $HOLDALL_AGENT, the machine's, or your own]
    #[arg(long = "agent", value_name = "SOCKET")]
    pub(crate) socket: Option<PathBuf>,
    /// Once it is decided, it stays so.
    #[arg(skip)]
    meant: OnceCell<Meant>,
}

/// The agent that is meant.
#[derive(Clone, Debug)]
enum Meant {
    /// On this machine.
    Here(Place),
    /// On another one.
    There(Elsewhere),
}

impl Reach {
    fn meant(&self) -> anyhow::Result<&Meant> {
        if let Some(meant) = self.meant.get() {
            return Ok(meant);
        }
        let named = self.socket.clone().or_else(|| place::variable("HOLDALL_AGENT"));
        let elsewhere =
            named.as_deref().map(|named| Elsewhere::of(named.as_os_str())).transpose()?;
        let meant = match elsewhere.flatten() {
            Some(elsewhere) => Meant::There(elsewhere),
            None => Meant::Here(place::meant(named)?),
        };
        Ok(self.meant.get_or_init(|| meant))
    }

    /// The agent that is meant, which has to be on this machine.
    pub(crate) fn place(&self) -> anyhow::Result<&Place> {
        match self.meant()? {
            Meant::Here(place) => Ok(place),
            Meant::There(Elsewhere { remote, .. }) => {
                Err(usage(format!("this can only be done on the machine of the agent ({remote})")))
            }
        }
    }

    /// The agent that is meant, if it is on another machine.
    pub(crate) fn elsewhere(&self) -> anyhow::Result<Option<&Elsewhere>> {
        match self.meant()? {
            Meant::Here(_) => Ok(None),
            Meant::There(elsewhere) => Ok(Some(elsewhere)),
        }
    }

    /// The agent that is meant, as `--agent` would name it anywhere on this machine.
    pub(crate) fn name(&self) -> anyhow::Result<String> {
        match self.meant()? {
            Meant::Here(place) => Ok(std::path::absolute(&place.socket)?.display().to_string()),
            Meant::There(Elsewhere { remote, .. }) => Ok(remote.to_string()),
        }
    }

    /// Where the agent has its files, as it says if it runs, or the last one there has left word: it may have been told
    /// otherwise than we were.
    pub(crate) async fn data(&self) -> anyhow::Result<PathBuf> {
        let place = self.place()?;
        if let Ok(client) = self.connect().await
            && let Ok(Reply::Agent(view)) = call(&client, Body::Agent).await
        {
            return Ok(view.data.into());
        }
        let last = LastAgent::at(&place.socket).ok().flatten();
        Ok(last.map_or_else(|| place.data.clone(), |last| last.data))
    }

    /// Connects to the agent if it runs.
    pub(crate) async fn connect(&self) -> anyhow::Result<Client> {
        let place = match self.meant()? {
            Meant::Here(place) => place,
            Meant::There(elsewhere) => return there(elsewhere).await,
        };
        reached(place).await.map_err(|error| match error {
            Error::NoAgent(_) if !place.machine => match start::same_as_before(place) {
                Ok(()) => Failure(UNAVAILABLE, format!("{error}; `holdall run` starts one")).into(),
                Err(why) => why,
            },
            error => turned_away(place, error),
        })
    }

    /// Connects to the agent, and starts it if it does not run and is ours to start.
    pub(crate) async fn connect_or_start(&self) -> anyhow::Result<Client> {
        let place = match self.meant()? {
            Meant::Here(place) => place,
            Meant::There(elsewhere) => return Box::pin(there(elsewhere)).await,
        };
        match reached(place).await {
            Ok(client) => Ok(client),
            Err(error) => self.start_after(place, error).await,
        }
    }

    /// The same, and asks for something in the same breath, if the agent is there and on this machine.
    pub(crate) async fn connect_asking(
        &self,
        ask: &Ask,
    ) -> anyhow::Result<(Client, Option<Waiting>)> {
        let Meant::Here(place) = self.meant()? else {
            return Ok((Box::pin(self.connect_or_start()).await?, None));
        };
        let connected = connected(place, || Client::connect_asking(&place.socket, ask.clone()));
        match connected.await {
            Ok(both) => Ok(both),
            Err(error) => Ok((Box::pin(self.start_after(place, error)).await?, None)),
        }
    }

    /// Starts the agent if that is what is missing, and ours to do.
    async fn start_after(&self, place: &Place, error: Error) -> anyhow::Result<Client> {
        match error {
            Error::NoAgent(_) if !place.machine => Box::pin(start::start(place)).await,
            error => Err(turned_away(place, error)),
        }
    }

    /// Starts the agent of a client again whenever it has gone, if it is ours to start and was not stopped on
    /// purpose: then it is for others to start it. Does so as long as it is polled.
    pub(crate) async fn keep_alive(&self, client: &Client) -> Infallible {
        let Ok(place) = self.place() else { return std::future::pending().await };
        let mut presence = client.presence();
        loop {
            // The client is there, and so is what tells.
            let _ = presence.wait_for(|now| *now != Presence::Here).await;
            let is_ours = !place.machine && !is_stopped(&place.socket);
            if is_ours && let Err(error) = Box::pin(start::start_again(place)).await {
                // It may be somebody else's to start, who does.
                let back = presence.wait_for(|now| *now == Presence::Here);
                if tokio::time::timeout(RETURN, back).await.is_err() {
                    crate::say(format!("{error:#}"));
                    let _ = presence.wait_for(|now| *now == Presence::Here).await;
                }
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Connects, if somebody answers in time. One that is just ending is followed by another, or by nobody.
async fn reached(place: &Place) -> Result<Client, Error> {
    connected(place, || Client::connect(&place.socket)).await
}

async fn connected<T, F: Future<Output = Result<T, Error>>>(
    place: &Place,
    connect: impl Fn() -> F,
) -> Result<T, Error> {
    let connect = async {
        let mut pause = Duration::from_millis(5);
        loop {
            match connect().await {
                Err(Error::Unreachable(_, error))
                    if error.kind() == std::io::ErrorKind::ConnectionAborted && pause < LONGEST =>
                {
                    tokio::time::sleep(pause).await;
                    pause *= 2;
                }
                done => return done,
            }
        }
    };
    in_time(&place.socket.display(), pin!(connect)).await
}

/// Connects to an agent on another machine. No other one is tried: it would know nothing of what this one has granted.
async fn there(elsewhere: &Elsewhere) -> anyhow::Result<Client> {
    let Elsewhere { remote, lease } = elsewhere;
    Ok(in_time(remote, Client::remote(remote, *lease)).await?)
}

async fn in_time<T>(
    at: &impl std::fmt::Display,
    connect: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    tokio::time::timeout(ANSWER, connect).await.unwrap_or_else(|_| {
        let silent = std::io::Error::new(std::io::ErrorKind::TimedOut, SILENT);
        Err(Error::Unreachable(at.to_string(), silent))
    })
}

const SILENT: &str = "it does not answer; its process may be stopped or overloaded";

/// Why the agent that is meant does not serve us, and what to do about it.
fn turned_away(place: &Place, error: Error) -> anyhow::Error {
    if !place.machine {
        return error.into();
    }
    let denied = matches!(&error, Error::Unreachable(_, io)
        if io.kind() == std::io::ErrorKind::PermissionDenied);
    let remedy = if denied {
        "its socket is for another group; ask to become a member"
    } else {
        "`systemctl start holdall.socket` starts it"
    };
    let text = format!("the agent of this machine: {error}; {remedy}, --agent names another");
    Failure(UNAVAILABLE, text).into()
}

/// Makes a call that is answered at once, or not at all.
pub(crate) async fn call(client: &Client, body: Body) -> anyhow::Result<Reply> {
    match tokio::time::timeout(ANSWER, client.call(body)).await {
        Ok(reply) => Ok(reply?),
        Err(_) => Err(Failure(UNAVAILABLE, format!("the agent: {SILENT}")).into()),
    }
}

/// Who holds and who waits, until that is enough, and whether there is more.
pub(crate) async fn look(
    client: &Client,
    names: &[Name],
    enough: impl Fn(&Status) -> bool,
) -> anyhow::Result<(Status, bool)> {
    let heard = Cell::new(Instant::now());
    let page = |status: &Status| {
        heard.set(Instant::now());
        enough(status)
    };
    let silent = async {
        while heard.get().elapsed() < ANSWER {
            tokio::time::sleep_until((heard.get() + ANSWER).into()).await;
        }
    };
    tokio::select! {
        status = client.status(names, page) => Ok(status?),
        () = silent => Err(Failure(UNAVAILABLE, format!("the agent: {SILENT}")).into()),
    }
}

/// Runs something asynchronous to its end.
pub(crate) fn block_on<T>(future: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    drive(&runtime()?, future)
}

/// The same for the last that a program does: what it leaves open is for the kernel to close, which does so anyway.
pub(crate) fn block_on_last<T>(
    future: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    drive(&ManuallyDrop::new(runtime()?), future)
}

fn runtime() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn drive<T>(
    runtime: &Runtime,
    future: impl Future<Output = anyhow::Result<T>>,
) -> anyhow::Result<T> {
    runtime.block_on(async {
        let done = future.await;
        heard_out(LAST_WORDS).await;
        done
    })
}
