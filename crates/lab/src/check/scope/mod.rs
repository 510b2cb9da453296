//! What is explored: pools, and users with what they ask for one after another.
//!
//! The notation, `--pools 1,1,2 --users '0+1/1+0,2/0:2*' --nodes 0,0,1`: users are separated by
//! `/`, successive requests of one user by `,`, the needs of a request by `+` in the order asked;
//! `0:2` is two units of pool 0. A pool written `0-2` is listed, with the units 0 to 2: `0.1` is its unit 1
//! (`/` separates users here), `0.1.2` two of its units, `0.1:2` its unit 1 and two more. A request whose use will probably take so
//! long, as its user says, is `0+1~4`. After a user, `*` repeats its list for ever, `^` lets it depart
//! after its list and return under a fresh id, `!` never ends its use.

mod bad;
pub(crate) mod suite;

use std::collections::BTreeSet;
use std::fmt;

use holdall_core::{About, CellId, Known, Length, Need, Needs, NodeId, Pool, PoolId, Topology};

pub use self::bad::{BadScope, Unreadable};

/// A set of units of listed pools.
pub(crate) type UnitMask = u64;

/// The most users a scope may have: sets of users are bit masks.
pub(crate) const USERS_MAX: usize = 24;

/// A small system to explore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The pools.
    pub pools: Vec<Pool>,
    /// The users.
    pub users: Vec<Script>,
}

/// What one user does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    /// What it asks for, one after another; at least one request.
    pub requests: Vec<Wanted>,
    /// What it does after the last of them.
    pub then: Then,
    /// Whether it never ends a use.
    pub endless: bool,
    /// The cell it comes from.
    pub cell: CellId,
}

/// What a user asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What it needs.
    pub needs: Needs,
    /// How long its use will probably take, if it says so.
    pub length: Option<Length>,
}

/// What a user does after its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Nothing.
    Stop,
    /// Starts again with the first request.
    Repeat,
    /// Departs, and returns under a fresh id.
    Respawn,
}

impl Scope {
    /// Reads the notation.
    ///
    /// # Errors
    /// If it cannot be read or makes no sense; the error marks the place.
    pub fn parse(pools: &str, users: &str, nodes: Option<&str>) -> Result<Self, BadScope> {
        let mut pools = read_pools(pools)?;
        let nodes = match nodes {
            Some(text) => numbers("--nodes", text)?,
            None => (0..).take(pools.len()).collect(),
        };
        one_for_each("--nodes", "nodes", &nodes, "pool", pools.len())?;
        for (pool, node) in pools.iter_mut().zip(nodes) {
            pool.node = NodeId(node.into());
        }
        let users = Reader { text: users, at: 0 }.users()?;
        let scope = Self { pools, users };
        scope.validate()?;
        Ok(scope)
    }

    /// The same scope with its users in cells: `0,0,1` puts the third into a cell of its own.
    ///
    /// # Errors
    /// If it does not name a cell for each user.
    pub fn with_homes(mut self, homes: &str) -> Result<Self, BadScope> {
        let cells = numbers("--homes", homes)?;
        one_for_each("--homes", "cells", &cells, "user", self.users.len())?;
        for (user, cell) in self.users.iter_mut().zip(cells) {
            user.cell = CellId(cell.into());
        }
        Ok(self)
    }

    /// Whether the protocol serves such a scope.
    ///
    /// # Errors
    /// If requests are larger, or pools have more units, than the protocol takes.
    pub fn suits(&self, about: &About) -> Result<(), BadScope> {
        let widest = self.requests().map(|(_, needs)| needs.len()).max().unwrap_or(0);
        if let Some(most) = about.assumes.needs_max.filter(|most| widest > *most as usize) {
            return Err(BadScope::TooWide { protocol: about.name.clone(), most, widest });
        }
        if !about.assumes.units && self.pools.iter().any(|pool| pool.capacity > 1) {
            return Err(BadScope::OnlySingleUnits(about.name.clone()));
        }
        if !about.assumes.named && self.pools.iter().any(|pool| pool.listed) {
            return Err(BadScope::OnlyCounted(about.name.clone()));
        }
        if !about.assumes.departures && self.users.iter().any(|user| user.then == Then::Respawn) {
            return Err(BadScope::OnlyStaying(about.name.clone()));
        }
        Ok(())
    }

    /// The system as the protocol sees it.
    pub fn topology(&self, about: &About) -> Topology {
        let pools_of = |user: &Script| {
            user.needs().flat_map(|needs| needs.iter().map(|need| need.pool)).collect()
        };
        let mut topology = Topology::of_pools(self.pools.clone());
        if about.assumes.participants == Known::Known {
            topology.users = self.users.iter().map(pools_of).collect();
        }
        topology
    }

