//! The names of users. They are only shown; they may come from a server far away that does not
//! answer; and the agent has one thread: so they are looked up on another, once for each user, and
//! whoever connects meanwhile is shown by its number.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

/// How long a connection waits for the name of its user.
const PATIENCE: Duration = Duration::from_millis(500);

/// The names that are known, or looked up just now.
pub(super) struct Names {
    look_up: fn(u32) -> String,
    known: RefCell<BTreeMap<u32, watch::Receiver<Option<Arc<str>>>>>,
}

/// What the system calls a user.
pub(super) fn look_up(uid: u32) -> String {
    let user = nix::unistd::User::from_uid(uid.into()).ok().flatten();
    user.map_or_else(|| uid.to_string(), |user| user.name)
}

impl Names {
    pub(super) fn new(look_up: fn(u32) -> String) -> Self {
        Self { look_up, known: RefCell::default() }
    }

    /// The name of a user, or its number if that takes too long.
    pub(super) async fn of(&self, uid: u32) -> Arc<str> {
        let mut name = self.asked(uid);
        let known = tokio::time::timeout(PATIENCE, name.wait_for(Option::is_some)).await;
        let name = known.ok().and_then(|known| known.ok().and_then(|name| name.clone()));
        name.unwrap_or_else(|| uid.to_string().into())
    }

    fn asked(&self, uid: u32) -> watch::Receiver<Option<Arc<str>>> {
        let mut known = self.known.borrow_mut();
        let asked = known.entry(uid).or_insert_with(|| {
            let (tell, told) = watch::channel(None);
            let look_up = self.look_up;
            tokio::task::spawn_blocking(move || tell.send(Some(look_up(uid).into())));
            told
        });
        asked.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// Where a slow server is waited for.
    static SLOW: Barrier = Barrier::new(2);

    #[tokio::test]
    async fn a_slow_server_of_names_holds_nobody_up() {
        let names = Names::new(|uid| {
            if uid == 1 {
                SLOW.wait();
            }
            format!("user{uid}")
        });
        let (first, second, other) = tokio::join!(names.of(1), names.of(1), names.of(2));
        assert_eq!([&*first, &*second, &*other], ["1", "1", "user2"]);
        SLOW.wait();
        while &*names.of(1).await != "user1" {}
    }
}
