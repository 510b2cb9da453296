//! `holdall pool`: what there is to hand out.

use std::process::ExitCode;
use std::time::Duration;

use comfy_table::{Table, presets};
use holdall_wire::{Body, Change, Kind, Name, PoolView, Status};

use crate::reach::{Reach, block_on, call, look};
use crate::until::until;
use crate::{print, show, usage};

/// Add, remove, resize, drain and list pools
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Declare a pool of units, or a lock
    Add {
        /// Its name: letters, digits, _ - . /; and @CELL, for a pool of a cell that several machines host
        name: Name,
        /// So many units, called NAME/0, NAME/1, ... [default: 1]
        #[arg(long, value_name = "N", conflicts_with_all = ["unit", "lock"])]
        units: Option<u32>,
        /// A unit with a name of its own; may be repeated
        #[arg(long, value_name = "UNIT", conflicts_with = "lock")]
        unit: Vec<Name>,
        /// A lock: exclusive, or shared by any number
        #[arg(long)]
        lock: bool,
        #[command(flatten)]
        reach: Reach,
    },
    /// Remove a pool; whoever waits for it is refused
    Remove {
        /// Its name
        name: Name,
        /// Even while some of it is held: that goes when it comes back
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        reach: Reach,
    },
    /// Change the number of units; fewer take effect as units come back
    Resize {
        /// Its name
        name: Name,
        /// How many units from now on
        units: u32,
        #[command(flatten)]
        reach: Reach,
    },
    /// Give a unit, or all units of a pool, to nobody any more; whoever has it keeps it
    Drain {
        /// The unit, like gpu/3, or the pool
        name: Name,
        /// Why, for others to see
        #[arg(long)]
        reason: String,
        /// Until then, like 2h or 18:00; for good if nothing is said
        #[arg(long, value_name = "TIME", value_parser = until)]
        until: Option<Duration>,
        #[command(flatten)]
        reach: Reach,
    },
    /// Give out again what was drained
    Undrain {
        /// The unit, like gpu/3, or the pool
        name: Name,
        #[command(flatten)]
        reach: Reach,
    },
    /// List the pools and their units
    List {
        /// Print one JSON object
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        reach: Reach,
    },
}

pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match &args.command {
        Command::Add { name, units, unit, lock, reach } => {
            let kind = match (lock, &unit[..], units) {
                (true, ..) => Kind::Lock,
                (_, [], n) => Kind::Numbered(n.unwrap_or(1)),
                (_, units, _) => Kind::Named(units.to_vec()),
            };
            if let Kind::Numbered(0) = kind {
                return Err(usage("a pool has at least one unit"));
            }
            let add = Change::Add { name: name.here(), kind };
            say_to(reach, name.cell(), Body::Change(add), name.cell().is_none())
        }
        Command::Remove { name, force, reach } => {
            let remove = Change::Remove { name: name.here(), force: *force };
            say_to(reach, name.cell(), Body::Change(remove), false)
        }
        Command::Resize { name, units, reach } => {
            let resize = Change::Resize { name: name.here(), units: *units };
            say_to(reach, name.cell(), Body::Change(resize), false)
        }
        Command::Drain { name, reason, until, reach } => {
            let millis = until.map(|until| until.as_millis() as u64);
            let drain = Body::Drain { name: name.here(), reason: reason.clone(), millis };
            say_to(reach, name.cell(), drain, false)
        }
        Command::Undrain { name, reach } => {
            say_to(reach, name.cell(), Body::Change(Change::Undrain { name: name.here() }), false)
        }
        Command::List { json, reach } => block_on(list(reach, *json)),
    }
}

/// Has the own cell, or one that several machines host, change its pools.
fn say_to(reach: &Reach, cell: Option<&str>, what: Body, start: bool) -> anyhow::Result<ExitCode> {
    let body = match cell {
        Some(cell) => Body::At { cell: cell.into(), question: Box::new(what) },
        None => what,
    };
    block_on(async {
        let client = if start { reach.connect_or_start().await? } else { reach.connect().await? };
        call(&client, body).await?;
        Ok(ExitCode::SUCCESS)
    })
}

async fn list(reach: &Reach, json: bool) -> anyhow::Result<ExitCode> {
    let client = reach.connect().await?;
    let is_listed = |pool: &PoolView| pool.declared || pool.removed;
    // These come first.
    let enough = |status: &Status| {
        !(status.grants.is_empty()
            && status.waiting.is_empty()
            && status.pools.iter().all(is_listed))
    };
    let (mut status, _) = look(&client, &[], enough).await?;
    status.pools.retain(is_listed);
    if json {
        let only = Status { pools: status.pools, ..Status::default() };
        print(&show::json(&only)?)?;
    } else if status.pools.is_empty() {
        print("no pools are declared; every other name is a lock, made on first use")?;
    } else {
        print(&table(&status.pools).trim_fmt())?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Pools with their units, and who holds them.
pub(crate) fn table(pools: &[PoolView]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["pool", "free", "units", "waiting"]);
    for pool in pools {
        table.add_row([
            format!("{}{}", pool.name, if pool.removed { " (being removed)" } else { "" }),
            if pool.lock { lock_state(pool) } else { pool.free.to_string() },
            if pool.lock { "lock".into() } else { units(pool) },
            pool.waiting.to_string(),
        ]);
    }
    table
}

fn lock_state(pool: &PoolView) -> String {
    if pool.holders.is_empty() { "yes".into() } else { "no".into() }
}

fn units(pool: &PoolView) -> String {
    let unit = |unit: &holdall_wire::UnitView| {
        let holder = unit.holder.map(|holder| format!("={holder}")).unwrap_or_default();
        let going = if unit.retiring { " (going)" } else { "" };
        let drained = unit.drained.as_ref().map(|why| format!(" ({})", show::drained(why)));
        format!("{}{holder}{going}{}", unit.name, drained.unwrap_or_default())
    };
    let some: Vec<_> = pool.units.iter().take(16).map(unit).collect();
    let more = pool.units.len().saturating_sub(16);
    some.join(" ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}