    /// Whether some user never comes to an end, so that numbers grow for ever.
    pub fn goes_on_for_ever(&self) -> bool {
        self.users.iter().any(|user| user.then != Then::Stop)
    }

    /// Whether two requests cannot be held at the same time.
    pub(crate) fn conflict(&self, a: &Needs, b: &Needs) -> bool {
        a.iter().any(|mine| {
            let theirs = b.iter().find(|theirs| theirs.pool == mine.pool);
            let together =
                theirs.map_or(0, |theirs| u64::from(theirs.units) + u64::from(mine.units));
            together > u64::from(self.pools[mine.pool.index()].capacity)
                || theirs.is_some_and(|theirs| !theirs.named.is_disjoint(&mine.named))
        })
    }

    /// The units of listed pools that are named, each a bit of its own.
    pub(crate) fn units(&self, needs: &Needs) -> UnitMask {
        let first = |pool: PoolId| {
            let before = self.pools[..pool.index()].iter().filter(|pool| pool.listed);
            before.map(|pool| pool.capacity).sum::<u32>()
        };
        let of_need = |need: &Need| {
            let first = first(need.pool);
            need.named.iter().fold(0, |mask, unit| mask | 1 << (first + unit))
        };
        needs.iter().fold(0, |mask, need| mask | of_need(need))
    }

    /// The units that a mask stands for, with their pools.
    pub(crate) fn units_of(&self, mask: UnitMask) -> Vec<(usize, u32)> {
        let listed = self.pools.iter().enumerate().filter(|(_, pool)| pool.listed);
        let units = listed.flat_map(|(at, pool)| (0..pool.capacity).map(move |unit| (at, unit)));
        (0..).zip(units).filter(|(bit, _)| mask >> bit & 1 == 1).map(|(_, unit)| unit).collect()
    }

    /// Whether units of a pool have numbers.
    pub(crate) fn is_listed(&self, pool: PoolId) -> bool {
        self.pools.get(pool.index()).is_some_and(|pool| pool.listed)
    }

    /// For each user, the mask of users with whom it shares a pool in some request.
    pub(crate) fn sharing(&self) -> Vec<u32> {
        let share =
            |a: &Script, b: &Script| a.needs().any(|r| b.needs().any(|s| r.share_a_pool_with(s)));
        let mask = |a: &Script| {
            let sharers = self.users.iter().enumerate().filter(|(_, b)| share(a, b));
            sharers.fold(0, |mask, (lane, _)| mask | 1 << lane)
        };
        self.users.iter().map(mask).collect()
    }

    fn requests(&self) -> impl Iterator<Item = (usize, &Needs)> {
        let lanes = self.users.iter().enumerate();
        lanes.flat_map(|(lane, user)| user.needs().map(move |needs| (lane, needs)))
    }

    fn validate(&self) -> Result<(), BadScope> {
        if self.users.len() > USERS_MAX {
            return Err(BadScope::TooManyUsers(self.users.len()));
        }
        let listed = self.pools.iter().filter(|pool| pool.listed);
        let units: u64 = listed.map(|pool| u64::from(pool.capacity)).sum();
        if units > UnitMask::BITS.into() {
            return Err(BadScope::TooManyUnits(units));
        }
        for (lane, needs) in self.requests() {
            for need in needs.iter() {
                let pool = need.pool.0;
                let Some(&Pool { capacity, listed, .. }) = self.pools.get(need.pool.index()) else {
                    return Err(BadScope::NoPool { lane, pool, last: self.pools.len() - 1 });
                };
                if need.units > capacity {
                    let units = need.units;
                    return Err(BadScope::TooLarge { lane, units, pool, capacity });
                }
                if let Some(unit) = need.named.last().copied().filter(|_| !listed) {
                    return Err(BadScope::Counted { lane, unit, pool, last: capacity - 1 });
                }
                if let Some(unit) = need.named.last().copied().filter(|unit| *unit >= capacity) {
                    return Err(BadScope::NoUnit { lane, unit, pool, last: capacity - 1 });
                }
            }
        }
        Ok(())
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pool = |pool: &Pool| match pool.listed {
            true => format!("0-{}", pool.capacity - 1),
            false => pool.capacity.to_string(),
        };
        let pools: Vec<_> = self.pools.iter().map(pool).collect();
        write!(f, "--pools {} --users '", pools.join(","))?;
        for (i, user) in self.users.iter().enumerate() {
            write!(f, "{}{user}", if i == 0 { "" } else { "/" })?;
        }
        write!(f, "'")?;
        if !self.pools.iter().map(|pool| pool.node).eq((0..).map(NodeId).take(self.pools.len())) {
            let nodes: Vec<_> = self.pools.iter().map(|pool| pool.node.0.to_string()).collect();
            write!(f, " --nodes {}", nodes.join(","))?;
        }
        if self.users.iter().any(|user| user.cell != CellId(0)) {
            let cells: Vec<_> = self.users.iter().map(|user| user.cell.0.to_string()).collect();
            write!(f, " --homes {}", cells.join(","))?;
        }
        Ok(())
    }
}

