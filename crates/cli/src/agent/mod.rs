//! `holdall agent`: the process that hands things out.

mod background;
mod install;
mod units;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use holdall_client::Error;
use holdall_node::{Config, Hosted, InUse, Settings};
use holdall_wire::{AgentView, Body, Reply, Right, Shutdown, span};
use tracing_subscriber::EnvFilter;

use crate::failure::{Failure, NOT_NOW, UNAVAILABLE};
use crate::reach::{Reach, block_on, call, served};
use crate::unreached::by_whom;
use crate::{print, show, usage};

/// How long a restart may take to be decided: a snapshot is made, and another program is asked.
const RESTART: Duration = Duration::from_secs(60);

/// Run the agent that hands things out; `run` starts one in the background if none runs
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// Pools, limits and behaviour, in TOML
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Where clients reach it [default: $HOLDALL_AGENT, or your own]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// Where its files are [default: $HOLDALL_DATA, or SOCKET.data, or your state directory]
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Take over files that were copied: what was held there is taken for lost
    #[arg(long)]
    adopt: bool,
    /// Serve HTTP at this address, like 127.0.0.1:7421, to whoever has a token
    #[arg(long, value_name = "ADDR")]
    http: Option<SocketAddr>,
    /// Serve Prometheus metrics at this address, like 127.0.0.1:9187
    #[arg(long, value_name = "ADDR")]
    metrics: Option<SocketAddr>,
    /// End after this time without pools, holders and waiters
    #[arg(long, value_name = "TIME", value_parser = span)]
    idle_exit: Option<Duration>,
    /// Leave the session; end when idle for $HOLDALL_IDLE_EXIT [default: 5m], if nobody reaches it at an address
    #[arg(long, hide = true)]
    background: bool,
    /// Host the replicated cell whose directory this is, as long as the standard input is open
    #[arg(long, hide = true, value_name = "DIR", conflicts_with_all = ["config", "socket", "data"])]
    hosted: Option<PathBuf>,
    /// How long leases between cells last
    #[arg(long, hide = true, value_name = "N", requires = "hosted")]
    lease_seconds: Option<u64>,
    /// Only say whether this program, so configured, could go on from the log in a directory
    #[arg(long, hide = true, value_name = "DIR")]
    check_log: Option<PathBuf>,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Let systemd keep an agent: yours, or the machine's
    Install(install::InstallArgs),
    /// Undo `install`; data and configuration stay
    Uninstall(install::Args),
    /// Say whether an agent runs, and where
    Status {
        #[command(flatten)]
        reach: Reach,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Start an agent in the background, as `run` does if none runs
    Start {
        #[command(flatten)]
        reach: Reach,
    },
    /// End the agent; what is held stays held, and what waits waits for the next agent
    Stop {
        #[command(flatten)]
        reach: Reach,
        /// Tell those who wait to go
        #[arg(long, conflicts_with = "drain")]
        dismiss: bool,
        /// Tell those who wait to go, take no more requests, and end when nothing is held any more
        #[arg(long)]
        drain: bool,
        /// At once, as it is without --drain
        #[arg(long, conflicts_with = "drain")]
        now: bool,
    },
    /// Have the agent go on as the program that is now at its place, or another; no job notices
    Restart {
        #[command(flatten)]
        reach: Reach,
        /// The program
        #[arg(long, value_name = "PATH")]
        exe: Option<PathBuf>,
    },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        None => serve(args),
        Some(Command::Install(args)) => install::install(args),
        Some(Command::Uninstall(args)) => install::uninstall(args),
        Some(Command::Status { reach, json }) => block_on(status(reach, *json)),
        Some(Command::Start { reach }) => block_on(async {
            reach.place()?; // Agents elsewhere are not ours to start.
            reach.connect_or_start().await?;
            Ok(ExitCode::SUCCESS)
        }),
        Some(Command::Stop { reach, dismiss, drain, now: _ }) => {
            let how = match (dismiss, drain) {
                (_, true) => Shutdown::Drain,
                (true, _) => Shutdown::Dismiss,
                _ => Shutdown::AtOnce,
            };
            block_on(stop(reach, how))
        }
        Some(Command::Restart { reach, exe }) => block_on(restart(reach, exe.as_deref())),
    }
}

