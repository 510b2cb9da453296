//! Things in which others of their kind may be.

use std::cell::Cell;

use serde::de::Error;
use serde::{Deserialize, Deserializer};

thread_local! {
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// It ends when the inner one has been read, or could not be.
struct Inside;

impl Drop for Inside {
    fn drop(&mut self) {
        IS_INSIDE.set(false);
    }
}

/// Reads what is inside of another of its kind, and refuses one that is inside of that: nobody says such a thing, and a frame
/// full of them would use up the stack of whoever reads it.
pub(crate) fn nested<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    if IS_INSIDE.replace(true) {
        return Err(D::Error::custom("a frame in a frame in a frame"));
    }
    let _inside = Inside;
    T::deserialize(deserializer)
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use crate::{Body, Reply};

    /// `outer` is `inner` with some bytes before it: these again and again, and then `inner`.
    fn deep<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(outer: &T, inner: &T) {
        let write = |it: &T| postcard::to_stdvec(it).expect("written");
        let (one, innermost) = (write(outer), write(inner));
        let before = one.strip_suffix(&innermost[..]).expect("the inner one is last");
        assert_eq!(postcard::from_bytes::<T>(&one).as_ref(), Ok(outer));
        let many = [before.repeat(300_000), innermost].concat();
        assert!(postcard::from_bytes::<T>(&many).is_err());
        assert_eq!(postcard::from_bytes::<T>(&one).as_ref(), Ok(outer), "also after that");
    }

    #[test]
    fn nobody_nests_deeper_than_once() {
        let at = Body::At { cell: "a".into(), question: Box::new(Body::Agent) };
        deep(&at, &Body::Agent);
        let answers = vec![(1, Some(Reply::Done))];
        deep(&Reply::Attached { life: 1, last: 1, answers }, &Reply::Done);
    }
}