impl Script {
    /// What it needs, one request after another.
    pub(crate) fn needs(&self) -> impl Iterator<Item = &Needs> {
        self.requests.iter().map(|wanted| &wanted.needs)
    }
}

impl fmt::Display for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Wanted { needs, length }) in self.requests.iter().enumerate() {
            f.write_str(if i == 0 { "" } else { "," })?;
            for (j, need) in needs.iter().enumerate() {
                write!(f, "{}{}", if j == 0 { "" } else { "+" }, need.pool.0)?;
                for unit in &need.named {
                    write!(f, ".{unit}")?;
                }
                if need.more() > u32::from(need.named.is_empty()) {
                    write!(f, ":{}", need.more())?;
                }
            }
            if let Some(length) = length {
                write!(f, "~{length}")?;
            }
        }
        f.write_str(match self.then {
            Then::Stop => "",
            Then::Repeat => "*",
            Then::Respawn => "^",
        })?;
        f.write_str(if self.endless { "!" } else { "" })
    }
}

/// Reads `--pools`: a number of units, or `0-2` for the units 0 to 2.
fn read_pools(text: &str) -> Result<Vec<Pool>, BadScope> {
    let read = |(at, part): (usize, &str)| {
        let bad = || BadScope::NoPools { pools: text.into(), part: part.into() };
        let (capacity, listed) = match part.split_once('-') {
            Some(("0", last)) => {
                (last.parse().ok().and_then(|last: u32| last.checked_add(1)).ok_or_else(bad)?, true)
            }
            Some(_) => return Err(bad()),
            None => (part.parse().map_err(|_| bad())?, false),
        };
        if capacity == 0 {
            return Err(BadScope::EmptyPool { pools: text.into(), at });
        }
        Ok(Pool { capacity, node: NodeId(0), listed })
    };
    text.split(',').enumerate().map(read).collect()
}

fn numbers(option: &'static str, text: &str) -> Result<Vec<u32>, BadScope> {
    let read = |number: &str| {
        let (text, bad) = (text.to_string(), number.to_string());
        number.parse().map_err(|_| BadScope::NoNumber { option, text, number: bad })
    };
    text.split(',').map(read).collect()
}

fn one_for_each(
    option: &'static str,
    what: &'static str,
    named: &[u32],
    of: &'static str,
    count: usize,
) -> Result<(), BadScope> {
    let named = named.len();
    if named == count {
        return Ok(());
    }
    Err(BadScope::Mismatch { option, named, what, count, of })
}

/// Reads `--users` from left to right.
struct Reader<'a> {
    text: &'a str,
    at: usize,
}