fn serve(args: &Args) -> anyhow::Result<ExitCode> {
    let mut config = match &args.config {
        Some(path) => Config::read(path).map_err(|error| usage(format!("{error:#}")))?,
        None => Config::default(),
    };
    config.http.listen = args.http.or(config.http.listen);
    config.http.tls().map_err(|error| usage(error.to_string()))?;
    if let Some(dir) = &args.check_log {
        holdall_node::check_log(dir)?;
        print(holdall_node::UNDERSTOOD)?;
        return Ok(ExitCode::SUCCESS);
    }
    let hosted = args.hosted.as_deref().map(Hosted::read).transpose()?;
    if let Some(hosted) = &hosted {
        config.cluster.advertise = hosted.advertise();
        config.cluster.lease_seconds = args.lease_seconds.unwrap_or(config.cluster.lease_seconds);
        config.cgroups = false;
    }
    let (socket, data) = match &args.hosted {
        Some(dir) => (Some(dir.join("agent.sock")), Some(dir.clone())),
        None => (args.socket.clone(), args.data.clone()),
    };
    let place = served(socket, data)?;
    place.make_own_directory()?;
    if place.machine {
        // A machine's agent is for everybody on it, unless its configuration says otherwise.
        config.socket_mode.get_or_insert_with(|| "0666".into());
    }
    let mut idle_exit = args.idle_exit;
    if args.background {
        // Whoever takes the place of an agent has left already, and needs what was left open.
        if !holdall_node::is_handed_over() {
            background::leave_everything()?;
        }
        // Whoever comes to an address cannot start it: there it ends only if that was asked for.
        if args.http.is_none() && args.metrics.is_none() {
            let wanted = std::env::var("HOLDALL_IDLE_EXIT").unwrap_or_else(|_| "5m".into());
            idle_exit = Some(span(&wanted).map_err(usage)?);
        }
    }
    let filter = EnvFilter::try_from_env("HOLDALL_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        // On a full disk the log is lost, not the agent.
        .log_internal_errors(false)
        .init();
    end_when_panicking();
    let (socket, data) = (place.socket, place.data);
    let (metrics, configured, adopt) = (args.metrics, args.config.is_some(), args.adopt);
    let background = args.background;
    let settings = Settings {
        socket,
        data,
        adopt,
        config,
        configured,
        metrics,
        idle_exit,
        background,
        hosted,
    };
    match holdall_node::run(&settings) {
        Err(error) if error.is::<InUse>() => Err(Failure(NOT_NOW, error.to_string()).into()),
        done => done.map(|()| ExitCode::SUCCESS),
    }
}

/// A panic in the middle of a step would leave things half changed. Whoever comes next starts from
/// what is on disk. The gateway of HTTP keeps nothing: there it ends one connection.
fn end_when_panicking() {
    let told = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        told(panic);
        if std::thread::current().name() != Some(holdall_http::THREAD) {
            holdall_node::note_panic(&panic.to_string());
            std::process::exit(70);
        }
    }));
}

