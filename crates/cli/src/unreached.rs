//! Cells that cannot be reached, for people who look at what waits for them.

use std::collections::BTreeMap;

use holdall_client::Client;
use holdall_wire::{Body, ClusterCall, MemberView, Need, Reply};

use crate::cluster::REMOVED;
use crate::reach::call;
use crate::show;

/// Why which cells do not answer.
pub(crate) type Unreached = BTreeMap<String, String>;

/// Those of the cells that guard some of these needs; none if the agent does not say.
pub(crate) async fn unreached<'a>(
    client: &Client,
    needs: impl IntoIterator<Item = &'a Need>,
) -> Unreached {
    if needs.into_iter().all(|need| need.name.cell().is_none()) {
        return Unreached::new();
    }
    match call(client, Body::Cluster(ClusterCall::Members)).await {
        Ok(Reply::Cluster(view)) => among(&view.members),
        _ => Unreached::new(),
    }
}

/// Why this agent is not talked to by others; nothing if it is, or there are none.
pub(crate) async fn by_whom(client: &Client) -> Vec<String> {
    let Ok(Reply::Cluster(view)) = call(client, Body::Cluster(ClusterCall::Members)).await else {
        return Vec::new();
    };
    match view.removed {
        true => vec![REMOVED.into()],
        false => among(&view.members).iter().map(|(name, why)| format!("{name} {why}")).collect(),
    }
}

fn among(members: &[MemberView]) -> Unreached {
    let mut unreached = Unreached::new();
    for member in members.iter().filter(|member| !member.removed) {
        if member.up {
            unreached.remove(&member.name);
            continue;
        }
        let why = member.why.as_deref().map(|why| format!(": {}", show::clean(why)));
        let told = format!(
            "does not answer, since {}{}",
            show::ago(member.since),
            why.unwrap_or_default()
        );
        unreached.insert(member.name.clone(), told);
    }
    unreached
}
