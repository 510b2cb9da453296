//! The agent, and what speaks as it does: through the client library, as programs use it.

use std::path::Path;
use std::rc::Rc;

use anyhow::Context;
use holdall_client::wire::{Amount, Ask, From, Lasting, Name, Need};
use holdall_client::{Client, Grant};

use crate::load::{self, Session};

/// A connection, and the names of all resources that were asked for.
#[derive(Clone)]
pub(crate) struct Connection {
    client: Client,
    from: Rc<From>,
    /// What follows the names of locks: nothing, or the cell that guards them.
    whose: Rc<str>,
}

/// Opens connections.
pub(crate) async fn connect(
    socket: &Path,
    count: usize,
    cell: Option<&str>,
) -> anyhow::Result<Vec<Connection>> {
    let whose: Rc<str> = cell.map(|cell| format!("@{cell}")).unwrap_or_default().into();
    let from = Rc::new(From { command: "holdall bench".into(), ..From::default() });
    let mut all = Vec::<Connection>::with_capacity(count);
    for n in 0..count {
        load::heed()?;
        let client = match all.first() {
            None => Client::connect(socket).await,
            Some(first) => first.client.another().await,
        };
        let client = client.with_context(|| {
            format!("connection {} of {count}; `ulimit -n` may have to be raised", n + 1)
        })?;
        all.push(Connection { client, from: from.clone(), whose: whose.clone() });
    }
    Ok(all)
}

impl Session for Connection {
    type Held = Grant;

    async fn acquire(&self, wants: &[usize]) -> anyhow::Result<Grant> {
        let need = |one: &usize| -> anyhow::Result<Need> {
            let name = format!("lock/{one}{}", self.whose).parse::<Name>()?;
            Ok(Need { name, amount: Amount::One })
        };
        let needs = wants.iter().map(need).collect::<anyhow::Result<_>>()?;
        let (lasting, from) = (Lasting::Connection, (*self.from).clone());
        let ask = Ask { needs, now: false, lasting, from, within: None, limit: None, part: None };
        Ok(self.client.ask(ask).await?)
    }

    async fn release(&self, held: Grant) -> anyhow::Result<()> {
        Ok(held.release().await?)
    }
}
