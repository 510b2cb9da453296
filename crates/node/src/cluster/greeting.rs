//! The first words of an agent to that of another cell.

use holdall_cell::greeting::Presence;
use holdall_cell::lease::Terms;
use serde::{Deserialize, Serialize};

use super::frame::{OLDEST, VERSION};

/// What an agent says first. Later versions add at the end, and older ones do not read that.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Greeting {
    /// The newest version that it speaks.
    pub(crate) version: u32,
    /// And the oldest.
    oldest: u32,
    /// Which start of which life it is.
    pub(crate) presence: Presence,
    /// The terms of its leases: the lease, the grace, how long before its end one stops, and when one is suspected.
    terms: [u64; 4],
    /// Nothing. Some say a digest of their pools here, which nobody reads: what a member says about itself is compared whenever a link
    /// comes up.
    unused: u64,
    /// Whether its log sees to it that one of its starts counts and no other: then a later one may come before the one before is
    /// seen to be gone. A byte at the end; cells of a machine do not say it.
    #[serde(skip)]
    pub(crate) is_replicated: bool,
}

/// Why a peer is not wanted, before it is looked at which start of which cell it is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unfit {
    #[error("its greeting cannot be read")]
    Unreadable,
    #[error(
        "it speaks versions {0} to {1} of what agents say, and this one {OLDEST} to {VERSION}; upgrade cells one version at a time"
    )]
    Version(u32, u32),
    #[error(
        "its leases last {theirs} ms and are given to others {their_grace} ms later, those of this cell {ours} and {our_grace}: `lease_seconds` under [cluster] must be the same everywhere"
    )]
    Terms { theirs: u64, their_grace: u64, ours: u64, our_grace: u64 },
}

fn listed(terms: &Terms) -> [u64; 4] {
    [terms.lease, terms.grace, terms.stopping, terms.suspicion]
}

impl Greeting {
    pub(crate) fn new(presence: Presence, terms: &Terms, is_replicated: bool) -> Self {
        let (version, oldest) = (VERSION, OLDEST);
        Self { version, oldest, presence, terms: listed(terms), unused: 0, is_replicated }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = postcard::to_stdvec(self).unwrap_or_default();
        bytes.extend(self.is_replicated.then_some(1));
        bytes
    }

    /// Reads a greeting, and looks whether cells with it and with these terms can talk.
    pub(crate) fn read(bytes: &[u8], terms: &Terms) -> Result<Self, Unfit> {
        let (mut theirs, rest) =
            postcard::take_from_bytes::<Self>(bytes).map_err(|_| Unfit::Unreadable)?;
        theirs.is_replicated = rest.first() == Some(&1);
        if theirs.version < OLDEST || theirs.oldest > VERSION {
            return Err(Unfit::Version(theirs.oldest, theirs.version));
        }
        if theirs.terms != listed(terms) {
            let [lease, grace, ..] = theirs.terms;
            return Err(Unfit::Terms {
                theirs: lease,
                their_grace: grace,
                ours: terms.lease,
                our_grace: terms.grace,
            });
        }
        Ok(theirs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting() -> Greeting {
        let presence = Presence { life: 9, epoch: 3, nonce: 300, began: 5, length: 7 };
        Greeting { unused: 1, ..Greeting::new(presence, &Terms::default(), false) }
    }

    #[test]
    fn a_greeting_keeps_its_bytes() {
        let bytes = greeting().encode();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "03010903ac020507e0d403904e9875a8c30101");
        let replicated = Greeting { is_replicated: true, ..greeting() };
        assert_eq!(replicated.encode(), [&bytes[..], &[1]].concat());
        assert_eq!(Greeting::read(&replicated.encode(), &Terms::default()), Ok(replicated));
        let longer = [bytes, vec![0, 2, 3]].concat();
        assert_eq!(
            Greeting::read(&longer, &Terms::default()),
            Ok(greeting()),
            "of a later version"
        );
    }

    #[test]
    fn only_neighbours_with_the_same_terms_talk() {
        let told = |change: fn(&mut Greeting)| {
            let mut greeting = greeting();
            change(&mut greeting);
            Greeting::read(&greeting.encode(), &Terms::default())
        };
        assert!(told(|it| it.version = VERSION + 1).is_ok(), "it still speaks our version");
        assert!(matches!(told(|it| it.oldest = VERSION + 1), Err(Unfit::Version(..))));
        assert!(matches!(told(|it| it.version = OLDEST - 1), Err(Unfit::Version(..))));
        let other = told(|it| it.terms[0] = 30_000).expect_err("another lease");
        assert!(other.to_string().contains("30000") && other.to_string().contains("60000"));
        assert_eq!(Greeting::read(&[1], &Terms::default()), Err(Unfit::Unreadable));
    }
}
