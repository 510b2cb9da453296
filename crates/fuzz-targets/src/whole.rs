//! What people write that takes most of the program to read: configurations of agents, scopes of the checker.

use holdall_lab::check::Scope;

/// The configuration of an agent.
pub(crate) fn config(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_ok_and(|text| holdall_node::Config::parse(text).is_ok())
}

pub(crate) fn config_seeds() -> Vec<Vec<u8>> {
    let texts = [
        "ephemeral = false\n[pools.gpu]\nunits = 2\nlimit = '2h'\nexport = 'CUDA'\n[pools.db]\nlock = true\n",
        "[pools.board.units.red]\nSERIAL = 'a'\n[limits]\nrequests = 3\n[history]\ndays = 3\n",
        "socket_mode = '0660'\ndurability = 'sync'\nforgotten = '3s'\n[rights]\neverybody = ['view']\n",
    ];
    texts.map(|text| text.as_bytes().to_vec()).into()
}

/// A scope: a line of pools, one of users, and perhaps one of nodes.
pub(crate) fn scope(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let Some((pools, users)) = text.split_once('\n') else { return false };
    let (users, nodes) = users.split_once('\n').map_or((users, None), |(u, n)| (u, Some(n)));
    Scope::parse(pools, users, nodes).map(|scope| drop(scope.to_string())).is_ok()
}

pub(crate) fn scope_seeds() -> Vec<Vec<u8>> {
    ["1,1\n0+1/1+0", "2,1\n0*/0+1*\n0,0"].map(|text| text.as_bytes().to_vec()).into()
}
