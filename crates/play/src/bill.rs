//! Which protocols are played.

use std::collections::BTreeMap;

use crate::cast::Cast;
use crate::is_a_process;
use crate::settings::{BadPlay, Settings};

/// Stands for every protocol that is listed and that nobody named.
const ALL: &str = "all";

/// The protocols that are played, and those that would be if they could.
#[derive(Debug)]
pub struct Bill {
    /// To be played, one after another.
    pub casts: Vec<Cast>,
    /// Why some are left out, and which.
    left_out: BTreeMap<String, Vec<&'static str>>,
}

impl Bill {
    /// The protocols of these names. `all` is every one of those `listed` that is not named, as far as it
    /// can be played with the settings.
    ///
    /// # Errors
    /// If one of those named is not found.
    pub fn new<E>(
        names: &[String],
        listed: &[&'static str],
        settings: &Settings,
        find: impl Fn(&str) -> Result<Cast, E>,
    ) -> Result<Self, E> {
        let mut bill = Self { casts: Vec::new(), left_out: BTreeMap::new() };
        for name in names {
            if name != ALL {
                bill.casts.push(find(name)?);
                continue;
            }
            let others =
                listed.iter().copied().filter(|listed| names.iter().all(|name| name != listed));
            for other in others {
                // It is listed, so it is there.
                let found = find(other).map_err(|_| "has no such rule".to_owned());
                match found.and_then(|cast| cast.can_play(settings).map(|()| cast)) {
                    Ok(cast) => bill.casts.push(cast),
                    Err(why) => bill.left_out.entry(why).or_default().push(other),
                }
            }
        }
        Ok(bill)
    }

    /// Who is left out, and why, one line for each reason, to be told to a person.
    pub fn left_out(&self) -> impl Iterator<Item = String> {
        // The processes of a play come by here too, and were told already.
        let told = self.left_out.iter().filter(|_| !is_a_process());
        told.map(|(why, names)| format!("left out: {}: {why}", names.join(", ")))
    }
}

impl From<Cast> for Bill {
    fn from(cast: Cast) -> Self {
        Self { casts: vec![cast], left_out: BTreeMap::new() }
    }
}

impl Cast {
    /// Whether there is something that only this protocol cannot do; settings that make no sense for any
    /// are refused later.
    fn can_play(&self, settings: &Settings) -> Result<(), String> {
        match settings.validate(self) {
            Err(BadPlay::Unable(holdall_sim::Error::Limit { limit, .. })) => Err(limit.to_string()),
            Err(_) => Ok(()),
            Ok(()) => match self.assemble(&settings.topology(self)) {
                Ok(_) => Ok(()),
                Err(why) => Err(why.to_string()),
            },
        }
    }
}
