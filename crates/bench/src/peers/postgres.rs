//! PostgreSQL: advisory locks of the session, all in one statement and in the order of their
//! numbers, so that nobody waits in a circle. Who waits for one holds those before it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{NoTls, Statement};

use super::program::POSTGRES_USER;
use crate::load::{Session, heed};

/// A connection, and its statements by the number of locks they take.
#[derive(Clone)]
pub(crate) struct Client {
    client: Rc<tokio_postgres::Client>,
    take: Rc<RefCell<BTreeMap<usize, Statement>>>,
    give_back: Statement,
}

pub(crate) async fn connect(port: u16) -> anyhow::Result<Client> {
    let place = format!("host=127.0.0.1 port={port} user={POSTGRES_USER} dbname=postgres");
    let (client, connection) = loop {
        match tokio_postgres::connect(&place, NoTls).await {
            // It listens some time before it serves.
            Err(error) if error.code() == Some(&SqlState::CANNOT_CONNECT_NOW) => {
                heed()?;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            connected => break connected?,
        }
    };
    // When it fails, so does whatever the client asks for next.
    tokio::task::spawn_local(connection);
    let give_back = client.prepare("select pg_advisory_unlock_all()").await?;
    Ok(Client { client: Rc::new(client), take: Rc::default(), give_back })
}

impl Client {
    async fn statement(&self, locks: usize) -> anyhow::Result<Statement> {
        if let Some(statement) = self.take.borrow().get(&locks) {
            return Ok(statement.clone());
        }
        let calls: Vec<_> = (1..=locks).map(|n| format!("pg_advisory_lock(${n})")).collect();
        let statement = self.client.prepare(&format!("select {}", calls.join(", "))).await?;
        self.take.borrow_mut().insert(locks, statement.clone());
        Ok(statement)
    }
}

impl Session for Client {
    type Held = ();

    async fn acquire(&self, wants: &[usize]) -> anyhow::Result<()> {
        let mut locks =
            wants.iter().map(|one| i64::try_from(*one)).collect::<Result<Vec<_>, _>>()?;
        locks.sort_unstable();
        let statement = self.statement(locks.len()).await?;
        let locks: Vec<&(dyn ToSql + Sync)> = locks.iter().map(|lock| lock as _).collect();
        self.client.query(&statement, &locks).await?;
        Ok(())
    }

    async fn release(&self, (): ()) -> anyhow::Result<()> {
        self.client.query(&self.give_back, &[]).await?;
        Ok(())
    }
}
