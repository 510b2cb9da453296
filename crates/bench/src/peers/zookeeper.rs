//! ZooKeeper: one transaction makes a node for each resource, which goes with the session. If there
//! is one already, the client watches it and tries again when it is gone.

use anyhow::{Context, bail};
use zookeeper_client::{Acls, CreateMode, CreateOptions, Error, EventType, MultiWriteError};

use crate::load::Session;

/// A connection, and what is part of what the nodes are called.
#[derive(Clone)]
pub(crate) struct Client {
    client: zookeeper_client::Client,
    run: usize,
}

pub(crate) async fn connect(port: u16, run: usize) -> anyhow::Result<Client> {
    let client = zookeeper_client::Client::connect(&format!("127.0.0.1:{port}")).await?;
    Ok(Client { client, run })
}

fn options() -> CreateOptions<'static> {
    CreateMode::Ephemeral.with_acls(Acls::anyone_all())
}

impl Client {
    /// Takes all paths, or none and tells which is taken.
    async fn try_to_take<'a>(&self, paths: &'a [String]) -> anyhow::Result<Option<&'a str>> {
        let mut transaction = self.client.new_multi_writer();
        for path in paths {
            transaction.add_create(path, b"", &options())?;
        }
        match transaction.commit().await {
            Ok(_) => Ok(None),
            Err(MultiWriteError::OperationFailed { index, source: Error::NodeExists }) => Ok(Some(
                paths.get(index).context("ZooKeeper refused a path that was not asked for")?,
            )),
            Err(error) => bail!(error),
        }
    }

    async fn wait_until_gone(&self, path: &str) -> anyhow::Result<()> {
        loop {
            let (found, watch) = self.client.check_and_watch_stat(path).await?;
            if found.is_none() || watch.changed().await.event_type == EventType::NodeDeleted {
                return Ok(());
            }
        }
    }
}

impl Session for Client {
    type Held = Vec<String>;

    async fn acquire(&self, wants: &[usize]) -> anyhow::Result<Vec<String>> {
        let path = |one: &usize| format!("/{}-{one}", self.run);
        let paths: Vec<String> = wants.iter().map(path).collect();
        while let Some(taken) = self.try_to_take(&paths).await? {
            self.wait_until_gone(taken).await?;
        }
        Ok(paths)
    }

    async fn release(&self, paths: Vec<String>) -> anyhow::Result<()> {
        let mut transaction = self.client.new_multi_writer();
        for path in &paths {
            transaction.add_delete(path, None)?;
        }
        transaction.commit().await?;
        Ok(())
    }
}