impl Reader<'_> {
    fn users(mut self) -> Result<Vec<Script>, BadScope> {
        let mut users = vec![self.user()?];
        while self.take('/') {
            users.push(self.user()?);
        }
        if self.at < self.text.len() {
            let known = "'+', ',', '/', '.', ':', '~', '*', '^' or '!'";
            return Err(self.error(Unreadable::Expected(known)));
        }
        Ok(users)
    }

    fn user(&mut self) -> Result<Script, BadScope> {
        let mut script = Script {
            requests: vec![self.request()?],
            then: Then::Stop,
            endless: false,
            cell: CellId(0),
        };
        while self.take(',') {
            script.requests.push(self.request()?);
        }
        loop {
            let before = self.at;
            if self.take('!') {
                script.endless = true;
            } else if self.take('*') && script.then == Then::Stop {
                script.then = Then::Repeat;
            } else if self.take('^') && script.then == Then::Stop {
                script.then = Then::Respawn;
            } else if self.at > before {
                self.at = before;
                return Err(self.error(Unreadable::Both));
            } else {
                return Ok(script);
            }
        }
    }

    fn request(&mut self) -> Result<Wanted, BadScope> {
        Ok(Wanted { needs: self.needs()?, length: self.length()? })
    }

    fn needs(&mut self) -> Result<Needs, BadScope> {
        let start = self.at;
        let mut list = vec![self.need()?];
        while self.take('+') {
            list.push(self.need()?);
        }
        Needs::new(list).map_err(|bad| Self { text: self.text, at: start }.error(bad.into()))
    }

    fn length(&mut self) -> Result<Option<Length>, BadScope> {
        if !self.take('~') {
            return Ok(None);
        }
        let start = self.at;
        let number = self.number("the length of a use")?;
        let length = u8::try_from(number).ok().and_then(|number| Length::try_from(number).ok());
        let bad = || Self { text: self.text, at: start }.error(Unreadable::Length(number));
        length.ok_or_else(bad).map(Some)
    }

    fn need(&mut self) -> Result<Need, BadScope> {
        let pool = PoolId(self.number("a pool number")?.into());
        let mut named = BTreeSet::new();
        while self.take('.') {
            let start = self.at;
            if !named.insert(self.number("the number of a unit")?) {
                self.at = start;
                return Err(self.error(Unreadable::Expected("a unit that is not named yet")));
            }
        }
        let by_name = named.len() as u32;
        let units = match self.take(':') {
            true => match self.number("a number of units")? {
                0 => 0,
                more => more.saturating_add(by_name),
            },
            false => by_name.max(1),
        };
        Ok(Need { pool, units, named })
    }

    fn number(&mut self, what: &'static str) -> Result<u32, BadScope> {
        let rest = &self.text[self.at..];
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let number = rest[..digits].parse().map_err(|_| self.error(Unreadable::Expected(what)))?;
        self.at += digits;
        Ok(number)
    }

    fn take(&mut self, c: char) -> bool {
        let found = self.text[self.at..].starts_with(c);
        self.at += usize::from(found) * c.len_utf8();
        found
    }

    /// An error with the place marked by `>`.
    fn error(&self, why: Unreadable) -> BadScope {
        let (before, after) = self.text.split_at(self.at);
        BadScope::Users { why, before: before.into(), after: after.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad(pools: &str, users: &str) -> String {
        Scope::parse(pools, users, None).expect_err("makes no sense").to_string()
    }

    #[test]
    fn the_notation_reads_back() {
        for (pools, users) in [
            ("1", "0"),
            ("1,1,2", "0+1/1+0,2/2:2*"),
            ("3", "0:3^/0:2!/0,0*"),
            ("1,1", "0+1~16/1,0~2*"),
            ("1,0-3", "1.2+0/1.0.3:2,1.1/1:2*"),
        ] {
            let scope = Scope::parse(pools, users, None).expect("sensible");
            assert_eq!(scope.to_string(), format!("--pools {pools} --users '{users}'"));
        }
        let scope = Scope::parse("1,1", "0+1", Some("4,4")).expect("sensible");
        assert_eq!(scope.to_string(), "--pools 1,1 --users '0+1' --nodes 4,4");
    }

    #[test]
    fn errors_mark_the_place() {
        assert!(bad("1", "0/x").contains("'0/>x'"), "{}", bad("1", "0/x"));
        assert!(bad("1", "").contains("a pool number at the mark: '>'"));
        assert!(bad("1", "0:").contains("'0:>'"));
        assert!(bad("1", "0#").contains("'0>#'"));
        assert!(bad("1", "0*^").contains("'0*>^'"));
        assert!(bad("1,1", "1/0+1+0").contains("twice"));
        assert!(bad("1", "0:0").contains("zero units"));
        assert!(bad("1", "99999999999").contains("expected a pool number"));
        assert!(bad("1", "0é").contains("'0>é'"));
        assert!(bad("0-1", "0.").contains("'0.>'"));
        assert!(bad("0-1", "0.1.1").contains("'0.1.>1'"));
        assert!(bad("0-1", "0.1:0").contains("zero units"));
        assert!(bad("1", "0~").contains("expected the length of a use at the mark: '0~>'"));
        assert!(bad("1", "0~17").contains("from 1 to 16, not 17 at the mark: '0~>17'"));
        assert!(bad("1", "0~0").contains("from 1 to 16, not 0 at the mark"));
        assert!(bad("1", "0~300").contains("from 1 to 16, not 300 at the mark"));
    }

    #[test]
    fn senseless_scopes_are_refused() {
        assert!(bad("1,1", "2").contains("the pools are 0 to 1"));
        assert!(bad("2", "0:3").contains("which has 2"));
        assert!(bad("0", "0").contains("at least 1"));
        assert!(bad("x", "0").contains("'x' is neither"), "{}", bad("x", "0"));
        assert!(bad("1-2", "0").contains("'1-2' is neither"));
        assert!(bad("0-1", "0.2").contains("units are 0 to 1"));
        assert!(bad("2", "0.0").contains("--pools 0-1"), "{}", bad("2", "0.0"));
        assert!(bad("0-1", "0.1:2").contains("which has 2"));
        assert!(bad("0-40,0-40", "0").contains("82"));
        assert!(bad("1", &["0"; 25].join("/")).contains("too many"));
        assert!(Scope::parse("1,1", "0", Some("0")).is_err());
    }
}
