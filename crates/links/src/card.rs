//! What a certificate says about its cell.
//!
//! The identity is a subject alternative name of the form `holdall://NAME/ID`. Whether the certificate is to be
//! believed is decided before, by the TLS handshake; here it is only read.

use rustls::pki_types::CertificateDer;
use time::OffsetDateTime;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use crate::cell::Cell;

const SCHEME: &str = "holdall://";

/// What a certificate says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Card {
    /// Whose it is.
    pub cell: Cell,
    /// From when it is good, in seconds since 1970.
    pub from: i64,
    /// Until when it is good, in seconds since 1970.
    pub until: i64,
}

/// A certificate that is not one of a cell.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the certificate is not one of a cell: {0}")]
pub struct Unreadable(&'static str);

impl Card {
    /// Reads a certificate.
    ///
    /// # Errors
    /// If it does not say exactly one identity.
    pub fn read(certificate: &CertificateDer<'_>) -> Result<Self, Unreadable> {
        let parsed = x509_parser::certificate::X509Certificate::from_der(certificate);
        let (rest, parsed) = parsed.map_err(|_| Unreadable("it cannot be read"))?;
        if !rest.is_empty() {
            return Err(Unreadable("something follows it"));
        }
        let names = parsed.subject_alternative_name();
        let names = names.map_err(|_| Unreadable("its names cannot be read"))?;
        let names = names.map_or(&[][..], |names| &names.value.general_names);
        let [GeneralName::URI(uri)] = names else {
            return Err(Unreadable("it does not have exactly one name"));
        };
        let cell = parse(uri).ok_or(Unreadable("its name is not holdall://NAME/ID"))?;
        let validity = parsed.validity();
        let (from, until) = (validity.not_before.timestamp(), validity.not_after.timestamp());
        Ok(Self { cell, from, until })
    }

    /// Whether two thirds of its time are over, so that it is time for another.
    pub fn is_stale(&self, now: i64) -> bool {
        let third = self.until.saturating_sub(self.from) / 3;
        now > self.until.saturating_sub(third)
    }

    /// Whether its time is over.
    pub fn is_over(&self, now: i64) -> bool {
        now > self.until
    }
}

/// How a certificate names a cell.
pub(crate) fn uri(cell: &Cell) -> String {
    format!("{SCHEME}{}/{}", cell.name, cell.id)
}

fn parse(uri: &str) -> Option<Cell> {
    let (name, id) = uri.strip_prefix(SCHEME)?.split_once('/')?;
    Some(Cell { id: id.parse().ok()?, name: name.parse().ok()? })
}

/// The time of the machine, in seconds since 1970.
pub(crate) fn now() -> i64 {
    OffsetDateTime::now_utc().unix_timestamp()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::cell::CellId;

    #[test]
    fn an_identity_comes_back_from_its_text() {
        let cell = Cell { id: CellId(0xfe), name: "lab1".parse().expect("a name") };
        assert_eq!(uri(&cell), "holdall://lab1/000000000000000000000000000000fe");
        assert_eq!(parse(&uri(&cell)), Some(cell));
        for bad in ["http://lab1/00", "holdall://lab1", "holdall://LAB/fe", "holdall://lab1/fe/x"] {
            assert_eq!(parse(bad), None);
        }
    }

    #[test]
    fn a_certificate_is_stale_in_its_last_third() {
        let cell = Cell { id: CellId(1), name: "a".parse().expect("a name") };
        let card = Card { cell, from: 1000, until: 1300 };
        assert!(!card.is_stale(1200) && card.is_stale(1201));
        assert!(!card.is_over(1300) && card.is_over(1301));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes: Vec<u8>) {
            prop_assert!(Card::read(&CertificateDer::from(bytes)).is_err());
        }
    }
}
