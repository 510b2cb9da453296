//! How patient the links are, and how much they keep.

use std::time::Duration;

/// Times and bounds. The defaults suit a network of machines; tests take shorter times.
#[derive(Clone, Debug)]
pub struct Config {
    /// How often a peer is asked whether it is there.
    pub ping: Duration,
    /// How old the last question may be that was answered. Then the link is down.
    pub dead: Duration,
    /// How long it may take until a connection is a link, somebody joins, or a client has shown its token.
    pub handshake: Duration,
    /// How long until a peer that could not be reached is tried again, at first. It doubles each time.
    pub retry_min: Duration,
    /// How long at most.
    pub retry_max: Duration,
    /// How often peers compare what they know of the members, besides telling each other what is new.
    pub compare: Duration,
    /// How often it is looked whether the own certificate is stale.
    pub renewal: Duration,
    /// How many messages may wait for one peer.
    pub queue_frames: usize,
    /// How many bytes of them.
    pub queue_bytes: usize,
    /// How many messages of one peer may wait for those above; and how many other events of all.
    pub inbox_frames: usize,
    /// How many bytes of messages of one peer.
    pub inbox_bytes: usize,
    /// How many connections there may be of those who have not shown yet who they are.
    pub strangers: Places,
    /// How many clients there may be.
    pub clients: Places,
}

/// How many connections there may be.
#[derive(Clone, Copy, Debug)]
pub struct Places {
    /// From everywhere.
    pub all: usize,
    /// From one address.
    pub each: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            ping: Duration::from_secs(5),
            dead: Duration::from_secs(15),
            handshake: Duration::from_secs(10),
            retry_min: Duration::from_millis(200),
            retry_max: Duration::from_secs(30),
            compare: Duration::from_secs(30),
            renewal: Duration::from_secs(60 * 60),
            queue_frames: 4096,
            queue_bytes: 16 << 20,
            inbox_frames: 4096,
            inbox_bytes: 16 << 20,
            strangers: Places { all: 256, each: 32 },
            clients: Places { all: 1024, each: 256 },
        }
    }
}
