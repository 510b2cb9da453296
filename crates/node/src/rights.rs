//! Who may do what: one list for everything that an agent does for others.
//!
//! The agent's own user and root may do everything. Others may do what everybody may, what is said for
//! them by name, and what is said for a group they are in. The kernel vouches for users and groups.

use std::collections::BTreeMap;

use anyhow::Context;
use holdall_wire::Right;
use serde::Deserialize;

/// What a configuration says.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Listed {
    /// Everybody who may connect.
    pub everybody: Vec<Right>,
    /// Users, by name or number.
    pub users: BTreeMap<String, Vec<Right>>,
    /// Groups, by name or number.
    pub groups: BTreeMap<String, Vec<Right>>,
}

impl Default for Listed {
    fn default() -> Self {
        let everybody = vec![Right::View, Right::Ask, Right::Reserve];
        Self { everybody, users: BTreeMap::new(), groups: BTreeMap::new() }
    }
}

impl Listed {
    /// The same for people to read.
    pub(crate) fn told(&self) -> Vec<(String, Vec<Right>)> {
        let everybody = ("everybody".into(), self.everybody.clone());
        let users = self.users.iter().map(|(name, may)| (format!("user {name}"), may.clone()));
        let groups = self.groups.iter().map(|(name, may)| (format!("group {name}"), may.clone()));
        [everybody].into_iter().chain(users).chain(groups).collect()
    }
}

/// Some rights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rights(u8);

impl Rights {
    const ALL: Self = Self(u8::MAX);

    pub(crate) fn of(list: &[Right]) -> Self {
        let bits = list.iter().fold(0, |bits, right| bits | 1 << *right as u8);
        if list.contains(&Right::Admin) { Self::ALL } else { Self(bits) }
    }

    pub(crate) fn has(self, right: Right) -> bool {
        self.0 & 1 << right as u8 != 0
    }

    pub(crate) fn list(self) -> Vec<Right> {
        Right::ALL.into_iter().filter(|right| self.has(*right)).collect()
    }
}

/// The rights by number of user and group.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    owner: u32,
    everybody: Rights,
    users: BTreeMap<u32, Rights>,
    groups: BTreeMap<u32, Rights>,
}

impl Table {
    /// # Errors
    /// If there is no such user or group.
    pub(crate) fn new(listed: &Listed) -> anyhow::Result<Self> {
        let user = |name: &str| {
            let user = nix::unistd::User::from_name(name).ok().flatten();
            user.map(|user| user.uid.as_raw())
        };
        let group = |name: &str| {
            let group = nix::unistd::Group::from_name(name).ok().flatten();
            group.map(|group| group.gid.as_raw())
        };
        Ok(Self {
            owner: rustix::process::geteuid().as_raw(),
            everybody: Rights::of(&listed.everybody),
            users: numbered(&listed.users, user).context("rights.users")?,
            groups: numbered(&listed.groups, group).context("rights.groups")?,
        })
    }

    /// What a user may do; its groups are asked for only if it depends on them.
    pub(crate) fn of(&self, uid: u32, groups: impl FnOnce() -> Vec<u32>) -> Rights {
        if uid == self.owner || uid == 0 {
            return Rights::ALL;
        }
        let mut may = self.everybody.0 | self.users.get(&uid).map_or(0, |rights| rights.0);
        if !self.groups.is_empty() {
            for group in groups() {
                may |= self.groups.get(&group).map_or(0, |rights| rights.0);
            }
        }
        Rights(may)
    }
}

fn numbered(
    names: &BTreeMap<String, Vec<Right>>,
    look_up: impl Fn(&str) -> Option<u32>,
) -> anyhow::Result<BTreeMap<u32, Rights>> {
    let mut all = BTreeMap::new();
    for (name, list) in names {
        let number = name.parse().ok().or_else(|| look_up(name));
        let number = number.with_context(|| format!("there is no '{name}' on this machine"))?;
        let rights: &mut Rights = all.entry(number).or_default();
        rights.0 |= Rights::of(list).0;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Table {
        let listed: Listed = toml::from_str(text).expect("sensible");
        Table { owner: 7, ..Table::new(&listed).expect("known") }
    }

    #[test]
    fn rights_add_up_and_the_owner_has_all() {
        let table = table("everybody = ['view']\n[users]\n5 = ['ask']\n[groups]\n9 = ['pools']");
        let of = |uid, groups: &[u32]| table.of(uid, || groups.to_vec()).list();
        assert_eq!(of(4, &[]), [Right::View]);
        assert_eq!(of(5, &[8]), [Right::View, Right::Ask]);
        assert_eq!(of(5, &[8, 9]), [Right::View, Right::Ask, Right::Pools]);
        assert_eq!(of(7, &[]), Right::ALL);
        assert_eq!(of(0, &[]), Right::ALL);
    }

    #[test]
    fn by_default_nobody_changes_what_is_others() {
        let table = table("");
        let rights = table.of(4, Vec::new);
        assert_eq!(rights.list(), [Right::View, Right::Ask, Right::Reserve]);
        let admin = self::table("[users]\n4 = ['admin']").of(4, Vec::new);
        assert_eq!(admin.list(), Right::ALL, "whoever may stop it may do all the rest");
    }

    #[test]
    fn whom_nobody_knows_is_refused() {
        for bad in ["[users]\n'no such user' = ['view']", "[groups]\n'no such' = ['view']"] {
            let listed: Listed = toml::from_str(bad).expect("a table");
            assert!(Table::new(&listed).is_err(), "{bad}");
        }
        assert!(toml::from_str::<Listed>("everybody = ['fly']").is_err());
    }
}
