//! Redis: a script takes all keys or none, with an expiry. Who gets none tries again after a pause
//! that grows and is random: nobody is told when a key is given back.

use std::time::Duration;

use rand::RngExt;
use redis::aio::MultiplexedConnection;
use redis::{Script, ScriptInvocation};

use crate::load::Session;

const TAKE: &str = "
for _, key in ipairs(KEYS) do if redis.call('EXISTS', key) == 1 then return 0 end end
for _, key in ipairs(KEYS) do redis.call('SET', key, ARGV[1], 'PX', 30000) end
return 1";

const GIVE_BACK: &str = "
for _, key in ipairs(KEYS) do
  if redis.call('GET', key) == ARGV[1] then redis.call('DEL', key) end
end
return 1";

/// The first pause is up to this long, and each that follows up to twice as long as the one before.
const PAUSE: Duration = Duration::from_micros(500);
const LONGEST_PAUSE: Duration = Duration::from_millis(16);

/// A connection, what is part of what the keys are called, and what marks one as its own.
#[derive(Clone)]
pub(crate) struct Client {
    connection: MultiplexedConnection,
    run: usize,
    mark: usize,
    scripts: std::rc::Rc<[Script; 2]>,
}

pub(crate) async fn connect(port: u16, run: usize, mark: usize) -> anyhow::Result<Client> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}"))?;
    let connection = client.get_multiplexed_async_connection().await?;
    let scripts = [Script::new(TAKE), Script::new(GIVE_BACK)].into();
    Ok(Client { connection, run, mark, scripts })
}

impl Client {
    async fn invoke(&self, script: &Script, keys: &[String]) -> anyhow::Result<bool> {
        let mut invocation: ScriptInvocation<'_> = script.prepare_invoke();
        for key in keys {
            invocation.key(key);
        }
        let done = invocation.arg(self.mark).invoke_async(&mut self.connection.clone()).await?;
        Ok(done)
    }
}

impl Session for Client {
    type Held = Vec<String>;

    async fn acquire(&self, wants: &[usize]) -> anyhow::Result<Vec<String>> {
        let key = |one: &usize| format!("{}/{one}", self.run);
        let keys: Vec<String> = wants.iter().map(key).collect();
        let mut pause = PAUSE;
        while !self.invoke(&self.scripts[0], &keys).await? {
            let part = rand::rng().random::<f64>();
            tokio::time::sleep(pause.mul_f64(part)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        Ok(keys)
    }

    async fn release(&self, keys: Vec<String>) -> anyhow::Result<()> {
        self.invoke(&self.scripts[1], &keys).await?;
        Ok(())
    }
}