async fn status(reach: &Reach, json: bool) -> anyhow::Result<ExitCode> {
    let client = reach.connect().await?;
    let Reply::Agent(view) = call(&client, Body::Agent).await? else {
        anyhow::bail!("the agent gave an unexpected reply");
    };
    if json {
        print(&show::json(&view)?)?;
    } else {
        let unreached = by_whom(&client).await;
        let unreached = unreached.iter().map(|why| format!("\ncluster    {why}"));
        print(&format!("{}{}", told(&view), unreached.collect::<String>()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn told(view: &AgentView) -> String {
    let stopping = "stopping: takes no more requests, ends when nothing is held";
    let mut state = match &view.waits_for {
        _ if view.stopping => stopping.to_owned(),
        Some(why) => format!("running, and grants nothing: {why}"),
        None => "running".to_owned(),
    };
    state.push_str(&format!(
        "\nprocess    {}, since {} ago\nversion    {}, protocol {}\nfiles      {} (epoch {})\n\
         holds      {} grants, {} waiting, {} pools declared",
        view.pid,
        show::ago(view.since),
        view.version,
        view.protocol,
        view.data,
        view.epoch,
        view.grants,
        view.waiting,
        view.pools
    ));
    let list = |rights: &[Right]| {
        let all: Vec<_> = rights.iter().map(ToString::to_string).collect();
        if all.is_empty() { "nothing".into() } else { all.join(", ") }
    };
    state.push_str(&format!("\nyou        {} may {}", view.you, list(&view.your_rights)));
    state.push_str("\nrights     the agent's own user and root may do everything");
    for (whom, rights) in &view.rights {
        state.push_str(&format!("\n           {whom}: {}", list(rights)));
    }
    state.push_str(if view.ephemeral {
        "\nnames      what is not declared is a lock, made on first use (ephemeral = true)"
    } else {
        "\nnames      what is not declared is refused (ephemeral = false)"
    });
    if let Some(why) = &view.no_http {
        state.push_str(&format!("\nHTTP       {why}; trying again"));
    }
    state.push_str("\ncommands   ");
    match &view.no_cgroups {
        None => state.push_str("each in a cgroup of its own; what moves itself to another is not seen"),
        Some(why) => state.push_str(&format!(
            "known by process and process group: what leaves the group (setsid) is not seen\n           \
             if its wrapper is killed; no cgroups: {why}"
        )),
    }
    state
}

async fn stop(reach: &Reach, how: Shutdown) -> anyhow::Result<ExitCode> {
    reach.place()?;
    let client = reach.connect().await?;
    let shutdown = Body::Shutdown(how);
    if how == Shutdown::Drain {
        // It answers when everything was given back, or one without sessions at once.
        client.call(shutdown).await.map_err(|error| match error {
            Error::Lost => {
                let why = "the agent was lost before everything was given back";
                Failure(UNAVAILABLE, format!("{why}; the next one takes requests again")).into()
            }
            error => anyhow::Error::from(error),
        })?;
    } else {
        call(&client, shutdown).await?;
    }
    client.lost().await;
    Ok(ExitCode::SUCCESS)
}

pub(crate) async fn restart(reach: &Reach, exe: Option<&Path>) -> anyhow::Result<ExitCode> {
    reach.place()?;
    // The agent has another directory than we have.
    let exe = exe.map(std::path::absolute).transpose()?;
    let exe = exe.map(|exe| exe.into_os_string().into_string());
    let exe = exe.transpose().map_err(|odd| usage(format!("{} is no text", odd.display())))?;
    let client = reach.connect().await?;
    let since = client.agent().since;
    // It makes a snapshot and has the program look at the log first.
    let restart = client.call(Body::Restart { exe: exe.clone() });
    let silent = || Failure(UNAVAILABLE, "the agent does not say whether it can restart".into());
    match tokio::time::timeout(RESTART, restart).await.map_err(|_| silent())? {
        // Somebody else has restarted it, and it is as it is now at its place.
        Err(Error::Lost) if exe.is_none() => {}
        done => drop(done?),
    }
    // If it cannot become the program after all, it may stay where it is.
    let _ = tokio::time::timeout(RESTART, client.lost()).await;
    let client = reach.connect().await?;
    if client.agent().since == since {
        anyhow::bail!("the agent goes on as the program it was; what it logs tells why");
    }
    Ok(ExitCode::SUCCESS)
}
